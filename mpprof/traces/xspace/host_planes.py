"""Host planes of an xplane file: threads, what they did, step markers and allocator events."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from itertools import pairwise
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Int8, Int32, Int64, distinct, groups
from mpprof.model.frozen import frozen
from mpprof.model.trace import AllocationTable, HostKind, HostTable, MarkerTable
from mpprof.traces.common import columns
from mpprof.traces.common.columns import Interner, constant
from mpprof.traces.common.names import (
    ACCELERATOR,
    HOST,
    OP,
    TRANSFERS,
    function_family,
    host_kind,
    may_be_input,
)
from mpprof.traces.common.ops import Ops
from mpprof.traces.common.planes import RawPlane
from mpprof.traces.xspace.allocations import NAMES as ALLOCATIONS
from mpprof.traces.xspace.allocations import allocation_table
from mpprof.traces.xspace.devices import DeviceMarks
from mpprof.traces.xspace.events import PlaneEvents, Walked, events_of, walked

_INTS = ("correlation_id", "step_num", "program_id")
_TWINS = ("_p", "_c")
_TEXTS = ("tf_op", "name", "hlo_op", "hlo_module", "tf_function_call")
_KERAS_JAX = re.compile(r"^Profiled batch (\d{1,18})$")
_SKIP = re.compile(r"^(ThreadpoolListener::|end: |Memory(Allocation|Deallocation)$)")
"""Not kept as host events: instants that only tie a task to its queue, the ends of asynchronous thunks
(which lengthen the thunk), and allocator events, which have a table of their own."""
_CAPTURED = "InstantiatedCapturedFunction::"
"""A function that the input pipeline calls, such as that of a `map`."""
_PROCESS = "ExecutorState::Process"
_T = TypeVar("_T", bound=np.generic)


@frozen
class Host:
    """What the host planes hold. `twins` join an asynchronous thunk with the event that ends it."""

    table: HostTable
    threads: tuple[str, ...]
    thread_ids: tuple[int, ...]
    allocations: AllocationTable
    twins: (
        tuple[Int64, Int64, Int64] | None
    )  # per row of `table`: producer id; then consumer ids, their start
    marks: tuple[Int32, Int64] = field(default=(np.empty(0, np.int32), np.empty(0, np.int64)))
    jax: bool = False
    numbers: tuple[int, ...] = ()  # per thread: which of several hosts in the file it is of; ascending
    warnings: tuple[str, ...] = ()
    damages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def markers(self, lines: Sequence[DeviceMarks], strings: Interner) -> MarkerTable:
        """Return the step markers and calls of the training function of all threads, and the marks of
        devices, by start."""
        rows, number = self.marks
        texts = strings.texts()
        names = self.table.name[rows]
        families = {row: strings(self._family(texts[row])) for row in set(names.tolist())}
        family = np.array([families[row] for row in names.tolist()], np.int32)
        start = self.table.start_ns[rows]
        parts = [(number, start, start + self.table.duration_ns[rows], self.table.thread[rows], family, -1)]
        for line in lines:
            n = len(line.number)
            family = constant(strings(line.family), n, np.int32)
            parts.append(
                (line.number, line.start_ns, line.end_ns, constant(-1, n, np.int32), family, line.device)
            )
        order = np.argsort(np.concatenate([p[1] for p in parts]), kind="stable")
        merged = [np.concatenate([p[i] for p in parts])[order] for i in range(5)]
        device = np.concatenate([np.full(len(p[0]), p[5], np.int32) for p in parts])[order]
        return MarkerTable(
            merged[0], merged[1], merged[2], merged[3].astype(np.int32), merged[4].astype(np.int32), device
        )

    def _family(self, name: str) -> str:
        if name == "mpprof_step":
            return "mpprof"
        if name.startswith("Profiled batch"):
            return "keras"
        return function_family(name) or ("jax" if self.jax else "tensorflow")


@frozen
class _Part:
    """The kept events of one host plane, in their final order, and the twins of its thunks."""

    table: HostTable
    marks: Int32  # rows of the table that are step markers or calls of the training function
    steps: Int64  # their numbers, -1 for the calls
    producer: Int64  # per row of the table; -1 none
    consumer: Int64  # ids and times of the events that end a thunk
    ended_ns: Int64


def walks(planes: Sequence[RawPlane]) -> Iterator[Walked]:
    """Walk every host plane of a file that can be read, one after the other."""
    accelerated = any(ACCELERATOR.match(plane.name) for plane in planes)
    for plane in filter(_is_readable, planes):
        ints = _INTS if accelerated else (*_INTS, *_TWINS)
        if any(name.startswith(_CAPTURED) for name in plane.metadata_names):
            ints = (*ints, "id")
        yield walked(plane, plane.lines, ints, _TEXTS, ALLOCATIONS)


def _is_readable(plane: RawPlane) -> bool:
    """Return whether a plane is a host's, and its events have names."""
    named = not plane.cut or bool(plane.metadata_names)
    return bool(HOST.match(plane.name)) and bool(plane.lines) and named


