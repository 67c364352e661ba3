"""The calls of Keras' `fit`, and the exceptions that leave them.

Keras calls no hook of a callback when `fit` raises. So `fit` itself is replaced where Keras defines it, once
in a process, by a function that calls it, and hands on what it returns or raises.

A `fit` that was looked up before is not: in `model.fit(x, callbacks=[mpprof.MPProfilerCallback("logs")])`
Python looks up `fit` first, and imports ours then. Of such a one the exceptions are seen that leave the steps
of an epoch (`watch_steps`) or a hook at its begin or end (`wall_time.hooks`), and any that ends the script.
"""

from __future__ import annotations

import functools
import sys
import threading
import weakref
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from mpprof.record.facts.fit import is_fit
from mpprof.record.keras_compat import KERAS_2, Method, replace

Left = Callable[[BaseException], None]
Call = tuple[CodeType, int]
"""A place in a caller's code: the instruction, in bytes from its beginning."""

_WATCHED = "_mpprof_watched"
_AROUND = "catch_stop_iteration"


class _Running(threading.local):
    """The calls that run in this thread, the innermost last: who of each is told of its exception."""

    def __init__(self) -> None:
        self.calls: list[list[Left]] = []


_running = _Running()


def watch_fits() -> None:
    """Have each `fit` that is called from now on watched, of every Keras that is imported. One that is being
    imported has no models yet: tf_keras imports TensorFlow, and that Keras 3."""
    for name in ("keras", KERAS_2):
        if (keras := sys.modules.get(name)) is not None and hasattr(keras, "Model"):
            replace(keras, "fit", _watched)


def on_exception(left: Left) -> bool:
    """Have `left` told of the exception that leaves the innermost `fit` of this thread, if one does. Returns
    whether it will be: not where no `fit` that is watched runs."""
    if _running.calls:
        _running.calls[-1].append(left)
    return bool(_running.calls)


def watch_steps(batches: Any, left: Left) -> None:
    """Have `left` told of the exception that leaves the steps of a `fit` which nobody watches. `batches` is
    what hands them out: each epoch `fit` asks it for what surrounds its steps (read in Keras 3.15,
    `EpochIterator`, and tf_keras 2.21, `DataHandler`). Does nothing where it has none."""
    kind = type(batches)
    if not _of_keras(kind.__module__) or not callable(getattr(kind, _AROUND, None)):
        return
    held = weakref.ref(batches)  # which holds what follows: it would keep itself and the data alive
    setattr(batches, _AROUND, lambda: _Steps(getattr(kind, _AROUND)(held()), left))


class _Steps:
    """Surrounds the steps of an epoch as Keras' own does, and tells of the exception that leaves them."""

    def __init__(self, around: Any, left: Left) -> None:
        self._around, self._left = around, left

    def __enter__(self) -> Any:
        return self._around.__enter__()

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> Any:
        handled = False
        try:
            handled = self._around.__exit__(kind, error, trace)
        except BaseException as other:
            self._left(other)
            raise
        if error is not None and not handled:
            self._left(error)
        return handled


def caller_of_fit() -> Call | None:
    """Return the place from which the `fit` that is calling us was called; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_fit(frame):
        frame = frame.f_back
    while frame is not None and _is_keras(frame):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def uncaught(call: Call | None) -> BaseException | None:
    """Return the exception that ended the script, if it left this call of `fit`; None where it did not, or
    where none is known. Keras takes its own frames out of a traceback, so that its caller's is looked for."""
    error: BaseException | None = getattr(sys, "last_value", None)
    trace = None if error is None or call is None else error.__traceback__
    while trace is not None:
        if (trace.tb_frame.f_code, trace.tb_lasti) == call:
            return error
        trace = trace.tb_next
    return None


def _is_keras(frame: FrameType) -> bool:
    return _of_keras(str(frame.f_globals.get("__name__", "")))


def _of_keras(module: str) -> bool:
    return module.partition(".")[0] in ("keras", KERAS_2)


def _watched(fit: Method) -> Method:
    if hasattr(fit, _WATCHED):
        return fit

    @functools.wraps(fit)
    def watched(*args: Any, **kwargs: Any) -> Any:
        to_tell: list[Left] = []
        _running.calls.append(to_tell)
        try:
            return fit(*args, **kwargs)
        except BaseException as error:
            for left in to_tell:
                left(error)
            raise
        finally:
            _running.calls.pop()

    setattr(watched, _WATCHED, True)
    return watched
