"""The bytes of a trace file that is not packed, which another process may overwrite meanwhile."""

from __future__ import annotations

import mmap
import os
import sys
from io import BufferedReader

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]

CHANGED = "the file was written while it was read, and may hold parts of two recordings: read it again"

_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)
"""Memory is counted once it is used: the holes of a sparse file take none, whatever its size."""


def of(file: BufferedReader, damages: list[str]) -> Bytes:
    """Return a file's bytes as they are now; that it was written meanwhile goes to `damages`.

    They are copied: the system kills a process that reads a mapped page of a file that was cut off, and what
    is overwritten would change under the reader. Raises OSError.
    """
    before = os.fstat(file.fileno())
    sparse = hasattr(os, "SEEK_DATA") and 512 * before.st_blocks < before.st_size
    found = (_sparse if sparse else _whole)(file, before.st_size)
    after = os.fstat(file.fileno())
    if len(found) < before.st_size or after.st_mtime_ns != before.st_mtime_ns:
        damages.append(CHANGED)
    return found


def _whole(file: BufferedReader, size: int) -> Bytes:
    held = np.empty(size, np.uint8)  # NumPy asks for large pages, which `file.read` does not
    file.seek(0)
    return held[: file.readinto(held.data)]


def _sparse(file: BufferedReader, size: int) -> Bytes:
    """Return the bytes of a file with holes, which are zeros."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE
    held = np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
    at = 0
    while at < size:
        try:
            at = file.seek(at, os.SEEK_DATA)
            end = min(file.seek(at, os.SEEK_HOLE), size)
        except OSError:  # nothing but a hole is left
            break
        file.seek(at)
        if not (count := file.readinto(held[at:end].data)):
            return held[:at]
        at += count
    return held
