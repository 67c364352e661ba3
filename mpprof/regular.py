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
    return _regular(os.open(path, _FLAGS), path)


_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def _regular(handle: int, path: Path) -> BinaryIO:
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise UnreadableError("is not a regular file", where=str(path), next="Remove it, or give another path")


def open_below(root: Path, path: Path) -> BinaryIO | None:
    """Open a regular file that lies below a directory; None where it leads out of it.

    Links within the directory are followed. A part that becomes a link before it is opened is refused: each
    part of the path is opened within the one before it, and may not be a link then. (Windows cannot do that.)
    Raises as `open_regular`.
    """
    top, real = root.resolve(), path.resolve()
    if not real.is_relative_to(top):
        return None
    if os.open not in os.supports_dir_fd:
        return open_regular(real)
    *folders, name = real.relative_to(top).parts
    handles = [os.open(top, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW)]
    try:
        for folder in folders:
            handles.append(os.open(folder, _FLAGS | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=handles[-1]))
        return _regular(os.open(name, _FLAGS | os.O_NOFOLLOW, dir_fd=handles[-1]), path)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):  # it has become a link
            return None
        raise
    finally:
        for handle in handles:
            os.close(handle)


def read_regular(path: Path, most_bytes: int) -> bytes:
    """Return what a regular file holds, at most one byte more than `most_bytes`. Raises as `open_regular`."""
    with open_regular(path) as file:
        content: bytes | None = file.read(most_bytes + 1)
    if content is None:  # some that the system calls regular wait for what is not there yet (/proc/kmsg)
        raise BlockingIOError(errno.EAGAIN, "it holds nothing now", str(path))
    return content
