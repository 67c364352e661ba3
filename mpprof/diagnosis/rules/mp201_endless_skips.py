"""Optimizer updates are skipped again and again: the gradients are not finite, whatever the loss scale.

What it means
    A dynamic loss scale skips a step whose gradients overflow and halves itself. A few such steps at the
    start are normal (MP204). When they go on, the infinity or NaN does not come from the scale: the weights
    do not change, and every step takes its full time. In Keras 3 the scale has no floor and falls below 1
    towards 0.

How we know
    The exact count of skipped updates (steps that ran less the growth of the optimizer's own counter), and
    the loss scale. One of these is enough:

    - An update was skipped at a loss scale of 1 or less, which leaves it below 1, or at 1 in Keras 2: the
      gradients are not finite unscaled.
    - A dynamic loss scale fell below 1. Only overflows do that, so it counts also if skipped updates were not
      counted. If they were counted and there was none, it is a warning.
    - The last ten updates or more were all skipped; if the training has less than 40 steps, more than 20
      of them.
    - Ten or more were skipped in a row after the first 20 steps, and lowered the scale.
    - After the first 20 steps 1 % of the updates or more were skipped, and at least ten (three if the scale
      was not read). Updates that only took back a doubling of the scale are not among these.

    Updates that were all skipped from the first step on, until the scale held, are its search from far above
    (MP204). Updates skipped in a row are a lower bound, since the counter is read every 16 steps. Skips of
    steps in which the loss itself was not finite belong to MP206.

What it costs
    Every skipped step is wasted: the cost is the skipped share of the step time. No part of the account of a
    step is attributed to it.

When to ignore
    About one skip in 2000 steps is the loss scale trying to grow (MP205).

Sources
    Executed with Keras 3.15.1: scale 4 -> 0.0625 after six overflows. keras-team/tf-keras#644 and
    keras#16100 ("stuck not learning for the first ~1M gradient steps"). NVIDIA/apex#493.
"""

from __future__ import annotations

import math

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.numbers import NEVER_SCALED, never_scaled, what_overflows
from mpprof.diagnosis.shared.skips import (
    CONSECUTIVE,
    MANY_RATIO,
    Skips,
    fell_below_one,
    scale_words,
    skips_of,
    without_loss_scale,
)

CODE, SLUG, TITLE = "MP201", "endless-skips", "Optimizer updates are skipped again and again"
ABOUT = "endless skips"
OF_TRAINING = True
LEADS = LEARNING

_UNSCALED = ": the gradients are not finite even unscaled"


def judge(signals: Signals) -> Outcome:
    fell = fell_below_one(signals)
    if fell is not None and known(signals.skips) is None:
        return _fell(signals, *fell, counted=None)
    if fell is None and (clear := without_loss_scale(signals)) is not None:
        return clear
    skips = skips_of(signals)
    if math.isinf(skips.last):
        return NotApplicable("the loss scale is infinite (MP203)")
    if skips.endless is None and skips.with_loss:
        return NotApplicable("updates were skipped where the loss is not finite (MP206)")
    if skips.fell is not None:
        return _fell(signals, *skips.fell, counted=skips.total)
    if skips.too_few:
        return Unable(skips.too_few)
    if skips.endless is None:
        return Clear(_note(skips))
    of_all = skips.early > skips.late
    lost, of = (skips.total, skips.all_steps) if of_all else (skips.late, skips.steps)
    step_ns = signals.case.steps.mean_ns if signals.case.steps else None
    breaks = what_overflows(signals.case.run)
    skipped = f"{format_count(skips.total)} of {format_count(skips.all_steps)} updates were skipped"
    low = (
        f"fell to {scale_words(skips.low)}"
        if not math.isnan(skips.low)
        else f"stays at {scale_words(skips.last)}"
    )
    lowest = f", and the loss scale {low}" if skips.unscaled else ""
    return Found(
        said=breaks.said_after(skipped)
        if breaks.words
        else (
            skipped
            + (
                f" and the loss scale {low}: the gradients overflow by themselves"
                if skips.unscaled
                else ": the gradients overflow again and again"
            )
        ),
        summary=(
            f"{format_count(lost)} of {format_count(of)} updates {'' if of_all else 'after the start '}"
            f"were skipped ({format_ratio(lost / of)}){breaks.after(lowest)}"
            + (_UNSCALED if lowest and not breaks.words else "")
        ),
        evidence=(
            evidence.ratio("skipped updates after the start", skips.ratio, MANY_RATIO),
            evidence.count("skipped updates in all", skips.total),
            evidence.count(
                f"longest run of skipped updates{'' if skips.exact else ', at least'}",
                skips.longest,
                CONSECUTIVE,
            ),
            *((evidence.count("lowest loss scale", skips.low, 1.0),) if not math.isnan(skips.low) else ()),
            *breaks.evidence,
        ),
        layers=breaks.layers,
        first=breaks.first,
        proof="the scaled gradients were not finite, and those steps changed no weight",
        severity=skips.endless,
        cost_ns=lost / of * step_ns if step_ns else None,
    )


def _fell(signals: Signals, high: float, low: float, *, counted: int | None) -> Outcome:
    """Return the finding of a scale that has fallen below 1. `counted`: so many skipped updates, which make
    no finding of themselves; None: they were not counted."""
    if never_scaled(signals):
        return NEVER_SCALED
    fell = f"the loss scale fell from {scale_words(high)} to {scale_words(low)}"
    breaks = what_overflows(signals.case.run)
    halvings = (evidence.count("halvings of the loss scale", round(math.log2(high / low))),) if low else ()
    return Found(
        said=breaks.said_after(fell) if breaks.words else f"{fell}: the gradients overflow by themselves",
        summary=f"{fell}, which only overflows do{f': {breaks.words}' if breaks.words else _UNSCALED}"
        + ("" if counted is None else f", though {_updates(counted)} counted as skipped"),
        evidence=(evidence.count("lowest loss scale", low, 1.0), *halvings, *breaks.evidence),
        layers=breaks.layers,
        first=breaks.first,
        confidence="high" if counted is None else "medium",
        severity="error" if counted is None else "warning",
    )


def _updates(number: int) -> str:
    if number < 2:
        return f"{'one' if number else 'no'} update was"
    return f"{format_count(number)} updates were"


def _note(skips: Skips) -> str:
    if not skips.total:
        return "no update was skipped"
    return f"after the start {format_ratio(skips.ratio)} of the updates were skipped, and the scale held"
