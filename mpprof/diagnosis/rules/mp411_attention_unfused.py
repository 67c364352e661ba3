"""Attention writes its scores to memory.

What it means
    On TensorFlow Keras has no flash attention: scores of batch x heads x length x length are written, masked,
    normalised and read again. In 16 bits that is half the bytes, and still most of the layer.

How we know
    Recorded attention layers, TensorFlow, and the softmax and elementwise kernels of these layers.

What it costs
    The time of those kernels. One run cannot show how much of it a fused kernel would save.

What to do
    Use shorter sequences, XLA, or a backend with a fused kernel:

        KERAS_BACKEND=jax python train.py

When to ignore
    With short sequences.

Sources
    Read in Keras 3.15.1: `dot_product_attention(flash_attention=True)` raises ValueError on TensorFlow;
    executed: softmax of MultiHeadAttention runs in float16.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import NAMED, NO_GPU, Clear, Found, NotApplicable, Outcome, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP411", "attention-unfused", "Attention writes its scores to memory"
ABOUT = "unfused attention"
SPECIFICITY = NAMED
BOUND = "device"

INFO_RATIO = 0.10
"""A tenth of the step around the products of attention: worth knowing, and a ceiling rather than a fault."""
_ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return NO_GPU
    names = {f.name for f in need(signals.layers) if f.class_name in _ATTENTION or f.kind in _ATTENTION}
    if not names:
        return NotApplicable("the model has no attention layer")
    if known(signals.backend) not in (None, "tensorflow"):
        return NotApplicable("other backends have fused attention")
    need(signals.gpu_activity)
    mine = signals.select(lambda cell: _within(cell.layer, names))
    if not mine:
        return Unable(f"no kernel in the trace could be attributed to {evidence.listed(sorted(names))}")
    rows = tuple(r for r in mine if signals.cells[r].category in ("elementwise", "reduce", "layout"))
    ratio = signals.time(rows) / signals.whole_ns
    if ratio < INFO_RATIO:
        return Clear(f"softmax and masks of attention take {format_ratio(ratio)} of the step")
    return Found(
        summary=f"softmax, masks and transposes of attention take {format_ratio(ratio)} of {{whole}}",
        evidence=(evidence.ratio("attention beside its products", ratio, INFO_RATIO),),
        severity="info",
        layers=tuple(sorted(names)),
    )


def _within(layer: str | None, names: set[str]) -> bool:
    """The layer itself or one inside it (its projections are layers of their own)."""
    return layer is not None and (layer in names or any(layer.startswith(f"{name}/") for name in names))
