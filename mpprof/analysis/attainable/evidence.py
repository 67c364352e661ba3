"""What matrix work reaches in 16 bits in this very trace, and beside its baseline."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property

import numpy as np

from mpprof.analysis.attainable.work import (
    FLOOR_NS,
    SIMILAR,
    SIXTEEN_BITS,
    STREAMING,
    WAITING,
    BoundBy,
    Work,
    roofline,
    work_of,
)
from mpprof.analysis.kernels import shapes
from mpprof.model.account import Cell
from mpprof.model.arrays import Bool, Float64
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, Placement, Precision
from mpprof.model.run import LayerFacts

_FEWER_PRODUCTS = r"(?i)winograd|fft\dd|cgemm|complex|float2\b"
"""Kernels of convolutions that save multiplications: 2.25 to 4 times fewer with Winograd (Lavin & Gray 2015,
arXiv:1509.09308). Those of FFT multiply complex numbers."""
LARGE_NS = 50_000.0
"""A product is large if it takes at least this long at the peak rate: 49 GFLOP on an H100, 6 on a V100. Start
and end of a kernel, and tiles that do not fill the card, are then a small part of it (our judgement)."""
_BY_XLA = re.compile(r"(?:triton_)?(?:nested_)?gemm_fusion")
"""XLA's own products, whose names state no alignment."""

LayerOf = Callable[[str | None], LayerFacts | None]


@frozen
class Pair:
    """Work of a baseline, and the same role in 16 bits on matrix units in the other run."""

    before: Work
    after: Work


@frozen
class _Peers:
    """Columns of the kernels of one kind. `share` of the roofline, by what bounds them; `of_peak`: of the
    peak rate; NaN where bytes are not known."""

    size: Float64  # operations per call
    weight: Float64  # ns per step
    rate: Float64  # operations per ns
    share: Float64
    of_peak: Float64
    by_memory: Bool


class Evidence:
    """Everything beside the work itself that tells what it could take.

    `fed`: 16-bit work on matrix units with full loads (`well_fed`). `pairs`: aligned work of a
    baseline. `saving`: convolutions that run as Winograd or FFT now (`saving_ops`)."""

    def __init__(
        self,
        peaks: DevicePeaks | None = None,
        fed: Iterable[Work] = (),
        pairs: Iterable[Pair] = (),
        saving: frozenset[str] = frozenset(),
    ) -> None:
        self.peaks, self.saving = peaks, saving
        self._fed, self._pairs = tuple(fed), tuple(pairs)

    def saves(self, work: Work) -> bool:
        """Return whether the work does with fewer multiplications than 16 bits would."""
        return (work.op or work.kernel or "") in self.saving

    def rate(self, arithmetic: str) -> float | None:
        """Return the peak of an arithmetic in FLOP/s; None where it is not known."""
        return self.peaks.flops_per_s.get(arithmetic) if self.peaks else None

    def roof(self, work: Work, precision: Precision) -> tuple[float, BoundBy] | None:
        """Return the roofline of the work in 16 bits on matrix units, in ns per step; None where operations,
        bytes or peaks are not known."""
        moved, rate = work.bytes_in_16_bits, self.rate(precision)
        bandwidth = self.peaks.bandwidth_bytes_per_s if self.peaks else None
        if not (work.flops and moved and rate and bandwidth):
            return None
        return roofline(work.flops, moved, rate, bandwidth)

    @cached_property
    def _by_kind(self) -> Mapping[str, _Peers]:
        gathered: dict[str, list[tuple[float, ...]]] = defaultdict(list)
        for work in self._fed:
            if not work.size or not work.flops:
                continue
            # Without starting and draining, which take no longer in long kernels than in short ones.
            roof = self.roof(work, work.precision or "fp16")
            running_ns = max(roof[0] if roof else 0.0, work.ns - work.calls * FLOOR_NS)
            peak = self.rate(work.precision or "fp16")
            share = roof[0] / running_ns if roof else np.nan
            of_peak = work.flops / peak * 1e9 / running_ns if peak and running_ns > 0 else np.nan
            by_memory = bool(roof and roof[1] == "memory")
            row = (work.size, work.ns, work.flops / work.ns, share, of_peak, by_memory)
            gathered[work.kind].append(row)
        columns = [np.array(rows, np.float64).T for rows in gathered.values()]
        return dict(zip(gathered, map(_peers, columns), strict=True))

    def by_roof(self, work: Work, precision: Precision) -> float | None:
        """Return the time of the work if it comes as near to its roofline as kernels of its kind with the
        same bound come to theirs, those of similar size or else the nearest.

        Kernels that should wait for memory by their bytes, but are far from its rate, are limited by their
        arithmetic. They stand for memory-bound work of similar size, and, if no kernels are compute-bound,
        show how near such kernels come to the peak. Without any, work that is bound by
        memory comes as near as streaming kernels do."""
        roof, peers = self.roof(work, precision), self._by_kind.get(work.kind)
        if roof is None or peers is None or not work.size:
            return None
        away = np.abs(np.log(peers.size / work.size))
        waiting, share = peers.by_memory & (peers.share >= WAITING), peers.share
        if roof[1] == "memory":
            same = waiting | (peers.by_memory & (away <= np.log(SIMILAR)))
            if not same.any() and not np.isnan(share).all():
                return roof[0] / STREAMING + work.calls * FLOOR_NS
        else:
            same = ~np.isnan(share) & ~peers.by_memory
            if not same.any():
                same, share = peers.by_memory & ~waiting, peers.of_peak
        if not same.any():
            return None
        near = away[same] <= max(np.log(SIMILAR), away[same].min())
        reached = _weighted_median(share[same][near], peers.weight[same][near])
        return roof[0] / reached + work.calls * FLOOR_NS if reached > 0 else None

    def by_rate(self, work: Work) -> float | None:
        """Return the time of the work at the rate of kernels of its kind and similar size."""
        peers = self._by_kind.get(work.kind)
        if peers is None or not work.size or not work.flops:
            return None
        near = np.abs(np.log(peers.size / work.size)) <= np.log(SIMILAR)
        return work.flops / _weighted_median(peers.rate[near], peers.weight[near]) if near.any() else None

    @cached_property
    def _by_arithmetic(self) -> Mapping[tuple[str, Placement | None, Precision | None], tuple[Pair, ...]]:
        gathered: dict[tuple[str, Placement | None, Precision | None], list[Pair]] = defaultdict(list)
        for pair in self._pairs:
            before = pair.before
            gathered[before.kind, before.placement, before.precision].append(pair)
        return {key: tuple(pairs) for key, pairs in gathered.items()}

    def by_pairs(self, work: Work) -> float | None:
        """Return the time of the work if it gains what aligned work of its kind, arithmetic and similar size
        did."""
        pairs = self._by_arithmetic.get((work.kind, work.placement, work.precision), ())
        near = [pair for pair in pairs if _similar(pair.before, work)]
        if not near:
            return None
        ratios = np.array([pair.before.ns / pair.after.ns for pair in near])
        return work.ns / _weighted_median(ratios, np.array([pair.before.ns for pair in near]))


