"""Layers that compute in 16 bits keep float32 activations for the backward pass.

What it means
    Keras 3 casts the input of its normalisation layers to float32 and keeps what it computes there for the
    backward pass. Without fusion the activations shrink by far less than half.

How we know
    The float32 activations that are live at the peak, kept for backward, of layers that compute in 16 bits.
    With a baseline, what these layers keep beyond half of what they kept there.

What it costs
    The bytes beyond half; without a baseline, half of the float32 ones. No more than the peak falls by.

What to do
    Fuse the casts away with jit_compile=True, use fewer normalisation layers, or recompute them in the
    backward pass:

        model.compile(optimizer=optimizer, loss=loss, jit_compile=True)

When to ignore
    When memory is not what limits the batch.

Sources
    Counted on Keras 3.15.1 without XLA, bytes kept in a stack of three blocks: without norms -50 %, with
    batch norms -29 %, with layer norms -19 %. OpenNMT/OpenNMT-py#1208 (float16 needed more memory).
"""

from __future__ import annotations

from mpprof.analysis.memory.remedies import lowered
from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import GENERAL, NOT_IN_16_BITS, Clear, Found, Outcome, need
from mpprof.diagnosis.signals import LARGE_MEMORY, NOTABLE_MEMORY, Signals
from mpprof.model.quantities import format_bytes
from mpprof.tensors import WIDE

CODE, SLUG, TITLE = "MP604", "float32-activations", "Float32 activations are kept for backward"
ABOUT = "float32 activations"
SPECIFICITY = GENERAL
BOUND = "device"
OF_TRAINING = True


def judge(signals: Signals) -> Outcome:
    if signals.wide:
        return NOT_IN_16_BITS
    account, parts = need(signals.at_peak)
    wide = {
        layer: size
        for (layer, dtype), size in parts.kept.items()
        if dtype in WIDE and layer in parts.half_layers
    }
    of_gap = account.of_gap(CODE)
    beyond = lowered(parts, CODE, lambda held: held // 2) if of_gap is None else of_gap
    share = beyond / account.whole_bytes
    if share < NOTABLE_MEMORY:
        return Clear(f"{format_bytes(beyond)} beyond what 16 bits would keep")
    layers = sorted(wide, key=lambda layer: (-wide[layer], layer))
    return Found(
        summary=(
            f"{format_bytes(sum(wide.values()))} of float32 activations are kept for backward by layers that "
            f"compute in 16 bits ({evidence.listed(layers)})"
        ),
        evidence=(
            evidence.ratio("share of the peak beyond 16 bits", share, NOTABLE_MEMORY),
            evidence.size("float32 activations kept by 16-bit layers", sum(wide.values())),
        ),
        confidence="high" if of_gap is not None else "medium",
        severity="warning" if share >= LARGE_MEMORY else "info",
        cost_bytes=beyond,
        layers=tuple(layers),
    )
