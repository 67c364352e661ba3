"""What the callback and the recorder may be given: a wrong value is the caller's error, raised at once."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from mpprof.errors import UsageError
from mpprof.record.end_of_fit import Announce
from mpprof.record.sinks import Sink

T = TypeVar("T", bound=Callable[..., Any] | None)

ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
"""`gs://…`, also as `pathlib` leaves it, with one slash; a drive of Windows has one letter only."""


def checked_logdir(logdir: Any) -> str:
    """Return the path with a home directory in place of a `~`, as in a shell. Raises `UsageError` where it is
    no path of a local directory."""
    text = os.fspath(logdir) if isinstance(logdir, str | os.PathLike) else None
    if not isinstance(text, str) or not text:
        raise UsageError(f"logdir is {logdir!r}", next="Give the path of a directory")
    if ADDRESS.match(text):
        raise UsageError(
            f"logdir is {text!r}: records are written to a local directory",
            next="Give a local directory, and copy it to that address when training has ended",
        )
    return os.path.expanduser(text)


def checked_callable(name: str, value: T) -> T:
    """Return the value if it can be called or is None. Raises `UsageError` where it can neither be called nor
    is None."""
    if value is None or callable(value):
        return value
    raise UsageError(f"{name} is {value!r}", next="Give a function")


def checked_clock(clock: Callable[[], int]) -> Callable[[], int]:
    """Return the clock. Raises `UsageError` where it is not a function, or returns fractions, as
    `time.monotonic` does in seconds: its step times could not be read."""
    now = checked_callable("clock", clock)()
    if isinstance(now, float):
        raise UsageError(
            f"clock returns {now!r}, not whole nanoseconds", next="Give time.monotonic_ns, or one like it"
        )
    return clock


def checked_announce(announce: Announce | str | None) -> Announce | str | None:
    """Return the value if it is a function or the name of one. Raises `UsageError` where it is neither."""
    if isinstance(announce, str) and re.fullmatch(r"[\w.]+:\w+", announce):
        return announce
    if announce is None or callable(announce):
        return announce
    raise UsageError(f"announce is {announce!r}", next='Give a function, "module:function", or None')


def checked_sinks(sinks: Iterable[Sink]) -> tuple[Sink, ...]:
    """Return the sinks as a tuple. Raises `UsageError` where one of them is not a sink."""
    given = tuple(sinks) if isinstance(sinks, Iterable) else (sinks,)
    for sink in given:
        if not all(callable(getattr(sink, name, None)) for name in ("scalars", "close")):
            raise UsageError(
                f"sinks: {sink!r} is not a sink",
                next="Give a list of objects with the methods scalars and close",
            )
    return given


def checked_numerics(numerics: bool | tuple[Any, ...]) -> bool | tuple[Any, ...]:
    """Return the value. Raises `UsageError` where it is neither True or False nor a batch."""
    if isinstance(numerics, bool):
        return numerics
    if isinstance(numerics, tuple | list) and 1 <= len(numerics) <= 3:
        return tuple(numerics)
    raise UsageError(
        f"numerics is a {type(numerics).__name__}",
        next="Give True, or a batch: (x, y) or (x, y, sample_weight)",
    )


def checked_batch_size(size: int | None) -> int | None:
    """Return the batch size. Raises `UsageError` where it is no whole number of 1 or more."""
    if size is None or (isinstance(size, int) and type(size) is not bool and size >= 1):
        return size
    raise UsageError(f"batch_size is {size!r}", next="Give the global batch size, 1 or more, or None")
