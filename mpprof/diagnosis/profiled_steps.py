"""Why profiled steps take longer than the others, judged by the unprofiled steps around them."""

from __future__ import annotations

from typing import Literal

from mpprof.analysis.arrays.quantiles import median
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import Signals
from mpprof.model.account import IDLE_CLASSES
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns

NEAR_STEPS = 5
"""So many steps before the window, and after it, tell how long steps took at that time."""
STILL_LONGER = 1.25
"""Steps that take a quarter more than a steady one are not steady."""

MOSTLY = 0.5

Reason = Literal["profiler", "warm-up", "load", "unknown"]


@frozen
class Around:
    """How long the steps beside the window took, in the median; None where none of them has a time. The one
    next to it on either side is left out: the profiler starts and stops in it."""

    before_ns: float | None
    after_ns: float | None


def profiled_ns(signals: Signals) -> float | None:
    """Return the time of a profiled step without the time in which it was compiled anew (MP902), which no
    profiler adds; where the function of an unprofiled one is known, of its function."""
    account = known(signals.account)
    if account is None:
        return None
    parts = account.profiled.slices if account.profiled and account.function_ns is not None else ()
    between_ns = sum(part.ns_per_step for part in parts if part.category == "idle_between_steps")
    return account.window_ns - between_ns - signals.time(signals.of("idle_compile"))


def added_ns(signals: Signals) -> float:
    """Return by how many ns a profiled step is longer than an unprofiled one; 0 where that is not known."""
    account = known(signals.account)
    usual_ns = account.unprofiled_ns if account else None
    return max(0.0, account.window_ns - usual_ns) if account and usual_ns else 0.0


def works_longer(signals: Signals) -> bool:
    """Return whether a profiled step's idle time is too short for what the step is longer by: on a CPU, where
    the profiler records each op as it runs, the ops take longer, too."""
    account = known(signals.account)
    idle_ns = sum(signals.time(signals.of(category)) for category in IDLE_CLASSES)
    return account is not None and account.trace_basis == "host" and idle_ns < added_ns(signals)


def reason(signals: Signals) -> Reason:
    """Return what makes profiled steps longer than steady ones. It is the profiler where steps beside them
    are like steady ones; else it is warm-up where steady steps come later, and the load of the machine where
    not."""
    account, summary, beside = known(signals.account), known(signals.summary), around(signals)
    if account is None or summary is None or not summary.median_ns or beside is None:
        return "unknown"
    limit_ns = STILL_LONGER * summary.median_ns
    known_ns = [ns for ns in (beside.before_ns, beside.after_ns) if ns is not None]
    if not known_ns:
        return "unknown"
    if min(known_ns) <= limit_ns:
        return "profiler"
    first = summary.first_steady
    return "warm-up" if first is None or max(account.steps) < first else "load"


_WHY: dict[Reason, str] = {
    "profiler": "the profiler makes them longer",
    "load": "the steps around them took as long, so the machine was busy",
    "warm-up": "they lie in warm-up",
    "unknown": "what made them longer is not known",
}


def unlike(signals: Signals) -> str | None:
    """Say that the profiled steps do not stand for the others, and why; None where they do, or none tells."""
    account = known(signals.account)
    if account is None or not (usual_ns := account.unprofiled_ns):
        return None
    lengths = f"take {format_ns(account.window_ns)}, unprofiled ones {format_ns(usual_ns)}"
    if signals.distorted:
        why = reason(signals)
        launching = signals.time(signals.of("idle_launch")) >= MOSTLY * added_ns(signals)
        where = ", most of all between launches" if why == "profiler" and launching else ""
        return f"the window is not representative: profiled steps {lengths}; {_WHY[why]}{where}"
    if signals.untraced_ns:
        longer = "it does not show what makes the others longer"
        return f"the window is not representative: profiled steps {lengths}; {longer}"
    return None


def difference(signals: Signals) -> str:
    """Say in a clause how profiled steps that do not stand for the others differ from them."""
    if not signals.distorted:
        return "the profiled steps are shorter than the others"
    if reason(signals) == "profiler":
        return "profiling made the profiled steps longer"
    return "the profiled steps are longer than the others"


def around(signals: Signals) -> Around | None:
    """Return the times of the steps beside the window; None where the log or the steps' numbers do not tell
    them."""
    account, table = known(signals.account), known(signals.table)
    if account is None or table is None or not account.steps or min(account.steps) < 0:
        return None
    timed = (table.interval_ns > 0) & ~table.profiled
    first, last = min(account.steps), max(account.steps)
    if table.profiled.any():
        first, last = int(table.step[table.profiled].min()), int(table.step[table.profiled].max())
    per_step = table.interval_ns / table.covers

    def middle(low: int, high: int) -> float | None:
        rows = timed & (table.step >= low) & (table.step <= high)
        return median(per_step[rows]) if rows.any() else None

    return Around(middle(first - 1 - NEAR_STEPS, first - 2), middle(last + 2, last + 1 + NEAR_STEPS))


# --- whether recorded step times can be what the device took -----------------------------------------------

TOO_SHORT_RATIO = 0.5
"""Clocks and windows differ by some percent; half cannot be the same step."""


def timed_launches(signals: Signals) -> bool:
    """Return whether the recorded step is too short to hold the device's work: the profiled steps themselves,
    where their times are on record."""
    account, summary = known(signals.gpu_account), known(signals.summary)
    recorded = recorded_ns(signals) or (summary.mean_ns if summary else None)
    return account is not None and bool(recorded) and (recorded or 0.0) < account.device_ns * TOO_SHORT_RATIO


def recorded_ns(signals: Signals) -> float | None:
    """Return the median recorded time of the profiled steps; None where none was recorded."""
    table = known(signals.table)
    if table is None:
        return None
    rows = table.profiled & (table.interval_ns > 0)
    return median(table.interval_ns[rows] / table.covers[rows]) if rows.any() else None
