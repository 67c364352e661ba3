"""The step times that an observed speedup rests on, and its interval, or why it has none.

One or two profiled steps are no measurement: the first may have tuned its kernels, the machine may have been
busy. So a speedup needs six steps a side, from the records of both runs or else from the profiler windows of
both.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mpprof.analysis.arrays.mean_interval import (
    FEWEST_STEPS,
    MeanInterval,
    of_mean,
    of_ratio,
    with_few_stalls,
)
from mpprof.analysis.steps.statistics import averaged
from mpprof.model.account import Account, Basis
from mpprof.model.frozen import frozen
from mpprof.model.run import Run

NEEDS = "an observed speedup needs"
"""How the reason begins that a run has too few steps."""


@frozen
class StepTimes:
    """The step times of one run: `basis` "wall" from its records, "window" of its profiled steps. `mean_ns`:
    the step that is compared, of `count` steps; `interval`: of it, or why there is none; `sure`: what it lies
    within, which a few stalls leave without an interval."""

    name: str
    basis: Basis
    count: int
    mean_ns: float | None
    interval: MeanInterval | str
    sure: MeanInterval | None = None


@frozen
class Observed:
    """The ratio of two runs' steps, and its interval; `absent` says why either is None. `sure`: without an
    interval, what the ratio lies within."""

    ratio: float | None
    interval: tuple[float, float] | None
    wide: bool
    absent: dict[str, str]
    sure: tuple[float, float] | None = None


def step_times(run: Run, account: Account | None) -> StepTimes:
    """Return the step times of the records, where the account rests on them or there is no account; else
    those of the window."""
    if account is not None and account.basis != "wall":
        lengths = np.array(account.lengths_ns)
        interval = of_mean(lengths, np.ones(len(lengths)))
        return StepTimes(run.name, "window", len(lengths), account.step_ns, interval)
    if run.steps is None:
        return StepTimes(run.name, "wall", 0, None, "no step log")
    times = averaged(run.steps, run.facts, run.spans)
    interval = of_mean(times.time_ns, times.steps)
    sure = with_few_stalls(times.time_ns, times.steps) if isinstance(interval, str) else interval
    return StepTimes(run.name, "wall", int(times.steps.sum()), times.mean_ns, interval, sure)


def observed(baseline: StepTimes, mixed: StepTimes, scale: float) -> Observed:
    """Return `scale` times the baseline's step over the mixed run's."""
    if why := _not_comparable(baseline, mixed):
        return Observed(None, None, False, {"observed": why, "interval": why})
    assert baseline.mean_ns is not None
    assert mixed.mean_ns is not None
    ratio, before, after = scale * baseline.mean_ns / mixed.mean_ns, baseline.interval, mixed.interval
    if isinstance(before, str) or isinstance(after, str):
        sides = [
            f"{each.name}: {each.interval}" for each in (baseline, mixed) if isinstance(each.interval, str)
        ]
        sure = (
            of_ratio(replace(baseline.sure, mean=scale * baseline.sure.mean), mixed.sure)
            if baseline.sure and mixed.sure
            else None
        )
        return Observed(ratio, None, False, {"interval": "; ".join(sides)}, sure)
    interval = of_ratio(replace(before, mean=scale * baseline.mean_ns), replace(after, mean=mixed.mean_ns))
    return Observed(ratio, interval, before.wide or after.wide, {})


def _not_comparable(baseline: StepTimes, mixed: StepTimes) -> str:
    few = [times for times in (baseline, mixed) if not times.mean_ns or times.count < FEWEST_STEPS]
    if few:
        return f"{' and '.join(map(_how_many, few))}; {NEEDS} {FEWEST_STEPS} in each run"
    if baseline.basis != mixed.basis:
        profiled, other = sorted((baseline, mixed), key=lambda times: times.basis == "wall")
        return f"{profiled.name} has times of profiled steps alone, {other.name} of unprofiled ones"
    return ""


def _how_many(times: StepTimes) -> str:
    if not times.count:
        return f"{times.name} has no step times on record"
    what = ("profiled" if times.basis == "window" else "steady") + " step" + "s" * (times.count != 1)
    return f"{times.name} has {times.count} {what}"
