"""Half the device's memory or more is free, and the batch could be larger.

What it means
    Larger batches give longer kernels, which fill the device better. Mixed precision needs less memory for
    activations: where the batch stays the same, the memory saved is not used.

How we know
    The allocator's peak against the device's memory. The peak is taken from the step log, else from the
    allocator's count in the trace, which runs since the process began.

What it costs
    One run cannot show it: measure what twice the batch gains.

When to ignore
    When the batch is chosen for the training's sake, or steps wait for input or copies.

Sources
    TensorFlow's mixed precision guide ("try running with double the batch size"); hf#15026 (float16 ahead of
    float32 only from a batch of 64 on).
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP303", "batch-not-raised", "The batch could be larger"
ABOUT = "room for a larger batch"
BOUND = "host"
OF_ACCELERATOR = True

FREE_RATIO = 0.5
"""With half of it free twice the batch fits for certain: weights and slots do not grow with it."""
BINDING_RATIO = 0.2
"""From a fifth of the step on, XProf's "highly" input-bound, waits for input and copies bind it: they are
twice as long for twice the batch."""


def judge(signals: Signals) -> Outcome:
    if signals.ran_out_of_memory:
        return OUT_OF_MEMORY  # whatever was free at the recorded peak
    if signals.before_the_model_ran:
        return Unable(
            "the window holds no whole step, and the peak covers the window only: activations may be missing"
        )
    held = signals.memory_in_use
    if isinstance(held, Absent):
        return Unable(f"{held.reason}{signals.hint('record run')}")
    peak, total = held
    free = 1.0 - peak / total
    if free < FREE_RATIO:
        return Clear(f"{format_ratio(free)} of the memory is free at the peak")
    feeding = signals.select(lambda cell: cell.category in ("idle_input", "copy"))
    if (share := signals.ratio(feeding)) >= BINDING_RATIO:
        return NotApplicable(
            f"input and copies take {format_ratio(share)} of the step, and grow with the batch"
        )
    return Found(
        summary=f"{format_ratio(free)} of the available memory is free at the peak: twice the batch fits",
        evidence=(
            evidence.ratio("memory free at the peak", free, FREE_RATIO),
            evidence.size("highest peak on record", peak),
            evidence.size("free at the peak", total - peak),
            evidence.text("available memory", format_bytes(total)),
        ),
        confidence="medium",
        severity="info",
        spare_bytes=total - peak,
    )
