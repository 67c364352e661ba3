"""The pages, in the order of the navigation. A new page is one file and one line here."""

from mpprof_dashboards.components.context import Page
from mpprof_dashboards.pages import compare, layers, memory, ops, steps, verdict

PAGES: tuple[Page, ...] = (verdict.PAGE, steps.PAGE, ops.PAGE, layers.PAGE, memory.PAGE, compare.PAGE)
