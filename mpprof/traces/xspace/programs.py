"""The compiled programs in an xplane file, with what XLA assigned to each: no event is read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from mpprof.model.memory import Program
from mpprof.traces.common import file_head
from mpprof.traces.common.buffers import assignment
from mpprof.traces.common.hlo import Modules
from mpprof.traces.common.planes import read_space
from mpprof.traces.xspace import reader


def programs(path: Path, sizes_taken: Collection[tuple[int, ...]] | None = None) -> tuple[Program, ...]:
    """Return the programs of a trace file that have a buffer assignment, those with most bytes first; empty
    where the file is no xplane or holds none. `sizes_taken`: what is in a program's allocations is read only
    of those that take allocations of these sizes, one after the other."""
    head = file_head.of(path)
    xspace = reader.XSpaceReader()
    if not (xspace.recognises(head) or path.name.endswith(xspace.claims)):
        return ()
    with path.open("rb") as file:
        packed = file.read(2) == file_head.GZIP
        buffer = reader.unpacked(path, path.stat().st_size, []) if packed else reader.bytes_of(file, [])
    found = []
    for name, program, (data, start, end) in Modules(read_space(buffer).planes).places():
        assigned = assignment(data, start, end, sizes_taken)
        if assigned is not None:
            found.append(Program(name, program, assigned))
    return tuple(sorted(found, key=lambda one: -one.assigned.whole_bytes))
