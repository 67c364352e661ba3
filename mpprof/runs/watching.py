"""Whether anything under a directory has changed, by the times of what is known there."""

from __future__ import annotations

import os
from time import time_ns

from mpprof.folders import walk
from mpprof.model.frozen import frozen

Stated = tuple[str, int, int]
"""A file's path, size and time of change in ns."""
SETTLED_NS = 2_000_000_000
"""A directory that changed less than this before it was listed may change again with the same time."""


def stated(file: str) -> Stated | None:
    """Return a file with its size and its time; None where it no longer exists, which is a change, too."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return file, found.st_size, found.st_mtime_ns


@frozen
class Sight:
    """What was under a directory: each directory with the time of its last change (of what is created in it,
    removed or allowed), each file with its size and time."""

    folders: dict[str, int]
    files: dict[str, Stated | None]
    settled: bool


def look(path: str) -> Sight:
    """Look at every directory and file under a path."""
    began_ns, folders, files = time_ns(), {path: _changed_ns(path)}, dict[str, None]()
    for folder, below, names in walk(path, links=True):
        folders |= {inner: _changed_ns(inner) for name in below for inner in [os.path.join(folder, name)]}
        files |= dict.fromkeys(os.path.join(folder, name) for name in names)
    latest_ns = max((time for time in folders.values()), default=0)
    return Sight(folders, {file: stated(file) for file in files}, latest_ns < began_ns - SETTLED_NS)


def changed(sight: Sight) -> set[str] | None:
    """Return the files that are not as they were seen; None where further files may have come."""
    if not sight.settled or any(_changed_ns(folder) != time for folder, time in sight.folders.items()):
        return None
    return {file for file, known in sight.files.items() if stated(file) != known}


def _changed_ns(folder: str) -> int:
    """Return when a directory was last changed; -1 where that is not known."""
    try:
        return os.stat(folder).st_ctime_ns
    except OSError:
        return -1
