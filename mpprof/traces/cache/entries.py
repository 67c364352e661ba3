"""What was read of a foreign trace, kept as numpy arrays, so that a slow format is parsed once.

An entry is an npz file named by a digest of the trace's whole content and of the code that read it. It is
written beside its place and renamed, so a reader sees all of it or nothing. A column is read when it is first
asked for, from the file that was opened, whatever stands in its place by then; each has a checksum (CRC-32 of
the zip format). Where an entry is damaged, the trace is read afresh. The least recently used entries go once
all of them outgrow the limit. Nothing here ever fails a command: a cache that cannot be used is skipped, with
one warning.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from zipfile import BadZipFile, ZipFile

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model.device import DeviceFacts
from mpprof.model.trace import (
    AllocationTable,
    HostTable,
    KernelTable,
    MarkerTable,
    Op,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
)
from mpprof.traces.cache import folder

LIMIT_BYTES = 2 << 30
"""Of all entries together."""

_ABANDONED_S = 3600
"""A file that is still being written after this long belongs to a writer that was killed."""
_FORMAT = "mpprof.cache/4"
"""Part of every key: entries of another layout are never looked at, and go when they are the oldest."""
_PARTS = "part-"
_TABLES = {
    "kernels": KernelTable, "host": HostTable, "markers": MarkerTable, "allocations": AllocationTable,
}  # fmt: skip
_TRACE = "trace"
"""The member with what is no column, as JSON."""
_DAMAGE = (
    OSError, ValueError, KeyError, TypeError, EOFError, RuntimeError, BadZipFile, zlib.error, struct.error,
    UnreadableError,
)  # fmt: skip
"""What an entry may raise that is damaged, or that somebody else put there."""


def trace(path: Path, version: str, read: Callable[[], Trace], *, limit_bytes: int = LIMIT_BYTES) -> Trace:
    """Return the trace at `path`, from the cache or else by `read`, whose result is then kept.

    `version` stands for the code that reads: another one makes other entries. Errors of `read` pass through,
    and what it raises is not kept. A trace with compiled programs is not kept (its format is read fast), nor
    is one whose file changes meanwhile.
    """
    root = folder.folder()
    if root is None:
        return read()
    cache = Cache(root / "traces", limit_bytes)
    try:
        before = _state(path)
        key = digest(path, version)
    except OSError:
        return read()

    def again() -> Trace:
        with suppress(OSError):  # said by `read`
            if digest(path, version) != key:
                raise UnreadableError("changed while it was shown", where=str(path), next="Read it again")
        return read()

    found = cache.load(key, again)
    if found is not None:
        return replace(found, source=replace(found.source, path=path))
    result = read()
    with suppress(OSError):
        if _state(path) == before:
            cache.save(key, result)
    return result


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes when the file at `path` is overwritten or replaced. Raises OSError."""
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def digest(path: Path, version: str) -> str:
    """Return the digest of the whole content (about 1 GB/s) and the version; the time of change is not used,
    because a copy has another one."""
    hashed = hashlib.blake2b(f"{_FORMAT}|{version}".encode(), digest_size=20)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class Cache:
    """The entries under one directory. No method raises for what is on disk."""

    root: Path
    limit_bytes: int = LIMIT_BYTES

    def load(self, key: str, read: Callable[[], Trace]) -> Trace | None:
        """Return the entry's trace, None where no whole entry exists. Its columns are read when they are
        used; if one is then damaged, it comes from `read`, which may raise."""
        path = self._path(key)
        try:
            if not path.is_file():  # a pipe would wait for its writer
                raise UnreadableError("is not a regular file")
            found = _Entry(path, ZipFile(path), read).trace()
            os.utime(path)
        except _DAMAGE as error:
            if os.path.lexists(path):  # it is read afresh and replaced
                _say_damaged(path, error)
            return None
        return found

    def save(self, key: str, kept: Trace) -> None:
        """Keep the trace; another process that does the same at the same time does no harm."""
        part = self.root / f"{_PARTS}{os.getpid()}-{os.urandom(4).hex()}"
        columns = _columns(kept)
        if any(op.hlo is not None for op in kept.ops):  # compiled programs are not kept
            return
        if sum(values.nbytes for values in columns.values()) > self.limit_bytes // 2:
            return
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            _write(part, columns | {_TRACE: np.frombuffer(_text(kept, columns), np.uint8)})
            self._place(part, self._path(key))
            self._evict()
        except OSError as error:
            folder.say_unusable(self.root, error)
        finally:
            with suppress(OSError):
                part.unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.root / f"{key}.npz"

    def _place(self, part: Path, path: Path) -> None:
        """Rename into place; what stands there is damaged, or was written meanwhile and is as good."""
        try:
            os.replace(part, path)
        except OSError:  # a directory
            shutil.rmtree(path, ignore_errors=True)
            os.replace(part, path)

    def _evict(self) -> None:
        """Remove what killed writers left, then the least recently used entries above the limit."""
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        for path in self.root.iterdir():
            with suppress(OSError):
                seen = path.lstat()
                if path.is_dir():  # of an older version
                    shutil.rmtree(path, ignore_errors=True)
                elif not path.name.startswith(_PARTS):
                    entries.append((seen.st_mtime, seen.st_size, path))
                elif now - seen.st_mtime > _ABANDONED_S:
                    path.unlink()
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit_bytes:
                return
            with suppress(OSError):
                path.unlink()
            total -= size


