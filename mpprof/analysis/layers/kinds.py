"""What a recorded layer is, by its class and configuration."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mpprof.model.run import LayerFacts, ModelFacts, RunFacts

_MATRIX = frozenset((
    "Dense", "EinsumDense", "Conv1D", "Conv2D", "Conv3D", "Conv1DTranspose", "Conv2DTranspose",
    "Conv3DTranspose", "SeparableConv1D", "SeparableConv2D", "DepthwiseConv1D", "DepthwiseConv2D",
    "LSTM", "GRU", "SimpleRNN", "LSTMCell", "GRUCell", "SimpleRNNCell", "ConvLSTM1D", "ConvLSTM2D",
    "ConvLSTM3D", "MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention",
    "ReversibleEmbedding",
))  # fmt: skip
PRODUCTS = frozenset(
    ("Matmul", "Dot", "Tensordot", "Einsum", "Inner", "Conv", "DepthwiseConv", "ConvTranspose")
)
"""Functions of `keras.ops` that multiply matrices or convolve."""
ATTENTION = "DotProductAttention"
"""The function that multiplies queries with keys, and the result with values."""
_NORM = frozenset((
    "BatchNormalization", "LayerNormalization", "GroupNormalization", "UnitNormalization",
    "RMSNormalization", "SpectralNormalization",
))  # fmt: skip
_RECURRENT = frozenset(("LSTM", "GRU", "SimpleRNN", "ConvLSTM1D", "ConvLSTM2D", "ConvLSTM3D"))
_HEADS = frozenset(("MultiHeadAttention", "GroupedQueryAttention"))
_WRAPPERS = frozenset((
    "Wrapper", "Bidirectional", "TimeDistributed", "SpectralNormalization", "RNN", "StackedRNNCells",
))  # fmt: skip
_ENTRY = frozenset((
    "InputLayer", "Normalization", "Rescaling", "Resizing", "TextVectorization", "StringLookup",
    "IntegerLookup", "Hashing", "Discretization", "CategoryEncoding", "HashedCrossing",
))  # fmt: skip


def _is(layer: LayerFacts, kinds: frozenset[str]) -> bool:
    """Return whether the layer is of one of these kinds; a user's class is of the kind that it derives
    from."""
    return layer.class_name in kinds or layer.kind in kinds


def is_matrix(layer: LayerFacts) -> bool:
    """Return whether the layer's main work is matrix multiplication or convolution."""
    return _is(layer, _MATRIX)


def products(model: ModelFacts) -> tuple[str, ...]:
    """Return the functions between layers that multiply matrices or convolve."""
    return tuple(each.name for each in model.functions or () if each.class_name in {*PRODUCTS, ATTENTION})


def multiplies(model: ModelFacts) -> bool | None:
    """Return whether any layer or function of a model multiplies matrices or convolves; None: not known, as
    the model runs code of its own, or states no layers."""
    if any(is_matrix(layer) or layer.kind == "Dot" for layer in model.layers) or products(model):
        return True
    own = any(
        layer.kind in ("Lambda", "TFOpLambda") or (_is_own(layer.module) and layer.base is None)
        for layer in model.layers
    )
    own = own or any(_is_own(each.module) for each in model.functions or ())
    return None if own or not model.outputs or model.functions is None else False


def _is_own(module: str | None) -> bool:
    return module not in ("keras", "tf_keras")


def is_norm(layer: LayerFacts) -> bool:
    return _is(layer, _NORM)


def is_entry(layer: LayerFacts) -> bool:
    """Return whether the layer takes the data in (inputs and preprocessing), where float32 or integers are
    right."""
    return _is(layer, _ENTRY) or layer.kind.startswith("Random")


def is_convolution(layer: LayerFacts) -> bool:
    return "Conv" in layer.kind


def is_depthwise(layer: LayerFacts) -> bool:
    """Return whether the layer convolves each channel by itself, for which there is no Tensor Core kernel."""
    groups, shape = layer.config.get("groups"), layer.input_shape
    axis = 1 if layer.config.get("data_format") == "channels_first" else -1
    channels = shape[axis] if isinstance(shape, tuple | list) and len(shape) > 1 else None
    return layer.kind.startswith("Depthwise") or (
        is_convolution(layer) and groups is not None and groups == channels and groups != 1
    )


def is_separable(layer: LayerFacts) -> bool:
    """Return whether the layer is a depthwise convolution and a pointwise one in one."""
    return layer.kind in ("SeparableConv1D", "SeparableConv2D")


def depthwise_ratio(layer: LayerFacts) -> float | None:
    """Return which part of a separable convolution's weights, and so of its multiplications, its depthwise
    part has; None: a size is not known."""
    config, shape = layer.config, layer.input_shape
    axis = 1 if config.get("data_format") == "channels_first" else -1
    sizes = config.get("kernel_size")
    kernel = [sizes] * int(layer.kind[-2]) if isinstance(sizes, int) else sizes
    made, channels = config.get("filters"), shape[axis] if isinstance(shape, list | tuple) and shape else None
    if not kernel or not isinstance(made, int) or not isinstance(channels, int):
        return None
    spread = channels * int(config.get("depth_multiplier") or 1)
    deep, wide = math.prod(kernel) * spread, spread * made
    return deep / (deep + wide)


def is_recurrent(layer: LayerFacts) -> bool:
    """Return whether the layer is recurrent and makes its own cell from its arguments."""
    return _is(layer, _RECURRENT)


def is_attention(layer: LayerFacts) -> bool:
    """Return whether the layer has heads, and projections as layers of their own."""
    return _is(layer, _HEADS)


def is_wrapper(layer: LayerFacts) -> bool:
    """Return whether the layer is given another layer, or a recurrent cell, which does the work."""
    return _is(layer, _WRAPPERS)


def head(layers: Sequence[LayerFacts]) -> frozenset[str]:
    """Return the last layer that multiplies matrices and the layers after it: the end of the model, which is
    meant to be float32 (its last activation, at times the whole last layer)."""
    last = max((i for i, layer in enumerate(layers) if is_matrix(layer)), default=len(layers))
    return frozenset(layer.name for layer in layers[last:])


# --- what rules cuDNN's kernel of a recurrent layer out ----------------------------------------------------

RECURRENT = ("LSTM", "GRU")
BACKENDS = (None, "tensorflow", "torch")
"""Whose recurrent layers may be cuDNN's; None: an old record, which was of TensorFlow."""
DEFAULTS = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "recurrent_dropout": 0,
    "unroll": False,
    "use_bias": True,
    "reset_after": True,
}


def against_cudnn(layer: LayerFacts) -> dict[str, str]:
    """Return the arguments that rule cuDNN out, each as it is written; empty where no argument does, and for
    other layers."""
    if layer.kind not in RECURRENT:
        return {}
    return {
        key: f"{key}={layer.config[key]!r}"
        for key, default in DEFAULTS.items()
        if key in layer.config and layer.config[key] != default
    }


def takes_cudnn(layer: LayerFacts) -> bool:
    """Return whether Keras on TensorFlow takes cuDNN's kernel for the layer on a GPU, which no XLA program
    can hold."""
    return layer.config.get("use_cudnn") in ("auto", True) and not against_cudnn(layer)


def against_cudnn_on_torch(layer: LayerFacts, run: RunFacts) -> list[str]:
    """Return what rules cuDNN out on torch alone; empty on another backend, and for other layers."""
    if layer.kind not in RECURRENT or run.framework.get("backend") != "torch":
        return []
    compiled = any(fit.jit_compile is True for fit in run.fits)
    return [*(["a mask"] if layer.masked else []), *(["jit_compile=True"] if compiled else [])]
