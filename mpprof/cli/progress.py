"""What a long command does: one line on the terminal, from its second second on, gone before the result."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock, Timer
from typing import TYPE_CHECKING

from mpprof.report import words

if TYPE_CHECKING:
    from rich.live import Live
    from rich.spinner import Spinner

AFTER_S = 1.0
"""What takes less is not spoken of, and `rich` is not imported for it."""


class Line:
    """A spinner and what is being done. It may be told of that from any thread."""

    def __init__(self, *, color: bool) -> None:
        self._text, self._color = "", color
        self._live: Live | None = None
        self._lock = Lock()
        self._timer: Timer | None = Timer(AFTER_S, self._show)
        self._timer.daemon = True
        self._timer.start()

    def say(self, text: str) -> None:
        """Show this from now on."""
        with self._lock:
            self._text = words.plain(text)
            if self._live is not None:
                self._live.update(self._spinner())

    def stop(self) -> None:
        """Remove the line, for good."""
        with self._lock:
            timer, live = self._timer, self._live
            self._timer = self._live = None
        if timer is not None:
            timer.cancel()
        if live is not None:
            live.stop()

    def _show(self) -> None:
        from rich.console import Console
        from rich.live import Live

        with self._lock:
            if self._timer is None:  # stopped meanwhile
                return
            console = Console(stderr=True, no_color=not self._color, highlight=False)
            self._live = Live(
                self._spinner(), console=console, transient=True, redirect_stdout=False, refresh_per_second=5
            )
            self._live.start(refresh=True)

    def _spinner(self) -> Spinner:
        from rich.spinner import Spinner
        from rich.text import Text

        return Spinner("line", Text(self._text or "working", no_wrap=True, overflow="ellipsis"))


_LINE: ContextVar[Line | None] = ContextVar("line", default=None)


@contextmanager
def shown(*, quiet: bool, color: bool) -> Iterator[None]:
    """Show what is being done, as `say` states it, to whoever watches while the context lasts; to nobody
    where `quiet`."""
    line = Line(color=color) if not quiet and sys.stderr.isatty() else None
    token = _LINE.set(line)
    try:
        yield
    finally:
        _LINE.reset(token)
        if line is not None:
            line.stop()


def say(text: str) -> None:
    """Show what is being done now, where somebody watches."""
    if (line := _LINE.get()) is not None:
        line.say(text)


def clear() -> None:
    """Remove the line: the result follows."""
    if (line := _LINE.get()) is not None:
        line.stop()


@dataclass(eq=False, repr=False)
class Fetching:
    """Is told of fetches (`remote.progress.Watcher`), from any thread, and shows them on `line`."""

    line: Line
    _done: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, place: str, done: int | None, size: int | None) -> None:
        with self._lock:
            if done is None:
                self._done.pop(place, None)
            else:
                self._done[place] = done, size
            text = self._text()
        self.line.say(text)

    def _text(self) -> str:
        if not self._done:
            return "reading what was fetched"
        done = sum(done for done, _ in self._done.values())
        known = [size for _, size in self._done.values() if size is not None]
        of = f" of {sum(known) / (1 << 20):,.0f}" if len(known) == len(self._done) else ""
        what = next(iter(self._done)) if len(self._done) == 1 else f"{len(self._done)} files"
        return f"fetching {what}: {done / (1 << 20):,.0f}{of} MiB"


def fetching() -> Fetching | None:
    """Return what fetches are to be told to; None where nobody watches."""
    line = _LINE.get()
    return None if line is None else Fetching(line)
