"""Opening files that a user or a run names: whatever stands in a file's place must not be waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

from mpprof.errors import UnreadableError


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading. A pipe would wait for a writer, and a device may never end.

    Raises OSError, and UnreadableError for what is not a regular file.
    """
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise UnreadableError("is not a regular file", where=str(path), next="Remove it, or give another path")


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return what a regular file holds, at most one byte more than `most_bytes`. Raises as `open_regular`."""
    with open_regular(path) as file:
        content: bytes | None = file.read(most_bytes + 1)
    if content is None:  # some that the system calls regular wait for what is not there yet (/proc/kmsg)
        raise BlockingIOError(errno.EAGAIN, "it holds nothing now", str(path))
    return content