def read(
    planes: Sequence[RawPlane],
    walks: Iterable[Walked],
    numbers: Sequence[int],
    strings: Interner,
    ops: Ops,
    shift_ns: int,
) -> Host:
    """Read every host plane of a file from its walk; `numbers` says of each plane which of several hosts it
    is of."""
    threads: dict[tuple[int, int], int] = {}  # plane, line: two hosts may give their threads one id
    names: list[str] = []
    of: list[int] = []
    parts: list[_Part] = []
    allocations: list[AllocationTable] = []
    warnings: list[str] = []
    damages: list[str] = []
    notes: list[str] = []
    accelerated = any(ACCELERATOR.match(plane.name) for plane in planes)
    readable = [at for at, plane in enumerate(planes) if _is_readable(plane)]
    for at, one in zip(readable, walks, strict=True):
        plane = one.plane
        for line in plane.lines:
            if (at, line.id) not in threads:
                threads[at, line.id] = len(names)
                names.append(line.name or f"thread {line.id}")
                of.append(numbers[at])
        events = events_of(one, strings, shift_ns)
        warnings += events.warnings
        damages += events.damages
        notes += events.notes
        of_lines = [threads[at, line.id] for line in plane.lines]
        allocations.append(allocation_table(events, ops, of_lines))
        parts.append(_part(events, of_lines, names, ops))
    table, marks = _merge(parts)
    jax = any(name.startswith("PjitFunction") for plane in planes for name in plane.metadata_names)
    return Host(
        table,
        tuple(names),
        tuple(id for _, id in threads),
        _merge_allocations(allocations),
        None if accelerated or not parts else _twins(parts),
        (marks, np.concatenate([p.steps for p in parts] or [np.empty(0, np.int64)])),
        jax or any("jax_version" in plane.stats for plane in planes if plane.name == "/host:metadata"),
        tuple(of),
        tuple(warnings),
        tuple(damages),
        tuple(notes),
    )


def _part(events: PlaneEvents, threads: Sequence[int], names: Sequence[str], ops: Ops) -> _Part:
    rows, plane = events.raw.metadata, events.plane
    is_op = [_is_op(*each) for each in zip(plane.metadata_names, plane.display_names, strict=True)]
    skip = np.array([bool(_SKIP.match(name)) for name in events.plane.metadata_names] + [False])
    keep = np.flatnonzero(~skip[rows]) if skip.any() else None
    thread, start, duration = events.per_line(threads), events.start_ns, events.duration_ns
    order = _order(_take(thread, keep), _take(start, keep), _take(duration, keep))
    if order is not None:
        keep = order if keep is None else keep[order]
    table = HostTable(
        thread=_take(thread, keep),
        start_ns=_take(start, keep),
        duration_ns=_take(duration, keep),
        kind=_take(_kind(events, [names[t] for t in threads], is_op), keep),
        name=_take(events.name, keep),
        op=_take(_ops(events, ops, is_op), keep),
        correlation=_take(events.number("correlation_id"), keep),
    )
    steps = _take(_steps(events), keep)
    table.kind[(table.kind == HostKind.OTHER) & (table.op >= 0)] = HostKind.OP
    table.kind[steps >= 0] = HostKind.MARKER
    called = np.array([function_family(n) is not None for n in events.plane.metadata_names] + [False])
    is_call = called.take(_take(rows, keep)) if called.any() else np.zeros(len(steps), np.bool_)
    marks = np.flatnonzero((steps >= 0) | is_call).astype(np.int32)
    ends = np.array([name.startswith("end: ") for name in events.plane.metadata_names] + [False])
    ended = np.flatnonzero(ends[rows]) if ends.any() else np.empty(0, np.int64)
    return _Part(
        table,
        marks,
        steps[marks],
        _take(events.number("_p"), keep),
        events.number("_c")[ended],
        events.start_ns[ended],
    )


