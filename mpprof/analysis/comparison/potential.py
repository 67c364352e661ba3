"""What mixed precision could make of a float32 run: a range, from its own account, before it was tried.

Every cell of the account is turned the other way round: the ends of the range are the sums of `low` and
`high` of `attainable.engine.least`. Matrix work in float32 on ordinary arithmetic takes half its time at
most, and at least what its operations and bytes, or the ratio of the card's peaks, make of it; that of
Winograd and FFT convolutions all of its time at most, because a 16-bit convolution that multiplies every pair
gives their saving back; matrix work in TF32 all of its time at most, and at least what its operations and
bytes take, half where they are not known; transforms and other work bound by memory all of its time at most
and half at least, but sums of biases' gradients by TensorFlow's own op up to BY_ATOMICS_RATIO times as long,
so that the range may begin below 1; kernels that are bound by launching, the optimizer, FBGEMM's embedding
tables, copies, communication and idle time as long as they were. No kernel becomes shorter than two
microseconds, and no step shorter than what the host needs for it. Where the card's peaks are not known,
matrix work may take no time at all at the short end.

For a single step it is more: its last launch comes no earlier than it did, and at the long end only that work
becomes shorter which no launch held up. Shorter kernels before it make longer gaps. So it is at the long end
of several steps in which the device waits for launches much of the time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from mpprof.analysis.attainable.engine import eligible, halved, in_tf32, least, of_a_table
from mpprof.analysis.attainable.evidence import Evidence, saving_ops
from mpprof.analysis.attainable.work import (
    BY_ATOMICS_RATIO,
    FLOOR_NS,
    HALF_BYTES,
    LAUNCH_BOUND_NS,
    LAUNCH_LIMITED_RATIO,
    MEMORY_BOUND,
    USUAL_RATIO,
    Work,
    by_atomics,
    work_of,
)
from mpprof.model.account import Account, AttainableRange, Cell, Class, Limit, LimitKind
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, TRANSFORMS, Placement, Precision

_STAYS: dict[Class, str] = {
    "optimizer": "the optimizer", "comm": "communication", "copy": "copies", "unknown": "unidentified work",
}  # fmt: skip


def potential(account: Account, peaks: DevicePeaks | None) -> AttainableRange:
    """Return the range of speedups that 16 bits could bring to this float32 run on a card with matrix
    units."""
    cells = account.main.cells
    works = [work_of(cell) for cell in cells]
    evidence = Evidence(peaks, saving=saving_ops(cells))
    found = [least(work, "fp16", evidence) for work in works]
    atomics = [cell.ns_per_step * (BY_ATOMICS_RATIO - 1.0) for cell in cells if by_atomics(cell)]
    longest = [*(each.high for each in found), *atomics]
    shortest = [_shortest(work, each.low) for work, each in zip(works, found, strict=True)]
    path = account.host_path if account.one_step else None
    floor_ns = account.host_ns if account.host_ns and account.host_ns > sum(shortest) else None
    need_ns = min(max(account.host_ns or 0.0, path.launched_ns if path else 0.0), account.step_ns)
    paced = path or (account.host_path if _waits_for_launches(account) else None)
    felt = min(1.0, paced.queued_ns / account.device_ns) if paced and account.device_ns > 0 else 1.0
    least_ns = account.step_ns - sum(longest)  # below 0 where 16 bits may take longer, which is felt in full
    slowest_ns = account.step_ns - least_ns * (felt if least_ns > 0 else 1.0)
    at_least = account.step_ns / max(slowest_ns, need_ns) if account.step_ns > 0 else 1.0
    at_most = account.step_ns / max(sum(shortest), need_ns, FLOOR_NS) if account.step_ns > 0 else 1.0
    could = sum(work.busy_ns for work in works if eligible(work))
    tf32 = sum(work.busy_ns for work in works if eligible(work) and in_tf32(work))
    busy = sum(work.busy_ns for work in works if work.category != "profiling")
    few = ("one profiled step, which may not be representative",) if account.one_step else ()
    few = ("the host launches no earlier than it did", *few) if paced else few
    return AttainableRange(
        low=max(0.0 if atomics else 1.0, min(at_least, at_most)),
        high=max(1.0, at_most),
        eligible_ratio=could / busy if busy > 0 else None,
        assumptions=(*_assumed(cells, works, shortest, evidence), *few),
        tf32_ratio=tf32 / busy if busy > 0 else None,
        limits=limits(
            [
                Share(work.category, work.ns, best, work.bound_by_launching, work.placement, work.precision)
                for work, best in zip(works, shortest, strict=True)
            ],
            account.step_ns,
            floor_ns,
        ),
    )


def _waits_for_launches(account: Account) -> bool:
    idle_ns = sum(cell.ns_per_step for cell in account.main.cells if cell.category == "idle_launch")
    return idle_ns >= LAUNCH_LIMITED_RATIO * account.step_ns


def _shortest(work: Work, low: float | None) -> float:
    """Return the short end of a piece: no time at all where nothing bounds a product, but for what a launch
    takes."""
    if low is not None:
        return low
    return work.floored(0.0) if eligible(work) else halved(work)


def _assumed(
    cells: Sequence[Cell], works: Sequence[Work], shortest: Sequence[float], evidence: Evidence
) -> Iterator[str]:
    """Yield what the range takes for granted of the work that this run has."""
    rows = [
        (cell, work, best) for cell, work, best in zip(cells, works, shortest, strict=True) if work.ns > 0
    ]
    long = [row for row in rows if not row[1].bound_by_launching]
    float32 = [(work, best) for _, work, best in long if eligible(work) and not in_tf32(work)]
    if float32:
        yield _of_products(float32, evidence)
    tf32 = [(work, best) for _, work, best in long if eligible(work) and in_tf32(work)]
    far = [(work, best) for work, best in tf32 if best < work.ns / HALF_BYTES]
    if far:
        yield "products in TF32 no less than what their operations and bytes take at the card's peak rates"
    halves = {
        "products in TF32": bool(tf32) and not far,
        "transforms of convolutions": any(cell.reason_code in TRANSFORMS for cell, _, _ in long),
        "work that is bound by memory": any(
            work.category in MEMORY_BOUND and not of_a_table(work) for _, work, _ in long
        ),
    }
    if any(halves.values()):
        yield f"{_listed([name for name, there in halves.items() if there])} at most 2x"
    stays = [
        name for category, name in _STAYS.items() if any(work.category == category for _, work, _ in rows)
    ]
    if any(of_a_table(work) for _, work, _ in rows):
        stays += ["FBGEMM's embedding lookups and the updates fused into them"]
    stays += [f"kernels under {LAUNCH_BOUND_NS / 1000:.0f} µs"] if len(long) < len(rows) else []
    stays += ["idle time"] if any(work.category.startswith("idle_") for _, work, _ in rows) else []
    if stays:
        yield f"{_listed(stays)} as long as now"
    if any(map(by_atomics, cells)):
        most = _times(BY_ATOMICS_RATIO)
        yield f"gradients of biases up to {most} as long (atomics in 16 bits, without XLA, as on an H200)"
    yield "casts and loss scaling not counted"


def _of_products(products: Sequence[tuple[Work, float]], evidence: Evidence) -> str:
    """Return how much faster matrix work in float32 is assumed to become."""
    most = max(work.ns / best if best > 0 else math.inf for work, best in products)
    known = evidence.peaks is not None
    end = f"to {_times(most)} (by the card's peak rates)" if known else "or more (its peaks are not known)"
    plain = [work for work, _ in products if not evidence.saves(work)]
    if not plain:
        return f"convolutions in float32 by Winograd or FFT 1x (16 bits multiply more) {end} as fast"
    said = f"matrix work in float32 {_times(USUAL_RATIO)} (usual, not certain) {end} as fast in 16 bits"
    return f"{said}, but from 1x where it is Winograd or FFT" if len(plain) < len(products) else said


def _times(ratio: float) -> str:
    return f"{ratio:.1f}".removesuffix(".0") + "x"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


# --- What keeps the attainable speedup low: the parts of the attainable step, and why they become no
# shorter.
#
# Amdahl's law in words: where the optimizer in float32 takes 61 % of the float32 step, nothing that is done
# to the products makes the step much shorter.

HALVED_RATIO = 1.5
"""Work whose bytes are halved becomes up to twice as fast; less than this is as good as nothing."""
_FLOAT32: frozenset[Class] = frozenset(
    ("optimizer", "norm", "elementwise", "reduce", "gather_scatter", "layout")
)


@frozen
class Share:
    """Time of a float32 step in one class, and what becomes of it at best. `short`: bound by launching.
    `best_placement`: where matrix work runs then."""

    category: Class
    ns: float
    best_ns: float
    short: bool = False
    placement: Placement | None = None
    precision: Precision | None = None
    best_placement: Placement | None = None


def limits(shares: Iterable[Share], whole_ns: float, host_ns: float | None = None) -> tuple[Limit, ...]:
    """Return the parts of the attainable step, the longest first. `whole_ns`: the float32 step. `host_ns`:
    the time that the host needs, where that is more than the device's work takes at best; then nothing else
    limits."""
    if host_ns is not None:
        return (Limit("idle_launch", "host", host_ns, host_ns, min(1.0, host_ns / whole_ns)),)
    gathered: dict[tuple[Class, LimitKind], list[Share]] = {}
    for share in shares:
        if share.category != "profiling":
            gathered.setdefault((share.category, _kind(share)), []).append(share)
    parts_ns = sum(max(0.0, share.ns) for own in gathered.values() for share in own)
    whole_ns = max(whole_ns, parts_ns)  # those of a profiled step are longer
    found = [
        _limit(category, kind, own, whole_ns) for (category, kind), own in gathered.items() if whole_ns > 0
    ]
    return tuple(sorted((limit for limit in found if limit.best_ns > 0), key=lambda limit: -limit.best_ns))


def _limit(category: Class, kind: LimitKind, shares: list[Share], whole_ns: float) -> Limit:
    ns = sum(share.ns for share in shares)
    places: dict[Placement, float] = {}
    for share in shares if any(share.best_placement for share in shares) else ():
        place = share.best_placement or "unknown"
        places[place] = places.get(place, 0.0) + share.best_ns
    best_ns = sum(share.best_ns for share in shares)
    return Limit(category, kind, ns, best_ns, ns / whole_ns, tuple(places.items()))


def _kind(share: Share) -> LimitKind:
    if share.category.startswith("idle_"):
        return "wait"
    if share.short:
        return "short"
    if share.category == "matmul":
        return "tf32" if share.precision == "tf32" and share.placement in ACCELERATED else "compute"
    if share.ns >= HALVED_RATIO * share.best_ns:
        return "memory"
    return "float32" if share.category in _FLOAT32 else "same"
