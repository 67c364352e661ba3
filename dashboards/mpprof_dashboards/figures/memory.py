"""What was live at the memory peak."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.figures.base import Bar, bars

if TYPE_CHECKING:
    from mpprof.model import document as doc

_LIMIT = 12
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


def at_peak(memory: doc.Memory, by: str) -> go.Figure | None:
    """The bytes live at the peak by `by` ("kind", "dtype", "op", "layer"), largest first; None without."""
    items = sorted((item for item in memory["at_peak"] if item["by"] == by), key=lambda item: -item["bytes"])
    if not items:
        return None
    unit, per = next((unit for unit in _UNITS if items[0]["bytes"] >= unit[1]), _UNITS[-1])
    peak = memory["peak_bytes"]
    shown = [
        Bar(item["name"], item["bytes"], _words(item["bytes"], peak),
            theme.class_colour("unknown") if item["name"] == "unknown" else theme.MEASURED,
            pattern=theme.UNKNOWN_PATTERN if item["name"] == "unknown" else "", key=item["name"])
        for item in items[:_LIMIT]
    ]  # fmt: skip
    if len(items) > _LIMIT:
        rest = sum(item["bytes"] for item in items[_LIMIT:])
        shown.append(Bar(f"{len(items) - _LIMIT} more", rest, _words(rest, peak), theme.TOTAL, key="more"))
    return bars(shown, x_title=f"Memory ({unit})", per=per)


def _words(count: float, peak: float) -> str:
    return f"{words.size(count)} · {words.percent(count / peak)}" if peak else words.size(count)
