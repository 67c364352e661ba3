"""Whether the training step scales the loss, seen while its function is traced, or runs without being traced.

Keras' LossScaleOptimizer divides the gradients by its scale; the step itself has to have multiplied the loss.
Its `scale_loss` reads `dynamic_scale` (before the optimizer is built `initial_scale`), and a step of the
user's that multiplies by hand reads it, too (read in Keras 3.15, `optimizers/loss_scale_optimizer.py`). So
until the first call has run, these two attributes are looked up through the class of the optimizer, which
hands on what the optimizer holds. The optimizer itself is not touched.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled

READ = ("dynamic_scale", "initial_scale")
_MODULE = ".loss_scale_optimizer"
_REPLICA = "_MirroredReplicaThread"
"""In such a thread `tf.distribute`'s mirrored strategies trace the step of a replica, while the training's
own thread waits (TensorFlow, `distribute/mirrored_run.py`)."""
_APPLIES = frozenset(
    f"_{kind}_handle_{found}_grads"
    for kind in ("stateless", "stateful")
    for found in ("finite", "non_finite")
)


class _Looked:
    """Stands on the class for an attribute that its instances hold."""

    def __init__(self, name: str, seen: Callable[[Any], None]) -> None:
        self._name, self._seen = name, seen

    def __get__(self, optimizer: Any, owner: Any = None) -> Any:
        if optimizer is None or self._name not in optimizer.__dict__:
            raise AttributeError(f"{type(optimizer).__name__!r} object has no attribute {self._name!r}")
        self._seen(optimizer)
        return optimizer.__dict__[self._name]

    def __set__(self, optimizer: Any, value: Any) -> None:
        optimizer.__dict__[self._name] = value

    def __delete__(self, optimizer: Any) -> None:
        del optimizer.__dict__[self._name]


def _is_keras_3s(kind: type) -> bool:
    """Return whether this is Keras 3's own class, whose instances hold what is read: Keras 2's has properties
    of these names."""
    return kind.__name__ == "LossScaleOptimizer" and not any(name in vars(kind) for name in READ)


class ScaleWatch:
    """Watches from its making until `stop`. `within` says whether the training's own step runs now.
    `function`: what Keras calls for a step, and keeps for further fits of the model, which trace nothing."""

    def __init__(self, optimizer: Any, within: Callable[[], bool], function: Any = None) -> None:
        self._optimizer, self._within, self._function = optimizer, within, function
        self._thread = threading.get_ident()
        self._applied = self._scaled = False
        self._owner = next((kind for kind in type(optimizer).__mro__ if _is_keras_3s(kind)), None)
        if self._owner is not None and _HELD.acquire(blocking=False):
            for name in READ:
                setattr(self._owner, name, _Looked(name, self._seen))
        else:
            self._owner = None

    def stop(self) -> bool | None:
        """Return whether the loss was scaled, now or as this function was traced before; None where that
        could not be seen."""
        owner, self._owner, self._optimizer = self._owner, None, None
        if owner is not None:
            for name in READ:
                delattr(owner, name)
            _HELD.release()
        function, self._function = self._function, None
        try:
            if self._applied:
                _TRACED[function] = self._scaled
            return _TRACED.get(function)
        except TypeError:  # no weak reference can be made of it
            return self._scaled if self._applied else None

    def _seen(self, optimizer: Any) -> None:
        of_replica = type(threading.current_thread()).__name__ == _REPLICA
        own = of_replica or threading.get_ident() == self._thread
        if optimizer is not self._optimizer or not own:
            return
        try:
            reader = sys._getframe(2)
            name, module = reader.f_code.co_name, str(reader.f_globals.get("__name__", ""))
            of_keras = module.startswith("keras.") and module.endswith(_MODULE)
            if of_keras and name in _APPLIES:
                self._applied = True
            elif (name == "scale_loss" if of_keras else not module.startswith("mpprof.")) and (
                of_replica or self._within()
            ):
                self._scaled = True
        except FAILURES as error:  # no failure of ours may stop the user's training
            raise_if_signalled(error)


_TRACED: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()
"""By the function of a training's step, whether it was seen to scale the loss as it was traced."""
_HELD = threading.Lock()
"""One training at a time watches: the class is the process'."""
