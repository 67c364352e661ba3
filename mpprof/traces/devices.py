"""Device planes of an xplane file: their streams and what ran on them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.grouping import groups
from mpprof.model.trace import CopyKind, HostKind, HostTable, KernelTable, Stream, WorkKind
from mpprof.traces import columns
from mpprof.traces.columns import Interner, constant
from mpprof.traces.events import PlaneEvents, read_events
from mpprof.traces.names import (
    TPU_WORK_LINES,
    bytes_of,
    copy_kind,
    copy_kind_of_details,
    derived_name,
    is_derived,
)
from mpprof.traces.ops import Ops
from mpprof.traces.planes import RawLine, RawPlane

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int8 = NDArray[np.int8]

_INTS = ("correlation_id", "group_id", "cuda_graph_id", "command_buffer_id", "program_id", "bytes")
_OP_TEXTS = ("tf_op", "annotation", "level 0", "name", "hlo_op", "hlo_module")
_SHAPES = ("tensor_shapes", "shape", "shape_with_layout")
_DETAILS = ("kernel_details", "Kernel_details", "memcpy_details", "memset_details")
_TEXTS = (*_OP_TEXTS, *_SHAPES, *_DETAILS)


@frozen
class StepsLine:
    """The events of a `Steps` line, which a converter derived for one device."""

    device: int
    number: Int64
    start_ns: Int64
    end_ns: Int64


@dataclass
class DeviceReader:
    """Reads device planes one by one into `parts`, KernelTables of one device each."""

    strings: Interner
    ops: Ops
    shift_ns: int
    parts: list[KernelTable] = field(default_factory=list)
    steps: list[StepsLine] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)

    def add(self, plane: RawPlane, device: int, facts: DeviceFacts, streams: list[Stream]) -> None:
        tpu = facts.kind == "tpu"
        real: list[RawLine] = []
        derived: list[RawLine] = []
        for line in plane.lines:
            if tpu and (line.name in TPU_WORK_LINES or derived_name(line.name) is None):
                real.append(line)
            else:
                (derived if is_derived(line.id, line.name) else real).append(line)
        self._steps(plane, [line for line in derived if derived_name(line.name) == "Steps"], device)
        if plane.cut and not plane.metadata_names:
            return
        if derived and not real and any(line.end > line.start + 32 for line in derived):
            self.warnings.append(
                f"plane {plane.name} holds no stream, only lines that a converter derived: no kernel read"
            )
        events = read_events(plane, real, _INTS, _TEXTS, self.strings, self.shift_ns)
        self.warnings += events.warnings
        self.damages += events.damages
        first = len(streams)
        streams += [Stream(device, line.id, line.name or f"Stream #{line.id}") for line in real]
        self.parts.append(self._kernels(events, device, first, nested=tpu))

    def _kernels(self, events: PlaneEvents, device: int, first_stream: int, *, nested: bool) -> KernelTable:
        n = len(events)
        kind, copy, size = self._work(events)
        table = KernelTable(
            device=constant(device, n, np.int32),
            stream=events.per_line(range(first_stream, first_stream + len(events.raw.bounds) - 1)),
            start_ns=events.start_ns,
            duration_ns=events.duration_ns,
            kind=kind,
            name=events.name,
            op=self._ops(events),
            correlation=events.number("correlation_id"),
            launch=constant(-1, n, np.int32),
            shapes=events.first_text(_SHAPES),
            details=events.first_text(_DETAILS),
            copy=copy,
            bytes=size,
            graph=events.first_number(("cuda_graph_id", "command_buffer_id")),
            group=events.number("group_id"),
        )
        if nested:  # a TPU's op line holds loops around the ops that they run
            order = np.lexsort((-table.duration_ns, table.start_ns, table.stream))
            table = take(table, order)
            keep = columns.leaves(table.start_ns, table.duration_ns, table.stream)
            table = take(table, np.flatnonzero(keep))
        return table

    def _ops(self, events: PlaneEvents) -> Int32:
        keys = [events.text(name) for name in _OP_TEXTS]
        program = events.number("program_id")
        group, first = groups([*keys, program], len(events))
        texts = self.strings.texts()

        def at(column: Int32, row: int) -> str:
            return texts[column[row]] if column[row] >= 0 else ""

        rows = []
        for row in first.tolist():
            tf_op, annotation, level, name, hlo_op, module = (at(key, row) for key in keys)
            rows.append(self.ops.resolve(tf_op, level or annotation, name, hlo_op, module, int(program[row])))
        return np.array(rows, np.int32)[group]

    def _work(self, events: PlaneEvents) -> tuple[Int8, Int8, Int64]:
        """Kind, direction and bytes, decided per distinct pair of name and details."""
        copies, sets = events.text("memcpy_details"), events.text("memset_details")
        group, first = groups([events.name, copies, sets], len(events))
        texts = self.strings.texts()
        kinds, ways, sizes = [], [], []
        for row in first.tolist():
            name = texts[events.name[row]]
            kind, way = work_kind(name, has_copy=copies[row] >= 0, has_set=sets[row] >= 0)
            details = texts[copies[row]] if copies[row] >= 0 else texts[sets[row]] if sets[row] >= 0 else ""
            if kind is WorkKind.MEMCPY and way is CopyKind.OTHER:
                way = copy_kind_of_details(details) or way
            kinds.append(kind)
            ways.append(way)
            sizes.append(bytes_of(details) if kind is not WorkKind.KERNEL else -1)
        return (
            np.array(kinds, np.int8)[group],
            np.array(ways, np.int8)[group],
            np.array(sizes, np.int64)[group],
        )

    def _steps(self, plane: RawPlane, lines: list[RawLine], device: int) -> None:
        if not lines:
            return
        events = read_events(
            plane, lines, ("group_id", "step_num"), ("step_name",), self.strings, self.shift_ns
        )
        texts = self.strings.texts()
        names = events.text("step_name")
        names = np.where(names >= 0, names, events.name)
        number = np.array([_whole(texts[row]) if row >= 0 else -1 for row in names.tolist()], np.int64)
        self.steps.append(StepsLine(device, number, events.start_ns, events.start_ns + events.duration_ns))


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


_SET_NAME = re.compile(r"^Memset(?![_a-z])")
_COPY_NAME = re.compile(r"^Memcpy(?![_a-z])")


def work_kind(name: str, *, has_copy: bool, has_set: bool) -> tuple[WorkKind, CopyKind]:
    """What an event of this name is; AMD's runtime copies and fills with kernels of its own."""
    lower = name.lower()
    if has_set or _SET_NAME.match(name) or "rocclr_fillbuffer" in lower:
        return WorkKind.MEMSET, CopyKind.NONE
    if has_copy or _COPY_NAME.match(name):
        return WorkKind.MEMCPY, copy_kind(name)
    if "rocclr_copybuffer" in lower or "rocclr_copyimage" in lower:
        return WorkKind.MEMCPY, CopyKind.OTHER
    return WorkKind.KERNEL, CopyKind.NONE


