"""What the records timed beside the steps, per optimizer step: callbacks, waits for input, compiles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.statistics import averaged, held_up
from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen
from mpprof.model.run import Run
from mpprof.model.run_time import OURS
from mpprof.model.steps import ABSENT, StepTable

_CALLS_BEHIND = 2


@frozen
class Compiles:
    """What was compiled or traced after the first step of each `fit`, and the steps that ran then. `ns` is
    None where only the number is known."""

    calls: int
    ns: int | None
    steps: int
    took_ns: int  # by those steps, with what was compiled

    @property
    def ns_per_step(self) -> float | None:
        return self.ns / self.steps if self.ns is not None and self.steps else None

    @property
    def ratio(self) -> float | None:
        """The share of the steps' time; None where only the number is known."""
        return min(1.0, self.ns / self.took_ns) if self.ns is not None and self.took_ns > 0 else None


def per_step(run: Run, part: str, *, whole: bool = False) -> dict[str, float]:
    """Return the mean ns per step of a part within calls, by name and the longest first, over the steps that
    the step time is the mean of (without a step time, over all). A line that is of other steps, too, counts
    by its share of them, or, where only `whole` ones are wanted, not at all. Empty: none was timed, or no
    step ran."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None:
        return {}
    counted, spent = _counted(run, steps), spans.spent
    ran = int(counted.steps.sum())
    rows = spent.rows(part, ("batch",)) & (spent.ns != ABSENT)
    first, last = spent.first_step[rows], spent.last_step[rows]
    ratio = np.minimum(1.0, counted.number(first, last) / np.maximum(1, last - first + 1))
    if whole:
        ratio = np.floor(ratio)
    found: dict[str, float] = {}
    for key, ns in zip(spent.key[rows].tolist(), (spent.ns[rows] * ratio).tolist(), strict=True):
        if ns > 0:
            name = spent.keys[key].name
            found[name] = found.get(name, 0.0) + ns
    return {name: ns / ran for name, ns in sorted(found.items(), key=lambda each: -each[1])} if ran else {}


_OUTSIDE = ("epoch begin", "epoch", "validation", "train", "first")
_AT_THE_BEGIN = ("train", "first")
"""Where the first time is when things are set up."""


def outside_steps(run: Run, part: str) -> dict[str, int]:
    """Return the ns of a part that no step time holds and that comes again with each epoch or `fit`, by name
    and the longest first: at the edges of epochs, in validations, and as a `fit` after the first begins.
    Empty: none was timed."""
    spans = run.spans
    if spans is None:
        return {}
    spent = spans.spent
    rows = spent.rows(part, _OUTSIDE) & (spent.ns > 0)
    rows &= ~(spent.rows(part, _AT_THE_BEGIN) & (spent.first_step <= 1))
    found: dict[str, int] = {}
    for key, ns in zip(spent.key[rows].tolist(), spent.ns[rows].tolist(), strict=True):
        name = spent.keys[key].name
        found[name] = found.get(name, 0) + ns
    return dict(sorted(found.items(), key=lambda each: -each[1]))


@frozen
class _Counted:
    """The steps that the step time is the mean of, by its times: the last step of each, and how many they
    are."""

    last: Int64
    steps: Int64

    def number(self, first: Int64, last: Int64) -> Int64:
        """Return how many of them are among the steps from `first` to `last`."""
        return self._until(last) - self._until(first - 1)

    def _until(self, step: Int64) -> Int64:
        before = np.append(0, np.cumsum(self.steps))
        at = np.searchsorted(self.last, step, side="right")
        begin = np.append(self.last - self.steps, np.iinfo(np.int64).max)
        until: Int64 = before[at] + np.maximum(step - begin[at], 0)
        return until


def _counted(run: Run, steps: StepTable) -> _Counted:
    times = averaged(steps, run.facts, run.spans)
    if not len(times.row):
        return _Counted(steps.step, steps.covers)
    return _Counted(steps.step[times.row], times.steps)


def input_ns(run: Run) -> float | None:
    """Return the mean wait for input per step, without each epoch's first where that is told apart; None
    where it was not recorded."""
    spans, steps = run.spans, run.steps
    if spans is not None and spans.spent.rows("input").any():
        return sum(per_step(run, "input").values())
    if steps is None:
        return None
    rows = (steps.input_wait_ns >= 0) & _counts(run, steps)
    return _mean(steps.input_wait_ns[rows], steps, rows) if rows.any() else None


def _counts(run: Run, steps: StepTable) -> Bool:
    """Return the rows with a step that the step time is the mean of."""
    counted: Bool = _counted(run, steps).number(steps.step - steps.covers + 1, steps.step) > 0
    return counted


def device_wait_ns(run: Run, since: int | None) -> float | None:
    """Return for how long the host waits for the device, per step, where steps are timed between such waits:
    by what the calls behind a wait take above the others. About 0: the device keeps up with the host. None
    where no such call, or no other, has a time: an epoch's last one has none."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None:
        return None
    host_ns = np.maximum(steps.dispatch_ns - held_up(steps, spans.spent, "input"), 0.0)
    usable = (steps.dispatch_ns >= 0) & (steps.step >= (since or 1)) & ~steps.profiled
    at = np.flatnonzero(steps.synced & usable)
    at = at[at + _CALLS_BEHIND < len(steps)]  # the wait is in one of the next two calls
    behind = at[:, None] + np.arange(1, _CALLS_BEHIND + 1)
    others = usable & ~steps.synced
    others[behind] = False
    told = usable[behind].all(axis=1)
    if not told.any() or not others.any():
        return None
    above_ns = host_ns[behind[told]].sum(axis=1) - _CALLS_BEHIND * median(host_ns[others])
    ran = int(steps.covers[usable].sum())
    return max(0.0, median(above_ns)) * len(at) / ran


