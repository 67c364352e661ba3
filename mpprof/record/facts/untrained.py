"""A model's facts without training it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from mpprof.errors import UsageError
from mpprof.model.run import Run
from mpprof.record.backends import probe_for
from mpprof.record.backends.base import Absent, Facts
from mpprof.record.facts.fit import fit_facts
from mpprof.record.facts.layers import LAYERS, layers_not_described, model_facts, walk
from mpprof.record.facts.process import framework_facts
from mpprof.record.keras_compat import KERAS_2, keras_of
from mpprof.record.run_with_timeout import raise_if_signalled
from mpprof.store import formats
from mpprof.store.facts import facts_of

# A subclassed Keras 3 model as a graph of its layers: its `call` on symbolic inputs.


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


def run_of(model: Any, batch_size: int | None = None, *, symbolic: bool = False) -> Run:
    """Return a run that has not begun: see `record_of`."""
    return run_from(record_of(model, batch_size, symbolic=symbolic))


def run_from(record: Facts) -> Run:
    """Return the run of a record that `record_of` made."""
    facts = facts_of(record)
    return Run(str(record["model"].get("name") or "model"), Path(), facts, None, None, None, (), True)


def record_of(model: Any, batch_size: int | None = None, *, symbolic: bool = False) -> Facts:
    """Return what run.json would hold before a run begins: the facts of `model` and of how it was compiled,
    no steps.

    `symbolic`: call a subclassed model's `call` on symbolic inputs, so that its layers state their shapes.
    Raises `UsageError` where `model` is not a Keras model."""
    if not hasattr(model, "count_params"):
        raise UsageError(
            f"{type(model).__name__} is not a Keras model",
            next="Give a model, compiled if it is to be trained",
        )
    probe = probe_for(_backend(model))
    devices = probe.devices()
    settings = {k: v for k, v in probe.settings().items() if not isinstance(v, Absent)}
    distribution = {k: v for k, v in probe.distribution(model).items() if not isinstance(v, Absent)}
    record = {
        "run_id": "audit",
        "created_unix_ns": time.time_ns(),
        "framework": framework_facts(probe, model),
        **settings,
        **distribution,
        "devices": devices,
        "model": _described(model, symbolic=symbolic),
        "fits": [fit_facts(model, 1, 1, None, batch_size)],
        "absent": {"steps": "the model has not been trained yet"},
    }
    if too_many := layers_not_described(record["model"]):
        record["absent"][LAYERS] = too_many
    plain: Facts = formats.plain(record)
    return plain


def _described(model: Any, *, symbolic: bool) -> Facts:
    with as_graph(model) if symbolic else nullcontext() as graph:
        facts = model_facts(model, written=True)
        stated = {} if graph is None else model_facts(graph, written=True)
        return facts | {key: stated[key] for key in ("layers", "outputs", "functions") if key in stated}


def _backend(model: Any) -> str:
    """Return the backend of Keras 3; Keras 2 knows TensorFlow alone."""
    keras = keras_of(model)
    if keras is None or keras.__name__ == KERAS_2:
        return "tensorflow"
    return str(keras.backend.backend())
