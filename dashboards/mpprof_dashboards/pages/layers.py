"""Layers: where in the model the time goes, forward, backward and in the baseline, on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dash import html

from mpprof.errors import MpprofError
from mpprof.report import words
from mpprof_dashboards import theme, work
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.context import HOW_TO_PROFILE, Context, Page, why_absent
from mpprof_dashboards.components.table import plain, table
from mpprof_dashboards.icicle import KINDS, Node, tree
from mpprof_dashboards.work import Per

# Icicles of plain HTML: a scope's width is its time, the band below its name says what that was spent on.

MOST_DEPTH = 6
_LEAST_RATIO = 0.004
"""Of the whole: narrower nodes are drawn together, as one that says how many they are."""


def icicle(root: Node, whole_ns: float, id: str, per: Per) -> html.Div:
    """Return the tree below `root` on a scale on which `whole_ns` is the full width."""
    return html.Div(_row(root, whole_ns, per, 0), className="mp-ice", id=id)


def _row(parent: Node, whole_ns: float, per: Per, depth: int) -> html.Div:
    children = [child for child in parent.children if child.total >= _LEAST_RATIO * whole_ns]
    small = [child for child in parent.children if child.total < _LEAST_RATIO * whole_ns]
    base = whole_ns if depth == 0 else parent.total
    items: list[Any] = [_node(child, parent, base, whole_ns, per, depth) for child in children]
    rest = sum(child.total for child in small)
    if small and base and rest / base > 0.001:
        said = f"{sum(child.count for child in small)} smaller: {words.duration(rest)} {per.text}"
        style = {"width": _percent(rest / base)}
        items.append(
            html.Div(html.Div("…", className="mp-ice-face", title=said), className="mp-ice-node", style=style)
        )
    return html.Div(items, className="mp-ice-row")


def _node(node: Node, parent: Node, base: float, whole_ns: float, per: Per, depth: int) -> html.Div:
    times = node.count // max(parent.count, 1)
    name = f"{times} × {node.name}" if times > 1 else node.name
    known = [kind for kind in KINDS if node.ns.get(kind)]
    parts = [f"{theme.kind_word(kind, per.units)} {words.duration(node.ns[kind])}" for kind in known]
    said = f"{name}: {words.duration(node.total)} {per.text} ({', '.join(parts)})"
    face = html.Button(
        [
            html.Span(words.plain(name), className="mp-ice-name"),
            html.Span(words.duration(node.total), className="mp-ice-time"),
            html.Span(_unknown(node), className="mp-ice-band", style={"background": _gradient(node)}),
        ],
        className="mp-ice-face",
        title=words.plain(said),
        **{"data-layer": node.path.partition("#")[0]},
    )
    deeper = [_row(node, whole_ns, per, depth + 1)] if node.children and depth < MOST_DEPTH else []
    return html.Div(
        [face, *deeper], className="mp-ice-node", style={"width": _percent(node.total / base if base else 0)},
        **{"data-ns": repr(node.total), "data-path": node.path},
    )  # fmt: skip


_COLOURS = {
    "unit": "var(--mp-unit)", "off": "var(--mp-off)", "cast": "var(--mp-cast)", "other": "var(--mp-other)",
    "unknown": "transparent",
}  # fmt: skip


def _unknown(node: Node) -> html.Span | None:
    """Return the unknown part, cross-hatched, at the end of the band."""
    part = node.ns.get("unknown", 0.0)
    if not part:
        return None
    return html.Span(className="mp-ice-unknown mp-k-unknown", style={"width": _percent(part / node.total)})


def _gradient(node: Node) -> str:
    """Return a gradient of hard-edged stripes, as wide as each kind's share."""
    whole, at, stops = node.total or 1.0, 0.0, []
    for kind in KINDS:
        if part := node.ns.get(kind, 0.0):
            end = at + part / whole
            stops.append(f"{_COLOURS[kind]} {100 * at:.2f}% {100 * end:.2f}%")
            at = end
    return f"linear-gradient(90deg, {', '.join(stops)})" if stops else "none"


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3f}%"


def legend(units: str) -> html.Ul:
    items = [
        html.Li([html.Span(className=f"mp-swatch mp-k-{kind}"), theme.kind_word(kind, units)])
        for kind in KINDS
    ]
    return html.Ul(items, className="mp-legend")


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
