"""A trace as files of numpy arrays, one for each column, and back.

A table that comes back reads a column when it is first asked for, so a report reads no more than it shows.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

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

ERRORS = (ValueError, KeyError, TypeError, EOFError, RecursionError, UnreadableError)
"""What an entry may raise that is damaged, or of another version."""

Load = Callable[[str, str], Any]
"""(table, column) -> its values; None for a column that this trace does not have."""


class _Kept:
    """A table whose columns are read when they are asked for: until then their slots are empty."""

    __slots__ = ()
    _load: Load

    def __getattr__(self, column: str) -> Any:
        kind = type(self).__bases__[1]
        if column not in kind.__dict__["__slots__"]:
            raise AttributeError(column)
        values = self._load(_NAMES[kind], column)
        object.__setattr__(self, column, values)
        return values

    def __reduce__(self) -> tuple[type, tuple[Any, ...]]:
        """Return how to pickle the table: for another process it becomes a plain table."""
        kind = type(self).__bases__[1]
        return kind, tuple(getattr(self, column) for column in kind.__dict__["__slots__"])


class _KeptKernels(_Kept, KernelTable):
    __slots__ = ("_load",)


class _KeptHost(_Kept, HostTable):
    __slots__ = ("_load",)


class _KeptMarkers(_Kept, MarkerTable):
    __slots__ = ("_load",)


class _KeptAllocations(_Kept, AllocationTable):
    __slots__ = ("_load",)


_TABLES: dict[str, type] = {
    "kernels": _KeptKernels,
    "host": _KeptHost,
    "markers": _KeptMarkers,
    "allocations": _KeptAllocations,
}
_NAMES = {kept.__bases__[1]: name for name, kept in _TABLES.items()}
_STRINGS, _OPS = "strings.json", "ops.json"
WHOLE = (_STRINGS, _OPS)
"""The files that are read at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The files of an entry, and what stands beside them as JSON."""

    files: dict[str, bytes]
    body: dict[str, Any]


def file_of(table: str, column: str) -> str:
    return f"{table}.{column}.npy"


def encode(trace: Trace) -> Encoded | None:
    """Return the trace as the files of a cache entry; None for a trace with compiled programs, which are not
    kept."""
    if any(op.hlo is not None for op in trace.ops):
        return None
    files = {
        file_of(table, column): _array(values)
        for table, kept in _TABLES.items()
        for column in kept.__bases__[1].__dict__["__slots__"]
        if (values := getattr(getattr(trace, table), column)) is not None
    }
    files[_STRINGS] = json.dumps(trace.strings).encode()
    files[_OPS] = json.dumps([(op.name, op.type) for op in trace.ops]).encode()
    body = {
        "format": trace.source.format,
        "size_bytes": trace.source.size_bytes,
        "host": trace.source.host,
        "origin_unix_ns": trace.origin_unix_ns,
        "devices": [asdict(device) for device in trace.devices],
        "streams": [asdict(stream) for stream in trace.streams],
        "threads": list(trace.threads),
        "thread_hosts": list(trace.thread_hosts),
        "basis": trace.basis,
        "warnings": list(trace.warnings),
        "notes": list(trace.notes),
        "missing": dict(trace.missing),
    }
    return Encoded(files, body)


def decode(body: dict[str, Any], whole: dict[str, bytes], load: Load) -> Trace:
    """Return the trace; its source has no path (the caller knows it), and `load` gives its columns later.
    Raises one of ERRORS for a damaged entry."""
    return Trace(
        source=TraceSource(Path(), body["format"], body["size_bytes"], body["host"]),
        origin_unix_ns=body["origin_unix_ns"],
        strings=tuple(json.loads(whole[_STRINGS])),
        devices=tuple(_device(device) for device in body["devices"]),
        streams=tuple(Stream(**stream) for stream in body["streams"]),
        threads=tuple(body["threads"]),
        thread_hosts=tuple(body["thread_hosts"]),
        ops=tuple(Op(name, type) for name, type in json.loads(whole[_OPS])),
        kernels=cast(KernelTable, _kept("kernels", load)),
        host=cast(HostTable, _kept("host", load)),
        markers=cast(MarkerTable, _kept("markers", load)),
        allocations=cast(AllocationTable, _kept("allocations", load)),
        basis=body["basis"],
        warnings=tuple(body["warnings"]),
        notes=tuple(body["notes"]),
        missing=body["missing"],
    )


def column(content: bytes) -> Any:
    """Return the values of a column's file. Raises one of ERRORS for a damaged file."""
    return np.load(io.BytesIO(content), allow_pickle=False)


def _kept(table: str, load: Load) -> Any:
    kept: Any = object.__new__(_TABLES[table])
    object.__setattr__(kept, "_load", load)
    return kept


def _device(stated: dict[str, Any]) -> TraceDevice:
    facts = dict(stated["facts"])
    if facts["compute_capability"] is not None:
        facts["compute_capability"] = tuple(facts["compute_capability"])
    return TraceDevice(stated["plane"], stated["ordinal"], DeviceFacts(**facts), stated["host"])


def _array(values: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, values, allow_pickle=False)
    return file.getvalue()
