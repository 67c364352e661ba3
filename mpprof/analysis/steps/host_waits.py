"""The calls in which the host waits for the device in mid-step, and the ops that make them.

A wait after a step's last kernel is how a step ends, and a copy of its results may follow. One between
kernels of a step empties the queue: the device idles until the host has launched anew.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.steps.calls import Calls, calls
from mpprof.analysis.steps.idle import copying
from mpprof.model.account import Account
from mpprof.model.arrays import Int64
from mpprof.model.frozen import frozen
from mpprof.model.trace import HostKind, HostTable, Trace, WorkKind

_WAITS = "waits"


@frozen
class HostWait:
    """All waits in one call of the driver's by one op; `op` is the outermost around the call, None where the
    trace shows none."""

    call: str
    op: str | None
    ns_per_step: float

    @property
    def words(self) -> str:
        """The call, and whose it is: "cudaStreamSynchronize of aten::item"."""
        return f"{self.call} of {self.op}" if self.op else self.call


def in_mid_step(trace: Trace, account: Account) -> tuple[HostWait, ...]:
    """Return the waits for the device between kernels of one step that their thread launches, the longest
    first; where no calls tell the steps apart, between any of its kernels. Empty where there are none."""
    row = trace.device_row(account.main.device)
    if account.trace_basis == "host":
        return ()
    found = calls(trace, row) or between_waits(trace, row)
    if found is None:
        return ()
    host = trace.host
    waits = _waits(trace)
    begin, end = host.start_ns[waits], host.start_ns[waits] + host.duration_ns[waits]
    step, launches = found.at(begin), np.flatnonzero(host.kind == HostKind.LAUNCH)
    within = (host.thread[waits] == found.thread) & (found.family == _WAITS)
    for thread in set(host.thread[waits].tolist()) if found.family != _WAITS else ():
        own = host.start_ns[launches[host.thread[launches] == thread]]
        mine = host.thread[waits] == thread
        first, last = (np.searchsorted(own, edge[step[mine]]) for edge in (found.start_ns, found.end_ns))
        within[mine] = (first < np.searchsorted(own, begin[mine])) & (np.searchsorted(own, end[mine]) < last)
    chosen = within & (step >= 0)
    total: dict[tuple[int, int], int] = {}
    of = _outermost(host, waits[chosen])
    for at, op in zip(waits[chosen].tolist(), of.tolist(), strict=True):
        key = int(host.name[at]), int(host.name[op]) if op >= 0 else -1
        total[key] = total.get(key, 0) + int(host.duration_ns[at])
    steps = steps_in(found, account)
    return tuple(
        HostWait(trace.strings[call], trace.strings[op] if op >= 0 else None, ns / steps)
        for (call, op), ns in sorted(total.items(), key=lambda item: -item[1])
    )


def between_waits(trace: Trace, device: int) -> Calls | None:
    """Return what takes the place of calls where nothing marks any: from the end of a wait for the device to
    the end of the next one with kernels launched before it, on the thread that launches most of the device's
    kernels. None for fewer than two waits."""
    host, kernels = trace.host, trace.kernels
    own = (kernels.device == device) & (kernels.launch >= 0) & (kernels.kind == WorkKind.KERNEL)
    launch = kernels.launch[own]
    if not len(launch):
        return None
    thread = int(np.bincount(host.thread[launch]).argmax())
    launched = np.sort(host.start_ns[launch[host.thread[launch] == thread]])
    waits = _waits(trace)
    waits = waits[host.thread[waits] == thread]
    before = np.searchsorted(launched, host.start_ns[waits])
    waits = waits[np.append(before[1:] != before[:-1], True)[: len(waits)]]
    end = np.maximum.accumulate(host.start_ns[waits] + host.duration_ns[waits])
    if len(end) < 2:
        return None
    none = np.full(len(end) - 1, -1, np.int64)
    return Calls(none, end[:-1], end[1:], _WAITS, thread, "", end[:-1])


def steps_in(found: Calls, account: Account) -> float:
    """Return how many of the account's steps these calls hold. What lies between waits is counted by its
    time."""
    if found.family == _WAITS:
        return float(found.end_ns[-1] - found.start_ns[0]) / account.window_ns
    return len(found) * account.main.steps / max(1, len(account.steps))


def _waits(trace: Trace) -> Int64:
    return np.flatnonzero((trace.host.kind == HostKind.SYNC) | copying(trace))


def _outermost(host: HostTable, rows: Int64) -> Int64:
    """Return the row of the outermost op around each of these events, -1 where there is none."""
    around = np.full(len(rows), -1)
    for thread in set(host.thread[rows].tolist()):
        ops = np.flatnonzero((host.thread == thread) & (host.kind == HostKind.OP))
        ends = np.maximum.accumulate(host.start_ns[ops] + host.duration_ns[ops])
        ops = ops[np.append(True, host.start_ns[ops][1:] >= ends[:-1])] if len(ops) else ops
        mine = np.flatnonzero(host.thread[rows] == thread)
        at = np.searchsorted(host.start_ns[ops], host.start_ns[rows[mine]], side="right") - 1
        held = at >= 0
        held[held] = (host.start_ns[ops] + host.duration_ns[ops])[at[held]] > host.start_ns[rows[mine[held]]]
        around[mine[held]] = ops[at[held]]
    return around
