"""Steps: time, loss scale, skips, memory and hardware along the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

import dash
from dash import Input, Output, State, html
from dash.exceptions import PreventUpdate

from mpprof.errors import MpprofError
from mpprof.model.source import RunSource
from mpprof.model.steps import HardwareTable, StepTable
from mpprof.report import words
from mpprof_dashboards import choice as choices
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import Context, Page, why_absent
from mpprof_dashboards.components.graph import graph
from mpprof_dashboards.figures import steps as figures

if TYPE_CHECKING:
    from mpprof.model.report import Report


def layout(context: Context) -> list[Any]:
    run = context.run
    steps, hardware = context.source.steps(run), context.source.hardware(run)
    parts = content(context.report(), steps, hardware)
    if steps is not None and len(steps) and (hardware is None or not len(hardware)):
        parts.append(html.P("The run recorded no hardware samples.", className="mp-note"))
    return parts


def content(document: Report, steps: StepTable | None, hardware: HardwareTable | None = None) -> list[Any]:
    """Return the step log of a run on one axis; what never changes is a line of text, and what is missing is
    stated."""
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
    panels = _panels(document, steps, hardware)
    parts: list[Any] = [cards.inline_figures(_numbers(document))]
    if panels:
        drawn = graph(figures.together(panels), "step-times", title="What changes", note=_note(steps, panels))
        parts.append(cards.section("Over the steps", drawn))
    else:
        reason = why_absent(document, "interval_ns", "steps.median_ns")
        parts.append(cards.section("Time", cards.empty("No step time", reason)))
    steady = figures.steady_texts(steps, hardware)
    if steady:
        parts.append(html.P(["Never changed: ", "; ".join(steady), "."], className="mp-note", id="steady"))
    throttled = sorted({name for names in (hardware.throttle if hardware else ()) for name in names})
    if throttled:
        parts.append(html.P(f"The clock was throttled by: {', '.join(throttled)}.", className="mp-note"))
    missing = _missing(document, steps)
    if missing:
        parts.append(cards.section("Not recorded", cards.remarks(missing)))
    return parts


Shown = tuple[float, float]
"""The first and the last step of what is zoomed into."""


def _panels(
    document: Report, steps: StepTable, hardware: HardwareTable | None, shown: Shown | None = None
) -> list[tuple[str, Any]]:
    """Return (title, figure) of what changes in the run, from top to bottom; for the steps `shown` alone, the
    figures are finer."""
    near = steps if shown is None else figures.within(steps, *shown)
    drawers: list[tuple[str, bool, Callable[[StepTable], Any]]] = [
        ("Time", True, lambda table: figures.time_per_step(table, document.steps)),
        ("Loss scale", figures.changes(steps, "loss scale"), figures.loss_scale),
        ("Skipped rail", True, figures.skips),
        ("Loss", True, figures.loss),
        ("Memory", figures.changes(steps, "memory"), figures.memory),
    ]
    found = []
    for title, changes, draw in drawers:
        figure = draw(near) if changes else None
        if figure is None and near is not steps and changes and (whole := draw(steps)) is not None:
            figure, figure.data = whole, []  # nothing of it lies in here; its place stays
        found.append((title, figure))
    return [(title, figure) for title, figure in (*found, *figures.clocks(steps, hardware, shown)) if figure]


def zoomed(source: RunSource, search: str | None, moved: dict[str, Any] | None) -> Any:
    """Return the charts for the part that was zoomed into, finer than those of the whole run; the whole run
    after a double click; None where nothing was zoomed."""
    shown = _zoom(moved or {})
    if shown is None and not (moved or {}).get("xaxis.autorange"):
        return None
    chosen = choices.read(search, source.entries())
    if chosen.run is None:
        return None
    steps, hardware = source.steps(chosen.run), source.hardware(chosen.run)
    if steps is None or not len(steps):
        return None
    panels = _panels(source.report(chosen.run, chosen.baseline), steps, hardware, shown)
    figure = figures.together(panels)
    if shown is not None:
        figure.update_xaxes(range=list(shown))
    return figure


_MOST_STEP = 1e15


def _zoom(moved: dict[str, Any]) -> Shown | None:
    given = [moved.get(f"xaxis.range[{end}]") for end in (0, 1)]
    ends = [float(end) for end in given if isinstance(end, (int, float)) and abs(end) < _MOST_STEP]
    return (min(ends), max(ends)) if len(ends) == 2 else None


def _register(app: dash.Dash, source: RunSource) -> None:
    def zoom(moved: dict[str, Any] | None, search: str | None) -> Any:
        try:
            figure = zoomed(source, search, moved)
        except MpprofError:  # gone since the page was drawn, which the next refresh says
            figure = None
        if figure is None:
            raise PreventUpdate
        return figure

    app.callback(
        Output("step-times", "figure"), Input("step-times", "relayoutData"), State("url", "search"),
        prevent_initial_call=True,
    )(zoom)  # fmt: skip


def _note(steps: StepTable, panels: list[tuple[str, Any]]) -> str:
    said = ["Drag over a stretch to zoom all charts; double-click to show the whole run."]
    if any(title == "Time" for title, _ in panels):
        said.append(
            "A step lasts from one batch's begin to the next. Profiled steps are slower and do not count."
        )
    if len(steps) > figures.MOST_POINTS:
        said.append("Each stretch of steps is drawn by its slowest and its fastest step; zoom in for more.")
    return " ".join(said)


def _numbers(document: Report) -> list[tuple[str, str, str, str]]:
    """Return (value, name, id, why it is missing) of what every reader asks for."""
    steps = document.steps
    scale = steps.loss_scale if steps else None
    steady = f"steps, {words.count(steps.steady)} of them steady" if steps else "steps"
    return [
        (words.count(steps.count if steps else None), steady, "step-count", ""),
        _known(document, "mean_ns", "a step (mean)", words.duration, "mean"),
        _known(document, "median_ns", "median", words.duration, "median"),
        _known(document, "p95_ns", "95th percentile", words.duration, "p95"),
        _known(document, "skipped", "updates skipped", words.count, "skips"),
        (words.scale(scale.last), "loss scale at the end", "scale", f"first {words.scale(scale.first)}")
        if scale
        else ("—", "loss scale", "scale", why_absent(document, "steps.loss_scale")),
    ]


def _known(
    document: Report,
    field: Literal["mean_ns", "median_ns", "p95_ns", "skipped"],
    label: str,
    form: Callable[[Any], str],
    id: str,
) -> tuple[str, str, str, str]:
    value = getattr(document.steps, field, None)
    if value is None:
        return "—", label, id, why_absent(document, f"steps.{field}", "steps")
    return form(value), label, id, ""


def _missing(document: Report, steps: StepTable) -> list[str]:
    """Return what no line of the log holds, each with its reason."""
    found = []
    if not steps.loss_scale_known.any():
        found.append(f"Loss scale: {why_absent(document, 'steps.loss_scale')}")
    if not steps.loss_known.any():
        found.append(f"Loss: {why_absent(document, 'steps.loss')}")
    if figures.memory(steps) is None:
        found.append(f"Memory: {why_absent(document, 'steps.memory', 'steps.peak_memory_bytes')}")
    return found


PAGE = Page("/steps", "Steps", layout, register=_register)
