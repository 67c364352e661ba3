"""Work that may hang is done aside: in a thread of our own, for which training waits a limited time."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

DEADLINE_SECONDS = 5.0
"""Longer than a slow network file system takes to make a file, shorter than what one would call a hang."""

FAILURES = (Exception, SystemExit)
"""What counts as a failure of ours. An interrupt is not: it is meant for the training."""


def aside(
    work: Callable[..., T], *arguments: Any, deadline_s: float | None = None, computes: bool = False
) -> T:
    """The result of `work(*arguments)`, or its error. Raises `TimeoutError` after the deadline; the thread is
    then left behind, and what it may still return is dropped.

    `computes`: it does not wait for a disk, and must not go on beside the training. It is then ended by a
    `SystemExit` between two of its Python instructions."""
    limit = DEADLINE_SECONDS if deadline_s is None else deadline_s
    results: list[T] = []
    errors: list[BaseException] = []
    ending, ended = threading.Lock(), threading.Event()

    def run() -> None:
        try:
            results.append(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            errors.append(error)
        with ending:
            ended.set()

    thread = threading.Thread(target=run, name="mpprof aside", daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        raise errors[0]
    if not results:
        if computes:
            with ending:  # a thread that had ended may have left its number to another
                if not ended.is_set() and thread.ident is not None:
                    _exit(thread.ident)
        raise TimeoutError(f"no answer within {limit:g} s")
    return results[0]


def _exit(thread: int) -> None:
    """Raise `SystemExit` in another thread, which ends it without a word."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(SystemExit))
