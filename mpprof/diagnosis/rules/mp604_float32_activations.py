"""Layers that compute in 16 bits hold float32 activations and their gradients.

What it means
    Keras 3 casts the input of its normalisation layers to float32, keeps what it computes there for the
    backward pass, and computes its gradient in float32. Without fusion the memory of activations shrinks by
    far less than half.

How we know
    The float32 tensors that are live at the peak in layers that compute in 16 bits: activations, kept for
    backward or not, and their gradients, which have a value for each example. A weight's gradient of that
    shape is recognised by the optimizer's op that frees it. With a baseline, the bytes that these layers keep
    beyond half of what they keep in the baseline.

What it costs
    The bytes that 16 bits would save: half of these tensors. With a baseline, activations kept for backward
    count only with the bytes beyond half of the baseline's. At most what the peak would fall by. If the
    baseline holds as many gradients as this run, part of the cost exceeds the expected saving, and is not in
    the gap.

When to ignore
    When memory is not what limits the batch.

Sources
    Counted on Keras 3.15.1 without XLA, bytes kept in a stack of three blocks: without norms -50 %, with
    batch norms -29 %, with layer norms -19 %. In a trace of Keras 3.15 on TensorFlow's CPU the gradient of a
    batch norm under mixed_bfloat16 takes three float32 tensors of the norm's size. OpenNMT/OpenNMT-py#1208
    (float16 needed more memory).
"""

from __future__ import annotations

from mpprof.analysis.memory.remedies import lowered
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP604", "float32-activations", "Layers that compute in 16 bits hold float32 activations"
ABOUT = "float32 activations"
OF_TRAINING = True


def judge(signals: Signals) -> Outcome:
    account, parts = need(signals.at_peak)
    kept = parts.wide(parts.kept)
    wide = kept + parts.wide(parts.flowing)
    against = account.beyond_16_bits_bytes
    beyond = lowered(parts, CODE, lambda held: held // 2) if against is None else against
    share = beyond / account.whole_bytes
    if share < NOTABLE_MEMORY:
        if parts.undecided_bytes // 2 + beyond >= NOTABLE_MEMORY * account.whole_bytes:
            return Unable(_undecided(parts.undecided_bytes))
        return Clear(f"{format_bytes(beyond)} beyond what 16 bits would hold")
    layers = sorted(wide, key=lambda layer: (-wide[layer], layer))
    of = {
        "kept for backward": kept.total(),
        "of gradients and of what is not kept": wide.total() - kept.total(),
    }
    said = " and ".join(f"{format_bytes(size)} {what}" for what, size in of.items() if size)
    said += f"; not counted: {_undecided(parts.undecided_bytes)}" if parts.undecided_bytes else ""
    return Found(
        summary=(
            "layers that compute in 16 bits hold float32 activations at the peak "
            f"({evidence.listed(layers)}): {said}"
        ),
        evidence=(
            evidence.ratio("share of the peak beyond 16 bits", share, NOTABLE_MEMORY),
            evidence.size("float32 activations of 16-bit layers", wide.total()),
        ),
        confidence="high" if against is not None else "medium",
        severity="warning" if share >= LARGE_MEMORY else "info",
        cost_bytes=beyond,
        layers=tuple(layers),
    )


def _undecided(size: int) -> str:
    return f"{format_bytes(size)} of float32 gradients: of activations or of weights, no event shows which"
