"""What cells of the account could be at best: the other half of every cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from mpprof.analysis import calibration
from mpprof.diagnosis.outcomes import Absent, Claim, known
from mpprof.diagnosis.shapes import ALIGNMENT, kernel_alignment
from mpprof.diagnosis.signals import HALF_PRECISIONS, Signals
from mpprof.model.account import Cell, GapSlice
from mpprof.model.finding import Confidence
from mpprof.model.kernels import ACCELERATED, Precision

_Way = Callable[[Signals, int], float | None]

SIMILAR_SIZE = 4.0
"""Kernels within this factor of each other in FLOPs per call reach comparable rates: tile shapes and wave
counts change slowly with size (our judgement)."""

LAUNCH_LIMITED_NS = 5_000.0
"""Below about 5 µs a kernel's length is its launch and its tail, whatever it computes with."""


@dataclass(frozen=True, slots=True)
class Reach:
    """Claims on cells, where their reachable value comes from, and how far to trust it."""

    claims: tuple[Claim, ...]
    source: str
    confidence: Confidence


def whole(rows: Iterable[int]) -> tuple[Claim, ...]:
    """The cells need not be at all."""
    return tuple(Claim(row) for row in rows)


def scaled(signals: Signals, rows: Iterable[int], ratio: float) -> tuple[Claim, ...]:
    """The cells could be `ratio` times faster; those that are launch-limited could not."""
    return tuple(
        Claim(row, signals.cells[row].ns_per_step / ratio)
        for row in rows
        if not _launch_limited(signals.cells[row])
    )


def halved(signals: Signals, rows: Iterable[int]) -> tuple[Claim, ...]:
    """Memory-bound work whose tensors would have half the bytes."""
    return scaled(signals, rows, 2.0)


def matrix(signals: Signals, rows: Iterable[int]) -> Reach | Absent:
    """Matrix work that did not run in 16 bits on matrix units, as if it had.

    In this order, per cell: the rate of 16-bit matrix kernels of the same family and similar size in this
    very trace; the comparison with the baseline, slice by slice; the calibration table; the ratio of the
    device's peaks, which is a ceiling and therefore of low confidence. `Absent` where none of them is known.
    """
    claims: list[Claim] = []
    sources: dict[str, Confidence] = {}
    for row in rows:
        cell = signals.cells[row]
        if _launch_limited(cell):
            continue
        for name, trust, way in _WAYS:
            reachable = way(signals, row)
            if reachable is not None:
                claims.append(Claim(row, min(reachable, cell.ns_per_step)))
                sources[name] = trust
                break
    if not claims:
        return Absent(
            "what this matrix work could reach is not known: no 16-bit matrix kernel of its kind ran, "
            "there is no baseline, and the device's peaks are not known"
        )
    order: tuple[Confidence, ...] = ("low", "medium", "high")
    return Reach(tuple(claims), " and ".join(sorted(sources)), min(sources.values(), key=order.index))


def _launch_limited(cell: Cell) -> bool:
    calls = cell.calls_per_step
    return calls > 0 and (cell.busy_ns_per_step or cell.ns_per_step) / calls < LAUNCH_LIMITED_NS


def _by_same_trace(signals: Signals, row: int) -> float | None:
    cell = signals.cells[row]
    if not cell.flops_per_step or not cell.calls_per_step:
        return None
    size = cell.flops_per_step / cell.calls_per_step
    rates = [
        twin.flops_per_step / twin.ns_per_step
        for other, twin in enumerate(signals.cells)
        if other != row
        and twin.family == cell.family
        and _well_fed(twin)
        and twin.flops_per_step
        and twin.calls_per_step
        and 1 / SIMILAR_SIZE <= twin.flops_per_step / twin.calls_per_step / size <= SIMILAR_SIZE
    ]
    return cell.flops_per_step / median(rates) if rates else None


def _well_fed(cell: Cell) -> bool:
    """16-bit work on matrix units with full loads: what a rate may be taken from."""
    alignment = kernel_alignment(cell.kernel or "")
    return (
        cell.placement in ACCELERATED
        and cell.precision in HALF_PRECISIONS
        and cell.ns_per_step > 0
        and (alignment is None or alignment >= ALIGNMENT)
    )


def _by_comparison(signals: Signals, row: int) -> float | None:
    """The slice's excess over its reach is shared among its fallback cells by their time."""
    speedup = known(signals.speedup)
    if speedup is None or speedup.expected is None:
        return None  # without an expectation the slices are plain differences between the runs
    cell = signals.cells[row]
    part = _slice_of(cell, speedup.slices)
    if part is None or part.baseline_ns <= 0:
        return None
    peers = [
        signals.cells[r].ns_per_step
        for r in signals.fallbacks
        if _slice_of(signals.cells[r], speedup.slices) is part
    ]
    total = sum(peers)
    return cell.ns_per_step * (1 - min(1.0, max(0.0, part.ns_per_step) / total)) if total > 0 else None


def _slice_of(cell: Cell, slices: tuple[GapSlice, ...]) -> GapSlice | None:
    of_role = [part for part in slices if part.role == cell.role]
    return next((p for p in of_role if p.layer == cell.layer), None) or next(
        (p for p in of_role if p.layer is None), None
    )


def _by_calibration(signals: Signals, row: int) -> float | None:
    peaks = known(signals.peaks)
    cell = signals.cells[row]
    if peaks is None or cell.family is None or cell.precision is None:
        return None
    # Operands in 16 bits on ordinary arithmetic compute at the float32 rate.
    ran: Precision = "fp32" if cell.placement == "cuda_core" else cell.precision
    becomes: Precision = "bf16" if signals.half == "bf16" else "fp16"
    found = calibration.find(peaks.name, cell.family, ran, becomes)
    return cell.ns_per_step / found.ratio if found else None


def _by_peaks(signals: Signals, row: int) -> float | None:
    peaks = known(signals.peaks)
    half = signals.half or "fp16"
    if peaks is None or not peaks.has_matrix_units:
        return None
    cell = signals.cells[row]
    ran = peaks.flops_per_s.get(_arithmetic(cell))
    possible = peaks.flops_per_s.get(half)
    if not ran or not possible or possible <= ran:
        return None
    reachable = cell.ns_per_step * ran / possible
    if cell.bytes_per_step and peaks.bandwidth_bytes_per_s:
        bytes_in_half = cell.bytes_per_step / (2 if cell.precision in ("fp32", "tf32") else 1)
        reachable = max(reachable, bytes_in_half / peaks.bandwidth_bytes_per_s * 1e9)
    return reachable


def _arithmetic(cell: Cell) -> str:
    """The key of `DevicePeaks.flops_per_s` for the arithmetic that ran."""
    if cell.placement in ACCELERATED:
        return str(cell.precision)
    # 16-bit storage on ordinary arithmetic computes in float32 unless the name says half2, which we cannot
    # tell: the float32 rate is the usual case.
    return "fp64" if cell.precision == "fp64" else "fp32_cuda"


_WAYS: tuple[tuple[str, Confidence, _Way], ...] = (
    ("16-bit kernels of the same kind in this trace", "high", _by_same_trace),
    ("the comparison with the baseline", "high", _by_comparison),
    ("the calibration table of this card", "medium", _by_calibration),
    ("the device's peak rates (a ceiling)", "low", _by_peaks),
)
