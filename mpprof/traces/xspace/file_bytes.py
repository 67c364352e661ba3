"""The bytes of a trace file that is not packed, which another process may overwrite meanwhile."""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from functools import partial
from io import BufferedReader
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mpprof.errors import UnreadableError
from mpprof.model import limits

Bytes = NDArray[np.uint8]


def of(file: BufferedReader, path: Path) -> tuple[Bytes, Callable[[], None]]:
    """Return a file's bytes, and what gives the memory of those that were read back to the system: they can
    be read again.

    A file of up to `limits.LARGEST_HELD_BYTES` is copied, because the system kills a process that reads a
    mapped page of a file that was cut off. A larger one is mapped.
    """
    size = os.fstat(file.fileno()).st_size
    if size <= limits.LARGEST_HELD_BYTES:
        file.seek(0)
        held = np.empty(size, np.uint8)  # NumPy asks for large pages, which `file.read` does not
        return held[: file.readinto(held.data)], _nothing
    try:
        # Not closed by hand: the mapping goes with the last array on it, also when an error is raised.
        mapped = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
    except ValueError as error:  # shorter by now
        raise UnreadableError(
            "is being overwritten", where=str(path), next="Read it again when it is written"
        ) from error
    if hasattr(mmap, "MADV_SEQUENTIAL"):  # not on Windows
        mapped.madvise(mmap.MADV_SEQUENTIAL)
    return np.frombuffer(mapped, np.uint8), partial(_give_back, mapped)


def _nothing() -> None:
    pass


def _give_back(mapped: mmap.mmap) -> None:
    if hasattr(mapped, "madvise"):  # not on Windows
        mapped.madvise(mmap.MADV_DONTNEED)
