"""What cells of the account could be at best: the other half of every cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.comparison import calibration
from mpprof.analysis.comparison.attainable import FLOOR_NS, REACHABLE_BANDWIDTH, least_ns, streaming_ns
from mpprof.diagnosis.cells import badly_fed
from mpprof.diagnosis.outcomes import Absent, Claim, Missing, known
from mpprof.diagnosis.shapes import ALIGNMENT, kernel_alignment
from mpprof.diagnosis.signals import HALF_PRECISIONS, Signals
from mpprof.model.account import Cell, Class, GapSlice
from mpprof.model.finding import Confidence
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, Family, Precision

Float64 = NDArray[np.float64]

SIMILAR_SIZE = 4.0
"""Kernels within this factor of each other in FLOPs per call reach comparable rates: tile shapes and wave
counts change slowly with size (our judgement)."""

WAITING_RATIO = 0.6
"""A kernel that waits for memory moves its bytes at more of the memory's rate than this (streaming kernels
reach 0.75 to 0.92 of it)."""
STREAMED_BANDWIDTH = 0.92
"""No streaming kernel moves its bytes at more of the memory's rate than this (75 to 92 % in STREAM)."""
FED_RATIO = 0.75
"""Matrix units are harder to feed than ordinary arithmetic: the share that kernels reach of their peak is so
much of the one that they reach of float32's. Our judgement, between 0.87 for products and 0.26 to 0.41 for
convolutions by the rows of the calibration table, which are measured on other cards."""

LARGE_SHARE = 0.68
"""The share of the peak that large aligned products in 16 bits reach: the lower of two cuBLAS kernels of 141
GFLOP on an H100 (0.68 and 0.81; `sample_traces/recorded-h100-transformer-padded-mixed-float16`)."""

LAUNCH_LIMITED_NS = 5_000.0
"""Below about 5 µs a kernel's length is its launch and its tail, whatever it computes with."""


@frozen
class Attainable:
    """Claims on cells, where their attainable value comes from, and how far to trust it."""

    claims: tuple[Claim, ...]
    source: str
    confidence: Confidence


