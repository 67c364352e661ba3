"""What was live at the memory peak, and how live memory rose to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import plotly.graph_objects as go

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.components.text import escape
from mpprof_dashboards.figures.base import Bar, bars, blank, time_scale

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


_PARTS = ("#475569", "#7C8FA8", "#0F766E", "#5EA39B", "#6D5BA8", "#A79BD0", "#8A6D3B", "#C0A878", "#B0B8C4")
_UNKNOWN = ("unknown", "held before the window", "others")


def course(memory: doc.Memory, by: str) -> go.Figure | None:
    """Live bytes over the trace as a stack of parts ("kind", "dtype"), the largest at the bottom, the peak
    marked; None without allocator events."""
    found = memory.get("course")
    if not found or not found["parts"].get(by):
        return None
    start = found["time_ns"][0]
    unit, per_ns = time_scale(found["time_ns"][-1] - start)
    size, per = next((each for each in _UNITS if memory["peak_bytes"] >= each[1]), _UNITS[-1])
    times = [(at - start) / per_ns for at in found["time_ns"]]
    figure = blank(300, margin={"l": 8, "r": 16, "t": 36, "b": 44}, hovermode="x unified")
    parts = sorted(found["parts"][by].items(), key=lambda part: (part[0] in _UNKNOWN, -max(part[1])))
    for at, (name, values) in enumerate(parts):
        unknown = name in _UNKNOWN
        colour = theme.class_colour("unknown") if unknown else _PARTS[at % len(_PARTS)]
        figure.add_scatter(
            x=times,
            y=[value / per for value in values],
            name=escape(name),
            mode="lines",
            stackgroup="live",
            line={"shape": "hv", "width": 0.5, "color": colour},
            fillcolor=colour,
            fillpattern={"shape": theme.UNKNOWN_PATTERN if name == "unknown" else "", "fgcolor": theme.INK},
            customdata=[words.size(value) for value in values],
            hovertemplate="%{customdata}",
        )
    top = found["total_bytes"].index(max(found["total_bytes"]))
    figure.add_scatter(
        x=[times[top]],
        y=[found["total_bytes"][top] / per],
        name="peak",
        mode="markers+text",
        text=[words.size(found["total_bytes"][top])],
        textposition="top center",
        marker={"color": theme.TOTAL, "size": 8, "symbol": "triangle-down"},
        hoverinfo="skip",
    )
    figure.update_xaxes(title_text=f"Time in the trace ({unit})")
    figure.update_yaxes(title_text=f"Live memory ({size})", rangemode="tozero")
    return figure


def _words(count: float, peak: float) -> str:
    return f"{words.size(count)} · {words.percent(count / peak)}" if peak else words.size(count)
