"""The buffer assignment of a compiled program: what its arguments and temporaries take, and what is alive at
the peak. An HloProto has it beside the module (`buffer_assignment`); field numbers: xla/service/hlo.proto.
"""

from __future__ import annotations

from collections.abc import Mapping

from mpprof.model.memory import AliveBuffer, Assignment
from mpprof.model.trace import HloInstruction
from mpprof.traces.common.hlo import Field, _build, _fields, _index, _Module, _parse
from mpprof.traces.common.planes import Bytes, text

_ALLOCATED, _FREED, _SHARED = 0, 1, 2  # HeapSimulatorTrace.Event.Kind
MOST_BUFFERS = 1_000_000
"""Of a program that are read: the largest models have some ten thousand."""


def assignment(buffer: Bytes, start: int, end: int) -> Assignment | None:
    """Return the buffer assignment in an HloProto; None where it holds none."""
    found = [(v, v + s) for n, w, v, s in _fields(buffer, start, end) if (n, w) == (3, 2)]
    if not found:
        return None
    fields = _fields(buffer, *found[0])[:MOST_BUFFERS]
    sums = {"arguments": 0, "outputs": 0, "constants": 0, "temporaries": 0}
    temporaries: set[int] = set()
    for number, wire, value, size in fields:
        if (number, wire) == (3, 2):
            stated = _numbers(_fields(buffer, value, value + size))
            kind = _kind(stated)
            if kind:
                sums[kind] += stated.get(2, 0)
            if kind == "temporaries":
                temporaries.add(stated.get(1, 0))
    sizes, makers = {}, {}
    for number, wire, value, size in fields:
        if (number, wire) == (1, 2):
            id, taken, maker = _logical(buffer, value, value + size)
            sizes[id], makers[id] = taken, maker
    traces = [(v, v + s) for n, w, v, s in fields if (n, w) == (4, 2)]
    alive = _at_peak(buffer, traces, temporaries, sizes)
    module = _index(buffer, start, end)
    made = [AliveBuffer(_maker(module, makers.get(id)), sizes.get(id, 0)) for id in alive]
    made.sort(key=lambda one: -one.bytes)
    return Assignment(
        arguments_bytes=sums["arguments"],
        outputs_bytes=sums["outputs"],
        constants_bytes=sums["constants"],
        temporaries_bytes=sums["temporaries"],
        peak_bytes=sum(one.bytes for one in made),
        alive=tuple(made),
    )


def _kind(stated: Mapping[int, int]) -> str:
    """What an allocation is for; "" for one of a thread's own, which is no device memory."""
    if stated.get(3):
        return ""
    if stated.get(5):
        return "arguments"
    if stated.get(12):
        return "constants"
    return "outputs" if stated.get(7) else "temporaries"


def _numbers(fields: list[Field]) -> dict[int, int]:
    return {number: value for number, wire, value, _ in fields if wire == 0}


Maker = tuple[int, str]
"""The instruction that makes a buffer: its id, and in older programs its name."""


def _logical(buffer: Bytes, start: int, end: int) -> tuple[int, int, Maker]:
    fields = _fields(buffer, start, end)
    stated, maker = _numbers(fields), (-1, "")
    for number, wire, value, size in fields:
        if (number, wire) == (3, 2):
            place = _fields(buffer, value, value + size)
            name = next((text(buffer, v, v + s) for n, w, v, s in place if (n, w) == (2, 2)), "")
            maker = (_numbers(place).get(4, -1), name)
    return stated.get(1, 0), stated.get(2, 0), maker


def _at_peak(
    buffer: Bytes, traces: list[tuple[int, int]], temporaries: set[int], sizes: Mapping[int, int]
) -> list[int]:
    """The buffers that are alive when those of the largest simulated heap among the temporaries take most.
    One that shares another's place is that one."""
    best: list[int] = []
    most = -1
    for start, end in traces:
        fields = _fields(buffer, start, end)
        if temporaries and _numbers(fields).get(3, 0) not in temporaries:
            continue
        alive, peak = _played(buffer, fields, sizes)
        if peak > most:
            best, most = alive, peak
    return best


def _played(buffer: Bytes, fields: list[Field], sizes: Mapping[int, int]) -> tuple[list[int], int]:
    owner: dict[int, int] = {}
    users: dict[int, int] = {}
    live = peak = 0
    best: list[int] = []
    for number, wire, value, size in fields:
        if (number, wire) != (1, 2):
            continue
        event = _numbers(_fields(buffer, value, value + size))
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


def _maker(module: _Module, maker: Maker | None) -> HloInstruction | None:
    if maker is None:
        return None
    span = module.by_id.get(maker[0]) or module.by_name.get(maker[1])
    return None if span is None else _build(module, _parse(module, *span), 0)
