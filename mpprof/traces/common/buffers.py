"""The buffer assignment of a compiled program: what its arguments and temporaries take, and what is alive at
the peak. An HloProto has it beside the module (`buffer_assignment`); field numbers: xla/service/hlo.proto.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise

from mpprof.model.arrays import Bytes
from mpprof.model.memory import AliveBuffer, Assignment, Taken
from mpprof.model.trace import HloInstruction
from mpprof.traces.common import walk
from mpprof.traces.common.hlo import (
    Instruction,
    Module,
    build,
    index_of,
    parse,
    sources,
    varints,
)
from mpprof.traces.common.planes import text
from mpprof.traces.common.walk import Field

_ALLOCATED, _FREED, _SHARED = 0, 1, 2  # HeapSimulatorTrace.Event.Kind
MOST_BUFFERS = 1_000_000
"""Of a program that are read: the largest models have some ten thousand."""


def assignment(
    buffer: Bytes, start: int, end: int, sizes_taken: Collection[tuple[int, ...]] | None = None
) -> Assignment | None:
    """Return the buffer assignment in an HloProto; None where it holds none. Of a program that does not take
    allocations of any of `sizes_taken`, one after the other, only how large its allocations are."""
    found = [(v, v + s) for n, w, v, s in walk.fields(buffer, start, end) if (n, w) == (3, 2)]
    if not found:
        return None
    fields = walk.fields(buffer, *found[0])[:MOST_BUFFERS]
    allocations = [_allocation(buffer, v, v + s) for n, w, v, s in fields if (n, w) == (3, 2)]
    allocations = [one for one in allocations if one.kind]
    taken = [one for one in allocations if one.kind in ("outputs", "temporaries") and one.bytes]
    if sizes_taken is not None and tuple(one.bytes for one in taken) not in sizes_taken:
        return _outline(allocations, [Taken(one.bytes, (), result=one.kind == "outputs") for one in taken])
    sizes, makers = {}, {}
    for number, wire, value, size in fields:
        if (number, wire) == (1, 2):
            id, held, maker = _logical(buffer, value, value + size)
            sizes[id], makers[id] = held, maker
    traces = [(v, v + s) for n, w, v, s in fields if (n, w) == (4, 2)]
    fullest = _fullest(buffer, traces, allocations, sizes)
    module = index_of(buffer, start, end)
    buffer_of = cache(lambda id: _alive(module, makers.get(id), sizes.get(id, 0)))

    def made(ids: Iterable[int]) -> tuple[AliveBuffer, ...]:
        return tuple(sorted(map(buffer_of, ids), key=lambda one: -one.bytes))

    temporaries = [
        fullest[one.index] for one in allocations if one.kind == "temporaries" and one.index in fullest
    ]
    alive = made(max(temporaries, key=lambda ids: sum(sizes.get(id, 0) for id in ids), default=[]))
    results = _results(buffer, start, end, module)
    return replace(
        _outline(
            allocations,
            [
                Taken(
                    one.bytes,
                    made(_contents(one, fullest.get(one.index), module, makers, results)),
                    result=one.kind == "outputs",
                )
                for one in taken
            ],
        ),
        peak_bytes=sum(one.bytes for one in alive),
        alive=alive,
    )


def _outline(allocations: Iterable[_Allocation], taken: Sequence[Taken]) -> Assignment:
    """Return how large the allocations are, without what is in the temporaries at the peak."""
    sums = {"arguments": 0, "outputs": 0, "constants": 0, "temporaries": 0}
    for one in allocations:
        sums[one.kind] += one.bytes
    return Assignment(
        arguments_bytes=sums["arguments"],
        outputs_bytes=sums["outputs"],
        constants_bytes=sums["constants"],
        temporaries_bytes=sums["temporaries"],
        peak_bytes=0,
        alive=(),
        taken=tuple(taken),
    )


@dataclass(frozen=True, slots=True)
class _Allocation:
    """An allocation of a program; `assigned`: the buffers in it, as id, offset and size."""

    index: int
    bytes: int
    kind: str
    assigned: tuple[tuple[int, int, int], ...]


def _allocation(buffer: Bytes, start: int, end: int) -> _Allocation:
    fields = walk.fields(buffer, start, end)
    stated = _numbers(fields)
    each = [_numbers(walk.fields(buffer, v, v + s)) for n, w, v, s in fields if (n, w) == (9, 2)]
    assigned = tuple((one.get(1, 0), one.get(2, 0), one.get(3, 0)) for one in each)
    return _Allocation(stated.get(1, 0), stated.get(2, 0), _kind(stated), assigned)


def _contents(
    one: _Allocation,
    fullest: list[int] | None,
    module: Module,
    makers: Mapping[int, Maker],
    results: frozenset[str],
) -> list[int]:
    """Return the buffers that an allocation holds when it is fullest; for an allocation that outlives the
    program, the result in it. Empty where several buffers take turns and nothing states which of them."""
    if one.kind == "outputs":
        whole = [id for id, _, size in one.assigned if size == one.bytes]
        mine = [id for id in whole if _name(module, makers.get(id)) in results]
        return mine if len(mine) == 1 else whole if len(whole) == 1 else []
    if fullest is not None:
        return fullest
    ordered = sorted((offset, size, id) for id, offset, size in one.assigned if size)
    apart = all(offset + size <= after for (offset, size, _), (after, _, _) in pairwise(ordered))
    return [id for _, _, id in ordered] if apart else []


def _results(buffer: Bytes, start: int, end: int, module: Module) -> frozenset[str]:
    """Return the names of the instructions that make what the program returns."""
    for number, wire, value, size in walk.fields(buffer, start, end):
        if (number, wire) != (1, 2):
            continue
        fields = walk.fields(buffer, value, value + size)
        entry = _numbers(fields).get(6)
        for inner, kind, place, length in fields:
            stated = _numbers(walk.fields(buffer, place, place + length)) if (inner, kind) == (3, 2) else {}
            span = module.by_id.get(stated.get(6, -1)) if stated.get(5) == entry else None
            if span is not None:
                root = parse(module, *span)
                passes_on = root.opcode in ("tuple", "get-tuple-element", "bitcast")
                return frozenset(sources(module, root) if passes_on else (root.name,))
    return frozenset()


def _kind(stated: Mapping[int, int]) -> str:
    """Return what an allocation is for; "" for a thread's own allocation, which is not device memory."""
    if stated.get(3):
        return ""
    if stated.get(5):
        return "arguments"
    if stated.get(12):
        return "constants"
    return "outputs" if stated.get(7) else "temporaries"


