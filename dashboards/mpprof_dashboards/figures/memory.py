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
            theme.class_colour("unknown") if item["name"] in _UNKNOWN else theme.MEASURED,
            pattern=theme.UNKNOWN_PATTERN if item["name"] == "unknown" else "", key=item["name"])
        for item in items[:_LIMIT]
    ]  # fmt: skip
    if len(items) > _LIMIT:
        rest = sum(item["bytes"] for item in items[_LIMIT:])
        shown.append(Bar(f"{len(items) - _LIMIT} more", rest, _words(rest, peak), theme.TOTAL, key="more"))
    return bars(shown, x_title=f"Memory ({unit})", per=per)


_PARTS = ("#475569", "#7C8FA8", "#0F766E", "#5EA39B", "#6D5BA8", "#A79BD0", "#8A6D3B", "#C0A878", "#B0B8C4")
_UNKNOWN = ("unknown", "held before the window", "others")


def treemap(memory: doc.Memory) -> go.Figure | None:
    """What was live at the peak: kinds, and in each its largest tensors; None without allocator events.

    Areas are bytes; what of a kind no listed tensor holds is an area of its own."""
    kinds = [item for item in memory["at_peak"] if item["by"] == "kind" and item["bytes"] > 0]
    if not kinds:
        return None
    ids, labels, parents, values, colours = ["peak"], ["peak"], [""], [0], ["rgba(0,0,0,0)"]
    for at, kind in enumerate(sorted(kinds, key=lambda item: -item["bytes"])):
        colour = _PARTS[at % len(_PARTS)]
        inside = [t for t in memory.get("tensors", []) if t["kind"] == kind["name"]]
        held = 0
        for n, tensor in enumerate(sorted(inside, key=lambda each: -each["bytes"])):
            if held + tensor["bytes"] > kind["bytes"]:
                break
            held += tensor["bytes"]
            ids.append(f"{kind['name']}/{n}")
            times = f"{tensor['count']} × " if tensor["count"] > 1 else ""
            labels.append(f"{times}{tensor['layer'] or tensor['op']} {tensor['dtype']}{tensor['shape']}")
            parents.append(kind["name"])
            values.append(tensor["bytes"])
            colours.append(colour)
        ids.append(kind["name"])
        labels.append(kind["name"])
        parents.append("peak")
        values.append(kind["bytes"])
        colours.append(colour)
    values[0] = sum(item["bytes"] for item in kinds)
    figure = blank(340, margin={"l": 0, "r": 0, "t": 4, "b": 4})
    figure.add_treemap(
        ids=ids,
        labels=[escape(label) for label in labels],
        parents=parents,
        values=values,
        branchvalues="total",
        marker={"colors": colours, "line": {"width": 1}},
        text=[words.size(value) for value in values],
        textinfo="label+text",
        textfont={"color": "#FFFFFF"},
        hovertemplate="%{label}: %{text}<extra></extra>",
        pathbar={"visible": False},
        tiling={"pad": 2},
    )
    return figure


def course(memory: doc.Memory, by: str, baseline: doc.Memory | None = None) -> go.Figure | None:
    """Live bytes over the trace as a stack of parts ("kind", "dtype"), the largest at the bottom, the peak
    marked, the `baseline`'s total as an outline; None without allocator events."""
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
    other = baseline.get("course") if baseline else None
    if other:
        begin = other["time_ns"][0]
        figure.add_scatter(
            x=[(at - begin) / per_ns for at in other["time_ns"]],
            y=[value / per for value in other["total_bytes"]],
            name="baseline",
            mode="lines",
            line={"shape": "hv", "width": 1.6, "color": theme.TOTAL, "dash": "dash"},
            customdata=[words.size(value) for value in other["total_bytes"]],
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
