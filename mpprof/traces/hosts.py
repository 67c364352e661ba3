"""Host planes of an xplane file: threads, what they did, step markers and allocator events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mpprof.model.trace import AllocationTable, HostKind, HostTable, MarkerTable
from mpprof.traces import columns
from mpprof.traces.allocations import NAMES as ALLOCATIONS
from mpprof.traces.allocations import allocation_table
from mpprof.traces.columns import Interner, constant
from mpprof.traces.devices import StepsLine
from mpprof.traces.events import PlaneEvents, read_events
from mpprof.traces.names import OP, host_kind
from mpprof.traces.ops import Ops
from mpprof.traces.planes import RawPlane

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int8 = NDArray[np.int8]

_NOT_THREADS = frozenset(("/host:metadata", "/host:__ScopeRangeCallStack__"))
_INTS = ("correlation_id", "step_num", "program_id")
_TWINS = ("_p", "_c")
_TEXTS = ("tf_op", "name", "hlo_op", "hlo_module", "tf_function_call")
_KERAS_JAX = re.compile(r"^Profiled batch (\d{1,18})$")
_SKIP = re.compile(r"^(ThreadpoolListener::|Memory(Allocation|Deallocation)$)")
"""Not kept as host events: instants that only tie a task to its queue, and allocator events, which have a
table of their own."""


@dataclass(frozen=True)
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
    warnings: tuple[str, ...] = ()

    def with_kinds(self, kinds: Int8) -> HostTable:
        return replace(self.table, kind=kinds)

    def markers(self, lines: Sequence[StepsLine], strings: Interner) -> MarkerTable:
        """The step markers of all threads, and the rows of `Steps` lines, by start."""
        rows, number = self.marks
        texts = strings.texts()
        names = self.table.name[rows]
        families = {row: strings(self._family(texts[row])) for row in set(names.tolist())}
        family = np.array([families[row] for row in names.tolist()], np.int32)
        start = self.table.start_ns[rows]
        parts = [(number, start, start + self.table.duration_ns[rows], self.table.thread[rows], family, -1)]
        for line in lines:
            n = len(line.number)
            steps = constant(strings("steps_line"), n, np.int32)
            parts.append(
                (line.number, line.start_ns, line.end_ns, constant(-1, n, np.int32), steps, line.device)
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
        return "jax" if self.jax else "tensorflow"


@dataclass
class _Part:
    """The kept events of one host plane."""

    thread: Int64
    events: PlaneEvents
    keep: Int64
    kind: Int8
    op: Int32
    step: Int64


def read(planes: Sequence[RawPlane], strings: Interner, ops: Ops, shift_ns: int) -> Host:
    """Read every host plane of a file."""
    threads: dict[tuple[str, int], int] = {}
    names: list[str] = []
    parts: list[_Part] = []
    allocations: list[AllocationTable] = []
    warnings: list[str] = []
    accelerated = any(plane.name.startswith("/device:") for plane in planes)
    for plane in planes:
        if not plane.name.startswith("/host:") or plane.name in _NOT_THREADS or not plane.lines:
            continue
        if plane.cut and not plane.metadata_names:
            continue
        for line in plane.lines:
            if (plane.name, line.id) not in threads:
                threads[plane.name, line.id] = len(names)
                names.append(line.name or f"thread {line.id}")
        ints = _INTS if accelerated else (*_INTS, *_TWINS)
        events = read_events(plane, plane.lines, ints, _TEXTS, strings, shift_ns, ALLOCATIONS)
        warnings += events.warnings
        allocations.append(allocation_table(events, ops))
        rows = np.array([threads[plane.name, line.id] for line in plane.lines], np.int64)
        parts.append(_part(events, rows, names, ops))
    table, order = _merge(parts)
    step = np.concatenate([p.step for p in parts])[order] if parts else np.empty(0, np.int64)
    marks = np.flatnonzero(step >= 0).astype(np.int32)
    table.kind[marks] = HostKind.MARKER
    jax = any(name.startswith("PjitFunction") for plane in planes for name in plane.metadata_names)
    return Host(
        table,
        tuple(names),
        tuple(id for _, id in threads),
        _merge_allocations(allocations),
        None if accelerated else _twins(parts, order),
        (marks, step[marks]),
        jax or any("jax_version" in plane.stats for plane in planes if plane.name == "/host:metadata"),
        tuple(warnings),
    )


def _part(events: PlaneEvents, threads: Int64, names: Sequence[str], ops: Ops) -> _Part:
    plane = events.plane
    rows = events.raw.metadata
    skip = np.array([bool(_SKIP.match(name)) for name in plane.metadata_names] + [False])
    keep = np.flatnonzero(~skip[rows]) if skip.any() else np.arange(len(events))
    kinds = np.array([*_kinds(plane), HostKind.OTHER], np.int8)
    kind = kinds[rows[keep]]
    thread = threads[events.line[keep]]
    traced = events.text("tf_function_call")
    if traced.strides != (0,):
        texts = events.strings.texts()
        values = columns.distinct(traced)
        compiles = [r >= 0 and texts[r].startswith("traced") for r in values.tolist()]
        called = columns.replace(traced, values, compiles, np.bool_)[keep]
        kind = np.where(called, np.int8(HostKind.COMPILE), kind)
    kind = _by_thread(kind, thread, names)
    return _Part(thread, events, keep, kind, _ops(events, kind, ops, keep), _steps(events)[keep])


def _kinds(plane: RawPlane) -> list[HostKind]:
    """By name; an op of TensorFlow is `name:Type` with the type also as display name."""
    kinds = []
    for name, display in zip(plane.metadata_names, plane.display_names, strict=True):
        kind = host_kind(name)
        match = OP.match(name) if kind not in (HostKind.INPUT, HostKind.INPUT_PIPELINE) else None
        if match and (not display or display == match["type"]) and "::" not in name:
            kind = HostKind.OP
        kinds.append(kind)
    return kinds


_ON_PIPELINE = (HostKind.OTHER, HostKind.OP, HostKind.EXECUTOR, HostKind.INPUT)
_ON_NEXT = (HostKind.OTHER, HostKind.OP, HostKind.EXECUTOR, HostKind.INPUT_PIPELINE)


def _by_thread(kind: Int8, thread: Int64, names: Sequence[str]) -> Int8:
    """tf.data's own threads produce batches; the one that runs GetNext stands for the step that waits."""
    data = np.array([name.startswith("tf_data_") for name in names])
    following = np.array(["get_next" in name for name in names])
    on_data = data[thread]
    if not on_data.any():
        return kind
    on_next = on_data & following[thread]
    kind = np.where(on_data & ~on_next & np.isin(kind, _ON_PIPELINE), np.int8(HostKind.INPUT_PIPELINE), kind)
    return np.where(on_next & np.isin(kind, _ON_NEXT), np.int8(HostKind.INPUT), kind)