def take(table: KernelTable, rows: NDArray[np.integer]) -> KernelTable:
    """These rows of a table."""
    return KernelTable(*(getattr(table, name)[rows] for name in columns.names(KernelTable)))


def kernel_table(parts: list[KernelTable]) -> KernelTable:
    """The tables of several devices as one, each sorted by start."""
    ordered = []
    for part in parts:
        if columns.is_ordered(part.start_ns, constant(0, len(part))):
            ordered.append(part)
        else:
            ordered.append(take(part, np.argsort(part.start_ns, kind="stable")))
    if len(ordered) == 1:
        return ordered[0]
    return KernelTable(
        *(
            np.concatenate([getattr(part, name) for part in ordered]).astype(_DTYPES[name], copy=False)
            if ordered
            else np.empty(0, _DTYPES[name])
            for name in columns.names(KernelTable)
        )
    )


_DTYPES = {
    name: np.dtype(dtype)
    for name, dtype in zip(
        columns.names(KernelTable),
        ("i4", "i4", "i8", "i8", "i1", "i4", "i4", "i8", "i4", "i4", "i4", "i1", "i8", "i8", "i8"),
        strict=True,
    )
}


@frozen
class Hosts:
    """Which of several hosts in one file a device or a thread is of, -1 none: per row of `Trace.devices` and
    of `Trace.threads`. Correlation ids are a process' own: two hosts use the same."""

    of_device: Int64
    of_thread: Int64

    def keys(self, kernels: KernelTable, host: HostTable) -> tuple[Int64, Int64]:
        """Correlation ids of kernels and host events that agree only within a host."""
        if not self.of_device.any() and not self.of_thread.any():
            return kernels.correlation, host.correlation
        return (
            _apart(kernels.correlation, self.of_device[kernels.device]),
            _apart(host.correlation, self.of_thread[host.thread]),
        )


