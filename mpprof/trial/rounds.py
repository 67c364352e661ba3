"""What the trainings of two settings show of their ratio.

Trainings take turns: a cycle has one of each setting, in the order A B C, the next one C B A. So a drift that
is slow beside a cycle cancels between the two trainings of a cycle, and each cycle gives one ratio.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field

import numpy as np

from mpprof.analysis.arrays.mean_interval import quantile_95
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_speedup
from mpprof.trial.remedies import Advice
from mpprof.trial.settings import Setting

FEWEST_ROUNDS = 4
CLOSE = 0.05
"""How far either end of an interval may be from the ratio, once that is known well enough."""
TOO_WIDE = 2.0
"""Of an interval that holds 1 and reaches beyond so many times its ratio, no number is shown."""


@frozen
class Trained:
    """One training. `rung`: the rung of the ladder that it was run for, `cycle`: the cycle within it, both
    counted from 0; `round`: how many its setting has had, from 1. Where `error` is set, nothing was measured.
    `script_failed`: it is the script that failed, if that was under the first setting. `curve`: applied
    updates and the mean loss up to there. `finite`: whether its last loss is; None: none was recorded.
    `took`: how many layers compute in the policy's type, of how many; None: not asked, or not known."""

    setting: Setting
    rung: int
    cycle: int
    round: int
    seconds: float  # of the whole process
    root: str | None = None
    error: str | None = None
    script_failed: bool = False
    step_ns: float | None = None
    batch: int | None = None
    examples_per_s: float | None = None
    peak_memory_bytes: int | None = None
    joules_per_example: float | None = None
    energy_absent: str | None = None  # why the energy is not known
    skipped: int | None = None
    curve: tuple[tuple[float, float], ...] = ()
    finite: bool | None = None
    took: tuple[int, int] | None = None
    is_cpu: bool = False
    busy: bool = False  # other work kept the machine busy as its steps were timed
    capability: tuple[int, int] | None = None
    jit: bool | None = None
    keras: str = "keras"
    asked: tuple[str, ...] = ()
    overridden: tuple[str, ...] = field(default=())
    left_out: tuple[str, ...] = field(default=())
    advice: Advice | None = None  # of the first training, where remedies are tried
    output: str | None = None  # the file with what its process has printed

    @property
    def did_not_take(self) -> bool:
        """Whether the setting has reached no layer: then its step time says nothing of it."""
        return self.took is not None and self.took[0] == 0 and self.took[1] > 0

    @property
    def counts(self) -> bool:
        return self.error is None and self.step_ns is not None and not self.did_not_take


@frozen
class Ratio:
    """How many times as fast one setting is as another, with its 95 % interval; None after one round."""

    value: float
    interval: tuple[float, float] | None
    rounds: int

    @property
    def close(self) -> bool:
        """Whether it is known well enough."""
        return (
            self.decides
            and self.interval is not None
            and math.log(self.interval[1] / self.value) <= math.log1p(CLOSE)
        )

    @property
    def decides(self) -> bool:
        """Whether there were enough rounds to claim a difference, or none."""
        return self.interval is not None and self.rounds >= FEWEST_ROUNDS

    @property
    def faster(self) -> bool:
        return self.decides and self.interval is not None and self.interval[0] > 1

    @property
    def slower(self) -> bool:
        return self.decides and self.interval is not None and self.interval[1] < 1

    @property
    def wide(self) -> bool:
        """Whether the interval is so wide that its ends tell nothing."""
        return self.interval is not None and self.interval[1] > TOO_WIDE * self.value


def of_cycles(logs: Sequence[float]) -> Ratio:
    """Return the ratio of which each cycle has given a logarithm.

    More rounds are run until the interval is narrow, and an interval that stops because it happens to be
    narrow would hold too seldom. So the scatter is that of the first `FEWEST_ROUNDS` alone, which decide how
    many are run, and the mean is that of all: the interval then holds in 95 %, however many there are (Stein,
    "A two-sample test for a linear hypothesis whose power is independent of the variance", 1945)."""
    mean, count = float(np.mean(logs)), len(logs)
    head = np.asarray(logs[:FEWEST_ROUNDS])
    if count < 2:
        return Ratio(math.exp(mean), None, count)
    distance = quantile_95(len(head) - 1) * float(head.std(ddof=1)) / math.sqrt(count)
    return Ratio(math.exp(mean), (math.exp(mean - distance), math.exp(mean + distance)), count)


