"""The callback in each `fit` that has none, and a recorder around `train_on_batch`.

Keras' own methods are replaced, on the class that defines them: the backend's trainer in Keras 3, `Model` in
tf_keras. A subclass that overrides `fit` and calls Keras' meets the callback there, once.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from mpprof.record.keras_compat import Method, overrides, replace

CallbacksOf = Callable[[Any, bool], list[Any]]
"""What is to be added to a fit of this model. The second argument: whether the script has its own
`MPProfilerCallback` in it."""
StepOf = Callable[[Any, Callable[[], Any]], Any]


class Training(threading.local):
    """Whether a fit runs in this thread: what trains within it is a part of it, and not recorded apart."""

    runs = False

    @contextmanager
    def running(self) -> Iterator[None]:
        self.runs = True
        try:
            yield
        finally:
            self.runs = False


class Argument:
    """An argument of a method, by place or by name."""

    def __init__(self, method: Method, name: str) -> None:
        self._name, self._at = name, list(inspect.signature(method).parameters).index(name) - 1

    def of(self, args: tuple[Any, ...], kwargs: dict[str, Any], default: Any = None) -> Any:
        return args[self._at] if len(args) > self._at else kwargs.get(self._name, default)

    def put(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call with another value of this one."""
        if len(args) > self._at:
            return (*args[: self._at], value, *args[self._at + 1 :]), kwargs
        return args, {**kwargs, self._name: value}


def with_callbacks(
    keras: ModuleType, training: Training, callbacks_of: CallbacksOf, trained: Callable[[Any], None]
) -> None:
    """Have each `fit` take what `callbacks_of` returns beside the script's callbacks. `trained` is told of a
    model whose fit has ended well."""

    def around(fit: Method) -> Method:
        callbacks = Argument(fit, "callbacks")

        @functools.wraps(fit)
        def fit_recorded(model: Any, *args: Any, **kwargs: Any) -> Any:
            if training.runs:
                return fit(model, *args, **kwargs)
            given = callbacks.of(args, kwargs)
            if added := callbacks_of(model, has_ours(given)):
                args, kwargs = callbacks.put(args, kwargs, joined(given, added, model))
            with training.running():
                history = fit(model, *args, **kwargs)
            trained(model)
            return history

        return fit_recorded

    replace(keras, "fit", around)


def with_steps(keras: ModuleType, training: Training, step_of: StepOf) -> None:
    """Have each `train_on_batch` that no `fit` calls run within `step_of`."""

    def around(train_on_batch: Method) -> Method:
        @functools.wraps(train_on_batch)
        def train_on_batch_recorded(model: Any, *args: Any, **kwargs: Any) -> Any:
            if training.runs:
                return train_on_batch(model, *args, **kwargs)
            with training.running():
                return step_of(model, lambda: train_on_batch(model, *args, **kwargs))

        return train_on_batch_recorded

    replace(keras, "train_on_batch", around)


def joined(given: Any, added: Sequence[Any], model: Any) -> Any:
    """Return the callbacks of a fit with more behind them; what was given stays as it is.

    `given`: None, a callback, a sequence or another structure of them, or a `CallbackList`. If the callbacks
    are neither a list nor a tuple, Keras 3 calls the hooks of a batch's end in a pool of threads. So it
    becomes a list only where such a hook is added, which must be called in order."""
    if is_list_object(given):
        return _longer(given, added, model)
    if given is None or isinstance(given, list | tuple):
        return [*(given or ()), *added]
    if not given or _end_batches(added):
        return [*callbacks_in(given), *added]
    return {"0": given, **{str(k): each for k, each in enumerate(added, 1)}}


def has_ours(given: Any) -> bool:
    """Return whether an `MPProfilerCallback` is among the callbacks."""
    module = sys.modules.get("mpprof.record.callback")
    if module is None:
        return False
    return any(isinstance(each, module.MPProfilerCallback) for each in callbacks_in(given))


def callbacks_in(given: Any) -> Iterator[Any]:
    """Yield every callback of what a fit is given."""
    if is_list_object(given):
        yield from given.callbacks
    elif isinstance(given, list | tuple | dict):
        for each in (given[key] for key in sorted(given)) if isinstance(given, dict) else given:
            yield from callbacks_in(each)
    elif given is not None:
        yield given


def is_list_object(given: Any) -> bool:
    """Return whether this is a `CallbackList`, of Keras 3 or tf_keras."""
    return any(kind.__name__ == "CallbackList" for kind in type(given).__mro__)


def _longer(given: Any, added: Sequence[Any], model: Any) -> Any:
    """Return a copy of a `CallbackList` with more behind it. Its own callbacks know their model already."""
    longer = copy.copy(given)
    longer.callbacks = [*given.callbacks, *added]
    for each in added:
        each.set_params(getattr(given, "params", None) or {})
        each.set_model(model)
    # Both are decided when the list is made: in Keras 2 whether to call hooks of batches, in Keras 3 whether
    # to call those of a batch's end in a pool of threads.
    longer._should_call_train_batch_hooks = True
    longer._async_train = getattr(given, "_async_train", False) and not _end_batches(added)
    return longer


def _end_batches(callbacks: Sequence[Any]) -> bool:
    return any(overrides(each, "on_train_batch_end") for each in callbacks)
