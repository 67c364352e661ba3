"""The look on JAX: the step under `jax.jit`, with a 0 added to each output to take its gradient."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from mpprof.numbers import tallies
from mpprof.numbers.causes import Op, summary
from mpprof.numbers.counting import counted
from mpprof.numbers.job import Entry, Job, require_loss
from mpprof.numbers.result import Tensor
from mpprof.numbers.taps import LOSS, Place

INNER = ("jaxpr", "call_jaxpr", "fun_jaxpr")
"""The parameters of an operation that hold the operations that it is made of."""
LOOPS = ("scan", "while", "cond")


class JaxStep:
    """See `job.Step`."""

    def __init__(self, job: Job) -> None:
        import jax

        self._jax, self._job = jax, job
        model = job.model
        eager = bool(model.run_eagerly) or getattr(model, "jit_compile", True) is False
        self.compiled, self.note = not eager, "the training's own step runs eagerly, too" if eager else None
        self._state = _state(model)
        self._variables = _variables(model)
        self._shapes: list[tuple[tuple[int, ...], Any]] = []
        self._places: list[tuple[Place, Tensor, str, str | None]] = []
        self.gradients: list[Any] = []
        job.taps.take = self._note_shape
        jax.eval_shape(self._loss, [], *self._state, job.x, job.y, job.sample_weight, np.float32(1))
        self._run = self._step if eager else jax.jit(self._step)

    def run(self, scale: float) -> list[Entry]:
        job = self._job
        counts, self.gradients = self._run(*self._state, job.x, job.y, job.sample_weight, np.float32(scale))
        return [
            Entry(place, tensor, tallies.tally(dtype, row), weight)
            for (place, tensor, dtype, weight), row in zip(self._places, np.asarray(counts), strict=True)
        ]

    def _note_shape(self, place: Place, tensor: Any, dtype: str) -> Any:
        self._shapes.append((tensor.shape, tensor.dtype))
        return tensor

    def _loss(
        self, zeros: Any, trained: Any, others: Any, x: Any, y: Any, sample_weight: Any, scale: Any
    ) -> Any:
        job, trace = self._job, _trace()
        job.taps.reachable = lambda: _trace() is trace
        with job.scope(list(zip(self._variables, [*trained, *others], strict=True))):
            predicted = job.forward(x)
            if not job.with_loss:
                return self._jax.numpy.zeros(()), None
            loss = require_loss(job.loss_of(x, y, predicted, sample_weight))
            return job.keras.ops.multiply(loss, scale), loss

    def _step(self, trained: Any, others: Any, x: Any, y: Any, sample_weight: Any, scale: Any) -> Any:
        jax, job = self._jax, self._job
        places: list[tuple[Place, Tensor, str, str | None]] = []
        rows: list[Any] = []
        outputs: list[Place] = []

        def add(place: Place, tensor: Tensor, value: Any, weight: str | None = None) -> None:
            places.append((place, tensor, str(value.dtype), weight))
            rows.append(counted(job.keras.ops, value, str(value.dtype), bits_of))

        def pass_with(zeros: Any, trained: Any) -> Any:
            taken: list[Any] = []

            def take(place: Place, tensor: Any, dtype: str) -> Any:
                outputs.append(place)
                taken.append(tensor)
                return tensor + zeros[len(taken) - 1]

            job.taps.take = take
            scaled, loss = self._loss(zeros, trained, others, x, y, sample_weight, scale)
            return scaled.astype(np.float32) if not job.with_loss else scaled, (taken, loss)

        zeros = [jax.numpy.zeros(shape, dtype) for shape, dtype in self._shapes]
        (of_outputs, of_weights), (taken, loss) = jax.grad(pass_with, argnums=(0, 1), has_aux=True)(
            zeros, list(trained)
        )
        for place, tensor in zip(outputs, taken, strict=True):
            add(place, "output", tensor)
        if job.with_loss:
            add(LOSS, "output", loss)
            for place, gradient in reversed(list(zip(outputs, of_outputs, strict=True))):
                add(place, "gradient", gradient)
            owners = job.owners()
            for variable, gradient in zip(job.model.trainable_variables, of_weights, strict=True):
                layer, name = owners[id(variable)]
                add(Place(layer, 0, 0), "weight_gradient", gradient, name)
        self._places = places
        return jax.numpy.stack(rows), [each for each in of_weights if str(each.dtype) in tallies.HALF]


def _trace() -> Any:
    """Return the trace that JAX computes in now: another one within a loop or a function of its own."""
    from jax._src import core

    context = getattr(core, "trace_ctx", None)
    if context is not None:
        return context.trace
    return core.thread_local_state.trace_state.trace_stack.dynamic  # before JAX 0.4.36


def _state(model: Any) -> tuple[list[Any], list[Any]]:
    """Return the values of the model's variables: of those that are trained, and of the others with those of
    its metrics. Within an epoch Keras keeps them in `_jax_state`, and those of the variables are gone."""
    state = getattr(model, "_jax_state", None)
    if state and not model._jax_state_synced:
        others = [*state["non_trainable_variables"], *state["metrics_variables"]]
        return list(state["trainable_variables"]), others
    others = [each.value for each in (*model.non_trainable_variables, *model.metrics_variables)]
    return [each.value for each in model.trainable_variables], others


def _variables(model: Any) -> list[Any]:
    return [*model.trainable_variables, *model.non_trainable_variables, *model.metrics_variables]


def values(model: Any) -> list[tuple[Any, Any]]:
    """Return the model's variables with their values, which within an epoch they do not hold."""
    trained, others = _state(model)
    return list(zip(_variables(model), [*trained, *others], strict=True))


