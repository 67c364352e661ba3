"""How the host and the device run beside each other in a step: which of them the step waits for.

Where the device has work queued, shorter kernels make the step shorter. Where it starts each kernel as soon
as that is launched, the host is the critical path, and shorter kernels make longer gaps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.intervals import EMPTY, Intervals, union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.calls import calls, threads_of
from mpprof.model.account import Account, HostPath
from mpprof.model.trace import HostKind, Trace, WorkKind

Int64 = NDArray[np.int64]

QUEUED_NS = 20_000
"""A kernel that starts later after its launch waited for other kernels: the upper end of launch latencies
(TensorFlow's guide names 20 to 40 µs with the profiler, an idle device takes 5 to 10)."""


def host_path(trace: Trace, account: Account) -> HostPath | None:
    """Return the median call's path, per step; None where no calls or no launches tell."""
    row = next((at for at, device in enumerate(trace.devices) if device.plane == account.main.device), 0)
    found = calls(trace, row)
    if found is None or account.trace_basis == "host":
        return None
    kernels, host = trace.kernels, trace.host
    rows = np.flatnonzero((kernels.device == row) & (kernels.launch >= 0))
    call = found.at(host.start_ns[kernels.launch[rows]])
    rows, call = rows[call >= 0], call[call >= 0]
    launching = np.flatnonzero(np.bincount(call, minlength=len(found)))
    if not len(launching):
        return None
    work = kernels.kind[rows] == WorkKind.KERNEL  # a copy of the results comes after the wait for them
    rows, call = rows[work], call[work]
    launch, duration = kernels.launch[rows], kernels.duration_ns[rows]
    returned = host.start_ns[launch] + host.duration_ns[launch]
    until = found.start_ns.copy()
    np.maximum.at(until, call, returned)
    launched_ns = until - found.start_ns - _waits(trace, row).overlap(found.start_ns, until)
    hungry = np.flatnonzero(kernels.start_ns[rows] - returned < QUEUED_NS)
    last_hungry = np.zeros(len(found), np.int64)
    last_hungry[call[hungry]] = hungry  # of several the last one stays
    queued = np.arange(len(rows)) >= last_hungry[call]
    queued_ns = np.bincount(call[queued], duration[queued], len(found))
    per_call = account.main.steps / max(1, len(account.steps))
    call_ns = found.end_ns - found.start_ns
    return HostPath(*(median(each[launching]) / per_call for each in (call_ns, launched_ns, queued_ns)))


def _waits(trace: Trace, row: int) -> Intervals:
    """When the launching threads waited for the device."""
    host, own = trace.host, threads_of(trace, row)
    waits = np.flatnonzero(host.kind == HostKind.SYNC)
    if own is not None:
        waits = waits[own[host.thread[waits]]]
    return (
        union(host.start_ns[waits], host.start_ns[waits] + host.duration_ns[waits]) if len(waits) else EMPTY
    )
