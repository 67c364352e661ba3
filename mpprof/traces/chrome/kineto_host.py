"""The host's side of a Kineto trace: which op every event lies in, and under which modules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from mpprof.model import limits
from mpprof.model.arrays import Int32, Int64
from mpprof.model.trace import AllocationTable, HostKind, HostTable, MarkerTable, Op, TraceDevice
from mpprof.traces.chrome.kineto import (
    LOSS_SCALE,
    MODULE,
    OPTIMIZER,
    OWN_STEP,
    STEP,
    Collected,
    HostRows,
    note_kind,
    own_step_number,
    step_number,
)
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.names import host_kind

_EVALUATE = "autograd::engine::evaluate_function: "
_DEEPEST = 24
_LONGEST = 200
"""Scopes of one op, and characters of a scope, that are kept: names in a file may be hostile."""

Path = tuple[str, ...]
Scope = tuple[Path, str]
"""Modules, outermost first; and the gradient function or optimizer step, "" for none."""


@dataclass
class Ops:
    """Rows of distinct scopes and of distinct ops, in the order of first use."""

    scopes: dict[Scope, int] = field(default_factory=dict)
    rows: dict[tuple[int, str], int] = field(default_factory=dict)

    def row(self, scope: int, name: str) -> int:
        return self.rows.setdefault((scope, name), len(self.rows))

    def table(self) -> tuple[Op, ...]:
        """Return the ops, named as in `Dense_1/AddmmBackward0 aten::mm`: modules, then the gradient function
        or the optimizer, then the op."""
        scopes = tuple(self.scopes)
        return tuple(Op(_name(scopes[scope], type), type) for scope, type in self.rows)


def _name(scope: Scope, type: str) -> str:
    path, role = scope
    plain = type.removeprefix(_EVALUATE)
    return "/".join((*path, plain if role in ("", plain) else f"{role} {plain}"))


@dataclass(frozen=True, slots=True)
class Nest:
    """Per row of HostRows, in the order of the file: the op that it lies in (itself, for an op), and that
    op's shapes; rows of `Trace.strings`. `modules` says whether any module frame was seen."""

    op: Int32
    shapes: Int32
    order: Int64  # by thread, start, longest first
    modules: bool


def nest(rows: HostRows, ops: Ops, strings: Interner) -> Nest:
    """Walk each thread's events as a stack. An op's scopes are the modules around it; those of a backward
    op are its forward op's (joined by sequence number), with the name of the gradient function."""
    n = len(rows.what)
    thread, order = np.array(rows.thread, np.int64), rows.in_order()
    op_of, shapes_of = [-1] * n, [-1] * n
    texts = strings.texts()
    gradients = {row for row, text in enumerate(texts) if text.startswith(_EVALUATE)}
    forward: dict[int, Path] = {}
    stack: list[tuple[int, Scope, int, int]] = []  # end, and what lies within: scope, op, shapes
    outside = (0, _NO_SCOPE, -1, -1)
    current, numbered, number = -1, _NO_SCOPE, ops.scopes.setdefault(_NO_SCOPE, len(ops.scopes))
    for row in _forward_first(rows, thread, order, gradients):
        what, on, begin = rows.what[row], rows.thread[row], rows.start_ns[row]
        if on != current:
            current = on
            stack.clear()
        while stack and stack[-1][0] <= begin:
            stack.pop()
        _, around, op, shapes = stack[-1] if stack else outside
        if what in _FRAMES:
            text, sequence = rows.name[row], rows.sequence[row]
            name = texts[text][:_LONGEST]
            gradient = what == "op" and text in gradients
            scope = _scope(what, name, around, forward.get(sequence)) if gradient or what != "op" else around
            if what in ("op", "range"):  # an annotation of the user's is an op and a scope at once
                owner = scope if what == "op" else around
                if owner is not numbered:  # most ops lie in the same scope as the one before
                    numbered, number = owner, ops.scopes.setdefault(owner, len(ops.scopes))
                op = ops.row(number, name if what == "op" else name.replace("/", "_"))
            if what == "op":
                shapes = rows.shapes[row]
                if sequence >= 0 and not gradient:
                    # Every op carries the number of the next gradient to be made: the last one made it.
                    forward[sequence] = around[0]
            if len(stack) < 10_000:
                stack.append((begin + rows.duration_ns[row], scope, op, shapes))
        op_of[row], shapes_of[row] = op, shapes
    modules = "module" in rows.what
    return Nest(np.array(op_of, np.int32), np.array(shapes_of, np.int32), order, modules)


_NO_SCOPE: Scope = ((), "")
_FRAMES = frozenset(("op", "note", "module", "frame", "range"))


def _forward_first(rows: HostRows, thread: Int64, order: Int64, gradients: set[int]) -> list[int]:
    """Return the rows thread by thread, with the threads that run backward last: they need the forward's
    scopes."""
    backward = {
        on
        for what, on, name in zip(rows.what, rows.thread, rows.name, strict=True)
        if name in gradients and what == "op"
    }
    late = np.isin(thread[order], list(backward))
    return [*order[~late].tolist(), *order[late].tolist()]


def _scope(what: str, name: str, around: Scope, forward: Path | None) -> Scope:
    """Return the scope within an event of this kind and name."""
    path, role = around
    if what == "op":  # a gradient's
        return (path if forward is None else forward), name.removeprefix(_EVALUATE)
    if what in ("note", "frame"):
        return (path, name) if name.startswith((OPTIMIZER, LOSS_SCALE)) else around
    return (*path, name.replace("/", "_"))[:_DEEPEST], role