def step(job: Job) -> JaxStep:
    """Return the step of a job."""
    return JaxStep(job)


def kept(model: Any) -> AbstractContextManager[None]:
    """Return the context in which what is the backend's own is kept: there is nothing, functions are pure."""
    return nullcontext()


def put_back() -> Callable[[], None]:
    """Return what gives the backend's own generators their state: it has none that a model may use."""
    return lambda: None


def bits_of(tensor: Any, name: str) -> Any:
    """Return a tensor's bits as integers of that type."""
    import jax

    return jax.lax.bitcast_convert_type(tensor, name)


def tensors(keras: Any, structure: Any) -> Any:
    """Return arrays as the training is given them."""
    import jax

    return keras.tree.map_structure(lambda each: None if each is None else jax.numpy.asarray(each), structure)


def operations(function: Callable[[], Any], job: Job) -> tuple[Any, list[Op]]:
    """Run a function eagerly; return its result and each operation that ran, in order."""
    import jax

    closed = jax.make_jaxpr(lambda: job.keras.tree.flatten(function()))()
    found: list[Op] = []
    _interpret(jax, closed.jaxpr, closed.consts, [], found)
    return function(), found


def _interpret(jax: Any, jaxpr: Any, consts: Any, arguments: Any, found: list[Op]) -> list[Any]:
    """Run operation by operation, as JAX's own `eval_jaxpr` does, and note each; return the results."""
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    scalars: dict[int, Any] = {}  # one number that was made an array, by its variable

    def value_of(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else values[variable]

    for equation in jaxpr.eqns:
        inputs = [value_of(each) for each in equation.invars]
        inner = next((equation.params[name] for name in INNER if name in equation.params), None)
        if inner is not None and equation.primitive.name not in LOOPS:
            inner, constants = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
            outputs = _interpret(jax, inner, constants, inputs, found)
        else:
            bound = equation.primitive.get_bind_params(equation.params)
            functions, parameters = bound if isinstance(bound, tuple) else ((), bound)  # before JAX 0.10
            outputs = equation.primitive.bind(*functions, *inputs, **parameters)
            outputs = list(outputs) if equation.primitive.multiple_results else [outputs]
            told = [scalars.get(id(each), value) for each, value in zip(equation.invars, inputs, strict=True)]
            if equation.primitive.name == "broadcast_in_dim" and not np.ndim(told[0]):
                scalars[id(equation.outvars[0])] = told[0]
            same = len(inputs) == 2 and equation.invars[0] is equation.invars[1]
            found.append(Op(equation.primitive.name, _summaries(told), _summaries(outputs), same))
        values.update(zip(equation.outvars, outputs, strict=True))
    return [value_of(each) for each in jaxpr.outvars]


def _summaries(values: Any) -> tuple[Any, ...]:
    arrays = [np.asarray(each) for each in values if not str(getattr(each, "dtype", "")).startswith("key")]
    return tuple(summary(each, str(each.dtype)) for each in arrays if "float" in str(each.dtype))
