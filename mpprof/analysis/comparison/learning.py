"""Did it still learn: the losses of two runs after as many applied updates.

What Keras hands to its callbacks is the mean loss of the epoch so far. The sum over the epoch's first n steps
is n times that, and the mean of a stretch of steps is the difference of two such sums over its number of
steps. A skipped step applies no update, and with gradient accumulation only every k-th one does: the runs are
compared where as many updates were applied.

Nothing is judged where the loss is not known to be that mean, or is of something else.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from mpprof.analysis.arrays.mean_interval import half_width
from mpprof.model.arrays import Float64, Int64
from mpprof.model.frozen import frozen
from mpprof.model.outcome import Applied, Learning, LearningCurves, LossPoint
from mpprof.model.quantities import format_count, format_ratio
from mpprof.model.run import FitFacts, Run
from mpprof.model.steps import ABSENT, StepTable

FEWEST_STRETCHES, MOST_STRETCHES = 6, 20
FLAGGED_RATIO, WARNING_RATIO = 0.10, 0.25
"""A loss that is a tenth higher is worth a mention, one that is a quarter higher a warning. Two seeds of one
training often differ by some percent."""
LEAST_OF_FIRST = 0.01
"""Below a hundredth of the loss that the earlier run began with a difference is none: both have learned."""
NOTABLE_EPOCH_RATIO = 0.01
"""Epochs whose lengths differ by more than a hundredth are not of the same data."""
POINTS = 100
"""Of each curve: more are not seen in a figure."""


@frozen
class _Losses:
    """Running sums of one run, a row for each that carries a finite loss, and one for the beginning: updates
    applied by then, steps whose loss is known, and the sum of their losses. `broken`: the updates applied by
    the rows whose loss is not finite."""

    applied: Float64
    steps: Float64
    sums: Float64
    broken: Float64


def learning(
    baseline: Run,
    mixed: Run,
    speedup: float | None = None,
    interval: tuple[float, float] | None = None,
) -> Learning:
    """Hold the loss of `mixed` against that of `baseline`. `speedup`, `interval`: per step, as observed."""
    applied = _applied(baseline), _applied(mixed)
    found = _judged(baseline, mixed, applied)
    rates = [one.per_step if one else 0.0 for one in applied]
    if not all(rates) or rates[0] == rates[1] or speedup is None:
        return replace(found, applied=applied)
    ratio = rates[1] / rates[0]
    return replace(
        found,
        applied=applied,
        per_update=speedup * ratio,
        per_update_interval=(interval[0] * ratio, interval[1] * ratio) if interval else None,
    )


def curve_of(run: Run) -> tuple[LossPoint, ...]:
    """Return the mean losses of one run by the updates applied; empty: they are not known."""
    if _not_the_mean(run) is not None or _applied(run) is None:
        return ()
    return _curve(_losses(run))


def _judged(baseline: Run, mixed: Run, applied: tuple[Applied | None, Applied | None]) -> Learning:
    runs = baseline, mixed
    why = next((why for run in runs if (why := _not_the_mean(run))), None) or _unlike(baseline, mixed)
    why = why or next((f"how many updates {run.name} skipped is not on record"
                       for run, one in zip(runs, applied, strict=True) if one is None), None)  # fmt: skip
    if why is not None:
        return _not_judged(why)
    losses = _losses(baseline), _losses(mixed)
    curves = LearningCurves(_curve(losses[0]), _curve(losses[1]))
    last = min(one.updates for one in applied if one)
    window = last / 2, last
    broken = [bool((side.broken > window[0]).any()) for side in losses]
    if all(broken):
        return replace(_not_judged("neither run's loss is finite to the end"), curves=curves)
    if any(broken):
        return replace(_not_finite(runs, losses, broken), window=window, curves=curves)
    return replace(_held_against(runs, losses, window), window=window, curves=curves)


def _not_judged(why: str) -> Learning:
    return Learning("not judged", f"loss at equal applied updates: not judged ({why})", reason=why)


# --- what can be judged ------------------------------------------------------------------------------------


def _not_the_mean(run: Run) -> str | None:
    """Return why the loss of this run is not known to be Keras' running mean; None: it is."""
    if run.facts is None:
        return f"{run.name} has no records"
    if run.steps is None or not run.steps.loss_known.any():
        return f"the loss of {run.name} was not recorded"
    if run.facts.framework.get("loop") == "custom":
        return f"{run.name} is a custom loop, whose loss may be of a step or a mean"
    if run.facts.model is not None and run.facts.model.train_step is not None:
        return f"{run.name} has a train_step of its own, whose loss is not known to be the epoch's mean"
    return None


