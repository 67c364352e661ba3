"""Trace files that lie elsewhere: here they stand by name, size and time; the bytes come when one is read.

Of a remote log directory with many windows or runs only what is looked at is fetched that way. A file that
stands for such bytes is empty but for its size (sparse), and only this process knows how to complete it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

Watcher = Callable[[str, int | None, int | None], None]
"""Told where bytes come from, how many have come (None: no more will), and of how many (None: not stated)."""

_fetches: dict[Path, Callable[[], None]] = {}
_one_at_a_time = Lock()
_watcher: Watcher | None = None


def expect(path: Path, fetch: Callable[[], None]) -> None:
    """Have `fetch` called before the bytes at `path` are read."""
    _fetches[path] = fetch


def forget(path: Path) -> None:
    """The bytes at `path` are there, or nobody will want them."""
    _fetches.pop(path, None)


def is_expected(path: Path) -> bool:
    """Whether the file at `path` was listed elsewhere, as a trace; its bytes may be here already."""
    return path in _fetches


def complete(path: Path) -> None:
    """Fetch the bytes at `path` if they are still elsewhere; a file of this machine is left alone.

    Raises what fetching raises (UnreadableError, NotFoundError); a later call tries again.
    """
    if path not in _fetches:
        return
    with _one_at_a_time:
        fetch = _fetches.get(path)
        if fetch is not None:
            fetch()
            forget(path)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Within it `watcher`, and no other, is told of all that is fetched, from any thread."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


@contextmanager
def fetching(place: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """Gives what is to be called with the number of bytes that have come from `place`."""

    watcher = _watcher  # to the end the one that was told of the beginning

    def tell(done: int | None) -> None:
        if watcher is not None:
            watcher(place, done, size)

    try:
        yield tell
    finally:
        tell(None)
