"""Allocator events (`MemoryAllocation`, `MemoryDeallocation`) of a host plane, with their stats."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from mpprof.model import limits
from mpprof.model.arrays import Float64, Int32, Int64, distinct
from mpprof.model.trace import AllocationTable
from mpprof.traces.common import columns, walk
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.names import DATA_TYPES
from mpprof.traces.common.ops import Ops
from mpprof.traces.common.planes import extents, slots
from mpprof.traces.xspace.events import PlaneEvents

NAMES = ("MemoryAllocation", "MemoryDeallocation")
_NOTHING = frozenset(("", "(null)"))
"""What the collector writes for no text."""
_INTS = (
    "requested_bytes", "allocation_bytes", "bytes_allocated", "peak_bytes_in_use", "bytes_reserved",
    "bytes_available", "addr", "data_type",
)  # fmt: skip
_TEXTS = ("allocator_name", "tf_op", "region_type", "tensor_shapes", "shape")
_FULLEST = 4096
"""Events at which fragmentation is read: those with the most bytes allocated. It is the one stat with a
fraction, and matters where memory runs out."""


def allocation_table(
    events: PlaneEvents | None, ops: Ops | None, threads: Sequence[int] = ()
) -> AllocationTable:
    """Return the allocator events of one plane, in the order of the file; without events an empty table.
    `threads`: of each line that was read the row in `Trace.threads`."""
    if events is None or ops is None or not len(events.raw.marked_event):
        ints, texts = np.empty(0, np.int64), np.empty(0, np.int32)
        return AllocationTable(
            ints, np.empty(0, np.bool_), texts, ints, ints, ints, ints, ints, ints, texts, texts, texts,
            texts, ints, np.empty(0), texts,
        )  # fmt: skip
    stats = _stats(events)
    strings = events.strings
    metadata = events.raw.metadata[events.raw.marked_event]
    frees = np.array([name == "MemoryDeallocation" for name in events.plane.metadata_names] + [False])
    shapes, old_shapes = _text(stats, "tensor_shapes"), _text(stats, "shape")
    requested, allocated = (
        limits.sizes(stats.number(name), limits.LARGEST_BLOCK_BYTES)
        for name in ("requested_bytes", "allocation_bytes")
    )
    live, peak, reserved, available = (
        limits.sizes(stats.number(name), limits.LARGEST_MEMORY_BYTES)
        for name in ("bytes_allocated", "peak_bytes_in_use", "bytes_reserved", "bytes_available")
    )
    return AllocationTable(
        time_ns=events.start_ns[events.raw.marked_event],
        free=frees[metadata],
        allocator=_text(stats, "allocator_name"),
        bytes=np.where(allocated >= 0, allocated, requested),
        live_bytes=live,
        peak_bytes=peak,
        reserved_bytes=reserved,
        available_bytes=available,
        address=stats.number("addr"),
        dtype=_dtypes(stats.number("data_type"), strings),
        shapes=np.where(shapes >= 0, shapes, old_shapes),
        op=_ops(_text(stats, "tf_op"), strings, ops),
        region=_text(stats, "region_type"),
        requested_bytes=requested,
        fragmentation_ratio=_fragmentation(events, live),
        thread=events.per_line(threads)[events.raw.marked_event],
    )


def _stats(events: PlaneEvents) -> PlaneEvents:
    """Return the chosen events, walked once more, each as a line of its own, for the stats of an
    allocator."""
    plane, raw = events.plane, events.raw
    keys, rows, columns_of, has_ints, has_texts = slots(plane, _INTS, _TEXTS)
    again = walk.events(
        plane.buffer,
        raw.marked_start,
        raw.marked_end,
        *plane.metadata_lookup(),
        keys,
        rows,
        columns_of,
        len(has_ints),
        len(has_texts),
        np.empty(0, np.uint8),
    )
    n = len(again.start_ns)
    name = np.full(n, -1, np.int32)
    return PlaneEvents(
        plane, again, again.start_ns, again.duration_ns, name, events.strings, has_ints, has_texts, [], [], []
    )


def _text(stats: PlaneEvents, name: str) -> Int32:
    """Return rows in the trace's strings, -1 where a stat is empty."""
    column = stats.text(name)
    values = distinct(column)
    texts = stats.strings.texts()
    kept = [row if row >= 0 and texts[row] not in _NOTHING else -1 for row in values.tolist()]
    found: Int32 = columns.replace(column, values, kept)
    return found


def _dtypes(codes: Int64, strings: Interner) -> Int32:
    values = distinct(codes)
    rows = [strings(DATA_TYPES[code]) if code in DATA_TYPES else -1 for code in values.tolist()]
    return np.array(rows, np.int32)[np.searchsorted(values, codes)]


def _ops(column: Int32, strings: Interner, ops: Ops) -> Int32:
    values = distinct(column)
    texts = strings.texts()
    found: Int32 = columns.replace(
        column, values, [ops.named(texts[row]) if row >= 0 else -1 for row in values.tolist()]
    )
    return found


def _fragmentation(events: PlaneEvents, live: Int64) -> Float64:
    """Return what share of the free memory lies outside the largest free block, NaN where it was not read."""
    found = np.full(len(live), np.nan)
    key = events.plane.stat_ids.get("fragmentation")
    if key is None:
        return found
    raw, buffer = events.raw, events.plane.buffer
    top = np.argpartition(live, -_FULLEST)[-_FULLEST:] if len(live) > _FULLEST else np.arange(len(live))
    bodies, ends, _ = extents(walk.scan(buffer, raw.marked_start[top], raw.marked_end[top], 1 << 4), 4)
    starts, ends, owner = extents(walk.scan(buffer, bodies, ends, 1 << 4), 4)
    fields = walk.scan(buffer, starts, ends, 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4)
    stat_of = np.full(len(starts), -1, np.int64)
    keyed = fields.number == 1
    stat_of[fields.parent[keyed]] = fields.value[keyed]
    wanted = np.flatnonzero((fields.number != 1) & (stat_of[fields.parent] == key))
    for row in wanted.tolist():
        value = int(fields.value[row])
        # A collector writes a round value as a whole number.
        share = struct.unpack("<d", struct.pack("<q", value))[0] if fields.wire[row] == 1 else float(value)
        if 0.0 <= share <= 1.0:
            found[top[owner[fields.parent[row]]]] = share
    return found
