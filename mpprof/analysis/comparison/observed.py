"""The step times that an observed speedup rests on, and its interval: without one there is no speedup.

One or two profiled steps are no measurement: the first may have tuned its kernels, the machine may have been
busy. So a speedup needs six step times a side, from the records of both runs or else from the profiler
windows of both, and comes with the interval that they allow. Where steps are timed between waits for the
device, two such means of six steps in all do: their interval is wide.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.steps.statistics import asynchronous, median_interval, summarise
from mpprof.analysis.steps.validity import timings
from mpprof.model.account import Account, Basis
from mpprof.model.frozen import frozen
from mpprof.model.run import Run

FEWEST = 6
"""Step times a side: the fewest of which a median has a 95 % interval."""

NEEDS = "an observed speedup needs"
"""How the reason begins that a run has too few step times."""


@frozen
class StepTimes:
    """The step times of one run: `basis` "wall" from its records, "window" of its profiled steps. `mean_ns`:
    the step that is compared."""

    name: str
    basis: Basis
    count: int
    mean_ns: float | None
    interval_ns: tuple[float, float] | None
    means: bool = False  # each time is the mean of the steps between two waits


def step_times(run: Run, account: Account | None) -> StepTimes:
    """Return the step times of the records, where the account rests on them or there is no account; else
    those of the window."""
    if account is None or account.basis == "wall":
        summary = summarise(run.steps, run.facts)
        mean_ns = summary.mean_ns if summary else None
        interval = summary.interval_ns if summary else None
        means = run.steps is not None and asynchronous(run.steps, run.facts)
        return StepTimes(run.name, "wall", timings(run), mean_ns, interval, means)
    lengths = np.array(account.lengths_ns)
    return StepTimes(run.name, "window", len(lengths), account.step_ns, median_interval(lengths))


def interval_of(baseline: StepTimes, mixed: StepTimes, scale: float) -> tuple[float, float] | str:
    """Return the interval of `scale` times the baseline's step over the mixed run's, or why there is none.

    The worst combination of the two medians' intervals, widened to the means that are compared."""
    few = [times for times in (baseline, mixed) if times.interval_ns is None]
    if few:
        means = ", or 2 close means of several steps" if any(times.means for times in few) else ""
        return f"{' and '.join(map(_how_many, few))}; {NEEDS} {FEWEST} in each run{means}"
    if baseline.basis != mixed.basis:
        profiled, other = sorted((baseline, mixed), key=lambda times: times.basis == "wall")
        return f"{profiled.name} has times of profiled steps alone, {other.name} of unprofiled ones"
    (b_low, b_high), (m_low, m_high) = _span(baseline), _span(mixed)
    if m_low <= 0:
        return f"{mixed.name} has steps without a length"
    return scale * b_low / m_high, scale * b_high / m_low


def _span(times: StepTimes) -> tuple[float, float]:
    assert times.interval_ns is not None
    means = [] if times.mean_ns is None else [times.mean_ns]
    return min(times.interval_ns[0], *means), max(times.interval_ns[1], *means)


def _how_many(times: StepTimes) -> str:
    if not times.count:
        return f"{times.name} has no step times on record"
    what = ("profiled step" if times.basis == "window" else "steady step time") + "s" * (times.count != 1)
    return f"{times.name} has {times.count} {what}"
