"""Depthwise convolution is slower in 16 bits than it was in float32.

What it means
    Depthwise convolution cannot use Tensor Cores, and some of its 16-bit kernels (the filter gradient above
    all, on older stacks) are many times slower than their float32 twins.

How we know
    The depthwise kernels' time in this run against that in the float32 baseline. Without a baseline it cannot
    be told from a depthwise convolution that is merely memory-bound.

What it costs
    The difference to the baseline.

What to do
    Keep those layers in float32, or let XLA generate the kernel:

        keras.layers.DepthwiseConv2D(3, dtype="float32")

When to ignore
    When the layer is as fast as in float32: it cannot be faster by much.

Sources
    tf#41715 (V100: 120 ms float32, 2000 ms mixed, 38 ms with depthwise kept in float32), google/automl#351
    (1.8 -> 0.2 steps/s), tf#37130. TensorFlow's auto_mixed_precision_lists.h adds depthwise for cuDNN 8 on.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import NAMED, Claim, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import RECORD_BASELINE, Signals
from mpprof.model.quantities import format_ratio, format_speedup

CODE, SLUG, TITLE = "MP406", "depthwise-convolution", "Depthwise convolution is slower than in float32"
SPECIFICITY = NAMED

SLOWER_RATIO = 1.10
"""A tenth is outside the noise between two runs."""
NOTABLE_RATIO = 0.05
"""Without a baseline, the share from which it is worth recording one."""
SCALE = Scale(info_ratio=0.01, warning_ratio=0.03, error_ratio=0.20)


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Unable("the run used no GPU")
    account = need(signals.gpu_account)
    rows = signals.select(lambda cell: cell.family == "depthwise")
    mine = signals.time(rows)
    if not rows or signals.half is None:
        return Clear("no depthwise convolution in 16 bits")
    baseline = known(signals.baseline)
    theirs = baseline.time(baseline.select(lambda cell: cell.family == "depthwise")) if baseline else 0.0
    if not theirs:
        if mine / account.step_ns < NOTABLE_RATIO:
            return Clear(f"depthwise convolution takes {format_ratio(mine / account.step_ns)} of the step")
        return Unable(
            f"depthwise convolution takes {format_ratio(mine / account.step_ns)} of the step, and "
            "whether it was faster in "
            f"float32 is not known; {RECORD_BASELINE}"
        )
    if mine < theirs * SLOWER_RATIO:
        return Clear("depthwise convolution is no slower than in the baseline")
    claims = tuple(Claim(row, signals.cells[row].ns_per_step * theirs / mine) for row in rows)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("the difference is next to nothing")
    return Found(
        summary=f"depthwise convolution takes {format_speedup(mine / theirs)} its time in float32: "
        + "{cost} a step ({share})",
        remedy='DepthwiseConv2D(..., dtype="float32") for those layers; a newer cuDNN; or jit_compile=True',
        evidence=(
            evidence.ns("depthwise kernels", mine, theirs),
            evidence.ns("the same in the baseline", theirs),
        ),
        scale=SCALE,
        claims=claims,
        layers=tuple(dict.fromkeys(n for r in rows if (n := signals.cells[r].layer))),
    )
