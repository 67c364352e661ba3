"""The kernels that take most of a device's time, and what each reaches of the device's peaks."""

from __future__ import annotations

from collections import defaultdict

from mpprof.analysis.breakdown.rates import Part, fewer_operations, stated, summed
from mpprof.analysis.breakdown.roofline import Cost, roof
from mpprof.model.account import BUSY_RATIO, Account, BusyKernel, Cell
from mpprof.model.device import DevicePeaks
from mpprof.model.kernels import MATMUL_FAMILIES

_UNKNOWN = Cost(None, None)


def busiest(account: Account, peaks: DevicePeaks | None) -> tuple[BusyKernel, ...]:
    """Return the main device's kernels, by name, whose durations are more than `BUSY_RATIO` of the durations
    of all its work, the longest first; empty for ops that ran on the host."""
    if account.trace_basis == "host":
        return ()
    cells = account.main.cells
    whole_ns = sum(cell.busy_ns_per_step for cell in cells)
    by_name: dict[str, list[Cell]] = defaultdict(list)
    for cell in cells:
        if cell.kernel is not None and cell.category != "copy" and cell.busy_ns_per_step:
            by_name[cell.kernel].append(cell)
    multiplied = {cell.op for cell in cells if _multiplies(cell)} - {None}
    found = []
    for name, own in by_name.items():
        ns = sum(cell.busy_ns_per_step for cell in own)
        if ns <= BUSY_RATIO * whole_ns:
            continue
        # A product's operations and bytes are those of its matrix kernel, not of the helpers beside it.
        rates = summed([_part(cell, peaks, helps=cell.op in multiplied) for cell in own])
        ratio = rates["roofline_ratio"]
        found.append(
            BusyKernel(
                name,
                ns,
                ns / whole_ns,
                sum(cell.calls_per_step for cell in own),
                rates["flops_per_s"],
                rates["bytes_per_s"],
                ratio if ratio is not None and ratio <= 1 else None,
                rates["bound"] or ("compute" if any(map(_multiplies, own)) else "memory"),
            )
        )
    return tuple(sorted(found, key=lambda each: -each.ns_per_step))


def _multiplies(cell: Cell) -> bool:
    return cell.family in MATMUL_FAMILIES and cell.placement != "not_matmul"


def _part(cell: Cell, peaks: DevicePeaks | None, *, helps: bool) -> Part:
    calls, placement, precision = cell.calls_per_step, cell.placement, cell.precision
    work, least = _UNKNOWN, None
    if calls and (_multiplies(cell) or not helps):
        per_call = (each / calls if each else None for each in (cell.flops_per_step, cell.bytes_per_step))
        work = stated(Cost(*per_call), cell.family, by_hlo=cell.hlo is not None)
    if placement is not None and precision is not None and placement != "unknown":
        least = roof(work, placement, precision, peaks)
    fewer = fewer_operations(cell.family, placement)
    return Part(calls, cell.busy_ns_per_step, work, least, fewer)
