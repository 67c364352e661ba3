"""Device planes of an xplane file: their streams and what ran on them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from mpprof.model.arrays import Bool, Int8, Int32, Int64, groups
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.trace import XLA_MODULE, CopyKind, KernelTable, Stream, WorkKind
from mpprof.traces.common import columns
from mpprof.traces.common.columns import Interner, constant
from mpprof.traces.common.launches import take
from mpprof.traces.common.names import (
    ASYNCHRONOUS,
    DETAILS,
    SHAPES,
    TPU_WORK_LINES,
    bytes_of,
    copy_kind,
    copy_kind_of_details,
    derived_name,
    is_derived,
)
from mpprof.traces.common.ops import Ops
from mpprof.traces.common.planes import RawLine, RawPlane
from mpprof.traces.xspace.events import PlaneEvents, events_of, walked

_INTS = ("correlation_id", "group_id", "cuda_graph_id", "command_buffer_id", "program_id", "bytes")
_OP_TEXTS = ("tf_op", "annotation", "level 0", "name", "hlo_op", "hlo_module")
_TEXTS = (*_OP_TEXTS, *SHAPES, *DETAILS)


@frozen
class DeviceMarks:
    """Events that mark a device's time: the `Steps` line, which a converter derived, or the runs of one
    program on its line `XLA Modules`. `family` as of a MarkerTable."""

    family: str
    device: int
    number: Int64
    start_ns: Int64
    end_ns: Int64


@dataclass(eq=False, repr=False)
class DeviceReader:
    """Reads device planes one by one into `parts`, KernelTables of one device each."""

    strings: Interner
    ops: Ops
    shift_ns: int
    parts: list[KernelTable] = field(default_factory=list)
    marks: list[DeviceMarks] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    damages: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

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
        self._modules(
            plane, [line for line in plane.lines if derived_name(line.name) == "XLA Modules"], device
        )
        if plane.cut and not plane.metadata_names:
            return
        if derived and not real and any(line.end > line.start + 32 for line in derived):
            self.warnings.append(
                f"plane {plane.name} holds no stream, only lines that a converter derived: no kernel read"
            )
        events = events_of(walked(plane, real, _INTS, _TEXTS), self.strings, self.shift_ns)
        self.warnings += events.warnings
        self.damages += events.damages
        self.notes += events.notes
        # Lines of one id are one timeline (xplane.proto).
        rows: dict[int, int] = {}
        for line in real:
            if line.id not in rows:
                rows[line.id] = len(streams)
                streams.append(Stream(device, line.id, line.name or f"Stream #{line.id}"))
        nested = tuple(rows[line.id] for line in real if tpu and line.name != ASYNCHRONOUS)
        work = self._work(events)
        self.parts.append(self._kernels(events, work, device, [rows[line.id] for line in real], nested))

    def _kernels(
        self,
        events: PlaneEvents,
        work: tuple[Int8, Int8, Int64],
        device: int,
        streams: Sequence[int],
        nested: Sequence[int],
    ) -> KernelTable:
        """Return the table of the events. `work`: what each is, as of `_work`; `nested`: the streams on which
        events hold others, and only the innermost are work."""
        n = len(events)
        kind, copy, size = work
        table = KernelTable(
            device=constant(device, n, np.int32),
            stream=events.per_line(streams),
            start_ns=events.start_ns,
            duration_ns=events.duration_ns,
            kind=kind,
            name=events.name,
            op=self._ops(events),
            correlation=events.number("correlation_id"),
            launch=constant(-1, n, np.int32),
            shapes=events.first_text(SHAPES),
            details=events.first_text(DETAILS),
            copy=copy,
            bytes=size,
            graph=events.first_number(("cuda_graph_id", "command_buffer_id")),
            group=events.number("group_id"),
        )
        if nested:  # a TPU's op line holds loops around the ops that they run
            order = np.lexsort((-table.duration_ns, table.start_ns, table.stream))
            table = take(table, order)
            keep = columns.leaves(table.start_ns, table.duration_ns, table.stream)
            table = take(table, np.flatnonzero(keep | ~np.isin(table.stream, nested)))
        return table

    def _ops(self, events: PlaneEvents) -> Int32:
        keys = list(map(events.text, _OP_TEXTS))
        program = events.number("program_id")
        group, first = groups([*keys, program], len(events))
        texts = np.array((*self.strings.texts(), ""), np.object_)  # row -1 finds the last
        named = (texts[key[first]].tolist() for key in keys)
        rows = []
        for at, tf_op, annotation, level, name, hlo_op, module in zip(
            program[first].tolist(), *named, strict=True
        ):
            rows.append(self.ops.resolve(tf_op, level or annotation, name, hlo_op, module, at))
        return np.array(rows, np.int32)[group]

    def _work(self, events: PlaneEvents) -> tuple[Int8, Int8, Int64]:
        """Return the kind, the direction and the bytes of each event, decided once for each distinct pair of
        name and details."""
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
        found = walked(plane, lines, ("group_id", "step_num"), ("step_name",))
        events = events_of(found, self.strings, self.shift_ns)
        names = events.text("step_name")
        names = np.where(names >= 0, names, events.name)
        texts = self.strings.texts()  # taken last: text() above interns the step names
        number = np.array([_whole(texts[row]) if row >= 0 else -1 for row in names.tolist()], np.int64)
        until = events.start_ns + events.duration_ns
        self.marks.append(DeviceMarks("steps_line", device, number, events.start_ns, until))

    def _modules(self, plane: RawPlane, lines: list[RawLine], device: int) -> None:
        """Add the runs of each compiled program that ran more than once, the most frequent ones. Its name
        stands before its fingerprint: `jit_f(1219…)`."""
        if not lines:
            return
        events = events_of(walked(plane, lines, (), ()), self.strings, self.shift_ns)
        texts = self.strings.texts()
        programs, of, count = np.unique(events.name, return_inverse=True, return_counts=True)
        often = np.flatnonzero((count > 1) & (programs >= 0))
        for program in often[np.argsort(-count[often], kind="stable")][:_MOST_PROGRAMS].tolist():
            own = of == program
            start = events.start_ns[own]
            family = XLA_MODULE + texts[programs[program]].partition("(")[0]
            until = start + events.duration_ns[own]
            self.marks.append(DeviceMarks(family, device, constant(-1, len(start)), start, until))


_MOST_PROGRAMS = 64


def _whole(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1


_SET_NAME = re.compile(r"^Memset(?![_a-z])")
_COPY_NAME = re.compile(r"^Memcpy(?![_a-z])")


def work_kind(name: str, *, has_copy: bool, has_set: bool) -> tuple[WorkKind, CopyKind]:
    """Return what an event of this name is; AMD's runtime copies and fills with kernels of its own."""
    lower = name.lower()
    if has_set or _SET_NAME.match(name) or "rocclr_fillbuffer" in lower:
        return WorkKind.MEMSET, CopyKind.NONE
    if has_copy or _COPY_NAME.match(name):
        return WorkKind.MEMCPY, copy_kind(name)
    if "rocclr_copybuffer" in lower or "rocclr_copyimage" in lower:
        return WorkKind.MEMCPY, CopyKind.OTHER
    return WorkKind.KERNEL, CopyKind.NONE


