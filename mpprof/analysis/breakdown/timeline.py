"""What ran when: the work of a device, its idle time by cause, its streams and its host's threads.

`lanes` computes once what a trace holds; `view` cuts a window out of it and merges what is shorter than a
pixel, so that what is handed on is bounded by the width of the drawing, however many events there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np

from mpprof.analysis.arrays.intervals import EMPTY, Intervals, gaps, join, union
from mpprof.analysis.breakdown import accounting
from mpprof.analysis.breakdown.accounting import roles
from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.steps.accounted_steps import Window, window_of
from mpprof.model.account import CLASSES
from mpprof.model.arrays import Bool, Int8, Int16, Int64
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Placements, Verdict
from mpprof.model.run import Run
from mpprof.model.trace import HostKind, Trace, WorkKind

# What the work of a device on the timeline is coloured by, apart from where it ran.

ColourBy = Literal["placement", "precision", "layer", "class"]
COLOURS_BY: tuple[ColourBy, ...] = get_args(ColourBy)
MOST_LAYERS = 12
"""The layers that take the most time have a colour each; the rest share one."""


@frozen
class Colouring:
    """`of` holds a row of `keys` for each row of the kernel table."""

    keys: tuple[str, ...]
    of: Int16


def colouring(trace: Trace, placements: Placements, ownership: Ownership, by: ColourBy) -> Colouring:
    """Return the colour key of each kernel by its precision, layer or class: "precision/tensor_core/fp16",
    "layer/dense", "class/norm"."""
    if by == "layer":
        return _by_layer(trace, ownership)
    if by == "class":
        every = np.arange(len(trace.kernels), dtype=np.int64)
        category = roles(trace, placements, ownership, every)[1]
        return Colouring(tuple(f"class/{name}" for name in CLASSES), category.astype(np.int16))
    return _by_precision(trace, placements)


def _by_precision(trace: Trace, placements: Placements) -> Colouring:
    keys = {"precision/copy": 0}
    of_verdict = [keys.setdefault(_precision(verdict), len(keys)) for verdict in placements.verdicts]
    of = np.array([*of_verdict, 0], np.int16)[placements.index]
    return Colouring(tuple(keys), np.where(trace.kernels.kind == WorkKind.KERNEL, of, 0).astype(np.int16))


def _precision(verdict: Verdict) -> str:
    if verdict.placement == "not_matmul":
        return "precision/other"
    return f"precision/{verdict.placement}/{verdict.precision}"


def _by_layer(trace: Trace, ownership: Ownership) -> Colouring:
    layers = np.append(ownership.layer, -1)[trace.kernels.op]  # op -1 finds the last
    ns = np.bincount(layers + 1, trace.kernels.duration_ns, len(ownership.layers) + 1)[1:]
    longest = np.argsort(-ns, kind="stable")[:MOST_LAYERS].tolist()
    keys = ["no layer", *(f"layer/{ownership.layers[row]}" for row in longest), "other layers"]
    of = np.full(len(ownership.layers) + 1, len(keys) - 1, np.int16)
    of[longest] = np.arange(1, len(longest) + 1)
    of[-1] = 0
    return Colouring(tuple(keys), of[layers])


Key = Literal[
    "matrix_unit", "off_matrix_unit", "other", "copy", "unknown", "idle_input", "idle_launch", "idle_sync",
    "idle_compile", "idle_other", "input", "pipeline", "launch", "sync", "compile", "op", "host",
]  # fmt: skip
"""What an instant of a lane was spent on: work of a device by its placement, idle time by its class, what a
host thread did."""
KEYS: tuple[Key, ...] = get_args(Key)
LaneKind = Literal["device", "host", "stream", "thread"]
"""`host`: all threads of the host together, at each instant the first of what they do by `_OF_HOST`."""
_ROW = {key: row for row, key in enumerate(KEYS)}

_OF_HOST: tuple[tuple[Key, tuple[HostKind, ...]], ...] = (  # the first that is going on is shown
    ("input", (HostKind.INPUT,)),
    ("compile", (HostKind.COMPILE,)),
    ("sync", (HostKind.SYNC,)),
    ("launch", (HostKind.LAUNCH, HostKind.COPY)),
    ("op", (HostKind.OP,)),
    ("pipeline", (HostKind.INPUT_PIPELINE,)),
    ("host", (HostKind.EXECUTOR, HostKind.OTHER, HostKind.CODE)),
)
MOST_THREADS = 12
"""The busiest of the host's threads are shown."""
MOST_CALLS, MOST_DEEP = 2000, 6
"""Events of a thread that are shown by name, and so far into one another."""
_CHUNK = 2
_BACK = 64
"""Of the rows that begin before a window so many may reach into it."""


