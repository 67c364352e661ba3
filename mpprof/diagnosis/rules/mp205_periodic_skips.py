"""One step is skipped each time the loss scale tries to grow.

What it means
    After every 2000 steps without overflow the loss scale doubles; if the new scale is too large, the next
    step overflows, is skipped, and the scale halves again. The scale thus stays as large as it can be. This
    is normal.

How we know
    Updates were skipped after the first 20 steps, fewer than one in a hundred.

What it costs
    Less than 0.1 % of the steps when they come once in 2000.

What to do
    Nothing. To skip fewer steps, let the scale grow less often:

        keras.optimizers.LossScaleOptimizer(optimizer, dynamic_growth_steps=20_000)

When to ignore
    Always.

Sources
    Read in Keras 3.15.1: initial scale 2^15, growth every 2000 steps, times two, divided by two.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Unable, need
from mpprof.diagnosis.shared.skips import MANY_RATIO, STARTUP_STEPS, without_loss_scale
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_count, format_ratio

CODE, SLUG, TITLE = "MP205", "periodic-skips", "Single steps skipped as the loss scale tries to grow"
ABOUT = "periodic skips"
SPECIFICITY = GENERAL
BOUND = "device"
OF_TRAINING = True


def judge(signals: Signals) -> Outcome:
    if (clear := without_loss_scale(signals)) is not None:
        return clear
    late, steps = need(signals.skips).within(STARTUP_STEPS + 1)
    if not steps:
        return Unable(f"no steps were read after the first {STARTUP_STEPS}; train longer")
    if not late:
        return Clear("no update was skipped after the start")
    ratio = late / steps
    if ratio >= MANY_RATIO:
        return Clear("more than single steps were skipped: see MP201")
    return Found(
        summary=(
            f"{format_count(late)} of {format_count(steps)} later updates were skipped "
            f"({format_ratio(ratio)}): normal"
        ),
        evidence=(evidence.ratio("skipped updates after the start", ratio, MANY_RATIO),),
        severity="info",
    )
