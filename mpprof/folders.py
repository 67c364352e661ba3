"""Looking through the directories under a log directory, and the folders of installed packages."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import PurePath

from mpprof.model.limits import MOST_LEVELS

INSTALLED = (
    r"(?:site|dist)-packages|lib/python\d[.\d]*|keras/src|jax/_src|tensorflow/python|optax/_src"
    r"|flax/(?:core|linen|nnx)"
)
"""A pattern of what says of a source file that it is an installed package's or Python's own, and none of the
user's, with slashes between folders; frameworks also in a folder of another name."""


def walk(
    top: str | os.PathLike[str],
    refused: Callable[[OSError], None] | None = None,
    *,
    links: bool = False,
) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield every directory at and below `top` with the names of its directories and of its other files.

    As `os.walk` does from the top down: names taken out of the first list are not entered, links to
    directories are listed and not followed, `refused` is told of what cannot be opened. What lies more than
    `MOST_LEVELS` below is refused, too: to open a directory takes time in proportion to its depth, and
    `os.walk` before Python 3.12 calls itself for each level.

    With `links` they are followed, after everything that is no link and in the order of their paths. Each
    directory is entered once, so of several ways to it the one without a link counts; one that leads to a
    directory above `top` is left alone.
    """
    waiting: list[_Waiting] = [(os.fspath(top), 0, None)]
    linked: list[_Waiting] = []
    entered: set[str] = set()
    while waiting or linked:
        if not waiting:
            linked.sort(reverse=True)
            path, level, _ = linked.pop()
            target = os.path.realpath(path)
            waiting += [(path, level, target)] if _is_apart(target, os.path.realpath(top)) else []
            continue
        folder, level, real = waiting.pop()
        if real is not None:
            if real in entered:
                continue
            entered.add(real)
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
        for name in reversed(names):
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                waiting.append((path, level + 1, real and os.path.join(real, name)))
            elif links:
                linked.append((path, level + 1, None))


def names_in(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names in a directory, sorted; empty where it cannot be opened, or is gone by now."""
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


_Waiting = tuple[str, int, str | None]
"""A directory, its level, and, of one that a link leads to and of those below it, its path without links."""


def _is_apart(one: str, other: str) -> bool:
    """Return whether neither of two directories lies in the other."""
    first, second = PurePath(one), PurePath(other)
    return not (first.is_relative_to(second) or second.is_relative_to(first))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a loop of links
        return False
