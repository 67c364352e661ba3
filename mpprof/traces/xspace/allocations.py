"""Allocator events (`MemoryAllocation`, `MemoryDeallocation`) of a host plane, with their stats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.model.trace import AllocationTable
from mpprof.traces.common import walk
from mpprof.traces.common.names import DATA_TYPES
from mpprof.traces.common.ops import Ops
from mpprof.traces.common.planes import extents
from mpprof.traces.xspace.events import PlaneEvents

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]

NAMES = ("MemoryAllocation", "MemoryDeallocation")
_NOTHING = frozenset(("", "(null)"))


class _Stats:
    """The stats of chosen events in columns, whatever their names."""

    def __init__(self, events: PlaneEvents) -> None:
        self.events = events
        raw = events.raw
        self.n = len(raw.marked_event)
        buffer = events.plane.buffer
        starts, ends, owner = extents(walk.scan(buffer, raw.marked_start, raw.marked_end, 1 << 4), 4)
        self.owner = owner
        self.fields = walk.scan(buffer, starts, ends, 1 << 1 | 1 << 3 | 1 << 4 | 1 << 5 | 1 << 7)
        keyed = (self.fields.number == 1) & (self.fields.wire == 0)
        self.key = np.zeros(len(starts), np.int64)
        self.key[self.fields.parent[keyed]] = self.fields.value[keyed]

    def _rows(self, name: str) -> NDArray[np.bool_]:
        id = self.events.plane.stat_ids.get(name)
        if id is None:
            return np.zeros(len(self.fields.number), np.bool_)
        rows: NDArray[np.bool_] = (self.key[self.fields.parent] == id) & (self.fields.number != 1)
        return rows

    def number(self, name: str) -> Int64:
        column = np.full(self.n, -1, np.int64)
        rows = self._rows(name) & (self.fields.wire == 0)
        column[self.owner[self.fields.parent[rows]]] = self.fields.value[rows]
        return column

    def text(self, name: str) -> Int32:
        """Rows in the trace's strings; "(null)" is what the collector writes for nothing."""
        column = np.full(self.n, -1, np.int32)
        plane, strings = self.events.plane, self.events.strings
        rows = np.flatnonzero(self._rows(name) & ((self.fields.number == 5) | (self.fields.number == 7)))
        seen: dict[int | bytes, int] = {}
        found = []
        raw = memoryview(plane.buffer)  # type: ignore[arg-type]
        numbers, values, sizes = (
            c[rows].tolist() for c in (self.fields.number, self.fields.value, self.fields.size)
        )
        for number, value, size in zip(numbers, values, sizes, strict=True):
            key = value if number == 7 else bytes(raw[value : value + size]) if size >= 0 else b""
            if key not in seen:
                text = (
                    key.decode("utf-8", "replace")
                    if isinstance(key, bytes)
                    else plane.stat_names.get(key, "")
                )
                seen[key] = -1 if text in _NOTHING else strings(text)
            found.append(seen[key])
        column[self.owner[self.fields.parent[rows]]] = found
        return column


def allocation_table(events: PlaneEvents | None, ops: Ops | None) -> AllocationTable:
    """The allocator events of one plane, in the order of the file; without events an empty table."""
    if events is None or ops is None or not len(events.raw.marked_event):
        ints, texts = np.empty(0, np.int64), np.empty(0, np.int32)
        return AllocationTable(
            ints, np.empty(0, np.bool_), texts, ints, ints, ints, ints, ints, ints, texts, texts, texts, texts
        )
    stats = _Stats(events)
    strings = events.strings
    metadata = events.raw.metadata[events.raw.marked_event]
    frees = np.array([name == "MemoryDeallocation" for name in events.plane.metadata_names] + [False])
    op_text = stats.text("tf_op")
    listed = strings.texts()
    op_rows = {-1: -1} | {row: ops.named(listed[row]) for row in set(op_text.tolist()) if row >= 0}
    types = stats.number("data_type")
    type_rows = {
        code: strings(DATA_TYPES[code]) if code in DATA_TYPES else -1 for code in set(types.tolist())
    }
    shapes, old_shapes = stats.text("tensor_shapes"), stats.text("shape")
    requested, allocated = stats.number("requested_bytes"), stats.number("allocation_bytes")
    return AllocationTable(
        time_ns=events.start_ns[events.raw.marked_event],
        free=frees[metadata],
        allocator=stats.text("allocator_name"),
        bytes=np.where(allocated >= 0, allocated, requested),
        live_bytes=stats.number("bytes_allocated"),
        peak_bytes=stats.number("peak_bytes_in_use"),
        reserved_bytes=stats.number("bytes_reserved"),
        available_bytes=stats.number("bytes_available"),
        address=stats.number("addr"),
        dtype=np.array([type_rows[code] for code in types.tolist()], np.int32),
        shapes=np.where(shapes >= 0, shapes, old_shapes),
        op=np.array([op_rows[row] for row in op_text.tolist()], np.int32),
        region=stats.text("region_type"),
    )
