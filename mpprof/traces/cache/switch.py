"""Whether anything is cached in this process: apart from the cache itself, which much is imported for."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_off = False


@contextmanager
def switched_off() -> Iterator[None]:
    """Hold the cache off: nothing is taken from it or kept in it, in any thread."""
    global _off
    before, _off = _off, True
    try:
        yield
    finally:
        _off = before


def is_off() -> bool:
    return _off
