"""What the host needs for a step, also where the device hides it: the floor of every forecast.

A step costs the host the way to its first launch (Python, the wait for input), its launches one after the
other, and the way from the last result to the next step. The device may hide all of it behind longer kernels;
when those become shorter, it comes to light. What the host waits for the device is no part of it: that
becomes shorter with the device's work.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.intervals import union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.calls import calls, threads_of
from mpprof.model.account import Account
from mpprof.model.grouping import distinct
from mpprof.model.trace import HostKind, HostTable, Trace

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min
_FEWEST = 3  # launches in a step from which their usual distance is taken


def need_ns(trace: Trace, account: Account) -> float | None:
    """Return the nanoseconds per step that the host needs for itself, at most the step; None where no calls
    or launches tell.

    Per call: call to first launch and launches times their median distance, both without what the launching
    thread waits for the device, and the end of the last work or wait to the next call (of the last call in
    the window, to its own end).
    """
    row = next((at for at, device in enumerate(trace.devices) if device.plane == account.main.device), 0)
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
    ran_from = pick(kernels.start_ns, rows)
    ran_until = ran_from + pick(kernels.duration_ns, rows)
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        launch, start, ran_from, ran_until = launch[order], start[order], ran_from[order], ran_until[order]
    returned = start + host.duration_ns.take(launch)
    end = np.maximum(returned, ran_until)
    waits = np.flatnonzero(host.kind == HostKind.SYNC)
    own = threads_of(trace, row)
    if own is not None:
        waits = waits[own[host.thread[waits]]]
    waited = np.sort(host.start_ns[waits] + host.duration_ns[waits])
    begin, finish = found.start_ns, np.append(found.start_ns[1:], found.end_ns[-1:])
    first, last = np.searchsorted(start, begin), np.searchsorted(start, finish)
    until = np.concatenate([[_NEVER], waited])[np.searchsorted(waited, finish, side="right")]
    after = np.append(start[:1], start[:-1])  # what each launch follows: another one, or the call's beginning
    after[first[first < last]] = begin[first < last]
    copies = (host.kind.take(launch) != HostKind.LAUNCH) & (ran_until <= returned)
    held = _held_ns(host, waits, launch[copies], ran_from[copies], host.thread.take(launch), after, start)
    way = start - after - held
    needed = [
        float(way[a])
        + (b - a - 1) * median(way[a + 1 : b])
        # Waiting for the device shows as no event on some backends.
        + float(max(0, finish[call] - max(end[a:b].max(), until[call])))
        for call, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True))
        if b - a >= _FEWEST
    ]
    steps_per_call = account.main.steps / max(1, len(account.steps))
    return min(median(np.array(needed)) / steps_per_call, account.step_ns) if needed else None


def _held_ns(
    host: HostTable, waits: Int64, copies: Int64, copied_from: Int64, thread: Int32, begin: Int64, end: Int64
) -> Int64:
    """Return how long each launch's thread waited for the device in `[begin, end)`: in `waits`, and, until
    the device began with them, in `copies`, which return when they are done."""
    copying = np.zeros(len(host), np.bool_)
    copying[copies] = True
    waits = waits[~copying[waits]]
    rows = np.concatenate([waits, copies])
    until = np.concatenate([host.start_ns[waits] + host.duration_ns[waits], copied_from])
    held = np.zeros(len(thread), np.int64)
    for one in distinct(host.thread[rows]).tolist():
        mine, own = thread == one, host.thread[rows] == one
        held[mine] = union(host.start_ns[rows[own]], until[own]).overlap(begin[mine], end[mine])
    return held
