"""What mixed precision could make of a float32 run: a range, from its own account, before anybody tried it.

Every cell of the account is turned the other way round. The ends of the range are what its 16-bit twin takes
at most and at least: matrix work in float32 on ordinary arithmetic half its time at most, and at least what
the calibration of the card or the ratio of its peaks makes of it; that of Winograd and FFT convolutions all
of its time at most, because a 16-bit convolution that multiplies every pair gives their saving back; matrix
work in TF32, transforms and other work bound by memory all of its time at most and half at least; kernels
that are bound by launching, the optimizer, FBGEMM's embedding tables, copies, communication and idle time as
long as they were. No kernel becomes shorter than two microseconds, and no step shorter than what the host
needs for it. Where the card's peaks are not known, matrix work may take no time at all at the short end.

Of a single step that is more: its last launch comes no earlier than it did, and at the long end only that
work becomes shorter which no launch held up. Shorter kernels before it make longer gaps.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from mpprof.analysis.comparison import calibration
from mpprof.analysis.comparison.attainable import FLOOR_NS, MEMORY_BOUND, SHORTEST_NS
from mpprof.analysis.comparison.limiting_parts import Share, limits
from mpprof.model.account import Account, AttainableRange, Cell, Class
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import ACCELERATED, TRANSFORMS

_HALF_BYTES = 2.0
_LEAST_RATIO = 2.0
"""Products that leave ordinary arithmetic for matrix units usually become at least twice as fast: what the
estimate of an unrecorded baseline takes for granted, too."""
_FEWER_PRODUCTS = r"(?i)winograd|fft\dd|cgemm|complex|float2\b"
"""Kernels of convolutions that save multiplications: 2.25 to 4 times fewer with Winograd (Lavin & Gray 2015,
arXiv:1509.09308). Those of FFT multiply complex numbers."""
_TABLES = r"fbgemm|embedding_codegen|split_embedding|SplitLookup|permute_pooled_embs|bounds_check_indices"
"""Ops and kernels of FBGEMM's embedding tables (torchrec): lookups, and backward passes with the optimizer's
update fused in. Autocast reaches neither; their type is that of the table."""
_STAYS: dict[Class, str] = {
    "optimizer": "the optimizer", "comm": "communication", "copy": "copies", "unknown": "unidentified work",
}  # fmt: skip


def potential(account: Account, peaks: DevicePeaks | None) -> AttainableRange:
    """Return the range of speedups that 16 bits could bring to this float32 run on a card with matrix
    units."""
    cells = account.main.cells
    saving = _saving_ops(cells)
    longest = [_longest_ns(cell, saving) for cell in cells]
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
    in_tf32 = sum(cell.busy_ns_per_step for cell in cells if _eligible(cell) and _in_tf32(cell))
    busy = sum(cell.busy_ns_per_step for cell in cells if cell.category != "profiling")
    few = ("one profiled step, which may not be representative",) if account.one_step else ()
    few = ("the host launches no earlier than it did", *few) if path else few
    return AttainableRange(
        low=max(1.0, min(at_least, at_most)),
        high=max(1.0, at_most),
        eligible_ratio=eligible / busy if busy > 0 else None,
        assumptions=(*_assumed(cells, saving, peaks), *few),
        tf32_ratio=in_tf32 / busy if busy > 0 else None,
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
    """Return whether the cell is matrix work that matrix units could do in 16 bits and did not: no helper of
    such work, and not depthwise."""
    if cell.category != "matmul" or cell.family == "depthwise" or cell.precision == "fp64":
        return False
    return cell.placement == "cuda_core" or _in_tf32(cell)


def _in_tf32(cell: Cell) -> bool:
    return cell.placement in ACCELERATED and cell.precision == "tf32"


def _short(cell: Cell) -> bool:
    """Return whether the cell's kernels are bound by launching."""
    return cell.calls_per_step > 0 and cell.busy_ns_per_step / cell.calls_per_step < SHORTEST_NS


def _saving_ops(cells: Iterable[Cell]) -> frozenset[str]:
    """Return the convolutions, or their kernels where no op is known, that run as Winograd or FFT."""
    return frozenset(
        cell.op or cell.kernel or ""
        for cell in cells
        if (cell.family or "").startswith("conv_") and re.search(_FEWER_PRODUCTS, cell.kernel or "")
    )


