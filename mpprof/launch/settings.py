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

from mpprof.launch.fit import Argument, Method, replace

Note = Callable[[str], None]
TF_KERAS = "tf_keras"
SCALED = ("mixed_float16", "float16")
"""Policies under which a loss needs to be scaled."""


def set_policy(keras: ModuleType, policy: str, note: Note) -> None:
    """Set the process' dtype policy, for good. Raises ValueError where Keras has no such policy."""
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
        _rebind(keras.__name__, setter, _ignoring(setter, policy, note))
    _rebind(keras.__name__, getter, functools.wraps(getter)(lambda: wanted))
    if policy not in SCALED:
        replace(keras, "compile", lambda method: _unwrapping(method, policy, note))


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


def computes_in(model: Any, policy: str) -> str | None:
    """Return what to say of the layers with weights that do not compute in the policy's type; None where all
    do, or none is known."""
    wanted = str(policy).removeprefix("mixed_")
    try:
        layers = [each for each in model._flatten_layers(include_self=False) if each.weights]
        leaves = [each for each in layers if not any(True for _ in each._flatten_layers(include_self=False))]
    except (AttributeError, TypeError, ValueError):  # a model of a kind of its own
        return None
    took = sum(each.compute_dtype == wanted for each in leaves)
    if took == len(leaves):
        return None
    said = f"{took} of {len(leaves)} layers with weights compute in {wanted}"
    return f"--policy {policy} did not take: {said}" if not took else f"--policy {policy}: {said}"


def _rebind(package: str, function: Any, instead: Any) -> None:
    """Replace a function under each name that it has in the modules of a package."""
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] == package and module is not None:
            names = [each for each, value in vars(module).items() if value is function]
            for each in names:
                setattr(module, each, instead)


def _ignoring(setter: Method, policy: str, note: Note) -> Method:
    @functools.wraps(setter)
    def ignoring(value: Any, *args: Any, **kwargs: Any) -> None:
        note(f"{setter.__name__}({getattr(value, 'name', value)!r}) was overridden: {policy}")

    return ignoring


def _unwrapping(method: Method, policy: str, note: Note) -> Method:
    """Return `compile` without an explicit `LossScaleOptimizer`, which only float16 needs."""
    given = Argument(method, "optimizer")

    @functools.wraps(method)
    def compile_unwrapped(model: Any, *args: Any, **kwargs: Any) -> Any:
        optimizer = given.of(args, kwargs)
        inner = getattr(optimizer, "inner_optimizer", None)
        if inner is not None and type(optimizer).__name__.startswith("LossScaleOptimizer"):
            note(f"the LossScaleOptimizer was left out: {policy} needs none")
            args, kwargs = given.put(args, kwargs, inner)
        return method(model, *args, **kwargs)

    return compile_unwrapped
