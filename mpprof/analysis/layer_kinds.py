"""What a recorded layer is, by its class and configuration."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.model.run import LayerFacts

_MATRIX = frozenset((
    "Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose",
    "Conv3DTranspose", "SeparableConv1D", "SeparableConv2D", "DepthwiseConv1D", "DepthwiseConv2D",
    "LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell", "ConvLSTM1D", "ConvLSTM2D",
    "ConvLSTM3D", "MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention",
    "ReversibleEmbedding",
))  # fmt: skip
_NORM = frozenset((
    "BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization",
    "RMSNormalization", "SpectralNormalization",
))  # fmt: skip
_ENTRY = frozenset((
    "InputLayer", "Normalization", "Rescaling", "Resizing", "TextVectorization", "StringLookup",
    "IntegerLookup", "Hashing", "Discretization", "CategoryEncoding", "HashedCrossing",
))  # fmt: skip


def is_matrix(layer: LayerFacts) -> bool:
    """Its main work is matrix multiplication or convolution."""
    return layer.class_name in _MATRIX


def is_norm(layer: LayerFacts) -> bool:
    return layer.class_name in _NORM


def is_entry(layer: LayerFacts) -> bool:
    """It takes the data in (inputs and preprocessing), where float32 or integers are right."""
    return layer.class_name in _ENTRY or layer.class_name.startswith("Random")


def is_convolution(layer: LayerFacts) -> bool:
    return "Conv" in layer.class_name


def is_depthwise(layer: LayerFacts) -> bool:
    """Each channel is convolved by itself, for which there is no Tensor Core kernel."""
    groups, shape = layer.config.get("groups"), layer.input_shape
    channels = shape[-1] if isinstance(shape, tuple | list) and shape else None
    return layer.class_name.startswith("Depthwise") or (
        groups is not None and groups == channels and groups != 1
    )


def head(layers: Sequence[LayerFacts]) -> frozenset[str]:
    """The layers after the last one that multiplies matrices, and that one: the end of the model, which is
    meant to be float32 (its last activation, at times the whole last layer)."""
    last = max((i for i, layer in enumerate(layers) if is_matrix(layer)), default=len(layers))
    return frozenset(layer.name for layer in layers[last:])