def _apart(correlation: Int64, number: Int64) -> Int64:
    small = correlation < 1 << 48  # a larger one is no id that CUPTI or a profiler gave
    apart = np.where((correlation >= 0) & small, correlation + (number << 48), correlation)
    return np.where(number >= 0, apart, -1)


def join_launches(
    kernels: KernelTable, host: HostTable, ops: Ops, strings: Interner, hosts: Hosts | None = None
) -> tuple[KernelTable, Int8]:
    """Find the host event that enqueued each kernel, by correlation id.

    Newer collectors give the launch the kernel's own name, so a host event with a kernel's correlation id
    is a launch (or the enqueuing of a copy) whatever it is called: the second result is `host.kind` with
    that put right. A kernel that names no op takes that of its launch or of the op event around it; a
    copy that does not state its direction takes it from the call that enqueued it; and what the launch of a
    graph enqueued ran in a graph.
    """
    keys, to = hosts.keys(kernels, host) if hosts else (kernels.correlation, host.correlation)
    launch = columns.join(keys, to)
    rows = np.flatnonzero(launch >= 0)
    kinds = host.kind.copy()
    if not len(rows):
        return kernels, kinds
    at = launch[rows]
    copies = kernels.kind[rows] != WorkKind.KERNEL
    blocking = np.isin(kinds[at], (HostKind.SYNC, HostKind.COPY))
    kinds[at] = np.where(
        blocking, kinds[at], np.where(copies, np.int8(HostKind.COPY), np.int8(HostKind.LAUNCH))
    )
    texts = strings.texts()
    copy = kernels.copy
    unstated = rows[(copy[rows] == CopyKind.OTHER)]
    if len(unstated):
        copy = copy.copy()
        names = host.name[launch[unstated]]
        distinct = columns.distinct(names)
        copy[unstated] = columns.replace(names, distinct, [copy_kind(texts[r]) for r in distinct], np.int8)
    op = kernels.op
    nameless = rows[op[rows] < 0]
    if len(nameless):
        op = op.copy()
        op[nameless] = _op_around(host, launch[nameless])
    graph = _graphs(kernels.graph, host.name, launch, rows, texts)
    return replace(kernels, launch=launch, copy=copy, op=op, graph=graph), kinds


_GRAPH_LAUNCHES = ("cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch")


def _graphs(graph: Int64, names: Int32, launch: Int32, rows: Int64, texts: tuple[str, ...]) -> Int64:
    """The graph of each kernel: 0, one of unknown number, where the launch alone tells that it ran in one
    (Kineto before torch 2.0, TensorFlow before it wrote `cuda_graph_id`)."""
    telling = [row for row, text in enumerate(texts) if text.startswith(_GRAPH_LAUNCHES)]
    if not telling:
        return graph
    unstated = rows[graph[rows] < 0]
    graph = graph.copy()
    graph[unstated[np.isin(names[launch[unstated]], telling)]] = 0
    return graph


_DEPTH = 8
"""How many op events back the one around a launch is looked for."""


def _op_around(host: HostTable, rows: Int32) -> Int32:
    """The op of these host events, or of the innermost op event around them on the same thread."""
    found = host.op[rows].copy()
    candidates = np.flatnonzero((host.op >= 0) & (host.kind == HostKind.OP))
    if not len(candidates):
        return found
    at = np.searchsorted(candidates, rows) - 1
    for _ in range(_DEPTH):
        row = candidates[np.maximum(at, 0)]
        around = (
            (found < 0)
            & (at >= 0)
            & (host.thread[row] == host.thread[rows])
            & (host.start_ns[row] + host.duration_ns[row] >= host.start_ns[rows])
        )
        found = np.where(around, host.op[row], found)
        at = at - 1
    return found.astype(np.int32)
