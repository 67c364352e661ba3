"""Kernel lists: a line per kernel with its name, start and duration in ns, separated by tabs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model import limits
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
from mpprof.traces.common.file_head import Kind, Reader

_FIRST_LINE = "name\tstart_ns\tduration_ns"


class TsvReader(Reader):
    """Reads `*.kernels.tsv`."""

    kinds: tuple[Kind, ...] = (Kind("tsv", ends=(".kernels.tsv",)),)
    files = "lists of kernels (*.kernels.tsv)"

    def recognises(self, head: bytes) -> bool:
        return head.startswith(_FIRST_LINE.encode() + b"\n")

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a list; lines that are no kernel are left out, with a warning. Raises UnreadableError where no
        line is left, and with `strict` for any damage."""
        head, *lines = path.read_bytes().decode(errors="replace").split("\n")
        damages = [] if head == _FIRST_LINE else ["the first line does not name the columns"]
        if lines and lines.pop():
            damages.append("the last line is cut off")
        found = [_kernel(line) for line in lines]
        damages += [f"line {at} is not a kernel" for at, one in enumerate(found, 2) if one is None][:1]
        kernels = sorted((one for one in found if one is not None), key=lambda one: one[1])
        if damages and (strict or not kernels):
            raise UnreadableError(damages[0], where=str(path), next="Write the list again")
        strings = Interner()
        n, zeros = len(kernels), np.zeros(len(kernels), np.int32)
        table = table_of(
            KernelTable,
            n,
            device=zeros,
            stream=zeros,
            name=np.array([strings(name) for name, _, _ in kernels], np.int32),
            start_ns=np.array([start for _, start, _ in kernels], np.int64),
            duration_ns=np.array([duration for _, _, duration in kernels], np.int64),
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
            kernels=table,
            host=table_of(HostTable, 0),
            markers=table_of(MarkerTable, 0),
            allocations=table_of(AllocationTable, 0),
            basis="device",
            warnings=tuple(damages),
            missing={"host": "a kernel list holds no host events"},
        )


def _kernel(line: str) -> tuple[str, int, int] | None:
    """Return name, start and duration; None for a line without three fields, or with times out of bounds."""
    try:
        name, *times = line.split("\t")
        start, duration = map(int, times)
    except ValueError:
        return None
    bounded = all(0 <= each < limits.LONGEST_NS for each in (start, duration))
    return (name, start, duration) if bounded else None
