"""Trace files that lie elsewhere: here they stand by name, size and time; the bytes come when one is read.

Of a remote log directory with many windows or runs only what is looked at is fetched that way. A file that
stands for such bytes is empty but for its size (sparse), and only this process knows how to complete it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Lock

_fetches: dict[Path, Callable[[], None]] = {}
_one_at_a_time = Lock()


def expect(path: Path, fetch: Callable[[], None]) -> None:
    """Have `fetch` called before the bytes at `path` are read."""
    _fetches[path] = fetch


def forget(path: Path) -> None:
    """The bytes at `path` are there, or nobody will want them."""
    _fetches.pop(path, None)


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
