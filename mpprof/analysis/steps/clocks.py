"""How far a device's clock is off the host's: a launch must precede its kernel."""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.group_sums import pick
from mpprof.model.arrays import Int64
from mpprof.model.frozen import frozen
from mpprof.model.trace import Trace

MISJOINED_NS = 1_000_000
"""Clocks of host and device are brought together to microseconds. A few launches that are later than their
kernel by more than this were joined with the wrong kernel; many mean that the clocks are off."""
_MISJOINED_RATIO = 0.001


@frozen
class ClockShift:
    """How far kernels start before their launch at worst: the host's clock is taken to be that much early.

    `misjoined` are rows of the kernel table whose launch is of no use."""

    ns: int
    misjoined: Int64


def clock_shift(trace: Trace, rows: Int64) -> ClockShift:
    """Return the shift that lets every launch precede its kernel, 0 where none is needed."""
    if trace.basis == "host":
        return ClockShift(0, rows[:0])
    launch = pick(trace.kernels.launch, rows)
    linked_rows = np.flatnonzero(launch >= 0)
    linked = pick(rows, linked_rows)
    early = trace.host.start_ns.take(pick(launch, linked_rows)) - pick(trace.kernels.start_ns, linked)
    far = early > MISJOINED_NS
    if 0 < np.count_nonzero(far) <= _MISJOINED_RATIO * len(early):
        return ClockShift(max(0, int(early[~far].max(initial=0))), linked[far])
    return ClockShift(max(0, int(early.max(initial=0))), linked[:0])