def _take(column: NDArray[_T], rows: Int64 | None) -> NDArray[_T]:
    return column if rows is None else column[rows]


_ON_PIPELINE = frozenset((HostKind.OTHER, HostKind.OP, HostKind.EXECUTOR, HostKind.INPUT))


def _kind(events: PlaneEvents, threads: Sequence[str], is_op: Sequence[bool]) -> Int8:
    """Return the kind of each event by name and thread: tf.data's own threads produce batches; what the
    thread that runs GetNext does in the iterator counts as input for the step that waits for it, and what it
    hands on afterwards does not. A call of a tf.function that traces is compilation."""
    plain = _kinds(events.plane, is_op)
    tables = {
        "": np.array(plain, np.int8),
        "pipeline": np.array([HostKind.INPUT_PIPELINE if k in _ON_PIPELINE else k for k in plain], np.int8),
        "next": np.array([HostKind.INPUT if k == HostKind.INPUT_PIPELINE else k for k in plain], np.int8),
    }
    kind = np.empty(len(events), np.int8)
    bounds = events.raw.bounds.tolist()
    for thread, first, last in zip(threads, bounds[:-1], bounds[1:], strict=True):
        category = "" if not thread.startswith("tf_data_") else "next" if "get_next" in thread else "pipeline"
        kind[first:last] = tables[category].take(events.raw.metadata[first:last])
    kind[_of_pipeline(events)] = HostKind.INPUT_PIPELINE
    traced = events.text("tf_function_call")
    if traced.strides != (0,):
        texts = events.strings.texts()
        values = distinct(traced)
        compiles = [r >= 0 and texts[r].startswith("traced") for r in values.tolist()]
        kind[columns.replace(traced, values, compiles, np.bool_)] = HostKind.COMPILE
    return kind


def _of_pipeline(events: PlaneEvents) -> Int64:
    """Return the events that run on the step's own threads for the input pipeline: those in an executor of a
    function that the pipeline calls (a `map`), recognised by the executor's id."""
    names = events.plane.metadata_names
    capturing = np.array([name.startswith(_CAPTURED) for name in names] + [False])
    if not capturing.any():
        return np.empty(0, np.int64)
    captured = capturing[events.raw.metadata]
    ids = events.number("id")
    process = np.array([name == _PROCESS for name in names] + [False])[events.raw.metadata]
    process &= np.isin(ids, distinct(ids[captured & (ids != -1)]))
    found = []
    for first, last in pairwise(events.raw.bounds.tolist()):
        rows = first + np.flatnonzero(process[first:last])
        if len(rows):
            rows = rows[np.argsort(events.start_ns[rows], kind="stable")]
            until = np.maximum.accumulate(events.start_ns[rows] + events.duration_ns[rows])
            at = np.searchsorted(events.start_ns[rows], events.start_ns[first:last], side="right") - 1
            inside = (at >= 0) & (events.start_ns[first:last] <= until[np.maximum(at, 0)])
            found.append(first + np.flatnonzero(inside))
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _kinds(plane: RawPlane, is_op: Sequence[bool]) -> list[HostKind]:
    """Return kinds by name, one for each row of event metadata and one for events without metadata."""
    kinds = []
    for name, op in zip(plane.metadata_names, is_op, strict=True):
        if op and name.endswith(TRANSFERS):
            kinds.append(HostKind.EXECUTOR)
            continue
        if op and not may_be_input(name):
            kinds.append(HostKind.OP)
            continue
        kind = host_kind(name)
        waits = kind in (HostKind.INPUT, HostKind.INPUT_PIPELINE)
        kinds.append(HostKind.OP if op and not waits else kind)
    return [*kinds, HostKind.OTHER]


def _is_op(name: str, display: str) -> bool:
    """Return whether an event is an op: TensorFlow writes an op as `name:Type` with the type also as display
    name."""
    match = OP.match(name)
    return bool(match) and "::" not in name and (not display or display == match["type"])  # type: ignore[index]


