"""Which framework a run trains with: what its remedies are written for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from mpprof.model.run import RunFacts
from mpprof.model.shell import quoted
from mpprof.model.trace import Trace

Framework = Literal[
    "keras on tensorflow",
    "tf_keras",
    "keras on jax",
    "keras on torch",
    "tensorflow",
    "jax",
    "torch",
    "unknown",
]
"""Keras 3 by its backend, Keras 2 (tf_keras, or tf.keras up to TensorFlow 2.15), or no Keras at all."""

ANY: frozenset[Framework] = frozenset(get_args(Framework))
KERAS_2: frozenset[Framework] = frozenset({"tf_keras"})
KERAS_3: frozenset[Framework] = frozenset({"keras on tensorflow", "keras on jax", "keras on torch"})
KERAS: frozenset[Framework] = KERAS_2 | KERAS_3
ON_TENSORFLOW: frozenset[Framework] = frozenset({"keras on tensorflow", "tf_keras", "tensorflow"})
ON_JAX: frozenset[Framework] = frozenset({"keras on jax", "jax"})
ON_TORCH: frozenset[Framework] = frozenset({"keras on torch", "torch"})
TENSORFLOW: frozenset[Framework] = frozenset({"tensorflow"})
JAX: frozenset[Framework] = frozenset({"jax"})
TORCH: frozenset[Framework] = frozenset({"torch"})
UNKNOWN: frozenset[Framework] = frozenset({"unknown"})
WITHOUT_KERAS: frozenset[Framework] = ANY - KERAS

_OF_BACKEND: dict[str, tuple[Framework, Framework]] = {
    "tensorflow": ("keras on tensorflow", "tensorflow"),
    "jax": ("keras on jax", "jax"),
    "torch": ("keras on torch", "torch"),
}
"""The framework with Keras and without it."""


def of_model(run: RunFacts | None, trace: Trace | None, named: Callable[..., bool]) -> Framework:
    """Return what the model is written in. `named`: whether a text of the trace holds any argument."""
    if run is None:
        return "unknown" if trace is None else _of_trace(trace, named)
    with_keras, without = _backend(run)
    if run.framework.get("loop") == "custom" and "keras" not in run.framework:
        return without
    return "tf_keras" if run.is_keras_2 else with_keras


def of_loop(run: RunFacts | None, model: Framework) -> Framework:
    """Return what runs the loop: the model's framework; in a loop of the user's own the one below Keras."""
    if run is None or run.framework.get("loop") != "custom":
        return model
    return _backend(run)[1]


def keras_of(run: RunFacts | None, framework: Framework) -> str:
    """Return the name under which this Keras is imported."""
    if framework != "tf_keras":
        return "keras"
    return "tf_keras" if run is not None and run.framework.get("keras_package") == "tf_keras" else "tf.keras"


def words(run: RunFacts | None, framework: Framework) -> dict[str, object]:
    """Return what the table's remedies leave open that follows from the framework, by name."""
    keras, old = keras_of(run, framework), framework == "tf_keras"
    set_policy = f"{keras}.mixed_precision.set_global_policy" if old else "keras.config.set_dtype_policy"
    return {
        "keras": keras,
        "set_policy": set_policy,
        "scaled_optimizer": f"{keras}.{'mixed_precision' if old else 'optimizers'}.LossScaleOptimizer",
        "inner": _optimizer(run),
        "pad": "tf.pad" if old else "keras.ops.pad",
        "script": _script(run),
    }


def _script(run: RunFacts | None) -> str:
    """Return the recorded script as a shell reads it behind a command; "train.py" where it is not known, or
    fills a line by itself."""
    name = run.script if run is not None else None
    if name is None or len(name) > _LONGEST_SCRIPT:
        return "train.py"
    return f"-m {quoted(name[3:])}" if name.startswith("-m ") else quoted(name)


_LONGEST_SCRIPT = 60
_OPTIMIZERS = frozenset((
    "SGD", "RMSprop", "Adam", "AdamW", "Adadelta", "Adagrad", "Adamax", "Adafactor", "Nadam", "Ftrl", "Lion",
    "Lamb",
))  # fmt: skip
"""Keras' own classes: no others are in `keras.optimizers`."""


def _optimizer(run: RunFacts | None) -> str:
    """Return the class of the recorded optimizer, or of the one inside a LossScaleOptimizer; "Adam" where it
    is not
    one of Keras' own, or not known."""
    fit = run.fits[-1] if run is not None and run.fits else None
    name = (fit.optimizer.inner or fit.optimizer.class_name) if fit is not None else None
    return name if name in _OPTIMIZERS else "Adam"


def _backend(run: RunFacts) -> tuple[Framework, Framework]:
    # Records from before the backend was stated are TensorFlow's.
    return _OF_BACKEND.get(str(run.framework.get("backend", "tensorflow")), ("unknown", "unknown"))


def _of_trace(trace: Trace, named: Callable[..., bool]) -> Framework:
    """Decide by names of host events, ops and kernels that only this framework writes."""
    if named("PjitFunction(") or any(op.name.startswith("jit(") for op in trace.ops):
        return "keras on jax" if named("Profiled batch") else "jax"
    if named("aten::", "at::native::", "ProfilerStep#", "autograd::engine", "Torch-Compiled Region"):
        return "torch"
    if named("step_on_iterator", "step_on_data", "Profiled batch"):
        return "keras on tensorflow"
    if named("train_function"):  # Keras 3 gives it another name
        return "tf_keras"
    if named("IteratorGetNext", "ExecutorState", "EagerExecute", "EagerLocalExecute", "tensorflow::"):
        return "tensorflow"
    return "unknown"
