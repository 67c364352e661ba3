"""Which instants the account is of: the whole, steady steps of one device in the profiler window."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis import idle, timeline
from mpprof.analysis import steps as stepping
from mpprof.analysis.timeline import Periods
from mpprof.model.quantities import format_ns, format_ratio
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary
from mpprof.model.trace import Trace

Int64 = NDArray[np.int64]

MOST_MISSING_RATIO = 0.01
"""With more of a step's launches without a kernel than this, an account would be of another step."""


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
    periods = _steady(periods, run, summary)
    rows = np.flatnonzero(trace.kernels.device == device)
    shift = idle.ClockShift(0, rows[:0]) if trace.basis == "host" else idle.clock_shift(trace, rows)
    return Window(device, periods, _steps_of(periods, run), rows, shift)


def _steady(periods: Periods, run: Run | None, summary: StepSummary | None) -> Periods:
    """The periods without those of warm-up and without an epoch's edge; all of them if none is left."""
    rows = np.ones(len(periods), np.bool_)
    line = _lines(periods, run)
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
        return periods
    return periods.keep(rows, f"{int((~rows).sum())} of {len(rows)} whole steps left out: {why}")


def _lines(periods: Periods, run: Run | None) -> Int64 | None:
    """The row of the step log of each period; None where their numbers are not those of the log."""
    if run is None or run.steps is None or periods.source != "mpprof" or not len(run.steps):
        return None
    steps = run.steps.step
    row = np.minimum(np.searchsorted(steps, periods.number), len(steps) - 1)
    return row if (np.diff(steps) > 0).all() and (steps[row] == periods.number).all() else None


def _steps_of(periods: Periods, run: Run | None) -> int:
    """How many optimizer steps these periods hold: a call may cover several."""
    line = _lines(periods, run)
    if line is not None and run is not None and run.steps is not None:
        return max(1, int(run.steps.covers[line].sum()))
    fit = run.last_fit if run is not None else None
    per_call = fit.steps_per_execution if fit is not None and fit.steps_per_execution else 1
    return len(periods) * max(1, per_call)
