"""Icicles of plain HTML: a scope's width is its time, the band below its name says what that was spent on."""

from __future__ import annotations

from typing import Any

from dash import html

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.icicle import KINDS, Node
from mpprof_dashboards.work import Per

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
