"""The loss works through a large vocabulary in float32.

What it means
    Cross-entropy over batch x length x vocabulary logits is computed in float32 under any policy, as it
    should be: it reads and writes the largest tensor of the model in four bytes a value.

How we know
    Kernels of the loss that are not matrix work, and the shapes of the logits that they work on.

What it costs
    What those kernels take beyond one pass over the logits, read and written in 16 bits, which a fused loss
    still needs. Where shapes or the memory's bandwidth are not known, half of what they take.

What to do
    Compute the loss in chunks of the sequence, let XLA fuse it, or use a smaller vocabulary:

        model.compile(..., jit_compile=True)

When to ignore
    When it is a small part of the step. float32 is right for the loss itself.

Sources
    Executed with Keras 3.15.1: the loss is float32 though the prediction is float16.
"""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.analysis.attainable.work import streaming_ns
from mpprof.analysis.kernels import shapes
from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.cells import is_loss
from mpprof.diagnosis.outcomes import NAMED, Clear, Found, Outcome, Scale, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP507", "loss-float32", "The loss takes a noticeable part of the step in float32"
ABOUT = "the loss in float32"
SAYS = "the loss in float32 takes[ {time}] longer than it could"
ONCE = "once it is as short as it could be"
SPECIFICITY = NAMED
BOUND = "device"
OF_TRAINING = True
OF_ACCELERATOR = True

BYTES_PER_LOGIT = 4
"""A fused loss reads each logit once and writes its gradient once, both in 16 bits."""
SCALE = Scale(info_ratio=0.05, warning_ratio=0.25, error_ratio=0.50, normal=True)
"""Every language model has some of it; a quarter of the step is worth a loss of one's own."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    if signals.half is None:
        return signals.not_narrow
    rows = signals.select(is_loss)
    total, least = signals.time(rows), _one_pass_ns(signals, rows)
    if least is None:
        claims, than = attainable.halved(signals, rows), "with half the bytes"
    else:
        claims = attainable.scaled(signals, rows, max(1.0, total / least))
        than = "one pass over the logits in 16 bits"
    ratio = signals.cost_ratio(claims)
    if ratio < SCALE.info_ratio:
        return Clear(f"the loss could give back {format_ratio(ratio)} of the step")
    return Found(
        summary=f"the loss in float32 takes {{cost}} {{each}} longer than {than} ({{share}} of {{whole}})",
        evidence=(
            evidence.ns("kernels of the loss", total),
            *((evidence.ns("one pass over the logits in 16 bits", least),) if least is not None else ()),
            evidence.count("kernels {per}", signals.calls(rows)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
    )


def _one_pass_ns(signals: Signals, rows: Sequence[int]) -> float | None:
    """Return what a fused loss takes per step at least; None where logits or bandwidth are not known."""
    peaks = known(signals.peaks)
    cells = [signals.cells[row] for row in rows]
    logits = max((shapes.largest(cell.shapes) * cell.calls_per_step for cell in cells), default=0.0)
    if not logits or peaks is None or not peaks.bandwidth_bytes_per_s:
        return None
    return streaming_ns(logits * BYTES_PER_LOGIT, peaks.bandwidth_bytes_per_s)
