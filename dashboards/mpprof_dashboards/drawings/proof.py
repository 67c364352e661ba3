"""What proves the first cause, as one small drawing: which one, and how it is drawn.

A step as a strip has a file of its own (`components.strip`): it shows waits, and whatever has no proof of its
own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from mpprof.report import words
from mpprof_dashboards import theme
from mpprof_dashboards.drawings import sparks, svg

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.timeline import Roofs
    from mpprof_dashboards.figures.memory import Part

Kind = Literal["strip", "rail", "roofline", "staircase"]
_OFF_UNITS = ("MP1", "MP4", "MP8")
"""Causes of precision that is not in effect, of shapes, of cards: what they are about is matrix work."""


def kind_of(document: Report) -> Kind:
    """Return what proves a report's first cause: of skips and values out of range the rail of the loss scale,
    of memory the staircase to its peak, of matrix work its place below the card's roofs, of all else a
    step."""
    answer = document.answer
    code = answer.code or ""
    if answer.leads == "memory" or code.startswith("MP6") or document.out_of_memory is not None:
        return "staircase"
    if answer.leads == "learning" or code.startswith("MP2"):
        return "rail"
    parts = [part for found in document.findings if found.code == code for part in found.parts]
    if any(part.category == "matmul" for part in parts) or (not parts and code.startswith(_OFF_UNITS)):
        return "roofline"
    return "strip"


# --- matrix work below the roofs ---------------------------------------------------------------------------

_ROOFS = (("fp16", "16 bit"), ("bf16", "16 bit"), ("tf32", "TF32"), ("fp32_cuda", "float32, ordinary"))
_NARROW_ORDINARY = ("fp16_cuda", "fp16, ordinary")
"""A roof where a dot is below it."""
_TALL = 250.0
_TOP, _BOTTOM = 40.0, 22.0
_APART = 15.0
"""Pixels from a line on which a label is not crossed by it."""
MOST_DOTS = 200
_SAME_PLACE = 0.03
"""Of a logarithm: dots that are less apart are drawn as one."""
_MOST_LETTERS = 40
"""Of a name: the end of a long one tells more."""


@dataclass(frozen=True, slots=True)
class Dot:
    """An op: FLOP a byte, FLOP/s, ns a step, and the kind of place that it ran on; `first`: the first cause
    is about it."""

    name: str
    intensity: float
    rate: float
    ns: float
    kind: str
    first: bool
    peak: str = ""
    """Off the units: the key of the peak of ordinary arithmetic in its type."""


def ordinary(dot: Dot, roofs: Roofs) -> float | None:
    """Return the peak of ordinary arithmetic in a dot's type; None: not known, or below what it reached."""
    rate = roofs["flops_per_s"].get(dot.peak)
    return rate if rate is not None and rate >= dot.rate else None


def roof_at(roofs: Roofs, intensity: float) -> float | None:
    """Return the FLOP/s that the card's highest roof allows at so many FLOP a byte; None: not known."""
    rates = [roofs["flops_per_s"][key] for key, _ in _ROOFS if key in roofs["flops_per_s"]]
    bandwidth = roofs["bandwidth_bytes_per_s"]
    return min(max(rates), intensity * bandwidth) if rates and bandwidth else None


def roofline(dots: Sequence[Dot], roofs: Roofs | None) -> str:
    """Return ops as dots below the card's roofs, both axes logarithmic, the longest that the first cause is
    about named; "" without one of these, or without roofs."""
    shown = sorted(dots, key=lambda dot: (not dot.first, -dot.ns))[:MOST_DOTS]
    if roofs is None or not shown or not shown[0].first:
        return ""
    bandwidth = roofs["bandwidth_bytes_per_s"]
    rates = {
        rate: name for key, name in reversed(_ROOFS) if (rate := roofs["flops_per_s"].get(key)) is not None
    }
    key, name = _NARROW_ORDINARY
    if any(dot.peak == key and ordinary(dot, roofs) for dot in shown):
        rates.setdefault(roofs["flops_per_s"][key], name)
    if not bandwidth or not rates:
        return ""
    low_x = min(dot.intensity for dot in shown) / 2
    high_x = max(*(2 * dot.intensity for dot in shown), 4 * max(rates) / bandwidth)
    low_y = min(*(dot.rate for dot in shown), *rates) / 2
    high_y = 1.6 * max(*(dot.rate for dot in shown), *rates)

    def x(intensity: float) -> float:
        return math.log(intensity / low_x) / math.log(high_x / low_x)

    def y(rate: float) -> float:
        return round(_TOP + (_TALL - _TOP - _BOTTOM) * math.log(high_y / rate) / math.log(high_y / low_y), 2)

    left = y(min(max(rates), low_x * bandwidth))
    taken = [left, *map(y, rates)]
    drawn = _powers(low_x, high_x, low_y, high_y, x, y, taken)
    drawn.append(_roof_lines(rates, bandwidth, low_x, high_x, x, y))
    for rate, name in rates.items():
        said = f"{name} {words.quantity(rate, 'flops_per_s')}"
        drawn.append(
            svg.text(said, x="100%", y=y(rate) - 5, text_anchor="end", class_="mp-proof-said mp-proof-halo")
        )
    longest = max(dot.ns for dot in shown)
    for dot in reversed(shown):  # those of the cause last, on top
        hint = words.joined((dot.name, words.duration(dot.ns), words.quantity(dot.rate, "flops_per_s")))
        drawn.append(
            svg.element(
                "circle", svg.title(hint), cx=svg.percent(x(dot.intensity)), cy=y(dot.rate),
                r=round(3 + 11 * (dot.ns / longest) ** 0.5, 2), fill=theme.KIND_COLOURS[dot.kind],
                class_="mp-proof-dot" if dot.first else "mp-proof-dot mp-proof-other",
                data_kind=dot.kind, data_first="1" if dot.first else None,
                style="stroke:var(--mp-ink)" if dot is shown[0] else None,
            )
        )  # fmt: skip
    alike = [dot for dot in shown if _covers(shown[0], dot)]
    drawn += _named(shown[0], roofs, x(shown[0].intensity), y, alike)
    told = f"{shown[0].name} below the roofs of {roofs['card']}"
    return _drawing("".join(drawn), _TALL, told, "mp-proof mp-proof-roofs")


