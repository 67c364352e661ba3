"""Which matrix kernels feed the matrix units badly: no rate may be taken from them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from mpprof.analysis.attainable.work import SIXTEEN_BITS, Work, work_of
from mpprof.analysis.kernels import shapes
from mpprof.model.account import Cell
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import ACCELERATED
from mpprof.model.run import LayerFacts

LARGE_NS = 50_000.0
"""A product is large if it takes at least this long at the peak rate: 49 GFLOP on an H100, 6 on a V100. Start
and end of a kernel, and tiles that do not fill the card, are then a small part of it (our judgement)."""
_BY_XLA = re.compile(r"(?:triton_)?(?:nested_)?gemm_fusion")

LayerOf = Callable[[str | None], LayerFacts | None]


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
        or not (peak and cell.flops_per_step and cell.calls_per_step)
    ):
        return False
    large = cell.flops_per_step / cell.calls_per_step / peak * 1e9 >= LARGE_NS
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