def gap_ns(run: Run) -> float | None:
    """Return the mean time per step between two calls, without the recorded wait for input that lies there;
    None where it was not recorded. A gap beside the profile window is left out."""
    steps = run.steps
    if steps is None:
        return None
    after = np.append(False, steps.profiled[:-1])[: len(steps)]
    rows = (steps.gap_ns >= 0) & _counts(run, steps) & ~steps.profiled & ~after
    if not rows.any():
        return None
    return max(0.0, _mean(steps.gap_ns[rows], steps, rows) - (input_ns(run) or 0.0))


def _mean(values: np.ndarray, steps: StepTable, rows: np.ndarray) -> float:
    return float(values.astype(np.float64).sum()) / max(1, int(steps.covers[rows].sum()))


@frozen
class Starts:
    """What `times` starts took; `ahead_ns`: at most, before the first hook of each."""

    times: int
    ns: int
    ahead_ns: int = 0


def first_calls_of_epochs(run: Run) -> Starts | None:
    """Return what the first calls of epochs, without those of a `fit`, took above a usual call; None where
    calls have no time of their own, or there is no such call."""
    steps = run.steps
    if steps is None or not len(steps):
        return None
    new_fit, new_epoch = (np.append(True, np.diff(each) != 0) for each in (steps.fit, steps.epoch))
    timed = (steps.duration_ns >= 0) & ~steps.profiled
    first, others = timed & new_epoch & ~new_fit, timed & ~new_epoch & ~new_fit
    if not first.any() or not others.any():
        return None
    above_ns = np.maximum(0, steps.duration_ns[first] - median(steps.duration_ns[others]))
    return Starts(int(first.sum()), int(above_ns.sum()))


