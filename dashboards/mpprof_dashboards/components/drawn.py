"""Our own drawings on a page and in a document: the flow, the ruler, the curves of the run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from dash import html

from mpprof.model.steps import ABSENT
from mpprof.report import units, words
from mpprof.report.content import SMALL_RATIO, loss_scale, matrix_units, on_cpu, peak
from mpprof_dashboards import theme
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.markup import Html
from mpprof_dashboards.drawings import flow, ruler, sparks
from mpprof_dashboards.figures.steps import step_ns

if TYPE_CHECKING:
    from mpprof.model.report import Report, Time
    from mpprof.model.steps import StepTable


def drawing(svg: str, className: str, **attributes: str) -> Html | None:
    """Return SVG text as an element; None for none."""
    return Html("div", {"className": className, **attributes}, svg) if svg else None


def ruler_of(document: Report) -> Html | None:
    return drawing(ruler.draw(ruler.marks_of(document)), "mp-ruler-place", id="ruler")


def flow_of(document: Report, base: Time | None, query: str = "") -> html.Section | None:
    """Return where the step's time goes and went, as bars joined by bands; None where the step is not
    known."""
    found = flow.flow_of(document, base)
    title = units.worded("One step, where its time goes", document.time)
    bars = drawing(flow.draw(found, title, query), "mp-flow-place")
    if bars is None:
        return None
    drawn = html.Div([bars, _limits(document, found)], className="mp-card", id="flow")
    facts, note = document.facts, "every class on one scale"
    if any(bar.computed for bar in found.bars):
        note += "; hatched: computed"
    if any(bar.key == "attainable" for bar in found.bars):
        note += f"; {words.ALONE_MEANS}"
    unexplained = None if facts.unlike else facts.unexplained_ns
    if unexplained is not None and unexplained > SMALL_RATIO * (facts.step_ns or 0.0):
        note += f"; {words.unexplained(unexplained)}"
    return cards.section(title, drawn, _legend(document, found), note=units.worded(note, document.time))


def _limits(document: Report, found: flow.Flow) -> html.Ul | None:
    """Return why each larger part of the last bar becomes no shorter, the longest first, in its colours.
    None where the last bar is of something else, or nothing is known."""
    bar, known = found.bars[-1] if found.bars else None, dict(document.answer.limits)
    if bar is None or bar.key not in ("after", "step"):
        return None
    said = [
        (_drawn_as(part.kind, computed=bar.computed), _limited(part), part.ns, known[part.key])
        for part in sorted(bar.segments, key=lambda part: -part.ns)
        if part.key in known and part.ns
    ]
    if "" in known:
        said = [(None, words.ALL_OF_IT, bar.ns, known[""])]
    items = [html.Li([swatch, *_reason(name, ns, why)]) for swatch, name, ns, why in said]
    head, look = html.Li(words.LIMITED_BY), "mp-legend mp-flow-limits"
    return html.Ul([head, *items], className=look, id="limits") if items else None


def _reason(name: str, ns: float, why: str) -> list[Any]:
    """Return a part, why it becomes no shorter, and beside that how fast it is."""
    reason, rate = why.partition(" (")[::2]
    return [f"{name} {words.duration(ns)}: ", html.Strong(reason), f" ({rate}" if rate else None]


def _limited(part: flow.Segment) -> str:
    """Return the name of a part in a word or two."""
    kind = theme.FLOW_BAND_OF.get(part.kind, part.kind)
    return part.name.lower().partition(",")[0] if kind == "wait" else theme.FLOW_WORDS[kind]


def _legend(document: Report, found: flow.Flow) -> html.Ul:
    """Return what the colours and greys of the bars are; a kind that stands alone in its bar names itself."""
    kinds = {part.kind for bar in found.bars if len(bar.segments) > 1 for part in bar.segments}
    said = theme.FLOW_LEGEND | ({"off": theme.CPU_LABELS["off_matrix_unit"]} if on_cpu(document) else {})
    units = matrix_units(document)
    return html.Ul(
        [
            html.Li([_drawn_as(kind), theme.of_units(said[kind], units)])
            for kind in theme.FLOW_COLOURS
            if kind in kinds
        ],
        className="mp-legend mp-flow-legend",
    )


def _drawn_as(kind: str, *, computed: bool = False) -> html.Span:
    """Return a kind of time as the bars show it; what is computed is hatched there."""
    if kind in theme.DOTTED and not computed:
        return html.Span(className="mp-swatch mp-k-unknown")
    colour, edge = theme.FLOW_COLOURS[kind], theme.FLOW_EDGES.get(kind)
    look = "mp-swatch mp-swatch-hatched" if computed else "mp-swatch"
    border = {"border": f"1px solid {edge}"} if edge else {}
    return html.Span(className=look, style={"background-color": colour} | border)


def scale_of(document: Report, table: StepTable | None) -> sparks.Curve | None:
    """Return the loss scale over the steps, with skipped updates as ticks; None where it was not recorded."""
    if table is None or not table.loss_scale_known.any():
        return None
    at, steps = table.step.astype(float), document.steps
    said = words.joined(
        (
            f"loss scale {loss_scale(steps)}" if steps and loss_scale(steps) else "loss scale",
            f"{words.count(steps.skipped)} of {words.count(steps.count)} updates skipped"
            if steps and steps.skipped is not None
            else None,
        )
    )
    scale = np.where(table.loss_scale_known, table.loss_scale, np.nan)
    ticks = at[table.skipped > 0].tolist()
    return sparks.Curve("scale", said, at, scale, stairs=True, ticks=ticks, log=True)


def curves_of(document: Report, table: StepTable | None, *, without_scale: bool = False) -> list[Any]:
    """Return step time, loss scale and memory over the steps, each under what is said of it; empty without
    steps."""
    if table is None or not len(table):
        return []
    at = table.step.astype(float)
    steps, found = document.steps, []
    if steps is not None:
        said = words.joined(
            (
                words.plural(steps.count, "step"),
                f"mean {words.duration(steps.mean_ns)}" if steps.mean_ns is not None else None,
                f"95th percentile {words.duration(steps.p95_ns)}" if steps.p95_ns is not None else None,
            )
        )
        warm = table.step < steps.first_steady if steps.first_steady else np.zeros(len(table), bool)
        usual = np.where(warm | table.profiled, np.nan, step_ns(table))
        found.append(sparks.Curve("step", said, at, usual))
    scale = scale_of(document, table)
    if scale is not None and not without_scale:
        found.append(scale)
    if (table.peak_bytes != ABSENT).any():
        known = peak(document)
        held = np.where(table.peak_bytes != ABSENT, table.peak_bytes, np.nan)
        size = f"{words.size(known[0])} peak memory" if known else "peak memory"
        found.append(sparks.Curve("memory", size, at, held, stairs=True))
    return [
        html.Div(
            [html.P(curve.said, className="mp-note"), drawing(sparks.draw(curve), "mp-curve-place")],
            className="mp-curve-row",
        )
        for curve in found
    ]


def run_of(document: Report, table: StepTable | None, *, without_scale: bool = False) -> html.Section | None:
    curves = curves_of(document, table, without_scale=without_scale)
    if not curves:
        return None
    return cards.section("The run", html.Div(curves, className="mp-card"), id="run-curves")
