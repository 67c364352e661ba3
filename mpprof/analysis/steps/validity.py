"""What makes the mean of the steps say less than it seems to: stalls, two kinds of steps, or a trend."""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.intervals import union
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps import statistics as stepping
from mpprof.analysis.steps.stalls import stalls
from mpprof.analysis.steps.statistics import steady
from mpprof.model.account import ProfiledStalls
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_ns, format_ratio
from mpprof.model.run import Run
from mpprof.model.trace import HostKind, Trace

TELLS_WHICH = "a profiler window with such a step shows which"
NOTABLE_DRIFT = 0.05
"""Steps that differ by a twentieth between the beginning and the end of a run are not one sample."""


LONG_STEP = 5.0
"""A step of five medians is no scatter."""
FEWEST_LONG = 3
"""One or two long steps are a checkpoint or a pause of the machine."""
NOTABLE_LONG_RATIO = 0.02
"""Of the time of all steady steps, what the long ones take above the median."""


@frozen
class LongSteps:
    """Timings of more than five medians of those that the step time is the mean of: how many of how many, and
    the share of the time of all that they take above the median."""

    count: int
    of: int
    lost_ratio: float

    @property
    def notable(self) -> bool:
        return self.count >= FEWEST_LONG and self.lost_ratio >= NOTABLE_LONG_RATIO

    def __str__(self) -> str:
        return (
            f"{format_count(self.count)} of {format_count(self.of)} steps after warm-up took more than "
            f"{LONG_STEP:g} times the median, {format_ratio(self.lost_ratio)} of the time"
        )


def long_steps(run: Run) -> LongSteps | None:
    """Return the long steps after warm-up, an epoch's last among them; None where none has a time."""
    if run.steps is None:
        return None
    usual = stepping.per_step_ns(run.steps)[stepping.steady(run.steps)]
    times = stepping.averaged(run.steps, run.facts, run.spans)
    if not len(usual) or times.mean_ns is None:
        return None
    middle = median(usual)
    long = times.time_ns > LONG_STEP * middle
    lost_ns = float(((times.time_ns[long] - middle) * times.steps[long]).sum())
    return LongSteps(int(long.sum()), len(long), lost_ns / float((times.time_ns * times.steps).sum()))


def compiled_ratio(run: Run, trace: Trace, since: int) -> float | None:
    """Return the share in which the trace shows the host tracing or compiling, of the time that profiled long
    steps take above the median, from step `since` on; None where no long step was profiled."""
    steps = run.steps
    if steps is None or not (usual := stepping.steady(steps)).any():
        return None
    middle = median(stepping.per_step_ns(steps)[usual])
    took = steps.duration_ns / steps.covers  # an interval may hold the end of the window
    long = steps.profiled & (steps.step >= since) & (took > LONG_STEP * middle)
    rows = np.flatnonzero(trace.host.kind == HostKind.COMPILE)
    compiling = union(trace.host.start_ns[rows], trace.host.start_ns[rows] + trace.host.duration_ns[rows])
    above_ns = float((took[long] - middle).sum())
    return min(1.0, compiling.length_ns / above_ns) if long.any() else None


def doubts(run: Run, profiled: ProfiledStalls | None = None) -> tuple[str, ...]:
    """Return each doubt about the steps in one sentence, with its numbers; empty where the steps are one
    sample, few or not recorded. `profiled`: what a trace shows of stalls.

    Steps that become slower are a cause of their own (MP807); here are those that become faster, which no
    cause explains and a comparison suffers from as well.
    """
    if run.steps is None:
        return ()
    times = stepping.per_step_ns(run.steps)[stepping.steady(run.steps)]
    said = []
    stalled, long = stalls(run, profiled), long_steps(run)
    if stalled is not None and stalled.notable:
        said.append(str(stalled))
    elif long is not None and long.notable:
        said.append(f"{long}: they were compiled again, or the machine or the input paused ({TELLS_WHICH})")
    modes = stepping.bimodal(times)
    if modes is not None and not (stalled is not None and stalled.notable):
        said.append(
            f"the steady steps are of two kinds, {format_ns(modes.fast_ns)} and {format_ns(modes.slow_ns)} "
            f"({format_ratio(modes.slow_ratio)} are slow): no step takes their mean"
        )
    trend = stepping.drift(times)
    if modes is None and trend is not None and trend.significant and trend.ratio <= -NOTABLE_DRIFT:
        said.append(
            f"the steady steps became {format_ratio(-trend.ratio)} shorter from the first third of the run "
            "to the last: their mean lies between; train longer"
        )
    return tuple(said)


# --- whether other work kept the machine busy --------------------------------------------------------------

NOTABLE_LOAD = 0.2
"""Of all cores, on average: from here on other work may have made the steps longer."""
FEWEST_SAMPLES = 3


def of_the_machine(run: Run) -> tuple[str, ...]:
    """Return the share of the machine that other work took while the steady steps ran, where it is notable;
    nothing where too few samples were taken then, or the process' own share is not on record."""
    if run.steps is None or run.hardware is None or not (rows := steady(run.steps)).any():
        return ()
    first, last = run.steps.t_ns[rows][[0, -1]]
    samples = run.hardware
    others = (samples.cpu_ratio - samples.process_cpu_ratio)[(samples.t_ns >= first) & (samples.t_ns <= last)]
    others = others[np.isfinite(others)]
    ratio = float(others.mean()) if len(others) >= FEWEST_SAMPLES else 0.0
    if ratio < NOTABLE_LOAD:
        return ()
    said = f"other work kept {format_ratio(ratio)} of the machine busy while the steps were timed"
    return (f"{said}: alone on it, they may be shorter",)
