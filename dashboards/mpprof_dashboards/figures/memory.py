"""What was live at the memory peak, and how live memory rose to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mpprof.report import words
from mpprof.report.content import held
from mpprof_dashboards import theme
from mpprof_dashboards.components.bars import Row
from mpprof_dashboards.components.text import escape, shorten
from mpprof_dashboards.figures.plain import Figure, blank, time_scale

if TYPE_CHECKING:
    from mpprof.model.memory import Course, MemoryAccount

_LIMIT = 12
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10), ("bytes", 1))


def at_peak(memory: MemoryAccount, by: str) -> list[Row]:
    """Return the bytes live at the peak by `by` ("kind", "dtype", "op", "layer") as bars, largest first;
    empty without such bytes. What no event states is hatched."""
    items = sorted((item for item in memory.at_peak if item.by == by), key=lambda item: -item.bytes)
    peak = memory.peak_bytes
    shown = [
        Row(
            words.plain(shorten(held(item), 40)), item.bytes, words.size(item.bytes),
            "unknown" if held(item) == "unknown" else "plain", held(item), note=_share(item.bytes, peak),
            computed=held(item).endswith(_ESTIMATED), hint=words.plain(held(item)),
        )
        for item in items[:_LIMIT]
    ]  # fmt: skip
    if len(items) > _LIMIT:
        rest = sum(item.bytes for item in items[_LIMIT:])
        more = f"{len(items) - _LIMIT} more"
        shown.append(Row(more, rest, words.size(rest), "other", "more", note=_share(rest, peak)))
    return shown


_COLOURS: dict[str, str] = {
    "parameters": "#5C6E88", "optimizer slots": "#7C8FA8", "16-bit weight copies": "#B24C8C",
    "gradients": "#7362AC", "activations kept for backward": "#0F7A71", "other activations": "#579890",
    "optimizer temporaries": "#9283C5", "workspaces": "#7E9130", "input": "#5B8C5A", "other": "#8A913F",
    "rounding": "#967F85",
    "float": "#6E59D6", "float32": "#6E59D6", "half": "#0F7A71", "bfloat16": "#0F7A71", "uint8": "#C06A8A",
    "others": "#828E9E",
}  # fmt: skip
"""Of kinds and of the commonest types: one colour each, in every figure. What was held before the window and
what is unknown are grey."""
_MORE_COLOURS = ("#7362AC", "#579890", "#B24C8C", "#9283C5", "#8A913F", "#818EA1")
_FAINT = "rgba(255, 255, 255, 0.45)"
_UNKNOWN = ("unknown", "held before the window", "others")
_SEEN_RATIO = 0.01
"""Of the peak: a part that never reaches it is less than a line and is drawn with the others."""


@dataclass(frozen=True, slots=True)
class Part:
    """Part of the live memory over the trace, with its colour."""

    name: str
    bytes: tuple[int, ...]
    colour: str

    @property
    def estimated(self) -> bool:
        """Whether no event states it."""
        return self.name.endswith(_ESTIMATED)


def parts(memory: MemoryAccount, by: str) -> list[Part]:
    """Return what `course` stacks, from the bottom: what was held before the window, then the largest."""
    found = memory.course
    stacked = found.parts.get(by, {}) if found else {}
    least = _SEEN_RATIO * memory.peak_bytes
    small = [name for name, values in stacked.items() if max(values) < least or name == "others"]
    rows = {name: tuple(values) for name, values in stacked.items() if name not in small}
    if small:
        rows["others"] = tuple(map(sum, zip(*(stacked[name] for name in small), strict=True)))
    ordered = sorted(rows, key=lambda name: (_rank(name), -max(rows[name]), name))
    free = iter(_MORE_COLOURS * len(ordered))
    return [Part(name, rows[name], _colour(name) or next(free)) for name in ordered]


def _rank(name: str) -> int:
    """Return the rank of a part, from the bottom: what the step does not change, what it changes, what is not
    known."""
    if name == "held before the window" or name.endswith(_ESTIMATED):
        return 0
    return 2 if name in _UNKNOWN else 1


_ESTIMATED, _ASSIGNED = " (estimated)", " (assigned)"


def _pattern(name: str) -> str:
    """Return the hatching for what no event states."""
    if name.endswith(_ESTIMATED):
        return theme.ESTIMATED_PATTERN
    return theme.UNKNOWN_PATTERN if name == "unknown" else ""


def _colour(name: str) -> str | None:
    """Return the colour that a kind or type always has; None where it has none of its own."""
    own = _COLOURS.get(name.removesuffix(_ESTIMATED).removesuffix(_ASSIGNED))
    return theme.CLASS_COLOURS["unknown"] if own is None and name in _UNKNOWN else own


def treemap(memory: MemoryAccount) -> Figure | None:
    """Return what was live at the peak: kinds, and in each its largest tensors; None without allocator
    events.

    Areas are bytes; what of a kind no listed tensor holds is an area of its own."""
    kinds = [item for item in memory.at_peak if item.by == "kind" and item.bytes > 0]
    if not kinds:
        return None
    ids, labels, parents, values, colours = ["peak"], ["peak"], [""], [0], ["rgba(0,0,0,0)"]
    for kind in sorted(kinds, key=lambda item: -item.bytes):
        name = held(kind)
        colour = _colour(name) or _MORE_COLOURS[0]
        inside = [t for t in memory.tensors if t.kind == name]  # none states an estimated one
        shown = 0
        for n, tensor in enumerate(sorted(inside, key=lambda each: -each.bytes)):
            if shown + tensor.bytes > kind.bytes:
                break
            shown += tensor.bytes
            ids.append(f"{name}/{n}")
            times = f"{tensor.count} × " if tensor.count > 1 else ""
            owner = tensor.op if tensor.layer == "unknown" else tensor.layer
            labels.append(f"{escape(times + owner)}<br>{escape(tensor.dtype + tensor.shape)}")
            parents.append(name)
            values.append(tensor.bytes)
            colours.append(colour)
        ids.append(name)
        labels.append(escape(name))
        parents.append("peak")
        values.append(kind.bytes)
        colours.append(colour)
    values[0] = sum(item.bytes for item in kinds)
    figure = blank(340, margin={"l": 0, "r": 0, "t": 4, "b": 4}, uniformtext={"minsize": 10, "mode": "hide"})
    figure.add(
        "treemap",
        ids=ids,
        labels=labels,
        parents=parents,
        values=values,
        branchvalues="total",
        marker={"colors": colours, "line": {"width": 1, "color": _FAINT}},
        text=[words.size(value) for value in values],
        textinfo="label+text",
        textfont={"color": [theme.INK, *(theme.text_on(colour) for colour in colours[1:])]},
        hovertemplate="%{label}: %{text}<extra></extra>",
        pathbar={"visible": False},
        tiling={"pad": 2},
    )
    return figure


def course(memory: MemoryAccount, by: str, baseline: MemoryAccount | None = None) -> Figure | None:
    """Return live bytes over the trace as a stack of parts ("kind", "dtype"), the largest at the bottom, the
    peak marked, the `baseline`'s total as an outline; None without allocator events."""
    found = memory.course
    if not found or not found.parts.get(by):
        return None
    start = found.time_ns[0]
    unit, per_ns = time_scale(found.time_ns[-1] - start)
    size, per = next((each for each in _UNITS if memory.peak_bytes >= each[1]), _UNITS[-1])
    times = [(at - start) / per_ns for at in found.time_ns]
    figure = blank(300, margin={"t": 12}, hovermode="x unified", showlegend=False)
    for part in parts(memory, by):
        figure.add(
            "scatter",
            x=times,
            y=[value / per for value in part.bytes],
            name=escape(part.name),
            mode="lines",
            stackgroup="live",
            line={"shape": "hv", "width": 0.5, "color": part.colour},
            fillcolor=part.colour,
            fillpattern={"shape": _pattern(part.name), "fgcolor": _FAINT, "fillmode": "overlay"},
            customdata=[words.size(value) for value in part.bytes],
            hovertemplate="%{customdata}",
        )  # fmt: skip
    other = baseline.course if baseline else None
    if other:
        _outline(figure, other, per_ns, per)
    highest = max(found.total_bytes)
    _mark_peak(figure, times[found.total_bytes.index(highest)], highest, per)
    figure.update_xaxes(title={"text": f"Time in the trace ({unit})"})
    highest = max([highest, *(other.total_bytes if other else ())])
    figure.update_yaxes(
        title={"text": f"Live memory ({size})"}, range=[0, 1.15 * highest / per]
    )  # room for its size
    return figure


def _outline(figure: Figure, baseline: Course, per_ns: float, per: float) -> None:
    """Draw the baseline's live bytes as one line."""
    start = baseline.time_ns[0]
    figure.add(
        "scatter",
        x=[(at - start) / per_ns for at in baseline.time_ns],
        y=[value / per for value in baseline.total_bytes],
        name="baseline",
        mode="lines",
        line={"shape": "hv", "width": 1.6, "color": theme.ACCENT},
        customdata=[words.size(value) for value in baseline.total_bytes],
        hovertemplate="%{customdata}",
    )


def _mark_peak(figure: Figure, time: float, peak_bytes: int, per: float) -> None:
    figure.add(
        "scatter",
        x=[time],
        y=[peak_bytes / per],
        name="peak",
        mode="markers+text",
        text=[words.size(peak_bytes)],
        textposition="top center",
        marker={"color": theme.TOTAL, "size": 8, "symbol": "triangle-down"},
        hoverinfo="skip",
    )


def _share(count: float, peak: float) -> str:
    return words.percent(count / peak) if peak else ""
