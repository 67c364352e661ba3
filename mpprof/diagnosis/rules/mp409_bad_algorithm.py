"""A 16-bit convolution or matrix product ran off the Tensor Cores although its sizes are right.

What it means
    The library tried out its algorithms and took, or was left with, one without Tensor Cores (FFT, Winograd,
    plain): because the fast one wanted more workspace than it got, or because the trial gave a wrong time.

How we know
    A kernel with 16-bit operands that ran on ordinary arithmetic, whose sizes are known and all multiples of
    8. Where another cause explains the kernel (MP104, MP401 to MP408), it is reported there.

What it costs
    Its time against that of 16-bit kernels on Tensor Cores.

When to ignore
    When the card has no Tensor Cores (MP801, MP802).

Sources
    tf#48127 (one head convolution 67 -> 1857 ms at one batch size), sonots/cumo#502 (1.27 -> 0.54 ms with
    more workspace), keras#15678 (4.7 GB wanted on an A10G), jax#11143.
"""

from __future__ import annotations

from mpprof.diagnosis.cells import bad_sizes, off_or_narrow
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = (
    "MP409",
    "bad-algorithm",
    "A 16-bit kernel without Tensor Cores, although its sizes are right",
)
ABOUT = "badly chosen algorithms"
SAYS = "{layers} run{s} off the {units}, although every size fits[, which costs {time}]"
ONCE = "with a better algorithm"
OF_ACCELERATOR = True

SCALE = OF_A_LAYER


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    suspects = signals.select(
        lambda cell: cell.category == "matmul" and cell.placement == "cuda_core" and off_or_narrow(cell)
    )
    rows = [row for row in suspects if bad_sizes(signals, row) == ()]
    if not suspects and signals.wide:
        return NOT_IN_16_BITS
    if not rows:
        if any(bad_sizes(signals, row) is None for row in suspects):
            return Unable("16-bit kernels ran off the Tensor Cores, but their sizes are not known")
        return Clear("no 16-bit kernel with aligned sizes ran off the Tensor Cores")
    best = attainable.needed(signals, rows, "16-bit kernels with aligned sizes ran off the Tensor Cores")
    if signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear("they cost next to nothing")
    heaviest = max(rows, key=lambda row: signals.cells[row].ns_per_step)
    where = signals.names_of(rows)
    return Found(
        summary=f"{evidence.listed(where)}: 16-bit, aligned, and still off the Tensor Cores: "
        + "{cost} {each} ({share})",
        evidence=(
            evidence.text("heaviest kernel", signals.cells[heaviest].kernel),
            evidence.ns("such kernels", signals.time(rows)),
            evidence.text("attainable value from", best.source),
        ),
        confidence=best.confidence,
        scale=SCALE,
        claims=best.claims,
        layers=signals.layers_of(rows),
    )
