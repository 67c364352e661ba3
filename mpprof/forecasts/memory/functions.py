"""Functions of `keras.ops` between the layers of a functional model, each as the layer that does the same.

The rules of `kept_for_backward` then hold for both. A product (`kinds.PRODUCTS`) of one tensor, with
constants or an `Einsum` that only moves axes, keeps none of it. A function that is not listed cannot be
counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from mpprof.analysis.layers import kinds
from mpprof.errors import UnableError
from mpprof.model.run import FunctionFacts, LayerFacts
from mpprof.tensors import WIDTHS

_CASTS = frozenset(("Cast", "SaturateCast"))
"""Functions whose type stands in the model's code; the others give the type that they are given."""
_ACTIVATIONS = frozenset((
    "Relu", "Relu6", "Sigmoid", "Tanh", "Softmax", "LogSoftmax", "Elu", "Selu", "Gelu", "Silu", "LeakyRelu",
    "Softplus", "Softsign", "HardSigmoid", "HardSilu",
))  # fmt: skip
_ALIKE: Mapping[str, str] = {
    **dict.fromkeys((
        "Add", "Subtract", "Negative", "Stack", "Hstack", "Vstack", "Tile", "Repeat", "BroadcastTo", "Split",
        "Unstack", "GetItem", "Slice", "Cast", "SaturateCast", "ConvertToTensor", "StopGradient", "Copy",
        "Where", "Take", "TakeAlongAxis", "Flip", "Roll", "Rot90", "Tril", "Triu", "Ceil", "Floor", "Round",
        "Sign", "Trunc", "ZerosLike", "OnesLike", "FullLike", "OneHot",
    ), "Add"),
    "Concatenate": "Concatenate", "Append": "Concatenate", "Pad": "ZeroPadding2D",
    **dict.fromkeys(("Transpose", "Swapaxes", "Moveaxis", "DepthToSpace", "SpaceToDepth"), "Permute"),
    **dict.fromkeys(("Reshape", "ExpandDims", "Squeeze", "Ravel", "View"), "Reshape"),
    **dict.fromkeys(("Sum", "Mean", "Average", "Cumsum", "AveragePool"), "AveragePooling2D"),
    **dict.fromkeys((
        "Multiply", "Divide", "TrueDivide", "DivideNoNan", "Power", "Square", "Absolute", "Fabs", "Maximum",
        "Minimum", "Clip", "Log", "Log1p", "Log2", "Log10", "Logaddexp", "Sin", "Cos", "Tan", "Sinh", "Cosh",
        "Arctan", "Arctan2", "Erf", "Max", "Min", "Amax", "Amin", "Var", "Std",
        "Logsumexp", "Normalize", "Norm", "Prod", "Outer",
    ), "Multiply"),
    **dict.fromkeys(("Exp", "Exp2", "Expm1", "Sqrt", "Rsqrt", "Reciprocal", "Cbrt"), "exponential"),
    "LayerNorm": "LayerNormalization", "RMSNorm": "RMSNormalization", "BatchNorm": "BatchNormalization",
    "MaxPool": "MaxPooling2D",
}  # fmt: skip
"""Functions and the layer of Keras whose gradient needs the same. Like `Add`: linear, or without a gradient;
like `Multiply`: what they take; like the activation `exponential`: what they give."""
_LINEAR_WITH_A_CONSTANT = frozenset(("Multiply", "Divide", "TrueDivide", "DivideNoNan"))
"""With one tensor: which of the two it is, is not recorded; a division is taken for one by the constant."""


def as_layer(function: FunctionFacts, dtype: str, given: int) -> LayerFacts | None:
    """Return the layer of Keras that does what a function does with `given` tensors; None: no such layer is
    known. Raises `UnableError` where its shape is not stated."""
    kind = _ALIKE.get(function.class_name)
    config: dict[str, Any] = {}
    if function.module != "keras":
        return None
    if not dtype.startswith(("float", "bfloat")):
        kind = "Add"  # comparisons and indices have no gradient
    if function.class_name in _ACTIVATIONS or kind == "exponential":
        name = "".join(f"_{c.lower()}" if c.isupper() else c for c in function.class_name).lstrip("_")
        kind, config = "Activation", {"activation": name if kind is None else kind}
    elif given < 2 and function.class_name in kinds.PRODUCTS:
        kind = "Permute"
    elif given < 2 and function.class_name in _LINEAR_WITH_A_CONSTANT:
        kind = "Add"
    if kind is None:
        return None
    return LayerFacts(
        function.name, kind, dtype, None, dtype, config, output_shape=shape_of(function), module="keras",
        trainable=False,
    )  # fmt: skip


def dtype_of(function: FunctionFacts, given: Sequence[str]) -> str:
    """Return the type that a function gives for these: its own where that is not a floating one, or stands in
    the model's code; else theirs, of different ones float32."""
    own = function.output_dtype or "float32"
    floating = {each for each in given if each.startswith(("float", "bfloat"))}
    if not own.startswith(("float", "bfloat")) or function.class_name in _CASTS or not floating:
        return own if own in WIDTHS else "int64"
    return floating.pop() if len(floating) == 1 else "float32"


def shape_of(function: FunctionFacts) -> tuple[int | None, ...]:
    """Return the shape of what a function gives, with the batch as its first axis, which it need not be; of
    several tensors the elements of all. Raises `UnableError` where more axes than the batch have no fixed
    size, or none is stated."""
    shapes = function.output_shape
    if not isinstance(shapes, list | tuple):
        raise UnableError(
            f"the function {function.name} does not state the shape of its output",
            next="mpprof forecast compiles the train step, which needs no stated shapes",
        )
    several = shapes if shapes and isinstance(shapes[0], list | tuple) else [shapes]
    sizes = [_sizes(function, shape) for shape in several]
    return (None, *(sizes[0] if len(sizes) == 1 else [sum(math.prod(one) for one in sizes)]))


def _sizes(function: FunctionFacts, shape: Sequence[int | None]) -> list[int]:
    known = [size for size in shape if size is not None]
    if len(shape) - len(known) > 1:
        raise UnableError(
            f"an axis of what the function {function.name} gives has no fixed size: {tuple(shape)}",
            next="Build the model with a fixed input shape",
        )
    return known if len(known) < len(shape) else known[1:]