# --- an entry ----------------------------------------------------------------------------------------------


class _Kept:
    """A table whose columns are read when they are asked for: until then their slots are empty."""

    __slots__ = ()
    _load: Callable[[str], Any]

    def __getattr__(self, column: str) -> Any:
        kind = type(self).__bases__[1]
        if column not in kind.__dict__["__slots__"]:
            raise AttributeError(column)
        values = self._load(column)
        object.__setattr__(self, column, values)
        return values

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Return how to pickle the table: for another process it becomes a plain table."""
        kind = type(self).__bases__[1]
        return kind, tuple(getattr(self, column) for column in kind.__dict__["__slots__"])


_KEPT = {name: type(f"Kept{kind.__name__}", (_Kept, kind), {"__slots__": ("_load",)})
         for name, kind in _TABLES.items()}  # fmt: skip


@dataclass(slots=True)
class _Entry:
    """An entry that was opened; what is damaged when it is asked for comes from the trace itself."""

    path: Path
    file: ZipFile
    read: Callable[[], Trace]
    columns: frozenset[str] = frozenset()
    afresh: Trace | None = None

    def trace(self) -> Trace:
        """Return the trace; its source has no path (the caller knows it). Raises one of _DAMAGE."""
        stated = json.loads(self.member(_TRACE).tobytes())
        self.columns = frozenset(stated.pop("columns"))
        return _trace(stated, {name: self._table(name) for name in _KEPT})

    def _table(self, name: str) -> Any:
        kept: Any = object.__new__(_KEPT[name])
        object.__setattr__(kept, "_load", lambda column: self._column(name, column))
        return kept

    def _column(self, table: str, column: str) -> Any:
        name = f"{table}.{column}"
        if self.afresh is None and name not in self.columns:
            return None
        if self.afresh is None:
            try:
                return self.member(name)
            except _DAMAGE as error:
                _say_damaged(self.path, error)
                with suppress(OSError):  # it is written again next time
                    self.path.unlink()
                self.afresh = self.read()
        return getattr(getattr(self.afresh, table), column)

    def member(self, name: str) -> Any:
        # Read to its end first: only then is the checksum compared, of the array's shape, too.
        return np.load(io.BytesIO(self.file.read(f"{name}.npy")), allow_pickle=False)


def _write(path: Path, columns: dict[str, Any]) -> None:
    # Not synced: what a power failure leaves is found by its checksums.
    with path.open("xb") as file:
        np.savez(file, **columns)


def _columns(trace: Trace) -> dict[str, Any]:
    return {
        f"{table}.{column}": values
        for table, kind in _TABLES.items()
        for column in kind.__dict__["__slots__"]
        if (values := getattr(getattr(trace, table), column)) is not None
    }


_PLAIN = ("origin_unix_ns", "strings", "threads", "thread_hosts", "basis", "warnings", "notes")


def _text(trace: Trace, columns: dict[str, Any]) -> bytes:
    stated = {name: getattr(trace, name) for name in _PLAIN} | {
        "columns": list(columns),
        "source": [trace.source.format, trace.source.size_bytes, trace.source.host],
        "devices": [asdict(device) for device in trace.devices],
        "streams": [asdict(stream) for stream in trace.streams],
        "ops": [(op.name, op.type) for op in trace.ops],
        "missing": dict(trace.missing),
    }
    return json.dumps(stated).encode()


def _trace(stated: dict[str, Any], tables: dict[str, Any]) -> Trace:
    plain: dict[str, Any] = {
        name: tuple(stated[name]) if isinstance(stated[name], list) else stated[name] for name in _PLAIN
    }
    return Trace(
        **plain,
        **tables,
        source=TraceSource(Path(), *stated["source"]),
        devices=tuple(map(_device, stated["devices"])),
        streams=tuple(Stream(**stream) for stream in stated["streams"]),
        ops=tuple(Op(*op) for op in stated["ops"]),
        missing=stated["missing"],
    )


def _device(stated: dict[str, Any]) -> TraceDevice:
    facts = dict(stated["facts"])
    if facts["compute_capability"] is not None:
        facts["compute_capability"] = tuple(facts["compute_capability"])
    return TraceDevice(stated["plane"], stated["ordinal"], DeviceFacts(**facts), stated["host"])


def _say_damaged(path: Path, error: Exception) -> None:
    folder.say(f"a damaged entry of the cache is not used, the trace is read afresh: {path} ({error})")