_Fact = Callable[[FitFacts], object]


def _unlike(baseline: Run, mixed: Run) -> str | None:
    """Return in what the two losses are of different things; None: as far as the records show, they are the
    same."""
    told: tuple[tuple[str, _Fact], ...] = (
        ("the loss function", lambda fit: fit.loss), ("the batch size", lambda fit: fit.batch_size),
    )  # fmt: skip
    for what, fact in told:
        sides: list[object] = []
        for run in (baseline, mixed):
            found = {fact(fit) for fit in run.facts.fits} if run.facts else set()
            if None in found or not found:
                return f"{what} of {run.name} is not on record"
            if len(found) > 1:
                return f"{what} of {run.name} is not one for all its fits"
            sides += found
        if _plain(sides[0]) != _plain(sides[1]):
            return f"{what} differs: {sides[0]} against {sides[1]}"
    lengths = _epoch_steps(baseline), _epoch_steps(mixed)
    if None not in lengths and abs(lengths[0] - lengths[1]) > NOTABLE_EPOCH_RATIO * max(lengths):  # type: ignore[operator,type-var]
        return f"the data are unlike: {lengths[0]} and {lengths[1]} steps an epoch"
    return None


def _plain(fact: object) -> str:
    """Return the plain text of a fact, so that a loss is the same by its class and by its function's name."""
    return str(fact).replace("_", "").lower()


def _epoch_steps(run: Run) -> int | None:
    """Return the steps of the longest epoch that another followed (the last may be broken off); None: there
    is none."""
    table = run.steps
    if table is None or not len(table):
        return None
    whole = np.bincount(_epoch_of(table), table.covers)[:-1]
    return int(whole.max()) if len(whole) else None


def _epoch_of(table: StepTable) -> Int64:
    """Return the number of each row's epoch, counted over all fits from 0."""
    change = (np.diff(table.fit) != 0) | (np.diff(table.epoch) != 0)
    return np.concatenate([[0], np.cumsum(change)]).astype(np.int64)


# --- updates and sums --------------------------------------------------------------------------------------


def _applied(run: Run) -> Applied | None:
    """Return the updates that the run applied; None where it is not known which updates were skipped."""
    if run.steps is None or not len(run.steps):
        return None
    skipped = _skipped(run, run.steps)
    if skipped is None:
        return None
    steps, last = int(run.steps.covers.sum()), round(float(skipped[-1]))
    return Applied(steps, last, (steps - last) / _accumulation(run))


def _accumulation(run: Run) -> int:
    return (run.last_fit.gradient_accumulation_steps if run.last_fit else None) or 1


def _skipped(run: Run, table: StepTable) -> Float64 | None:
    """Return the updates skipped up to each row: exact where they were read, between two readings in
    proportion."""
    read = np.flatnonzero(table.skipped != ABSENT)
    if len(read):
        by_then = np.cumsum(table.skipped[read]).astype(np.float64)
        ran = np.cumsum(table.covers)
        return np.asarray(np.interp(ran, [0, *ran[read]], [0.0, *by_then]), np.float64)
    optimizer = run.last_fit.optimizer if run.last_fit else None
    scales = optimizer is None or optimizer.dynamic is True or optimizer.class_name is None
    return None if scales else np.zeros(len(table))


def _losses(run: Run) -> _Losses:
    table = run.steps
    assert table is not None
    skipped = _skipped(run, table)
    assert skipped is not None
    applied = (np.cumsum(table.covers) - skipped) / _accumulation(run)
    epoch = _epoch_of(table)
    rows = np.flatnonzero(table.loss_known & np.isfinite(table.loss))
    steps = (table.batch[rows] + 1).astype(np.float64)  # of its epoch so far
    sums = steps * table.loss[rows]
    ends = np.flatnonzero(np.diff(epoch[rows]) != 0)  # the last row of each epoch but the last
    before = np.searchsorted(ends, np.arange(len(rows)), side="left")  # epochs that ended before each row
    whole_steps, whole_sums = (np.concatenate([[0.0], np.cumsum(of[ends])]) for of in (steps, sums))
    broken = np.flatnonzero(table.loss_known & ~np.isfinite(table.loss))
    return _Losses(
        applied=np.concatenate([[0.0], applied[rows]]),
        steps=np.concatenate([[0.0], steps + whole_steps[before]]),
        sums=np.concatenate([[0.0], sums + whole_sums[before]]),
        broken=applied[broken],
    )


