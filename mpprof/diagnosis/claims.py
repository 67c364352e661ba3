"""The claim ledger: which cause a cell of the account is the cost of, and what part of the gap that explains.

No cell is claimed twice, so costs add up; unclaimed cells stay visible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpprof.diagnosis.outcomes import Claim, cost_ns
from mpprof.model.account import Cell, Class, Speedup
from mpprof.model.frozen import frozen

ORDER_OF_JUDGEMENT = "981234567"
"""Hundreds of the codes: validity, ceiling, in effect, numerics and skips, host and idle, matrix kernels,
other device time, memory, several GPUs."""


def order(code: str) -> tuple[int, str]:
    """Return the key that sorts a code (MP301) by the order of judgement; an unknown hundred comes last."""
    place = ORDER_OF_JUDGEMENT.find(code[2:3]) if len(code) > 2 else -1
    return (place if place >= 0 else len(ORDER_OF_JUDGEMENT), code)


def settle(wishes: Mapping[str, tuple[int, Sequence[Claim]]]) -> dict[str, tuple[Claim, ...]]:
    """Return the claims that each code is granted, so that one code gets each cell. `wishes`: code ->
    (specificity, claims).

    A cell goes to the most specific of those that claim it and, among equals, to the first in the order of
    judgement; the order of `wishes` does not matter. A code that claims a cell twice has it once, as first
    stated.
    """
    owner: dict[int, str] = {}
    granted: dict[str, tuple[Claim, ...]] = {}
    for code in sorted(wishes, key=lambda code: (-wishes[code][0], order(code))):
        mine = []
        for claim in wishes[code][1]:
            if claim.cell not in owner:
                owner[claim.cell] = code
                mine.append(claim)
        granted[code] = tuple(mine)
    return granted


@frozen
class GapShares:
    """What each finding explains of the gap to the attainable time.

    The gap is what some parts lost less what others gained beyond it, so that a share of it may come to more
    than all of it; a share of `lost_ns` never does.
    """

    gap_ns: float
    lost_ns: float
    explained_ns: dict[str, float]

    def lost_ratio(self, code: str) -> float:
        """Return the share of the lost time that this finding explains, from 0 to 1; 0 where nothing was
        lost."""
        if self.lost_ns <= 0:
            return 0.0
        return min(1.0, self.explained_ns.get(code, 0.0) / self.lost_ns)  # rounding may end above


def explain_gap(
    granted: Mapping[str, Sequence[Claim]], cells: Sequence[Cell], speedup: Speedup | None
) -> GapShares | None:
    """Set the claims against the slices of the gap; None without a measured baseline and its gap.

    A claim explains part of the slice of its cell's class and layer (or of the class, where the slice names
    no layer), and together the claims explain no more than is lost in the slice: a wait for input of
    10 ms explains 4 ms of the gap if the baseline waited for 6 ms already. A slice below zero (faster than
    was thought attainable) is not explained by any cause and stays in the unexplained part.
    """
    if speedup is None or speedup.gap_ns is None or speedup.baseline != "measured":
        return None
    room: dict[tuple[Class, str | None], float] = {}
    for part in speedup.slices:
        key = (part.category, part.layer)
        room[key] = room.get(key, 0.0) + part.ns_per_step
    wanted: dict[tuple[Class, str | None], dict[str, float]] = {}
    for code, claims in granted.items():
        for claim in claims:
            cell = cells[claim.cell]
            key = (
                (cell.category, cell.layer) if (cell.category, cell.layer) in room else (cell.category, None)
            )
            by_code = wanted.setdefault(key, {})
            by_code[code] = by_code.get(code, 0.0) + cost_ns((claim,), cells)
    explained = dict.fromkeys(granted, 0.0)
    for key, by_code in wanted.items():
        total, available = sum(by_code.values()), max(0.0, room.get(key, 0.0))
        if total <= 0:
            continue
        for code, asked in by_code.items():
            explained[code] += asked * min(1.0, available / total)
    lost_ns = sum(max(0.0, part.ns_per_step) for part in speedup.slices)
    return GapShares(speedup.gap_ns, lost_ns, explained)
