"""A trace as Parquet tables and back. Imported only where the cache is used: polars takes 0.1 s to load."""

from __future__ import annotations

import io
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

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

ERRORS = (pl.exceptions.PolarsError, pl.exceptions.PanicException, ValueError, KeyError)
"""What an entry may raise that is damaged, or of another version."""

_TABLES: dict[str, type] = {
    "kernels": KernelTable,
    "host": HostTable,
    "markers": MarkerTable,
    "allocations": AllocationTable,
}
FILES = (*(f"{name}.parquet" for name in _TABLES), "strings.parquet", "ops.parquet")
_Table = TypeVar("_Table")


@dataclass(frozen=True, slots=True)
class Encoded:
    """The files of an entry, and what stands beside them as JSON."""

    files: dict[str, bytes]
    body: dict[str, Any]


def encode(trace: Trace) -> Encoded | None:
    """None for a trace with compiled programs, which are not kept."""
    if any(op.hlo is not None for op in trace.ops):
        return None
    files = {f"{name}.parquet": _parquet(_columns(getattr(trace, name))) for name in _TABLES}
    files["strings.parquet"] = _parquet({"text": list(trace.strings)}, pl.String)
    names = {"name": [op.name for op in trace.ops], "type": [op.type for op in trace.ops]}
    files["ops.parquet"] = _parquet(names, pl.String)
    body = {
        "format": trace.source.format,
        "size_bytes": trace.source.size_bytes,
        "host": trace.source.host,
        "origin_unix_ns": trace.origin_unix_ns,
        "devices": [asdict(device) for device in trace.devices],
        "streams": [asdict(stream) for stream in trace.streams],
        "threads": list(trace.threads),
        "basis": trace.basis,
        "warnings": list(trace.warnings),
        "lacks": dict(trace.lacks),
    }
    return Encoded(files, body)


def decode(body: dict[str, Any], files: dict[str, bytes]) -> Trace:
    """The trace; its source has no path, which the caller knows. Raises one of ERRORS for a damaged entry."""
    tables: dict[str, Any] = {name: _table(kind, files[f"{name}.parquet"]) for name, kind in _TABLES.items()}
    ops = _frame(files["ops.parquet"])
    return Trace(
        source=TraceSource(Path(), body["format"], body["size_bytes"], body["host"]),
        origin_unix_ns=body["origin_unix_ns"],
        strings=tuple(_frame(files["strings.parquet"])["text"].to_list()),
        devices=tuple(_device(device) for device in body["devices"]),
        streams=tuple(Stream(**stream) for stream in body["streams"]),
        threads=tuple(body["threads"]),
        ops=tuple(Op(name, type) for name, type in zip(ops["name"], ops["type"], strict=True)),
        basis=body["basis"],
        warnings=tuple(body["warnings"]),
        lacks=body["lacks"],
        **tables,
    )


def _device(stated: dict[str, Any]) -> TraceDevice:
    facts = dict(stated["facts"])
    if facts["compute_capability"] is not None:
        facts["compute_capability"] = tuple(facts["compute_capability"])
    return TraceDevice(stated["plane"], stated["ordinal"], DeviceFacts(**facts))


def _columns(table: Any) -> dict[str, Any]:
    values = {name: getattr(table, name) for name in type(table).__slots__}
    return {name: np.ascontiguousarray(value) for name, value in values.items() if value is not None}


def _parquet(columns: dict[str, Any], dtype: Any = None) -> bytes:
    schema = None if dtype is None else dict.fromkeys(columns, dtype)
    file = io.BytesIO()
    pl.DataFrame(columns, schema=schema).write_parquet(file, compression="lz4", statistics=False)
    return file.getvalue()


def _frame(content: bytes) -> pl.DataFrame:
    return pl.read_parquet(io.BytesIO(content)).rechunk()


def _table(kind: type[_Table], content: bytes) -> _Table:
    frame = _frame(content)
    return kind(**{name: frame[name].to_numpy() for name in frame.columns})
