"""The loss scale grows without limit.

What it means
    A dynamic scale doubles after every 2000 steps without overflow. In a healthy float16 model an overflow
    stops it somewhere below 2^24. If nothing can overflow (the backward pass is all float32, or the loss is
    zero) it keeps doubling until it is infinite. It then stays infinite, because half of infinity is
    infinity, and every gradient divided by it is zero.

How we know
    The recorded loss scale. A reading above 2^24, and above every scale at which an overflow was seen, is a
    warning. One that is infinite, or within eight doublings of float32's largest number, is an error. A scale
    that started high and fell to its present value was stopped by an overflow, so it does not run away.

What it costs
    No time. When the scale is infinite the weights stop changing.

When to ignore
    A scale a little above 2^24 in a model with very small gradients.

Sources
    Executed with Keras 3.15.1: 2^126 becomes infinite in two growths, after which the weights do not change;
    113 doublings of 2000 steps from the default reach that. We found no user's report of it.
"""

from __future__ import annotations

import math

import numpy as np

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.numbers import NEVER_SCALED, never_scaled, what_is_lost, what_overflows
from mpprof.diagnosis.shared.skips import scale_words, without_loss_scale
from mpprof.model.arrays import Float64
from mpprof.model.run import UPDATE

CODE, SLUG, TITLE = "MP203", "loss-scale-runaway", "The loss scale grows without limit"
ABOUT = "a loss scale that runs away"
OF_TRAINING = True
LEADS = LEARNING

SUSPICIOUS_SCALE = 2.0**24
"""float16 spans 2^-24 to 2^16: a scale beyond 2^24 would lift its smallest number above 1."""
LAST_SCALE = 2.0**120
"""Eight doublings from float32's end."""


def judge(signals: Signals) -> Outcome:
    optimizer = known(signals.optimizer)
    # The scale that a loop records does not belong to its optimizer, as with PyTorch's GradScaler.
    recorded = known(signals.scales) is not None and not (optimizer and optimizer.fixed_scale)
    if (
        optimizer
        and not recorded
        and not optimizer.dynamic
        and not (optimizer.inner and optimizer.dynamic is None)
    ):
        return NotApplicable("there is no dynamic loss scale")
    if known(signals.scales) is None and (without := without_loss_scale(signals)) is not None:
        return without
    scales = need(signals.scales)
    if never_scaled(signals):
        return NEVER_SCALED
    highest = max(scales.tolist(), key=lambda s: math.inf if math.isnan(s) else s)
    if highest <= SUSPICIOUS_SCALE:
        return Clear(f"the loss scale stayed at or below {highest:g}")
    stopped = _overflowed_at(scales)
    if math.isfinite(highest) and stopped is not None and scales[-1] <= stopped:
        return Clear(f"an overflow stopped the loss scale at {scale_words(stopped)}")
    lost = what_is_lost(signals.case.run)
    breaks = lost if lost.no_scale_helps and lost.tensor != UPDATE else what_overflows(signals.case.run)
    why = f": {lost.words}" if breaks is lost else ""
    gone = not math.isfinite(highest) or highest >= LAST_SCALE
    return Found(
        said=f"the loss scale has grown to {scale_words(highest)} and nothing stops it{why}"
        if math.isfinite(highest)
        else "",
        summary=(
            "the loss scale is infinite: the weights no longer change"
            if not math.isfinite(highest)
            else f"the loss scale has grown to {highest:g} and nothing stops it{why}"
        ),
        evidence=(
            evidence.count("highest loss scale", highest, SUSPICIOUS_SCALE),
            *breaks.evidence,
        ),
        layers=breaks.layers,
        first=breaks.first if why else (),
        severity="error" if gone else "warning",
    )


def _overflowed_at(scales: Float64) -> float | None:
    """Return the scale at which the last overflow was seen: the one before it fell; None: it never fell."""
    falls = np.flatnonzero(scales[1:] < scales[:-1])
    return float(scales[falls[-1]]) if len(falls) else None
