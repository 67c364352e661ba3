"""How often the driver is asked for memory in a step."""

from __future__ import annotations

import numpy as np

from mpprof.diagnosis.signals import Signals
from mpprof.model.trace import HostKind

_FEWEST_STEPS = 3
_STILL = 0.25
"""Of the window's calls in its second half: fewer are what the first steps left over."""


def calls_per_step(signals: Signals) -> float | None:
    """Return how often the driver is asked for memory in a step; None where that ends with the window's first
    half, or where there are too few steps to tell."""
    account, trace = signals.case.account, signals.case.trace
    if account is None or trace is None or len(account.steps) < _FEWEST_STEPS or not len(trace.kernels):
        return None
    start = trace.host.start_ns[trace.host.kind == HostKind.ALLOCATE]
    first = int(trace.kernels.start_ns.min())
    middle = (first + int((trace.kernels.start_ns + trace.kernels.duration_ns).max())) / 2
    within = start[start >= first]
    late = np.count_nonzero(within > middle)
    return len(within) / len(account.steps) if late and late >= _STILL * len(within) else None