def starts_of_fits(run: Run) -> Starts | None:
    """Return what each `fit` after the first took from its first hook to the end of its first call, above a
    usual call and without mpprof's own hooks; None where no later one has such a call."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None or not len(steps):
        return None
    new_fit = np.append(True, np.diff(steps.fit) != 0)
    timed = steps.duration_ns >= 0
    begins = {span.fit: span.begin_ns for span in spans.fits if span.begin_ns is not None}
    rows = [row for row in np.flatnonzero(new_fit & timed).tolist() if row and steps.fit[row] in begins]
    if not rows or not (timed & ~new_fit).any():
        return None
    took_ns = sum(int(steps.t_ns[row]) - begins[int(steps.fit[row])] for row in rows)
    spent = spans.spent
    ours = np.array([*(key.name == OURS for key in spent.keys), False], np.bool_)[spent.key]
    ours &= spent.rows("callbacks", ("train", "epoch begin")) & np.isin(spent.fit, steps.fit[rows])
    usual_ns = len(rows) * median(steps.duration_ns[timed & ~new_fit])
    ahead_ns = -int(spent.ns[spent.rows("profiler", ("end",)) & (spent.fit < steps.fit[-1])].sum())
    for earlier, later in pairwise(spans.fits):
        if earlier.end_ns is not None and later.begin_ns is not None:
            ahead_ns += later.begin_ns - earlier.end_ns
    return Starts(len(rows), max(0, int(took_ns - usual_ns - spent.ns[ours].sum())), max(0, ahead_ns))


@frozen
class CompilesOutside:
    """What is compiled anew where no step time holds it: `times` fits or epochs do so. `whole_calls`: `ns` is
    that of the first calls of these fits, with what they compile, because only the number of compiles is
    known."""

    times: int
    ns: int
    whole_calls: bool


def compiles_outside_steps(run: Run) -> CompilesOutside | None:
    """Return the compiles of the first calls of all fits after the first, and those outside the steps from
    the second epoch on; None where the records do not tell compiling, or there are none."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None or not len(steps):
        return None
    spent = spans.spent
    begins, ends = _first_calls(steps), _first_epochs(steps)
    first = steps.fit[0]
    again = (spent.calls > 0) & (spent.fit > first)
    again &= spent.rows("compile", ("batch",)) & (spent.first_step <= _of(begins, spent.fit))
    counted = again & (spent.ns == ABSENT)
    if counted.any():
        rows = [int(np.flatnonzero(steps.fit == fit)[0]) for fit in np.unique(spent.fit[counted])]
        took = steps.duration_ns[rows]
        return CompilesOutside(len(rows), int(took[took > 0].sum()), whole_calls=True)
    edges = spent.rows("compile", ("epoch", "validation")) & (spent.ns > 0)
    again = (again & (spent.ns > 0)) | (
        edges & ((spent.fit > first) | (spent.first_step > _of(ends, spent.fit)))
    )
    if not again.any():
        return None
    times = len({*zip(spent.fit[again].tolist(), spent.last_step[again].tolist(), strict=True)})
    return CompilesOutside(times, int(spent.ns[again].sum()), whole_calls=False)


def _first_calls(steps: StepTable) -> dict[int, int]:
    """Return the step of each fit's first call."""
    numbers, rows = np.unique(steps.fit, return_index=True)
    return dict(zip(numbers.tolist(), steps.step[rows].tolist(), strict=True))


def _first_epochs(steps: StepTable) -> dict[int, int]:
    """Return the last step of each fit's first epoch."""
    numbers, rows = np.unique(steps.fit, return_index=True)
    epoch = dict(zip(numbers.tolist(), steps.epoch[rows].tolist(), strict=True))
    return {fit: int(steps.step[(steps.fit == fit) & (steps.epoch == epoch[fit])].max()) for fit in epoch}


def _of(steps: dict[int, int], fits: Int64) -> Int64:
    return np.array([steps.get(fit, 0) for fit in fits.tolist()], np.int64)


def compiles(run: Run) -> Compiles | None:
    """Return what was compiled within steps after the first of each `fit`; None where the records do not tell
    compiling."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None or not spans.spent.rows("compile").any():
        return None
    spent = spans.spent
    rows = np.unique(steps.fit, return_index=True)[1]
    begun = _of(_first_calls(steps), spent.fit)
    again = spent.rows("compile", ("batch",)) & (spent.first_step > begun)
    later = np.ones(len(steps), np.bool_)
    later[rows] = False
    to_next = np.where(steps.dispatch_ns >= 0, steps.dispatch_ns, steps.interval_ns)
    took = np.where(steps.duration_ns >= 0, steps.duration_ns, to_next)[later]
    timed = spent.ns[again]
    only_counted = bool((spent.ns[spent.rows("compile")] == ABSENT).all())
    # XLA compiles a new shape without TensorFlow tracing anew.
    by_xla = any(fit.jit_compile for fit in run.facts.fits) if run.facts is not None else False
    counted = only_counted and (len(timed) > 0 or by_xla)
    return Compiles(
        calls=int(spent.calls[again].sum()),
        ns=None if counted else sum(timed[timed != ABSENT].tolist()),
        steps=int(steps.covers[later].sum()),
        took_ns=sum(took[took > 0].tolist()),
    )
