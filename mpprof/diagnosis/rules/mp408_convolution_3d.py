"""A 3-D convolution runs off the Tensor Cores.

What it means
    3-D convolutions got their Tensor Core kernels late (cuDNN 8). On older stacks, and in some layouts, they
    run on ordinary arithmetic in 16 bits, at times slower than in float32.

How we know
    A recorded Conv3D layer whose 16-bit matrix kernels ran on ordinary arithmetic.

What it costs
    Its matrix time against that of 16-bit kernels on Tensor Cores.

When to ignore
    When the layer is a small part of the step.

Sources
    tf#39985 (fixed by cuDNN 8; NCDHW 1.67 times faster), tf#33672 (Conv3D needs cuDNN 7.6.2), pt#24082.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from mpprof.diagnosis.cells import off_or_narrow, unattributed
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP408", "convolution-3d", "A 3-D convolution runs off the Tensor Cores"
ABOUT = "3-D convolutions"
SAYS = "the 3-D convolution {layers} runs off the {units}[, which costs {time}]"
ONCE = "once it fits the {units}"
SPECIFICITY = CONFIGURED
OF_ACCELERATOR = True

SCALE = OF_A_LAYER
_KINDS = ("Conv3D", "Conv3DTranspose")
_FIRST_CUDNN = 8
_ONLY_WITH_IT = (8, 0)
"""Ampere: older versions of cuDNN do not know these cards."""


def judge(signals: Signals) -> Outcome:
    names = {
        f.name for f in need(signals.layers_in_16_bits) if f.kind in _KINDS and f.compute_dtype in HALF_DTYPES
    }
    if not names:
        return NotApplicable("the model has no 16-bit 3-D convolution")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    need(signals.gpu_activity)
    mine = signals.select(lambda cell: cell.layer in names and cell.category == "matmul")
    if not mine:
        return unattributed(names)
    rows = [row for row in mine if off_or_narrow(signals.cells[row])]
    if not rows:
        return Clear("the 3-D convolutions ran on Tensor Cores")
    best = attainable.needed(signals, rows, "3-D convolutions ran off the Tensor Cores")
    if signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear("they cost next to nothing")
    return Found(
        summary=f"{evidence.listed(sorted(names))}: 3-D, and off the Tensor Cores: "
        + "{cost} {each} ({share})",
        evidence=(
            evidence.ns("their kernels off the Tensor Cores", signals.time(rows)),
            evidence.text("attainable value from", best.source),
        ),
        confidence=best.confidence,
        scale=SCALE,
        claims=best.claims,
        layers=tuple(sorted(names)),
    )


def check_model(model: Untrained) -> Iterator[Note]:
    cudnn = re.match(r"\d+", str(model.run.framework.get("cudnn") or ""))
    card = model.gpu.compute_capability if model.gpu else None
    if (cudnn and int(cudnn[0]) >= _FIRST_CUDNN) or (card and card >= _ONLY_WITH_IT):
        return
    for layer in model.half:
        if layer.kind in _KINDS:
            name, code = model.changed(layer)
            reason = "3-D: off the Tensor Cores before cuDNN 8, and in some layouts"
            yield Note(
                "info",
                name,
                reason,
                f"{code}  # with cuDNN {_FIRST_CUDNN} or later; compare both values of data_format",
                "A 3-D convolution may miss the Tensor Cores",
            )
