"""The first bytes of a file, unpacked: a format is recognised by them, whatever the file is called."""

from __future__ import annotations

import zlib
from pathlib import Path

from mpprof.model.frozen import frozen

HEAD_BYTES = 1 << 16
GZIP = b"\x1f\x8b"
SQLITE = b"SQLite format 3\x00"


def of(path: Path) -> bytes:
    """Return what `within` makes of the file's first bytes. Raises OSError."""
    return within(first_bytes(path))


def first_bytes(path: Path) -> bytes:
    """Return the file's first 64 KiB as they are. Raises OSError."""
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def within(raw: bytes) -> bytes:
    """Return at most 64 KiB of what these first bytes of a file hold, unpacked; empty where unpacking
    fails."""
    if not raw.startswith(GZIP):
        return raw[:HEAD_BYTES]
    try:
        return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(raw, HEAD_BYTES)
    except zlib.error:
        return b""


# --- What a reader says of the files that it reads, so that they are recognised without being read.


@frozen
class Kind:
    """One kind of trace file.

    `ends`: a name that ends so is of this kind unless its bytes say otherwise. `may_end`: other files have
    such names, too; only the bytes decide. `unreadable`: why only the tool that wrote it reads it, or "".
    """

    name: str
    ends: tuple[str, ...] = ()
    may_end: tuple[str, ...] = ()
    unreadable: str = ""
