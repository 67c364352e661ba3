"""The first convolution, or a later one with as few channels, runs off the Tensor Cores.

What it means
    Images have 3 channels, and matrix instructions want 8: the first convolution, and the gradient of its
    filters, often run on ordinary arithmetic. So does a later one whose input has a single channel, such as a
    mask or an attention map.

How we know
    The first convolution among the recorded layers has fewer than 8 input channels, or a later one does and
    no layer of that width comes before it (such a layer is MP401's); in the trace its 16-bit kernels ran on
    ordinary arithmetic.

What it costs
    Those layers' matrix time against that of 16-bit kernels on Tensor Cores: an upper bound, because few
    channels fill them badly.

When to ignore
    When the layer is a small part of the step, as it mostly is.

Sources
    NVIDIA "Convolutional Layers" guide ("padding to 4 channels is sufficient if a stride of 2 is used").
    PaddlePaddle/Paddle#27529 (3 -> 4 channels and a better algorithm: 6.4 % on ResNet-50).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from mpprof.diagnosis.cells import off_or_narrow
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import padding

CODE, SLUG, TITLE = "MP403", "first-convolution", "The first convolution runs off the Tensor Cores"
ABOUT = "the first convolution"
ONCE = "once it fits the {units}"
SPECIFICITY = CONFIGURED
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.30)
"""Above what other layers need: the remedy changes the data, and the claim is an upper bound."""


def judge(signals: Signals) -> Outcome:
    facts = need(signals.layers_in_16_bits)
    first = next((f for f in facts if kinds.is_convolution(f)), None)
    half = tuple(f for f in facts if f.compute_dtype in HALF_DTYPES)
    if first is None or not any(kinds.is_convolution(f) for f in half):
        return NotApplicable("the model has no 16-bit convolution")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    need(signals.gpu_activity)
    rows = {f.name: _matmul_of(signals, f.name) for f in half if kinds.is_convolution(f)}
    channels = {
        f.name: _channels(f) or _channels_of_kernels(signals, rows[f.name]) for f in half if f.name in rows
    }
    if first in half and channels[first.name] is None:
        return Unable(f"the channels that {first.name} reads were not recorded and are not in the trace")
    few = [f.name for f in _of_few(half, first, channels)]
    if not few:
        return Clear(f"no convolution reads fewer than {shapes.ALIGNMENT} channels")
    missed = [row for name in few for row in rows[name] if off_or_narrow(signals.cells[row])]
    named = evidence.listed(few)
    best = attainable.needed(signals, missed, f"{named} ran off the Tensor Cores") if missed else None
    if best is None or signals.cost_ratio(best.claims) < SCALE.info_ratio:
        return Clear(f"{named}: few channels, at next to no cost, or on Tensor Cores")
    few = [name for name in few if not set(missed).isdisjoint(rows[name])]
    one, least = few == [first.name], min(channels[name] or 0 for name in few)
    s, which = "s" * (len(few) == 1), evidence.listed(few)
    read = f"read{s} {least} channel{'s' * (least != 1)} and run{s} off the"
    what = "first convolution" if one else f"convolution{'s' * (not s)} {which}"
    return Found(
        summary=f"{which} {read} Tensor Cores: up to " + "{cost} {each} ({share})",
        said=f"the {what} {read} " + "{units}[: up to {time}]",
        evidence=(
            evidence.count("channels in", least, shapes.ALIGNMENT),
            evidence.text("attainable value from", best.source),
        ),
        cases=("" if first.name in few else "later",),
        confidence="medium" if best.confidence == "high" else "low",
        scale=SCALE,
        claims=best.claims,
        layers=tuple(few),
    )


def _matmul_of(signals: Signals, layer: str) -> tuple[int, ...]:
    return signals.select(lambda cell: cell.layer == layer and cell.category == "matmul")


def _of_few(
    half: Sequence[LayerFacts], first: LayerFacts | None, channels: Mapping[str, int | None]
) -> Iterator[LayerFacts]:
    """Yield the convolutions that read too few channels for matrix instructions: the first, and those whose
    channels are not the width of a layer, which MP401 names."""
    widths = {shapes.width(layer) for layer in half}
    for layer in half:
        found = channels.get(layer.name)
        if found is None or found >= shapes.ALIGNMENT or kinds.is_depthwise(layer):
            continue
        if layer is first or found == 1 or found not in widths:
            yield layer


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


def check_model(model: Untrained) -> Iterator[Note]:
    first = next((f for f in model.layers if kinds.is_convolution(f)), None)
    channels = {layer.name: _channels(layer) for layer in model.half}
    for layer in _of_few(model.half, first, channels):
        yield from _note(model, layer, channels[layer.name] or 0, layer is first)


def _channels(layer: LayerFacts) -> int | None:
    """Return how many channels a convolution reads; None of other layers, and where that is not known."""
    shape = layer.input_shape
    if not kinds.is_convolution(layer) or not isinstance(shape, list | tuple) or len(shape) <= 2:
        return None
    channels = shape[1 if layer.config.get("data_format") == "channels_first" else -1]
    return channels if isinstance(channels, int) else None


def _note(model: Untrained, layer: LayerFacts, channels: int, first: bool) -> Iterator[Note]:
    rank = len(layer.input_shape)
    axis = 1 if layer.config.get("data_format") == "channels_first" else rank - 1
    better = 4 if channels <= 4 and layer.config.get("strides") not in (1, [1], [1, 1]) else shapes.ALIGNMENT
    if better == channels:
        return
    what = "images" if first else "x"
    yield Note(
        "info",
        layer.name,
        f"reads {channels} channel{'s' * (channels > 1)}; matrix instructions want {better} or more",
        f"{what} = {model.signals.words['pad']}({what}, {padding(rank, axis, better - channels)})",
        "The first convolution has few channels" if first else "A convolution reads few channels",
    )
