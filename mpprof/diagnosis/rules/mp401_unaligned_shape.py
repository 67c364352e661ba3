"""Sizes that are no multiple of 8 keep matrix work off the Tensor Cores, or badly fed.

What it means
    16-bit matrix instructions read operands in groups of 8 values. With M, N, K or channels that are no
    multiple of 8 the library pads, takes a kernel with narrow loads, or falls back to ordinary arithmetic.

How we know
    A 16-bit matrix kernel that ran on ordinary arithmetic, or whose name states an alignment below 8
    (`align1`, `align2`, `align4`), and of which a size that matters (by the recorded shapes, else by the
    layer's units or filters) is no multiple of 8. A size alone is not enough: libraries since cuBLAS 11 and
    cuDNN 7.6.3 often reach Tensor Cores anyway.

What it costs
    The kernel's time against that of an aligned one, by kernels of the same kind in this trace, by the
    baseline, or at most by the ratio of peak rates (low confidence).

What to do
    Round units, filters, batch and sequence length up to a multiple of 8 (64 is better on A100 and later):

        units = -(-units // 8) * 8
        data = data.batch(64, drop_remainder=True)

When to ignore
    When the layer's share is small; a first convolution with 3 channels is MP403, a vocabulary MP402.

Sources
    NVIDIA "Matrix Multiplication Background" and "Convolutional Layers" guides (multiples of 8 in 16 bits).
    NVIDIA/nvtx-plugins#20: a bad shape alone no longer prevents Tensor Cores. allenai/allennlp#4929: padding
    brought nothing on a Titan V, so that the kernel has to show it.
"""

from __future__ import annotations

from mpprof.analysis.layers import kinds as layers
from mpprof.diagnosis import attainable, evidence, shapes
from mpprof.diagnosis.cells import bad_sizes, off_or_narrow
from mpprof.diagnosis.outcomes import (
    NAMED,
    NO_MATRIX_UNITS,
    Clear,
    Found,
    Outcome,
    Scale,
    Unable,
    known,
    need,
)
from mpprof.diagnosis.signals import Signals

CODE, SLUG, TITLE = "MP401", "unaligned-shape", "Sizes that are no multiple of 8"
SPECIFICITY = NAMED
BOUND = "device"

TPU_WIDTH = 128
"""TensorFlow's mixed precision guide: multiples of 128 on TPUs."""
SCALE = Scale(info_ratio=0.01, warning_ratio=0.03, error_ratio=0.20)
"""As for every named layer: 3 % is the least worth editing a model for."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Unable("the run used no GPU: the rule of eight is the Tensor Cores'")
    if known(signals.accelerator) == "tpu":
        return _on_a_tpu(signals)
    need(signals.gpu_activity)
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    matmul = signals.select(lambda cell: cell.category == "matmul")
    if not matmul:
        return Clear("no matrix work in the trace")
    suspects = [row for row in matmul if off_or_narrow(signals.cells[row])]
    if not suspects:
        return Clear("every 16-bit matrix kernel ran on matrix units with full alignment")
    sizes = {row: bad_sizes(signals, row) for row in suspects}
    rows = [row for row in suspects if sizes[row] and not takes_images(signals, row)]
    if not rows:
        if all(sizes[row] is None for row in suspects):
            return Unable(
                "16-bit matrix kernels ran off the Tensor Cores, but neither their shapes nor their "
                f"layers' sizes are in the trace or the records{signals.hint('record model')}"
            )
        return Clear("all sizes of the matrix kernels in question are multiples of 8")
    best = attainable.matrix(signals, rows)
    if not isinstance(best, attainable.Attainable):
        return Unable(f"sizes that are no multiple of 8 were seen, but {best}")
    if signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear("the unaligned matrix kernels cost next to nothing")
    names = [
        signals.cells[row].layer or signals.cells[row].op or signals.cells[row].kernel or "" for row in rows
    ]
    odd = sorted({size for row in rows for size in sizes[row] or ()})
    return Found(
        summary=(
            f"{evidence.listed(names)}: sizes {evidence.listed([str(s) for s in odd])} are no "
            "multiple of 8, which costs "
            "{cost} {each} ({share})"
        ),
        evidence=(
            evidence.text("sizes", evidence.listed([str(s) for s in odd], 8), "multiples of 8"),
            evidence.ns("matrix time with such sizes", signals.time(tuple(rows))),
            evidence.text("attainable value from", best.source),
        ),
        confidence=best.confidence,
        scale=SCALE,
        claims=best.claims,
        layers=tuple(dict.fromkeys(n for row in rows if (n := signals.cells[row].layer))),
    )


def takes_images(signals: Signals, row: int) -> bool:
    """The first convolution, with the few channels of its images: a cause of its own (MP403)."""
    cell = signals.cells[row]
    first = next((f for f in known(signals.layers) or () if layers.is_convolution(f)), None)
    if first is None or cell.layer != first.name:
        return False
    sizes = shapes.matrix_dimensions(cell.shapes, cell.family)
    return min(sizes, default=shapes.ALIGNMENT) < shapes.ALIGNMENT


def _on_a_tpu(signals: Signals) -> Outcome:
    """By the recorded layers: a TPU's matrix unit is 128 wide, and pads what is not."""
    widths = {f.name: shapes.width(f) for f in need(signals.layers) if layers.is_matrix(f)}
    odd = {name: size for name, size in widths.items() if size and size % TPU_WIDTH}
    if not odd:
        return Clear(f"every layer's width is a multiple of {TPU_WIDTH}")
    words = evidence.listed([f"{name} ({size})" for name, size in odd.items()])
    return Found(
        summary=f"{words}: no multiple of {TPU_WIDTH}, to which a TPU pads every side of a product",
        cases=("tpu",),
        values={"multiple": TPU_WIDTH},
        evidence=(evidence.text("widths", words, f"multiples of {TPU_WIDTH}"),),
        confidence="medium",
        severity="info",
        layers=tuple(odd),
    )
