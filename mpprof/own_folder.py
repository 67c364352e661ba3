"""A temporary directory of this process alone, gone when it ends: also by SIGTERM or SIGHUP, and after a
SIGKILL with the next one that is made."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

fcntl: Any = None
with contextlib.suppress(ImportError):  # Windows has no such locks
    import fcntl

_IN_USE = ".in-use"


@contextmanager
def own_folder(prefix: str) -> Iterator[Path]:
    """Give an empty directory that goes with the context, or when the process is asked to end (SIGTERM, or
    SIGHUP where its terminal is closed). Those with this prefix that killed processes have left go, too."""
    with (
        _ended_by_exception(),
        tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made,
        _marked(Path(made)),
    ):
        _sweep(Path(made).parent, prefix)
        inner = Path(made) / "own"
        inner.mkdir()
        yield inner


@contextmanager
def _ended_by_exception() -> Iterator[None]:
    """End the process by an exception where a signal would end it at once, so that what it has written is
    removed."""
    here = threading.current_thread() is threading.main_thread()
    ends = [getattr(signal, name) for name in _ENDS if here and hasattr(signal, name)]
    ends = [number for number in ends if signal.getsignal(number) is signal.SIG_DFL]
    for number in ends:
        signal.signal(number, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        for number in ends:
            signal.signal(number, signal.SIG_DFL)


_ENDS = ("SIGTERM", "SIGHUP")


@contextmanager
def _marked(folder: Path) -> Iterator[None]:
    """Hold a lock in the folder while the process lives: a process ID would mean nothing to another
    container. Where the system has no such locks, nothing is swept."""
    if fcntl is None:
        yield
        return
    with (folder / f"{_IN_USE}.new").open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.rename(file.name, folder / _IN_USE)
        yield


def _sweep(where: Path, prefix: str) -> None:
    """Remove the folders of this user's processes that no longer live."""
    if fcntl is None:
        return
    with contextlib.suppress(OSError):
        for name in os.listdir(where):
            if name.startswith(prefix):
                _remove_where_left(where / name)


def _remove_where_left(folder: Path) -> None:
    with contextlib.suppress(OSError):
        if os.lstat(folder).st_uid != os.getuid():
            return
        with open(os.open(folder / _IN_USE, os.O_RDWR | os.O_NOFOLLOW), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its process lives
            shutil.rmtree(folder, ignore_errors=True)
