"""How much of the matrix time ran on matrix units, by the cells of an account."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpprof.model.account import Cell, TensorCoreShare
from mpprof.model.kernels import ACCELERATED, Precision
from mpprof.model.quantities import format_ratio

_LEAST_DECIDED = 0.5
"""A Tensor Core share of less than half of the matrix time would be a guess about the rest."""


def tensor_core_share(
    all_cells: Sequence[Cell], *, on_host: bool = False, matrix_units: bool | None = None
) -> TensorCoreShare:
    """Return how much of the matrix time of these cells ran on matrix units, and in what precision.

    `ratio` is of the matrix time whose placement is known, helpers (split-K reductions, transforms) apart;
    it is None where there is no such time, where it is less than half of the matrix time, and `on_host`,
    where the cells are ops of a CPU. `matrix_units`: whether the device has any (None: not known); without
    them nothing falls back.
    """
    cells = [cell for cell in all_cells if cell.placement is not None]
    matmul = [cell for cell in cells if cell.category == "matmul"]
    units = [cell for cell in matmul if cell.placement in ACCELERATED]
    by_precision: dict[Precision, float] = {}
    for cell in units:
        precision = cell.precision or "unknown"
        by_precision[precision] = by_precision.get(precision, 0.0) + cell.ns_per_step
    on_units = _ns(units)
    ordinary = _ns([cell for cell in matmul if cell.placement == "cuda_core"])
    unknown = _ns([cell for cell in matmul if cell.placement == "unknown"])
    kernels = [cell for cell in cells if cell.category != "copy"]
    busy = math.fsum(cell.busy_ns_per_step for cell in kernels)
    not_known = math.fsum(cell.busy_ns_per_step for cell in kernels if cell.placement == "unknown")
    reason = _no_share(on_host, on_units + ordinary, unknown)
    return TensorCoreShare(
        matmul_ns_per_step=_ns(matmul),
        ratio=on_units / (on_units + ordinary) if reason is None else None,
        reason=reason,
        by_precision=by_precision,
        fallback_ns_per_step=0.0 if matrix_units is False else ordinary,
        unknown_ratio=not_known / busy if busy else 0.0,
        unit="matrix_core" if any(cell.placement == "matrix_core" for cell in units) else "tensor_core",
    )


def _no_share(on_host: bool, decided_ns: float, unknown_ns: float) -> str | None:
    if on_host:
        return "the trace holds no accelerator: ops ran on the host's CPU"
    if decided_ns + unknown_ns <= 0.0:
        return "no matrix work was seen in the window"
    if decided_ns < _LEAST_DECIDED * (decided_ns + unknown_ns):
        share = format_ratio(unknown_ns / (decided_ns + unknown_ns))
        return f"it is not known where {share} of the matrix time ran"
    return None


def _ns(cells: list[Cell]) -> float:
    return math.fsum(cell.ns_per_step for cell in cells)
