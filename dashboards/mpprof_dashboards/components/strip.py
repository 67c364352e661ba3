"""One step as a strip: what the host did above, what the device did below."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dash import html

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.work import short_kernel

if TYPE_CHECKING:
    from mpprof.model.timeline import Timeline, TimelineLane

_LABELLED_RATIO = 0.07
"""From so much of the width on an interval has room for its name."""
_MOST_LABELS = 8
_HATCHED_RATIO = 0.003
_OUTLINED = (
    f' fill-opacity="{theme.QUIET_OPACITY}" stroke="{{}}" stroke-width="2" vector-effect="non-scaling-stroke"'
)
_EDGED = ' stroke="{}" stroke-width="1.5" vector-effect="non-scaling-stroke"'
_EDGED_RATIO = 0.006
_IDLE_TEXT = {
    "idle_input": "waits for the next batch",
    "idle_launch": "waits for launches",
    "idle_sync": "waits while the host waits",
    "idle_compile": "waits for compilation",
    "idle_other": "idle",
}
_HOST_TEXT = {"input": "waits for input", "compile": "compiles", "sync": "waits for the device"}


def strip(timeline: Timeline) -> html.Div:
    """Return the shown window of a timeline as two rows, with the names of what is long enough, and an
    axis."""
    lanes = {lane["kind"]: lane for lane in reversed(timeline["lanes"])}  # the first of each kind
    rows = [_row(timeline, lanes[kind], kind) for kind in ("host", "device") if kind in lanes]
    return html.Div([*rows, _axis(timeline)], className="mp-strip", id="strip")


def legend(timeline: Timeline, units: str, *, on_cpu: bool = False) -> html.Ul:
    """Return a legend of the colours that the strip shows."""
    lanes = {lane["kind"]: lane for lane in reversed(timeline["lanes"])}
    keys = {
        timeline["keys"][key]
        for kind in ("host", "device")
        if kind in lanes
        for at in range(len(lanes[kind]["key"]))
        for key, _ in _shares(lanes[kind], at)
    }
    looks: dict[tuple[str, bool], list[str]] = {}  # what looks the same on the host is one
    for key, colour in theme.LANE_COLOURS.items():
        if key in keys:
            looks.setdefault((colour, key in theme.QUIET_LANES), []).append(key)
    labels = theme.lane_labels(units) | (theme.CPU_LABELS if on_cpu else {})
    return html.Ul(
        [
            html.Li([_swatch(same[0], colour), ", ".join(labels[key] for key in same)])
            for (colour, _), same in looks.items()
        ],
        className="mp-legend",
    )


def _swatch(key: str, colour: str) -> html.Span:
    if key == "unknown":
        return html.Span(className="mp-swatch mp-k-unknown")
    if key in theme.QUIET_LANES:
        return html.Span(className="mp-swatch mp-swatch-quiet", style={"--k": colour})
    edge = {"border": f"1px solid {theme.EDGES[colour]}"} if colour in theme.EDGES else {}
    return html.Span(className="mp-swatch", style={"background": colour} | edge)


def _row(timeline: Timeline, lane: TimelineLane, kind: str) -> html.Div:
    start, whole = timeline["from_ns"], timeline["to_ns"] - timeline["from_ns"]
    drawing = _drawing(timeline, lane, start, whole)
    labels = [_label(text, begin, length, on) for text, begin, length, on in _labels(timeline, lane, kind)]
    return html.Div(
        [
            html.Span("host" if kind == "host" else "device", className="mp-strip-name"),
            html.Div(
                [
                    html.Img(src=drawing, alt=_alt(timeline, lane, kind), className="mp-strip-image"),
                    *_hatched(timeline, lane, start, whole),
                    *labels,
                ],
                className="mp-strip-lane",
            ),
        ],
        className=f"mp-strip-row mp-strip-{kind}",
    )


def _drawing(timeline: Timeline, lane: TimelineLane, start: int, whole: int) -> str:
    """Return the lane as a picture of one path for each colour, stretched to whatever width there is."""
    paths: dict[tuple[str, str], list[str]] = {}
    for at, (begin, length) in enumerate(zip(lane["start_ns"], lane["length_ns"], strict=True)):
        low, high = max(begin - start, 0), min(begin + length - start, whole)
        if high > low:
            x, w, foot = 10_000 * low / whole, max(10_000 * (high - low) / whole, 2.0), 1.0
            for key, share in _shares(lane, at):
                look = _look(timeline["keys"][key], (high - low) / whole)
                foot -= share
                place = f"M{x:.1f} {round(foot, 3):g}h{w:.1f}v{round(share, 3):g}h-{w:.1f}z"
                paths.setdefault(look, []).append(place)
    body = "".join(
        f'<path fill="{colour}"{more} d="{"".join(parts)}"/>' for (colour, more), parts in paths.items()
    )
    svg = (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 10000 1" preserveAspectRatio="none">'
        f"{body}</svg>"
    )
    return f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}"


def _shares(lane: TimelineLane, at: int) -> list[tuple[int, float]]:
    """Return what an interval stands for, by key: of what is merged into a pixel each kind has its share of
    the height."""
    return lane.get("mixed", {}).get(str(at)) or [(lane["key"][at], 1.0)]


def _look(name: str, ratio: float) -> tuple[str, str]:
    """Return the colour of a stretch and its outline: quiet ones always have one, pale ones where they are
    wide enough for more than an outline to be seen."""
    colour = theme.LANE_COLOURS[name]
    if name in theme.QUIET_LANES:
        return colour, _OUTLINED.format(colour)
    edge = theme.EDGES.get(colour)
    return colour, _EDGED.format(edge) if edge and ratio >= _EDGED_RATIO else ""


def _labels(timeline: Timeline, lane: TimelineLane, kind: str) -> list[tuple[str, float, float, str]]:
    """Return (text, begin and length as shares of the width, key) of the longest stretches of one thing."""
    start, whole = timeline["from_ns"], timeline["to_ns"] - timeline["from_ns"]
    found = []
    for begin, length, key, name in _stretches(timeline, lane):
        low, high = max(begin - start, 0), min(begin + length - start, whole)
        if whole and (high - low) / whole >= _LABELLED_RATIO:
            said = (_HOST_TEXT.get(key, "") if kind == "host" else _IDLE_TEXT.get(key)) or name
            if said:
                text = short_kernel(said) if name else f"{said} {words.duration(high - low)}"
                found.append((text, low / whole, (high - low) / whole, key))
    found.sort(key=lambda item: -item[2])
    placed: list[tuple[str, float, float, str]] = []
    for label in found:  # where several streams work at once the longer one is named
        if all(label[1] >= b + length or label[1] + label[2] <= b for _, b, length, _ in placed):
            placed.append(label)
    return placed[:_MOST_LABELS]


def _stretches(timeline: Timeline, lane: TimelineLane) -> list[tuple[int, int, str, str]]:
    """Return (begin, length, key, kernel's name) of each stretch, with adjacent idle times joined."""
    joined: list[tuple[int, int, str, str]] = []
    for begin, length, key, label in zip(
        lane["start_ns"], lane["length_ns"], lane["key"], lane["label"], strict=True
    ):
        name = timeline["names"][label] if label >= 0 else ""
        word = timeline["keys"][key]
        if joined and not name and joined[-1][2] == word and begin <= joined[-1][0] + joined[-1][1] + 1:
            first = joined[-1]
            joined[-1] = (first[0], begin + length - first[0], word, "")
        else:
            joined.append((begin, length, word, name))
    return joined


def _label(text: str, begin: float, length: float, key: str) -> html.Span:
    quiet = key in theme.QUIET_LANES
    style = _place(begin, length) | {
        "color": "var(--mp-ink)" if quiet else theme.text_on(theme.LANE_COLOURS[key])
    }
    return html.Span(
        words.plain(text),
        className="mp-strip-label",
        style=style,
        title=words.plain(text),
    )


def _hatched(timeline: Timeline, lane: TimelineLane, start: int, whole: int) -> list[html.Span]:
    """Return the unknown stretches that are wide enough for hatching to be seen; in the drawing the hatching
    would be stretched."""
    found = [
        (max(begin - start, 0), min(begin + length - start, whole))
        for begin, length, key, _ in _stretches(timeline, lane)
        if key == "unknown"
    ]
    return [
        html.Span(className="mp-strip-unknown", style=_place(low / whole, (high - low) / whole))
        for low, high in found
        if high - low >= _HATCHED_RATIO * whole
    ]


def _place(begin: float, length: float) -> dict[str, str]:
    return {"left": f"{100 * begin:.3f}%", "width": f"{100 * length:.3f}%"}


_LAST_RATIO = 0.8
"""Of the step: to the right of a later mark a phone has no room for its time."""


def _axis(timeline: Timeline) -> html.Div:
    whole = timeline["to_ns"] - timeline["from_ns"]
    ticks = [ns for ns in _ticks(whole) if ns <= 0.97 * whole]
    return html.Div(
        [
            html.Span(
                words.duration(ns),
                style={"left": f"{100 * ns / whole:.3f}%"},
                className="mp-strip-last" if ns > _LAST_RATIO * whole else "",
            )
            for ns in ticks
        ],
        className="mp-strip-axis",
        **{"aria-hidden": "true"},
    )


def _ticks(whole_ns: float) -> Sequence[float]:
    """Round times within a step, about six of them."""
    if whole_ns <= 0:
        return []
    rough = whole_ns / 6
    power = 10.0 ** (len(str(int(rough))) - 1)
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= rough), 10 * power)
    return [step * k for k in range(1, int(whole_ns / step) + 1)]


def _alt(timeline: Timeline, lane: TimelineLane, kind: str) -> str:
    sums: dict[str, float] = {}
    for at, length in enumerate(lane["length_ns"]):
        for key, share in _shares(lane, at):
            name = theme.LANE_LABELS[timeline["keys"][key]]
            sums[name] = sums.get(name, 0.0) + share * length
    parts = sorted(sums.items(), key=lambda item: -item[1])[:5]
    return f"The {kind} in this step: " + ", ".join(f"{name} {words.duration(ns)}" for name, ns in parts)
