"""Compiled modules inside a trace (`/host:metadata`, stat `hlo_proto`), read without TensorFlow or jaxlib.

Field numbers: xla/service/hlo.proto and xla/xla_data.proto. Nothing is read before an instruction of the
module is asked for. FLOPs follow the definition that XLA's HloCostAnalysis uses, two per multiply-add;
for a convolution every tap is counted, also those that fall on padding.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np

from mpprof.folders import INSTALLED
from mpprof.model import limits
from mpprof.model.arrays import Bytes
from mpprof.model.frozen import frozen
from mpprof.model.trace import HloInstruction
from mpprof.traces.common import walk
from mpprof.traces.common.planes import RawPlane, cut_off, extents, one, text
from mpprof.traces.common.walk import Field

DTYPES = {
    1: "pred", 2: "s8", 3: "s16", 4: "s32", 5: "s64", 6: "u8", 7: "u16", 8: "u32", 9: "u64", 10: "f16",
    11: "f32", 12: "f64", 13: "tuple", 14: "opaque", 15: "c64", 16: "bf16", 17: "token", 18: "c128",
    19: "f8e5m2", 20: "f8e4m3fn", 21: "s4", 22: "u4", 23: "f8e4m3b11fnuz", 24: "f8e5m2fnuz",
    25: "f8e4m3fnuz", 26: "s2", 27: "u2", 28: "f8e4m3", 29: "f8e3m4", 32: "f4e2m1fn", 33: "f8e8m0fnu",
}  # fmt: skip
"""PrimitiveType in xla/xla_data.proto, in HLO's spelling."""

_DEEPEST_CALL = 4
"""How deep calls inside fusions are followed; XLA nests two or three."""
_DEPTH = 8
"""How deep tuples lie in one another, and how many instructions in a row only pass a value on."""
_DEEPEST_STACK = 256
"""Frames of one stack that are looked at."""
_MAX_CALLED = 4096
"""Instructions listed inside one fusion or call."""
_LISTINGS = 3
"""How often an instruction is listed inside others, on average over a module: XLA calls a fused computation
from one place. A module whose computations call each other at will would be listed for ever."""
_WITHIN = 4 * _LISTINGS
"""How often with all that lists it in turn, up to `_DEEPEST_CALL` calls above: who goes through what an
instruction calls meets one in each of these places."""

_MAX_RANK, _MAX_SIZE = 16, 1 << 48
"""Dimensions of a shape and elements along one that are read; the products of any two shapes are finite."""

_DIGIT = "[0-9]{1,3}"
_NO_SYMBOL = r"[^A-Za-z0-9_]"
Place = tuple[Bytes, int, int, int]  # buffer, start and end of a module's HloProto, and its program id

_NAMES = ("hlo_proto", "Hlo Proto", "HLO Proto")


def varints(buffer: Bytes, fields: Iterable[Field], number: int) -> list[int]:
    """Return a repeated integer field, packed or not."""
    values: list[int] = []
    for found, wire, value, size in fields:
        if found != number:
            continue
        if wire == 0:
            values.append(value)
        elif wire == 2:
            values += _packed(buffer[value : cut_off(value, value + size)].tobytes())
    return values


def _packed(raw: bytes) -> list[int]:
    values, value, shift = [], 0, 0
    for byte in raw:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            values.append((value & (1 << 64) - 1) - (1 << 64 if value >> 63 & 1 else 0))
            value = shift = 0
        elif shift >= 70:
            break
    return values


@frozen
class Shape:
    """An array's element type and dimensions; of a tuple its parts. Empty for an impossible shape."""

    dtype: str = ""
    dims: tuple[int, ...] = ()
    parts: tuple[Shape, ...] = ()

    @property
    def array(self) -> Shape:
        """The array itself, or the first part of a tuple (library calls return result and scratch)."""
        return self.parts[0].array if self.parts else self


