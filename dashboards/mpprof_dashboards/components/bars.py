"""Bars of plain HTML: they draw at once, resize by themselves, and are text to those who hear the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dash import dcc, html

_ROOM = 0.0005
"""Of the whole width: a bar that is there at all is seen."""


@dataclass(frozen=True, slots=True)
class Row:
    """One bar from `start_ns` over `length_ns`. `kind` is its colour (`mp-k-…` in the style sheet).

    `value` and `note` stand behind it. `computed`: hatched.
    """

    name: str
    length_ns: float
    value: str
    kind: str
    key: str
    start_ns: float = 0.0
    note: str = ""
    computed: bool = False
    strong: bool = False
    hint: str = ""
    href: str = ""


def chart(rows: Sequence[Row], id: str, *, line_ns: float | None = None) -> html.Div:
    """Return a chart of `rows` on one scale from zero. A dashed line at `line_ns` crosses all of them."""
    whole = max([row.start_ns + row.length_ns for row in rows] + [line_ns or 0.0]) or 1.0
    items: list[Any] = [html.Ol([_bar(row, whole) for row in rows], className="mp-bars")]
    if line_ns is not None:
        line = html.Span(style={"left": _percent(line_ns / whole)}, className="mp-bar-line")
        items.append(html.Span(line, className="mp-bar-lines"))
    return html.Div(items, id=id, className="mp-bar-chart")


def _bar(row: Row, whole: float) -> html.Li:
    ends = sorted((row.start_ns, row.start_ns + row.length_ns))
    low, length = max(ends[0], 0.0), ends[1] - max(ends[0], 0.0)  # what is below zero has no bar
    kind = f"mp-fill mp-k-{row.kind}" + (" mp-computed" if row.computed else "")
    parts = [html.Span(className=kind, style=_place(low, length, whole))]
    end = _percent((low + length) / whole)
    said = [html.Span(row.value, className="mp-bar-number")]
    if row.note:
        said.append(html.Span(row.note, className="mp-bar-note"))
    parts.append(html.Span(said, className="mp-bar-value", style={"left": end}))
    name: Any = dcc.Link(row.name, href=row.href) if row.href else row.name
    return html.Li(
        [
            html.Span(name, className="mp-bar-name" + (" mp-strong" if row.strong else ""), title=row.name),
            html.Span(parts, className="mp-bar-track"),
        ],
        className="mp-bar-row",
        title=row.hint or None,
        **{"data-key": row.key, "data-ns": repr(row.length_ns)},
    )


def _place(start: float, length: float, whole: float) -> dict[str, str]:
    return {"left": _percent(start / whole), "width": _percent(max(length / whole, _ROOM))}


def _percent(ratio: float) -> str:
    return f"{100 * ratio:.3f}%"