@frozen
class Lane:
    """Intervals in the order of their starts. `row`: of the kernel table; -1: no work of a device. `calls`:
    where a thread's events stand in the table of the host; empty: it is no thread."""

    name: str
    kind: LaneKind
    start_ns: Int64
    end_ns: Int64
    key: Int8
    row: Int64
    calls: range = range(0)


@frozen
class Lanes:
    """Times are on the device's clock, which is `shift_ns` behind the host's. `number`, `start_ns`, `end_ns`
    are the steps'; `number` is -1 where the trace gives none. `device`: row in Trace.devices."""

    device: int
    shift_ns: int
    number: Int64
    start_ns: Int64
    end_ns: Int64
    lanes: tuple[Lane, ...]

    @property
    def median(self) -> int:
        """The row of the step of median length."""
        return int(np.argsort(self.end_ns - self.start_ns, kind="stable")[(len(self.start_ns) - 1) // 2])

    @property
    def slowest(self) -> int:
        return int(np.argmax(self.end_ns - self.start_ns))


@frozen
class Shown:
    """A lane within a window. `count`: how many events an interval stands for, `found`: how many of them were
    searched for; `row` is of the longest. `mixed`: of an interval that stands for several kinds, its shares
    by key, the largest first, by the interval's place in the columns."""

    name: str
    kind: LaneKind
    start_ns: Int64
    end_ns: Int64
    key: Int16
    row: Int64
    count: Int64
    found: Int64
    mixed: Mapping[int, tuple[tuple[int, float], ...]] | None = None


@frozen
class Wait:
    """What a device waited for in a window: for how long in all, how many times, and when for the longest."""

    key: Key
    total_ns: int
    count: int
    start_ns: int
    end_ns: int


def lanes(
    trace: Trace, placements: Placements, ownership: Ownership, run: Run | None, device: int
) -> Lanes | None:
    """Return the lanes of one device and its host over its whole, steady steps; None where it has none."""
    window = window_of(trace, device, run, None)
    if not isinstance(window, Window):
        return None
    periods = window.periods
    begin, end = int(periods.start_ns[0]), int(periods.end_ns[-1])
    whole = Intervals(np.array([begin]), np.array([end]))
    threads = _threads(trace, window, whole)
    return Lanes(
        device=device,
        shift_ns=window.shift.ns,
        number=periods.number,
        start_ns=periods.start_ns,
        end_ns=periods.end_ns,
        lanes=(
            _device(trace, placements, ownership, window),
            *threads[:1],
            *_streams(trace, placements, device, begin, end),
            *threads[1:],
        ),
    )


def view(
    lane: Lane,
    start_ns: int,
    end_ns: int,
    width: int,
    colours: Colouring | None = None,
    searched: Bool | None = None,
) -> Shown:
    """Return the lane in `[start_ns, end_ns)`, with what is shorter than a pixel of `width` merged by pixel:
    each such interval begins at its pixel, is as long as what it stands for and has the key of most of it.

    With `colours` the keys of a device's work follow those of `KEYS`. `searched` marks the rows of the
    kernel table that were searched for."""
    first = int(np.searchsorted(lane.start_ns, start_ns, side="left"))
    last = int(np.searchsorted(lane.start_ns, end_ns, side="left"))
    # Events that began before the window may reach into it; only a lane's last rows before it are searched.
    back = max(0, first - _BACK)
    before = back + np.flatnonzero(lane.end_ns[back:first] > start_ns)
    together = len(before) == first - before[0] if len(before) else True  # a slice copies nothing
    rows = slice(first - len(before), last) if together else np.concatenate([before, np.arange(first, last)])
    start, end, row = lane.start_ns[rows], lane.end_ns[rows], lane.row[rows]
    key, work = lane.key[rows].astype(np.int16), row >= 0
    if colours is not None:
        key[work] = len(KEYS) + colours.of[row[work]]
    found = np.zeros(len(row), np.int64)
    if searched is not None:
        found[work] = searched[row[work]]
    pixel_ns = max(1.0, (end_ns - start_ns) / max(1, width))
    small = end - start < pixel_ns
    if len(row) <= _CHUNK * width or not small.any():
        return Shown(lane.name, lane.kind, start, end, key, row, np.ones(len(row), np.int64), found)
    if small.all():
        *merged, by_key = _merged(start, end, key, row, found, start_ns, pixel_ns)
        return replace(Shown(lane.name, lane.kind, *merged), mixed=_mixed(by_key, np.arange(len(by_key))))
    own = ~small
    *merged, by_key = _merged(
        start[small], end[small], key[small], row[small], found[small], start_ns, pixel_ns
    )  # fmt: skip
    kept = (start[own], end[own], key[own], row[own], np.ones(int(own.sum()), np.int64), found[own])
    columns: list[Any] = [np.concatenate([one, other]) for one, other in zip(kept, merged, strict=True)]
    order = np.argsort(columns[0], kind="stable")
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    mixed = _mixed(by_key, place[len(order) - len(by_key) :])
    return replace(Shown(lane.name, lane.kind, *(column[order] for column in columns)), mixed=mixed)


def _mixed(by_key: Int64, place: Int64) -> dict[int, tuple[tuple[int, float], ...]]:
    """Return the shares of those intervals that stand for several keys, by their places."""
    found = {}
    at = np.flatnonzero((by_key > 0).sum(axis=1) > 1)
    for row, own in zip(place[at].tolist(), by_key[at].tolist(), strict=True):
        whole = sum(own)
        shares = [(key, ns / whole) for key, ns in enumerate(own) if ns]
        found[row] = tuple(sorted(shares, key=lambda each: -each[1]))
    return found


@frozen
class Calls:
    """What a thread did by its names, each event below the one that it lies in. `name`: row in Trace.strings;
    `depth` 0: it lies in no other that is shown."""

    start_ns: Int64
    end_ns: Int64
    name: Int64
    depth: Int64


def calls(trace: Trace, lane: Lane, shift_ns: int, start_ns: int, end_ns: int, least_ns: float) -> Calls:
    """Return the events of a thread in `[start_ns, end_ns)` that are `least_ns` long or longer, the longest
    `MOST_CALLS` of them and down to `MOST_DEEP`."""
    rows, table = slice(lane.calls.start, lane.calls.stop), trace.host
    start, length = table.start_ns[rows] - shift_ns, table.duration_ns[rows]
    near = (length >= least_ns) & (start < end_ns) & (start + length > start_ns)
    at = np.flatnonzero(near & (table.kind[rows] != HostKind.MARKER))
    if len(at) > MOST_CALLS:
        at = np.sort(at[np.argsort(-length[at], kind="stable")[:MOST_CALLS]])
    start, end = start[at], start[at] + length[at]
    depth, over = np.zeros(len(at), np.int64), list[int]()
    for row, (begins, ends) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        while over and over[-1] <= begins:
            over.pop()
        depth[row] = len(over)
        over.append(ends)
    shown = depth < MOST_DEEP
    return Calls(start[shown], end[shown], table.name[rows][at][shown].astype(np.int64), depth[shown])


def waits(device: Lane, start_ns: int, end_ns: int) -> tuple[Wait, ...]:
    """Return what the device of this lane waited for in `[start_ns, end_ns)`, the most first. Waits do not
    overlap."""
    first, last = np.searchsorted(device.start_ns, (start_ns, end_ns))
    near = slice(max(0, int(first) - _BACK), int(last))
    start, end, key = device.start_ns[near], device.end_ns[near], device.key[near]
    spent = np.minimum(end, end_ns) - np.maximum(start, start_ns)
    rows = np.flatnonzero((device.row[near] < 0) & (spent > 0))
    start, end, key, spent = start[rows], end[rows], key[rows], spent[rows]
    found = []
    for kind in np.unique(key).tolist():
        own = np.flatnonzero(key == kind)
        longest = own[np.argmax(spent[own])]
        bounds = int(start[longest]), int(end[longest])
        found.append(Wait(KEYS[kind], int(spent[own].sum()), len(own), *bounds))
    return tuple(sorted(found, key=lambda wait: -wait.total_ns))


def _merged(
    start: Int64, end: Int64, key: Int16, row: Int64, found: Int64, origin_ns: int, pixel_ns: float
) -> tuple[Any, ...]:
    """Return one interval per pixel in which something begins, and its time by key; `start` ascends."""
    pixels = np.arange(1, max(int((start[-1] - origin_ns) / pixel_ns), 0) + 2)
    last = np.searchsorted(start, origin_ns + np.ceil(pixels * pixel_ns).astype(np.int64))
    count = np.diff(last, prepend=0)  # the events of a pixel stand together
    pixel = np.flatnonzero(count)
    count = count[pixel]
    first = last[pixel] - count
    n, length, keys = len(pixel), end - start, int(key.max()) + 1
    of = np.repeat(np.arange(n), count)
    busy = np.add.reduceat(length, first)
    by_key = np.bincount(of * keys + key, np.maximum(length, 1), n * keys).reshape(n, keys)
    longest = np.flatnonzero(length == np.repeat(np.maximum.reduceat(length, first), count))
    longest = longest[np.flatnonzero(np.diff(of[longest], prepend=-1))]
    begin = (origin_ns + pixel * pixel_ns).astype(np.int64)
    until = begin + np.clip(busy, 1, np.ceil(pixel_ns)).astype(np.int64)
    most = np.argmax(by_key, axis=1).astype(np.int16)
    return begin, until, most, row[longest], count, np.add.reduceat(found, first), by_key


def key_of(verdict: Verdict) -> Key:
    """Return what a kernel is drawn as."""
    if verdict.placement in ("tensor_core", "matrix_core"):
        return "matrix_unit"
    if verdict.placement in ("cuda_core", "cpu"):
        return "off_matrix_unit"
    return "unknown" if verdict.placement == "unknown" else "other"


def _keys(trace: Trace, placements: Placements, rows: Int64) -> Int8:
    of_verdict = np.array([_ROW[key_of(verdict)] for verdict in placements.verdicts], np.int8)
    key = of_verdict[placements.index[rows]] if len(of_verdict) else np.zeros(len(rows), np.int8)
    return np.where(trace.kernels.kind[rows] == WorkKind.KERNEL, key, _ROW["copy"]).astype(np.int8)


def _device(trace: Trace, placements: Placements, ownership: Ownership, window: Window) -> Lane:
    """Return what the device worked on in the window's steps, and what it waited for in between."""
    table, rows = trace.kernels, window.rows
    start = table.start_ns[rows]
    pauses, parts = accounting.waits(trace, placements, ownership, window, window.periods.instants())
    keys = np.array([_ROW[category] for category, _ in parts], np.int8)  # type: ignore[index]
    return _lane(
        "Device", "device",
        np.concatenate([start, pauses.start]),
        np.concatenate([start + table.duration_ns[rows], pauses.end]),
        np.concatenate([_keys(trace, placements, rows), keys]),
        np.concatenate([rows, np.full(len(pauses), -1)]),
    )  # fmt: skip


def _streams(trace: Trace, placements: Placements, device: int, begin: int, end: int) -> list[Lane]:
    """Return each stream with its work, where the device has several that work."""
    table = trace.kernels
    near = (table.device == device) & (table.start_ns < end) & (table.start_ns + table.duration_ns > begin)
    rows = np.flatnonzero(near)
    streams = np.unique(table.stream[rows]).tolist()
    if len(streams) < _CHUNK:
        return []
    made = []
    for stream in streams:
        own = rows[table.stream[rows] == stream]
        start = table.start_ns[own]
        name = trace.streams[stream].name if 0 <= stream < len(trace.streams) else f"Stream {stream}"
        made.append(
            _lane(name, "stream", start, start + table.duration_ns[own], _keys(trace, placements, own), own)
        )
    return made


def _threads(trace: Trace, window: Window, whole: Intervals) -> list[Lane]:
    """Return all threads of the host as one lane, then the busiest of them each."""
    table = trace.host
    start = table.start_ns - window.shift.ns
    near = (start < whole.end[0]) & (start + table.duration_ns > whole.start[0])
    near &= table.kind != HostKind.MARKER
    busy: list[tuple[int, int, Lane]] = []
    for thread in np.unique(table.thread[near]).tolist():
        rows = np.flatnonzero(near & (table.thread == thread))
        lane = _thread(trace.threads[thread], start[rows], table.duration_ns[rows], table.kind[rows], whole)
        lane = replace(lane, calls=range(int(rows[0]), int(rows[-1]) + 1))  # a thread's stand together
        told = sum(_WEIGHT.get(KEYS[key], 0) for key in np.unique(lane.key).tolist())
        busy.append((told, int((lane.end_ns - lane.start_ns).sum()), lane))
    busy.sort(key=lambda item: (-item[0], -item[1]))
    found = [lane for _, _, lane in busy[:MOST_THREADS] if len(lane.start_ns)]
    rows = np.flatnonzero(near)
    together = _thread("Host", start[rows], table.duration_ns[rows], table.kind[rows], whole, "host")
    return [together, *found] if len(together.start_ns) else found


_WEIGHT: dict[Key, int] = {"input": 4, "launch": 3, "compile": 2, "sync": 1}
"""Threads that do what a device waits for come first."""


def _thread(
    name: str, start: Int64, duration: Int64, kind: Int8, whole: Intervals, of: LaneKind = "thread"
) -> Lane:
    taken, parts = EMPTY, list[tuple[Key, Intervals]]()
    for key, kinds in _OF_HOST:
        rows = np.isin(kind, kinds)
        instants = union(start[rows], start[rows] + duration[rows])
        instants = gaps(gaps(instants, whole), whole)  # cut to the window
        free = gaps(taken, instants) if len(taken) else instants
        if len(free):
            parts.append((key, free))
            taken = join(taken, free)
    return _lane(
        name, of,
        _joined([part.start for _, part in parts]),
        _joined([part.end for _, part in parts]),
        _joined([np.full(len(part), _ROW[key]) for key, part in parts]).astype(np.int8),
        np.full(sum(len(part) for _, part in parts), -1),
    )  # fmt: skip


def _joined(parts: Sequence[Int64]) -> Int64:
    return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)


def _lane(name: str, kind: LaneKind, start: Int64, end: Int64, key: Int8, row: Int64) -> Lane:
    order = np.argsort(start, kind="stable")
    return Lane(name, kind, start[order], end[order], key[order], row[order])
