"""What a later run takes less in those parts of the step that a cause of the earlier one had claimed.

A part is a class with its phase, layer and (of idle time) cause. Where several causes claimed of one part,
its difference is divided among them as their claims were. The layer of a kernel may be known in one run and
not in the other (XLA replays small kernels as graphs): such a part is then matched with the growth of the
later run's work of its class that has no known layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from mpprof.analysis.arrays.mean_interval import half_width
from mpprof.analysis.comparison.layer_names import layer_names
from mpprof.model.account import IDLE_CLASSES, Account, Class, Phase
from mpprof.model.finding import ClaimedPart
from mpprof.model.frozen import frozen
from mpprof.model.run import Run

_LENGTHENED = frozenset(IDLE_CLASSES) - {"idle_between_steps", "idle_stall"}
_Key = tuple[Class, Phase, str | None, str | None]


@frozen
class Side:
    """One run. `undistorted`: ns of the step as it runs for each ns of the profiled one."""

    run: Run
    account: Account
    undistorted: float = 1.0


@frozen
class Obtained:
    """How much less per step the parts of a cause take; `corrections_ns`: how far that is from what it would
    be without the corrections, for the profiler's own cost and for work of no known layer. `ns` None: not
    known, with the `reason`."""

    ns: float | None
    corrections_ns: float = 0.0
    reason: str | None = None


def obtained(claimed: Mapping[str, Sequence[ClaimedPart]], before: Side, after: Side) -> dict[str, Obtained]:
    """Return for each code how much less per step its parts take in `after`. Not known where a layer that the
    code claimed has no counterpart there, or one of a far other size: a remedy may change it a little."""
    names = layer_names(before.run, after.run)
    counterparts = names.counterparts | names.resized
    total: dict[_Key, float] = defaultdict(float)
    for parts in claimed.values():
        for part in parts:
            total[_key(part)] += part.excess_ns
    corrected = _times(before), _times(after)
    plain = _times(before, corrected=False), _times(after, corrected=False)
    unpaired = names.only_from.keys() - names.resized
    unknown: dict[str | None, str] = {
        layer: f"{layer} has no counterpart: {names.only_from[layer]}" for layer in unpaired
    }
    unknown |= {layer: f"{layer} is another layer: {why}" for layer, why in names.other_size.items()}
    lost = _without_layer(*corrected, counterparts, unpaired, total.keys())
    found: dict[str, Obtained] = {}
    for code, parts in claimed.items():
        if why := next((unknown[part.layer] for part in parts if part.layer in unknown), None):
            found[code] = Obtained(None, reason=why)
            continue
        shares: dict[_Key, float] = defaultdict(float)
        for part in parts:
            shares[_key(part)] += part.excess_ns / total[_key(part)]
        less_ns, uncorrected_ns = (
            sum(share * (was[key] - now[_renamed(key, counterparts)]) for key, share in shares.items())
            for was, now in (corrected, plain)
        )
        lost_ns = sum(share * lost.get(key, 0.0) for key, share in shares.items())
        found[code] = Obtained(less_ns - lost_ns, abs(uncorrected_ns - less_ns) + abs(lost_ns))
    return found


def _without_layer(
    was: Mapping[_Key, float],
    now: Mapping[_Key, float],
    names: Mapping[str, str],
    unpaired: Collection[str],
    claimed: Collection[_Key],
) -> dict[_Key, float]:
    """Return what of each layer's parts that the later run has no work of may be there as work of no known
    layer: all such parts of a class share its growth, at most what they took. What is claimed of work of no
    layer counts by itself, and the work of an unpaired layer is another layer's there."""
    gone = {
        key: ns
        for key, ns in was.items()
        if key[2] is not None and key[2] not in unpaired and not now.get(_renamed(key, names))
    }
    taken: dict[Class, float] = defaultdict(float)
    grown: dict[Class, float] = defaultdict(float)
    for key, ns in gone.items():
        taken[key[0]] += ns
    for times, sign in ((now, 1), (was, -1)):
        for key, ns in times.items():
            if key[2] is None and key not in claimed:
                grown[key[0]] += sign * ns
    return {key: ns * min(1.0, max(0.0, grown[key[0]]) / taken[key[0]]) for key, ns in gone.items() if ns > 0}


def scatter_ns(before: Side, after: Side) -> float | None:
    """Return half of the 95 % interval of the difference of the two runs' mean profiled steps; None: one of
    them has a single step."""
    halves = [half_width(np.asarray(side.account.lengths_ns, np.float64)) for side in (before, after)]
    if halves[0] is None or halves[1] is None:
        return None
    return float(np.hypot(halves[0] * before.undistorted, halves[1] * after.undistorted))


def _key(part: ClaimedPart) -> _Key:
    return part.category, part.phase, part.layer, part.cause


def _renamed(key: _Key, counterparts: Mapping[str, str]) -> _Key:
    category, phase, layer, cause = key
    return category, phase, counterparts.get(layer, layer) if layer else None, cause


def _times(side: Side, *, corrected: bool = True) -> dict[_Key, float]:
    """Return the times of a profiled step, as it runs without the profiler: the time that the profiler adds
    is the host's work, so it is taken off idle time, except for stalls and the time between steps, which
    the records tell."""
    cells = side.account.main.cells
    added_ns = side.account.added_by_profiling_ns
    idle_ns = sum(cell.ns_per_step for cell in cells if cell.category in _LENGTHENED)
    applies = corrected and side.undistorted == 1.0 and added_ns > 0 < idle_ns
    kept = max(0.0, 1.0 - added_ns / idle_ns) if applies else 1.0
    found: dict[_Key, float] = defaultdict(float)
    for cell in cells:
        ns = cell.ns_per_step * side.undistorted * (kept if cell.category in _LENGTHENED else 1.0)
        found[cell.category, cell.phase, cell.layer, cell.cause] += ns
    return found
