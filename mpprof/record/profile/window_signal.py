"""A signal that asks for a further profile window in a training that runs, where the user has chosen one."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType

from mpprof.errors import UsageError


def checked_signal(number: int | None) -> int | None:
    """Return the signal. Raises `UsageError` where it is no signal that a process can handle."""
    never = {getattr(signal, name, None) for name in ("SIGKILL", "SIGSTOP")}
    if number is None or (type(number) is not bool and number in signal.valid_signals() - never):
        return number
    raise UsageError(f"window_signal is {number!r}", next="Give a signal, e.g. signal.SIGUSR1, or None")


class SignalledWish:
    """Calls `wish` when the signal comes, from `install` to `restore`. The handler is set only where the
    process has none, and taken away again: signals that mean something to the training are left alone."""

    def __init__(self, number: int, wish: Callable[[], None]) -> None:
        self._number, self._wish = signal.Signals(number), wish

    def install(self) -> str | None:
        """Install the handler of the signal, and return the reason where it cannot be installed."""
        if threading.current_thread() is not threading.main_thread():
            return "signals can be handled in the main thread only, and training runs in another"
        if signal.getsignal(self._number) is not signal.SIG_DFL:
            return f"{self._number.name} has a handler already"
        signal.signal(self._number, self._handle)
        signal.siginterrupt(self._number, False)  # system calls of the framework go on
        return None

    def restore(self) -> None:
        """Restore the default handler. It can have been installed in the main thread only, and only there it
        is removed."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(self._number) == self._handle:
            signal.signal(self._number, signal.SIG_DFL)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._wish()
