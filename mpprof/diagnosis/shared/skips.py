"""What the skipped updates of a run are: the start of a dynamic loss scale, its attempts to grow, or skips
that do not end. Decided here once, so that no two rules hand a case to each other.

A dynamic scale halves with every skip and doubles after `growth_steps` updates without one. So a late skip
takes a doubling back (it leaves the scale at no new low) or lowers the scale below all it was since the
start. The former is how a scale is held as large as it can be, however often it comes.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from mpprof.diagnosis.outcomes import NOT_IN_16_BITS, NotApplicable, known, need
from mpprof.diagnosis.signals import Signals, SkipHistory
from mpprof.model.arrays import Bool, Float64
from mpprof.model.finding import Severity
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count

STARTUP_STEPS = 20
"""2^15 falls to 1 in fifteen halvings: what is still skipping after 20 steps is not looking for its scale."""
MANY_RATIO, ERROR_RATIO = 0.01, 0.05
"""A healthy dynamic scale skips one step in 2000: twenty times that, and a hundred times."""
FEWEST_STEPS = 20
"""Fewer steps after the start say nothing about a rate of one percent."""
FEWEST_SKIPS = 3
"""One skip, or two, late in a short run may be the last of the search for the scale: they make no rate."""
_FLOOR = 1.0
"""Of the loss scale in Keras 2, read in tf_keras 2.21: `tf.maximum(self.current_loss_scale / ..., 1)`."""
CONSECUTIVE = 10
"""Ten halvings in a row divide the scale by 1024: more than any healthy model needs after the start."""


@frozen
class Skips:
    """Skipped updates of the start (`early`, of `early_steps`) and of the `steps` after it (`late`).

    `fallen`: of the late ones, those that did not only take back a doubling of the scale. `endless`: how
    serious it is that skips do not end; None: they do. `too_few`: why that cannot be told. `with_loss`: skips
    of steps in which the loss itself was not finite, which are in none of the other counts. `longest` in a
    row, `exact` where it is known to be no more. `low`, `last`: the lowest and the last scale; NaN: not read.
    `at_floor`: updates were skipped at a scale of 1 or less, below which that of Keras 2 does not fall.
    `fell`: by `fell_below_one`, where the counted updates alone show no endless skips.
    """

    early: int
    early_steps: int
    late: int
    steps: int
    fallen: int
    with_loss: int
    longest: int
    exact: bool
    low: float
    last: float
    scales_known: bool
    at_floor: bool = False
    endless: Severity | None = None
    too_few: str = ""
    fell: tuple[float, float] | None = None

    @property
    def total(self) -> int:
        """All skipped updates, but those `with_loss`."""
        return self.early + self.late

    @property
    def all_steps(self) -> int:
        """The steps in which these could be skipped."""
        return self.early_steps + self.steps

    @property
    def ratio(self) -> float:
        """The share of late updates that were skipped."""
        return self.late / self.steps if self.steps else 0.0

    @property
    def unscaled(self) -> bool:
        """Gradients overflowed at a scale of 1 or less: no scale helps."""
        return self.low < 1.0 or self.at_floor


def without_loss_scale(signals: Signals) -> NotApplicable | None:
    """Return NotApplicable where nothing scales the loss, so that no update can be skipped."""
    optimizer = known(signals.optimizer)
    if known(signals.compute_dtype) in ("float32", "bfloat16") and not (optimizer and optimizer.inner):
        return NOT_IN_16_BITS if signals.wide else NotApplicable("nothing scales the loss")
    return None


def skips_of(signals: Signals) -> Skips:
    """Return what the skipped updates of this run are. Absent counts make the rule that asks *unable*."""
    every = need(signals.skips)
    optimizer = known(signals.optimizer)
    history = every[~every.spoiled]
    late = (history.step - history.span + 1 > STARTUP_STEPS) & ~_searching(history)
    before = np.concatenate([[_first_scale(every, optimizer.initial_scale if optimizer else None)],
                             every.scale[:-1]])[~every.spoiled]  # fmt: skip
    growth_steps = optimizer.growth_steps if optimizer else None
    steps, skipped = int(history.span[late].sum()), int(history.skipped[late].sum())
    scales_known = bool(np.isfinite(history.scale[late]).all())
    fallen = (
        _fallen(history, before, late) if scales_known else skipped - _may_grow(skipped, steps, growth_steps)
    )
    longest, exact = longest_run(history)
    lowered = history.scale[(history.skipped > 0) & np.isfinite(history.scale) & ~(history.scale >= before)]
    found = Skips(
        early=int(history.skipped[~late].sum()),
        early_steps=int(history.span[~late].sum()),
        late=skipped,
        steps=steps,
        fallen=fallen,
        with_loss=int(every.skipped[every.spoiled].sum()),
        longest=longest,
        exact=exact,
        low=float(np.min(lowered)) if len(lowered) else math.nan,
        last=float(history.scale[-1]) if len(history.scale) else math.nan,
        scales_known=scales_known,
        at_floor=bool(((history.skipped >= history.span) & (before <= _FLOOR)).any()),
    )
    found = _judged(found, history, late)
    fell = None if found.endless or found.with_loss else fell_below_one(signals)
    return found if fell is None else replace(found, fell=fell, endless="warning", too_few="")


def fell_below_one(signals: Signals) -> tuple[float, float] | None:
    """Return from which to which loss scale a dynamic one has fallen, where the latter is below 1; None: it
    has not. Overflows alone lower it, whether or not the updates that they cost were counted. What it did
    once the loss was not finite is the loss's."""
    table, optimizer = known(signals.table), known(signals.optimizer)
    if table is None or (optimizer is not None and optimizer.fixed_scale):
        return None
    spoiled = np.logical_or.accumulate(table.loss_known & ~np.isfinite(table.loss))
    scales = table.loss_scale[table.loss_scale_known & np.isfinite(table.loss_scale) & ~spoiled]
    if not len(scales) or (low := float(scales.min())) >= 1.0:
        return None
    initial = (optimizer.initial_scale if optimizer else None) or 0.0
    high = max(initial, float(scales[: int(scales.argmin()) + 1].max()))
    return (high, low) if high > low else None


