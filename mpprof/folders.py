"""Looking through the directories under a log directory."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator

from mpprof.model.limits import MOST_LEVELS


def walk(
    top: str | os.PathLike[str], refused: Callable[[OSError], None] | None = None
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield every directory at and below `top` with the names of its directories and of its other files.

    As `os.walk` does from the top down: names taken out of the first list are not entered, links to
    directories are listed and not followed, `refused` is told of what cannot be opened. What lies more than
    `MOST_LEVELS` below is refused, too: to open a directory takes time in proportion to its depth, and
    `os.walk` before Python 3.12 calls itself for each level.
    """
    waiting = [(os.fspath(top), 0)]
    while waiting:
        folder, level = waiting.pop()
        try:
            if level > MOST_LEVELS:
                raise OSError(errno.ENAMETOOLONG, f"it lies more than {MOST_LEVELS} levels down", folder)
            with os.scandir(folder) as entries:
                inside = [(entry.name, _is_folder(entry)) for entry in entries]
        except OSError as error:
            if refused is not None:
                refused(error)
            continue
        names = [name for name, below in inside if below]
        yield folder, names, [name for name, below in inside if not below]
        below = [os.path.join(folder, name) for name in reversed(names)]
        waiting += [(path, level + 1) for path in below if not os.path.islink(path)]


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False