def _shape(buffer: Bytes, start: int, end: int, depth: int = 0) -> Shape:
    fields = walk.fields(buffer, start, end)
    dtype = next((value for number, wire, value, _ in fields if (number, wire) == (2, 0)), 0)
    dims = tuple(varints(buffer, fields, 3))
    if len(dims) > _MAX_RANK or not all(0 <= size < _MAX_SIZE for size in dims):
        return Shape()
    parts: tuple[Shape, ...] = ()
    if depth < _DEPTH:
        parts = tuple(
            _shape(buffer, value, value + size, depth + 1)
            for number, wire, value, size in fields
            if (number, wire) == (4, 2)
        )
    return Shape(DTYPES.get(dtype, f"type{dtype}" if dtype else ""), dims, parts)


@dataclass(eq=False, repr=False)
class Instruction:
    """An instruction as its proto states it."""

    id: int = 0
    name: str = ""
    opcode: str = ""
    op_name: str = ""
    line: str = ""
    shape: Shape = field(default_factory=Shape)
    operands: list[int] = field(default_factory=list)
    called: list[int] = field(default_factory=list)
    custom_call: str = ""
    dot: list[Field] | None = None
    convolution: list[Field] | None = None
    window: list[Field] | None = None
    precision: str = ""
    backend_config: str = ""


@dataclass(eq=False, repr=False)
class Module:
    """The index of one HloModuleProto: extents of instructions by name and id, of computations by id."""

    buffer: Bytes
    name: str
    program: int
    by_name: dict[str, tuple[int, int]]
    by_id: dict[int, tuple[int, int]]
    computations: dict[int, list[tuple[int, int]]]
    parsed: dict[int, Instruction] = field(default_factory=dict)
    built: dict[str, HloInstruction] = field(default_factory=dict)
    inside: dict[tuple[int, int], HloInstruction] = field(default_factory=dict)  # by place and depth
    by_types: dict[str, dict[tuple[object, ...], list[str]]] = field(default_factory=dict)  # by opcode
    called: dict[str, list[tuple[str, str, tuple[int, ...]]]] = field(default_factory=dict)
    listings: int = 0  # of instructions inside others that are left
    within: int = 0  # the same, of those inside these, too
    weights: dict[int, int] = field(default_factory=dict)  # of `inside`: with all within, by identity
    operands: int = 0  # of instructions not yet parsed that are left
    stacks_at: tuple[int, int] | None = None  # where the stacks of its instructions lie
    lines: dict[int, str] = field(default_factory=dict)  # the user's, by stack frame

    @cached_property
    def stacks(self) -> Stacks:
        return _stacks(self.buffer, *self.stacks_at) if self.stacks_at else Stacks()

    @cached_property
    def by_kernel(self) -> dict[str, str]:
        """The instruction by the name that XLA gives to its kernel; not where two would have the same."""
        found: dict[str, list[str]] = {}
        for name in self.by_name:
            found.setdefault(re.sub(_NO_SYMBOL, "_", name), []).append(name)
        return {kernel: names[0] for kernel, names in found.items() if len(names) == 1}

    @cached_property
    def by_opcode(self) -> dict[str, list[str]]:
        """The names of the instructions by their opcode."""
        names = list(self.by_name)
        starts, ends = np.array(list(self.by_name.values()), np.int64).reshape(-1, 2).T.copy()
        begin, stop, owner = extents(walk.scan(self.buffer, starts, ends, 1 << 2), 2)
        found: dict[str, list[str]] = {}
        for a, b, row in zip(begin.tolist(), stop.tolist(), owner.tolist(), strict=True):
            found.setdefault(text(self.buffer, a, b), []).append(names[row])
        return found

    def alike(self, opcode: str, types: tuple[object, ...]) -> list[str]:
        """Return the names of the instructions of this opcode with these types and shapes (`_types`)."""
        if opcode not in self.by_types:
            found = self.by_types[opcode] = {}
            for name in self.by_opcode.get(opcode, ()):
                found.setdefault(_types(self, parse(self, *self.by_name[name])), []).append(name)
        return self.by_types[opcode].get(types, [])

    def parts(self, hlo: HloInstruction) -> list[tuple[str, str, tuple[int, ...]]]:
        """Return what an instruction calls (`_parts`), which is looked up once for each."""
        if hlo.name not in self.called:
            self.called[hlo.name] = _parts(hlo)
        return self.called[hlo.name]

    def __post_init__(self) -> None:
        self.listings = _LISTINGS * (len(self.by_id) + _LISTINGS)
        self.within = _WITHIN * (len(self.by_id) + _WITHIN)
        self.operands = limits.MEAN_OPERANDS * (len(self.by_id) + limits.MEAN_OPERANDS)


