"""Which line of the step log each whole step of a trace is: by our markers' numbers, and by the clock.

A trace counts from a Unix time, and so do the records: `run.json` states the monotonic clock of the log and
Unix time together. Our own markers carry the log's step numbers; there the clock is a check; if it disagrees,
the markers count and a note reports it. Other markers (Keras', JAX', torch's) count as they like: there the
clock joins, if every marker lies nearer to the beginning of its line than half a step.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.boundaries import Periods
from mpprof.model.arrays import Int64
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns
from mpprof.model.run import Run
from mpprof.model.steps import StepTable
from mpprof.model.trace import Trace

_LEAST_NOTED_NS = 2_000_000
"""Clocks of one machine are read one after the other: an offset below it means nothing."""
_ANOTHER_RUN_NS = 60_000_000_000
"""No adjustment of a clock within a training is as large as a minute."""


@frozen
class StepLines:
    """`row` of the step log per period; None where they were not joined, with the reason in `notes`.

    `offset_ns`: how far the trace's clock is ahead of the records', the median over the steps; None where one
    of the two clocks or the markers are not known."""

    row: Int64 | None
    offset_ns: float | None = None
    notes: tuple[str, ...] = ()


def step_lines(trace: Trace, periods: Periods, run: Run | None) -> StepLines:
    """Join the periods with the rows of the run's step log; nothing to say where there is no log."""
    if run is None or run.steps is None or not len(run.steps) or not len(periods):
        return StepLines(None)
    steps, row = run.steps, _by_number(periods, run.steps)
    entered = _entered(trace, periods, run)
    if entered is None:
        return StepLines(row)
    begin, usual = steps.t_ns - steps.duration_ns, _usual_ns(steps)
    if row is not None:
        offset = median(entered - begin[row])
        return StepLines(row, offset, _disagreement(offset, usual))
    row = _nearest(begin, entered)
    ahead = entered - begin[row]
    if (np.diff(row) <= 0).any() or (np.abs(ahead) >= usual / 2).any():
        return StepLines(None, None, ("the trace's steps were not found in the step log by the clock",))
    alike = not periods.numbered or (steps.step[row] == periods.number).all()
    said = (
        f"steps were found in the step log by the clock; the markers ({periods.numbered}) have other numbers"
    )
    return StepLines(row, median(ahead), () if alike else (said,))


def _by_number(periods: Periods, steps: StepTable) -> Int64 | None:
    if periods.numbered != "mpprof" or not (np.diff(steps.step) > 0).all():
        return None
    row = np.minimum(np.searchsorted(steps.step, periods.number), len(steps) - 1)
    return row if (steps.step[row] == periods.number).all() else None


def _entered(trace: Trace, periods: Periods, run: Run) -> Int64 | None:
    """Return when each period's marker was entered, on the clock of the records: counted from their `clock`,
    by Unix time."""
    assert run.steps is not None
    if run.facts is None or not run.facts.clock_unix_ns or trace.origin_unix_ns is None:
        return None
    if periods.marker_ns is None or (run.steps.duration_ns < 0).any():
        return None
    return periods.marker_ns + (trace.origin_unix_ns - run.facts.clock_unix_ns)


def _nearest(sorted_ns: Int64, time_ns: Int64) -> Int64:
    """Return the row of the time nearest to each of `time_ns`."""
    after = np.clip(np.searchsorted(sorted_ns, time_ns), 1, max(1, len(sorted_ns) - 1))
    if len(sorted_ns) == 1:
        return np.zeros(len(time_ns), np.int64)
    nearer = time_ns - sorted_ns[after - 1] < sorted_ns[after] - time_ns
    return np.asarray(np.where(nearer, after - 1, after))


def _usual_ns(steps: StepTable) -> float:
    known = steps.interval_ns[steps.interval_ns > 0]
    return median(known if len(known) else steps.duration_ns)


def _disagreement(offset_ns: float, usual_ns: float) -> tuple[str, ...]:
    if abs(offset_ns) <= max(usual_ns / 2, _LEAST_NOTED_NS):
        return ()
    which = "ahead of" if offset_ns > 0 else "behind"
    text = f"the trace's clock is {format_ns(abs(offset_ns))} {which} the records'"
    if abs(offset_ns) > _ANOTHER_RUN_NS:
        return (f"{text}: the clock was set in between, or the trace is of another run",)
    return (f"{text}; steps were joined by their markers",)
