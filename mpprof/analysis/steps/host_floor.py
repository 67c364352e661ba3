"""What the host needs for a step, also where the device hides it: the floor of every forecast.

A step costs the host the way to its first launch (Python, the wait for input), its launches one after the
other, and the way from the last result to the next step. The device may hide all of it behind longer kernels;
when those become shorter, it comes to light.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.calls import calls, threads_of
from mpprof.model.account import Account
from mpprof.model.trace import HostKind, Trace

_NEVER = np.iinfo(np.int64).min
_FEWEST = 3  # launches in a step from which their usual distance is taken


def need_ns(trace: Trace, account: Account) -> float | None:
    """Nanoseconds per step that the host needs for itself, at most the step; None where no calls or launches
    tell.

    Per call: call to first launch, launches times their median distance (the host runs ahead where it can,
    so that most follow each other without waiting), and the end of the last work or wait to the next call
    (of the last call in the window, to its own end).
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
    start = host.start_ns[launch]
    if (start[1:] < start[:-1]).any():
        order = np.argsort(start, kind="stable")
        rows, launch, start = rows[order], launch[order], start[order]
        ran_until = (kernels.start_ns + kernels.duration_ns)[rows]
    else:
        ran_until = pick(kernels.start_ns, rows) + pick(kernels.duration_ns, rows)
    end = np.maximum(start + host.duration_ns[launch], ran_until)
    waits = np.flatnonzero(host.kind == HostKind.SYNC)
    own = threads_of(trace, row)
    if own is not None:
        waits = waits[own[host.thread[waits]]]
    waited = np.sort(host.start_ns[waits] + host.duration_ns[waits])
    begin, finish = found.start_ns, np.append(found.start_ns[1:], found.end_ns[-1:])
    first, last = np.searchsorted(start, begin), np.searchsorted(start, finish)
    until = np.concatenate([[_NEVER], waited])[np.searchsorted(waited, finish, side="right")]
    pause = np.diff(start)
    needed = [
        float(start[a] - begin[call])
        + (b - a - 1) * median(pause[a : b - 1])
        # Waiting for the device shows as no event on some backends.
        + float(max(0, finish[call] - max(end[a:b].max(), until[call])))
        for call, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True))
        if b - a >= _FEWEST
    ]
    steps_per_call = account.main.steps / max(1, len(account.steps))
    return min(median(np.array(needed)) / steps_per_call, account.step_ns) if needed else None