class Modules:
    """All modules of a trace. An instruction is found by program id and name, else by the module's name,
    where that leads to one module."""

    def __init__(self, planes: Sequence[RawPlane]) -> None:
        self._planes = [plane for plane in planes if plane.name.startswith("/host:metadata")]
        self._extents: dict[tuple[str, int], Place | None] | None = None  # None: several differ
        self._by_name: dict[str, Place | None] = {}
        self._modules: dict[int, Module] = {}

    def __bool__(self) -> bool:
        """Return whether the trace may hold any module."""
        return bool(self._planes)

    def places(self) -> list[tuple[str, int, tuple[Bytes, int, int]]]:
        """Return the name, the program id and the place of the HloProto of every module."""
        self._find("", -1)
        found = (self._extents or {}).items()
        return [(name, id, place[:3]) for (name, id), place in found if name and place]

    def instruction(self, module: str, program: int, name: str) -> HloInstruction | None:
        """Return the instruction, or None where the trace holds no such module or instruction."""
        index = self._indexed(self._find(module, program))
        name = name.removeprefix("%")
        if index is None or name not in index.by_name:
            return None
        if name not in index.built:
            index.built[name] = build(index, parse(index, *index.by_name[name]), 0)
        return index.built[name]

    def of_kernel(self, module: str, program: int, kernel: str) -> tuple[str, int, str] | None:
        """Return the module, the program and the name of the instruction whose kernel is called so.
        Without module and program, search all modules in the trace; return the instruction if only one
        module has it."""
        kernel = kernel.removesuffix(".kd")  # as AMD's compiler ends the names of kernels
        if module or program >= 0:
            index = self._indexed(self._find(module, program))
            own = index.by_kernel.get(kernel) if index else None
            return (module, program, own) if own else None
        self._find("", -1)
        found = []
        for (name, id), place in (self._extents or {}).items():
            index = self._indexed(place) if name else None
            if index and kernel in index.by_kernel:
                found.append((name, id, index.by_kernel[kernel]))
        return found[0] if len(found) == 1 else None

    def equal_to(self, module: str, program: int, name: str) -> list[str]:
        """Return the names of the instructions that may share their kernel with this one, itself included:
        all of the same types and shapes, made of the same parts. Empty where it is not found."""
        own = self.instruction(module, program, name)
        index = self._indexed(self._find(module, program))
        if own is None or index is None:
            return []
        types = (own.dtype, own.shape, own.operand_dtypes, own.operand_shapes)
        found = [
            (other, self.instruction(module, program, other)) for other in index.alike(own.opcode, types)
        ]
        parts = index.parts(own)
        return [other for other, hlo in found if hlo is not None and index.parts(hlo) == parts]

    def library_calls(self, module: str, program: int) -> list[str]:
        """Return the names of the instructions that call a library, whose kernels have names of their own."""
        index = self._indexed(self._find(module, program))
        if index is None:
            return []
        fusions = index.by_opcode.get("fusion", ())
        own = [n for n in fusions if _CUDNN in parse(index, *index.by_name[n]).backend_config]
        return [*index.by_opcode.get("custom-call", ()), *own]

    def _indexed(self, place: Place | None) -> Module | None:
        if place is None:
            return None
        if place[1] not in self._modules:
            self._modules[place[1]] = index_of(*place)
        return self._modules[place[1]]

    def _find(self, module: str, program: int) -> Place | None:
        if self._extents is None:
            self._extents = {}
            for plane in self._planes:
                self._list(plane)
        return (
            self._extents.get((module, program))
            or self._extents.get(("", program))
            or self._by_name.get(module)
        )

    def _list(self, plane: RawPlane) -> None:
        """Find where the protos lie. The plane's event metadata is one module each: its id is the program,
        its name `module(program)`."""
        assert self._extents is not None
        starts, ends, owner = plane.metadata_stats
        stats = walk.scan(plane.buffer, starts, ends, 1 << 1 | 1 << 6)
        wanted = {id for name in _NAMES if (id := plane.stat_ids.get(name)) is not None}
        keys = {
            int(parent): int(value)
            for parent, number, value in zip(stats.parent, stats.number, stats.value, strict=True)
            if number == 1
        }
        for parent, number, value, size in zip(
            stats.parent.tolist(),
            stats.number.tolist(),
            stats.value.tolist(),
            stats.size.tolist(),
            strict=True,
        ):
            if number != 6 or size < 0 or keys.get(parent) not in wanted:
                continue
            row = int(owner[parent])
            full, program = plane.metadata_names[row], int(plane.metadata_ids[row])
            name = full.rpartition("(")[0] or full
            where = (plane.buffer, value, value + size, program)
            for key in {(name, program), ("", program)}:
                self._extents[key] = _one(self._extents[key], where) if key in self._extents else where
            for known in {name, full}:
                self._by_name[known] = _one(self._by_name[known], where) if known in self._by_name else where


