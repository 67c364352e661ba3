"""The exponents of a model's tensors: a row for each, a column for each power of two, and behind it the range
of the type that the tensor has."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from mpprof.report import words
from mpprof_dashboards.drawings import svg

RANGES = {"float16": (-24, -14, 15), "bfloat16": (-133, -126, 127), "float32": (-149, -126, 127)}
"""Exponents of a type: of its smallest subnormal, its smallest normal, and its largest number."""
MOST_ROWS = 240
TELLING_ROWS = 8
_HEIGHT = 18
_SHORTEST, _EVERY = 40, (5, 10, 20, 50)
NOTE = (
    "a column is a power of two, darker where more elements lie; the bar behind is the range of the tensor's "
    "type, thin where its numbers are subnormal"
)


def telling(rows: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the rows that prove what went wrong: from the two before the first tensor that is not finite
    on, else those of which most is flushed to zero; empty where nothing is lost."""
    at = _first_broken(rows)
    if at is not None:
        return rows[max(0, at - 2) :][:TELLING_ROWS]
    flushed = [row for row in rows if _share(row.get("flushed_ratio")) >= 0.01]
    least = sorted((_share(row["flushed_ratio"]) for row in flushed), reverse=True)[:TELLING_ROWS]
    return [row for row in flushed if _share(row["flushed_ratio"]) >= least[-1]][:TELLING_ROWS]


def _first_broken(rows: Sequence[Mapping[str, Any]]) -> int | None:
    return next((at for at, row in enumerate(rows) if _share(row.get("nonfinite_ratio")) > 0), None)


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows as the JSON of `mpprof numerics` has them as HTML, the first that is not finite in bold;
    "" where no exponent is known."""
    shown = [(row, _counts(row)) for row in rows[:MOST_ROWS]]
    known = [exponent for _, counts in shown for exponent in counts]
    if not known:
        return ""
    low, high = min(*known, -24) - 1, max(*known, 15) + 2
    high = max(high, low + _SHORTEST)

    def x(exponent: float) -> float:
        return (min(max(exponent, low), high) - low) / (high - low)

    first = _first_broken(rows)
    drawn = [_row("", _svg(_axis(low, high, x), "Powers of two"), "")]
    drawn += [
        _row(
            name := f"{row.get('layer')} {_what(row)}",
            _svg(_cells(row, counts, x, name), f"Exponents of {name}, over the range of {row.get('dtype')}"),
            _lost(row),
            "mp-exponent mp-strong" if number == first else "mp-exponent",
        )
        for number, (row, counts) in enumerate(shown)
    ]
    return "".join(drawn)


def _row(name: str, drawing: str, lost: str, look: str = "mp-exponent") -> str:
    said = (f"<span>{escape(words.plain(text))}</span>" for text in (name, lost))
    return f'<div class="{look}">{next(said)}{drawing}{next(said)}</div>'


def _svg(inside: str, label: str) -> str:
    return svg.element(
        "svg", inside, xmlns=svg.NAMESPACE, class_="mp-ruler", width="100%", height=_HEIGHT, role="img",
        aria_label=label,
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
        svg.text(
            f"2^{exponent}",
            x=svg.percent(x(exponent)),
            y=13,
            class_="mp-ruler-said" if exponent % (2 * every) == 0 else "mp-ruler-said mp-exponent-more",
        )
        for exponent in range(first, high - 2, every)
    )


def _cells(row: Mapping[str, Any], counts: Mapping[int, float], x: Any, name: str) -> str:
    most = max(counts.values(), default=1.0)
    cells = (_cell(exponent, count / most, x, name) for exponent, count in sorted(counts.items()))
    return _range(str(row.get("dtype")), x) + "".join(cells)


def _what(row: Mapping[str, Any]) -> str:
    return f"gradient of {row['weight']}" if row.get("weight") else str(row.get("tensor"))


def _range(dtype: str, x: Any) -> str:
    """Return the range of the type: normal numbers as a bar, and subnormal ones as a thin one."""
    if dtype not in RANGES:
        return ""
    smallest, normal, largest = RANGES[dtype]
    return "".join(
        svg.element(
            "rect", x=svg.percent(x(since)), y=inset, width=svg.percent(x(until) - x(since)),
            height=_HEIGHT - 2 * inset, class_="mp-ruler-line",
        )
        for since, until, inset in ((normal, largest + 1, 2), (smallest, normal, 7))
    )  # fmt: skip


def _cell(exponent: int, ratio: float, x: Any, name: str) -> str:
    said = svg.title(f"{name}: from 2^{exponent} to 2^{exponent + 1}")
    return svg.element(
        "rect", said, x=svg.percent(x(exponent)), y=4, width=svg.percent(x(exponent + 1) - x(exponent)),
        height=_HEIGHT - 8, fill_opacity=f"{0.15 + 0.85 * math.sqrt(ratio):.2f}", class_="mp-ruler-got",
    )  # fmt: skip


def _lost(row: Mapping[str, Any]) -> str:
    """Return what is beyond the type: the shares that are not finite and that are flushed to zero."""
    shares = (("overflow", row.get("nonfinite_ratio")), ("flushed", row.get("flushed_ratio")))
    return ", ".join(f"{what} {_percent(_share(ratio))}" for what, ratio in shares if _share(ratio))


def _share(ratio: Any) -> float:
    """Return a share of the elements; 0 where none is known, or the value is damaged."""
    known = isinstance(ratio, int | float) and not isinstance(ratio, bool) and 0 < ratio <= 1
    return float(ratio) if known else 0.0


def _percent(ratio: float) -> str:
    return f"{ratio:.0%}" if ratio >= 0.01 else "<1%"