def _ops(events: PlaneEvents, kind: Int8, ops: Ops, keep: Int64) -> Int32:
    """The op of each kept event: its HLO instruction, its `tf_op`, or its own name where it is an op."""
    keys = [events.text(name)[keep] for name in ("hlo_op", "hlo_module", "tf_op", "name")]
    program = events.int("program_id")[keep]
    own = np.where(
        np.isin(kind, (HostKind.OP, HostKind.INPUT_PIPELINE, HostKind.INPUT)), events.name[keep], -1
    )
    keys[3] = np.where(keys[0] >= 0, keys[3], -1)  # only beside an HLO op is `name` the op's name
    group, first = columns.groups([*keys, own, program], len(keep))
    texts = events.strings.texts()
    rows = []
    for row in first.tolist():
        hlo_op, module, tf_op, name = (texts[key[row]] if key[row] >= 0 else "" for key in keys)
        if hlo_op or tf_op:
            rows.append(ops.resolve(tf_op, "", name, hlo_op, module, int(program[row])))
        elif own[row] >= 0 and OP.match(texts[own[row]]) and "::" not in texts[own[row]]:
            rows.append(ops.named(texts[own[row]]))
        else:
            rows.append(-1)
    return np.array(rows, np.int32)[group]


def _steps(events: PlaneEvents) -> Int64:
    """The step number of each event, -1 where it is no marker."""
    step = events.int("step_num")
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


def _merge(parts: Sequence[_Part]) -> tuple[HostTable, Int64]:
    """One table, sorted by thread, then start, then longest first; and the order that led to it."""
    if not parts:
        empty = np.empty(0, np.int64)
        small = np.empty(0, np.int32)
        return HostTable(small, empty, empty, np.empty(0, np.int8), small, small, empty), empty

    def column(get: str) -> NDArray[np.generic]:
        found = [getattr(p.events, get)[p.keep] for p in parts]
        return found[0] if len(found) == 1 else np.concatenate(found)

    thread = np.concatenate([p.thread for p in parts]).astype(np.int32)
    start, duration = column("start_ns"), column("duration_ns")
    order = _order(thread, start, duration)
    ordered = np.array_equal(order, np.arange(len(order)))

    def sort(values: NDArray[np.generic]) -> NDArray[np.generic]:
        return values if ordered else values[order]

    correlation = np.concatenate([p.events.int("correlation_id")[p.keep] for p in parts])
    table = HostTable(
        sort(thread),
        sort(start),
        sort(duration),
        sort(np.concatenate([p.kind for p in parts])).copy(),
        sort(column("name")),
        sort(np.concatenate([p.op for p in parts])),
        sort(correlation),
    )
    return table, order


def _order(thread: Int32, start: Int64, duration: Int64) -> Int64:
    by_thread = np.arange(len(thread)) if (np.diff(thread) >= 0).all() else np.argsort(thread, kind="stable")
    bounds = np.searchsorted(thread[by_thread], np.arange(int(thread.max(initial=-1)) + 2))
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        rows = by_thread[first:last]
        begin, length = start[rows], duration[rows]
        if not columns.is_ordered(begin, length):
            by_thread[first:last] = rows[columns.parents_first(begin, length)]
    return by_thread


def _twins(parts: Sequence[_Part], order: Int64) -> tuple[Int64, Int64, Int64] | None:
    if not parts:
        return None
    producer = np.concatenate([p.events.int("_p")[p.keep] for p in parts])[order]
    consumers, starts = [], []
    for part in parts:
        ends = np.array([n.startswith("end: ") for n in part.events.plane.metadata_names] + [False])
        rows = np.flatnonzero(ends[part.events.raw.metadata])
        consumers.append(part.events.int("_c")[rows])
        starts.append(part.events.start_ns[rows])
    return producer, np.concatenate(consumers), np.concatenate(starts)


def _merge_allocations(tables: Sequence[AllocationTable]) -> AllocationTable:
    if not tables:
        return allocation_table(None, None)
    names = AllocationTable.__slots__
    columns_ = [np.concatenate([getattr(t, name) for t in tables]) for name in names]
    order = np.argsort(columns_[0], kind="stable")
    return AllocationTable(*(column[order] for column in columns_))
