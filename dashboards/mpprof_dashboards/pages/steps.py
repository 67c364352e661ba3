"""Steps: time, loss scale, skips, memory and hardware along the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from dash import html

from mpprof.model.steps import HardwareTable, StepTable
from mpprof.report import words
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.figures import steps as figures

if TYPE_CHECKING:
    from mpprof.model import document as doc


def layout(context: Context) -> list[Any]:
    run = context.run
    steps = context.source.steps(run)
    parts = content(context.report(), steps)
    return parts if steps is None else [*parts, _hardware(context.source.hardware(run))]


def content(document: doc.Report, steps: StepTable | None) -> list[Any]:
    """The step log of a run, figure by figure; what was not recorded says so."""
    if steps is None or not len(steps):
        return [
            cards.section(
                "Steps",
                cards.empty(
                    "No step was recorded",
                    "This run is a trace without the records of MPProfilerCallback.",
                    "Train with MPProfilerCallback(logdir) to record every step.",
                ),
            )
        ]
    return [_tiles(document), _time(document, steps), _numerics(document, steps)]


def _tiles(document: doc.Report) -> html.Div:
    steps = document["steps"]
    scale = steps["loss_scale"] if steps else None
    steady = f"{words.count(steps['steady'])} of them steady" if steps else ""
    return cards.tiles(
        cards.tile("Steps", words.count(steps["count"] if steps else None), steady, id="step-count"),
        _known(document, "median_ns", "Median step", words.duration, "median"),
        _known(document, "p95_ns", "95th percentile", words.duration, "p95"),
        _known(document, "skipped", "Skipped updates", words.count, "skips"),
        cards.tile("Loss scale, last", words.scale(scale["last"]), f"first {words.scale(scale['first'])}")
        if scale
        else cards.missing("Loss scale", why_absent(document, "steps.loss_scale")),
    )


def _known(
    document: doc.Report,
    field: Literal["median_ns", "p95_ns", "skipped"],
    label: str,
    form: Callable[[Any], str],
    id: str,
) -> html.Div:
    value = document["steps"][field] if document["steps"] else None
    if value is None:
        return cards.missing(label, why_absent(document, f"steps.{field}", "steps"))
    return cards.tile(label, form(value), id=id)


def _time(document: doc.Report, steps: StepTable) -> html.Section:
    figure = figures.time_per_step(steps, document["steps"])
    note = (
        "Batch begin to the next batch begin, per optimizer step. Profiled steps are slower and do not count."
    )
    if len(steps) > figures.MOST_POINTS:
        note += " The slowest and the fastest of each stretch are drawn."
    if figure is None:
        return cards.section(
            "Time", cards.empty("No step time", why_absent(document, "interval_ns", "steps.median_ns"))
        )
    return cards.section("Time", graph(figure, "step-times", title="Time per step", note=note))


def _numerics(document: doc.Report, steps: StepTable) -> html.Section:
    drawn = (
        (
            figures.loss_scale(steps),
            "loss-scale",
            "Loss scale and skipped updates",
            "No loss scale",
            "loss_scale",
        ),
        (figures.loss(steps), "loss", "Loss", "No loss", "loss"),
        (figures.memory(steps), "memory-steps", "Memory", "No memory readings", "memory"),
    )
    parts = [
        cards.empty(missing, why_absent(document, f"steps.{field}"))
        if figure is None
        else graph(figure, id, title=title)
        for figure, id, title, missing, field in drawn
    ]
    return cards.section("Numerics and memory", html.Div(parts, className="mp-grid-3"))


def _hardware(hardware: HardwareTable | None) -> html.Section:
    drawn = figures.hardware(hardware)
    if not drawn:
        return cards.section("Hardware", cards.empty("No hardware samples", "The run recorded none."))
    parts = [graph(figure, f"hardware-{row}", title=title) for row, (title, figure) in enumerate(drawn)]
    throttled = sorted({name for names in (hardware.throttle if hardware else ()) for name in names})
    note = f"The clock was held back by: {', '.join(throttled)}." if throttled else ""
    return cards.section("Hardware", html.Div(parts, className="mp-grid-3"), note=note)


PAGE = Page("/steps", "Steps", layout)
