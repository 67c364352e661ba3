"""A window of the timeline in the Trace Event Format (JSON), which ui.perfetto.dev and chrome://tracing open.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mpprof.analysis.breakdown.timeline import KEYS
from mpprof.api.timeline import Timeline, kernel
from mpprof.errors import UnableError
from mpprof.model.trace import HostKind

MOST_EVENTS = 200_000
"""Of one export: some 100 MB of JSON."""
_DEVICE, _HOST = 1, 2
_STEPS, _WAITS = 1_000_001, 1_000_002
"""Tracks of the device beside its streams."""
Event = dict[str, Any]


def document(known: Timeline, from_ns: int, to_ns: int) -> dict[str, Any]:
    """Return all events that reach into `[from_ns, to_ns)`, in times from the first step's start; each kernel
    with its verdict and an arrow from its launch. Raises UnableError where there are too many."""
    begin, end = known.origin_ns + from_ns, known.origin_ns + to_ns
    lane, host = known.lanes.lanes[0], known.trace.host
    inside = np.flatnonzero((lane.start_ns < end) & (lane.end_ns > begin))
    start = host.start_ns - known.lanes.shift_ns
    near = (start < end) & (start + host.duration_ns > begin)
    calls = np.flatnonzero(near & (host.kind != HostKind.MARKER))
    count = len(inside) + len(calls)
    if count > MOST_EVENTS:
        raise UnableError(
            f"the window holds {count:,} events; an export can hold at most {MOST_EVENTS:,}",
            next="Zoom in, then export again.",
        )
    work, waits = inside[lane.row[inside] >= 0], inside[lane.row[inside] < 0]
    events = [
        *_tracks(known, calls),
        *_steps(known, from_ns, to_ns),
        *(_wait(known, row) for row in waits.tolist()),
        *(each for row in lane.row[work].tolist() for each in _kernel(known, row)),
        *(_call(known, row) for row in calls.tolist()),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ns"}


def _steps(known: Timeline, from_ns: int, to_ns: int) -> Iterator[Event]:
    lanes, origin = known.lanes, known.origin_ns
    for row in range(len(lanes.start_ns)):
        begin, end = int(lanes.start_ns[row]) - origin, int(lanes.end_ns[row]) - origin
        number = int(lanes.number[row])
        if begin < to_ns and end > from_ns:
            name = f"step {number if number >= 0 else row + 1}"
            yield _span(name, "step", _DEVICE, _STEPS, begin, end - begin)


def _wait(known: Timeline, row: int) -> Event:
    """Return the event of a stretch in which the device has no work, named by what the device waits for."""
    lane = known.lanes.lanes[0]
    name = KEYS[lane.key[row]].replace("_", " ")
    start, end = int(lane.start_ns[row]), int(lane.end_ns[row])
    return _span(name, "idle", _DEVICE, _WAITS, start - known.origin_ns, end - start)


def _call(known: Timeline, row: int) -> Event:
    """Return an event of the host."""
    host = known.trace.host
    name, kind = known.trace.strings[host.name[row]], HostKind(host.kind[row]).name.lower()
    start = int(host.start_ns[row]) - known.lanes.shift_ns - known.origin_ns
    return _span(name, kind, _HOST, int(host.thread[row]), start, int(host.duration_ns[row]))


def _tracks(known: Timeline, calls: np.ndarray[Any, Any]) -> Iterator[Event]:
    """Yield the events that name the processes and threads of the other events."""
    trace, device = known.trace, known.lanes.device
    plane = trace.devices[device].plane if device < len(trace.devices) else "Device"
    for pid, name in ((_DEVICE, plane), (_HOST, "Host")):
        yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        yield {"ph": "M", "name": "process_sort_index", "pid": pid, "args": {"sort_index": pid}}
    names = [(_DEVICE, _STEPS, "Steps"), (_DEVICE, _WAITS, "Device waits")]
    names += [(_DEVICE, row, each.name) for row, each in enumerate(trace.streams) if each.device == device]
    names += [(_HOST, row, trace.threads[row]) for row in np.unique(known.trace.host.thread[calls]).tolist()]
    for pid, tid, name in names:
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}


def _span(name: str, category: str, pid: int, tid: int, start_ns: int, duration_ns: int) -> Event:
    return {
        "ph": "X", "name": name, "cat": category, "pid": pid, "tid": tid, "ts": start_ns / 1000,
        "dur": duration_ns / 1000,
    }  # fmt: skip


def _kernel(known: Timeline, row: int) -> Iterator[Event]:
    """Yield the kernel with what is known of it, and the arrow from its launch."""
    told, table, host = kernel(known, row), known.trace.kernels, known.trace.host
    assert told is not None
    span = _span(
        told["name"], "kernel", _DEVICE, int(table.stream[row]), told["start_ns"], told["duration_ns"]
    )
    said = {
        "ran on": told["placement"], "precision": told["precision"], "because": told["reason"]["text"],
        "layer": told["layer"], "phase": told["phase"], "op": told["op"], "shapes": told["shapes"],
        "details": told["details"], "launched by": told["launched_by"],
    }  # fmt: skip
    yield span | {"args": {name: value for name, value in said.items() if value is not None}}
    launch, late_ns = int(table.launch[row]), told["launch_to_start_ns"]
    if launch >= 0 and late_ns is not None:
        arrow = {"name": "launch", "cat": "launch", "id": row}
        launched_us = (told["start_ns"] - late_ns) / 1000
        yield arrow | {"ph": "s", "pid": _HOST, "tid": int(host.thread[launch]), "ts": launched_us}
        yield arrow | {"ph": "f", "bp": "e", "pid": _DEVICE, "tid": span["tid"], "ts": span["ts"]}