def host_table(found: Collected, nested: Nest) -> HostTable:
    """Return the table of ops, calls and annotations, each with the shapes of the op that it lies in.

    Of modules the outermost calls are ranges, by their names in the file; other frames serve as scopes only.
    Memory events have a table of their own.
    """
    rows = found.host
    kept = np.array([what not in ("module", "frame", "memory") for what in rows.what], np.bool_)
    kinds = _kinds(found)
    name = np.array(rows.name, np.int32)
    outermost = _outermost_modules(rows, nested.order)
    if len(outermost):
        texts = found.strings.texts()
        kept[outermost] = True
        name[outermost] = [found.strings(MODULE + texts[row]) for row in name[outermost].tolist()]
    order = nested.order[kept[nested.order]]
    kind = np.array([kinds[what, row] for what, row in zip(rows.what, rows.name, strict=True)] or [], np.int8)
    return HostTable(
        thread=np.array(rows.thread, np.int32)[order],
        start_ns=np.array(rows.start_ns, np.int64)[order],
        duration_ns=np.array(rows.duration_ns, np.int64)[order],
        kind=kind[order],
        name=name[order],
        op=nested.op[order],
        correlation=np.array(rows.correlation, np.int64)[order],
        shapes=nested.shapes[order],
    )


def _outermost_modules(rows: HostRows, order: Int64) -> Int64:
    """Return the rows of module calls that lie in no other one of their thread; `order` as of `Nest`."""
    is_module = np.array([what == "module" for what in rows.what], np.bool_)
    at = order[is_module[order]]
    thread, start, duration = (
        np.array(column, np.int64)[at] for column in (rows.thread, rows.start_ns, rows.duration_ns)
    )
    kept = np.zeros(len(at), np.bool_)
    for one in np.unique(thread).tolist():
        own = thread == one
        begin = start[own]
        reach = np.maximum.accumulate(begin + duration[own])
        kept[own] = np.append(True, begin[1:] >= reach[:-1])
    return at[kept]


def _kinds(found: Collected) -> dict[tuple[str, int], HostKind]:
    texts = found.strings.texts()
    return {
        (what, row): _kind(what, texts[row])
        for what, row in set(zip(found.host.what, found.host.name, strict=True))
    }


def _kind(what: str, name: str) -> HostKind:
    if what == "op":
        return HostKind.INPUT if name.startswith("enumerate(DataLoader)") else HostKind.OP
    if what == "call":
        return host_kind(name)
    if what in ("span", "module"):
        return HostKind.OTHER
    if what == "code":
        return HostKind.CODE
    return HostKind.MARKER if name.startswith((STEP, OWN_STEP)) else note_kind(name)


def markers(found: Collected, table: HostTable, devices: Sequence[TraceDevice], zero_ns: int) -> MarkerTable:
    """Return the markers `ProfilerStep#N`, by start: those of the host, and those that Kineto projects onto a
    device (family "steps_line": from the first work launched under a marker to the end of the last). Also
    mpprof's own (family "mpprof"), in a trace that another recorder wrote."""
    texts = found.strings.texts()
    at = np.flatnonzero(table.kind == HostKind.MARKER)
    rows = [
        (start, start + duration, *_step(found.strings, texts[name]), thread, -1)
        for start, duration, name, thread in zip(
            table.start_ns[at].tolist(), table.duration_ns[at].tolist(), table.name[at].tolist(),
            table.thread[at].tolist(), strict=True,
        )
    ]  # fmt: skip
    row_of = {device.ordinal: row for row, device in enumerate(devices)}
    line = found.strings("steps_line") if found.projected else -1
    rows += [
        (start - zero_ns, start - zero_ns + duration, number, line, -1, row_of[device])
        for device, number, start, duration in found.projected
        if device in row_of
    ]
    rows.sort()
    columns = np.array(rows, np.int64).reshape(-1, 6)
    return MarkerTable(
        number=columns[:, 2].copy(),
        start_ns=columns[:, 0].copy(),
        end_ns=columns[:, 1].copy(),
        thread=columns[:, 4].astype(np.int32),
        family=columns[:, 3].astype(np.int32),
        device=columns[:, 5].astype(np.int32),
    )


def _step(strings: Interner, name: str) -> tuple[int, int]:
    """Return a marker's number, and the row of its family."""
    own = own_step_number(name)
    return (step_number(name), strings("torch")) if own < 0 else (own, strings("mpprof"))


def allocations(found: Collected, nested: Nest, zero_ns: int) -> AllocationTable:
    """Return the `[memory]` events, by time. A negative size frees memory; the allocator is named after its
    device."""
    rows = found.host
    at = sorted(rows.memory, key=lambda row: rows.start_ns[row])
    values = np.array([rows.memory[row] for row in at], np.int64).reshape(-1, 5)
    names = {
        device: found.strings(f"GPU_{device}_caching" if device >= 0 else "cpu")
        for device in sorted(set(values[:, 4].tolist()))
    }
    n = len(at)
    absent, no_text = np.full(n, -1, np.int64), np.full(n, -1, np.int32)
    return AllocationTable(
        time_ns=np.array([rows.start_ns[row] for row in at], np.int64) - zero_ns,
        free=values[:, 1] < 0,
        allocator=np.array([names[device] for device in values[:, 4].tolist()], np.int32),
        bytes=limits.sizes(np.abs(values[:, 1]), limits.LARGEST_BLOCK_BYTES),
        live_bytes=limits.sizes(values[:, 2], limits.LARGEST_MEMORY_BYTES),
        peak_bytes=absent,
        reserved_bytes=limits.sizes(values[:, 3], limits.LARGEST_MEMORY_BYTES),
        available_bytes=absent,
        address=values[:, 0],
        dtype=no_text,
        shapes=no_text,
        op=nested.op[at] if n else no_text,
        region=no_text,
    )
