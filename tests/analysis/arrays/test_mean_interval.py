"""The interval of a mean step time holds the true mean in at least 9 of 10 simulated runs, of every kind that gets one.

The true mean of a kind is known in advance. A run that did not see a stall cannot know of it, so kinds with stalls
are long enough to see ten.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from mpprof.analysis.arrays.mean_interval import MeanInterval, of_mean, of_ratio, with_few_stalls

Random = np.random.Generator
Float64 = NDArray[np.float64]
Kind = Callable[[Random, int], tuple[Float64, float]]  # the steps of a run, and their true mean

LEAST = 0.90


def even(random: Random, n: int) -> tuple[Float64, float]:
    return 10.0 + random.normal(size=n), 10.0


def skewed(random: Random, n: int) -> tuple[Float64, float]:
    return np.exp(0.2 * random.normal(size=n)), math.exp(0.02)


def autocorrelated(by: float) -> Kind:
    def steps(random: Random, n: int) -> tuple[Float64, float]:
        noise = random.normal(size=n) * math.sqrt(1 - by * by)
        value, values = float(random.normal()), np.empty(n)
        for row, each in enumerate(noise.tolist()):
            value = by * value + each
            values[row] = value
        return 10.0 + 0.8 * values, 10.0

    return steps


def bursts(period: int, height: float) -> Kind:
    """Every so many steps wait for the loader, each time for another while."""

    def steps(random: Random, n: int) -> tuple[Float64, float]:
        waits = np.arange(n) % period == random.integers(period)
        return 1.0 + 0.03 * random.normal(size=n) + waits * _heights(
            random, n, height
        ), 1.0 + height * waits.mean()

    return steps


def stalls(ratio: float, height: float) -> Kind:
    """Some steps take much longer, at random."""

    def steps(random: Random, n: int) -> tuple[Float64, float]:
        slow = random.random(n) < ratio
        return 1.0 + 0.03 * random.normal(size=n) + slow * _heights(random, n, height), 1.0 + height * ratio

    return steps


def drift(random: Random, n: int) -> tuple[Float64, float]:
    level = np.linspace(1.0, 1.3, n)
    return level * (1.0 + 0.03 * random.normal(size=n)), float(level.mean())


def _heights(random: Random, n: int, mean: float) -> Float64:
    return mean * np.exp(0.3 * random.normal(size=n) - 0.045)


KINDS: dict[str, tuple[Kind, tuple[int, ...]]] = {
    "even": (even, (6, 20, 60, 600, 2000)),
    "skewed": (skewed, (6, 20, 60, 600, 2000)),
    "autocorrelated by 0.5": (autocorrelated(0.5), (20, 60, 200, 600, 2000)),
    "autocorrelated by 0.8": (autocorrelated(0.8), (20, 60, 200, 600, 2000)),
    "bursts of 8": (bursts(8, 40.0), (100, 200, 600, 2000)),
    "bursts of 16": (bursts(16, 20.0), (200, 400, 600, 2000)),
    "bursts of 50": (bursts(50, 20.0), (600, 2000, 6000)),
    "5 % stall": (stalls(0.05, 10.0), (300, 600, 2000)),
    "1 % stall": (stalls(0.01, 20.0), (1000, 2000, 6000)),
    "1 % stall a little": (stalls(0.01, 3.0), (1000, 3000)),
    "drift": (drift, (60, 600, 2000)),
}
GROUPED = ("even", "skewed", "autocorrelated by 0.8", "bursts of 8")
GROUPS = (2, 3, 5, 9, 10, 20)


def coverage(kind: Kind, n: int, runs: int, groups: int = 0) -> tuple[float, float, float]:
    """Return how many of the intervals hold the true mean, how many those of a ratio of two runs its true value, and
    how many runs got an interval. `groups`: the steps are known in so many means of unlike length, as on JAX."""
    random = np.random.default_rng(28)
    held, ratios = [], []
    before: MeanInterval | str = ""
    true_before = 1.0
    for _ in range(runs):
        if groups:
            steps = np.maximum(1, np.round(16 * np.exp(0.3 * random.normal(size=groups)))).astype(np.int64)
            each, true = kind(random, int(steps.sum()))
            times = np.add.reduceat(each, np.concatenate([[0], np.cumsum(steps)[:-1]])) / steps
        else:
            times, true = kind(random, n)
            steps = np.ones(n, np.int64)
        found = of_mean(times, steps)
        if isinstance(found, MeanInterval):
            held.append(found.low <= true <= found.high)
            if isinstance(before, MeanInterval):
                low, high = of_ratio(before, found)
                ratios.append(low <= true_before / true <= high)
        before, true_before = found, true
    return float(np.mean(held)), float(np.mean(ratios)), len(held) / runs


@pytest.mark.parametrize("kind", KINDS)
def test_nine_of_ten_intervals_hold_the_true_mean(kind: str) -> None:
    steps, lengths = KINDS[kind]
    assert min(coverage(steps, lengths[len(lengths) // 2], runs=200)[:2]) >= LEAST


@pytest.mark.parametrize("groups", GROUPS)
def test_nine_of_ten_intervals_of_timed_groups_hold_the_true_mean(groups: int) -> None:
    assert min(coverage(even, 0, runs=200, groups=groups)[:2]) >= LEAST


@pytest.mark.full
def test_the_same_of_every_length_and_of_thousands_of_runs() -> None:
    table = [
        (kind, n, *coverage(steps, n, 3000)) for kind, (steps, lengths) in KINDS.items() for n in lengths
    ]
    table += [
        (f"{kind}, groups", groups, *coverage(KINDS[kind][0], 0, 3000, groups))
        for kind in GROUPED
        for groups in GROUPS
    ]
    for kind, n, mean, ratio, got in table:
        print(f"{kind:32}{n:6}  {mean:6.1%} {ratio:6.1%}  {got:6.1%} got one")
    assert min(min(mean, ratio) for _, _, mean, ratio, _ in table) >= LEAST


def test_a_hundred_thousand_steps_give_a_narrow_interval_around_the_mean() -> None:
    times, true = autocorrelated(0.5)(np.random.default_rng(0), 100_000)
    found = of_mean(times, np.ones(len(times), np.int64))
    assert isinstance(found, MeanInterval)
    assert not found.wide
    assert found.low <= true <= found.high < found.low * 1.003


def test_few_stalls_that_hold_much_of_the_time_give_no_interval() -> None:
    """Three stalls: nobody knows how many the next 600 steps bring."""
    times = np.ones(600)
    times[[100, 300, 310]] = 50.0
    assert of_mean(times, np.ones(600, np.int64)) == "too few stalls (3)"


@pytest.mark.parametrize("n", [50, 200, 400])
def test_a_few_stalls_leave_bounds_that_hold_the_true_mean(n: int) -> None:
    """Of runs with too few stalls for an interval."""
    random, steps = np.random.default_rng(28), np.ones(n, np.int64)
    held = []
    for _ in range(400):
        times, true = stalls(0.01, 20.0)(random, n)
        if of_mean(times, steps) in [f"too few stalls ({number})" for number in range(1, 8)]:
            found = with_few_stalls(times, steps)
            held.append(found.low <= true <= found.high)
    assert len(held) > 100
    assert np.mean(held) >= LEAST


def test_few_stalls_that_hold_little_of_the_time_leave_the_interval() -> None:
    times = np.ones(600)
    times[[100, 300, 310]] = 3.0
    assert isinstance(of_mean(times, np.ones(600, np.int64)), MeanInterval)


def test_a_block_holds_two_stalls() -> None:
    """The bursts of a loader of eight workers are no scatter: each block of 16 steps holds two of them."""
    times = np.where(np.arange(1600) % 8 == 0, 340.0, 1.7)
    found = of_mean(times, np.ones(1600, np.int64))
    assert isinstance(found, MeanInterval)
    assert found.high < found.low * 1.02


def test_a_group_counts_by_its_steps() -> None:
    found = of_mean(np.array([10.0, 12.0, 11.0]), np.array([100, 10, 100]))
    assert isinstance(found, MeanInterval)
    assert found.mean == pytest.approx((1000 + 120 + 1100) / 210)
    assert found.wide


def test_few_steps_and_groups_that_scatter_give_none_and_the_reason() -> None:
    assert of_mean(np.ones(5), np.ones(5, np.int64)) == "5 steady steps in 5 timings are too few"
    assert of_mean(np.ones(1), np.array([50])) == "50 steady steps in 1 timings are too few"
    assert of_mean(np.array([1.0, 1.9]), np.array([20, 20])) == "2 blocks of steps scatter too much"
