"""What a file of a directory is: by its first bytes, and where they show nothing, by its name."""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

from mpprof.model.frozen import frozen
from mpprof.traces.common import file_head
from mpprof.traces.readers import READERS, recognised

KINDS = tuple(kind for reader in READERS for kind in reader.kinds)
RANKS = tuple(kind.name for kind in KINDS)
"""Every kind of trace file, the preferred one first."""
NO_SIGN = "its content is not a trace"
NO_BYTES = b"\0"
"""A header that matches no format: of a broken gzip file, or of another application's database."""


@frozen
class Known:
    """What a file is: one of RANKS, and why its bytes do not show it ("" where they do)."""

    kind: str
    why: str = ""


def by_name(name: str) -> str | None:
    """Return one of RANKS where a file's name alone settles the format."""
    return next((kind.name for kind in KINDS if kind.ends and name.endswith(kind.ends)), None)


def perhaps(name: str) -> str | None:
    """Return the one of RANKS that a file of this name may be; None for a name that no trace has."""
    may_be = (kind.name for kind in KINDS if kind.may_end and name.endswith(kind.may_end))
    return by_name(name) or next(may_be, None)


def is_readable(name: str) -> bool:
    """Return whether a file of this name is of no kind that only the tool that wrote it reads."""
    return not any(kind.unreadable and name.endswith(kind.ends) for kind in KINDS)


def host_of(name: str) -> str | None:
    """Return the host that a profiler named this file after; None for other names."""
    ends = (end for kind in KINDS for end in kind.ends)
    return next((name.removesuffix(end) for end in ends if name.endswith(end)), None)


def of(path: Path) -> Known | None:
    """Return what the file at `path` is, whatever it is called; None where neither its bytes nor its name
    tell.

    A link that leads nowhere does not count, nor does a pipe: opening it would wait for a writer for ever.
    """
    try:
        found = path.stat()
    except OSError:  # also in a directory whose names can be listed and nothing more
        return None
    return _of(path, _Version.of(found)) if stat.S_ISREG(found.st_mode) else None


@frozen
class _Version:
    """What changes when a file does, or may be opened when it could not: it is looked into once."""

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int

    @classmethod
    def of(cls, found: os.stat_result) -> _Version:
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


@lru_cache(maxsize=4096)
def _of(path: Path, version: _Version) -> Known | None:
    if not version.size_bytes:
        return of_head(path.name, b"")
    try:
        head = file_head.of(path) or NO_BYTES
        reader = recognised(head)
        if reader is not None and not reader.holds_trace(path):
            head = NO_BYTES
    except OSError as error:
        named = by_name(path.name)
        return Known(named, error.strerror or str(error)) if named else None
    return of_head(path.name, head)


def of_head(name: str, head: bytes) -> Known | None:
    """Return the same as `of`, by the first bytes (`file_head`), in which any SQLite file counts as an
    export; the bytes are empty for an empty file."""
    if (reader := recognised(head)) is not None:
        return Known(reader.kind_of(name, head))
    if (named := by_name(name)) is None:
        return None
    unreadable = next(kind.unreadable for kind in KINDS if kind.name == named)
    return Known(named, (unreadable or NO_SIGN) if head else "empty")
