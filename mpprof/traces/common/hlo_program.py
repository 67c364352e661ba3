"""A compiled program as the work that it launches: each instruction that runs, how often, what it moves.

`hlo` reads single instructions that a trace asks for; here a whole program is walked from its entry, into
calls and as often as its loops turn. Field numbers: xla/service/hlo.proto and xla/xla_data.proto.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from math import prod

import numpy as np

from mpprof.errors import UnreadableError
from mpprof.model.frozen import frozen
from mpprof.model.trace import HloInstruction
from mpprof.traces.common import walk
from mpprof.traces.common.hlo import (
    Instruction,
    Module,
    Shape,
    build,
    index_of,
    parse,
    varints,
)
from mpprof.traces.common.planes import extents, one

_PASSED_ON = frozenset(
    [
        "parameter",
        "constant",
        "tuple",
        "get-tuple-element",
        "bitcast",
        "after-all",
        "opt-barrier",
        "partition-id",
        "iota",
        "domain",
    ]
)
"""Opcodes that launch nothing: they name a value or a part of one."""
_SLICES = frozenset(("slice", "dynamic-slice", "gather"))
_DEPTH = 16
_SIZES = {
    "pred": 1.0, "s8": 1.0, "u8": 1.0, "s16": 2.0, "u16": 2.0, "s32": 4.0, "u32": 4.0, "s64": 8.0, "u64": 8.0,
    "f16": 2.0, "bf16": 2.0, "f32": 4.0, "f64": 8.0, "c64": 8.0, "c128": 16.0, "s4": 0.5, "u4": 0.5,
    "s2": 0.25, "u2": 0.25, "f4e2m1fn": 0.5,
}  # fmt: skip


Value = tuple[int, int]
"""A value of a program: the id of the instruction that makes it, and which part of its result it is."""


@frozen
class Launch:
    """One instruction that runs. `count`: how often in one execution of the program; None: a loop whose
    number of turns is not stated. Bytes are of one execution: what it must read and write, less what it skips
    of an operand that it only slices. `flops` leaves out the zeros that a strided gradient puts in.
    `reads` and `writes`: which values, by key, and how many bytes of each."""

    hlo: HloInstruction
    count: int | None
    flops: float | None
    in_loop: bool
    reads: tuple[tuple[Value, float], ...]
    writes: tuple[tuple[Value, float], ...]
    groups: int = 1  # of a convolution: 1 where each output channel sees every input channel
    channels: tuple[int, int] = (0, 0)  # of a convolution: into each group, and out of all of them
    window: tuple[tuple[int, int], ...] = ()  # of a convolution: size and stride along each axis

    @property
    def read_bytes(self) -> float:
        return sum(size for _, size in self.reads)

    @property
    def written_bytes(self) -> float:
        return sum(size for _, size in self.writes)


def launches(proto: bytes) -> tuple[Launch, ...]:
    """Return the work of the program in an HloProto, in the order in which it runs where the program states
    that. Raises `UnreadableError` where the bytes hold no program."""
    buffer = np.frombuffer(proto, np.uint8)
    module = index_of(buffer, 0, len(buffer))
    entry = _entry(module)
    if entry is None:
        raise UnreadableError("no compiled program in these bytes")
    return tuple(_walk(module, entry, _Place(1, False, 0, _schedule(module))))


@frozen
class _Place:
    """Where the walk is: how often it runs here, whether in a loop, how deep, and the order of everything."""

    count: int | None
    in_loop: bool
    depth: int
    order: Mapping[int, Mapping[int, int]]  # by computation, the place of each instruction

    def inside(self, turns: int | None = 1, *, loop: bool = False) -> _Place:
        count = None if turns is None or self.count is None else self.count * turns
        return _Place(count, self.in_loop or loop, self.depth + 1, self.order)


def _module_fields(module: Module, wanted: int) -> walk.Fields | None:
    proto = walk.scan(module.buffer, one(0), one(len(module.buffer)), 1 << 1)
    start, end, _ = extents(proto, 1)
    return walk.scan(module.buffer, start, end, wanted) if len(start) else None


def _entry(module: Module) -> int | None:
    fields = _module_fields(module, 1 << 6)
    if fields is None:
        return None
    stated = fields.value[(fields.number == 6) & (fields.wire == 0)]
    return int(stated[0]) if len(stated) and int(stated[0]) in module.computations else None


def _schedule(module: Module) -> dict[int, dict[int, int]]:
    """Return `HloModuleProto.schedule`: a map from computations to the ids of their instructions, in
    order."""
    fields = _module_fields(module, 1 << 7)
    order: dict[int, dict[int, int]] = {}
    if fields is None:
        return order
    starts, ends, _ = extents(fields, 7)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        for number, wire, value, size in walk.fields(module.buffer, start, end):
            if (number, wire) != (1, 2):
                continue
            entry = walk.fields(module.buffer, value, value + size)
            key = next((v for n, w, v, _ in entry if (n, w) == (1, 0)), 0)
            for n, w, v, s in entry:
                if (n, w) == (2, 2):
                    ids = varints(module.buffer, walk.fields(module.buffer, v, v + s), 1)
                    order[key] = {id: at for at, id in enumerate(ids)}
    return order


def _walk(module: Module, computation: int, place: _Place) -> Iterator[Launch]:
    if place.depth > _DEPTH:
        return
    instructions = [parse(module, *span) for span in module.computations.get(computation, ())]
    order = place.order.get(computation, {})
    instructions.sort(key=lambda made: order.get(made.id, -1))
    for made in instructions:
        if made.opcode in _PASSED_ON or made.opcode.endswith("-done"):
            continue
        if made.opcode in ("call", "async-start"):
            for id in made.called:
                yield from _walk(module, id, place.inside())
        elif made.opcode == "while":
            for id in made.called:
                yield from _walk(module, id, place.inside(_turns(made), loop=True))
        elif made.opcode == "conditional":
            # One branch runs, and nothing says which: the least that any of them does.
            branches = [tuple(_walk(module, id, place.inside())) for id in made.called]
            yield from min(branches, key=_weight, default=())
        else:
            yield _launch(module, made, place)


def _weight(branch: Sequence[Launch]) -> float:
    return sum(work.read_bytes + work.written_bytes for work in branch)


def _turns(made: Instruction) -> int | None:
    try:
        turns = json.loads(made.backend_config)["known_trip_count"]["n"]
        return int(turns)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _launch(module: Module, made: Instruction, place: _Place) -> Launch:
    reads, writes = _moved(module, made)
    hlo = build(module, made, 0)
    return Launch(
        hlo,
        place.count,
        _own_flops(module, made, hlo),
        place.in_loop,
        reads,
        writes,
        _groups(module, made),
        _channels(made, hlo),
        _window(module, made),
    )


def _window(module: Module, made: Instruction) -> tuple[tuple[int, int], ...]:
    found = []
    for number, wire, value, size in made.window or ():
        if (number, wire) == (1, 2):
            stated = {n: v for n, w, v, _ in walk.fields(module.buffer, value, value + size) if w == 0}
            found.append((max(1, stated.get(1, 1)), max(1, stated.get(2, 1))))
    return tuple(found)


def _groups(module: Module, made: Instruction) -> int:
    """Return `feature_group_count` of a convolution or of the library call that is one."""
    if made.convolution is None:
        return 1
    start, end = module.by_id[made.id]
    fields = walk.fields(module.buffer, start, end)
    stated = (value for number, wire, value, _ in fields if (number, wire) == (50, 0))
    return max(1, next(stated, 1))


def _channels(made: Instruction, hlo: HloInstruction) -> tuple[int, int]:
    """Return the features that a filter takes and gives. For cuDNN's gradient of the filter, the filter is
    the result."""
    if made.convolution is None or len(hlo.operand_shapes) < 2:
        return 0, 0
    kernel = hlo.shape if "BackwardFilter" in made.custom_call else hlo.operand_shapes[1]
    numbers = {number: value for number, wire, value, _ in made.convolution if wire == 0}
    taken, given = numbers.get(3, 0), numbers.get(4, 0)
    return (kernel[taken], kernel[given]) if max(taken, given) < len(kernel) else (0, 0)


# --- bytes -------------------------------------------------------------------------------------------------

_Sizes = tuple[tuple[Value, float], ...]


def _value(module: Module, id: int) -> tuple[Value, Shape]:
    """Return the value that an operand is, seen through those that only name it, and its shape."""
    part, shape = 0, Shape()
    for turn in range(_DEPTH):
        if id not in module.by_id:
            break
        made = parse(module, *module.by_id[id])
        shape = made.shape if turn == 0 else shape
        if made.opcode == "get-tuple-element" and made.operands:
            part, id = _tuple_index(module, id), made.operands[0]
        elif made.opcode == "bitcast" and made.operands:
            id = made.operands[0]
        else:
            break
    return (id, part), shape


def _tuple_index(module: Module, id: int) -> int:
    fields = walk.fields(module.buffer, *module.by_id[id])
    return next((value for number, wire, value, _ in fields if (number, wire) == (13, 0)), 0)


def _moved(module: Module, made: Instruction) -> tuple[_Sizes, _Sizes]:
    """Return what an instruction reads and writes; an operand that it names twice is read once."""
    operands = [_value(module, id) for id in made.operands]
    parts = _results(made)
    results = parts.parts or (parts,)
    writes = {(made.id, at): size_bytes(part) for at, part in enumerate(results)}
    if made.opcode in _SLICES and operands:
        taken = min(sum(writes.values()), size_bytes(operands[0][1]))
        return ((operands[0][0], taken), *((v, size_bytes(s)) for v, s in operands[1:])), tuple(
            writes.items()
        )
    if made.opcode == "dynamic-update-slice" and len(operands) > 1:
        update = size_bytes(operands[1][1])
        return ((operands[1][0], update),), (((made.id, 0), update),)
    reads = {value: size_bytes(shape) for value, shape in operands}
    if made.opcode == "fusion" and made.called:
        _spare(module, made, operands, reads, writes)
    return tuple(reads.items()), tuple(writes.items())


def _spare(
    module: Module,
    made: Instruction,
    operands: Sequence[tuple[Value, Shape]],
    reads: dict[Value, float],
    writes: dict[Value, float],
) -> None:
    """Take from `reads` what a fusion skips of operands that it only slices; and of a value that it updates
    in place all but the update, read and written."""
    inside = [parse(module, *span) for span in module.computations.get(made.called[0], ())]
    users: dict[int, list[Instruction]] = {}
    for inner in inside:
        for id in set(inner.operands):
            users.setdefault(id, []).append(inner)
    for (value, shape), parameter in zip(
        operands, _parameters(module, made.called[0], len(operands)), strict=True
    ):
        used = users.get(parameter.id, []) if parameter is not None else []
        if parameter is None or not used or not all(_sliced(user, parameter.id) for user in used):
            continue
        whole, part = size_bytes(shape), sum(_slice_bytes(module, user) for user in used)
        updates = any(user.opcode == "dynamic-update-slice" for user in used)
        reads[value] = 0.0 if updates else min(whole, part)
        same = next((key for key, size in writes.items() if updates and size == whole), None)
        if same is not None:
            writes[same] = min(whole, part)


def _parameters(module: Module, computation: int, count: int) -> list[Instruction | None]:
    """Return the parameters of a computation by their number, which is not the order in which the computation
    lists them."""
    found: list[Instruction | None] = [None] * count
    for start, end in module.computations.get(computation, ()):
        made = parse(module, start, end)
        if made.opcode == "parameter":
            fields = walk.fields(module.buffer, start, end)
            at = next((value for number, wire, value, _ in fields if (number, wire) == (9, 0)), 0)
            if 0 <= at < count:
                found[at] = made
    return found


def _sliced(user: Instruction, id: int) -> bool:
    first = bool(user.operands) and user.operands[0] == id and user.operands.count(id) == 1
    return first and (user.opcode in _SLICES or user.opcode == "dynamic-update-slice")


def _slice_bytes(module: Module, user: Instruction) -> float:
    if user.opcode == "dynamic-update-slice" and len(user.operands) > 1 and user.operands[1] in module.by_id:
        return size_bytes(parse(module, *module.by_id[user.operands[1]]).shape)
    return size_bytes(user.shape)


def _results(made: Instruction) -> Shape:
    """Return what an instruction leaves, without the scratch memory that a library call lists last."""
    parts = made.shape.parts
    if made.opcode == "custom-call" and len(parts) > 1 and parts[-1].dtype in ("u8", "s8"):
        return Shape(parts=parts[:-1])
    return made.shape


def size_bytes(shape: Shape) -> float:
    """Return the bytes of an array or of all parts of a tuple; 0 for an unknown type."""
    if shape.parts:
        return sum(size_bytes(part) for part in shape.parts)
    each = _SIZES.get(shape.dtype, 1.0 if shape.dtype.startswith("f8") else 0.0)
    return each * prod(shape.dims)


# --- operations --------------------------------------------------------------------------------------------


def _own_flops(module: Module, made: Instruction, hlo: HloInstruction) -> float | None:
    """Return the FLOPs as `hlo` counts them: each output of a convolution meets every tap of its filter.
    Along an axis, however, count no more than if each input met every tap, since what lies beyond is padding,
    or zeros put between the inputs (gradients of convolutions that are strided or not padded)."""
    forward = "__cudnn$conv" in made.custom_call and "Backward" not in made.custom_call
    if not (made.opcode == "convolution" or forward) or not made.convolution or not hlo.flops:
        return hlo.flops
    left, kernel = hlo.operand_shapes[:2]
    axes = [varints(module.buffer, made.convolution, field) for field in (11, 6, 12)]
    if len({len(places) for places in axes}) != 1 or len(hlo.shape) != len(left):
        return hlo.flops
    flops = hlo.flops
    for at, (of_input, of_kernel, of_output) in enumerate(zip(*axes, strict=True)):
        inputs, taps, outputs = left[of_input], kernel[of_kernel], hlo.shape[of_output]
        pairs = [outputs * taps, inputs * taps]
        if _dilated(module, made, at):
            pairs.append(inputs * outputs)
        flops *= min(pairs) / max(1, pairs[0])
    return flops


def _dilated(module: Module, made: Instruction, axis: int) -> bool:
    """Return whether there are zeros between the elements of the input along an axis of the window."""
    stated = [(value, size) for number, wire, value, size in made.window or () if (number, wire) == (1, 2)]
    if axis >= len(stated):
        return False
    start, size = stated[axis]
    return any(
        value > 1 for value in varints(module.buffer, walk.fields(module.buffer, start, start + size), 6)
    )
