"""Whether the recorded step times can be what the device took."""

from __future__ import annotations

from mpprof.analysis.arrays.quantiles import median
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import Signals

TOO_SHORT_RATIO = 0.5
"""Clocks and windows differ by some percent; half cannot be the same step."""


def timed_launches(signals: Signals) -> bool:
    """Return whether the recorded step is too short to hold the device's work: the profiled steps themselves,
    where their times are on record."""
    account, summary = known(signals.gpu_account), known(signals.summary)
    recorded = profiled_ns(signals) or (summary.mean_ns if summary else None)
    return account is not None and bool(recorded) and (recorded or 0.0) < account.device_ns * TOO_SHORT_RATIO


def profiled_ns(signals: Signals) -> float | None:
    """Return the median recorded time of the profiled steps; None where none was recorded."""
    table = known(signals.table)
    if table is None:
        return None
    rows = table.profiled & (table.interval_ns > 0)
    return median(table.interval_ns[rows] / table.covers[rows]) if rows.any() else None