def _numbers(fields: list[Field]) -> dict[int, int]:
    return {number: value for number, wire, value, _ in fields if wire == 0}


Maker = tuple[int, str, tuple[int, ...]]
"""The instruction that makes a buffer: its id, in older programs its name; and which part of its result."""


def _logical(buffer: Bytes, start: int, end: int) -> tuple[int, int, Maker]:
    fields = walk.fields(buffer, start, end)
    stated = _numbers(fields)
    maker: Maker = (-1, "", ())
    for number, wire, value, size in fields:
        if (number, wire) == (3, 2):
            place = walk.fields(buffer, value, value + size)
            name = next((text(buffer, v, v + s) for n, w, v, s in place if (n, w) == (2, 2)), "")
            maker = (_numbers(place).get(4, -1), name, tuple(varints(buffer, place, 3)))
    return stated.get(1, 0), stated.get(2, 0), maker


def _fullest(
    buffer: Bytes, traces: list[tuple[int, int]], allocations: Sequence[_Allocation], sizes: Mapping[int, int]
) -> dict[int, list[int]]:
    """Return the buffers of each allocation that are alive when those of its simulated heap take most. A
    buffer that shares another's place counts as that one. The index that a heap states is from before XLA
    sorted its allocations: the buffers decide whose heap it is, and the index decides only where allocations
    list none."""
    place = {id: one.index for one in allocations for id, _, _ in one.assigned}
    best: dict[int, tuple[int, list[int]]] = {}
    for start, end in traces:
        fields = walk.fields(buffer, start, end)
        alive, peak = _played(buffer, fields, sizes)
        of = next((place[id] for id in alive if id in place), None if place else _numbers(fields).get(3, 0))
        if of is not None and peak > best.get(of, (-1, []))[0]:
            best[of] = peak, alive
    return {index: alive for index, (_, alive) in best.items()}


def _played(buffer: Bytes, fields: list[Field], sizes: Mapping[int, int]) -> tuple[list[int], int]:
    owner: dict[int, int] = {}
    users: dict[int, int] = {}
    live = peak = 0
    best: list[int] = []
    for number, wire, value, size in fields:
        if (number, wire) != (1, 2):
            continue
        event = _numbers(walk.fields(buffer, value, value + size))
        kind, id = event.get(1, _ALLOCATED), event.get(2, 0)
        if kind == _FREED:
            own = owner.pop(id, None)
            if own is None:
                continue
            users[own] -= 1
            if not users[own]:
                del users[own]
                live -= sizes.get(own, 0)
            continue
        own = id if kind == _ALLOCATED else owner.get(event.get(5, id), event.get(5, id))
        owner[id] = own
        users[own] = users.get(own, 0) + 1
        if users[own] == 1:
            live += sizes.get(own, 0)
            if live > peak:
                peak, best = live, list(users)
    return best, peak


def _instruction(module: Module, maker: Maker | None) -> Instruction | None:
    if maker is None:
        return None
    span = module.by_id.get(maker[0]) or module.by_name.get(maker[1])
    return None if span is None else parse(module, *span)


def _name(module: Module, maker: Maker | None) -> str | None:
    made = _instruction(module, maker)
    return made.name if made else None


def _alive(module: Module, maker: Maker | None, size: int) -> AliveBuffer:
    made = _instruction(module, maker)
    if made is None or maker is None:
        return AliveBuffer(None, size)
    shape = made.shape
    for part in maker[2]:
        shape = shape.parts[part] if part < len(shape.parts) else shape
    hlo, own = build(module, made, 0), shape.array
    scratch = made.opcode == "custom-call" and any(maker[2]) and own.dtype in ("s8", "u8")
    return AliveBuffer(
        replace(hlo, dtype=own.dtype, shape=own.dims), size, scratch, _recasts(module, made, hlo)
    )


_RECASTING = frozenset(("parameter", "convert", "bitcast", "copy", "transpose", "reshape"))


def _recasts(module: Module, made: Instruction, hlo: HloInstruction) -> bool:
    """Return whether an instruction gives an argument of the program in another type, and does nothing
    else."""
    inside = {inner.opcode for inner in hlo.called} if made.opcode == "fusion" else {made.opcode}
    if "convert" not in inside or not inside <= _RECASTING or len(hlo.operands) != 1:
        return False
    span = module.by_name.get(hlo.operands[0])
    return span is not None and parse(module, *span).opcode == "parameter"