_CUDNN = "__cudnn$fusion"
"""In the configuration of a fusion that cuDNN compiles."""


def _types(module: Module, made: Instruction) -> tuple[object, ...]:
    """Return type and shape of an instruction's result, and those of its operands."""
    operands = [
        parse(module, *module.by_id[id]).shape.array if id in module.by_id else Shape()
        for id in made.operands
    ]
    shape = made.shape.array
    return shape.dtype, shape.dims, tuple(o.dtype for o in operands), tuple(o.dims for o in operands)


def _parts(hlo: HloInstruction) -> list[tuple[str, str, tuple[int, ...]]]:
    """Return opcode, type and shape of all that an instruction calls, in no order that the compiler chose."""
    inner = [(one.opcode, one.dtype, one.shape) for one in hlo.called]
    return sorted(inner + [part for one in hlo.called for part in _parts(one)])


def _one(known: Place | None, other: Place) -> Place | None:
    """Return the place of a module that is stated twice; None where the two differ, because it is not known
    which is meant."""
    if known is None or known is other:
        return known
    (buffer, start, end, _), (others, begin, stop, _) = known, other
    same = stop - begin == end - start and np.array_equal(buffer[start:end], others[begin:stop])
    return known if same else None


def index_of(buffer: Bytes, start: int, end: int, program: int = -1) -> Module:
    proto = walk.scan(buffer, one(start), one(end), 1 << 1)
    module_start, module_end, _ = extents(proto, 1)
    module = walk.scan(buffer, module_start, module_end, 1 << 1 | 1 << 3 | 1 << 17)
    names, name_ends, _ = extents(module, 1)
    starts, ends, _ = extents(module, 3)
    computation = walk.scan(buffer, starts, ends, 1 << 2 | 1 << 5)
    ids = np.zeros(len(starts), np.int64)
    stated = (computation.number == 5) & (computation.wire == 0)
    ids[computation.parent[stated]] = computation.value[stated]
    begin, stop, owner = extents(computation, 2)
    instruction = walk.scan(buffer, begin, stop, 1 << 1 | 1 << 35)
    own = np.zeros(len(begin), np.int64)
    stated = (instruction.number == 35) & (instruction.wire == 0)
    own[instruction.parent[stated]] = instruction.value[stated]
    spans = list(zip(begin.tolist(), stop.tolist(), strict=True))
    computations: dict[int, list[tuple[int, int]]] = {id: [] for id in ids.tolist()}
    for span, parent in zip(spans, owner.tolist(), strict=True):
        computations[int(ids[parent])].append(span)
    by_name = {}
    texts, text_ends, named = extents(instruction, 1)
    for a, b, parent in zip(texts.tolist(), text_ends.tolist(), named.tolist(), strict=True):
        by_name[text(buffer, a, b)] = spans[parent]
    name = text(buffer, int(names[0]), int(name_ends[0])) if len(names) else ""
    at, to, _ = extents(module, 17)
    return Module(
        buffer, name, program, by_name, dict(zip(own.tolist(), spans, strict=True)), computations,
        stacks_at=(int(at[0]), int(to[0])) if len(at) else None,
    )  # fmt: skip


