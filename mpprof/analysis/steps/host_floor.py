"""What the host needs for a step, also where the device hides it: the floor of every forecast.

A step costs the host the way to its first launch (Python), its launches one after the
other, and the way from the last result to the next step. The device may hide all of it behind longer kernels;
when those become shorter, it comes to light. Launching, tracing and executing are needs; waiting is none,
whether for the device, the next batch, memory of the driver or a call that does not return: it has a cause of
its own. Nor is what takes longer than launching does, where nothing shows what the host did.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.intervals import Intervals, gaps, union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.calls import calls, threads_of
from mpprof.analysis.steps.idle import CALL_NS, LAUNCH_NS, held_up
from mpprof.model.account import Account
from mpprof.model.grouping import distinct
from mpprof.model.trace import HostKind, HostTable, Trace

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

_NEVER = np.iinfo(np.int64).min
_EXECUTING = (HostKind.OP, HostKind.COMPILE, HostKind.CODE)
_FEWEST = 3  # launches in a step from which their usual distance is taken


def need_ns(trace: Trace, account: Account) -> float | None:
    """Return the nanoseconds per step that the host needs for itself, at most the step; None where no calls
    or launches tell.

    Per call: call to first launch and launches times their median distance, both without what the launching
    thread waits, and the end of the last work or wait to the next call (of the last call in the window, to
    its own end). Of a way to the first launch of more than CALL_NS, or back of more than LAUNCH_NS, that
    counts which ops, tracing or named functions explain.
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


def _when(host: HostTable, chosen: NDArray[np.bool_]) -> Intervals:
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
