"""The loss works through a large vocabulary in float32.

What it means
    Cross-entropy over batch x length x vocabulary logits is computed in float32 under any policy, as it
    should be: it reads and writes the largest tensor of the model in four bytes a value.

How we know
    Kernels of the loss that are not matrix work, and the size of the last layer's output.

What it costs
    The time of those kernels. A chunked or fused loss would move a fraction of their bytes.

What to do
    Compute the loss in chunks of the sequence, let XLA fuse it, or use a smaller vocabulary:

        model.compile(..., jit_compile=True)

When to ignore
    When it is a small part of the step. float32 is right for the loss itself.

Sources
    Executed with Keras 3.15.1: the loss is float32 though the prediction is float16.
"""

from __future__ import annotations

from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.cells import is_loss
from mpprof.diagnosis.outcomes import NAMED, NO_GPU, Clear, Found, Outcome, Scale, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP507", "loss-float32", "The loss takes a noticeable part of the step in float32"
ABOUT = "the loss in float32"
SPECIFICITY = NAMED
BOUND = "device"
OF_TRAINING = True

SCALE = Scale(info_ratio=0.05, warning_ratio=0.25, error_ratio=0.50, normal=True)
"""Every language model has some of it; a quarter of the step is worth a loss of one's own."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return NO_GPU
    need(signals.gpu_activity)
    if signals.half is None:
        return signals.not_narrow
    rows = signals.select(is_loss)
    claims = attainable.whole(rows)
    ratio = signals.cost_ratio(claims)
    if ratio < SCALE.info_ratio:
        return Clear(f"the loss takes {format_ratio(ratio)} of the step")
    return Found(
        summary="the loss takes {cost} {each} ({share}) in float32",
        evidence=(
            evidence.ns("kernels of the loss", signals.time(rows)),
            evidence.count("kernels {per}", sum(signals.cells[r].calls_per_step for r in rows)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
    )
