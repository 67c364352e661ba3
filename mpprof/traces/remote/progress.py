"""Who watches a fetch while it lasts: the line of a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Watcher = Callable[[str, int | None, int | None], None]
"""Told where bytes come from, how many have come (None: no more will), and of how many (None: not stated)."""

_watcher: Watcher | None = None


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
