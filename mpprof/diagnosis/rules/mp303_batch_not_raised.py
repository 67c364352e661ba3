"""Half the device's memory or more is free, and the batch could be larger.

What it means
    Mixed precision needs less memory for activations. Where the batch stays as it was, that is saved and not
    used: larger batches give longer kernels, which fill the device better.

How we know
    The allocator's peak against the device's memory.

What it costs
    Nothing that one run can tell: what twice the batch would bring must be measured.

What to do
    Double the batch and the learning rate's warm-up with it, and compare examples per second:

        mpprof compare RUN RUN_WITH_TWICE_THE_BATCH

When to ignore
    When the batch is chosen for the training's sake, or steps are bound by the host.

Sources
    TensorFlow's mixed precision guide ("try running with double the batch size"); hf#15026 (float16 ahead of
    float32 only from a batch of 64 on).
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, NOT_IN_16_BITS, Clear, Found, Outcome, Unable, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_bytes, format_ratio

CODE, SLUG, TITLE = "MP303", "batch-not-raised", "The batch could be larger"
ABOUT = "room for a larger batch"
SPECIFICITY = GENERAL
BOUND = "host"

FREE_RATIO = 0.5
"""With half of it free twice the batch fits for certain: weights and slots do not grow with it."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Unable("the run used no GPU")
    if need(signals.compute_dtype) not in ("float16", "bfloat16"):
        return NOT_IN_16_BITS
    peak, total = need(signals.summary).peak_memory_bytes, need(signals.device).memory_bytes
    if peak is None or not total:
        return Unable(
            f"the allocator's peak or the device's memory is not on record{signals.hint('record run')}"
        )
    free = 1.0 - peak / total
    if free < FREE_RATIO:
        return Clear(f"{format_ratio(free)} of the memory is free at the peak")
    return Found(
        summary=f"{format_ratio(free)} of the device's memory is free at the peak: twice the batch fits",
        evidence=(
            evidence.ratio("memory free at the peak", free, FREE_RATIO),
            evidence.size("peak", peak),
            evidence.text("device's memory", format_bytes(total)),
        ),
        confidence="medium",
        severity="info",
    )
