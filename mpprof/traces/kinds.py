"""What a file of a directory is: by its first bytes, and where they show nothing, by its name."""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from mpprof.traces import awaited, beginning, nsys
from mpprof.traces.chrome import ChromeReader
from mpprof.traces.nsys import NsysReader
from mpprof.traces.xspace import XSpaceReader

RANKS = ("xspace", "kineto", "chrome", "nsys", "nsys report")

_BY_NAME = (
    (".xplane.pb", "xspace"), (".xplane.pb.gz", "xspace"),
    (".pt.trace.json", "kineto"), (".pt.trace.json.gz", "kineto"),
    (".trace.json", "chrome"), (".trace.json.gz", "chrome"),
    (".nsys-rep", "nsys report"), (".qdrep", "nsys report"),
)  # fmt: skip
_BY_LOOKS = ((".json.gz", "kineto"), ("trace.json", "kineto"), (".sqlite", "nsys"))
"""Ends of names that other files have, too: such a file is a trace only by its bytes."""

NO_SIGN = "by its bytes no trace"
NO_BYTES = b"\0"
"""Stands for a beginning that is nothing's: of a broken gzip file, or of another application's database."""
_REPORT = "only Nsight Systems reads it"
_XSPACE, _CHROME, _NSYS = XSpaceReader(), ChromeReader(), NsysReader()
_CATEGORY = re.compile(rb'"cat"\s*:|"deviceProperties"')
"""Kineto gives each interval a category, and tells of the cards first; TensorFlow does neither."""
_INTERVAL = re.compile(rb'"ph"\s*:\s*"X"')


@dataclass(frozen=True, slots=True)
class Known:
    """What a file is: one of RANKS, and why its bytes do not show it ("" where they do)."""

    kind: str
    why: str = ""


def by_name(name: str) -> str | None:
    """One of RANKS where a file's name alone settles it."""
    return next((kind for end, kind in _BY_NAME if name.endswith(end)), None)


def perhaps(name: str) -> str | None:
    """One of RANKS that a file of this name may be; None for a name that is no trace's."""
    return by_name(name) or next((kind for end, kind in _BY_LOOKS if name.endswith(end)), None)


def host_of(name: str) -> str | None:
    """The host that a profiler named this file after; None for other names."""
    return next((name.removesuffix(end) for end, _ in _BY_NAME if name.endswith(end)), None)


def of(path: Path) -> Known | None:
    """What the file at `path` is, whatever it is called; None where neither its bytes nor its name tell.

    A link that leads nowhere is none, nor is a pipe: opening it would wait for a writer for ever. Of a file
    whose bytes are elsewhere it is what was found there.
    """
    if (expected := awaited.kind(path)) is not None:
        return Known(expected)
    try:
        found = path.stat()
    except OSError:  # also in a directory whose names can be listed and nothing more
        return None
    return _of(path, _Version.of(found)) if stat.S_ISREG(found.st_mode) else None


@dataclass(frozen=True, slots=True)
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
        head = beginning.of(path) or NO_BYTES
        if head.startswith(nsys.MAGIC) and not nsys.looks_like_trace(path):
            head = NO_BYTES  # another application's database
    except OSError as error:
        named = by_name(path.name)
        return Known(named, error.strerror or str(error)) if named else None
    return of_head(path.name, head)


def of_head(name: str, head: bytes) -> Known | None:
    """The same by the first bytes (`beginning`), in which any SQLite file counts as an export; empty for an
    empty file."""
    if (shown := _by_bytes(name, head)) is not None:
        return Known(shown)
    named = by_name(name)
    if named is None:
        return None
    return Known(named, "empty" if not head else _REPORT if named == "nsys report" else NO_SIGN)


def _by_bytes(name: str, head: bytes) -> str | None:
    if _XSPACE.recognises(head):
        return "xspace"
    if _CHROME.recognises(head):
        if _CATEGORY.search(head):
            return "kineto"
        named = by_name(name)
        return "kineto" if named == "kineto" and not _INTERVAL.search(head) else "chrome"
    return "nsys" if _NSYS.recognises(head) else None
