"""Work that may hang or take long: training waits for it a limited time."""

from __future__ import annotations

import contextlib
import functools
import json
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any, TypeVar

from mpprof import child

T = TypeVar("T")

DEADLINE_SECONDS = 5.0
"""Longer than a slow network file system takes to make a file, shorter than what one would call a hang."""

FAILURES = (Exception, SystemExit)
"""What counts as a failure of ours. An interrupt is not: it is meant for the training. Nor is what a
signal's handler raises, see `is_signalled`."""

_CHILD = """
import importlib, json, pathlib, sys
module, _, name = sys.argv[1].partition(":")
found = getattr(importlib.import_module(module), name)(pathlib.Path(sys.argv[2]))
print(json.dumps(found))
"""


def is_signalled(error: BaseException) -> bool:
    """Return whether the handler of a signal has raised the error, e.g. to end a training whose machine is
    taken away: the error is meant for the training, wherever in our code the signal came."""
    run = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    return any(_code(signal.getsignal(number)) in run for number in signal.valid_signals())


def raise_if_signalled(error: BaseException) -> None:
    """Raise `error` again where the handler of a signal has raised it."""
    if is_signalled(error):
        raise error


def _code(handler: Any) -> CodeType | None:
    """Return the code that a signal runs; None where the handler is not written in Python."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not callable(handler):
        return None
    function = handler if hasattr(handler, "__code__") else type(handler).__call__
    code = getattr(function, "__code__", None)
    return code if isinstance(code, CodeType) else None


@contextlib.contextmanager
def failures_suppressed() -> Iterator[None]:
    """Leave a failure of ours at that: what fails is an extra, or is given up."""
    try:
        yield
    except FAILURES as error:
        raise_if_signalled(error)


def say(by: Callable[..., object], *words: Any, **more: Any) -> None:
    """Say something by a function of the log, or by `print`. `by` is not ours: if it fails, nothing is
    reported."""
    with failures_suppressed():
        by(*words, **more)


def with_timeout(work: Callable[..., T], *arguments: Any, deadline_s: float | None = None) -> T:
    """Return the result of `work(*arguments)`, run in a thread of our own, or raise its error.

    Raises `TimeoutError` after the deadline; the thread is then left behind, and its result is dropped."""
    limit = DEADLINE_SECONDS if deadline_s is None else deadline_s
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(work(*arguments))
        except BaseException as error:  # noqa: BLE001 - raised again where it was asked for
            errors.append(error)

    thread = threading.Thread(target=run, name="mpprof timeout", daemon=True)
    thread.start()
    thread.join(limit)
    if errors:
        raise errors[0]
    if not results:
        raise TimeoutError(f"no answer within {limit:g} s")
    return results[0]


def in_own_process(name: str, path: Path, *, deadline_s: float) -> Any:
    """Return what the function `name` ("module:function") makes of a path, in a process of its own that is
    killed at the deadline: so nothing of it goes on beside the training. Only what JSON knows comes back.

    Raises `SubprocessError` where it fails or takes longer, `OSError` where it cannot be started."""
    if getattr(sys, "frozen", False):
        raise OSError("the program is packed: sys.executable is not a Python interpreter")
    done = subprocess.run(
        child.command("-X", "utf8", "-c", _CHILD, name, str(path)),
        env=child.environment(child.places()),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=deadline_s,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])