def _of_a_table(cell: Cell) -> bool:
    """Return whether the cell looks up or updates FBGEMM's embedding tables, which no autocast narrows."""
    return cell.category == "gather_scatter" and bool(re.search(_TABLES, f"{cell.op} {cell.kernel}"))


def _saves(cell: Cell, saving: frozenset[str]) -> bool:
    return (cell.op or cell.kernel or "") in saving


def _assumed(cells: Sequence[Cell], saving: frozenset[str], peaks: DevicePeaks | None) -> Iterator[str]:
    """Yield what the range takes for granted of the work that this run has."""
    own = [cell for cell in cells if cell.ns_per_step > 0]
    long = [cell for cell in own if not _short(cell)]
    float32 = [cell for cell in long if _eligible(cell) and not _in_tf32(cell)]
    if float32:
        yield _of_products(float32, saving, peaks)
    halved = {
        "products in TF32": any(_in_tf32(cell) for cell in long),
        "transforms of convolutions": any(cell.reason_code in TRANSFORMS for cell in long),
        "work that is bound by memory": any(
            cell.category in MEMORY_BOUND and not _of_a_table(cell) for cell in long
        ),
    }
    if any(halved.values()):
        yield f"{_listed([name for name, there in halved.items() if there])} at most 2x"
    stays = [name for category, name in _STAYS.items() if any(cell.category == category for cell in own)]
    stays += (
        ["FBGEMM's embedding lookups and the updates fused into them"] if any(map(_of_a_table, own)) else []
    )
    stays += [f"kernels under {SHORTEST_NS / 1000:.0f} µs"] if len(long) < len(own) else []
    stays += ["idle time"] if any(cell.category.startswith("idle_") for cell in own) else []
    if stays:
        yield f"{_listed(stays)} as long as now"
    yield "casts and loss scaling not counted"


def _of_products(cells: list[Cell], saving: frozenset[str], peaks: DevicePeaks | None) -> str:
    """Return how much faster matrix work in float32 is assumed to become."""
    most = max(_most(cell, peaks) for cell in cells)
    measured = peaks is not None and any(
        calibration.find(peaks.name, cell.family or "", "fp32", "fp16") for cell in cells
    )
    by = "by measurements and peak rates of such cards" if measured else "by the card's peak rates"
    end = f"to {_times(most)} ({by})" if math.isfinite(most) else "or more (its peaks are not known)"
    plain = [cell for cell in cells if not _saves(cell, saving)]
    if not plain:
        return f"convolutions in float32 by Winograd or FFT 1x (16 bits multiply more) {end} as fast"
    said = f"matrix work in float32 2x (usual, not certain) {end} as fast in 16 bits"
    return f"{said}, but from 1x where it is Winograd or FFT" if len(plain) < len(cells) else said


def _times(ratio: float) -> str:
    return f"{ratio:.1f}".removesuffix(".0") + "x"


def _listed(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(parts[:-1]), parts[-1]]))


def _longest_ns(cell: Cell, saving: frozenset[str]) -> float:
    if _eligible(cell) and not _in_tf32(cell) and not _short(cell) and not _saves(cell, saving):
        return _floored(cell, cell.ns_per_step / _LEAST_RATIO)
    return cell.ns_per_step


def _shortest_ns(cell: Cell, peaks: DevicePeaks | None) -> float:
    if _short(cell) or cell.precision == "fp64" or _of_a_table(cell):
        return cell.ns_per_step
    if _eligible(cell) and not _in_tf32(cell):
        return _floored(cell, cell.ns_per_step / _most(cell, peaks))
    if cell.category == "matmul" or cell.category in MEMORY_BOUND:
        return _floored(cell, cell.ns_per_step / _HALF_BYTES)
    return cell.ns_per_step


def _most(cell: Cell, peaks: DevicePeaks | None) -> float:
    """Return how many times faster a float32 product can become in 16 bits on matrix units, at most."""
    if peaks is None:
        return float("inf")
    row = calibration.find(peaks.name, cell.family or "", "fp32", "fp16")
    if row is not None:
        return row.ratio
    ran, could = peaks.flops_per_s.get("fp32_cuda"), peaks.flops_per_s.get("fp16")
    return max(_LEAST_RATIO, could / ran) if ran and could else float("inf")


def _floored(cell: Cell, ns: float) -> float:
    """Return the time within its limits: no call becomes shorter than `FLOOR_NS`, nor longer than it was."""
    least = cell.calls_per_step * FLOOR_NS
    return min(cell.ns_per_step, max(ns, least))
