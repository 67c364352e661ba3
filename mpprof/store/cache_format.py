"""A trace as Parquet files, one for each column, and back.

Imported only where the cache is used: polars takes 0.1 s to load. A table that comes back reads a column when
it is first asked for, so a report reads no more than it shows.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl

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

ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, KeyError, TypeError)
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
        """To another process it goes as a plain table."""
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
_STRINGS, _OPS = "strings.parquet", "ops.parquet"
WHOLE = (_STRINGS, _OPS)
"""The files that are read at once."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """The files of an entry, and what stands beside them as JSON."""

    files: dict[str, bytes]
    body: dict[str, Any]


def file_of(table: str, column: str) -> str:
    return f"{table}.{column}.parquet"


def encode(trace: Trace) -> Encoded | None:
    """None for a trace with compiled programs, which are not kept."""
    if any(op.hlo is not None for op in trace.ops):
        return None
    files = {
        file_of(table, column): _parquet({column: np.ascontiguousarray(values)})
        for table, kept in _TABLES.items()
        for column in kept.__bases__[1].__dict__["__slots__"]
        if (values := getattr(getattr(trace, table), column)) is not None
    }
    files[_STRINGS] = _parquet({"text": list(trace.strings)}, pl.String)
    names = {"name": [op.name for op in trace.ops], "type": [op.type for op in trace.ops]}
    files[_OPS] = _parquet(names, pl.String)
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
        "lacks": dict(trace.lacks),
    }
    return Encoded(files, body)


def decode(body: dict[str, Any], whole: dict[str, bytes], load: Load) -> Trace:
    """The trace; its source has no path, which the caller knows, and `load` gives its columns later. Raises
    one of ERRORS for a damaged entry."""
    ops = _frame(whole[_OPS])
    return Trace(
        source=TraceSource(Path(), body["format"], body["size_bytes"], body["host"]),
        origin_unix_ns=body["origin_unix_ns"],
        strings=tuple(_frame(whole[_STRINGS])["text"].to_list()),
        devices=tuple(_device(device) for device in body["devices"]),
        streams=tuple(Stream(**stream) for stream in body["streams"]),
        threads=tuple(body["threads"]),
        thread_hosts=tuple(body["thread_hosts"]),
        ops=tuple(Op(name, type) for name, type in zip(ops["name"], ops["type"], strict=True)),
        kernels=cast(KernelTable, _kept("kernels", load)),
        host=cast(HostTable, _kept("host", load)),
        markers=cast(MarkerTable, _kept("markers", load)),
        allocations=cast(AllocationTable, _kept("allocations", load)),
        basis=body["basis"],
        warnings=tuple(body["warnings"]),
        lacks=body["lacks"],
    )


def column(content: bytes) -> Any:
    """The values of a column's file. Raises one of ERRORS for a damaged one."""
    (series,) = _frame(content).get_columns()
    return series.to_numpy()


def _kept(table: str, load: Load) -> Any:
    kept: Any = object.__new__(_TABLES[table])
    object.__setattr__(kept, "_load", load)
    return kept


def _device(stated: dict[str, Any]) -> TraceDevice:
    facts = dict(stated["facts"])
    if facts["compute_capability"] is not None:
        facts["compute_capability"] = tuple(facts["compute_capability"])
    return TraceDevice(stated["plane"], stated["ordinal"], DeviceFacts(**facts), stated["host"])


def _parquet(columns: dict[str, Any], dtype: Any = None) -> bytes:
    schema = None if dtype is None else dict.fromkeys(columns, dtype)
    file = io.BytesIO()
    pl.DataFrame(columns, schema=schema).write_parquet(file, compression="lz4", statistics=False)
    return file.getvalue()


def _frame(content: bytes) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(content)).rechunk()
