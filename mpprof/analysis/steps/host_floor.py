"""What the host needs for a step, also where the device hides it: the floor of every forecast.

A step costs the host the way to its first launch (Python), its launches one after the
other, and the way from the last result to the next step. The device may hide all of it behind longer kernels;
when those become shorter, it comes to light. Launching, tracing and executing are needs; waiting is not,
whether for the device, the next batch, memory of the driver or a call that does not return: it has a cause of
its own. Calls that take longer than launching are left out too, if nothing shows what the host did.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.intervals import EMPTY, Intervals, gaps, union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.calls import Calls, calls, threads_of
from mpprof.analysis.steps.host_waits import between_waits, steps_in
from mpprof.analysis.steps.idle import CALL_NS, LAUNCH_NS, held_up
from mpprof.model.account import Account, HostPath
from mpprof.model.arrays import Bool, Int32, Int64, distinct
from mpprof.model.trace import HostKind, HostTable, Trace, WorkKind

_NEVER = np.iinfo(np.int64).min
_EXECUTING = (HostKind.OP, HostKind.COMPILE, HostKind.CODE)
_FEWEST = 3  # launches in a step from which their usual distance is taken


def need_ns(trace: Trace, account: Account) -> float | None:
    """Return the nanoseconds per step that the host needs for itself, at most the step; None where no calls
    or launches tell.

    Per call: call to first launch and launches times their median distance, both without what the launching
    thread waits, and the end of the last work or wait to the next call (of the last call in the window, to
    its own end). Where the way to the first launch takes more than CALL_NS, or the way back more than
    LAUNCH_NS, only the part counts that ops, tracing or named functions explain.
    """
    row = trace.device_row(account.main.device)
    found = calls(trace, row)
    if found is None or account.trace_basis == "host":
        return None
    host = trace.host
    kernels = trace.kernels
    rows = np.flatnonzero((kernels.device == row) & (kernels.launch >= 0))
    if not len(rows):
        return None
    launch = pick(kernels.launch, rows)
    start = host.start_ns.take(launch)
    ran_until = pick(kernels.start_ns, rows) + pick(kernels.duration_ns, rows)
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        launch, start, ran_until = launch[order], start[order], ran_until[order]
    returned = start + host.duration_ns.take(launch)
    end = np.maximum(returned, ran_until)
    own = threads_of(trace, row)
    ours = np.ones(len(host), np.bool_) if own is None else own[host.thread]
    syncs = np.flatnonzero((host.kind == HostKind.SYNC) & ours)
    waited = np.sort(host.start_ns[syncs] + host.duration_ns[syncs])
    begin, finish = found.start_ns, np.append(found.start_ns[1:], found.end_ns[-1:])
    first, last = np.searchsorted(start, begin), np.searchsorted(start, finish)
    until = np.concatenate([[_NEVER], waited])[np.searchsorted(waited, finish, side="right")]
    after = np.append(start[:1], start[:-1])  # what each launch follows: another one, or the call's beginning
    after[first[first < last]] = begin[first < last]
    copies = (host.kind.take(launch) != HostKind.LAUNCH) & (ran_until <= returned)
    others = np.flatnonzero(((host.kind == HostKind.ALLOCATE) | held_up(trace)) & ours)
    waits = np.concatenate([syncs, others])
    held = _held_ns(host, waits, launch[copies], ran_until[copies], host.thread.take(launch), after, start)
    fetches = _when(host, (host.kind == HostKind.INPUT) & ours)
    shown = gaps(fetches, _when(host, np.isin(host.kind, _EXECUTING) & ours))
    held = np.maximum(held, fetches.overlap(after, start))
    way = start - after - held
    full = last - first >= _FEWEST
    if not full.any():
        return None
    first, last = first[full], last[full]
    distances = [
        (b - a - 1) * median(way[a + 1 : b]) for a, b in zip(first.tolist(), last.tolist(), strict=True)
    ]
    # Waiting for the device shows as no event on some backends.
    done = np.maximum([end[a:b].max() for a, b in zip(first, last, strict=True)], until[full])
    left = np.maximum(done, finish[full])
    needed = (
        _counted(way[first], shown.overlap(after[first], start[first]) - held[first], CALL_NS)
        + distances
        + _counted(left - done - fetches.overlap(done, left), shown.overlap(done, left), LAUNCH_NS)
    )
    steps_per_call = account.main.steps / max(1, len(account.steps))
    return min(median(needed) / steps_per_call, account.step_ns)


def _counted(way: Int64, shown: Int64, most_ns: int) -> Int64:
    """Return the ways that are as short as launching is, and of others what events show of them."""
    return np.where(way - shown <= most_ns, way, np.clip(shown, 0, way))


def _when(host: HostTable, chosen: Bool) -> Intervals:
    return union(host.start_ns[chosen], host.start_ns[chosen] + host.duration_ns[chosen])


def _held_ns(
    host: HostTable, waits: Int64, copies: Int64, copied: Int64, thread: Int32, begin: Int64, end: Int64
) -> Int64:
    """Return how long each launch's thread waited in `[begin, end)`: in `waits`, and in `copies`, which
    return when they are done, until they were `copied`."""
    copying = np.zeros(len(host), np.bool_)
    copying[copies] = True
    waits = waits[~copying[waits]]
    rows = np.concatenate([waits, copies])
    until = np.concatenate([host.start_ns[waits] + host.duration_ns[waits], copied])
    held = np.zeros(len(thread), np.int64)
    for one in distinct(host.thread[rows]).tolist():
        mine, own = thread == one, host.thread[rows] == one
        held[mine] = union(host.start_ns[rows[own]], until[own]).overlap(begin[mine], end[mine])
    return held


# --- which of host and device the step waits for -----------------------------------------------------------

# Where the device has work queued, shorter kernels make the step shorter. Where it starts each kernel as soon
# as that is launched, the host is the critical path, and shorter kernels make longer gaps.

QUEUED_NS = 20_000
"""A kernel that starts later after its launch waited for other kernels: the upper end of launch latencies
(TensorFlow's guide names 20 to 40 µs with the profiler, an idle device takes 5 to 10)."""


def host_path(trace: Trace, account: Account) -> HostPath | None:
    """Return the median call's path, per step; None where no calls or no launches tell."""
    row = trace.device_row(account.main.device)
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
    until, last = _until(found, call, returned, ended)
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


def ahead_ns(trace: Trace, account: Account) -> float | None:
    """Return `HostPath.ahead_ns` where no calls tell, from one wait for the device to the next: how much work
    the device has left when the host begins to wait, per step; 0 where it had some after the wait before.
    None without waits between the kernels of the launching thread, and where calls tell."""
    row = trace.device_row(account.main.device)
    if account.trace_basis == "host" or calls(trace, row) is not None:
        return None
    found = between_waits(trace, row)
    if found is None:
        return None
    kernels, host = trace.kernels, trace.host
    rows = np.flatnonzero((kernels.device == row) & (kernels.launch >= 0) & (kernels.kind == WorkKind.KERNEL))
    launch, ended = kernels.launch[rows], kernels.start_ns[rows] + kernels.duration_ns[rows]
    launched = host.start_ns[launch]
    busy = _ended(launched, ended, found.start_ns) > found.start_ns + QUEUED_NS
    call = found.at(launched)
    own = call >= 0
    until, last = _until(found, call[own], (launched + host.duration_ns[launch])[own], ended[own])
    return float(np.where(busy, 0, last - until).sum()) / steps_in(found, account)


def _until(found: Calls, call: Int64, returned: Int64, ended: Int64) -> tuple[Int64, Int64]:
    """Return per call when the last of these launches returned, and when the last of their kernels ended."""
    until = found.start_ns.copy()
    np.maximum.at(until, call, returned)
    last = until.copy()
    np.maximum.at(last, call, ended)
    return until, last


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
