"""What to do about a break, with the code for Keras, by its kind."""

from __future__ import annotations

from typing import Any

from mpprof.model.quantities import format_count
from mpprof.numbers.result import Advice, Break, ScaleBand

KINDS = (
    "batch", "weights", "sum", "product", "variance", "exp", "cast", "epsilon", "division", "not known", "forward",
    "loss scale", "every scale", "underflow",
)  # fmt: skip
"""What a break is of: values that were not finite before; an overflow of a sum, a product, a variance, an exp
or a cast; a division by 0, of an epsilon that rounds to 0 or without one; an operation that is not known; for
gradients, a break of the forward pass, a loss scale that is too high, a gradient that is not finite at any
scale, and gradients that round to 0 at this scale."""


def advice(layer: Any, found: Break, scale: ScaleBand | None, *, scales: bool) -> Advice | None:
    """Return what to do about a break of a layer (None: it is no layer, but the loss or the batch). `scales`:
    the optimizer scales the loss."""
    name = found.layer
    in_float32 = f'{_constructor(layer)}(..., dtype="float32")  # {name}'
    match found.kind:
        case "batch":
            return Advice(None, "Clean the batch: it holds values that are not finite.", "MP206",
                          "assert numpy.isfinite(x).all()")  # fmt: skip
        case "weights":
            return Advice(name, f"The weights of {name} are not finite: load the last good ones.", "MP206",
                          "keras.callbacks.BackupAndRestore(...), keras.callbacks.TerminateOnNaN()")  # fmt: skip
        case "cast":
            return Advice(name, "Scale the inputs: they are beyond float16.", "MP107",
                          "keras.layers.Rescaling(1 / 255)  # or keras.layers.Normalization()")  # fmt: skip
        case "epsilon":
            return Advice(name, f"Give {name} an epsilon that float16 holds (above 6e-8), or float32.", "MP206",
                          f"{_constructor(layer)}(..., epsilon=1e-3)  # {name}" if hasattr(layer, "epsilon")
                          else in_float32)  # fmt: skip
        case "exp" if layer is None:
            return Advice(name, "Compute the loss in float32, from logits.", "MP206",
                          "loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True)")  # fmt: skip
        case "sum" | "product" | "variance" | "exp" | "division" | "not known" if layer is None:
            return Advice(name, "Compute the loss in float32.", "MP206",
                          'outputs = keras.ops.cast(outputs, "float32")')  # fmt: skip
        case "sum" | "product" | "variance" | "exp" | "division" | "not known":
            text = f"{name} needs bfloat16 or float32."
            if found.kind == "division":
                text = f"{name} divides by 0: add an epsilon that float16 holds (1e-3), or float32."
            return Advice(name, text, "MP206", in_float32)
        case "loss scale" if scale is not None and scale.high is not None and scale.high >= 1:
            return Advice(
                name, f"Start the loss scale at {power(scale.high)} or below, or clip the gradient of {name}.", "MP201",
                f"keras.optimizers.LossScaleOptimizer(optimizer, initial_scale={scale.high:.1f})",
            )  # fmt: skip
        case "loss scale" | "every scale" if layer is not None:
            return Advice(name, f"No loss scale helps: {name} needs bfloat16 or float32.", "MP201", in_float32)
        case "loss scale" | "every scale":
            return Advice(name, "No loss scale helps: compute the loss in float32.", "MP201",
                          'outputs = keras.ops.cast(outputs, "float32")')  # fmt: skip
        case "underflow" if scales:
            return Advice(name, "Raise the loss scale, or let it adapt itself.", "MP202",
                          "keras.optimizers.LossScaleOptimizer(optimizer)")  # fmt: skip
        case "underflow":
            return Advice(name, "Scale the loss.", "MP103",
                          "optimizer = keras.optimizers.LossScaleOptimizer(optimizer)\n"
                          "loss = optimizer.scale_loss(loss)")  # fmt: skip
    return None


def _constructor(layer: Any) -> str:
    kind = type(layer)
    own = kind.__module__.partition(".")[0] == "keras"
    return f"keras.layers.{kind.__name__}" if own else kind.__name__


def power(value: float) -> str:
    """Return a power of two as one."""
    exponent = value.hex().partition("p")[2]
    return f"2^{int(exponent)}" if abs(int(exponent)) > 6 else format_count(value)
