"""Kernel lists: a line per kernel with its name, start and duration in ns, separated by tabs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model.device import DeviceFacts
from mpprof.model.trace import (
    AllocationTable,
    HostTable,
    KernelTable,
    MarkerTable,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
    WorkKind,
)
from mpprof.traces.common.columns import Interner, table_of
from mpprof.traces.common.file_head import Kind

_FIRST_LINE = b"name\tstart_ns\tduration_ns\n"


class TsvReader:
    """Reads `*.kernels.tsv`."""

    kinds: tuple[Kind, ...] = (Kind("tsv", ends=(".kernels.tsv",)),)

    def recognises(self, head: bytes) -> bool:
        return head.startswith(_FIRST_LINE)

    def claims(self, name: str) -> bool:
        return name.endswith(".kernels.tsv")

    def kind_of(self, name: str, head: bytes) -> str:
        return "tsv"

    def holds_trace(self, path: Path) -> bool:
        return True

    def slow_from_bytes(self, *, packed: bool) -> int | None:
        return None

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Raise UnreadableError where a line does not hold three fields."""
        strings = Interner()
        try:
            lines = [line.split("\t") for line in path.read_text().splitlines()[1:]]
            rows = [(strings(name), int(start), int(duration)) for name, start, duration in lines]
        except ValueError as error:
            raise UnreadableError(f"a line is not a kernel: {error}", where=str(path)) from error
        name, start, duration = np.array(rows, np.int64).reshape(-1, 3).T
        n, zeros = len(rows), np.zeros(len(rows), np.int32)
        kernels = table_of(
            KernelTable,
            n,
            device=zeros,
            stream=zeros,
            name=name.astype(np.int32),
            start_ns=start,
            duration_ns=duration,
            kind=np.full(n, WorkKind.KERNEL, np.int8),
            copy=np.zeros(n, np.int8),
        )
        return Trace(
            source=TraceSource(path, "tsv", path.stat().st_size),
            origin_unix_ns=None,
            strings=strings.texts(),
            devices=(TraceDevice("/device:GPU:0", 0, DeviceFacts("gpu")),),
            streams=(Stream(0, 0, "Stream #0"),),
            threads=(),
            ops=(),
            kernels=kernels,
            host=table_of(HostTable, 0),
            markers=table_of(MarkerTable, 0),
            allocations=table_of(AllocationTable, 0),
            basis="device",
            missing={"host": "a kernel list holds no host events"},
        )
