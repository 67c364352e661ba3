"""Time limits that pass when what is waited for hangs, and not because the machine is busy.

Where `no_clock` was called, a wait for one of mpprof's threads ends when the thread has ended or is known to hang:
it is in `hang`, it opens a named pipe that nobody reads, or it said so by `hanging`. No test then depends on how
fast this machine is, and none waits a time limit out.
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import threading
from typing import Any

GIVEN_UP_S = 120.0
"""Of a thread that neither ends nor is known to hang: the test fails then."""

RELEASED = threading.Event()
join_by_the_clock = threading.Thread.join
_hanging: set[threading.Thread] = set()
_hooked: list[bool] = []


def hanging() -> None:
    """Say that this thread hangs from here on."""
    _hanging.add(threading.current_thread())


def hang(*arguments: Any, **more: Any) -> Any:
    """Hang until `RELEASED`, and fail then."""
    hanging()
    RELEASED.wait(GIVEN_UP_S)
    raise RuntimeError("released")


def no_clock() -> None:
    """Replace `Thread.join` in this process, for mpprof's threads and joins with a time limit."""
    threading.Thread.join = join  # type: ignore[method-assign]
    RELEASED.clear()
    if not _hooked:
        sys.addaudithook(_opens)
        _hooked.append(True)


def by_the_clock() -> None:
    """Undo `no_clock`, and let go of what hangs."""
    threading.Thread.join = join_by_the_clock  # type: ignore[method-assign]
    RELEASED.set()
    _hanging.clear()


def join(self: threading.Thread, timeout: float | None = None) -> None:
    """`Thread.join`, whose time limit passes once the thread hangs."""
    if timeout is None or not self.name.startswith("mpprof"):
        return join_by_the_clock(self, timeout)
    for _ in range(int(GIVEN_UP_S / 0.005)):
        join_by_the_clock(self, 0.005)
        if not self.is_alive() or self in _hanging:
            return None
    raise AssertionError(f"{self.name} neither ends nor hangs")


def _opens(event: str, arguments: tuple[Any, ...]) -> None:
    """An audit hook: who opens a named pipe hangs, until somebody reads it."""
    if event == "open" and isinstance(arguments[0], str | bytes):
        with contextlib.suppress(OSError, ValueError):
            if stat.S_ISFIFO(os.stat(arguments[0]).st_mode):
                hanging()
