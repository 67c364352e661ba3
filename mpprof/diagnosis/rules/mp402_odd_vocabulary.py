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

from mpprof.diagnosis import attainable, evidence, shapes
from mpprof.diagnosis.cells import off_or_narrow
from mpprof.diagnosis.outcomes import CONFIGURED, NO_MATRIX_UNITS, Clear, Found, Outcome, Scale, Unable, need
from mpprof.diagnosis.signals import HALF_DTYPES, Signals

CODE, SLUG, TITLE = "MP402", "odd-vocabulary", "The vocabulary is no multiple of 8"
SPECIFICITY = CONFIGURED
BOUND = "device"

SCALE = Scale(info_ratio=0.01, warning_ratio=0.03, error_ratio=0.20)


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers)
    mixed = any(f.compute_dtype in HALF_DTYPES and f.parameters != 0 for f in facts)
    judged = [f for f in facts if f.compute_dtype in HALF_DTYPES or (mixed and not signals.cells)]
    sizes = {f.name: shapes.width(f) or 0 for f in judged}
    large = {name: size for name, size in sizes.items() if size >= shapes.VOCABULARY}
    odd = {name: size for name, size in large.items() if size % shapes.ALIGNMENT}
    if not odd:
        return Clear("no layer has a large output that is no multiple of 8")
    if signals.on_cpu:
        return Unable("the run used no GPU: the rule of eight is the Tensor Cores'")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    words = evidence.listed([f"{name} ({size})" for name, size in odd.items()])
    shown = (evidence.text("layers", words, "multiples of 8"),)
    if not signals.cells:
        return Found(
            summary=(
                f"{words}: a vocabulary that is no multiple of 8 may miss the Tensor Cores; a trace "
                "would show it"
            ),
            evidence=shown,
            confidence="low",
            severity="info",
            layers=tuple(odd),
        )
    rows = signals.select(
        lambda cell: cell.layer in odd and cell.category == "matmul" and off_or_narrow(cell)
    )
    if not rows:
        if not signals.select(lambda cell: cell.layer in odd):
            return Unable(f"no kernel in the trace could be given to {words}")
        if signals.select(lambda cell: cell.layer in odd and cell.placement == "cuda_core"):
            return Clear("its products are not in 16 bits: not its size keeps them off the Tensor Cores")
        return Clear("its kernels ran on Tensor Cores with full alignment all the same")
    best = attainable.matrix(signals, rows)
    if not isinstance(best, attainable.Attainable):
        return Unable(f"{words} ran off the Tensor Cores, but {best}")
    if signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear("it costs next to nothing")
    return Found(
        summary=f"{words} is no multiple of 8: " + "{cost} {each} ({share})",
        evidence=(*shown, evidence.text("attainable value from", best.source)),
        confidence=best.confidence,
        scale=SCALE,
        claims=best.claims,
        layers=tuple(odd),
    )
