"""Differences between two runs, kernel by kernel or op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components.text import escape
from mpprof_dashboards.figures.base import Bar, bars, blank, time_scale

if TYPE_CHECKING:
    from mpprof.model import document as doc

_LIMIT = 16
GAIN, LOSS = theme.MEASURED, theme.ACCENT


def change_ns(row: doc.KernelChange) -> float:
    """What a kernel or op takes more (or, below zero, less) per step in the later run."""
    return float((row["to_ns"] or 0.0) - (row["from_ns"] or 0.0))


def changes(rows: list[doc.KernelChange]) -> go.Figure | None:
    """The largest differences in time per step; slate is less time, amber more. None without rows."""
    changed = sorted((row for row in rows if change_ns(row)), key=lambda row: -abs(change_ns(row)))[:_LIMIT]
    if not changed:
        return None
    unit, per = time_scale(*(change_ns(row) for row in changed))
    items = []
    for row in changed:
        ns = change_ns(row)
        text = f"{'+' if ns > 0 else '−'}{words.duration(abs(ns))}"
        if row["from_ns"] is None:
            text += " (new)"
        elif row["to_ns"] is None:
            text += " (gone)"
        hover = f"{row['key']}: {_side(row.get('from_ns'))} → {_side(row.get('to_ns'))}"
        items.append(Bar(row["key"], ns, text, LOSS if ns > 0 else GAIN, hover=hover, key=row["key"]))
    return bars(items, x_title=f"Change per step ({unit})", per=per)


def losses(found: doc.Learning, names: tuple[str, str]) -> go.Figure | None:
    """The mean loss of both runs against the optimizer updates applied by then, the stretch that is compared
    shaded. None where either has no loss."""
    curves = found["curves"]
    if not curves["from"] or not curves["to"]:
        return None
    figure = blank(300, margin={"l": 8, "r": 16, "t": 36, "b": 44})
    sides = ((curves["from"], names[0], theme.TOTAL), (curves["to"], names[1], theme.MEASURED))
    for points, name, colour in sides:
        figure.add_scatter(
            x=[point["updates"] for point in points], y=[point["loss"] for point in points],
            name=escape(name), mode="lines" if len(points) > 1 else "markers",
            line={"color": colour, "width": 1.8},
            customdata=[words.quantity(point["loss"], "") for point in points],
            hovertemplate="%{x:.0f} updates: %{customdata}<extra>" + escape(name) + "</extra>",
        )  # fmt: skip
    if found["window"] is not None:
        low, high = found["window"]
        figure.add_vrect(x0=low, x1=high, fillcolor=theme.GRID, opacity=0.5, line_width=0, layer="below")
    figure.update_xaxes(title_text="Applied optimizer updates")
    figure.update_yaxes(title_text="Loss")
    return figure


def _side(ns: float | None) -> str:
    return "not in that run" if ns is None else words.duration(ns)
