"""Steps that stall: how often they come, and what they wait for, as far as the records tell.

A mean step far above the median is made by a few long ones: a loader that delivers several batches at once, a
checkpoint now and then, a compilation that comes back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.mean_interval import STALL
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps import spent
from mpprof.analysis.steps import statistics as stepping
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_ns
from mpprof.model.run import Run
from mpprof.model.steps import StepTable

NOTABLE_RATIO = 1.2
"""A mean step so many times the median is said to hold stalls."""
FEWEST = 3
"""Stalls of which a period is told."""
REGULAR_RATIO = 0.75
"""Share of the stalls that are followed by another one period later, where there is a period."""
LONGEST_PERIOD, MOST_STEPS = 128, 1 << 16
BEGINS = "mean "
"""How the sentence on stalls begins, among the warnings of a report."""
LOADER = "waits for the loader"
NOT_TOLD = "the records do not show where"
_MOSTLY = 0.5


@frozen
class Stalls:
    """`count` of `of` timings are longer than twice the median, and than the mean. `every`: so many steps
    apart they come again; None: not regularly. `cause`: what a stalled step does, in words; `cause_ns`: how
    much of what stalls add to a step is known to be that. `grouped`: each timing is of several steps."""

    mean_ns: float
    median_ns: float
    count: int
    of: int
    every: int | None
    cause: str | None
    cause_ns: float
    grouped: bool

    @property
    def in_each(self) -> int:
        """How many stalls there are in each period."""
        return max(1, round(self.count / self.of * (self.every or 1)))

    @property
    def notable(self) -> bool:
        return self.mean_ns >= NOTABLE_RATIO * self.median_ns

    def __str__(self) -> str:
        said = f"{BEGINS}{format_ns(self.mean_ns)} a step, median {format_ns(self.median_ns)}"
        if self.every is not None and self.in_each == 1:
            return f"{said}: every {_ordinal(self.every)} step {self.cause or f'stalls; {NOT_TOLD}'}"
        what = "timings of several steps" if self.grouped else "steps"
        if not self.count:
            return f"{said}: the {what} differ, and none is over twice the median"
        of = f"{format_count(self.count)} of {format_count(self.of)}"
        if self.every is not None:
            of = f"{self.in_each} of every {self.every}"
        are = "is a stall" if self.count == 1 else "are stalls"
        return f"{said}: {of} {what} {are}; {f'each {self.cause}' if self.cause else NOT_TOLD}"


def stalls(run: Run) -> Stalls | None:
    """Return what the records tell of stalls; None where no step has a time."""
    steps = run.steps
    if steps is None:
        return None
    times = stepping.averaged(steps, run.facts, run.spans)
    usual = stepping.per_step_ns(steps)[stepping.steady(steps)]
    if (mean_ns := times.mean_ns) is None or not len(usual):
        return None
    middle = median(usual)
    long = times.row[times.time_ns > max(STALL * middle, mean_ns)]  # what is shorter makes no mean longer
    grouped = stepping.asynchronous(steps, run.facts)
    every = None if grouped else _period(steps, long)
    cause, cause_ns = _cause(run, times, long, every, mean_ns - middle)
    return Stalls(mean_ns, middle, len(long), len(times.row), every, cause, cause_ns, grouped)


def _period(steps: StepTable, long: NDArray[np.int64]) -> int | None:
    """Return the smallest distance, in steps, at which most stalls are followed by another, and by far more
    than chance would have it; None where there is none."""
    if len(long) < FEWEST:
        return None
    first = int(steps.step[long[0]])
    stalled = np.zeros(min(int(steps.step[long[-1]]) - first + 1, MOST_STEPS), np.bool_)
    at = steps.step[long] - first
    stalled[at[at < len(stalled)]] = True
    for apart in range(2, min(LONGEST_PERIOD, len(stalled) // 2) + 1):
        followed = float(stalled[apart:][stalled[:-apart]].mean()) if stalled[:-apart].any() else 0.0
        if followed >= REGULAR_RATIO and followed > 2 * float(stalled.mean()):
            return apart
    return None


def _cause(
    run: Run, times: stepping.Averaged, long: NDArray[np.int64], every: int | None, added_ns: float
) -> tuple[str | None, float]:
    """Return what a stalled step does, and how many ns of a mean step that is known to take of those that
    stalls add."""
    steps = run.steps
    if steps is None or not len(times.row) or added_ns <= 0:
        return None, 0.0
    since = int(steps.step[times.row[0]])
    named = [
        *((LOADER, ns) for ns in (sum(spent.per_step(run, "input", since).values()),)),
        *((f"runs {name}", ns) for name, ns in spent.per_step(run, "callbacks", since).items()),
        *((f"compiles ({name})", ns) for name, ns in spent.per_step(run, "compile", since).items()),
    ]
    cause, ns = max(named, key=lambda each: each[1])
    if ns >= _MOSTLY * added_ns:
        return cause, min(ns, added_ns)
    return _place(run, times, long, every), 0.0


def _place(run: Run, times: stepping.Averaged, long: NDArray[np.int64], every: int | None) -> str | None:
    """Return where a stalled step is longer, by the times of calls and between them."""
    steps = run.steps
    assert steps is not None
    known = (steps.duration_ns >= 0) & (steps.interval_ns >= steps.duration_ns)
    rows, long = times.row[known[times.row]], long[known[long]]
    if not len(long):
        return None
    gap_ns = steps.interval_ns - steps.duration_ns
    between = float((gap_ns[long] - median(gap_ns[rows])).sum())
    within = float((steps.duration_ns[long] - median(steps.duration_ns[rows])).sum())
    on_torch = run.facts is not None and run.facts.framework.get("backend") == "torch"
    if every is not None and every in stepping.loaders(run.facts).values() and (on_torch or within > between):
        return LOADER
    if between > within:
        what = "input, callbacks or the loop" if on_torch else "callbacks or the loop"
        return f"stalls between two calls ({what})"
    return "stalls within the training function (input or compiling)"


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
