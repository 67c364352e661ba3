"""How the host and the device run beside each other in a step: which of them the step waits for.

Where the device has work queued, shorter kernels make the step shorter. Where it starts each kernel as soon
as that is launched, the host is the critical path, and shorter kernels make longer gaps.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.intervals import EMPTY, Intervals, union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.calls import calls
from mpprof.model.account import Account, HostPath
from mpprof.model.trace import HostKind, Trace, WorkKind

Int64 = NDArray[np.int64]

QUEUED_NS = 20_000
"""A kernel that starts later after its launch waited for other kernels: the upper end of launch latencies
(TensorFlow's guide names 20 to 40 µs with the profiler, an idle device takes 5 to 10)."""
_NEVER = np.iinfo(np.int64).min


def host_path(trace: Trace, account: Account) -> HostPath | None:
    """Return the median call's path, per step; None where no calls or no launches tell."""
    row = next((at for at, device in enumerate(trace.devices) if device.plane == account.main.device), 0)
    found = calls(trace, row)
    if found is None or account.trace_basis == "host":
        return None
    kernels, host = trace.kernels, trace.host
    rows = np.flatnonzero((kernels.device == row) & (kernels.launch >= 0))
    launch, start = pick(kernels.launch, rows), pick(kernels.start_ns, rows)
    launched, ended = host.start_ns.take(launch), start + pick(kernels.duration_ns, rows)
    call = found.at(launched)
    launching = np.flatnonzero(np.bincount(call + 1, minlength=len(found) + 1)[1:])
    if not len(launching):
        return None
    busy = _ended(launched, ended, found.start_ns) > found.start_ns
    # A copy of the results comes after the wait for them.
    work = np.flatnonzero((call >= 0) & (pick(kernels.kind, rows) == WorkKind.KERNEL))
    call, start, ended = pick(call, work), pick(start, work), pick(ended, work)
    returned = pick(launched, work) + host.duration_ns.take(pick(launch, work))
    until = found.start_ns.copy()  # the last launch returned
    np.maximum.at(until, call, returned)
    last = until.copy()  # the last kernel ended
    np.maximum.at(last, call, ended)
    hungry = np.flatnonzero(start - returned < QUEUED_NS)
    last_hungry = np.zeros(len(found), np.int64)
    last_hungry[call[hungry]] = hungry  # of several the last one stays
    queued = np.arange(len(work)) >= last_hungry[call]
    waits = _waits(trace, launch, found.thread)
    path = (
        found.end_ns - found.start_ns,
        until - found.start_ns - waits.overlap(found.start_ns, until),
        np.bincount(call[queued], (ended - start)[queued], len(found)),
        np.where(busy, 0, last - until),
        waits.overlap(found.end_ns, np.maximum(found.end_ns, last)),
    )
    per_call = account.main.steps / max(1, len(account.steps))
    return HostPath(*(median(each[launching]) / per_call for each in path))


def _ended(launched: Int64, ended: Int64, time: Int64) -> Int64:
    """Return when the last of the work ended that was launched before each of these times."""
    if (launched[1:] < launched[:-1]).any():
        order = np.argsort(launched, kind="stable")
        launched, ended = launched[order], ended[order]
    reach = np.concatenate([[_NEVER], np.maximum.accumulate(ended)])
    return reach[np.searchsorted(launched, time)]


def _waits(trace: Trace, launch: NDArray[np.signedinteger], caller: int) -> Intervals:
    """Return when the host's path waited for the device: the calling thread, or one that launches, from where
    no other thread launches any more. Other waits are beside the path."""
    host = trace.host
    rows = np.flatnonzero(host.kind == HostKind.SYNC)
    if not len(rows):
        return EMPTY
    launching = host.thread.take(launch)
    of_path = np.zeros(len(trace.threads), np.bool_)
    of_path[launching] = True
    of_path[caller] |= caller >= 0
    rows = rows[of_path[host.thread[rows]]]
    start, end = host.start_ns[rows].copy(), host.start_ns[rows] + host.duration_ns[rows]
    for thread in set(host.thread[rows].tolist()):
        others, mine = launch[launching != thread], host.thread[rows] == thread
        returned = host.start_ns[others] + host.duration_ns[others]
        start[mine] = np.maximum(start[mine], _ended(host.start_ns[others], returned, end[mine]))
    waited = start < end
    return union(start[waited], end[waited]) if waited.any() else EMPTY