def whole(rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return the claims that the cells need not be there at all."""
    return tuple(Claim(row) for row in rows)


def scaled(signals: Signals, rows: Iterable[int], ratio: float) -> tuple[Claim, ...]:
    """Return the claims that the cells could be `ratio` times faster; those that are launch-limited could
    not."""
    return tuple(
        Claim(row, signals.cells[row].ns_per_step / ratio)
        for row in rows
        if not _launch_limited(signals.cells[row])
    )


def halved(signals: Signals, rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return claims on memory-bound work at the time that it would take if its tensors had half the bytes."""
    return scaled(signals, rows, 2.0)


def at_best_rates(signals: Signals, rows: Iterable[int]) -> tuple[Claim, ...]:
    """Return the claims that memory-bound cells could move their bytes as fast as the fastest cell of their
    class in this trace whose calls move half as much or more. A rate that no memory gives is a cache's, or of
    bytes that were not moved: it tells nothing. None of a cell whose bytes are not known, or that is
    launch-limited; none at all where the memory's rate is not known."""
    peaks = known(signals.peaks)
    most = STREAMED_BANDWIDTH * ((peaks.bandwidth_bytes_per_s if peaks else None) or 0.0) / 1e9
    sized = {row: size for row, cell in enumerate(signals.cells) if (size := _bytes_per_call(cell))}
    rates = {row: rate for row in sized if (rate := _bytes_per_ns(signals.cells[row])) <= most}
    claims = []
    for row in rows:
        cell = signals.cells[row]
        if row not in rates or _launch_limited(cell):
            continue
        best = max(
            rate
            for at, rate in rates.items()
            if signals.cells[at].category == cell.category and sized[at] >= sized[row] / 2
        )
        if best > rates[row]:
            claims.append(Claim(row, cell.ns_per_step * rates[row] / best))
    return tuple(claims)


def _bytes_per_call(cell: Cell) -> float:
    return (
        (cell.bytes_per_step or 0.0) / cell.calls_per_step
        if cell.calls_per_step and cell.ns_per_step
        else 0.0
    )


def _bytes_per_ns(cell: Cell) -> float:
    """Return the rate at which a cell moves its bytes while it runs, hidden time included."""
    return (cell.bytes_per_step or 0.0) / (cell.busy_ns_per_step or cell.ns_per_step)


def lessened(signals: Signals, claims: tuple[Claim, ...], ns: float) -> tuple[Claim, ...]:
    """Return the same claims with `ns` less to gain in all, because the remedy itself takes as long."""
    gain = sum(signals.cells[claim.cell].ns_per_step - claim.attainable_ns for claim in claims)
    if gain <= 0 or ns <= 0:
        return claims
    keep = min(1.0, ns / gain)
    return tuple(
        Claim(c.cell, c.attainable_ns + (signals.cells[c.cell].ns_per_step - c.attainable_ns) * keep)
        for c in claims
    )


def matrix(signals: Signals, rows: Iterable[int]) -> Attainable | Absent:
    """Return what matrix work that did not run in 16 bits on matrix units would take if it had.

    In this order, per cell: the rate of 16-bit matrix kernels of the same family and similar size in this
    very trace; how near the cell comes to the rate of the arithmetic it ran on; the comparison with the
    baseline, slice by slice; the calibration table; the ratio of the device's peaks, which is a ceiling and
    therefore of low confidence. `Absent` where none of them is known.
    """
    claims: list[Claim] = []
    sources: dict[str, Confidence] = {}
    known_of = _Known(signals)
    rows = tuple(rows)
    long = [row for row in rows if not _launch_limited(signals.cells[row])]
    for row in long:
        for name, trust, way in _WAYS:
            best_ns = way(known_of, row)
            if best_ns is not None:
                best_ns = max(best_ns, known_of.by_bytes(row))
                claims.append(Claim(row, min(best_ns, signals.cells[row].ns_per_step)))
                sources[name] = trust
                break
    if not claims and rows and not long:
        return Absent("all kernels of this matrix work are so short that launch overhead limits them")
    if not claims:
        return Absent(_why_unknown(signals, long))
    order: tuple[Confidence, ...] = ("low", "medium", "high")
    return Attainable(tuple(claims), " and ".join(sorted(sources)), min(sources.values(), key=order.index))


def needed(signals: Signals, rows: Iterable[int], seen: str) -> Attainable:
    """Return what `matrix` does. Where it knows nothing, the rule that asks becomes *unable*, and states what
    was `seen`."""
    best = matrix(signals, rows)
    if isinstance(best, Absent):
        raise Missing(Absent(f"{seen}, but {best}"))
    return best


def _why_unknown(signals: Signals, rows: Iterable[int]) -> str:
    """Return why no way is open to tell what the matrix work could reach."""
    in_16_bits = all(
        signals.cells[row].placement in ACCELERATED and signals.cells[row].precision in HALF_PRECISIONS
        for row in rows
    )
    ran = (
        "it ran in 16 bits on matrix units, but no kernel of its kind has full loads and known FLOPs and "
        "bytes"
        if in_16_bits
        else "no 16-bit matrix kernel of its kind with known FLOPs and bytes ran"
    )
    peaks = "are not known" if known(signals.peaks) is None else "give no higher rate than the measured one"
    return (
        f"what this matrix work could reach is not known: {ran}; there is no baseline, and the device's "
        f"peaks {peaks}"
    )


def _launch_limited(cell: Cell) -> bool:
    calls = cell.calls_per_step
    return calls > 0 and (cell.busy_ns_per_step or cell.ns_per_step) / calls < LAUNCH_LIMITED_NS


class _Known:
    """What is known of one run that bears on its matrix work, gathered once for many cells."""

    def __init__(self, signals: Signals) -> None:
        self.signals = signals
        self.cells = signals.cells

    @cached_property
    def rates(self) -> dict[Family | None, tuple[Float64, Float64]]:
        """By family: (FLOPs per call, FLOPs per ns) of every well-fed cell that states its FLOPs."""
        gathered: dict[Family | None, list[tuple[float, float]]] = {}
        for row, cell in enumerate(self.cells):
            if cell.flops_per_step and cell.calls_per_step and _well_fed(self.signals, row):
                size, rate = cell.flops_per_step / cell.calls_per_step, cell.flops_per_step / cell.ns_per_step
                gathered.setdefault(cell.family, []).append((size, rate))
        return {family: (np.array(rows)[:, 0], np.array(rows)[:, 1]) for family, rows in gathered.items()}

    @cached_property
    def roof_shares(self) -> dict[tuple[str, str], tuple[Float64, Float64]]:
        """By (kind, bound): (FLOPs per call, share of the roofline) of every well-fed cell.

        The time to start and drain is left out of it: long kernels have no more of that than short ones. A
        kernel that by its bytes should wait for memory, and is far from the memory's rate all the same, is
        held up by its arithmetic: its share is that of the peak."""
        gathered: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for row, cell in enumerate(self.cells):
            least = self.least_ns(row) if cell.calls_per_step and _well_fed(self.signals, row) else None
            if least is None or not cell.flops_per_step or not cell.calls_per_step:
                continue
            running_ns = max(least[0], cell.ns_per_step - cell.calls_per_step * FLOOR_NS)
            share, bound = least[0] / running_ns, least[1]
            if bound == "memory" and share < WAITING_RATIO:
                share, bound = self._compute_ns(row) / running_ns, "compute"
            size = cell.flops_per_step / cell.calls_per_step
            gathered.setdefault((_kind(cell.family), bound), []).append((size, share))
        return {key: (np.array(rows)[:, 0], np.array(rows)[:, 1]) for key, rows in gathered.items()}

    def _compute_ns(self, row: int) -> float:
        """Return the time of a cell's operations at the peak in 16 bits, per step; 0 where it is not
        known."""
        peaks = known(self.signals.peaks)
        rate = peaks.flops_per_s.get(self.half) if peaks else None
        return (self.cells[row].flops_per_step or 0.0) / rate * 1e9 if rate else 0.0

    @property
    def half(self) -> Precision:
        return "bf16" if self.signals.half == "bf16" else "fp16"

    def least_ns(self, row: int) -> tuple[float, str] | None:
        """Return the least time of a cell in 16 bits on matrix units, per step, and what bounds it."""
        cell = self.cells[row]
        narrow = 2 if cell.precision in ("fp32", "tf32") else 1
        moved = cell.bytes_per_step / narrow if cell.bytes_per_step else None
        return least_ns(cell.flops_per_step, moved, self.half, known(self.signals.peaks))

    @cached_property
    def slices(self) -> dict[tuple[Class, str | None], GapSlice]:
        """The comparison's slices by class and layer; empty where they are plain differences between runs."""
        speedup = known(self.signals.speedup)
        if speedup is None or speedup.expected is None:
            return {}
        return {(part.category, part.layer): part for part in speedup.slices}

    def by_bytes(self, row: int) -> float:
        """Return the least time in which the bytes of a cell can be moved, in 16 bits, per step; 0 where it
        is not known."""
        cell, peaks = self.cells[row], known(self.signals.peaks)
        if not cell.bytes_per_step or peaks is None or not peaks.bandwidth_bytes_per_s:
            return 0.0
        moved = cell.bytes_per_step / (2 if cell.precision in ("fp32", "tf32") else 1)
        return streaming_ns(moved, peaks.bandwidth_bytes_per_s)

    def slice_of(self, cell: Cell) -> GapSlice | None:
        return self.slices.get((cell.category, cell.layer)) or self.slices.get((cell.category, None))

    @cached_property
    def fallback_ns(self) -> dict[tuple[Class, str | None], float]:
        """The time of all fallback cells of a slice, by its class and layer."""
        totals: dict[tuple[Class, str | None], float] = {}
        for row in self.signals.not_in_16_bits:
            part = self.slice_of(self.cells[row])
            if part is not None:
                key = (part.category, part.layer)
                totals[key] = totals.get(key, 0.0) + self.cells[row].ns_per_step
        return totals


def _well_fed(signals: Signals, row: int) -> bool:
    """Return whether the cell is 16-bit work on matrix units with full loads: a rate may be taken from such
    work."""
    cell = signals.cells[row]
    alignment = kernel_alignment(cell.kernel or "")
    return (
        cell.placement in ACCELERATED
        and cell.precision in HALF_PRECISIONS
        and cell.ns_per_step > 0
        and (alignment is None or alignment >= ALIGNMENT)
        and not badly_fed(signals, row)
    )


def _by_roof(run: _Known, row: int) -> float | None:
    """Return the time of the cell if it comes as near to its roofline as kernels of its kind with the same
    bound come to theirs in this trace. Without such kernels, work that is bound by memory is assumed to come
    as near as streaming kernels do, and None is returned for work that is bound by compute: how near kernels
    come to the memory's rate is no measure of that."""
    cell, least = run.cells[row], run.least_ns(row)
    if least is None or not cell.flops_per_step or not cell.calls_per_step:
        return None
    kind, bound = _kind(cell.family), least[1]
    found = run.roof_shares.get((kind, bound))
    if found is None and bound == "memory" and (kind, "compute") in run.roof_shares:
        return least[0] / REACHABLE_BANDWIDTH
    if found is None:
        return None
    sizes, shares = found
    away = np.abs(np.log(sizes / (cell.flops_per_step / cell.calls_per_step)))
    similar = away <= max(np.log(SIMILAR_SIZE), away.min())  # or else the nearest
    return least[0] / median(shares[similar]) + cell.calls_per_step * FLOOR_NS


def _kind(family: Family | None) -> str:
    return "convolution" if (family or "").startswith("conv_") else str(family)


def _by_same_trace(run: _Known, row: int) -> float | None:
    if (by_roof := _by_roof(run, row)) is not None:
        return by_roof
    cell = run.cells[row]
    if run.least_ns(row) is not None:  # no kernel with its bound ran: their rates are not its own
        return None
    if not cell.flops_per_step or not cell.calls_per_step or cell.family not in run.rates:
        return None
    sizes, rates = run.rates[cell.family]
    ratio = sizes / (cell.flops_per_step / cell.calls_per_step)
    similar = (ratio >= 1 / SIMILAR_SIZE) & (ratio <= SIMILAR_SIZE)
    return cell.flops_per_step / median(rates[similar]) if similar.any() else None


def _by_own_share(run: _Known, row: int) -> float | None:
    """Return the time of the cell if it comes as near to its peak in 16 bits as it comes to the peak of the
    arithmetic it ran on, less what matrix units usually leave of theirs."""
    cell, least, peaks = run.cells[row], run.least_ns(row), known(run.signals.peaks)
    if cell.placement in ACCELERATED and cell.precision in HALF_PRECISIONS:
        return None  # it has the arithmetic already: how badly it is fed says nothing of how it could be
    ran = peaks.flops_per_s.get(_arithmetic(cell)) if peaks else None
    if least is None or not ran or not cell.flops_per_step or least[1] != "compute" or cell.ns_per_step <= 0:
        return None
    share = min(1.0, cell.flops_per_step / ran * 1e9 / cell.ns_per_step)
    fed = share * (1.0 if cell.placement in ACCELERATED else FED_RATIO)
    return least[0] / fed + cell.calls_per_step * FLOOR_NS


def _by_comparison(run: _Known, row: int) -> float | None:
    """Return the time of the cell without its part of the slice's excess over its attainable time, which the
    fallback cells of the slice share by their time."""
    cell = run.cells[row]
    part = run.slice_of(cell)
    if part is None or part.baseline_ns <= 0:
        return None
    total = run.fallback_ns.get((part.category, part.layer), 0.0)
    return cell.ns_per_step * (1 - min(1.0, max(0.0, part.ns_per_step) / total)) if total > 0 else None


def _by_calibration(run: _Known, row: int) -> float | None:
    peaks = known(run.signals.peaks)
    cell = run.cells[row]
    if peaks is None or cell.family is None or cell.precision is None:
        return None
    # Operands in 16 bits on ordinary arithmetic compute at the float32 rate.
    ran: Precision = "fp32" if cell.placement == "cuda_core" else cell.precision
    becomes: Precision = "bf16" if run.signals.half == "bf16" else "fp16"
    found = calibration.find(peaks.name, cell.family, ran, becomes)
    return cell.ns_per_step / found.ratio if found else None


def _by_large_products(run: _Known, row: int) -> float | None:
    """Return the time of a large product in 16 bits at the share of the peak that aligned ones reach."""
    least = run.least_ns(row)
    if least is None or least[1] != "compute" or not badly_fed(run.signals, row):
        return None
    return least[0] / LARGE_SHARE + run.cells[row].calls_per_step * FLOOR_NS


def _by_peaks(run: _Known, row: int) -> float | None:
    peaks = known(run.signals.peaks)
    half = run.signals.half or "fp16"
    if peaks is None or not peaks.has_matrix_units:
        return None
    cell = run.cells[row]
    ran = peaks.flops_per_s.get(_arithmetic(cell))
    possible = peaks.flops_per_s.get(half)
    if not ran or not possible or possible <= ran:
        return None
    return cell.ns_per_step * ran / possible


def _arithmetic(cell: Cell) -> str:
    """Return the key of `DevicePeaks.flops_per_s` for the arithmetic that ran."""
    if cell.placement in ACCELERATED:
        return str(cell.precision)
    # 16-bit storage on ordinary arithmetic computes in float32 unless the name says half2, which we cannot
    # tell: the float32 rate is the usual case.
    return "fp64" if cell.precision == "fp64" else "fp32_cuda"


_WAYS: tuple[tuple[str, Confidence, Callable[[_Known, int], float | None]], ...] = (
    ("16-bit kernels of the same kind in this trace", "high", _by_same_trace),
    ("its share of the peak rate of the arithmetic that it ran on", "medium", _by_own_share),
    ("the comparison with the baseline", "high", _by_comparison),
    ("the calibration table of this card", "medium", _by_calibration),
    ("the share of the peak that large aligned products reach", "medium", _by_large_products),
    ("the device's peak rates (a ceiling)", "low", _by_peaks),
)
