"""What a long command does: one line on the terminal, from its second second on, gone before the result."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import cycle
from threading import Event, Lock, Thread
from unicodedata import east_asian_width

from mpprof.report import words

AFTER_S, EACH_S = 1.0, 0.2
"""Work that takes less time shows no line; after that the line is drawn again at this interval."""


class Line:
    """A spinner and what is being done. It may be told of that from any thread."""

    def __init__(self) -> None:
        self._text, self._drawn = "working", ""
        self._stopped, self._lock = Event(), Lock()
        Thread(target=self._draw, daemon=True).start()

    def say(self, text: str) -> None:
        """Show this from now on."""
        with self._lock:
            self._text = words.plain(text)
            if self._drawn and not self._stopped.is_set():
                self._put(f"{self._drawn[0]} {self._text}")

    def stop(self) -> None:
        """Remove the line, for good."""
        if not self._stopped.is_set():
            self._stopped.set()
            with self._lock:
                self._put("")

    def _draw(self) -> None:
        wait_s = AFTER_S
        for mark in cycle("-\\|/"):
            if self._stopped.wait(wait_s):
                return
            with self._lock:
                if not self._stopped.is_set():
                    self._put(f"{mark} {self._text}")
            wait_s = EACH_S

    def _put(self, text: str) -> None:
        """Write over what was drawn, as much as one line of the terminal holds."""
        room = _columns() - 1
        while _width(text) > room:
            text = text[:-1]
        left = max(0, _width(self._drawn) - _width(text))
        if text or self._drawn:
            sys.stderr.write(f"\r{text}{' ' * left}" if text else f"\r{' ' * left}\r")
            sys.stderr.flush()
        self._drawn = text


def _columns() -> int:
    """Return how wide the terminal is; 80 where it does not say."""
    try:
        return os.get_terminal_size(sys.stderr.fileno()).columns or 80
    except (OSError, ValueError):
        return 80


def _width(text: str) -> int:
    """Return the columns that a text takes in a terminal."""
    return sum(2 if east_asian_width(sign) in "WF" else 1 for sign in text)


_LINE: ContextVar[Line | None] = ContextVar("line", default=None)


@contextmanager
def shown(*, quiet: bool) -> Iterator[None]:
    """Show what is being done, as `say` states it, while the context lasts; nothing if `quiet`."""
    watched = not quiet and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    line = Line() if watched else None
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
    """Watches fetches (`remote.progress.Watcher`), from any thread, and shows them on `line`."""

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
