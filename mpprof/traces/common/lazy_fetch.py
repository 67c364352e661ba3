"""Trace files that lie elsewhere: here they stand by name, size and time; the bytes come when one is read.

Of a remote log directory with many windows or runs only what is looked at is fetched that way. A file that
stands for such bytes is empty but for its size (sparse), and only this process knows how to complete it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpprof.traces.formats import Known

Watcher = Callable[[str, int | None, int | None], None]
"""Told where bytes come from, how many have come (None: no more will), and of how many (None: not stated)."""

_fetches: dict[Path, tuple[Callable[[], None], str]] = {}
_listed_beside: dict[Path, dict[str, Known]] = {}
_one_at_a_time = Lock()
_watcher: Watcher | None = None


def expect(path: Path, fetch: Callable[[], None], kind: str) -> None:
    """Have `fetch` called before the bytes at `path`, a trace of this kind (`kinds.RANKS`), are read."""
    _fetches[path] = fetch, kind


def forget(path: Path) -> None:
    """Forget the fetch of the file at `path`: its bytes are there, or nobody will need them."""
    _fetches.pop(path, None)


def kind(path: Path) -> str | None:
    """Return what the file at `path` is, as it was found elsewhere; its bytes may have been fetched already.
    None for a file of this machine."""
    expected = _fetches.get(path)
    return expected[1] if expected else None


def list_beside(folder: Path, names: Mapping[str, Known]) -> None:
    """Note what lies there beside the traces that have a file in `folder`, and will not be read."""
    _listed_beside[folder] = dict(names)


def beside(folder: Path) -> dict[str, Known]:
    """Return what `list_beside` was last told about a directory; empty for a directory of this machine."""
    return _listed_beside.get(folder, {})


def complete(path: Path) -> None:
    """Fetch the bytes at `path` if they are still elsewhere; a file of this machine is left alone.

    Raises what fetching raises (UnreadableError, NotFoundError); a later call tries again.
    """
    if path not in _fetches:
        return
    with _one_at_a_time:
        expected = _fetches.get(path)
        if expected is not None:
            fetch, _ = expected
            fetch()
            forget(path)


@contextmanager
def watched(watcher: Watcher) -> Iterator[None]:
    """Tell `watcher`, and no other, of all that is fetched inside the context, from any thread."""
    global _watcher
    before, _watcher = _watcher, watcher
    try:
        yield
    finally:
        _watcher = before


@contextmanager
def fetching(place: str, size: int | None) -> Iterator[Callable[[int], None]]:
    """Tell the watcher of a fetch while it lasts; yield a function to call with the number of bytes that have
    come from `place`."""

    watcher = _watcher  # to the end the one that was told of the beginning

    def tell(done: int | None) -> None:
        if watcher is not None:
            watcher(place, done, size)

    try:
        yield tell
    finally:
        tell(None)
