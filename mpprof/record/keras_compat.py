"""Which Keras a model is of: Keras 3, or Keras 2 as the package tf_keras. They differ in a few names."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

KERAS_2 = "tf_keras"
Method = Callable[..., Any]


def keras_of(model: Any) -> ModuleType | None:
    """Return the Keras that made this model, an optimizer or a layer; Keras 3 where that cannot be told.
    None: no Keras is imported, or the model that a loop trains is not Keras'."""
    trained = getattr(model, "model", None)
    parts = (model, trained, getattr(model, "optimizer", None))
    packages = {kind.__module__.partition(".")[0] for part in parts for kind in type(part).__mro__}
    if trained is not None and not packages & {"keras", KERAS_2}:
        return None
    return sys.modules.get(KERAS_2 if KERAS_2 in packages else "keras")


def global_policy(keras: ModuleType) -> str:
    """Return the name of the process' dtype policy."""
    if keras.__name__ == KERAS_2:
        return str(keras.mixed_precision.global_policy().name)
    return str(keras.config.dtype_policy().name)


def steps_per_execution(model: Any) -> int:
    """Return the model's steps per execution: Keras 2 keeps the number in a variable, under a strategy in a
    mirrored one."""
    steps: Any = getattr(model, "steps_per_execution", None)
    steps = steps.numpy() if hasattr(steps, "numpy") else steps
    return int(steps or 1)


def steps_run_in_fit(model: Any) -> int | None:
    """Return for Keras 2 how many steps of the running `fit` have succeeded, so far as the model's own
    counter tells, which depends on their results (`Model.make_train_function`). None: this model has none."""
    counter: Any = getattr(model, "_train_counter", None)
    return int(counter.numpy()) if hasattr(counter, "numpy") else None


def counts_skipped_steps(optimizer: Any) -> bool:
    """Return whether the optimizer's counter advances on steps whose update was skipped. In Keras 2 it does:
    read in tf_keras 2.21, `LossScaleOptimizerV3.apply_gradients`."""
    return hasattr(optimizer, "_loss_scale") and hasattr(optimizer, "inner_optimizer")


def overrides(callback: Any, hook: str) -> bool:
    """Return whether this callback of Keras 3 does something at a hook: its base's own are marked."""
    return not getattr(getattr(callback, hook, None), "_is_default", False)


def replace(keras: ModuleType, name: str, by: Callable[[Method], Method]) -> None:
    """Replace a method of Keras' models where it is defined, by what `by` makes of it; nothing where there is
    none."""
    for owner in keras.Model.__mro__:
        if name in vars(owner):
            setattr(owner, name, by(vars(owner)[name]))
            return