def _ops(events: PlaneEvents, ops: Ops, is_op: Sequence[bool]) -> Int32:
    """Return the op of each event: its HLO instruction, its `tf_op`, or its own name where it is an op."""
    plane = events.plane
    own = [ops.named(name) if op else -1 for name, op in zip(plane.metadata_names, is_op, strict=True)]
    op: Int32 = np.array([*own, -1], np.int32).take(events.raw.metadata)
    hlo_op, tf_op = events.text("hlo_op"), events.text("tf_op")
    if hlo_op.strides == (0,) and tf_op.strides == (0,):
        return op
    stated = np.flatnonzero((hlo_op >= 0) | (tf_op >= 0))
    keys = [events.text(name)[stated] for name in ("tf_op", "name", "hlo_op", "hlo_module")]
    program = events.number("program_id")[stated]
    group, first = groups([*keys, program], len(stated))
    texts = (*events.strings.texts(), "")  # row -1 finds the last
    rows = []
    for at, *keyed in zip(program[first].tolist(), *(key[first].tolist() for key in keys), strict=True):
        tf, name, hlo, module = (texts[row] for row in keyed)
        # only beside an HLO op is `name` the op's name
        rows.append(ops.resolve(tf, "", name if hlo else "", hlo, module, at))
    op[stated] = np.array(rows, np.int32)[group]
    return op


def _steps(events: PlaneEvents) -> Int64:
    """Return the step number of each event, -1 where it is no marker."""
    step = events.number("step_num")
    own = [
        (row, int(match[1]))
        for row, name in enumerate(events.plane.metadata_names)
        if (match := _KERAS_JAX.match(name))
    ]
    if own:
        table = np.full(len(events.plane.metadata_ids) + 1, -1, np.int64)
        table[[row for row, _ in own]] = [number for _, number in own]
        step = np.where(step >= 0, step, table[events.raw.metadata])
    return step


def _order(thread: Int32, start: Int64, duration: Int64) -> Int64 | None:
    """Return the order by thread, then start, then longest first; None where the events have that order
    already."""
    by_thread = None
    if (thread[1:] < thread[:-1]).any():
        by_thread = np.argsort(thread, kind="stable")
        thread, start, duration = thread[by_thread], start[by_thread], duration[by_thread]
    lowest = int(thread[0]) if len(thread) else 0  # a file may hold thousands of planes with their threads
    bounds = np.searchsorted(thread, np.arange(lowest, int(thread.max(initial=-1)) + 2)).tolist()
    order = by_thread
    for first, last in pairwise(bounds):
        begin, length = start[first:last], duration[first:last]
        if not columns.is_ordered(begin, length):
            if order is None:
                order = np.arange(len(thread))
            order[first:last] = order[first:last][columns.parents_first(begin, length)]
    return order


def _merge(parts: Sequence[_Part]) -> tuple[HostTable, Int32]:
    """Return one table (threads are numbered plane by plane, so it stays sorted), and the rows of its
    markers."""
    if len(parts) == 1:
        return parts[0].table, parts[0].marks
    if not parts:
        wide, small = np.empty(0, np.int64), np.empty(0, np.int32)
        return HostTable(small, wide, wide, np.empty(0, np.int8), small, small, wide), small
    first = np.cumsum([0, *(len(p.table) for p in parts[:-1])])
    of_parts = {name: [getattr(part.table, name) for part in parts] for name in columns.names(HostTable)}
    stated = {name: np.concatenate(own) for name, own in of_parts.items() if own[0] is not None}
    table = HostTable(**stated)
    marks = np.concatenate([p.marks + at for p, at in zip(parts, first.tolist(), strict=True)])
    return table, marks.astype(np.int32)


def _twins(parts: Sequence[_Part]) -> tuple[Int64, Int64, Int64]:
    return (
        np.concatenate([p.producer for p in parts]),
        np.concatenate([p.consumer for p in parts]),
        np.concatenate([p.ended_ns for p in parts]),
    )


def _merge_allocations(tables: Sequence[AllocationTable]) -> AllocationTable:
    if not tables:
        return allocation_table(None, None)
    merged = (
        [getattr(tables[0], name) for name in columns.names(AllocationTable)]
        if len(tables) == 1
        else [np.concatenate([getattr(t, name) for t in tables]) for name in columns.names(AllocationTable)]
    )
    time_ns = merged[0]
    if (time_ns[1:] >= time_ns[:-1]).all():  # to order a million events takes longer than to look
        return AllocationTable(*merged)
    order = np.argsort(time_ns, kind="stable")
    return AllocationTable(*(column[order] for column in merged))
