"""Layout changes take a noticeable part of the step.

What it means
    Tensor Core convolutions want channels last. With channels first, or with layers that permute in between,
    the library transposes activations before and after each kernel.

How we know
    The time of layout kernels (transposes, nchw/nhwc conversions) in the account.

What it costs
    Their time.

What to do
    Keep everything in channels_last:

        keras.config.set_image_data_format("channels_last")

    or let XLA choose layouts for the whole graph: model.compile(..., jit_compile=True). In a model without
    convolutions they are the model's own transposes: let XLA fuse them, or write the product so that it
    needs none (keras.ops.einsum takes its operands as they lie).

When to ignore
    When transposes are part of the model (attention heads) and small.

Sources
    pt#54324 (92 % of the time in genericTranspose around a grouped fp16 convolution), apache/tvm#4523 (up to
    25 %), apache/mxnet#17665 (9 %). NVIDIA "Convolutional Layers" guide (NHWC).
"""

from __future__ import annotations

from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Scale, Unable, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_ratio

CODE, SLUG, TITLE = "MP405", "layout-transposes", "Layout changes take a noticeable part of the step"
ABOUT = "layout changes"
SPECIFICITY = GENERAL
BOUND = "device"

SCALE = Scale(info_ratio=0.03, warning_ratio=0.08, error_ratio=0.25)
"""A warning at the 9 %, an error at the 25 % that users reported as a problem."""


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Unable("the run used no GPU")
    need(signals.gpu_activity)
    ratio = need(signals.share("layout"))
    if ratio < SCALE.info_ratio:
        return Clear(f"layout changes take {format_ratio(ratio)} of the step")
    rows = signals.select(lambda cell: cell.category == "layout")
    return Found(
        summary="transposes and layout changes take {cost} {each} ({share})",
        evidence=(
            evidence.ratio("layout changes in {whole}", ratio, SCALE.info_ratio),
            evidence.count("layout kernels {per}", sum(signals.cells[r].calls_per_step for r in rows)),
        ),
        cases=(_kind(signals),),
        scale=SCALE,
        claims=attainable.whole(rows),
    )


def _kind(signals: Signals) -> str:
    """Where convolutions ran they change the layout of images; else they are the model's own transposes."""
    convolves = signals.select(lambda cell: (cell.family or "").startswith("conv_"))
    return "convolutions" if convolves else "products"
