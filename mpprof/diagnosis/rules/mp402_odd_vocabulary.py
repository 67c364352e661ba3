"""The vocabulary is no multiple of 8, and the biggest matrix multiplication pays for it.

What it means
    In a language model the product with the vocabulary is the largest one. With an odd vocabulary its
    kernel loads narrowly or misses the Tensor Cores.

How we know
    A layer with 8192 or more outputs, no multiple of 8. With a trace: its kernels ran on ordinary arithmetic
    or say a narrow alignment. Without one it is a possibility only, and said as such; a layer left in float32
    (MP104) counts, too, for when it is not.

What it costs
    The layer's matrix time against that of aligned 16-bit kernels.

What to do
    Pad the vocabulary; the tokens added are never predicted:

        vocabulary = -(-vocabulary // 64) * 64

When to ignore
    When the layer is a small part of the step.

Sources
    tensorflow/models#7407 (33708 -> 33712 saves about 35 ms a step in fp16 on V100), PaddlePaddle/models#5134
    (14 -> 10 ms), NVIDIA/DeepLearningExamples#534.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence, reach, shapes
from mpprof.diagnosis.outcomes import CONFIGURED, Clear, Found, Outcome, Scale, Unable, need
from mpprof.diagnosis.rules.mp401_unaligned_shape import off_or_narrow
from mpprof.diagnosis.signals import HALF_DTYPES, Signals

CODE, SLUG, TITLE = "MP402", "odd-vocabulary", "The vocabulary is no multiple of 8"
SPECIFICITY = CONFIGURED

LARGE = 8192
"""Smaller outputs are classes, not vocabularies, and a small part of the step (our judgement)."""
SCALE = Scale(info_ratio=0.01, warning_ratio=0.03, error_ratio=0.20)
REMEDY = "pad the vocabulary to a multiple of 64: vocabulary = -(-vocabulary // 64) * 64"


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers)
    mixed = any(f.compute_dtype in HALF_DTYPES and f.parameters != 0 for f in facts)
    judged = [f for f in facts if f.compute_dtype in HALF_DTYPES or (mixed and not signals.cells)]
    sizes = {f.name: shapes.width(f) or 0 for f in judged}
    odd = {name: size for name, size in sizes.items() if size >= LARGE and size % shapes.ALIGNMENT}
    if not odd:
        return Clear("no layer has a large output that is no multiple of 8")
    if signals.on_cpu:
        return Unable("the run used no GPU: the rule of eight is the Tensor Cores'")
    words = evidence.listed([f"{name} ({size})" for name, size in odd.items()])
    shown = (evidence.text("layers", words, "multiples of 8"),)
    if not signals.cells:
        return Found(
            summary=(
                f"{words}: a vocabulary that is no multiple of 8 may miss the Tensor Cores; a trace "
                "would show it"
            ),
            remedy=REMEDY,
            evidence=shown,
            confidence="low",
            severity="info",
            layers=tuple(odd),
        )
    rows = signals.select(lambda cell: cell.layer in odd and cell.role == "matmul" and off_or_narrow(cell))
    if not rows:
        if not signals.select(lambda cell: cell.layer in odd):
            return Unable(f"no kernel in the trace could be given to {words}")
        return Clear("its kernels ran on Tensor Cores with full alignment all the same")
    reachable = reach.matrix(signals, rows)
    if not isinstance(reachable, reach.Reach):
        return Unable(f"{words} ran off the Tensor Cores, but {reachable}")
    if signals.cost_ratio(reachable.claims) < SCALE.info_ratio:
        return Clear("it costs next to nothing")
    return Found(
        summary=f"{words} is no multiple of 8: " + "{cost} a step ({share})",
        remedy=REMEDY,
        evidence=(*shown, evidence.text("reachable value from", reachable.source)),
        confidence=reachable.confidence,
        scale=SCALE,
        claims=reachable.claims,
        layers=tuple(odd),
    )
