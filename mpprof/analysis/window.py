"""Which instants the account is of: the whole, steady steps of one device in the profiler window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis import idle, timeline
from mpprof.analysis import steps as stepping
from mpprof.analysis.quantiles import median
from mpprof.analysis.step_lines import step_lines
from mpprof.analysis.timeline import Periods
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary
from mpprof.model.trace import Trace

Int64 = NDArray[np.int64]

MOST_MISSING_RATIO = 0.01
"""With more of a step's launches without a kernel than this, an account would be of another step."""


LONG_STEP = 4
"""So many times the median makes a step one that holds more than a step: a validation, a checkpoint."""
LONG_SHARE_RATIO = 0.1
"""Of the window's time, what such steps take beyond the median: from here on the means are theirs."""


@dataclass(frozen=True)
class Window:
    """The whole, steady steps of one device; they hold `steps` optimizer steps. `rows` are the rows of
    the kernel table that lie on the device, `shift` the error of its clock against the host's."""

    device: int
    periods: Periods
    steps: int
    rows: Int64
    shift: idle.ClockShift

    def notes(self, trace: Trace) -> tuple[str, ...]:
        if not self.shift.ns:
            return ()
        return (
            f"{trace.devices[self.device].plane}: kernels start up to {format_ns(self.shift.ns)} before "
            "their launch; host events were shifted by that, and no idle time is split below it",
        )


def window_of(trace: Trace, device: int, run: Run | None, summary: StepSummary | None) -> Window | str:
    """The window of a device, or why it has none."""
    periods = timeline.periods(trace, device)
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
    periods = periods.keep(np.ones(len(periods), np.bool_), *_of_long_steps(periods))
    line = None if joined.row is None else joined.row[kept.rows]
    rows = np.flatnonzero(trace.kernels.device == device)
    shift = idle.ClockShift(0, rows[:0]) if trace.basis == "host" else idle.clock_shift(trace, rows)
    return Window(device, periods, _steps_of(periods, line, run), rows, shift)


@frozen
class _Kept:
    rows: NDArray[np.bool_]
    notes: tuple[str, ...] = ()


def _steady(periods: Periods, line: Int64 | None, run: Run | None, summary: StepSummary | None) -> _Kept:
    """Which periods are neither warm-up nor an epoch's edge; all of them if none is."""
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


def _of_long_steps(periods: Periods) -> tuple[str, ...]:
    """What is to be said of steps so long that the mean over all steps is of them and of no usual step."""
    length_ns = (periods.end_ns - periods.start_ns).astype(np.float64)
    usual_ns = median(length_ns)
    long = length_ns > LONG_STEP * usual_ns
    beyond_ratio = float((length_ns[long] - usual_ns).sum() / length_ns.sum()) if long.any() else 0.0
    if beyond_ratio < LONG_SHARE_RATIO:
        return ()
    longest_ns = float(length_ns.max())
    return (
        f"{int(long.sum())} of {len(periods)} whole steps took up to {format_ns(longest_ns)}, the median "
        f"{format_ns(usual_ns)}: {format_ratio(beyond_ratio)} of the window went into the longer ones, and "
        "the account is a mean over all; profile steps without a validation or a checkpoint among them",
    )


def _steps_of(periods: Periods, line: Int64 | None, run: Run | None) -> int:
    """How many optimizer steps these periods hold: a call may cover several."""
    if line is not None and run is not None and run.steps is not None:
        return max(1, int(run.steps.covers[line].sum()))
    fit = run.last_fit if run is not None else None
    per_call = fit.steps_per_execution if fit is not None and fit.steps_per_execution else 1
    return len(periods) * max(1, per_call)
