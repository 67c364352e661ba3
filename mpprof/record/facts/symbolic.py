"""A subclassed Keras 3 model as a graph of its layers: its `call` on symbolic inputs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mpprof.record.facts.layers import walk
from mpprof.record.keras_compat import KERAS_2, keras_of
from mpprof.record.run_with_timeout import raise_if_signalled


@contextmanager
def as_graph(model: Any) -> Iterator[Any | None]:
    """Give a functional model of the same layers; None where none can be made.

    None can be made of a model that states its graph itself, that has not been built, or whose `call` does
    more than call layers and functions of `keras.ops`. The layers note where they were called; what they
    noted here is forgotten at the end.
    """
    keras = keras_of(model)
    shapes = getattr(model, "_build_shapes_dict", None)
    if keras is None or keras.__name__ == KERAS_2 or not shapes or getattr(model, "inputs", None):
        yield None
        return
    noted = [
        (nodes, len(nodes))
        for _, layer in walk(model)
        for nodes in (getattr(layer, "_inbound_nodes", None), getattr(layer, "_outbound_nodes", None))
        if isinstance(nodes, list)
    ]
    try:
        yield _called(keras, model, shapes)
    finally:
        for nodes, before in noted:
            del nodes[before:]


def _called(keras: Any, model: Any, shapes: dict[str, Any]) -> Any | None:
    try:
        given = {name.removesuffix("_shape"): _inputs(keras, shape) for name, shape in shapes.items()}
        if len(given) == 1:
            (inputs,) = given.values()
            outputs = model.call(inputs)
        else:
            inputs, outputs = given, model.call(**given)
        return keras.Model(inputs, outputs)
    except Exception as error:  # noqa: BLE001 - the user's `call` may do anything
        raise_if_signalled(error)
        return None


def _inputs(keras: Any, shape: Any) -> Any:
    """Return symbolic inputs of these shapes, nested as they are, of any batch."""
    if isinstance(shape, dict):
        return {name: _inputs(keras, one) for name, one in shape.items()}
    if all(size is None or isinstance(size, int) for size in shape):
        return keras.Input(batch_shape=(None, *shape[1:]))
    return [_inputs(keras, one) for one in shape]
