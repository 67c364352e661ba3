"""The pages, in the order of the navigation. A new page is one file and one line here."""

from mpprof_dashboards.components.context import Page
from mpprof_dashboards.pages import compare, kernels, layers, memory, numbers, runs, steps, timeline, why

PAGES: tuple[Page, ...] = (
    why.PAGE,
    timeline.PAGE,
    layers.PAGE,
    kernels.PAGE,
    steps.PAGE,
    memory.PAGE,
    numbers.PAGE,
    compare.PAGE,
    runs.PAGE,
)