def parse(module: Module, start: int, end: int) -> Instruction:
    if start in module.parsed:
        return module.parsed[start]
    buffer = module.buffer
    fields = walk.fields(buffer, start, end)
    made = Instruction()
    for number, wire, value, size in fields:
        stop = value + size
        if wire == 0 and number == 35:
            made.id = value
        elif wire != 2:
            continue
        elif number == 1:
            made.name = text(buffer, value, stop)
        elif number == 2:
            made.opcode = text(buffer, value, stop)
        elif number == 3:
            made.shape = _shape(buffer, value, stop)
        elif number == 7:
            made.op_name, made.line = _metadata(module, walk.fields(buffer, value, stop))
        elif number == 15:
            made.window = walk.fields(buffer, value, stop)
        elif number == 16:
            made.convolution = walk.fields(buffer, value, stop)
        elif number == 28:
            made.custom_call = text(buffer, value, stop)
        elif number == 30:
            made.dot = walk.fields(buffer, value, stop)
        elif number == 51:
            made.precision = _precision(buffer, walk.fields(buffer, value, stop))
        elif number == 43:
            made.backend_config = text(buffer, value, min(stop, value + (1 << 16)))
    made.operands = varints(buffer, fields, 36)[: module.operands]
    module.operands -= len(made.operands)
    made.called = varints(buffer, fields, 38)
    module.parsed[start] = made
    return made


def _metadata(module: Module, fields: list[Field]) -> tuple[str, str]:
    """Return the op's name and the user's line of code that an OpMetadata states, "" for what it does not:
    by its stack where the module has one, else by its one file and line (xla_data.proto)."""
    name = file = ""
    line = frame = 0
    for number, wire, value, size in fields:
        if (number, wire) == (2, 2):
            name = text(module.buffer, value, value + size)
        elif (number, wire) == (3, 2):
            file = text(module.buffer, value, value + size)
        elif (number, wire) == (4, 0):
            line = value
        elif (number, wire) == (15, 0):
            frame = value
    if frame and frame not in module.lines:
        module.lines[frame] = own_line(module.stacks.of(frame), told=module.stacks.told)
    return name, module.lines.get(frame, "") or own_line([(file, line)])


@frozen(slots=False)
class Stacks:
    """A module's StackFrameIndexProto. Ids count from 1; 0 stands for none."""

    files: tuple[str, ...] = ()
    places: tuple[tuple[int, int], ...] = ()  # id of a file, line
    frames: tuple[tuple[int, int], ...] = ()  # id of a place, id of the frame that called it

    @cached_property
    def told(self) -> bool:
        """Whether files of installed packages are marked as such."""
        return any(map(installed, self.files))

    def of(self, frame: int) -> Iterator[tuple[str, int]]:
        """Yield file and line of a frame and of those around it, innermost first."""
        for _ in range(_DEEPEST_STACK):
            if not 0 < frame <= len(self.frames):
                return
            place, frame = self.frames[frame - 1]
            if 0 < place <= len(self.places):
                file, line = self.places[place - 1]
                yield (self.files[file - 1] if 0 < file <= len(self.files) else ""), line


