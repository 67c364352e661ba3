"""Traces of more kernels and ops than any program has: what is beyond the bounds of `model.limits` is one.

Whatever is said of a kernel or an op is said once for each that differs. A step of a large model has some
thousands; a file may state ten thousand in each megabyte.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mpprof.model import limits
from mpprof.model.grouping import groups
from mpprof.model.quantities import format_ratio
from mpprof.model.trace import AllocationTable, HostTable, KernelTable, MarkerTable, Trace
from mpprof.traces.common.launches import take

OTHER = "(other kernels)"
Int64 = NDArray[np.int64]
_Table = TypeVar("_Table", KernelTable, HostTable, AllocationTable)


def within_bounds(trace: Trace) -> Trace:
    """Return the trace with at most `MOST_KERNELS` kernels that differ in name, op or shapes, those that took
    longest, and all others under one name; with at most `MOST_OPS` ops and `MOST_DEVICES` devices.

    Warnings say what was left out or put together."""
    return _with_fewer_ops(_with_fewer_kernels(_with_fewer_devices(trace)))


def _with_fewer_devices(trace: Trace) -> Trace:
    """Return the trace with only its first devices, with their streams, their work and their markers."""
    most, markers = limits.MOST_DEVICES, trace.markers
    if len(trace.devices) <= most:
        return trace
    kept = np.array([stream.device < most for stream in trace.streams], np.bool_)
    number = np.cumsum(kept) - 1
    kernels = take(trace.kernels, np.flatnonzero(trace.kernels.device < most))
    of_device = markers.device if markers.device is not None else np.full(len(markers), -1)
    rows = np.flatnonzero(of_device < most)
    said = f"the first {most} of {len(trace.devices)} devices were read"
    return replace(
        trace,
        devices=trace.devices[:most],
        streams=tuple(stream for stream, keep in zip(trace.streams, kept.tolist(), strict=True) if keep),
        kernels=replace(kernels, stream=number[kernels.stream].astype(np.int32)),
        markers=MarkerTable(
            number=markers.number[rows],
            start_ns=markers.start_ns[rows],
            end_ns=markers.end_ns[rows],
            thread=markers.thread[rows],
            family=markers.family[rows],
            device=None if markers.device is None else markers.device[rows],
        ),
        warnings=(*trace.warnings, said),
    )


def _with_fewer_kernels(trace: Trace) -> Trace:
    table, most = trace.kernels, limits.MOST_KERNELS
    if len(table) <= most:
        return trace
    group, first = groups((table.name, table.op, table.shapes), len(table))
    if len(first) <= most:
        return trace
    total = np.bincount(group, weights=table.duration_ns, minlength=len(first))
    kept = np.zeros(len(first), np.bool_)
    kept[np.argsort(-total, kind="stable")[:most]] = True
    other = ~kept[group]
    named = replace(
        table,
        name=np.where(other, np.int32(len(trace.strings)), table.name),
        op=np.where(other, np.int32(-1), table.op),
        shapes=np.where(other, np.int32(-1), table.shapes),
    )
    ratio = float(total[~kept].sum() / total.sum()) if total.any() else 0.0
    said = (
        f"the {most} longest of {len(first)} kernels that differ in name, op or shapes are kept apart; the "
        f"others, {format_ratio(ratio)} of the kernels' time, are one"
    )
    return replace(trace, kernels=named, strings=(*trace.strings, OTHER), warnings=(*trace.warnings, said))


def _with_fewer_ops(trace: Trace) -> Trace:
    """Return the trace with fewer ops: those of kernels first, then as many of the others as the limit
    leaves, in the order of the file."""
    most = limits.MOST_OPS
    if len(trace.ops) <= most:
        return trace
    of_kernels = np.zeros(len(trace.ops), np.bool_)
    of_kernels[trace.kernels.op[trace.kernels.op >= 0]] = True
    first = np.argsort(~of_kernels, kind="stable")[:most]
    new = np.full(len(trace.ops) + 1, -1, np.int32)  # the last is met by op -1
    new[first] = np.arange(most)

    def of(table: _Table) -> _Table:
        return replace(table, op=new[table.op])

    said = f"{most} of {len(trace.ops)} ops are kept; events of the others name no op"
    return replace(
        trace, ops=tuple(trace.ops[row] for row in first.tolist()), kernels=of(trace.kernels),
        host=of(trace.host), allocations=of(trace.allocations), warnings=(*trace.warnings, said),
    )  # fmt: skip
