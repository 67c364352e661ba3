"""Read any profile as a `model.trace.Trace`: the readers, and which of them reads a file."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces.chrome.reader import ChromeReader
from mpprof.traces.common import file_head
from mpprof.traces.common.file_kinds import Kind
from mpprof.traces.common.within_bounds import within_bounds
from mpprof.traces.nsys.reader import NsysReader
from mpprof.traces.torch_memory.reader import PICKLE, TorchMemoryReader
from mpprof.traces.xspace.reader import XSpaceReader


class Reader(Protocol):
    """One format of traces."""

    kinds: tuple[Kind, ...]

    def recognises(self, head: bytes) -> bool:
        """Return whether a file that begins so (`file_head`) is of the format, whatever it is called."""

    def claims(self, name: str) -> bool:
        """Return whether a file of this name should be of the format, whatever its bytes."""

    def kind_of(self, name: str, head: bytes) -> str:
        """Return which of its kinds a file is that the reader recognises."""

    def holds_trace(self, path: Path) -> bool:
        """Return whether a recognised file holds a trace, where the first bytes do not tell. Raises
        OSError."""

    def slow_from_bytes(self, *, packed: bool) -> int | None:
        """Return the size from which on reading takes twice as long as the cache does; None means never."""

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a trace. Raises UnreadableError where nothing usable is left, with `strict` for any damage."""


READERS: tuple[Reader, ...] = (XSpaceReader(), ChromeReader(), NsysReader(), TorchMemoryReader())
"""The preferred format first, where a directory holds several. A new reader is one file and one line here."""


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
        raise UnreadableError("is not a regular file", where=str(path), next="Give a trace file.")
    try:
        if path.stat().st_size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again.")
        head = file_head.of(path)
        if head.startswith(file_head.GZIP):
            raise UnreadableError(
                "is compressed twice", where=str(path), next="Unpack it with gunzip and read the result."
            )
        if (packed := _packed_otherwise(head)) is not None:
            raise UnreadableError(
                f"is packed with {packed}, not with gzip", where=str(path), next="Unpack it."
            )
        if (reader := reader_of(path.name, head)) is not None:
            return within_bounds(reader.read(path, strict=strict))
        if PICKLE.match(head):
            raise UnreadableError(
                "is a pickle, which is code and not run, and not a memory snapshot of PyTorch",
                where=str(path),
                next="Write one with torch.cuda.memory._dump_snapshot(FILE)",
            )
    except FileNotFoundError:
        raise NotFoundError("no such file", where=str(path)) from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    raise UnreadableError(
        "unrecognised trace format",
        where=str(path),
        next="mpprof reads profiles of TensorFlow and JAX (*.xplane.pb), of PyTorch (*.pt.trace.json), older"
        " ones of TensorFlow (*.trace.json), packed with gzip or not, exports of Nsight Systems"
        " (*.sqlite), and memory snapshots of PyTorch (*.pickle).",
    )


def _packed_otherwise(head: bytes) -> str | None:
    magic = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
    return next((name for begins, name in magic.items() if head.startswith(begins)), None)


def reader_of(name: str, head: bytes) -> Reader | None:
    """Return the reader of a file that begins so (`file_head`), or None for a file that is no trace.

    What the bytes show counts, and where they show nothing, as of a damaged file, its name.
    """
    return recognised(head) or claimed(name)


def recognised(head: bytes) -> Reader | None:
    """Return the reader whose format these first bytes show."""
    return next((reader for reader in READERS if reader.recognises(head)), None)


def claimed(name: str) -> Reader | None:
    """Return the reader whose files are called so."""
    return next((reader for reader in READERS if reader.claims(name)), None)
