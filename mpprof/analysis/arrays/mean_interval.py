"""How sure a mean step time is: its 95 % interval, or why there is none.

Steps of a training depend on each other: a clock that falls, a loader that delivers eight batches at once, a
checkpoint every fifty steps. So the scatter is taken from blocks of consecutive steps. Its variance is that
of the moving-block bootstrap (Kuensch 1989), which for a mean has a closed form: nothing is resampled.
Student's t of as many degrees of freedom as there are blocks, less one, makes the interval of it.

A block is 1.5 times the square root of the number of steps. (With the cube root, enough for steps that do
not depend on each other, 8 of 10 intervals held the true mean where the autocorrelation was 0.8:
tests/analysis/arrays/test_mean_interval.py.) Where stalls decide how long a step is, a block holds two of
them or a multiple of that, unless this left fewer than ten blocks: a loader's bursts, which come at equal
distances, are then no scatter. A row that is itself the mean of several steps is never divided. Rows are in
the order in which they ran, and a block may reach over the end of an epoch: what differs from epoch to epoch
is scatter, too.

Few stalls that hold much of the time do not show how often they come, and leave no interval.
`with_few_stalls` returns what is sure in spite of that: a stall only makes a step longer, and the number seen
bounds how many there are (Garwood 1936).

What a run did not see cannot be told from it: its interval holds for stalls as often as it saw them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.model.arrays import Bool, Float64, Int64
from mpprof.model.frozen import frozen

Numbers = Int64 | Float64

STALL = 2.0
"""A step of more than two medians stalled."""
NOTABLE_STALLS = 0.05
"""Share of the time from which stalled steps decide how long a step is."""
FEWEST_BLOCKS = 10
"""From so many blocks on an interval is as narrow as it can be; of fewer it is said to be wide."""
FEWEST_STALLS = 8
FEWEST_STEPS = 6
WIDEST = math.log(3.0)
"""The largest distance that still tells something: from a third of the step to three times the step."""
_MOST_STALLS = (5.572, 7.225, 8.767, 10.242, 11.668, 13.059, 14.423)
"""Upper 97.5 % bounds of the mean of a Poisson count, of 1, 2, ... seen."""
_ROOTS = 1.5
_LEAST_BLOCKS = 3


@frozen
class MeanInterval:
    """The 95 % interval of a mean, by logarithms: `below` and `above` it. `blocks`: the number of blocks, or
    of stalls, that it rests on; few of them make it wide."""

    mean: float
    below: float
    above: float
    blocks: int

    @property
    def low(self) -> float:
        return self.mean * math.exp(-self.below)

    @property
    def high(self) -> float:
        return self.mean * math.exp(self.above)

    @property
    def wide(self) -> bool:
        return self.blocks < FEWEST_BLOCKS


def of_mean(time_ns: Float64, steps: Numbers) -> MeanInterval | str:
    """Return the interval of the mean step, or why there is none. A row each: the time per step, and how many
    steps it stands for."""
    rows, weight = len(time_ns), steps.astype(np.float64)
    count = int(weight.sum())
    if rows < 2 or count < FEWEST_STEPS:
        return f"{count} steady steps in {rows} timings are too few"
    mean = float((time_ns * weight).sum()) / count
    stalled = _stalled(time_ns)
    stalls = _count(stalled)
    length = _ROOTS * math.sqrt(count) * rows / count
    if (time_ns * weight)[stalled].sum() > NOTABLE_STALLS * mean * count:
        if stalls < FEWEST_STALLS:
            return f"too few stalls ({stalls})"
        pair, most = 2 * rows / stalls, rows / FEWEST_BLOCKS
        length = min(most, pair * max(1, min(length, most) // pair))
    width = max(1, min(round(length), rows // _LEAST_BLOCKS))
    blocks = rows / width
    beyond = np.concatenate([[0.0], np.cumsum((time_ns - mean) * weight)])
    sums = beyond[width:] - beyond[:-width]
    variance = float(np.mean(sums**2)) * blocks * blocks / (blocks - 1) / count**2
    ratio = quantile_95(int(blocks) - 1) * math.sqrt(variance) / mean
    if ratio >= WIDEST:
        return f"{int(blocks)} blocks of steps scatter too much"
    return MeanInterval(mean, ratio, ratio, int(blocks))


def with_few_stalls(time_ns: Float64, steps: Numbers) -> MeanInterval | None:
    """Return what the mean step lies within where stalls are too few for an interval: from the lower end of
    the interval of the steps without them to its upper end with as many stalls of the length seen as that
    number allows. None where even the steps without them have no interval. `blocks`: the stalls."""
    rows = ~_stalled(time_ns)
    stalls = _count(~rows)
    without = of_mean(time_ns[rows], steps[rows])
    if not 0 < stalls < FEWEST_STALLS or isinstance(without, str):
        return None
    mean = float(np.average(time_ns, weights=steps))
    high = without.high + _MOST_STALLS[stalls - 1] / stalls * (mean - without.mean)
    return MeanInterval(mean, math.log(mean / without.low), math.log(high / mean), stalls)


def _stalled(time_ns: Float64) -> Bool:
    """Return which steps stalled."""
    stalled: Bool = time_ns > STALL * median(time_ns)
    return stalled


def _count(stalled: Bool) -> int:
    """Return how many stalls there are: those in a row are one."""
    return int(stalled[:1].sum()) + int((stalled[1:] & ~stalled[:-1]).sum())


def of_difference(above: MeanInterval, below: MeanInterval) -> tuple[float, float]:
    """Return the interval of the difference of two means that do not depend on each other."""
    return (
        above.mean - below.mean - math.hypot(above.mean - above.low, below.high - below.mean),
        above.mean - below.mean + math.hypot(above.high - above.mean, below.mean - below.low),
    )


def of_ratio(above: MeanInterval, below: MeanInterval) -> tuple[float, float]:
    """Return the interval of the ratio of two means that do not depend on each other: the distances of their
    logarithms combined as deviations are (Zou and Donner 2008)."""
    ratio = above.mean / below.mean
    return (
        ratio * math.exp(-math.hypot(above.below, below.above)),
        ratio * math.exp(math.hypot(above.above, below.below)),
    )


def of_repeats(above: Sequence[float], below: Sequence[float]) -> MeanInterval | None:
    """Return the interval of the ratio of two mean steps by the scatter between runs: Student's t of the
    logarithms of means, one a run, which scatter alike on both sides. None: two runs show no scatter."""
    logs = [np.log(np.asarray(side, np.float64)) for side in (above, below)]
    freedom = sum(map(len, logs)) - 2
    if freedom < 1:
        return None
    squares = sum(float(((side - side.mean()) ** 2).sum()) for side in logs)
    each = squares / freedom * sum(1 / len(side) for side in logs)
    ratio = math.exp(logs[0].mean() - logs[1].mean())
    half = quantile_95(freedom) * math.sqrt(each)
    return MeanInterval(ratio, half, half, freedom + 1)


# --- Student's t: how far the mean of a few values may be from the true one.

_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles by degrees of freedom, from 1 (any table of the distribution has them)."""


def quantile_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile. Above 30 degrees of freedom that of 30, which is a little wide."""
    return _T_95[min(freedom, len(_T_95)) - 1]


def half_width(values: Float64) -> float | None:
    """Return half of the 95 % interval of the mean of `values`, which do not depend on each other. None:
    fewer than two."""
    n = len(values)
    return None if n < 2 else quantile_95(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