def _covers(one: Dot, other: Dot) -> bool:
    """Return whether two dots are one to the eye."""
    places = ((one.intensity, other.intensity), (one.rate, other.rate))
    return one.kind == other.kind and all(abs(math.log(a / b)) < _SAME_PLACE for a, b in places)


def _named(dot: Dot, roofs: Roofs, at: float, y: sparks.Place, alike: Sequence[Dot]) -> list[str]:
    """Return the name of a dot above the drawing, where no other mark is, with what it reached; and a line
    from the dot to the roof above it. `alike`: it and those below it, of which the time is the sum."""
    roof = roof_at(roofs, dot.intensity)
    reached = words.quantity(dot.rate, "flops_per_s")
    found = []
    if roof is not None and roof > dot.rate:
        reached += f" of {words.quantity(roof, 'flops_per_s')}"
        if own := ordinary(dot, roofs):
            peak, unit = words.quantity(own, "flops_per_s").split(" ")
            peak = peak if reached.endswith(unit) else f"{peak} {unit}"  # a phone has room for one unit
            reached += f", {words.percent(dot.rate / own)} of {peak}"
        place = svg.percent(at)
        ends: dict[str, Any] = {"x1": place, "x2": place, "y1": y(roof), "y2": y(dot.rate)}
        found.append(svg.element("line", class_="mp-proof-gap", **ends))
    name = dot.name if len(dot.name) <= _MOST_LETTERS else f"…{dot.name[1 - _MOST_LETTERS :]}"
    found.append(svg.text(name, x=0, y=12, class_="mp-proof-name"))
    takes = words.duration(sum(each.ns for each in alike))
    if len(alike) > 1:
        takes = f"{takes}, {len(alike)} ops on this dot"
    found.append(svg.text(words.joined((takes, reached)), x=0, y=28, class_="mp-proof-said"))
    return found


def _powers(
    low_x: float,
    high_x: float,
    low_y: float,
    high_y: float,
    x: sparks.Place,
    y: sparks.Place,
    taken: Sequence[float],
) -> list[str]:
    """Return lines at the powers of ten, named where there is room: not where a line at one of the heights
    `taken` would cross the name."""
    found = []
    for power in range(math.ceil(math.log10(low_x)), math.floor(math.log10(high_x)) + 1):
        at = x(10.0**power)
        place = svg.percent(at)
        found.append(
            svg.element("line", x1=place, x2=place, y1=_TOP, y2=_TALL - _BOTTOM, class_="mp-proof-grid")
        )
        if 0.03 < at < 0.65:
            found.append(
                svg.text(
                    f"{10.0**power:g}", x=place, y=_TALL - 6, text_anchor="middle", class_="mp-proof-said"
                )
            )
    found.append(svg.text("FLOP a byte", x="100%", y=_TALL - 6, text_anchor="end", class_="mp-proof-said"))
    for power in range(math.ceil(math.log10(low_y)), math.floor(math.log10(high_y)) + 1):
        at = y(10.0**power)
        found.append(svg.element("line", x1=0, x2="100%", y1=at, y2=at, class_="mp-proof-grid"))
        if at > _TOP + 8 and all(abs(at - line) >= _APART for line in taken):
            found.append(
                svg.text(
                    words.quantity(10.0**power, "flops_per_s"),
                    x=0,
                    y=at - 4,
                    class_="mp-proof-said mp-proof-halo",
                )
            )
    return found


