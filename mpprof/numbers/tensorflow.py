"""The look on TensorFlow: the step as a `tf.function`, under XLA where the model is."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mpprof.errors import UnableError
from mpprof.numbers import tallies
from mpprof.numbers.causes import Op, summary
from mpprof.numbers.counting import counted
from mpprof.numbers.job import Entry, Job, require_loss
from mpprof.numbers.result import Tensor
from mpprof.numbers.taps import LOSS, Place

CHANGES = (
    "Assign", "ResourceScatter", "ResourceStridedSliceAssign", "RngReadAndSkip", "RngSkip", "StatefulUniform",
    "StatefulStandardNormal", "StatefulTruncatedNormal",
)  # fmt: skip
"""How the names of operations begin that change a `tf.Variable` or a `tf.random.Generator`."""
CALLS = ("PyFunc", "EagerPyFunc", "NumpyFunction")


class TensorFlowStep:
    """See `job.Step`."""

    def __init__(self, job: Job) -> None:
        """Prepare the step by tracing it. Raises UnableError where its changes cannot be put back."""
        import tensorflow as tf

        self._tf, self._job = tf, job
        eager = bool(job.model.run_eagerly)
        self.compiled, self.note = not eager, "the training's own step runs eagerly, too" if eager else None
        self._places: list[tuple[Place, Tensor, str, str | None]] = []
        self.gradients: list[Any] = []
        xla = bool(getattr(job.model, "jit_compile", False)) and not eager
        traced = tf.function(self._step, jit_compile=xla, autograph=False)
        concrete = traced.get_concrete_function(job.x, job.y, job.sample_weight, tf.constant(1.0))
        _refuse_changes(concrete.graph)
        self._run = self._step if eager else traced

    def run(self, scale: float) -> list[Entry]:
        tf, job = self._tf, self._job
        counts, self.gradients = self._run(job.x, job.y, job.sample_weight, tf.constant(scale, tf.float32))
        counts = counts.numpy()
        return [
            Entry(place, tensor, tallies.tally(dtype, row), weight)
            for (place, tensor, dtype, weight), row in zip(self._places, counts, strict=True)
        ]

    def _step(self, x: Any, y: Any, sample_weight: Any, scale: Any) -> Any:
        tf, job = self._tf, self._job
        places: list[tuple[Place, Tensor, str, str | None]] = []
        rows, outputs, narrow = [], [], []

        def add(place: Place, tensor: Tensor, value: Any, weight: str | None = None) -> None:
            value = value.values if isinstance(value, tf.IndexedSlices) else value
            places.append((place, tensor, value.dtype.name, weight))
            rows.append(counted(job.keras.ops, value, value.dtype.name, bits_of))

        def take(place: Place, tensor: Any, dtype: str) -> Any:
            outputs.append((place, tensor))
            add(place, "output", tensor)
            return tensor

        graph = tf.compat.v1.get_default_graph()
        job.taps.take, job.taps.reachable = take, lambda: tf.compat.v1.get_default_graph() is graph
        weights = job.model.trainable_variables
        values = [tf.convert_to_tensor(each.value) for each in weights]
        with job.scope(list(zip(weights, values, strict=True))), tf.GradientTape() as tape:
            tape.watch(values)
            predicted = job.forward(x)
            if job.with_loss:
                loss = require_loss(job.loss_of(x, y, predicted, sample_weight))
                scaled = job.keras.ops.multiply(loss, scale)
        if job.with_loss:
            add(LOSS, "output", loss)
            found = tape.gradient(scaled, [tensor for _, tensor in outputs] + values)
            for (place, _), gradient in reversed(list(zip(outputs, found, strict=False))):
                if gradient is not None:
                    add(place, "gradient", gradient)
            owners = job.owners()
            for variable, gradient in zip(weights, found[len(outputs) :], strict=True):
                if gradient is not None:
                    layer, name = owners[id(variable)]
                    add(Place(layer, 0, 0), "weight_gradient", gradient, name)
                if variable.dtype in tallies.HALF:
                    zero = gradient is None
                    narrow.append(tf.zeros(variable.shape) if zero else tf.convert_to_tensor(gradient))
        self._places = places
        return tf.stack(rows), narrow


def _refuse_changes(graph: Any) -> None:
    definition = graph.as_graph_def()
    nodes = [*definition.node, *(node for each in definition.library.function for node in each.node_def)]
    for node in nodes:
        if node.op.startswith(CHANGES) or node.op in CALLS:
            what = "calls Python from its graph" if node.op in CALLS else "changes a tf.Variable"
            raise UnableError(
                f"the model {what} ({node.name}): looking at it would change the training",
                where="numerics",
                next="Keep such state in a Keras variable (`add_weight`) or a `keras.random.SeedGenerator`",
            )


def step(job: Job) -> TensorFlowStep:
    """Return the step of a job."""
    return TensorFlowStep(job)


def kept(model: Any) -> AbstractContextManager[None]:
    """Return the context in which what is the backend's own is kept: there is nothing, `_refuse_changes`
    refuses a model that has it."""
    return nullcontext()


def values(model: Any) -> list[tuple[Any, Any]]:
    """Return the trained variables with their values, which Keras' regularizers ask the scope for."""
    return [(each, each.value) for each in model.trainable_variables]


def put_back() -> Callable[[], None]:
    """Return what gives the backend's own generators their state: nothing. A model that changes a
    `tf.random.Generator` is refused; a stateful op of `tf.random` draws anew in each pass."""
    return lambda: None


def bits_of(tensor: Any, name: str) -> Any:
    """Return a tensor's bits as integers of that type."""
    import tensorflow as tf

    return tf.bitcast(tensor, name)


def tensors(keras: Any, structure: Any) -> Any:
    """Return arrays as the training is given them."""
    import tensorflow as tf

    return keras.tree.map_structure(
        lambda each: None if each is None else tf.convert_to_tensor(each), structure
    )


def operations(function: Callable[[], Any], job: Job) -> tuple[Any, list[Op]]:
    """Run a function eagerly; return its result and each operation that ran, in order."""
    import tensorflow as tf
    from tensorflow.python.framework import op_callbacks

    found: list[Op] = []

    def seen(kind: Any, inputs: Any, attributes: Any, outputs: Any, *rest: Any) -> None:
        name = kind.decode() if hasattr(kind, "decode") else str(kind)
        found.append(Op(name, _summaries(tf, inputs), _summaries(tf, outputs), _same(inputs)))

    op_callbacks.add_op_callback(seen)
    try:
        result = function()
    finally:
        op_callbacks.remove_op_callback(seen)
    return result, found


def _summaries(tf: Any, tensors: Any) -> tuple[Any, ...]:
    floats = [each for each in tensors if getattr(each, "dtype", None) is not None and each.dtype.is_floating]
    return tuple(summary(np.asarray(each.numpy()), each.dtype.name) for each in floats)


def _same(inputs: Any) -> bool:
    return len(inputs) == 2 and inputs[0] is inputs[1]
