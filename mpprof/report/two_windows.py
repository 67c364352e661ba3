"""Two whole windows side by side, where not both runs have steps, as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.frozen import frozen
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model.finding import WindowsOfTwo
    from mpprof.model.written import Pair


NOTABLE_RATIO = 0.005
"""Parts of both windows below this share are left out of the table."""

COLUMNS = ("whole windows, not steps", "before", "after", "times")


@frozen
class Row:
    """One row of the table, in words; a `part` splits the row above."""

    label: str
    before: str
    after: str
    times: str
    part: bool = False


def rows(found: WindowsOfTwo) -> list[Row]:
    """Return span, busy and idle time, and kernels, with their parts."""
    column = words.column(max(ends(found.span_ns)))

    def row(label: str, ns: tuple[float, float], *, part: bool = False) -> Row:
        return Row(label, column(ns[0]), column(ns[1]), _times(*ns), part)

    def parts(by: str, least_ns: float) -> list[Row]:
        chosen = [p for p in found.parts if p.by == by and max(p.from_ns, p.to_ns) >= least_ns]
        return [row(p.name, (p.from_ns, p.to_ns), part=True) for p in chosen]

    of_span = NOTABLE_RATIO * max(ends(found.span_ns))
    of_kernels = NOTABLE_RATIO * max(ends(found.kernel_ns))
    before, after = ends(found.kernels)
    placed = [p for p in found.parts if p.by == "placement"]
    matrix = sum(p.from_ns for p in placed), sum(p.to_ns for p in placed)
    return [
        row("span", ends(found.span_ns)),
        row("busy", ends(found.busy_ns)),
        *parts("exposed", of_span),
        row("idle", ends(found.idle_ns)),
        *parts("idle", of_span),
        row("kernel time", ends(found.kernel_ns)),
        *parts("family", of_kernels),
        *([row("matrix kernels by placement", matrix)] if any(matrix) else []),
        *parts("placement", 0.0),
        Row("kernels", words.count(round(before)), words.count(round(after)), _times(before, after)),
    ]


def _times(before: float, after: float) -> str:
    return words.speedup(after / before) if before > 0 else "-"


def ends(pair: Pair) -> tuple[float, float]:
    """Return both values of a pair."""
    return float(pair[0] or 0.0), float(pair[1] or 0.0)