def _stacks(buffer: Bytes, start: int, end: int) -> Stacks:
    files: list[str] = []
    pairs: dict[int, list[tuple[int, int]]] = {3: [], 4: []}
    wanted = {3: (1, 3), 4: (1, 2)}  # of a place its file and line, of a frame its place and caller
    for number, wire, value, size in walk.fields(buffer, start, end):
        if (number, wire) == (1, 2):
            files.append(text(buffer, value, value + size))
        elif wire == 2 and number in pairs and len(pairs[number]) < limits.MOST_INSTRUCTIONS:
            found = {n: v for n, w, v, _ in walk.fields(buffer, value, value + size) if w == 0}
            first, second = wanted[number]
            pairs[number].append((found.get(first, 0), found.get(second, 0)))
    return Stacks(tuple(files), tuple(pairs[3]), tuple(pairs[4]))


def build(module: Module, made: Instruction, depth: int) -> HloInstruction:
    operands = [
        parse(module, *module.by_id[id]).shape.array if id in module.by_id else Shape()
        for id in made.operands
    ]
    inner: list[HloInstruction] = []
    if depth < _DEEPEST_CALL and made.opcode in ("fusion", "call", "async-start"):
        for computation in made.called:
            for span in module.computations.get(computation, ()):
                if len(inner) >= _MAX_CALLED or module.listings <= 0:
                    break
                module.listings -= 1
                key = (span[0], depth + 1)
                if key not in module.inside:
                    listed = build(module, parse(module, *span), depth + 1)
                    module.inside[key] = listed
                    module.weights[id(listed)] = 1 + sum(module.weights[id(one)] for one in listed.called)
                if (weight := module.weights[id(module.inside[key])]) > module.within:
                    break
                module.within -= weight
                inner.append(module.inside[key])
    flops = _flops(module.buffer, made, operands)
    if flops is None and inner:
        known = [i.flops for i in inner if i.flops is not None]
        flops = sum(known) if known else None
    shape = made.shape.array
    return HloInstruction(
        module=module.name,
        name=made.name,
        opcode=made.opcode,
        op_name=made.op_name,
        dtype=shape.dtype,
        shape=shape.dims,
        operand_dtypes=tuple(o.dtype for o in operands),
        operand_shapes=tuple(o.dims for o in operands),
        called=tuple(inner),
        custom_call=made.custom_call,
        flops=flops,
        operands=sources(module, made) if depth == 0 else (),
        precision=made.precision,
        program=module.program,
        line=made.line or next((one.line for one in inner if one.line), ""),
    )


def _precision(buffer: Bytes, config: list[Field]) -> str:
    """Return the highest precision that a PrecisionConfig asks for one of the operands (xla_data.proto)."""
    asked = max(varints(buffer, config, 1), default=-1)
    return {0: "default", 1: "high", 2: "highest"}.get(asked, "")


def sources(module: Module, made: Instruction) -> tuple[str, ...]:
    """Return the names of the instructions whose work `made` reads, seen through those that only pass a value
    on."""
    names = []
    for id in made.operands:
        for _ in range(_DEPTH):
            if id not in module.by_id:
                break
            source = parse(module, *module.by_id[id])
            if source.opcode not in ("get-tuple-element", "bitcast") or not source.operands:
                names.append(source.name)
                break
            id = source.operands[0]
    return tuple(names)


def _flops(buffer: Bytes, made: Instruction, operands: Sequence[Shape]) -> float | None:
    """Return the FLOPs of a dot, a convolution, or a library call that is one; None for everything else."""
    if made.opcode == "dot" and made.dot is not None and operands:
        return _dot_flops(made.shape.array.dims, operands[0].dims, varints(buffer, made.dot, 1))
    if made.opcode == "convolution" and len(operands) > 1:
        return _convolution_flops(buffer, made, made.shape.array.dims, operands[1].dims)
    if made.opcode == "custom-call" and operands:
        target = made.custom_call.lower()
        if "gemm" in target or "matmul" in target:
            contracting = _contracting(made.backend_config)
            if contracting is not None:
                return _dot_flops(made.shape.array.dims, operands[0].dims, contracting)
        if "__cudnn$conv" in target and len(operands) > 1:
            return _cudnn_flops(buffer, made, operands)
    return None


