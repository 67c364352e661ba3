"""What mixed precision could make of a float32 run: a range, from its own account, before anybody tried it.

Every cell of the account is turned the other way round. The ends of the range are what its 16-bit twin takes
at most and at least: matrix work in float32 on ordinary arithmetic half its time at most, and at least what
the calibration of the card or the ratio of its peaks makes of it; matrix work in TF32, transforms and other
work bound by memory all of its time at most and half at least; kernels that are bound by launching, the
optimizer, copies, communication and idle time as long as they were. No kernel becomes shorter than two
microseconds, and no step shorter than what the host needs for it. Where the card's peaks are not known,
matrix work may take no time at all at the short end.

Of a single step that is more: its last launch comes no earlier than it did, and at the long end only that
work becomes shorter which no launch held up. Shorter kernels before it make longer gaps.
"""

from __future__ import annotations

from mpprof.analysis.comparison import calibration
from mpprof.analysis.comparison.attainable import FLOOR_NS, MEMORY_BOUND, SHORTEST_NS
from mpprof.analysis.comparison.limits import Share, limits
from mpprof.model.account import Account, AttainableRange, Cell
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import ACCELERATED

_HALF_BYTES = 2.0
_LEAST_RATIO = 2.0
"""Products that leave ordinary arithmetic for matrix units become at least twice as fast: what the estimate
of an unrecorded baseline takes for granted, too."""
_ASSUMED = (
    "matrix work in float32 becomes at least twice as fast in 16 bits on matrix units, and at most by the "
    "ratio of {peaks}",
    "matrix work in TF32 and work that is bound by memory become at most twice as fast",
    "the optimizer, copies, communication, kernels under 5 µs and idle time stay as they are; casts and loss "
    "scaling are not counted",
)


def potential(account: Account, peaks: DevicePeaks | None) -> AttainableRange:
    """The range of speedups that 16 bits could bring to this float32 run on a card with matrix units."""
    cells = account.main.cells
    longest = [_longest_ns(cell) for cell in cells]
    shortest = [_shortest_ns(cell, peaks) for cell in cells]
    path = account.host_path if account.one_step else None
    need_ns = max(account.host_ns or 0.0, path.launched_ns if path else 0.0)
    need_ns = min(need_ns, account.step_ns)
    floor_ns = need_ns if need_ns > sum(shortest) else None
    felt = min(1.0, path.queued_ns / account.device_ns) if path and account.device_ns > 0 else 1.0
    slowest_ns = account.step_ns - felt * (account.step_ns - sum(longest))
    at_least = account.step_ns / max(slowest_ns, need_ns) if account.step_ns > 0 else 1.0
    at_most = account.step_ns / max(sum(shortest), need_ns, FLOOR_NS) if account.step_ns > 0 else 1.0
    eligible = sum(cell.busy_ns_per_step for cell in cells if _eligible(cell))
    busy = sum(cell.busy_ns_per_step for cell in cells if cell.category != "profiling")
    rates = "the calibration table, else of the card's peaks" if peaks else "nothing: its peaks are not known"
    few = ("one profiled step, which may not be representative",) if account.one_step else ()
    few = ("the host launches no earlier than it did", *few) if path else few
    return AttainableRange(
        low=max(1.0, min(at_least, at_most)),
        high=max(1.0, at_most),
        eligible_ratio=eligible / busy if busy > 0 else 0.0,
        assumptions=(*(text.format(peaks=rates) for text in _ASSUMED), *few),
        limits=limits(
            [
                Share(cell.category, cell.ns_per_step, best, _short(cell), cell.placement, cell.precision)
                for cell, best in zip(cells, shortest, strict=True)
            ],
            account.step_ns,
            floor_ns,
        ),
    )


def _eligible(cell: Cell) -> bool:
    """Matrix work that matrix units could do in 16 bits and did not: no helper of it, and not depthwise."""
    if cell.category != "matmul" or cell.family == "depthwise" or cell.precision == "fp64":
        return False
    return cell.placement == "cuda_core" or _in_tf32(cell)


def _in_tf32(cell: Cell) -> bool:
    return cell.placement in ACCELERATED and cell.precision == "tf32"


def _short(cell: Cell) -> bool:
    """Its kernels are bound by launching."""
    return cell.calls_per_step > 0 and cell.busy_ns_per_step / cell.calls_per_step < SHORTEST_NS


def _longest_ns(cell: Cell) -> float:
    if _eligible(cell) and not _in_tf32(cell) and not _short(cell):
        return _floored(cell, cell.ns_per_step / _LEAST_RATIO)
    return cell.ns_per_step


def _shortest_ns(cell: Cell, peaks: DevicePeaks | None) -> float:
    if _short(cell) or cell.precision == "fp64":
        return cell.ns_per_step
    if _eligible(cell) and not _in_tf32(cell):
        return _floored(cell, cell.ns_per_step / _most(cell, peaks))
    if cell.category == "matmul" or cell.category in MEMORY_BOUND:
        return _floored(cell, cell.ns_per_step / _HALF_BYTES)
    return cell.ns_per_step


def _most(cell: Cell, peaks: DevicePeaks | None) -> float:
    """How many times faster a float32 product can become in 16 bits on matrix units, at most."""
    if peaks is None:
        return float("inf")
    row = calibration.find(peaks.name, cell.family or "", "fp32", "fp16")
    if row is not None:
        return row.ratio
    ran, could = peaks.flops_per_s.get("fp32_cuda"), peaks.flops_per_s.get("fp16")
    return max(_LEAST_RATIO, could / ran) if ran and could else float("inf")


def _floored(cell: Cell, ns: float) -> float:
    """No call becomes shorter than `FLOOR_NS`, nor longer than it was."""
    least = cell.calls_per_step * FLOOR_NS
    return min(cell.ns_per_step, max(ns, least))
