"""The calls of Keras' `fit`, and the exceptions that leave them.

Keras calls no hook of a callback when `fit` raises. So `fit` itself is replaced where Keras defines it, once
in a process, by a function that calls it, and hands on what it returns or raises.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable
from typing import Any

from mpprof.record.keras_compat import KERAS_2, Method, replace

Left = Callable[[BaseException], None]

_WATCHED = "_mpprof_watched"


class _Running(threading.local):
    """The calls that run in this thread, the innermost last: who of each is told of its exception."""

    def __init__(self) -> None:
        self.calls: list[list[Left]] = []


_running = _Running()


def watch_fits() -> None:
    """Have each `fit` that is called from now on watched, of every Keras that is imported."""
    for name in ("keras", KERAS_2):
        if (keras := sys.modules.get(name)) is not None:
            replace(keras, "fit", _watched)


def on_exception(left: Left) -> None:
    """Have `left` told of the exception that leaves the innermost `fit` of this thread, if one does.
    Does nothing where no `fit` that is watched runs."""
    if _running.calls:
        _running.calls[-1].append(left)


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