def _dot_flops(result: Sequence[int], left: Sequence[int], contracting: Sequence[int]) -> float | None:
    if len(contracting) > _MAX_RANK or any(not 0 <= d < len(left) for d in contracting):
        return None
    return 2.0 * prod(result) * prod(left[d] for d in contracting)


def _convolution_flops(
    buffer: Bytes, made: Instruction, result: Sequence[int], kernel: Sequence[int]
) -> float | None:
    """Return 2 x outputs x taps x input features per group (the kernel's own input feature dimension)."""
    if made.convolution is None:
        return None
    feature = next((v for n, w, v, _ in made.convolution if (n, w) == (3, 0)), 0)
    spatial = varints(buffer, made.convolution, 6)
    if len(spatial) > _MAX_RANK or any(not 0 <= d < len(kernel) for d in (feature, *spatial)):
        return None
    return 2.0 * prod(result) * kernel[feature] * prod(kernel[d] for d in spatial)


def _cudnn_flops(buffer: Bytes, made: Instruction, operands: Sequence[Shape]) -> float | None:
    """Return the FLOPs of a cuDNN convolution: the two gradients do the work of the forward convolution, with
    the roles of the tensors exchanged."""
    result, target = made.shape.array.dims, made.custom_call
    if "BackwardInput" in target:
        return _convolution_flops(buffer, made, operands[0].dims, operands[1].dims)
    if "BackwardFilter" in target:
        return _convolution_flops(buffer, made, operands[1].dims, result)
    return _convolution_flops(buffer, made, result, operands[1].dims)


def _contracting(config: str) -> list[int] | None:
    """Return the contracted dimensions of a library gemm's left side, from its `backend_config`."""
    try:
        stated = json.loads(config)
    except (ValueError, RecursionError):
        return None
    stated = stated.get("gemm_backend_config", stated) if isinstance(stated, dict) else {}
    dims = stated.get("dot_dimension_numbers") if isinstance(stated, dict) else None
    listed = dims.get("lhs_contracting_dimensions") if isinstance(dims, dict) else None
    digits = [str(d) for d in listed] if isinstance(listed, list) else [""]
    return [int(d) for d in digits] if all(re.fullmatch(_DIGIT, d) for d in digits) else None


# --- the line of the user's own code that a work comes from -------------------------------------------------

_OF_OTHERS = re.compile(rf"(?:^|/)(?:{INSTALLED})/".replace("/", r"[/\\]"))
_OVERWRITTEN = re.compile(r"[/\\]?(?:x+[/\\])+[^/\\]*$")
"""Where a bundle took the folder out: whose code it is shows only beside files that are left as installed."""
_FOLDERS = re.compile(r".*[/\\]", re.DOTALL)
_LONGEST = 200


def installed(file: str) -> bool:
    """Return whether a file is known to be of an installed package or of Python."""
    return _OF_OTHERS.search(file) is not None


def own_line(frames: Iterable[tuple[str, int]], *, told: bool = False) -> str:
    """Return `model.py:37` of the first of these (file, line), innermost first, that is in no installed
    package; "" where none is. The folder of the file is left out: it says whose machine it was. `told`:
    files of packages are marked as such even where folders were overwritten."""
    for file, line in frames:
        if (
            file
            and line > 0
            and file[0] != "<"
            and not installed(file)
            and (told or not _OVERWRITTEN.match(file))
        ):
            return f"{_FOLDERS.sub('', file)[-_LONGEST:]}:{line}"
    return ""
