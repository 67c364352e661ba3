"""Optimizer updates are skipped again and again: the gradients are not finite, whatever the loss scale.

What it means
    A dynamic loss scale skips a step whose gradients overflow and halves itself. A few such steps at the
    start are normal (MP204). When they go on, the infinity or NaN does not come from the scale: the weights
    do not change, and every step takes its full time. In Keras 3 the scale has no floor and falls below 1
    towards 0.

How we know
    The exact count of skipped updates (steps that ran less the growth of the optimizer's own counter), after
    the first 20 steps; updates skipped in a row (a lower bound, since the counter is read every 16 steps); a
    loss scale below 1.

What it costs
    Every skipped step is wasted: the cost is the skipped share of the step time. No part of the account of a
    step is attributed to it.

What to do
    Find the first value that is not finite, then put that layer in float32, lower the learning rate, or
    change to bfloat16, whose range is that of float32:

        tf.debugging.enable_check_numerics()
        keras.config.set_dtype_policy("mixed_bfloat16")      # GPUs from compute capability 8.0, and TPUs

When to ignore
    About one skip in 2000 steps is the loss scale trying to grow (MP205).

Sources
    Executed with Keras 3.15.1: scale 4 -> 0.0625 after six overflows. keras-team/tf-keras#644 and
    keras#16100 ("stuck not learning for the first ~1M gradient steps"). NVIDIA/apex#493.
"""

from __future__ import annotations

import math

import numpy as np

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Unable, known, need
from mpprof.diagnosis.shared.skips import MANY_RATIO, STARTUP_STEPS, without_loss_scale
from mpprof.diagnosis.signals import Signals, SkipHistory
from mpprof.model.quantities import format_count, format_ratio

CODE, SLUG, TITLE = "MP201", "endless-skips", "Optimizer updates are skipped again and again"
ABOUT = "endless skips"
SPECIFICITY = GENERAL
BOUND = "device"
OF_TRAINING = True

FEWEST_STEPS = 20
"""Fewer steps after the start say nothing about a rate of one percent."""
ERROR_RATIO = 0.05
"""A hundred times what a healthy dynamic scale skips."""
FEWEST_SKIPS = 3
"""One skip, or two, late in a short run may be the last of the search for the scale: they make no rate."""
CONSECUTIVE = 10
"""Ten halvings in a row divide the scale by 1024: more than any healthy model needs after the start."""


def judge(signals: Signals) -> Outcome:
    if (clear := without_loss_scale(signals)) is not None:
        return clear
    history = need(signals.skips)
    total = int(history.skipped.sum())
    skipped, steps = history.within(STARTUP_STEPS + 1)
    longest, exact = longest_run(history)
    ratio = skipped / steps if steps else 0.0
    stuck = longest >= CONSECUTIVE and _ends_skipping(history)
    if steps < FEWEST_STEPS and not (stuck and longest > STARTUP_STEPS):
        return Unable(
            f"only {steps} steps were read after the first {STARTUP_STEPS}; train for at least "
            f"{STARTUP_STEPS + FEWEST_STEPS} steps"
        )
    if total == 0:
        return Clear("no update was skipped")
    if ratio < MANY_RATIO and not stuck:
        return Clear(f"after the start {format_ratio(ratio)} of the updates were skipped")
    if skipped < FEWEST_SKIPS and not stuck:
        return Unable(
            f"{format_count(skipped)} of {format_count(steps)} updates after the first {STARTUP_STEPS} were "
            f"skipped, too few to state a rate; train for at least {round(FEWEST_SKIPS / MANY_RATIO)} steps"
        )
    scales = known(signals.scales)
    last = float(scales[-1]) if scales is not None else None
    step_ns = signals.case.steps.mean_ns if signals.case.steps else None
    return Found(
        summary=(
            f"{format_count(skipped)} of {format_count(steps)} updates after the start were skipped "
            f"({format_ratio(ratio)})"
            + (f"; the loss scale has fallen to {_scale(last)}" if last is not None and last < 1 else "")
        ),
        evidence=(
            evidence.ratio("skipped updates after the start", ratio, MANY_RATIO),
            evidence.count("skipped updates in all", total),
            evidence.count(
                f"longest run of skipped updates{'' if exact else ', at least'}", longest, CONSECUTIVE
            ),
            *((evidence.count("last loss scale", last, 1.0),) if last is not None else ()),
        ),
        severity="error" if ratio >= ERROR_RATIO or stuck else "warning",
        cost_ns=ratio * step_ns if step_ns else None,
    )


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
    whole = np.flatnonzero(history.skipped < history.span)
    tail = history.skipped[whole[-1] + 1 :] if len(whole) else history.skipped
    return int(tail.sum()) >= CONSECUTIVE


def _scale(value: float) -> str:
    """Return a loss scale as people know it: powers of two by their exponent."""
    exponent = math.log2(value) if value > 0 else 0.5
    return f"2^{exponent:.0f}" if exponent.is_integer() else f"{value:.3g}"
