"""The doors: foreign bytes become `model.Trace`. Reads any profile, whatever its state, or says why not."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Protocol

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces.chrome import ChromeReader
from mpprof.traces.finding import choice, in_order, traces_under
from mpprof.traces.nsys import NsysReader
from mpprof.traces.slow import is_slow, version
from mpprof.traces.xspace import XSpaceReader

__all__ = ["READERS", "Reader", "choice", "find", "is_slow", "read", "version"]

HEAD_BYTES = 64
PEEK_BYTES = 1 << 12
GZIP = b"\x1f\x8b"


class Reader(Protocol):
    """One format of traces."""

    format: str
    suffixes: tuple[str, ...]

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether this file, of which `head` is the beginning, looks like the format."""

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Raises UnreadableError where nothing usable is left, with `strict` for any damage."""


READERS: tuple[Reader, ...] = (XSpaceReader(), ChromeReader(), NsysReader())


def find(path: Path, *, host: str | None = None) -> tuple[Path, ...]:
    """Trace files under a directory, oldest session first; or the file itself. The last is the one to read.

    Of a directory that holds traces of several formats, those of one format, and of several hosts' traces
    that of `host` last: `traces.finding` has the rule.
    Empty: there is none. Raises NotFoundError where the path does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise NotFoundError("no such file or directory", where=str(path))
    if path.is_file():
        return (path,)
    return tuple(in_order(traces_under(path), host))


def read(path: Path, *, strict: bool = False) -> Trace:
    """Read one trace file.

    A cut-off or damaged file gives what is whole, with a warning that names the byte; with `strict` that
    is an error. Raises NotFoundError, or UnreadableError where nothing usable is left.
    """
    path = Path(path)
    if path.is_dir():
        raise UnreadableError(
            "is a directory, not a trace file", where=str(path), next="Give one of the files in it."
        )
    if path.exists() and not path.is_file():
        raise UnreadableError("is no regular file", where=str(path), next="Give a trace file.")
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
            inner = _unpacked(head + file.read(PEEK_BYTES)) if head[:2] == GZIP else b""
        if not head:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again.")
        if inner == GZIP:
            raise UnreadableError(
                "is compressed twice", where=str(path), next="Unpack it with gunzip and read the result."
            )
        for reader in READERS:
            if reader.recognises(path, head):
                return reader.read(path, strict=strict)
    except FileNotFoundError:
        raise NotFoundError("no such file", where=str(path)) from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    raise UnreadableError(
        "is no trace that mpprof knows",
        where=str(path),
        next=f"It reads {', '.join(suffix for reader in READERS for suffix in reader.suffixes)}.",
    )


def _unpacked(packed: bytes) -> bytes:
    """The first two bytes within the beginning of a gzip file; empty where it cannot be unpacked."""
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(packed, len(GZIP))
    except zlib.error:
        return b""
