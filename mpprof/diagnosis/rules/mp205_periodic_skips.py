"""Single steps are skipped each time the loss scale tries to grow.

What it means
    After `dynamic_growth_steps` steps without overflow (2000 unless you set it) the loss scale doubles; if
    the new scale is too large, the next step overflows, is skipped, and the scale halves again. The scale
    thus stays as large as it can be. It also falls by one or a few halvings when gradients grow. Both are
    normal.

How we know
    Updates were skipped after the first 20 steps, and the skips end (MP201 is the other case): each took back
    a doubling of the recorded scale, or lowered it a few times and no more.

What it costs
    The skipped share of the step time: less than 0.1 % of the steps when they come once in 2000, one in 21
    where the scale grows every 20 steps.

When to ignore
    Always where they are fewer than one in a hundred.

Sources
    Read in Keras 3.15.1: initial scale 2^15, growth every 2000 steps, times two, divided by two.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.skips import MANY_RATIO, Skips, scale_words, skips_of, without_loss_scale

CODE, SLUG, TITLE = "MP205", "periodic-skips", "Single steps skipped as the loss scale tries to grow"
ABOUT = "periodic skips"
OF_TRAINING = True

OFTEN_RATIO = 0.10
"""One update in ten is more than any scale is worth (our judgement)."""


def judge(signals: Signals) -> Outcome:
    if (clear := without_loss_scale(signals)) is not None:
        return clear
    skips = skips_of(signals)
    if skips.endless:
        return Clear("more than single steps were skipped (MP201)")
    if skips.too_few:
        return Unable(skips.too_few)
    if not skips.late:
        return Clear("no update was skipped after the start")
    step_ns = signals.case.steps.mean_ns if signals.case.steps else None
    return Found(
        summary=(
            f"{format_count(skips.late)} of {format_count(skips.steps)} later updates were skipped "
            f"({format_ratio(skips.ratio)}){_why(signals, skips)}: normal"
        ),
        evidence=(evidence.ratio("skipped updates after the start", skips.ratio, MANY_RATIO),),
        cases=("often",) if skips.ratio >= MANY_RATIO else ("",),
        severity="warning" if skips.ratio >= OFTEN_RATIO else "info",
        cost_ns=skips.ratio * step_ns if step_ns and skips.ratio >= MANY_RATIO else None,
    )


def _why(signals: Signals, skips: Skips) -> str:
    """Return what the recorded scale says of these skips; "" where it was not read."""
    if not skips.scales_known:
        return ""
    regained = skips.late - skips.fallen
    if regained > skips.fallen:
        optimizer = known(signals.optimizer)
        every = optimizer.growth_steps if optimizer else None
        often = f", which it does every {every} steps" if every else ""
        which = f"{format_count(regained)} of them" if skips.fallen else "each"
        return f", {which} after the loss scale had doubled{often}"
    return f"; the loss scale fell to {scale_words(skips.low)}, and held there"