def _judged(found: Skips, history: SkipHistory, late: Bool) -> Skips:
    """Return the same with the decision whether the skips end."""
    ratio = found.fallen / found.steps if found.steps else 0.0
    by_ratio: Severity = "error" if ratio >= ERROR_RATIO else "warning"
    stuck = found.longest >= CONSECUTIVE and _ends_skipping(history)
    if found.unscaled or (stuck and (found.steps >= FEWEST_STEPS or found.longest > STARTUP_STEPS)):
        return replace(found, endless="error")
    if found.steps < FEWEST_STEPS:
        why = (
            f"only {found.steps} steps were read after the first {STARTUP_STEPS}; train for at least "
            f"{STARTUP_STEPS + FEWEST_STEPS} steps"
        )
        return replace(found, too_few=why)
    in_a_row, _ = longest_run(history[late])
    if in_a_row >= CONSECUTIVE and found.fallen >= CONSECUTIVE // 2:
        return replace(found, endless=by_ratio)
    if ratio < MANY_RATIO:
        return found
    if found.fallen >= (CONSECUTIVE if found.scales_known else FEWEST_SKIPS):
        return replace(found, endless=by_ratio)
    if found.scales_known:
        return found
    why = (
        f"{format_count(found.late)} of {format_count(found.steps)} updates after the first {STARTUP_STEPS} "
        f"were skipped, too few to state a rate; train for at least {round(FEWEST_SKIPS / MANY_RATIO)} steps"
    )
    return replace(found, too_few=why)


def _first_scale(history: SkipHistory, initial: float | None) -> float:
    """Return the scale before the first reading: as it was set, else by what was skipped since."""
    return initial or float(history.scale[0] * 2.0 ** float(history.skipped[0]))


def _searching(history: SkipHistory) -> Bool:
    """Return which readings belong to the search for a first scale, however far above the right one it was
    set: all updates up to there were skipped, and the scale was read."""
    unbroken = (history.skipped >= history.span) & np.isfinite(history.scale)
    return np.logical_and.accumulate(unbroken)


def _fallen(history: SkipHistory, before: Float64, late: Bool) -> int:
    """Return how many of the late skips lowered the scale below all that it was since the start, or were made
    at a scale that can fall no further (Keras 2 stops at 1)."""
    fallen, held = 0, math.nan
    for skipped, scale, old, after_start in zip(
        history.skipped.tolist(), history.scale.tolist(), before.tolist(), late.tolist(), strict=True
    ):
        if not after_start:
            held = scale if math.isfinite(scale) else held
            continue
        if math.isnan(held):
            held = old
        if skipped and scale == old <= 1.0:
            fallen += skipped
        elif skipped and 0 < scale < held:
            fallen += min(skipped, max(1, round(math.log2(held / scale))))
        held = scale if math.isnan(held) else min(held, scale)
    return fallen


def _may_grow(skipped: int, steps: int, growth_steps: int | None) -> int:
    """Return how many of so many skips may have followed a growth of the scale, where no scale was read."""
    return min(skipped, steps // growth_steps) if growth_steps else 0


def longest_run(history: SkipHistory) -> tuple[int, bool]:
    """Return the least number of updates that were skipped in a row, and whether it is known to be no more.

    Over readings in which every update was skipped they are counted; of a reading in which some were not, as
    many follow each other at least as fall into the largest of the gaps between those. Skips of readings side
    by side may have been one run, and then the longest is not known."""
    least = most = whole = reach = 0
    for skipped, span in zip(history.skipped.tolist(), history.span.tolist(), strict=True):
        applied = max(0, span - skipped)
        whole = whole + skipped if span > 0 and not applied else 0
        least = max(least, whole, -(-skipped // (applied + 1)))
        reach = reach + skipped if skipped else 0
        most = max(most, reach)
        reach = skipped if applied else reach  # what was applied ends the run somewhere within this reading
    return least, least == most


def _ends_skipping(history: SkipHistory) -> bool:
    """Return whether the last updates, `CONSECUTIVE` or more, were all skipped."""
    whole = np.flatnonzero(history.skipped < history.span)
    tail = history.skipped[whole[-1] + 1 :] if len(whole) else history.skipped
    return int(tail.sum()) >= CONSECUTIVE


def scale_words(value: float) -> str:
    """Return a loss scale as people know it: powers of two by their exponent."""
    exponent = math.log2(value) if value > 0 and math.isfinite(value) else 0.5
    return f"2^{exponent:.0f}" if exponent.is_integer() else f"{value:.3g}"
