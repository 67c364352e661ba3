"""Copies are not hidden behind work.

What it means
    Each batch travels to the device. Where it is sent ahead, the copy runs beside the step before; where it
    is not, the device waits for it. Mixed precision shortens the work and leaves the copy as it is. Copies
    within the device are of another kind: tensors that are put together, cloned or made contiguous.

How we know
    Time in which a copy runs and no kernel does, in the account's class `copy`.

What it costs
    Those instants. A float32 run has the same, so that they are part of no gap: they are a ceiling.

What to do
    Send fewer bytes, and send them ahead: images as uint8, scaled on the device, and a prefetch to it:

        keras.layers.Rescaling(1 / 255)          # in the model, on uint8 images
        dataset.apply(tf.data.experimental.prefetch_to_device("/GPU:0"))

    For copies within the device: find the ops that issue them (`mpprof ops RUN`), and let a compiler fuse
    them away (jit_compile=True), or build the tensor in its place.

When to ignore
    When the copies are logs read once in many steps.

Sources
    NVIDIA, CUDA C++ Best Practices (overlapping transfers with work); TensorFlow's guide to data performance.
"""

from __future__ import annotations

import re

from mpprof.diagnosis import evidence, reach
from mpprof.diagnosis.advice import advice
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Scale, Unable, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP310", "exposed-copies", "Copies are not hidden behind work"
SPECIFICITY = GENERAL

_WITHIN = re.compile(r"D(evice)?\s*(to|2|->)\s*D", re.IGNORECASE)
FROM_OUTSIDE = "send uint8 instead of float32 and scale on the device; prefetch batches to the device"
WITHIN = (
    "these copies stay within the device: find the ops that issue them (mpprof ops RUN) and build their "
    "results in place",
    "jit_compile=True may fuse them away",
)
NEVER = 2.0
SCALE = Scale(info_ratio=0.10, warning_ratio=NEVER, error_ratio=NEVER, normal=True)
"""A mention from a tenth of the step. A float32 run has the same copies: by themselves they are no fault of
mixed precision, however much of a short step they take."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Unable("the run used no GPU")
    need(signals.gpu_account)
    rows = signals.select(lambda cell: cell.role == "copy")
    claims = reach.whole(rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear(f"copies take {format_ratio(signals.cost_ratio(claims))} of the step")
    within = signals.time(tuple(row for row in rows if _WITHIN.search(signals.cells[row].kernel or "")))
    return Found(
        summary="the device does nothing but copy for {cost} a step ({share})",
        remedy=advice(signals, *WITHIN) if 2 * within > signals.time(rows) else FROM_OUTSIDE,
        evidence=(
            evidence.ratio("exposed copies in the step", signals.cost_ratio(claims), SCALE.info_ratio),
            evidence.count("copies per step", sum(signals.cells[row].calls_per_step for row in rows)),
            evidence.ratio("of them within the device", within / signals.time(rows)),
        ),
        scale=SCALE,
        claims=claims,
    )
