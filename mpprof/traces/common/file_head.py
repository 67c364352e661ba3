"""The first bytes of a file, unpacked: a format is recognised by them, whatever the file is called."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.model.frozen import frozen

if TYPE_CHECKING:
    from mpprof.model.trace import Trace

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


class Reader:
    """One format of traces: a subclass says how its files are recognised (at least `kinds`, `files` and
    `recognises`), and reads them."""

    kinds: tuple[Kind, ...] = ()
    files: str = ""
    """What it reads, and of which names, as docs/reading.md and the error for other files say it."""
    claims: tuple[str, ...] = ()
    """How other names end that are read as this format, where neither bytes nor the `ends` of any reader's
    kinds say what a file is."""

    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins so (`of`) is of the format, whatever it is called."""
        raise NotImplementedError

    def kind_of(self, name: str, head: bytes) -> str:
        """Return which of its kinds a file is that the reader recognises."""
        return self.kinds[0].name

    def holds_trace(self, path: Path) -> bool:
        """Return whether a recognised file holds a trace, where the first bytes do not tell. Raises
        OSError."""
        return True

    def slow_from_bytes(self, *, packed: bool) -> int | None:
        """Return the size from which on reading takes twice as long as the cache does; None means never."""
        return None

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a trace. Raises UnreadableError where nothing usable is left, with `strict` for any damage."""
        raise NotImplementedError
