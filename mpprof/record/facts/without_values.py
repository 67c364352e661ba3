"""Models whose variables have a shape and a type, and no values: they take no memory, whatever their size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import Any

from mpprof.record.keras_compat import KERAS_2


@contextmanager
def without_values(keras: ModuleType) -> Iterator[None]:
    """Patch Keras so that it draws values for a variable only where they are asked for. The model's graph,
    its facts and a trace of its step are the same."""
    if keras.__name__ == KERAS_2:
        import tensorflow as tf

        with tf.variable_creator_scope(_variable_of_keras_2):
            yield
        return
    kind: Any = keras.Variable
    make: Any = {"tensorflow": _of_tensorflow, "torch": _of_torch}.get(keras.backend.backend())
    drawn: Any = getattr(
        kind, "_initialize_with_initializer", None
    )  # older ones than 3.7 have none, and draw

    def undrawn(self: Any, initializer: Callable[..., Any]) -> None:
        if not self._shape:  # a counter, or a scale that is asked for
            drawn(self, initializer)
        elif make is None:  # Keras itself then draws where it is asked
            self._value, self._initializer = None, initializer
        else:
            self._value = make(self, initializer)

    if drawn is None:
        yield
        return
    kind._initialize_with_initializer = undrawn
    try:
        yield
    finally:
        kind._initialize_with_initializer = drawn


def _of_tensorflow(variable: Any, initializer: Callable[..., Any]) -> Any:
    shape, dtype = tuple(variable._shape), variable._dtype
    return _undrawn(
        lambda: initializer(shape, dtype=dtype),
        shape=shape, dtype=dtype, trainable=variable.trainable, name=variable.name,
    )  # fmt: skip


def _of_torch(variable: Any, _: Callable[..., Any]) -> Any:
    import torch
    from keras.src.backend.torch.core import to_torch_dtype

    value = torch.empty(tuple(variable._shape), dtype=to_torch_dtype(variable._dtype), device="meta")
    return torch.nn.Parameter(value, requires_grad=variable.trainable and value.is_floating_point())


def _variable_of_keras_2(make: Callable[..., Any], **given: Any) -> Any:
    import tensorflow as tf

    initial, shape, dtype = given.get("initial_value"), given.get("shape"), given.get("dtype")
    if not callable(initial):
        return make(**given)
    if shape is None or dtype is None:
        traced = tf.function(initial).get_concrete_function()
        shape, dtype = traced.output_shapes, traced.output_dtypes
    if not tf.TensorShape(shape).rank:
        return make(**given)
    kept = ("trainable", "name", "constraint", "synchronization", "aggregation")
    return _undrawn(
        initial, shape=shape, dtype=dtype, **{key: given[key] for key in kept if given.get(key) is not None}
    )


def _undrawn(draw: Callable[[], Any], **given: Any) -> Any:
    """Return a variable of TensorFlow that takes no memory until it is read outside of a graph."""
    made = _undrawn_class()(**given)
    made.draw = draw
    return made


@cache
def _undrawn_class() -> Any:
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

    class Undrawn(UninitializedVariable):  # type: ignore[misc]
        draw: Callable[[], Any]

        def _read_variable_op(self, *more: Any, **named: Any) -> Any:
            if tf.executing_eagerly() and not self.is_initialized():
                self.assign(self.draw())
            return super()._read_variable_op(*more, **named)

    return Undrawn
