"""A dtype policy and XLA in place of the script's own.

The functions by which a script sets a policy then only note that they were called. They have many names in
Keras, and a script may import any of them, so each is replaced under all its names as Keras' import ends.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from mpprof.launch.fit import Argument
from mpprof.record.keras_compat import Method, replace

Note = Callable[[str], None]
TF_KERAS = "tf_keras"
SCALED = ("mixed_float16", "float16")
"""Policies under which a loss needs to be scaled."""


def set_policy(keras: ModuleType, policy: str, note: Note, asked: Note) -> None:
    """Set the process' dtype policy, for good; `asked` gets the names of those that the script sets. Raises
    ValueError where Keras has no such policy."""
    if keras.__name__ == TF_KERAS:
        keras.mixed_precision.set_global_policy(policy)
        setters: tuple[Any, ...] = (keras.mixed_precision.set_global_policy,)
        getter, floatx = keras.mixed_precision.global_policy, keras.backend.set_floatx
    else:
        keras.config.set_dtype_policy(policy)
        setters, getter = (keras.config.set_dtype_policy,), keras.config.dtype_policy
        floatx = keras.config.set_floatx
    wanted = getter()
    for setter in (*setters, floatx):
        tell = asked if setter in setters else _ignored
        _rebind(keras.__name__, setter, _ignoring(setter, policy, note, tell))
    _rebind(keras.__name__, getter, functools.wraps(getter)(lambda: wanted))
    if policy not in SCALED:
        replace(keras, "compile", lambda method: _unwrapping(method, policy, note))


def has_policy(keras: ModuleType, policy: str) -> bool:
    """Return whether Keras has a dtype policy of this name."""
    kind = keras.mixed_precision.Policy if keras.__name__ == TF_KERAS else keras.DTypePolicy
    try:
        kind(policy)
    except (TypeError, ValueError):
        return False
    return True


def set_jit(keras: ModuleType, jit: bool, note: Note) -> None:
    """Have each `compile` ask for XLA, or not."""

    def around(method: Method) -> Method:
        asked, eager = Argument(method, "jit_compile"), Argument(method, "run_eagerly")

        @functools.wraps(method)
        def compile_with_jit(model: Any, *args: Any, **kwargs: Any) -> Any:
            if not eager.of(args, kwargs):
                given = asked.of(args, kwargs, jit)
                if given is not jit:
                    note(f"compile(jit_compile={given!r}) was overridden: {jit}")
                args, kwargs = asked.put(args, kwargs, jit)
            elif jit:
                note("compile(run_eagerly=True) was left as it is: without XLA")
            return method(model, *args, **kwargs)

        return compile_with_jit

    replace(keras, "compile", around)


def set_compiled(keras: ModuleType, name: str, value: int) -> None:
    """Have each `compile` take this value of an argument."""

    def around(method: Method) -> Method:
        given = Argument(method, name)

        @functools.wraps(method)
        def compile_with(model: Any, *args: Any, **kwargs: Any) -> Any:
            args, kwargs = given.put(args, kwargs, value)
            return method(model, *args, **kwargs)

        return compile_with

    replace(keras, "compile", around)


def set_loss_scale(optimizer: Any, name: str, value: float) -> str | None:
    """Have a dynamic loss scale start at `value` ("loss_scale"), or grow after so many steps
    ("loss_scale_growth"). Returns why it does not; None: it does."""
    if not type(optimizer).__name__.startswith("LossScaleOptimizer"):
        return "the optimizer has no loss scale"
    state = getattr(optimizer, "_loss_scale", None)  # in tf_keras; a number where it does not change
    if isinstance(state, float):
        return "the loss scale is fixed"
    if name == "loss_scale_growth":
        owner, attribute = (optimizer, "dynamic_growth_steps") if state is None else (state, "_growth_steps")
        setattr(owner, attribute, int(value))
    elif state is not None:
        state.current_loss_scale.assign(value)
    else:
        optimizer.initial_scale = value
        if optimizer.built:
            optimizer.dynamic_scale.assign(value)
    return None


def computing_in(model: Any, policy: str) -> tuple[int, int] | None:
    """Return how many of the layers with weights compute in the policy's type, and how many there are; None
    where that is not known."""
    wanted = str(policy).removeprefix("mixed_")
    try:
        layers = [each for each in model._flatten_layers(include_self=False) if each.weights]
        leaves = [each for each in layers if not any(True for _ in each._flatten_layers(include_self=False))]
    except (AttributeError, TypeError, ValueError):  # a model of a kind of its own
        return None
    return (sum(each.compute_dtype == wanted for each in leaves), len(leaves)) if leaves else None


def not_computing_in(policy: str, took: int, layers: int) -> str:
    """Return what to say of a policy that has not reached every layer."""
    said = f"{took} of {layers} layers with weights compute in {policy.removeprefix('mixed_')}"
    return f"--policy {policy}: {said}" if took else f"--policy {policy} did not take: {said}"


def _rebind(package: str, function: Any, instead: Any) -> None:
    """Replace a function under each name that it has in the modules of a package."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and module is not None:
            names = [each for each, value in vars(module).items() if value is function]
            for each in names:
                setattr(module, each, instead)


def _ignoring(setter: Method, policy: str, note: Note, asked: Note) -> Method:
    @functools.wraps(setter)
    def ignoring(value: Any, *args: Any, **kwargs: Any) -> None:
        name = getattr(value, "name", value)
        asked(str(name))
        note(f"{setter.__name__}({name!r}) was overridden: {policy}")

    return ignoring


def _ignored(name: str) -> None:
    """Do nothing: a type is not a policy."""


def _unwrapping(method: Method, policy: str, note: Note) -> Method:
    """Return `compile` without an explicit `LossScaleOptimizer`, which only float16 needs. A `train_step` of
    the model's own may call what only tf_keras' has: it keeps it."""
    given = Argument(method, "optimizer")

    @functools.wraps(method)
    def compile_unwrapped(model: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = given.of(args, kwargs)
        inner = getattr(optimizer, "inner_optimizer", None)
        if inner is None or not type(optimizer).__name__.startswith("LossScaleOptimizer"):
            return method(model, *args, **kwargs)
        if hasattr(optimizer, "get_scaled_loss") and _steps_itself(model):
            note(
                "the LossScaleOptimizer was left in: the model has a train_step of its own, which may call it"
            )
        else:
            note(f"the LossScaleOptimizer was left out: {policy} needs none")
            args, kwargs = given.put(args, kwargs, inner)
        return method(model, *args, **kwargs)

    return compile_unwrapped


def _steps_itself(model: Any) -> bool:
    """Return whether a class of the user's defines the model's `train_step`."""
    kinds = (each for each in type(model).__mro__ if "train_step" in vars(each))
    return not next(kinds).__module__.startswith((f"{TF_KERAS}.", "keras."))