def ratio(done: Iterable[Trained], slow: Setting, fast: Setting, rung: int | None = None) -> Ratio | None:
    """Return how many times as fast the second setting is: by examples a second where the batches differ,
    else by the step. `rung`: of the cycles of one rung alone. None: no cycle has measured both."""
    by_cycle: dict[tuple[int, int], dict[Setting, Trained]] = {}
    for each in done:
        if each.counts and rung in (None, each.rung):
            by_cycle.setdefault((each.rung, each.cycle), {})[each.setting] = each
    logs = []
    for cycle in sorted(by_cycle):
        one, other = by_cycle[cycle].get(slow), by_cycle[cycle].get(fast)
        if one is not None and other is not None:
            found = _log(one, other, same_batch=slow.batch == fast.batch)
            logs += [] if found is None else [found]
    return of_cycles(logs) if logs else None


def interval(found: Ratio | None) -> str:
    """Return a speedup with its interval: "1.82x (1.74 to 1.90)"; "no difference" where that holds 1, and is
    narrow. Of one round, and of a wide interval, no number is shown."""
    if found is None:
        return "not known"
    if found.interval is None:
        return "not known after one round"
    few = f"{found.rounds} rounds are too few" if not found.decides else ""
    if found.wide and not found.faster and not found.slower:
        return few or "too wide to tell"
    low, high = (format_speedup(value).removesuffix("x") for value in found.interval)
    none = few or ("no difference" if found.close else "too wide to tell")
    none = "" if found.faster or found.slower else f", {none}"
    return f"{format_speedup(found.value)} ({low} to {high}{none})"


def _log(one: Trained, other: Trained, *, same_batch: bool) -> float | None:
    if same_batch:
        assert one.step_ns is not None
        assert other.step_ns is not None
        return math.log(one.step_ns / other.step_ns)
    if one.examples_per_s is None or other.examples_per_s is None:
        return None
    return math.log(other.examples_per_s / one.examples_per_s)


def skips_less(new: Sequence[Trained], old: Sequence[Trained]) -> bool:
    """Return whether each training of `new` skips fewer updates than any of `old`, which four of each do by
    chance once in 70."""
    mine, theirs = ([each.skipped for each in of if each.skipped is not None] for of in (new, old))
    return min(len(mine), len(theirs)) >= FEWEST_ROUNDS and max(mine) < min(theirs)


# --- what was learned --------------------------------------------------------------------------------------

WORSE = 0.1
"""By how much a loss is higher that counts as worse, where that is beyond the scatter of the rounds."""


def losses(of: Sequence[Trained], others: Sequence[Trained]) -> list[float]:
    """Return the loss of each of `of` over the second half of the updates that all of both have applied."""
    ends = [each.curve[-1][0] for each in (*of, *others) if each.curve]
    if not ends:
        return []
    least = min(ends)
    found = []
    for each in of:
        within = [loss for updates, loss in each.curve if least / 2 < updates <= least * (1 + 1e-9)]
        found += [float(np.mean(within))] if within else []
    return found


def learns_worse(of: Sequence[Trained], others: Sequence[Trained]) -> bool:
    """Return whether the loss of `of` is clearly above that of `others`, by the scatter between trainings."""
    mine, theirs = losses(of, others), losses(others, of)
    if min(len(mine), len(theirs)) < 2:
        return False
    above = float(np.mean(mine) - np.mean(theirs))
    freedom = len(mine) + len(theirs) - 2
    squares = sum(len(each) * float(np.var(each)) for each in (mine, theirs))
    error = quantile_95(freedom) * math.sqrt(squares / freedom * (1 / len(mine) + 1 / len(theirs)))
    return above > max(WORSE * abs(float(np.mean(theirs))), error)
