"""Layers: where in the model the time goes, forward, backward and in the baseline, on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.errors import MpprofError
from mpprof.report import words
from mpprof_dashboards import work
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import HOW_TO_PROFILE, Context, Page, why_absent
from mpprof_dashboards.components.icicles import icicle, legend
from mpprof_dashboards.components.table import plain, table
from mpprof_dashboards.icicle import Node, tree

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.source import RunTables

PHASES = (("forward", "Forward"), ("backward", "Backward"), ("other", "Optimizer, copies and the rest"))


def layout(context: Context) -> list[Any]:
    document = context.report()
    drawn = icicles(context.source, context.run, document, context.choice.baseline)
    if drawn is None:
        reason = why_absent(document, "layers", "time", "trace")
        return [cards.section("Layers", cards.empty("No kernel time by layer", reason, HOW_TO_PROFILE))]
    each = work.per(document)
    asks = {"run": context.run, "baseline": context.choice.baseline or "", "table": "layer"}
    rows = table(
        "layers",
        work.table(context.source, context.run, document, "layer"),
        label="Layers of the run",
        asks=asks,
        sort=work.SORT,
        version=context.source.version(context.run),
    )
    note = f"{each.text}, by where it ran; click a scope in the drawing above to filter the table"
    return [drawn, cards.section("Layer by layer", html.Div(rows, className="mp-card mp-flush"), note=note)]


def icicles(source: RunTables, run: str, document: Report, baseline: str | None) -> html.Section | None:
    """Return this run and its baseline, phase beside phase, on one scale; None where nothing is known of
    layers."""
    mine = _trees(source, run, document)
    if mine is None or not any(node.total for node in mine):
        return None
    other = None
    if baseline and not document.facts.unlike:
        try:
            other = _trees(source, baseline, source.report(baseline))
        except MpprofError:  # the page of the run itself says what is wrong with the baseline
            other = None
    lines = {"This run": mine} | ({"Baseline": other} if other is not None else {})
    scale = max(sum(node.total for node in trees) for trees in lines.values())
    longest = max(node.total for trees in lines.values() for node in trees)
    each = work.per(document)
    ids = ("layers-run", "layers-baseline")
    parts: list[Any] = [
        _line(title, trees, (scale, longest), id, each)
        for id, (title, trees) in zip(ids, lines.items(), strict=False)
    ]
    parts.append(html.P(id="layers-said", className="mp-note mp-ice-said", role="status"))
    note = (
        f"width is time {each.text}, on one scale; identical neighbours are drawn once{work.over(document)}"
    )
    return cards.section(
        "Layers",
        html.Div(parts, className="mp-card mp-scroll"),
        head=[legend(each.units), html.P(note, className="mp-note mp-right")],
    )


def _trees(source: RunTables, run: str, document: Report) -> list[Node] | None:
    """Return a tree for each phase; None where the run has no trace."""
    try:
        ops, kernels = source.ops(run, in_steps=True), source.kernels(run, in_steps=True)
    except MpprofError:
        return None
    if not ops:
        return None
    time, each = document.time, work.per(document)
    device = time.device if time else ops[0]["device"]
    known = {key for key, _ in PHASES}
    phases = [("forward",), ("backward",), tuple({op["phase"] for op in ops} - known | {"other"})]
    return [tree(ops, kernels, device=device, phases=phase, steps=each.steps) for phase in phases]


def _line(title: str, trees: list[Node], scale_ns: tuple[float, float], id: str, each: work.Per) -> html.Div:
    """Return the phases side by side, where `scale_ns[0]` is the full width, or below one another, where
    `scale_ns[1]` is."""
    total = sum(node.total for node in trees)
    columns = [
        html.Div(
            [
                html.Div(
                    f"{name} {words.duration(node.total)}",
                    className="mp-ice-phase",
                    title=f"{name} {each.text}",
                ),
                icicle(node, node.total, f"{id}-{key}", each),
            ],
            className="mp-ice-column",
            style={
                key: f"{100 * node.total / ns:.3f}%"
                for key, ns in zip(("--w", "--narrow"), scale_ns, strict=True)
            },
        )
        for (key, name), node in zip(PHASES, trees, strict=True)
        if node.total
    ]
    said = html.H3(f"{title}: {words.duration(total)} of kernels {each.text}", className="mp-figure-title")
    return html.Div([said, html.Div(columns, className="mp-ice-columns")], id=id, className="mp-ice-line")


def content(source: RunTables, run: str, document: Report, baseline: str | None) -> list[Any]:
    """Return the icicles and the table of layers, without a script, for a file."""
    drawn = icicles(source, run, document, baseline)
    if drawn is None:
        return []
    return [
        drawn,
        cards.section("Layer by layer", plain("layers", work.table(source, run, document, "layer"))),
    ]


PAGE = Page("/layers", "Layers", layout, by_host=True)
