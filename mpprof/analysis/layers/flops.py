"""Whose work a model's multiplications are, by the recorded shapes alone: no trace is needed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mpprof.analysis.layers import einsum, kinds
from mpprof.model.run import LayerFacts

Layers = Mapping[str, LayerFacts]


def shares(layers: Sequence[LayerFacts]) -> dict[str, float]:
    """Return {layer: its part, 0 to 1, of the multiplications with weights in a forward pass}, for layers
    that multiply with any. Empty where that is not known: layers that were not built, convolutions of
    unknown size. An axis without a size, as a sequence may have, counts as one, in all layers alike."""
    sizes = multiplications(layers)
    whole = sum(sizes.values())
    return {name: size / whole for name, size in sizes.items()} if whole else {}


def multiplications(layers: Sequence[LayerFacts]) -> dict[str, float]:
    """Return {layer: its multiplications with weights in a forward pass of one example}; see `shares`."""
    by_name = {layer.name: layer for layer in layers}
    sizes: dict[str, float] = {}
    for layer in layers:
        if not kinds.is_matrix(layer) or _counted_elsewhere(layer, by_name):
            continue
        dims = _applied_at(layer, by_name)
        if layer.parameters is None or (dims is None and kinds.is_convolution(layer)):
            return {}
        sizes[layer.name] = float(layer.parameters * math.prod(size or 1 for size in dims or ()))
    return sizes


def rows(layer: LayerFacts, layers: Layers) -> int | None:
    """Return the rows of a layer's product per example: positions of a sequence or an image. A recurrent
    layer has one row, as each step has its own product. None: not known."""
    if kinds.is_recurrent(layer):
        return 1
    dims = _applied_at(layer, layers)
    return None if dims is None or None in dims else math.prod(size or 1 for size in dims)


def parent(layer: LayerFacts, layers: Layers) -> LayerFacts | None:
    """Return the layer that this one lies in: a layer with a shorter name, so that a layer named "" does not
    lie in itself."""
    outer, slash, _ = layer.name.rpartition("/")
    return layers.get(outer) if slash else None


def repeats(layer: LayerFacts, layers: Layers) -> bool:
    """Return whether the layer is the cell of an LSTM or a similar layer, and so repeats the layer around
    it."""
    outer = parent(layer, layers)
    return layer.kind.endswith("Cell") and outer is not None and kinds.is_recurrent(outer)


def _counted_elsewhere(layer: LayerFacts, layers: Layers) -> bool:
    """Return whether the layer's weights are counted elsewhere: attention's weights are those of its
    projections, which are layers of their own."""
    return repeats(layer, layers) or kinds.is_attention(layer) or layer.kind == "ReversibleEmbedding"


def _applied_at(layer: LayerFacts, layers: Layers) -> list[int | None] | None:
    """Return the axes over which a layer's weights are applied, from the shapes of the layer itself or of the
    layer around it that states its shapes; None where none does."""
    over_input = kinds.is_recurrent(layer) or layer.kind.endswith(("Cell", "Transpose"))
    at: LayerFacts | None = layer
    while at is not None:
        dims = _dims(at.input_shape if over_input else at.output_shape)
        if dims is not None:
            if layer.config.get("data_format") == "channels_first":
                return dims[1:]
            kept = einsum.kept(layer.config, at.input_shape) if layer.kind == "EinsumDense" else None
            return dims[:-1] if kept is None or at is not layer else kept
        at = parent(at, layers)
    return None


def _dims(shape: Any) -> list[int | None] | None:
    """Return the dimensions without the batch; of several tensors those of the first."""
    while isinstance(shape, list | tuple) and shape and isinstance(shape[0], list | tuple):
        shape = shape[0]
    if not isinstance(shape, list | tuple) or len(shape) < 2:
        return None
    return [size if isinstance(size, int) and size > 0 else None for size in shape[1:]]