def _means(losses: _Losses, edges: Float64) -> Float64:
    """Return the mean loss between each two edges, in updates; NaN where no step lies there."""
    steps, sums = (np.diff(np.interp(edges, losses.applied, of)) for of in (losses.steps, losses.sums))
    found: Float64 = np.divide(sums, steps, out=np.full(len(steps), np.nan), where=steps > 0)
    return found


def _curve(losses: _Losses) -> tuple[LossPoint, ...]:
    rows = len(losses.applied) - 1
    if rows < 1 or losses.applied[-1] <= 0:
        return ()
    edges = np.linspace(0.0, losses.applied[-1], min(POINTS, rows) + 1)
    means = _means(losses, edges)
    return tuple(
        LossPoint(float(at), float(mean))
        for at, mean in zip(edges[1:], means, strict=True)
        if np.isfinite(mean)
    )


# --- the comparison ----------------------------------------------------------------------------------------


def _not_finite(runs: tuple[Run, Run], losses: tuple[_Losses, _Losses], broken: list[bool]) -> Learning:
    at = broken.index(True)
    first, other = losses[at].broken[0], runs[1 - at].name
    text = (
        f"loss at equal applied updates: that of {runs[at].name} is not finite, first after "
        f"{format_count(int(first))} updates; that of {other} is finite"
    )
    return Learning("not finite", text, severity="error")


def _held_against(
    runs: tuple[Run, Run], losses: tuple[_Losses, _Losses], window: tuple[float, float]
) -> Learning:
    inside = [int(((side.applied > window[0]) & (side.applied <= window[1])).sum()) for side in losses]
    stretches = min(MOST_STRETCHES, *inside)
    if stretches < FEWEST_STRETCHES:
        few = runs[int(np.argmin(inside))].name
        return _not_judged(
            f"{few} has {min(inside)} losses in the second half of the updates; it needs {FEWEST_STRETCHES}"
        )
    edges = np.linspace(*window, stretches + 1)
    before, after = (_means(side, edges) for side in losses)
    known = np.isfinite(before) & np.isfinite(after)
    if known.sum() < FEWEST_STRETCHES:
        return _not_judged("too few stretches of the second half have a loss in both runs")
    before, after = before[known], after[known]
    was, now = float(before.mean()), float(after.mean())
    if was <= 0:
        return _not_judged(
            f"the loss of {runs[0].name} is not above zero, so a difference cannot be stated as a share of it"
        )
    difference = after - before
    half = half_width(difference) or 0.0
    middle = float(difference.mean())
    ratio, interval = middle / was, ((middle - half) / was, (middle + half) / was)
    begun = _curve(losses[0])[0].loss
    notable = abs(ratio) >= FLAGGED_RATIO and abs(middle) >= LEAST_OF_FIRST * abs(begun)
    worse, better = notable and interval[0] > 0, notable and interval[1] < 0
    updates = " to ".join(format_count(round(edge)) for edge in window)
    said = (
        f"loss at equal applied updates ({updates}): {was:.4g} → {now:.4g} "
        f"({_signed(ratio)}, 95 %: {_signed(interval[0])} to {_signed(interval[1])})"
    )
    if worse:
        said += "; the runs diverge. Other seeds or another order of the data may do that, too"
    elif better:
        said += "; the later run's is lower. Other seeds or another order of the data may do that, too"
    else:
        said += "; no divergence of a tenth or more"
    return Learning(
        "worse" if worse else "better" if better else "alike",
        said,
        severity=("warning" if ratio >= WARNING_RATIO else "info") if worse else None,
        stretches=len(difference),
        loss=(was, now),
        difference_ratio=ratio,
        interval=interval,
    )


def _signed(ratio: float) -> str:
    return f"{'-' if ratio < 0 else '+'}{format_ratio(abs(ratio))}"
