"""Elementwise work is a large part of the step.

What it means
    Activations, additions, dropout, pooling and softmax move bytes and hardly compute, so 16 bits make them
    at most twice as fast. Once the matrix work has shrunk, they are most of what is left.

How we know
    The share of elementwise kernels in the account.

What it costs
    It limits what mixed precision can gain. One run cannot show what fusion would save.

When to ignore
    When XLA is on already.

Sources
    NVIDIA "Memory-Limited Layers" guide; apache/mxnet#14173; mit-han-lab/torchsparse#69.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP502", "memory-bound", "Elementwise work is a large part of the step"
ABOUT = "elementwise work of 30 % or more"
OF_ACCELERATOR = True

INFO_RATIO = 0.30
"""With a third of the step at most twice as fast, the whole stays below 6 times at best."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    ratio = need(signals.share("elementwise"))
    if ratio < INFO_RATIO:
        return Clear(f"elementwise work takes {format_ratio(ratio)} of the step")
    return Found(
        summary=(
            f"{format_ratio(ratio)} of {{whole}} is elementwise work, "
            "which 16 bits make at most twice as fast"
        ),
        evidence=(evidence.ratio("elementwise work in {whole}", ratio, INFO_RATIO),),
        severity="info",
    )
