"""What a framework tells of its own compiling, while a training runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled

Told = Callable[[int, int | None], None]
"""Told of so many compiles, and of the nanoseconds that they took; None: that is not known."""


class Compiles(Protocol):
    """A source, from its making until `stop`. `name` is its name in the records."""

    name: str

    def ask(self) -> None:
        """Tell what was compiled since this was asked last, where the source does not tell at once."""
        ...

    def stop(self) -> None: ...


class Counted:
    """A source that counts by itself, `total` so far: (compiles, ns or None)."""

    def __init__(self, name: str, total: Callable[[], tuple[int, int | None]], told: Told) -> None:
        self.name, self._total, self._told = name, total, told
        self._before = total()

    def ask(self) -> None:
        (calls_before, ns_before), now = self._before, self._total()
        self._before, (calls, ns) = now, now
        if calls > calls_before:
            known = ns is not None and ns_before is not None
            self._told(calls - calls_before, ns - ns_before if known else None)  # type: ignore[operator]

    def stop(self) -> None:
        """Do nothing: nothing of ours was added to the framework."""


class Durations:
    """A source that is told each part of a compile as it ends, and how many seconds it took. Parts may lie
    within each other: what lies in a later one that began before it counts once."""

    def __init__(self, name: str, told: Told) -> None:
        self.name, self._told = name, told
        self._thread = threading.get_ident()
        self._parts: list[tuple[float, float]] = []  # begin and seconds of those that lie in no other
        self.stop: Callable[[], None] = _nothing

    def ask(self) -> None:
        """Do nothing: it tells at once."""

    def heard(self, seconds: float, compiles: int) -> None:
        """Note a part that ends now, in any thread. Compiling must not fail because of this."""
        if threading.get_ident() != self._thread:
            return
        try:
            begin, within = time.monotonic() - seconds, 0.0
            while self._parts and self._parts[-1][0] >= begin:
                within += self._parts.pop()[1]
            self._parts.append((begin, seconds))
            self._told(compiles, max(0, round((seconds - within) * 1e9)))
        except FAILURES as error:
            raise_if_signalled(error)


def _nothing() -> None:
    """Do nothing: nothing was begun."""


def tracings(functions: Any) -> int:
    """Return how often TensorFlow has traced a function of Keras': the function itself counts, or what it has
    captured."""
    captured = [cell.cell_contents for cell in getattr(functions, "__closure__", None) or () if _filled(cell)]
    counts = [getattr(each, "experimental_get_tracing_count", None) for each in (functions, *captured)]
    return max((int(count()) for count in counts if callable(count)), default=0)


def _filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True
