"""What held a device's memory at the peak, from the allocator's own events."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.layers.attribution import Ownership, joined
from mpprof.model.account import MemoryAccount, MemoryItem, Phase
from mpprof.model.frozen import frozen
from mpprof.model.steps import StepSummary
from mpprof.model.trace import AllocationTable, Trace

Int64 = NDArray[np.int64]
By = Literal["dtype", "op", "layer", "kind"]

UNKNOWN = "unknown"
BEFORE = "held before the window"
"""Weights, optimizer slots and whatever else was allocated before the profiler started."""
_DEVICE_ALLOCATOR = re.compile(r"gpu_?\w*\d|device", re.IGNORECASE)
_MOST_NAMES = 200

_REGIONS = {"persist": "persistent", "persistent": "persistent", "temp": "workspace"}
_KINDS: dict[Phase, str] = {
    "forward": "activations", "backward": "gradients", "optimizer": "optimizer",
    "loss_scale": "optimizer", "input": "input",
}  # fmt: skip


@frozen
class _Peak:
    """The live set at the peak: rows of the allocation table, and bytes allocated before the first event."""

    bytes: int
    rows: Int64
    before_bytes: int


def why_not(trace: Trace) -> str | None:
    """Why there is no memory account; None where there is one."""
    if "allocations" in trace.missing:
        return trace.missing["allocations"]
    if not len(trace.allocations):
        return "the trace holds no allocator events"
    if not len(_device_rows(trace)):
        return "the trace holds allocator events of the host only, none of a GPU"
    return None


def at_peak(trace: Trace, ownership: Ownership, summary: StepSummary | None) -> MemoryAccount | None:
    """What was live when the fullest device allocator held most, within the trace.

    None where there are no events of a device's allocator (`why_not` says which). The items of each `by`
    sum to `peak_bytes`; what no event tells is `unknown`. `summary` is the run's own record, whose peak may
    be higher: it covers steps outside the trace.
    """
    if why_not(trace) is not None:
        return None
    peak = _peak(trace)
    if peak is None:
        return None
    table, rows = trace.allocations, peak.rows
    names: dict[By, list[str]] = {
        "dtype": [_text(trace, at) for at in table.dtype[rows].tolist()],
        "op": [trace.ops[at].name if at >= 0 else UNKNOWN for at in table.op[rows].tolist()],
        "layer": [joined(ownership.layers_of(at)) or UNKNOWN for at in table.op[rows].tolist()],
        "kind": [
            _kind(_text(trace, region), ownership.phase_of(op))
            for region, op in zip(table.region[rows].tolist(), table.op[rows].tolist(), strict=True)
        ],
    }
    sizes = table.bytes[rows].tolist()
    items: list[MemoryItem] = []
    for by, keys in names.items():
        items += _items(by, keys, sizes, peak)
    return MemoryAccount(peak.bytes, tuple(items))


def _device_rows(trace: Trace) -> Int64:
    """Rows of the allocation table of allocators of device memory."""
    column = trace.allocations.allocator
    wanted = [row for row in np.unique(column).tolist() if row >= 0 and _of_device(trace.strings[row])]
    return np.flatnonzero(np.isin(column, wanted))


def _of_device(allocator: str) -> bool:
    return bool(_DEVICE_ALLOCATOR.search(allocator)) and "host" not in allocator.lower()


def _peak(trace: Trace) -> _Peak | None:
    table, rows = trace.allocations, _device_rows(trace)
    counted = rows[table.live_bytes[rows] >= 0]
    if not len(counted):
        return None
    top = int(counted[np.argmax(table.live_bytes[counted])])
    total = int(table.live_bytes[top])
    own = rows[(table.allocator[rows] == table.allocator[top]) & (rows <= top)]
    own = own[(table.address[own] >= 0) & (table.bytes[own] >= 0)]
    live = _live(table, own)
    if int(table.bytes[live].sum()) > total:
        return _Peak(total, live[:0], 0)  # events were lost: nothing can be said of what was live
    return _Peak(total, live, _before(table, own, total - int(table.bytes[live].sum())))


def _live(table: AllocationTable, rows: Int64) -> Int64:
    """The allocations that are not freed: the last event of their address."""
    _, last = np.unique(table.address[rows][::-1], return_index=True)
    rows = np.sort(rows[::-1][last])
    return rows[~table.free[rows]]


def _before(table: AllocationTable, rows: Int64, rest: int) -> int:
    """Bytes from before the first event that are still held; `rest` is what no event accounts for."""
    if not len(rows) or table.live_bytes[rows[0]] < 0:
        return 0
    first = int(rows[0])
    size = int(table.bytes[first])
    held = int(table.live_bytes[first]) + (size if table.free[first] else -size)
    _, opening = np.unique(table.address[rows], return_index=True)
    freed = rows[opening][table.free[rows[opening]]]  # their first event frees: they are older
    return min(max(0, held - int(table.bytes[freed].sum())), rest)


def _items(by: By, names: list[str], sizes: list[int], peak: _Peak) -> list[MemoryItem]:
    total: defaultdict[str, int] = defaultdict(int)
    for name, size in zip(names, sizes, strict=True):
        total[name] += size
    total[BEFORE if by == "kind" else UNKNOWN] += peak.before_bytes
    total[UNKNOWN] += peak.bytes - peak.before_bytes - sum(sizes)
    ordered = sorted(((n, b) for n, b in total.items() if b), key=lambda item: (-item[1], item[0]))
    small = ordered[_MOST_NAMES:]
    items = [MemoryItem(by, name, size) for name, size in ordered[:_MOST_NAMES]]
    if small:
        items.append(MemoryItem(by, f"{len(small)} smaller ones", sum(size for _, size in small)))
    return items


def _kind(region: str, phase: Phase) -> str:
    return _REGIONS.get(region) or _KINDS.get(phase, UNKNOWN)


def _text(trace: Trace, row: int) -> str:
    return trace.strings[row] if row >= 0 else UNKNOWN
