"""Layout changes take a noticeable part of the step.

What it means
    Tensor Core convolutions want channels last. With channels first, or with layers that permute in between,
    the library transposes activations before and after each kernel.

How we know
    The time of layout kernels (transposes, nchw/nhwc conversions) in the account, without those that put
    tensors together or pad them: 3 % of the step, or 15 % of the device's work in a step that is mostly idle.

What it costs
    Their time.

When to ignore
    When transposes are part of the model (attention heads) and small.

Sources
    pt#54324 (92 % of the time in genericTranspose around a grouped fp16 convolution), apache/tvm#4523 (up to
    25 %), apache/mxnet#17665 (9 %). NVIDIA "Convolutional Layers" guide (NHWC).
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP405", "layout-transposes", "Layout changes take a noticeable part of the step"
ABOUT = "layout changes"
SAYS = "transposes and layout changes take[ {time}]"
ONCE = "without them"
OF_ACCELERATOR = True

_CONCATENATES = r"^aten::(cat|concat|stack)$|^Concat(V2)?$|^Pack$|CatArray|concat_(fixed|variable)"
_PADS = r"AddPadding|^(loop_|wrapped_)pad(_fusion|$|_\d)|^Pad(V2)?$|^MirrorPad|constant_pad_nd"
_FILTERS = r"ShuffleInTensor3"
"""TensorFlow's kernel that turns a convolution's filter from height, width, input, output to what cuDNN takes
(`TransformFilter`, conv_2d_gpu.h); images are swapped by others (`SwapDimension1And2InTensor3`)."""
SCALE = Scale(info_ratio=0.03, warning_ratio=0.08, error_ratio=0.25)
"""A warning at the 9 %, an error at the 25 % that users reported as a problem."""
OF_THE_WORK = 0.15
"""Of the device's work: such transposes become notable as soon as it idles less (17 % in a public trace)."""
OF_THE_MODEL = Scale(SCALE.info_ratio, SCALE.warning_ratio, SCALE.error_ratio, normal=True)
"""The model's own transposes, as around the heads of attention: every run without a compiler that fuses them
has them, as it has norms. Those reports are of convolutions."""


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    rows = signals.select(lambda cell: cell.category == "layout" and not _keeps_order(cell))
    ratio, work = signals.ratio(rows), signals.time(signals.work)
    of_work = signals.time(rows) / work if work > 0 else 0.0
    small = ratio < SCALE.info_ratio
    if small and of_work < OF_THE_WORK:
        return Clear(f"layout changes take {format_ratio(ratio)} of the step")
    kind = _kind(signals, rows)
    claims, summary = attainable.whole(rows), "transposes and layout changes take {cost} {each} ({share})"
    if kind == "filters" and signals.half is None:
        # Nothing but fewer bytes makes them shorter; a larger batch spreads them over more examples.
        claims = tuple(Claim(row, signals.cells[row].ns_per_step / 2) for row in rows)
        summary = (
            f"transposes of the convolutions' filters take {format_ns(signals.time(rows))} {{each}} "
            f"({format_ratio(ratio)}), which 16 bits can halve"
        )
    elif kind == "filters":
        summary = summary.replace("and layout changes", "of the convolutions' filters")
    if small:
        summary = f"{summary}, {format_ratio(of_work)} of the device's work"
    return Found(
        summary=summary,
        severity="info" if small else None,
        evidence=(
            evidence.ratio("layout changes in the device's work", of_work, OF_THE_WORK)
            if small
            else evidence.ratio("layout changes in {whole}", ratio, SCALE.info_ratio),
            evidence.count("layout kernels {per}", signals.calls(rows)),
        ),
        cases=(kind,),
        scale=OF_THE_MODEL if kind == "products" else SCALE,
        claims=claims,
    )


def _keeps_order(cell: Cell) -> bool:
    """Return whether the cell puts tensors together or pads one. This moves them as a transpose does, and no
    other layout avoids it: the first is part of the model, the second gives a convolution channels that
    Tensor Cores can read (cuDNN and XLA pad the 3 channels of images this way on an H100)."""
    names = (cell.op_type or "", cell.kernel or "")
    return any(re.search(pattern, name) for pattern in (_CONCATENATES, _PADS) for name in names)


def _kind(signals: Signals, rows: Sequence[int]) -> str:
    """Return the kind of transposes that take most of the time: of the filters that convolutions turn round
    for themselves; else, where convolutions ran, of the layout of images; else the model's own transposes."""
    filters = [row for row in rows if re.search(_FILTERS, signals.cells[row].kernel or "")]
    if signals.time(filters) >= 0.5 * signals.time(rows):
        return "filters"
    convolves = signals.select(lambda cell: (cell.family or "").startswith("conv_"))
    return "convolutions" if convolves else "products"
