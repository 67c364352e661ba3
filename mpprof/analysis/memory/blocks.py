"""Blocks of memory: each allocation of an allocator with its own free, by address."""

from __future__ import annotations

import re

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.model import limits
from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen
from mpprof.model.memory import Allocator, RecordedMemory
from mpprof.model.run import Run
from mpprof.model.trace import AllocationTable, Trace

NEVER = np.iinfo(np.int64).max
_DEVICE_ALLOCATOR = r"(?i)gpu_?\w*\d|device|(?:rocm|cuda|xla)"


@frozen
class Blocks:
    """One allocator's events, in order of time, and the blocks that they tell of.

    `rows` are its rows of the trace's allocation table. Of block i, `row` is where it was allocated, `born`
    and `died` are places in `rows` (`died` is NEVER where it outlives the trace). A block whose address is
    given out anew without a free ends there. `asked` is what was asked for, -1 where that is not stated.
    `live_bytes` is the allocator's own count after each event. `older_bytes` is what was live before the
    first event; `older_died` and `older_sizes` say which of that is freed within the trace, by place and
    bytes.
    """

    rows: Int64
    live_bytes: Int64
    row: Int64
    born: Int64
    died: Int64
    bytes: Int64
    asked: Int64
    older_bytes: int
    older_died: Int64
    older_sizes: Int64

    def __len__(self) -> int:
        return len(self.row)

    def live(self, place: int) -> Bool:
        """Return which blocks are live after the event at this place."""
        return (self.born <= place) & (self.died > place)

    def older(self, place: int) -> int:
        """Return how many of the bytes from before the first event are live after the event at this place."""
        return self.older_bytes - int(self.older_sizes[self.older_died <= place].sum())


def why_none(trace: Trace) -> str | None:
    """Return why there is no memory account; None where there is one."""
    if "allocations" in trace.missing:
        return trace.missing["allocations"]
    if not len(trace.allocations):
        return "the trace holds no allocator events"
    if not allocators(trace):
        return "the trace's allocator events do not state how much was allocated"
    return None


def is_device(allocator: str) -> bool:
    """Return whether an allocator of this name gives out a device's memory: not the host's memory for copies
    to it (`gpu_host_bfc`), not the CPU's own (`mklcpu`)."""
    return bool(re.search(_DEVICE_ALLOCATOR, allocator)) and "host" not in allocator.lower()


def allocators(trace: Trace) -> tuple[tuple[Allocator, Int64], ...]:
    """Return every allocator that states what it has given out, with its rows of the allocation table:
    devices' first, then by their peak. If there are more than `MOST_GPUS`, those with most events."""
    table, found = trace.allocations, []
    for rows in _by_allocator(table):
        name = int(table.allocator[rows[0]])
        live, available = table.live_bytes[rows], table.available_bytes[rows]
        text = trace.strings[name]
        found.append(
            (
                Allocator(
                    name=text,
                    where="device" if is_device(text) else "host",
                    peak_bytes=int(live.max()),
                    lifetime_peak_bytes=_largest(table.peak_bytes[rows]),
                    capacity_bytes=_largest(np.where(available >= 0, live + available, -1)),
                    events=len(rows),
                ),
                rows,
            )
        )
    return tuple(sorted(found, key=lambda each: (each[0].where, -each[0].peak_bytes, each[0].name)))


def _by_allocator(table: AllocationTable) -> list[Int64]:
    """Return the rows that state what was given out, of each allocator in the order of time."""
    rows = np.flatnonzero((table.allocator >= 0) & (table.live_bytes >= 0))
    rows = rows[np.argsort(table.allocator[rows], kind="stable")]
    _, first, counts = np.unique(table.allocator[rows], return_index=True, return_counts=True)
    most = np.argsort(-counts, kind="stable")[: limits.MOST_GPUS].tolist()
    return [rows[first[at] : first[at] + counts[at]] for at in sorted(most)]


def _largest(values: Int64) -> int | None:
    largest = int(values.max(initial=-1))
    return largest if largest >= 0 else None


def blocks(table: AllocationTable, rows: Int64) -> Blocks:
    """Return the blocks of one allocator; `rows` are its events, in order of time, one at least."""
    asked = table.requested_bytes
    live, size, free = table.live_bytes[rows], table.bytes[rows], table.free[rows]
    told = np.flatnonzero((table.address[rows] >= 0) & (size >= 0))
    order = told[np.argsort(table.address[rows][told], kind="stable")]
    address, frees = table.address[rows][order], free[order]
    same = address[1:] == address[:-1]
    following = np.append(np.where(same, order[1:], NEVER), NEVER)[: len(order)]
    first = np.append(True, ~same)[: len(order)]
    older = order[first & frees]
    next_of = np.full(len(rows), NEVER)
    next_of[order] = following
    born = told[~free[told]]
    step = int(size[0]) if size[0] >= 0 else 0
    before = max(0, int(live[0]) + (step if free[0] else -step))
    return Blocks(
        rows=rows,
        live_bytes=live,
        row=rows[born],
        born=born,
        died=next_of[born],
        bytes=size[born],
        asked=np.full(len(born), -1) if asked is None else asked[rows[born]],
        older_bytes=before,
        older_died=older,
        older_sizes=size[older],
    )


# What the records alone say of memory: the allocator at steps, the driver and the process over time.


def recorded(run: Run, steady_peak_bytes: int | None) -> RecordedMemory | None:
    """Return the run's own readings; None where nothing of them was recorded."""
    steps, hardware = run.steps, run.hardware
    peak = steps.peak_bytes[steps.peak_bytes >= 0] if steps is not None else np.empty(0, np.int64)
    live = steps.live_bytes[steps.live_bytes >= 0] if steps is not None else np.empty(0, np.int64)
    used = hardware.memory_used_bytes if hardware is not None else np.empty(0)
    host = hardware.rss_bytes if hardware is not None else np.empty(0)
    used, host = used[np.isfinite(used)], host[np.isfinite(host)]
    if not (len(peak) or len(live) or len(used) or len(host)):
        return None
    return RecordedMemory(
        peak_bytes=int(peak.max()) if len(peak) else None,
        steady_peak_bytes=steady_peak_bytes,
        first_live_bytes=int(live[0]) if len(live) else None,
        last_live_bytes=int(live[-1]) if len(live) else None,
        driver_bytes=int(median(used)) if len(used) else None,
        host_bytes=int(host.max()) if len(host) else None,
    )
