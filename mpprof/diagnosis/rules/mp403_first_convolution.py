"""The first convolution has 3 channels and runs off the Tensor Cores.

What it means
    Images have 3 channels, and matrix instructions want 8: the first convolution, and the gradient of its
    filters, often run on ordinary arithmetic.

How we know
    The first convolution among the recorded layers has fewer than 8 channels in; in the trace its 16-bit
    kernels ran on ordinary arithmetic.

What it costs
    That layer's matrix time against that of 16-bit kernels on Tensor Cores: an upper bound, because few
    channels fill them badly.

What to do
    Pad the image to 4 channels (enough where the stride is 2), or fold space into channels:

        x = keras.ops.pad(images, [[0, 0], [0, 0], [0, 0], [0, 1]])

When to ignore
    When the layer is a small part of the step, as it mostly is.

Sources
    NVIDIA "Convolutional Layers" guide ("padding to 4 channels is sufficient if a stride of 2 is used").
    PaddlePaddle/Paddle#27529 (3 -> 4 channels and a better algorithm: 6.4 % on ResNet-50).
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.analysis.kernels import shapes
from mpprof.analysis.layers import kinds as layers
from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.cells import off_or_narrow
from mpprof.diagnosis.outcomes import (
    CONFIGURED,
    NO_MATRIX_UNITS,
    Clear,
    Found,
    NotApplicable,
    Outcome,
    Scale,
    Unable,
    need,
)
from mpprof.diagnosis.remedies.layer_code import padding
from mpprof.diagnosis.signals import HALF_DTYPES, Signals
from mpprof.diagnosis.untrained import Untrained
from mpprof.model.audit import AuditNote
from mpprof.model.run import LayerFacts

CODE, SLUG, TITLE = "MP403", "first-convolution", "The first convolution runs off the Tensor Cores"
ABOUT = "the first convolution"
ONCE = "once it fits the {units}"
SPECIFICITY = CONFIGURED
BOUND = "device"
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.30)
"""Above what other layers need: the remedy changes the data, and the claim is an upper bound."""


def judge(signals: Signals) -> Outcome:
    first = next((f for f in need(signals.layers_in_16_bits) if layers.is_convolution(f)), None)
    if first is None or first.compute_dtype not in HALF_DTYPES:
        return NotApplicable("the model has no 16-bit convolution")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    need(signals.gpu_activity)
    mine = signals.select(lambda cell: cell.layer == first.name and cell.category == "matmul")
    channels = shapes.last_axis(first.input_shape) or _channels_of_kernels(signals, mine)
    if channels is None:
        return Unable(f"the channels that {first.name} reads were not recorded and are not in the trace")
    if channels >= shapes.ALIGNMENT:
        return Clear(f"{first.name} reads {channels} channels")
    rows = [row for row in mine if off_or_narrow(signals.cells[row])]
    best = attainable.needed(signals, rows, f"{first.name} ran off the Tensor Cores") if rows else None
    if best is None or signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear(f"{first.name} costs next to nothing, or runs on Tensor Cores")
    return Found(
        summary=f"{first.name} reads {channels} channels and runs off the Tensor Cores: up to "
        + "{cost} {each} ({share})",
        said=f"the first convolution reads {channels} channels and runs off the {{units}}[: up to {{time}}]",
        evidence=(
            evidence.count("channels in", channels, shapes.ALIGNMENT),
            evidence.text("attainable value from", best.source),
        ),
        confidence="medium" if best.confidence == "high" else "low",
        scale=SCALE,
        claims=best.claims,
        layers=(first.name,),
    )


def _channels_of_kernels(signals: Signals, rows: tuple[int, ...]) -> int | None:
    """Return the smallest last axis of the layer's 4-D operands in its forward kernels."""
    sizes = [
        dims[-1]
        for row in rows
        if signals.cells[row].family == "conv_fprop"
        for _, dims in shapes.tensors(signals.cells[row].shapes or "")[:1]
        if len(dims) >= 4
    ]
    return min(sizes, default=None)


def check_model(model: Untrained) -> Iterator[AuditNote]:
    first = next((f for f in model.layers if layers.is_convolution(f)), None)
    widths = {shapes.width(layer) for layer in model.half}  # said of the layer that makes them (MP401)
    for layer in model.half:
        channels = _channels(layer)
        if channels is None or channels >= shapes.ALIGNMENT or layers.is_depthwise(layer):
            continue
        if layer is first or channels == 1 or channels not in widths:
            yield from _of_few(model, layer, channels, layer is first)


def _channels(layer: LayerFacts) -> int | None:
    """Return how many channels a convolution reads; None of other layers, and where that is not known."""
    shape = layer.input_shape
    if not layers.is_convolution(layer) or not isinstance(shape, list | tuple) or len(shape) <= 2:
        return None
    channels = shape[1 if layer.config.get("data_format") == "channels_first" else -1]
    return channels if isinstance(channels, int) else None


def _of_few(model: Untrained, layer: LayerFacts, channels: int, first: bool) -> Iterator[AuditNote]:
    rank = len(layer.input_shape)
    axis = 1 if layer.config.get("data_format") == "channels_first" else rank - 1
    better = 4 if channels <= 4 and layer.config.get("strides") not in (1, [1], [1, 1]) else shapes.ALIGNMENT
    if better == channels:
        return
    what = "images" if first else "x"
    yield AuditNote(
        CODE,
        SLUG,
        "The first convolution has few channels" if first else "A convolution reads few channels",
        "info",
        layer.name,
        f"reads {channels} channel{'s' * (channels > 1)}; matrix instructions want {better} or more",
        f"{what} = {model.signals.words['pad']}({what}, {padding(rank, axis, better - channels)})",
    )
