"""What a look is given: the model, its batch, loss and loss scale; and why a model cannot be looked at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpprof.errors import UnableError, UsageError

BACKENDS = ("tensorflow", "jax", "torch")


def keras_of(model: Any) -> Any:
    """Return Keras 3. Raises UsageError and UnableError where the model cannot be looked at."""
    roots = {each.__module__.partition(".")[0] for each in type(model).__mro__ if each.__name__ == "Model"}
    if "tf_keras" in roots:
        raise UnableError("this is a model of tf_keras", where="numerics", next="Use Keras 3")
    if "keras" not in roots:
        what = f"not a Keras model: {type(model).__name__}"
        raise UsageError(what, where="numerics", next="Give a keras.Model")
    import keras

    if not model.built:
        raise UsageError(
            "the model is not built: to build it would draw its weights", where="numerics",
            next="Call it on a batch first, or model.build(shape)",
        )  # fmt: skip
    strategy = getattr(model, "_distribute_strategy", None)
    if strategy is not None or keras.distribution.distribution() is not None:
        what = "the model trains on several devices"
        raise UnableError(what, where="numerics", next="Look at it without the distribution")
    if keras.backend.backend() not in BACKENDS:
        what = f"Keras runs on {keras.backend.backend()}"
        raise UnableError(what, where="numerics", next=f"Use one of {', '.join(BACKENDS)}")
    return keras


def batch(keras: Any, given: Any) -> Any:
    """Return arrays with floats in Keras' own type, as `fit` makes them; lists of numbers become arrays."""

    def one(value: Any) -> Any:
        if not isinstance(value, np.ndarray | np.generic | list | float | int):
            return value
        array = np.asarray(value)
        return array.astype(keras.config.floatx()) if array.dtype.kind == "f" else array

    numbers = isinstance(given, list) and not any(hasattr(each, "dtype") for each in given)
    return one(given) if numbers else keras.tree.map_structure(one, given)


def check_rows(keras: Any, x: Any, y: Any) -> None:
    """Raise UsageError where a batch is empty."""
    if any(0 in tuple(each.shape) for each in keras.tree.flatten((x, y)) if hasattr(each, "shape")):
        what = f"the batch is empty: {shapes(keras, x, y)}"
        raise UsageError(what, where="numerics", next="Give at least one row")


def shapes(keras: Any, x: Any, y: Any) -> str:
    """Return the shapes of a batch in words."""
    told = []
    for name, part in (("x", x), ("y", y)):
        each = [str(tuple(one.shape)) for one in keras.tree.flatten(part) if hasattr(one, "shape")]
        told += [f"{name} is {', '.join(each)}"] if each else []
    return " and ".join(told)


def check_labels(keras: Any, losses: Any, y: Any, outputs: Any) -> None:
    """Raise UsageError where a label that a sparse cross-entropy is given is none of its classes: on JAX, and
    on a GPU, that is no error and no number."""
    parts = [keras.tree.flatten(each) for each in (losses, y, outputs)]
    if len({len(part) for part in parts}) > 1:
        return
    for loss, labels, output in zip(*parts, strict=True):
        name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
        if not str(name).replace("_", "").lower().startswith("sparsecategoricalcrossentropy"):
            continue
        values = np.asarray(keras.ops.convert_to_numpy(labels))
        wrong = values[
            ((values < 0) | (values >= output.shape[-1])) & (values != getattr(loss, "ignore_class", None))
        ]
        if wrong.size:
            what = f"the label {wrong.flat[0]:g} in y is none of the {output.shape[-1]} classes"
            raise UsageError(
                what, where="numerics", next=f"Labels begin at 0 and end at {output.shape[-1] - 1}"
            )


def why_no_loss(model: Any, y: Any, loss: Callable[[Any, Any], Any] | None) -> str | None:
    """Return why there is no loss to look at; None where there is one."""
    if loss is not None:
        return None
    compiled = getattr(model, "_compile_loss", None) is not None
    if not model.compiled or not (compiled or overrides(model, "compute_loss") or model.losses):
        return "the model has no loss: give `loss=`, or compile it with one"
    return "no `y` was given" if y is None and compiled else None


def overrides(model: Any, method: str) -> bool:
    """Return whether the model's class has a method of its own in place of Keras'."""
    return str(getattr(type(model), method).__module__).partition(".")[0] != "keras"


def loss_scale(model: Any) -> float | None:
    """Return the scale by which the model's optimizer multiplies the loss; None where it does not."""
    optimizer: Any = getattr(model, "optimizer", None)
    if not hasattr(optimizer, "initial_scale"):
        factor = getattr(optimizer, "loss_scale_factor", None)
        return None if factor is None else float(factor)
    if not optimizer.built:
        return float(optimizer.initial_scale)
    state = optimizer_state(model)
    if state is not None:
        return next(float(value) for variable, value in state if variable is optimizer.dynamic_scale)
    return float(optimizer.dynamic_scale)


def optimizer_state(model: Any) -> list[tuple[Any, Any]] | None:
    """Return the optimizer's variables with their values, where they do not hold them themselves: within an
    epoch on JAX; else None."""
    state = getattr(model, "_jax_state", None)
    if not state or model._jax_state_synced:
        return None
    return list(zip(model.optimizer.variables, state["optimizer_variables"], strict=True))
