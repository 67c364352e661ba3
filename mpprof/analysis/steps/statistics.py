"""The step log in short: which steps are steady, how long one takes, and how sure that is.

Times are per optimizer step: a call's interval over the steps that it covers. On an asynchronous backend a
line has an interval only where the device was waited for, and it is the mean since the wait before.

The step time is a mean (`averaged`): the time of all steps after warm-up, with every stall, over their
number. The median and the percentiles are over `steady` rows, and describe the shape.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from mpprof.analysis.arrays.mean_interval import half_width, of_mean
from mpprof.analysis.arrays.quantiles import median, quantile
from mpprof.model.arrays import Bool, Float64, Int64
from mpprof.model.frozen import frozen
from mpprof.model.limits import LONG_CALL_NS
from mpprof.model.run import RunFacts
from mpprof.model.run_time import Spans, SpentTable
from mpprof.model.steps import LossScaleSummary, StepSummary, StepTable, WorkerSummary

CONFIDENCE = 0.95
NS_PER_HOUR = 3.6e12
FEWEST_STEPS = 6
"""Steps that a step time rests on at the least."""
WIDEST = 0.5
"""Half of the widest interval that is still one, as a share of the step."""
_LEAST_SCALE = 0.005
"""Steps that agree to half a percent count as equal when warm-up is looked for."""
_SLOW_SCALES = 3.0
_SCATTERS = 2.0
"""Standard errors by which a mean lies above another for it to be the longer one."""
_LEAST_MODE = 0.1
_MODE_RATIO = 1.1
_MODE_SHARE = 0.85
"""Share of the variance that two modes must explain. Splitting a normal distribution at its mean explains
2/pi = 0.64 of it and a uniform one 0.75, so neither is taken for two modes."""
_SCALES_FROM_MAD = 1.4826  # of a normal distribution


@frozen
class Drift:
    """How the step time moved over the run: the median of the last third over that of the first, less 1.

    `significant`: the 95 % confidence intervals of the two medians do not meet."""

    ratio: float
    significant: bool


@frozen
class Bimodal:
    """Two kinds of steps: their medians, and the share of the slow ones."""

    fast_ns: float
    slow_ns: float
    slow_ratio: float


def asynchronous(steps: StepTable, facts: RunFacts | None = None) -> bool:
    """Return whether the steps were timed between waits, as the run's facts state or its dispatch times
    show."""
    if facts is not None and facts.timing is not None:
        return facts.timing.basis == "asynchronous"
    return bool((steps.dispatch_ns >= 0).any())


def per_step_ns(steps: StepTable) -> Float64:
    """Return the interval of each row per optimizer step; NaN where it has none that can be."""
    known = _possible(steps, steps.interval_ns) & (steps.covers > 0)
    return np.where(known, steps.interval_ns / np.maximum(steps.covers, 1), np.nan)


def _possible(steps: StepTable, ns: Int64) -> Bool:
    """Return which rows have a time that is no longer than the log, as damaged bytes state. The first one may
    be: no line says when it began. Where the clock began changes nothing."""
    known = ns >= 0
    length_ns = int(steps.t_ns.max() - steps.t_ns.min()) if len(steps) else 0
    possible: Bool = known & ((ns <= max(length_ns, 1)) | (np.cumsum(known) == 1))
    return possible


def function_ns(steps: StepTable, facts: RunFacts | None) -> float | None:
    """Return the median time of the steady steps without callbacks and the loop between them; None where the
    log does not tell it: on an asynchronous backend a call returns before its work is done."""
    if asynchronous(steps, facts):
        return None
    without_gap = np.where(steps.gap_ns >= 0, steps.interval_ns - steps.gap_ns, -1)
    time = np.where(steps.duration_ns >= 0, steps.duration_ns, without_gap) / np.maximum(steps.covers, 1)
    known = steady(steps) & (time > 0)
    return median(time[known]) if known.any() else None


def steady(steps: StepTable) -> Bool:
    """Return the rows whose interval counts: rows that are neither warm-up, profiled, next to a profiled one,
    nor an epoch's edge. Where steps are timed between waits, the interval before a window ends with the wait
    that comes before the profiler is started, and counts.

    An epoch's edge is its last row, which has no interval, and its first, which waits for the first batch
    (and follows a validation). Rows with a wait of ours are left out where the others did not wait. Either
    kind stays in where nothing else would be left. Warm-up ends per `fit`, at the change point.
    """
    time = per_step_ns(steps)
    dispatched = asynchronous(steps)
    rows = (time > 0) & ~_beside(steps.profiled, before=not dispatched)
    waits = np.zeros(len(steps), np.bool_) if dispatched else steps.synced
    for unwanted in (waits, _first_of_epoch(steps)):
        rows = _without(rows, unwanted)
    return rows & ~_warming_up(steps, time, {})


def _without(rows: Bool, unwanted: Bool) -> Bool:
    """Return these rows without the unwanted ones, which stay in where nothing else would be left."""
    return rows & ~unwanted if (rows & ~unwanted).any() else rows


def _warming_up(steps: StepTable, time: Float64, workers: Mapping[int, int]) -> Bool:
    """Return the rows up to the end of each fit's warm-up. `workers`: of the loader, by fit. While the first
    step was compiled they made a batch each: the steps that take these are as quick as the loader is not."""
    rows = np.zeros(len(steps), np.bool_)
    timed = np.flatnonzero((time > 0) & ~steps.profiled)
    timed = timed[np.argsort(steps.fit[timed], kind="stable")]
    for own in np.split(timed, np.flatnonzero(np.diff(steps.fit[timed])) + 1) if len(timed) else ():
        fit = int(steps.fit[own[0]])
        # The first mean between two waits holds the compilation, however few means there are.
        end = max(warm_up(time[own]), 1 if asynchronous(steps) else 0)
        if end < (ready := workers.get(fit, 0)) < len(own) / 2:
            end = ready
        rows |= (steps.fit == fit) & (np.arange(len(steps)) < (own[end] if end < len(own) else len(steps)))
    return rows


@frozen
class Averaged:
    """The rows that the step time is the mean of, in order: their time per optimizer step, and how many steps
    each stands for."""

    row: Int64
    time_ns: Float64
    steps: Int64

    @property
    def mean_ns(self) -> float | None:
        """The step time; None without rows."""
        total = int(self.steps.sum())
        return float((self.time_ns * self.steps).sum()) / total if total else None


def averaged(steps: StepTable, facts: RunFacts | None = None, spans: Spans | None = None) -> Averaged:
    """Return what the step time is the mean of: all calls after warm-up, however long they took, but for the
    profile window and the calls beside it.

    The time of an epoch's first call above a usual call is left out, because it may have waited for a buffer
    to fill. Where several workers make the batches, the time above the longest other call is out: what the
    workers take to start. The rest is the wait for as many batches, for which the calls that follow are
    short. An epoch's last call is in with the usual time between two calls, because the next call's begin is
    not known, and with what `spans` tell of a callback that took long behind it. Where steps are timed in
    groups, what is left out of the group of an epoch's first call is the wait for its batch, where `spans`
    tells it. In a `fit` on torch that wait comes before the call begins, however many workers there are: it
    is in no time of a call.
    """
    time, first = per_step_ns(steps), _first_of_epoch(steps)
    workers, of = loaders(facts), stands_for(steps, facts)
    framework = facts.framework if facts is not None else {}
    fetches_before = framework.get("backend") == "torch" and framework.get("loop") != "custom"
    waits = first & ~np.isin(steps.fit, list(workers)) & (not fetches_before)
    if asynchronous(steps, facts):
        rows = (time > 0) & ~_beside(steps.profiled, before=False) & ~_warming_up(steps, time, {})
        rows = _without(rows, waits)
        if spans is not None:
            fetched_ns = _first_fetches(steps, spans.spent, waits)
            time = np.where(rows, np.maximum(time - fetched_ns / np.maximum(of, 1), 0.0), time)
    else:
        usable = ~_beside(steps.profiled, before=True) & ~_warming_up(steps, time, workers)
        rows = _without((time > 0) & usable, waits)
        if rows.any():
            time = _with_edges(steps, time, rows, usable, waits, spans)
            rows |= usable & (time > 0)
    row = np.flatnonzero(rows)
    return Averaged(row, time[row], of[row])


def _with_edges(
    steps: StepTable, time: Float64, rows: Bool, usable: Bool, waits: Bool, spans: Spans | None
) -> Float64:
    """Return the time per step also of the first and last calls of epochs. `rows`: the other calls, `usable`:
    those neither of a warm-up nor beside a window, `waits`: first calls, which may wait for more than a
    batch."""
    covers = np.maximum(steps.covers, 1)
    known = _possible(steps, steps.duration_ns)
    own, gap = steps.duration_ns / covers, time - steps.duration_ns / covers
    inner, last = rows & known & (time > 0), np.append(_first_of_epoch(steps)[1:], True) & np.isnan(time)
    late = held_up(steps, spans.spent) / covers if spans is not None and spans.told else None
    time = time.copy()
    if not inner.any():  # calls without an end: each begins behind the fetch of its batch
        if late is not None:
            time[last & usable] = median(time[rows]) + late[last & usable]
        return time
    started = rows & known & _first_of_epoch(steps)  # of several workers
    if (others := inner & ~started).any():
        time[started] = np.minimum(own, own[others].max())[started] + gap[started]
    usual = median(own[inner])
    begins = waits & known & usable & (time > 0) & ~rows
    time[begins] = np.minimum(own, usual)[begins] + gap[begins]
    last &= usable & known & ~_first_of_epoch(steps)
    between = float(gap[inner].mean()) if late is None else median(gap[inner])
    time[last] = own[last] + max(0.0, between) + (0.0 if late is None else late[last])
    return time


def held_up(steps: StepTable, spent: SpentTable, *more: str) -> Float64:
    """Return for how many ns callbacks (and `more` parts) held up the training at each row's step, where that
    has a line of its own."""
    held = np.zeros(len(steps))
    alone = (spent.first_step == spent.last_step) & (spent.calls == 1) & (spent.ns >= LONG_CALL_NS)
    for part in ("callbacks", *more):
        at = np.flatnonzero(alone & spent.rows(part, ("batch",)))
        row = np.searchsorted(steps.step, spent.first_step[at])
        there = row < len(steps)
        np.add.at(held, row[there], spent.ns[at[there]])
    return held


def _first_fetches(steps: StepTable, spent: SpentTable, first: Bool) -> Float64:
    """Return how long each timed group waited for the first batch of an epoch: of the epochs that begin with
    the rows `first`."""
    waits = np.zeros(len(steps))
    timed = np.flatnonzero(steps.interval_ns >= 0)
    for at in np.flatnonzero(spent.rows("input", ("first",)) & (spent.calls > 0) & (spent.ns > 0)):
        low, high = spent.first_step[at], spent.last_step[at]
        begun = np.flatnonzero(
            first & (steps.fit == spent.fit[at]) & (steps.step >= low) & (steps.step <= high)
        )
        group = np.searchsorted(timed, begun)
        if len(begun) and group.max() < len(timed):
            np.add.at(waits, timed[group], spent.ns[at] / len(begun))
    return waits


def loaders(facts: RunFacts | None) -> dict[int, int]:
    """Return by fit how many workers make its batches, where they are several."""
    found = {}
    for fit in facts.fits if facts is not None else ():
        stated = [fit.input.get(key) for key in ("workers", "num_workers")]
        several = [number for number in stated if isinstance(number, int) and number > 1]
        if several:
            found[fit.fit] = several[0]
    return found


def rounds(facts: RunFacts | None) -> set[int]:
    """Return after how many batches a loader of several workers may wait for the next ones: as many as it has
    workers, or as its queue holds."""
    found = set(loaders(facts).values())
    for fit in facts.fits if facts is not None else ():
        holds = fit.input.get("max_queue_size")
        if fit.fit in loaders(facts) and isinstance(holds, int) and holds > 1:
            found.add(holds)
    return found


def _beside(profiled: Bool, *, before: bool) -> Bool:
    """Return the profiled rows, those after and, where wanted, those before them: a window opens and closes
    there."""
    wide = profiled.copy()
    wide[1:] |= profiled[:-1]
    if before:
        wide[:-1] |= profiled[1:]
    return wide


def _first_of_epoch(steps: StepTable) -> Bool:
    first = np.ones(len(steps), np.bool_)
    first[1:] = (np.diff(steps.fit) != 0) | (np.diff(steps.epoch) != 0)
    return first


def warm_up(time_ns: Float64) -> int:
    """Return how many of the first of these times are warm-up.

    The change point from slow to steady: the maximum of a cumulative sum (Page 1954) in which each step
    votes for "still slow" as far as it lies above the median of the second half, in robust scales (median
    absolute deviation of the logarithms), less three of them. A vote for it counts half as much as one
    against it, so two in three steps of a warm-up are slow: a loader's bursts are not warm-up, and neither
    are later slow steps. A single step is warm-up: it traced and compiled. Steps after it are none whose mean
    is that of as many of those that follow, within their scatter, whatever their
    median: a loader of several workers delivers now one by one, now all at once.
    """
    n = len(time_ns)
    if n <= 1:
        return n
    log = np.log(time_ns)
    tail = log[n // 2 :]
    middle = median(tail)
    scale = max(_LEAST_SCALE, _SCALES_FROM_MAD * median(np.abs(tail - middle)))
    vote = np.clip((log - middle) / scale - _SLOW_SCALES, -_SLOW_SCALES, _SLOW_SCALES / 2)
    total = np.concatenate([[0.0], np.cumsum(vote)])
    end = int(np.argmax(total))
    if 1 < end < n:
        after = time_ns[end:]
        if time_ns[1:end].mean() <= after.mean() + _SCATTERS * after.std() / math.sqrt(end - 1):
            return int(total[1] > 0)
    return end


def median_interval(values: Float64) -> tuple[float, float] | None:
    """Return a confidence interval of the median that assumes no distribution: order statistics whose ranks
    enclose it with at least this probability under Binomial(n, 1/2). None for fewer than 6 values, where 95 %
    cannot be had. Assumes that values do not depend on each other."""
    n = len(values)
    tail = (1.0 - CONFIDENCE) / 2.0
    below, rank = 0.5**n if n < 1000 else 0.0, 0
    if below > tail:
        return None
    if n >= 1000:  # the normal approximation is exact enough, and 0.5**n is soon no number
        from statistics import NormalDist  # it brings decimal, fractions and random with it

        rank = math.floor((n - 1) / 2 + NormalDist().inv_cdf(tail) * math.sqrt(n) / 2)
    else:
        mass = below
        while below + mass * (n - rank) / (rank + 1) <= tail:
            mass *= (n - rank) / (rank + 1)
            below += mass
            rank += 1
    ordered = np.sort(values)
    return float(ordered[rank]), float(ordered[n - 1 - rank])


def epochs_of_one_call(steps: StepTable) -> int | None:
    """Return how many epochs there are, where each is a single call: no step then has a time, which goes from
    one call to the next of the same epoch. None where an epoch is longer, or there is only one."""
    first = _first_of_epoch(steps)
    return len(steps) if len(steps) > 1 and first.all() else None


def left_out(steps: StepTable) -> tuple[int, int] | None:
    """Return how many steps come before and after those that have no row, where some of the log was not read.
    None where the log was read whole."""
    missing = steps.step[1:] - steps.covers[1:] - steps.step[:-1]
    if not (missing > 0).any():
        return None
    at = int(np.argmax(missing)) + 1
    return int(steps.covers[:at].sum()), int(steps.covers[at:].sum())


def drift(time_ns: Float64) -> Drift | None:
    """Return whether steady steps became slower or faster; None for fewer than 18 of them."""
    third = len(time_ns) // 3
    if third < 6:
        return None
    first, last = time_ns[:third], time_ns[-third:]
    one, other = median_interval(first), median_interval(last)
    apart = one is not None and other is not None and (one[1] < other[0] or other[1] < one[0])
    return Drift(median(last) / median(first) - 1.0, apart)


def bimodal(time_ns: Float64) -> Bimodal | None:
    """Return the two modes among steady steps; None where there are none, or fewer than 20 steps.

    The split that explains most of the variance of the logarithms (Otsu 1979), with the upper and lower
    2 % drawn in; it counts if it explains 85 %, each mode holds 10 % and they are 10 % apart.
    """
    n = len(time_ns)
    if n < 20:
        return None
    ordered = np.sort(time_ns)
    log = np.log(np.clip(ordered, quantile(ordered, 0.02), quantile(ordered, 0.98)))
    total = float(np.var(log)) * n
    if total <= 0.0:
        return None
    count = np.arange(1, n)
    sums = np.cumsum(log)
    low, high = sums[:-1] / count, (sums[-1] - sums[:-1]) / (n - count)
    between = count * (n - count) / n * (high - low) ** 2
    at = int(np.argmax(between)) + 1
    fast, slow = median(ordered[:at]), median(ordered[at:])
    clear = between[at - 1] / total >= _MODE_SHARE and slow / fast >= _MODE_RATIO
    if not clear or min(at, n - at) < _LEAST_MODE * n:
        return None
    return Bimodal(fast, slow, (n - at) / n)


def summarise(
    steps: StepTable | None, facts: RunFacts | None, *, spans: Spans | None = None, finished: bool = False
) -> StepSummary | None:
    """Return the step log in short; None without one. Percentiles are over rows, each a call (or, on
    asynchronous backends, the mean of the calls between two waits). `finished`: the last epoch has ended,
    too."""
    if steps is None:
        return None
    rows = steady(steps)
    time = per_step_ns(steps)[rows]
    skipped, ratio = _skipped(steps)
    times = averaged(steps, facts, spans)
    step_ns, interval = times.mean_ns, of_mean(times.time_ns, times.steps)
    batch = facts.fits[-1].batch_size if facts and facts.fits else None
    epoch = steps_per_epoch(steps, finished=finished)
    gpus = facts.replicas if facts and any(device.kind == "gpu" for device in facts.devices) else None
    number = int(stands_for(steps, facts)[rows].sum())
    return StepSummary(
        count=int(steps.covers.sum()),
        steady=number,
        first_steady=_first_steady(steps),
        mean_ns=step_ns,
        median_ns=median(time) if len(time) else None,
        p95_ns=quantile(time, 0.95) if len(time) else None,
        interval_ns=_interval(time, number) if asynchronous(steps, facts) else median_interval(time),
        skipped=skipped,
        skipped_ratio=ratio,
        loss_scale=_loss_scale(steps),
        peak_memory_bytes=_peak(steps),
        examples_per_s=batch / step_ns * 1e9 if batch and step_ns else None,
        steps_per_epoch=epoch,
        gpu_hours_per_epoch=epoch * step_ns * gpus / NS_PER_HOUR if epoch and step_ns and gpus else None,
        mean_interval_ns=None if isinstance(interval, str) else (interval.low, interval.high),
        why_no_interval=interval if isinstance(interval, str) else None,
    )


def _interval(time: Float64, stands_for: int) -> tuple[float, float] | None:
    """Return the 95 % interval of the step time where each of the times is itself a mean of several steps.

    Six of them have that of their median. Fewer, but of six steps at least, have Student's interval of their
    mean, which assumes that means of steps are spread normally. None for a single one, and where the interval
    is as wide as the step is long: that would tell nothing.
    """
    if (interval := median_interval(time)) is not None or stands_for < FEWEST_STEPS:
        return interval
    half = half_width(time)
    if half is None:
        return None
    middle = float(np.mean(time))
    return (middle - half, middle + half) if half < WIDEST * middle else None


def steps_per_epoch(steps: StepTable, *, finished: bool) -> int | None:
    """Return the steps of the median epoch among those that have ended: all but the last, and the last, too,
    of a run that has `finished`. None where no epoch has ended."""
    if not len(steps):
        return None
    number = np.cumsum(_first_of_epoch(steps)) - 1
    ran = np.bincount(number, steps.covers)
    ended = ran if finished else ran[:-1]
    return round(median(ended)) if len(ended) else None


def by_worker(logs: Mapping[int, StepTable]) -> tuple[WorkerSummary, ...]:
    """Return each worker's own step times, `logs` by worker; nothing for one that trained alone. Workers that
    exchange gradients in each step wait for the slowest: then all take the same time, and a trace shows which
    of them wait."""
    if len(logs) < 2:
        return ()
    return tuple(_of_worker(worker, logs[worker]) for worker in sorted(logs))


def _of_worker(worker: int, steps: StepTable) -> WorkerSummary:
    time = per_step_ns(steps)[steady(steps)]
    known = len(time) > 0
    return WorkerSummary(
        worker,
        int(steps.covers.sum()),
        averaged(steps).mean_ns,
        median(time) if known else None,
        quantile(time, 0.95) if known else None,
    )


def stands_for(steps: StepTable, facts: RunFacts | None) -> Int64:
    """Return the optimizer steps that each row's interval is of: where steps are timed between waits, also
    those of the lines before it without an interval."""
    if not asynchronous(steps, facts):
        return steps.covers
    timed = np.flatnonzero(steps.interval_ns >= 0)
    since = np.concatenate([[0], timed[:-1] + 1]).astype(np.int64)
    same = steps.epoch * 1_000_003 + steps.fit
    first = np.concatenate([[0], np.flatnonzero(np.diff(same)) + 1]).astype(np.int64)
    since = np.maximum(since, first[np.searchsorted(first, timed, side="right") - 1]) if len(timed) else since
    covered = np.concatenate([[0], np.cumsum(steps.covers)])
    found = np.zeros(len(steps), np.int64)
    found[timed] = covered[timed + 1] - covered[since[: len(timed)]]
    return found


def _first_steady(steps: StepTable) -> int | None:
    """Return the first step after warm-up; None where fewer than half of the timed steps come after it."""
    time = per_step_ns(steps)
    timed = np.flatnonzero(np.isfinite(time) & (time > 0) & ~steps.profiled)
    if not len(timed):
        return None
    own = timed[steps.fit[timed] == steps.fit[timed[0]]]
    end = warm_up(time[own])
    if end > len(own) / 2:
        return None
    row = own[end]
    return int(steps.step[row] - steps.covers[row] + 1)


def _skipped(steps: StepTable) -> tuple[int | None, float | None]:
    """Return the skipped updates, and their share of the steps up to the last line that counted them."""
    known = np.flatnonzero(steps.skipped >= 0)
    if not len(known):
        return None, None
    total = int(steps.skipped[known].sum())
    ran = int(steps.covers[: known[-1] + 1].sum())
    return total, total / ran if ran else None


def _loss_scale(steps: StepTable) -> LossScaleSummary | None:
    scale = steps.loss_scale[steps.loss_scale_known]
    if not len(scale):
        return None
    low, high = np.fmin.reduce(scale), np.fmax.reduce(scale)
    return LossScaleSummary(float(scale[0]), float(scale[-1]), float(low), float(high))


def _peak(steps: StepTable) -> int | None:
    """Return the highest peak. An allocator's peak falls only where it was reset, once after warm-up: the
    peak counts from there on, since before it autotuning and tracing may have needed more than a step."""
    peak = steps.peak_bytes[steps.peak_bytes >= 0]
    if not len(peak):
        return None
    fell = np.flatnonzero(np.diff(peak) < 0)
    return int(peak[fell[0] + 1 :].max() if len(fell) else peak.max())
