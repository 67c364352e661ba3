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
MOST_IN_FLIGHT = 1024
"""So many launches a CUDA stream takes before a further one blocks: earlier work is done by then."""


def host_path(trace: Trace, account: Account) -> HostPath | None:
    """Return the median call's path, per step; None where no calls or no launches tell."""
    row = next((at for at, device in enumerate(trace.devices) if device.plane == account.main.device), 0)
    found = calls(trace, row)
    if found is None or account.trace_basis == "host":
        return None
    kernels, host = trace.kernels, trace.host
    rows = np.flatnonzero((kernels.device == row) & (kernels.launch >= 0))
    launch = host.start_ns[kernels.launch[rows]]
    order = np.argsort(launch, kind="stable")
    first, last = (np.searchsorted(launch[order], edge) for edge in (found.start_ns, found.end_ns))
    waits = _waits(trace, row)
    paths = []
    for at, (begin, end) in enumerate(zip(found.start_ns.tolist(), found.end_ns.tolist(), strict=True)):
        own = np.sort(rows[order[first[at] : last[at]]])
        if len(own):
            before = np.sort(rows[order[: first[at]]])[-MOST_IN_FLIGHT:]
            paths.append(_path(trace, own, before, begin, end, waits))
    if not paths:
        return None
    per_call = account.main.steps / max(1, len(account.steps))
    return HostPath(*(median(np.array(each)) / per_call for each in zip(*paths, strict=True)))


def _waits(trace: Trace, row: int) -> Intervals:
    """When the launching threads waited for the device."""
    host, own = trace.host, threads_of(trace, row)
    waits = np.flatnonzero(host.kind == HostKind.SYNC)
    if own is not None:
        waits = waits[own[host.thread[waits]]]
    return (
        union(host.start_ns[waits], host.start_ns[waits] + host.duration_ns[waits]) if len(waits) else EMPTY
    )


def _path(
    trace: Trace, rows: Int64, before: Int64, begin: int, end: int, waits: Intervals
) -> tuple[float, ...]:
    """(the call, until its last launch returned but for waits, the work that no launch held up, how far the
    host gets ahead of a device that had nothing left of `before`, the wait after the call), in ns."""
    kernels, host = trace.kernels, trace.host
    rows = rows[kernels.kind[rows] == WorkKind.KERNEL]  # a copy of the results comes after the wait for them
    returned = host.start_ns[kernels.launch[rows]] + host.duration_ns[kernels.launch[rows]]
    until = int(returned.max(initial=begin))
    last_ns = int((kernels.start_ns[rows] + kernels.duration_ns[rows]).max(initial=until))
    waited, after = (
        int(waits.overlap(np.array([first]), np.array([last])).sum()) if len(waits) else 0
        for first, last in ((begin, until), (end, max(end, last_ns)))
    )
    hungry = np.flatnonzero(kernels.start_ns[rows] - returned < QUEUED_NS)
    queued = rows[int(hungry[-1]) :] if len(hungry) else rows
    busy = int((kernels.start_ns[before] + kernels.duration_ns[before]).max(initial=begin)) > begin
    ahead = 0.0 if busy else float(last_ns - until)
    work_ns = float(kernels.duration_ns[queued].sum())
    return float(end - begin), float(until - begin - waited), work_ns, ahead, float(after)
