"""The exponents of a model's tensors as a heat map: a row for each tensor, a column for each power of two,
and over it the range of the type that the tensor has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mpprof_dashboards.drawings import svg

RANGES = {"float16": (-24, -14, 15), "bfloat16": (-133, -126, 127), "float32": (-149, -126, 127)}
"""Exponents of a type: of its smallest subnormal, its smallest normal, and its largest number."""
MOST_ROWS = 240
HEIGHT, TOP = 18, 22
_LEFT, _RIGHT = 0.34, 0.86
"""Where the columns begin and end, of the width: names stand before them, shares behind."""
_SHORTEST, _EVERY = 40, (5, 10, 20, 50)


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as the JSON of `mpprof numerics` has them as SVG; "" where no exponent is known."""
    shown = [(row, _counts(row)) for row in rows[:MOST_ROWS]]
    known = [exponent for _, counts in shown for exponent in counts]
    if not known:
        return ""
    low, high = min(*known, -24) - 1, max(*known, 15) + 2
    high = max(high, low + _SHORTEST)

    def x(exponent: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (min(max(exponent, low), high) - low) / (high - low)

    drawn = [_axis(low, high, x)]
    drawn += [_row(row, counts, TOP + HEIGHT * number, x) for number, (row, counts) in enumerate(shown)]
    height = TOP + HEIGHT * len(shown) + 4
    return svg.element(
        "svg", "".join(drawn), xmlns=svg.NAMESPACE, class_="mp-ruler", width="100%", height=height,
        role="img", aria_label="Exponents of each tensor, over the range of its type",
    )  # fmt: skip


def _counts(row: Mapping[str, Any]) -> dict[int, float]:
    """Return how many elements have which exponent; what is damaged is left out."""
    given = row.get("exponents")
    found = given.items() if isinstance(given, Mapping) else ()
    return {
        int(exponent): float(count)
        for exponent, count in found
        if str(exponent).lstrip("-").isdigit()
        and abs(int(exponent)) < 1100
        and isinstance(count, int)
        and count > 0
    }


def _axis(low: int, high: int, x: Any) -> str:
    every = next((each for each in _EVERY if (high - low) / each <= 14), _EVERY[-1])
    first = math.ceil(low / every) * every
    return "".join(
        svg.text(f"2^{exponent}", x=svg.percent(x(exponent)), y=14, class_="mp-ruler-said")
        for exponent in range(first, high, every)
    )


def _row(row: Mapping[str, Any], counts: Mapping[int, float], y: int, x: Any) -> str:
    dtype, most = str(row.get("dtype")), max(counts.values(), default=1.0)
    name = f"{row.get('layer')} {_what(row)}"
    drawn = [
        svg.text(_short(name), x=0, y=y + 13, class_="mp-ruler-said"),
        _range(dtype, y, x),
        *(_cell(exponent, count / most, y, x, name) for exponent, count in sorted(counts.items())),
        svg.text(_lost(row), x=svg.percent(_RIGHT + 0.01), y=y + 13, class_="mp-ruler-said"),
    ]
    return svg.element("g", "".join(drawn), data_dtype=dtype)


def _what(row: Mapping[str, Any]) -> str:
    return f"gradient of {row['weight']}" if row.get("weight") else str(row.get("tensor"))


def _short(name: str) -> str:
    return name if len(name) <= 44 else f"…{name[-43:]}"


def _range(dtype: str, y: int, x: Any) -> str:
    """Return the range of the type: normal numbers as a bar, and subnormal ones as a thin one."""
    if dtype not in RANGES:
        return ""
    smallest, normal, largest = RANGES[dtype]
    return "".join(
        svg.element(
            "rect", x=svg.percent(x(since)), y=y + inset, width=svg.percent(x(until) - x(since)),
            height=HEIGHT - 2 * inset, class_="mp-ruler-line",
        )
        for since, until, inset in ((normal, largest + 1, 2), (smallest, normal, 7))
    )  # fmt: skip


def _cell(exponent: int, ratio: float, y: int, x: Any, name: str) -> str:
    said = svg.title(f"{name}: from 2^{exponent} to 2^{exponent + 1}")
    return svg.element(
        "rect", said, x=svg.percent(x(exponent)), y=y + 4, width=svg.percent(x(exponent + 1) - x(exponent)),
        height=HEIGHT - 8, fill_opacity=f"{0.15 + 0.85 * math.sqrt(ratio):.2f}", class_="mp-ruler-got",
    )  # fmt: skip


def _lost(row: Mapping[str, Any]) -> str:
    """Return what is beyond the type: the shares that are not finite and that are flushed to zero."""
    shares = (("overflow", row.get("nonfinite_ratio")), ("flushed", row.get("flushed_ratio")))
    return ", ".join(
        f"{what} {_percent(ratio)}"
        for what, ratio in shares
        if isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 < ratio <= 1
    )


def _percent(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio >= 0.01 else "<1%"