def kernel_table(parts: list[KernelTable]) -> KernelTable:
    """Return the tables of several devices as one, each sorted by start."""
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


# --- Kernels that ran in an XLA command buffer: whose instruction they are, where their name proves it.
#
# A command buffer is launched as one, so its kernels carry the buffer's name (`command_buffer_3`) or none
# in place of their instruction's. XLA names a kernel after its fusion, which leads back to it; but equal
# fusions share the first one's kernel. So a name proves the instruction only where it comes once in each
# launch, and nowhere else. Any other name still states types, shapes and FLOPs, and the fusions of which it
# is one, because only equal fusions share a kernel: XLA finds it by a fingerprint of the computation and
# its arguments (`KernelReuseCache`). In traces of an H100 (JAX 0.11) 87 instructions used another one's
# kernel, as the events state, and all were equal to it in these.


def with_instructions(kernels: KernelTable, ops: Ops, strings: Interner) -> KernelTable:
    """Return the table with the ops of kernels that ran in a command buffer: the instruction that a name
    proves, or one without an owner that is equal to it. Kernels with other names keep theirs, which is one of
    the program's calls of libraries."""
    if not ops.modules:
        return kernels
    programs = ops.without_instruction()
    inside = np.isin(kernels.op, list(programs)) | ((kernels.op < 0) & (kernels.graph >= 0))
    rows = np.flatnonzero(inside & (kernels.kind == WorkKind.KERNEL) & (kernels.correlation >= 0))
    if not len(rows):
        return kernels
    proved = _once_in_each_launch(kernels, rows) & _nowhere_else(kernels, rows)
    op, texts = kernels.op.copy(), strings.texts()
    keys = np.stack([kernels.op[rows], kernels.name[rows], proved])
    pairs, group = np.unique(keys, axis=1, return_inverse=True)
    libraries: dict[int, tuple[str, int]] = {}
    for at, (of_buffer, name, alone) in enumerate(pairs.T.tolist()):
        module, program = programs.get(of_buffer, ("", -1))
        found = ops.modules.of_kernel(module, program, texts[name])
        if found is not None:
            module, program, instruction = found
            row = ops.of_hlo if alone else ops.like_hlo
            op[rows[group.reshape(-1) == at]] = row(instruction, module, program, "")
        elif of_buffer >= 0:
            libraries.setdefault(of_buffer, (module, program))
    for of_buffer, (module, program) in libraries.items():
        ops.with_library_calls(of_buffer, module, program)
    return replace(kernels, op=op)


def _once_in_each_launch(kernels: KernelTable, rows: Int64) -> Bool:
    """Return which kernels have a name that occurs only once in each launch. A launch is what shares a
    correlation id; where each kernel has an id of its own, nothing shows how often a name comes in one."""
    _, launch, size = np.unique(kernels.correlation[rows], return_inverse=True, return_counts=True)
    name = kernels.name[rows]
    _, pair, count = np.unique(np.stack([launch, name]), axis=1, return_inverse=True, return_counts=True)
    repeated = count[pair.reshape(-1)] > 1
    return (size[launch] > 1) & ~np.isin(name, name[repeated])


def _nowhere_else(kernels: KernelTable, rows: Int64) -> Bool:
    """Return for each name whether all kernels of that name have the same op, the buffer that `rows` have."""
    pairs = np.unique(np.stack([kernels.name, kernels.op]), axis=1)
    names, uses = np.unique(pairs[0], return_counts=True)
    return ~np.isin(kernels.name[rows], names[uses > 1])
