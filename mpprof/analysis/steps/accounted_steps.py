"""Which instants the account is of: the whole, steady steps of one device in the profiler window."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpprof.analysis.arrays.mean_interval import STALL
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps import boundaries
from mpprof.analysis.steps import statistics as stepping
from mpprof.analysis.steps.boundaries import Periods
from mpprof.analysis.steps.calls import FUNCTIONS, RANGE, calls, steps_per_call
from mpprof.analysis.steps.clocks import ClockShift, clock_shift
from mpprof.model.account import Spread
from mpprof.model.arrays import Bool, Int64, distinct
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary, StepTable
from mpprof.model.trace import Trace

# Which line of the step log each whole step of a trace is: by our markers' numbers, and by the clock.
#
# A trace counts from a Unix time, and so do the records: `run.json` states the monotonic clock of the log and
# Unix time together. Our own markers carry the log's step numbers; there the clock is a check; if it
# disagrees, the markers count and a note reports it. Other markers (Keras', JAX', torch's) count as they
# like: there the clock joins, if every marker lies nearer to the beginning of its line than half a step.

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


UNLIKE_RATIO = 0.2
"""Standard deviation of the profiled steps, over their mean, from which on the mean stands for none of them.
As of recorded steps: a mean a fifth above their median is said to hold stalls."""
MOST_MISSING_RATIO = 0.01
"""With more of a step's launches without a kernel than this, an account would be of another step."""

OFTEN_RATIO = 0.1
FEWEST_OFTEN = 3
"""A tenth of the steps, and at least three, stall as a rule and not by chance."""


@frozen
class Window:
    """The whole, steady steps of one device; they hold `steps` optimizer steps. `rows` are the rows of the
    kernel table that belong to them, `shift` the error of the device's clock against the host's.
    `between_ns` is the time between two steps, per step; None where the window does not show it. `stalled`:
    the steps left out as stalls."""

    device: int
    periods: Periods
    steps: int
    rows: Int64
    shift: ClockShift
    between_ns: float | None = None
    stalled: Periods | None = None

    @property
    def lengths_ns(self) -> tuple[float, ...]:
        """The length of each period, per optimizer step."""
        length = (self.periods.end_ns - self.periods.start_ns) * (len(self.periods) / self.steps)
        return tuple(length.tolist())

    def notes(self, trace: Trace) -> tuple[str, ...]:
        if not self.shift.ns:
            return ()
        return (
            f"{trace.devices[self.device].plane}: kernels start up to {format_ns(self.shift.ns)} before "
            "their launch; host events were shifted by that, and no idle time is split below it",
        )


def window_of(trace: Trace, device: int, run: Run | None, summary: StepSummary | None) -> Window | str:
    """Return the window of a device, or why it has none."""
    periods = _lasting(boundaries.periods(trace, device))
    if not len(periods):
        return "no whole step: " + "; ".join(periods.notes)
    if periods.missing_ratio > MOST_MISSING_RATIO:
        return (
            f"the collector lost {format_ratio(periods.missing_ratio)} of the kernels of the whole steps "
            f"(at most {format_ratio(MOST_MISSING_RATIO)} may be missing)"
        )
    joined = step_lines(trace, periods, run)
    kept = _steady(periods, joined.row, run, summary)
    periods = periods.keep(kept.rows, *joined.notes, *kept.notes)
    usual = _without_stalls(periods, recorded=run is not None and run.steps is not None)
    stalled, periods = periods.keep(~usual.rows), periods.keep(usual.rows, *usual.notes)
    line = None if joined.row is None else joined.row[kept.rows][usual.rows]
    rows = np.flatnonzero(trace.kernels.device == device)
    shift = clock_shift(trace, rows)
    steps = _steps_of(trace, device, periods, line, run)
    own = rows if periods.work is None else periods.work.row
    return Window(device, periods, steps, own, shift, _between(periods, steps), stalled)


def spread(lengths_ns: Sequence[float]) -> Spread | None:
    """Return between what these lengths of profiled steps lie, in ns; None where they agree, or are fewer
    than two."""
    lengths = np.array(lengths_ns)
    if len(lengths) < 2 or lengths.std() < UNLIKE_RATIO * lengths.mean():
        return None
    return Spread(float(lengths.min()), median(lengths), float(lengths.max()))