def _peers(columns: Float64) -> _Peers:
    size, weight, rate, share, of_peak, by_memory = columns
    return _Peers(size, weight, rate, share, of_peak, by_memory > 0)


def saving_ops(cells: Iterable[Cell]) -> frozenset[str]:
    """Return the convolutions, or their kernels where no op is known, that run as Winograd or FFT."""
    return frozenset(
        cell.op or cell.kernel or ""
        for cell in cells
        if (cell.family or "").startswith("conv_") and re.search(_FEWER_PRODUCTS, cell.kernel or "")
    )


def _similar(one: Work, other: Work) -> bool:
    """Return whether two pieces are similar: by operations per call where both state them, else by time per
    call."""
    if one.size and other.size:
        first, second = one.size, other.size
    else:
        first, second = (each.busy_ns / each.calls if each.calls else 0.0 for each in (one, other))
    return 0 < first <= SIMILAR * second and second <= SIMILAR * first


def _weighted_median(values: Float64, weights: Float64) -> float:
    """Return the weighted median; the upper one of two equal halves."""
    order = np.argsort(values, kind="stable")
    seen = np.cumsum(weights[order])
    at = int(np.searchsorted(seen, seen[-1] / 2, side="right"))
    return float(values[order][min(at, len(order) - 1)])


# --- which kernels are evidence ----------------------------------------------------------------------------


def well_fed(cells: Iterable[Cell], layer_of: LayerOf, peaks: DevicePeaks | None) -> list[Work]:
    """Return the 16-bit work on matrix units with full loads."""
    return [work_of(cell) for cell in cells if _is_well_fed(cell, layer_of(cell.layer), peaks)]


def _is_well_fed(cell: Cell, layer: LayerFacts | None, peaks: DevicePeaks | None) -> bool:
    if cell.category != "matmul" or cell.placement not in ACCELERATED or cell.precision not in SIXTEEN_BITS:
        return False
    alignment = shapes.kernel_alignment(cell.kernel or "")
    full = alignment is None or alignment >= shapes.ALIGNMENT
    return cell.ns_per_step > 0 and full and not badly_fed(cell, layer, peaks)


def badly_fed(cell: Cell, layer: LayerFacts | None, peaks: DevicePeaks | None) -> bool:
    """Return whether the cell is a large 16-bit product on matrix units with an odd size, in a kernel of
    XLA's.

    Rows of odd length do not begin at multiples of 16 bytes, so they cannot be loaded in whole vectors. A
    library states that in its kernel's name; XLA's kernels are named after the program. Seen on an H100 with
    JAX 0.11: the three products with a vocabulary of 33,709 ran at 14 to 24 % of the peak, with one of 33,728
    at 68 to 81 % (`sample_traces/recorded-h100-transformer-*`). Only of large products: small ones are held
    up by other things.
    """
    peak = peaks.flops_per_s.get(cell.precision or "") if peaks else None
    if (
        cell.category != "matmul"
        or cell.placement not in ACCELERATED
        or cell.precision not in SIXTEEN_BITS
        or not _BY_XLA.match(cell.kernel or "")
        or not (peak and cell.flops_per_step and cell.done_per_step)
    ):
        return False
    large = cell.flops_per_step / cell.done_per_step / peak * 1e9 >= LARGE_NS
    return large and bool(bad_sizes(cell, layer))


def bad_sizes(cell: Cell, layer: LayerFacts | None) -> tuple[int, ...] | None:
    """Return the sizes of this cell's work that are not multiples of 8; None where too few are known to
    tell."""
    sizes = shapes.matrix_dimensions(cell.shapes, cell.family)
    if sizes:
        return shapes.unaligned(sizes)
    own = (shapes.width(layer), shapes.last_axis(layer.input_shape)) if layer else (None,)
    odd = shapes.unaligned(tuple(size for size in own if size is not None))
    return odd if odd or None not in own else None
