"""Differences between two runs, kernel by kernel or op by op."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.figures.base import Bar, bars, time_scale

if TYPE_CHECKING:
    from mpprof.model import document as doc

_LIMIT = 16
GAIN, LOSS = theme.CLASS_COLOURS["elementwise"], theme.ACCENT


def change_ns(row: doc.KernelChange) -> float:
    """What a kernel or op takes more (or, below zero, less) per step in the later run."""
    return float((row["to_ns"] or 0.0) - (row["from_ns"] or 0.0))


def changes(rows: list[doc.KernelChange]) -> go.Figure | None:
    """The largest differences in time per step; green is less time, amber more. None without rows."""
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


def _side(ns: float | None) -> str:
    return "not in that run" if ns is None else words.duration(ns)
