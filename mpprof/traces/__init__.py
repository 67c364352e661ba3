"""The doors: foreign bytes become `model.Trace`. Reads any profile, whatever its state, or says why not."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces import beginning
from mpprof.traces.chrome import ChromeReader
from mpprof.traces.finding import choice, in_order, traces_under
from mpprof.traces.nsys import NsysReader
from mpprof.traces.slow import is_slow, version
from mpprof.traces.xspace import XSpaceReader

__all__ = ["READERS", "Reader", "choice", "find", "is_slow", "read", "reader_of", "version"]


class Reader(Protocol):
    """One format of traces."""

    format: str
    suffixes: tuple[str, ...]

    def recognises(self, head: bytes) -> bool:
        """Whether a file that begins so (`beginning`) is of the format, whatever it is called."""

    def claims(self, name: str) -> bool:
        """Whether a file of this name should be of the format, whatever its bytes."""

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
        if path.stat().st_size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again.")
        head = beginning.of(path)
        if head.startswith(beginning.GZIP):
            raise UnreadableError(
                "is compressed twice", where=str(path), next="Unpack it with gunzip and read the result."
            )
        if (packed := _packed_otherwise(head)) is not None:
            raise UnreadableError(
                f"is packed with {packed}, not with gzip", where=str(path), next="Unpack it."
            )
        if (reader := reader_of(path.name, head)) is not None:
            return reader.read(path, strict=strict)
    except FileNotFoundError:
        raise NotFoundError("no such file", where=str(path)) from None
    except OSError as error:
        raise UnreadableError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    raise UnreadableError(
        "is no trace that mpprof knows",
        where=str(path),
        next="It reads profiles of TensorFlow and JAX (*.xplane.pb), of PyTorch (*.pt.trace.json), older ones"
        " of TensorFlow (*.trace.json), packed with gzip or not, and exports of Nsight Systems (*.sqlite).",
    )


def _packed_otherwise(head: bytes) -> str | None:
    magic = {b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd", b"PK\x03\x04": "zip"}
    return next((name for begins, name in magic.items() if head.startswith(begins)), None)


def reader_of(name: str, head: bytes) -> Reader | None:
    """The reader of a file that begins so (`beginning`). What the bytes say counts, and where they say
    nothing, as of a damaged file, its name. None for a file that is no trace."""
    by_bytes = (reader for reader in READERS if reader.recognises(head))
    by_name = (reader for reader in READERS if reader.claims(name))
    return next(by_bytes, None) or next(by_name, None)
