"""Matrix kernels on Tensor Cores are memory-bound.

What it means
    With few channels or a small batch a matrix kernel does little work for each byte that it moves. It runs
    on Tensor Cores, but only as fast as memory delivers: 16 bits make it at most twice as fast.

How we know
    FLOPs and bytes of each kernel from its shapes, against the device's ridge: peak rate over bandwidth.

What it costs
    Nothing that 16 bits could recover: it is the limit of this model on this card.

When to ignore
    When the model needs these sizes.

Sources
    NVIDIA, Matrix Multiplication Background (arithmetic intensity); tf#40397 (channels 16, 32, 32 on a
    2080 Ti: 20 -> 15 steps a second).
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP404", "low-intensity", "Matrix kernels on Tensor Cores wait for memory"
ABOUT = "matrix work that waits for memory"
OF_ACCELERATOR = True

NOTABLE_RATIO = 0.20
"""A fifth of the step in such kernels bounds what Tensor Cores can do for the whole."""


def judge(signals: Signals) -> Outcome:
    account, peaks = need(signals.gpu_activity), need(signals.peaks)
    rate, bandwidth = peaks.flops_per_s.get(signals.half or "fp16"), peaks.bandwidth_bytes_per_s
    if not peaks.has_matrix_units:
        return NO_MATRIX_UNITS
    if not rate or not bandwidth:
        return Unable("the peak rates of this device are not known")
    rows = signals.select(
        lambda cell: (
            cell.category == "matmul" and cell.placement in ACCELERATED and cell.precision in HALF_PRECISIONS
        )
    )
    stated = [row for row in rows if signals.cells[row].flops_per_step and signals.cells[row].bytes_per_step]
    if not rows and signals.wide:
        return NOT_IN_16_BITS
    if rows and not stated:
        counted = any(signals.cells[row].flops_per_step for row in rows)
        return Unable(
            "the bytes that the matrix kernels move are not known, though their FLOPs are"
            if counted
            else "FLOPs and bytes of the matrix kernels are not known: the trace states no shapes"
        )
    ridge = rate / bandwidth
    below = [
        row
        for row in stated
        if (signals.cells[row].flops_per_step or 0.0) / (signals.cells[row].bytes_per_step or 1.0) < ridge
    ]
    ratio = signals.time(below) / account.step_ns
    if ratio < NOTABLE_RATIO:
        return Clear(f"matrix kernels bound by memory take {format_ratio(ratio)} of the step")
    names = [signals.cells[row].layer or signals.cells[row].op or "" for row in below]
    return Found(
        summary=(
            f"{evidence.listed(names)}: on Tensor Cores, but memory-bound, "
            f"{format_ratio(ratio)} of {{whole}}: at most twice as fast as in float32"
        ),
        evidence=(
            evidence.ratio("matrix kernels below the ridge in {whole}", ratio, NOTABLE_RATIO),
            evidence.count("ridge of this device in FLOP per byte", ridge),
        ),
        confidence="medium",
        severity="info",
        layers=signals.layers_of(below),
    )
