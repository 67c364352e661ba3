"""How far a long fetch from elsewhere is: one line on the terminal, gone when the fetch is over."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Event, Lock, Thread
from time import monotonic
from typing import TextIO

from mpprof.report import words

QUIET_S = 2.0
"""What takes less is not spoken of."""

_EVERY_S = 0.5


@dataclass
class Fetching:
    """Is told of fetches (`awaited.Watcher`), from any thread; one of its own writes while they go on."""

    stream: TextIO = field(default_factory=lambda: sys.stderr)
    clock_s: Callable[[], float] = monotonic
    _began_s: dict[str, float] = field(default_factory=dict)
    _done: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    _shown: int = 0  # columns of the line that stands there
    _idle: Event = field(default_factory=Event)
    _lock: Lock = field(default_factory=Lock)

    def __call__(self, place: str, done: int | None, size: int | None) -> None:
        with self._lock:
            if done is not None:
                self._began_s.setdefault(place, self.clock_s())
                self._done[place] = done, size
                if len(self._began_s) == 1 and done == 0:
                    self._idle = Event()
                    Thread(target=self._write_on, args=(self._idle,), daemon=True).start()
            elif self._began_s.pop(place, None) is not None:
                del self._done[place]
                if not self._began_s:
                    self._idle.set()
                    self._write("")

    def line(self) -> str:
        """Of all fetches that have gone on for long enough; empty where none has."""
        now_s = self.clock_s()
        long = [place for place, began_s in self._began_s.items() if now_s - began_s >= QUIET_S]
        if not long:
            return ""
        done = sum(self._done[place][0] for place in long)
        sizes = [self._done[place][1] for place in long]
        known = [size for size in sizes if size is not None]
        of = f" of {sum(known) / (1 << 20):,.0f}" if len(known) == len(sizes) else ""
        what = long[0] if len(long) == 1 else f"{len(long)} files"
        return f"mpprof: fetching {words.plain(what)}: {done / (1 << 20):,.0f}{of} MiB"

    def show(self) -> None:
        """Write the line as it is now."""
        with self._lock:
            self._write(self.line())

    def _write_on(self, idle: Event) -> None:
        while not idle.wait(_EVERY_S):
            self.show()

    def _write(self, text: str) -> None:
        """In place of the line that stands there."""
        text = words.shorten(text, max(20, shutil.get_terminal_size().columns - 1))
        if text or self._shown:
            self.stream.write(f"\r{text.ljust(self._shown)}" + ("" if text else "\r"))
            self.stream.flush()
        self._shown = len(text)