def _between(periods: Periods, steps: int) -> float | None:
    """Return the mean time between two steps; None where no step is followed by another in the trace."""
    if periods.pause_ns is None:
        return None
    known = periods.pause_ns[periods.followed()]
    return float(known.mean()) * len(periods) / steps if len(known) else None


def _lasting(periods: Periods) -> Periods:
    """Return the steps that take time: markers of a clock that stood still have no time between them."""
    lasts = periods.end_ns > periods.start_ns
    if lasts.all():
        return periods
    return periods.keep(lasts, f"{int((~lasts).sum())} of {len(lasts)} steps begin and end at one instant")


@frozen
class _Kept:
    rows: Bool
    notes: tuple[str, ...] = ()


def _steady(periods: Periods, line: Int64 | None, run: Run | None, summary: StepSummary | None) -> _Kept:
    """Return which periods are neither warm-up nor an epoch's edge; all of them if none is."""
    rows = np.ones(len(periods), np.bool_)
    why = "warm-up or the end of an epoch"
    if run is not None and run.steps is not None and line is not None:
        steps = run.steps
        last = np.concatenate([(np.diff(steps.epoch) != 0) | (np.diff(steps.fit) != 0), [False]])
        rows &= ~last[line]
        if summary is not None and summary.first_steady is not None:
            rows &= steps.step[line] >= summary.first_steady
    elif len(periods) >= 4:
        rows[: stepping.warm_up((periods.end_ns - periods.start_ns).astype(np.float64))] = False
        why = "warm-up"
    if rows.all() or not rows.any():
        return _Kept(np.ones(len(periods), np.bool_))
    return _Kept(rows, (f"{int((~rows).sum())} of {len(rows)} whole steps left out: {why}",))


def _without_stalls(periods: Periods, *, recorded: bool) -> _Kept:
    """Return which periods are no stall, neither by themselves nor with the time to the next one. Records
    tell how much stalls cost; without them, stalls that come again and again are part of the account: a
    loader that cannot keep up makes them."""
    length_ns = (periods.end_ns - periods.start_ns).astype(np.float64)
    whole_ns = length_ns if periods.pause_ns is None else length_ns + np.maximum(periods.pause_ns, 0)
    usual_ns = median(whole_ns)
    long = (whole_ns > STALL * usual_ns) | (length_ns > STALL * median(length_ns))
    if not long.any():
        return _Kept(~long)
    if not recorded and long.sum() >= FEWEST_OFTEN and long.mean() >= OFTEN_RATIO:
        return _Kept(
            np.ones(len(periods), np.bool_),
            (
                f"{int(long.sum())} of {len(periods)} whole steps take more than twice the median, "
                f"{format_ns(usual_ns)}, and up to {format_ns(float(whole_ns.max()))}: they come too "
                "often to be left out",
            ),
        )
    return _Kept(
        ~long,
        (
            f"{int(long.sum())} of {len(periods)} whole steps left out as stalls: they took up to "
            f"{format_ns(float(whole_ns.max()))}, the median {format_ns(usual_ns)}",
        ),
    )


def _steps_of(trace: Trace, device: int, periods: Periods, line: Int64 | None, run: Run | None) -> int:
    """Return how many optimizer steps these periods hold: a call may run several, and so may several calls
    together. The number comes from the records, else from the batches that a call fetches."""
    if periods.source == RANGE:
        return len(periods)
    if line is not None and run is not None and run.steps is not None:
        return max(1, int(run.steps.covers[distinct(line)].sum()))
    fit = run.last_fit if run is not None else None
    if fit is not None and fit.steps_per_execution:
        each = distinct(periods.number) if (periods.number >= 0).all() else periods.number
        return len(each) * fit.steps_per_execution
    found = calls(trace, device) if periods.source in FUNCTIONS else None
    if found is None:
        return len(periods)
    at_work = len(distinct(trace.kernels.device[trace.kernels.duration_ns > 0])) if len(trace.kernels) else 1
    return len(periods) * steps_per_call(trace, found, at_work)