def _roof_lines(
    rates: dict[float, str], bandwidth: float, low: float, high: float, x: sparks.Place, y: sparks.Place
) -> str:
    """Return the bandwidth's slope, and from it each flat roof, as paths that stretch with the drawing."""
    top = max(rates)
    slope = [(low, low * bandwidth), (top / bandwidth, top), (high, top)]
    paths = [slope] + [[(rate / bandwidth, rate), (high, rate)] for rate in rates if rate != top]
    lines = "".join(
        "M" + "L".join(f"{1000 * x(at):.1f} {y(rate)}" for at, rate in points) for points in paths
    )
    clipped = svg.element("path", d=lines, class_="mp-proof-roof")
    return _stretched(clipped, _TALL)


# --- the loss scale ----------------------------------------------------------------------------------------

_RAIL = 190.0


def rail(curve: sparks.Curve | None, broken: Sequence[float] = ()) -> str:
    """Return the loss scale over the steps, each power of two a line, with skipped updates as ticks below and
    steps whose loss is not finite as marks (`broken`) below these; "" without a scale."""
    if curve is None:
        return ""
    known = np.isfinite(curve.values) & (curve.values > 0)
    at, values = curve.at[known], np.log2(curve.values[known])
    if not len(at) or curve.at[-1] <= curve.at[0]:
        return ""
    first, last = float(curve.at[0]), float(curve.at[-1])
    low, high = math.floor(float(values.min())), math.ceil(float(values.max()))
    low, high = (low, high) if high > low else (low - 1, high + 1)
    bottom = _RAIL - 56

    def x(step: float) -> float:
        return 1000 * (step - first) / (last - first)

    def y(value: float) -> float:
        return round(14 + (bottom - 14) * (high - value) / (high - low), 2)

    drawn = []
    every = -(-(high - low) // 4)
    for power in range(high, low - 1, -every):
        drawn.append(svg.element("line", x1=0, x2="100%", y1=y(power), y2=y(power), class_="mp-proof-grid"))
        drawn.append(svg.text(f"2^{power}", x=0, y=y(power) - 3, class_="mp-proof-said mp-proof-halo"))
    lines = sparks.stairs(at, values, x, y)
    below = ((curve.ticks, bottom + 12, "mp-curve-ticks"), (broken, bottom + 26, "mp-proof-broken"))
    for steps, top, look in below:
        places = sorted({round(x(step)) for step in steps})
        if places:
            lines += svg.element("path", d="".join(f"M{place} {top:g}v10" for place in places), class_=look)
    drawn.append(_stretched(lines, _RAIL))
    for said, place, anchor in (
        (f"step {words.count(int(first))}", 0, "start"),
        (words.count(int(last)), "100%", "end"),
    ):
        drawn.append(svg.text(said, x=place, y=_RAIL - 4, text_anchor=anchor, class_="mp-proof-said"))
    return _drawing("".join(drawn), _RAIL, curve.said, "mp-proof mp-proof-rail")


# --- memory ------------------------------------------------------------------------------------------------

_STAIRS = 190.0


@dataclass(frozen=True, slots=True)
class Failure:
    """The allocation that failed: bytes asked for on top of those held (None: not known), and what there
    is."""

    asked: int
    held: int | None
    limit: int | None

    @property
    def open_bytes(self) -> int:
        """What something else must have held, or the allocation would not have failed."""
        return max(0, (self.limit or 0) - (self.held or 0) - self.asked)

    @property
    def top(self) -> int:
        return max(self.asked + (self.held or 0), self.limit or 0)


_FAILED_AT = 600.0
"""Of a thousand: from here on a staircase shows the allocation that failed."""
_LINE = 16
"""Pixels that a line of text takes."""


def staircase(time_ns: Sequence[int], parts: Sequence[Part], failed: Failure | None = None) -> str:
    """Return live memory over the trace as a stack of parts, from the bottom, with the peak marked; beside
    it the allocation that failed and the limit of the memory, on the same scale; "" with fewer than two
    times."""
    if len(time_ns) < 2 or not parts or time_ns[-1] <= time_ns[0]:
        return ""
    stack = np.cumsum([part.bytes for part in parts], axis=0)
    total = stack[-1]
    peak_bytes = float(total.max())
    if peak_bytes <= 0:
        return ""
    most = max(peak_bytes, failed.top if failed else 0)
    wide = _FAILED_AT - 30 if failed else 1000
    start, span = time_ns[0], time_ns[-1] - time_ns[0]
    x = [wide * (at - start) / span for at in time_ns]
    floor = _STAIRS - 20

    def y(value: float) -> float:
        return round(floor - (floor - 24) * float(value) / most, 2)

    line = svg.element("path", d="M0 8L8 0", stroke="#FFFFFF", stroke_width=2, stroke_opacity=0.7)
    hatch = {"id": "mp-proof-hatch", "width": 8, "height": 8, "patternUnits": "userSpaceOnUse"}
    drawn = [svg.element("pattern", line, **hatch)]
    for part, high, low in zip(parts, stack, np.vstack([np.zeros_like(total), stack[:-1]]), strict=True):
        up = "".join(f"H{place:.1f}V{y(value)}" for place, value in zip(x, high, strict=True))
        down = "".join(
            f"V{y(value)}H{place:.1f}" for place, value in zip(reversed(x), low[::-1], strict=True)
        )
        path = f"M0 {y(high[0])}{up}{down}V{y(high[0])}Z"
        drawn.append(
            svg.element(
                "path", svg.title(f"{part.name}, {words.size(int(max(part.bytes)))} at most"), d=path,
                fill=part.colour, data_part=part.name,
            )
        )  # fmt: skip
        if part.estimated:
            drawn.append(svg.element("path", d=path, fill="url(#mp-proof-hatch)", pointer_events="none"))
    peak = int(total.argmax())
    at = x[peak] / 1000
    anchor = "end" if at > 0.8 else "start" if at < 0.2 else "middle"
    top = y(peak_bytes) - 6 if failed else 18
    labels = svg.element(
        "line", x1=svg.percent(at), x2=svg.percent(at), y1=top, y2=floor, class_="mp-proof-gap"
    )
    labels += svg.text(
        f"peak {words.size(int(peak_bytes))}", x=svg.percent(at), y=top - 5, text_anchor=anchor,
        class_="mp-proof-name",
    )  # fmt: skip
    labels += svg.text("0", x=0, y=_STAIRS - 4, class_="mp-proof-said")
    labels += svg.text(
        words.duration(span), x=svg.percent(wide / 1000), y=_STAIRS - 4, text_anchor="end",
        class_="mp-proof-said",
    )  # fmt: skip
    told = f"Live memory over {words.duration(span)}, {words.size(int(peak_bytes))} at its peak"
    if failed:
        labels += "".join(_failed(failed, y, floor))
        told += f"; then {words.size(failed.asked)} more asked"
        told += f" of {words.size(failed.limit)}" if failed.limit else ""
    return _drawing(_stretched("".join(drawn), _STAIRS) + labels, _STAIRS, told, "mp-proof mp-proof-stairs")


def _failed(failed: Failure, y: sparks.Place, floor: float) -> list[str]:
    """Return what was held as a ground, what was asked for on top of it, and the limit as a line."""
    at, width = svg.percent(_FAILED_AT / 1000), svg.percent(1 - _FAILED_AT / 1000)
    held = failed.held or 0
    edge, foot = y(held + failed.asked), y(held)
    drawn = [
        svg.element(
            "rect", x=at, width=width, y=foot, height=floor - foot, class_="mp-proof-held", data_part="held"
        ),
        svg.element(
            "rect", x=at, width=width, y=edge, height=foot - edge, class_="mp-proof-asked", data_part="asked"
        ),
        svg.text(
            f"asked {words.size(failed.asked)}",
            x="100%",
            dx=-6,
            y=(edge + foot) / 2 + 4,
            text_anchor="end",
            class_="mp-proof-name",
        ),
        svg.text("at the error", x="100%", y=_STAIRS - 4, text_anchor="end", class_="mp-proof-said"),
    ]
    if failed.limit and failed.open_bytes:
        top, look = y(failed.limit), "mp-proof-open"
        drawn.append(
            svg.element("rect", x=at, width=width, y=top, height=edge - top, class_=look, data_part="open")
        )
        if edge - top >= _LINE:
            said = f"{words.size(failed.open_bytes)} unknown"
            place = {"x": "100%", "dx": -6, "y": (edge + top) / 2 + 4, "text_anchor": "end"}
            drawn.append(svg.text(said, class_="mp-proof-name", **place))
    if failed.limit:
        line = y(failed.limit)
        drawn.append(svg.element("line", x1=0, x2="100%", y1=line, y2=line, class_="mp-proof-limit"))
        said = f"limit {words.size(failed.limit)}"
        drawn.append(svg.text(said, x="100%", y=line - 5, text_anchor="end", class_="mp-proof-said"))
    return drawn


def _stretched(inside: str, height: float) -> str:
    return svg.element(
        "svg", inside, width="100%", height=f"{height:g}", viewBox=f"0 0 1000 {height:g}",
        preserveAspectRatio="none",
    )  # fmt: skip


def _drawing(inside: str, height: float, told: str, look: str) -> str:
    return svg.element(
        "svg", inside, class_=look, xmlns=svg.NAMESPACE, width="100%", height=f"{height:g}", role="img",
        aria_label=told,
    )  # fmt: skip
