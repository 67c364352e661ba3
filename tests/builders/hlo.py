"""Writes the HLO protos that XLA leaves in a trace, byte by byte: as little of them as a profiler reads.

Field numbers: xla/service/hlo.proto, xla/xla_data.proto. Nothing here imports mpprof.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.builders.xspace import tagged_bytes, tagged_varint

PROGRAM = 17
_TYPES = {"pred": 1, "s32": 4, "f16": 10, "f32": 11, "bf16": 16}

Tensor = tuple[str, tuple[int, ...]]  # ("f16", (64, 112, 112, 64))


@dataclass(frozen=True)
class Instruction:
    """One instruction. `inside`: what a fusion computes, in order. `contracting`: of a library gemm. `reads`:
    the instructions before it whose results are its first operands; the others are parameters."""

    name: str
    opcode: str
    result: Tensor
    operands: tuple[Tensor, ...] = ()
    op_name: str = ""
    custom_call: str = ""
    inside: tuple[Instruction, ...] = field(default=())
    contracting: int | None = None
    reads: tuple[str, ...] = ()
    stack: tuple[tuple[str, int], ...] = ()  # (file, line) that it comes from, innermost first
    source: tuple[str, int] = ("", 0)  # the one file and line that older programs state


def metadata_plane(
    module: str, instructions: Sequence[Instruction], proto: bytes = b"", assignment: bytes = b""
) -> bytes:
    """The plane `/host:metadata` with one module: `proto`, or its instructions with a parameter for every
    operand, and a buffer assignment."""
    distinct = {each.name: each for each in instructions}
    proto = proto or tagged_bytes(1, _Module(module, tuple(distinct.values())).to_bytes())
    proto += tagged_bytes(3, assignment) if assignment else b""
    about = tagged_varint(1, PROGRAM) + tagged_bytes(2, f"{module}({PROGRAM})".encode())
    about += tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(6, proto))
    named = tagged_varint(1, 1) + tagged_bytes(2, b"hlo_proto")
    return (
        tagged_bytes(2, b"/host:metadata")
        + tagged_bytes(4, tagged_varint(1, PROGRAM) + tagged_bytes(2, about))
        + tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(2, named))
    )


@dataclass
class _Module:
    name: str
    instructions: tuple[Instruction, ...]
    ids: int = 100
    computations: list[bytes] = field(default_factory=list)
    made: dict[str, int] = field(default_factory=dict)  # ids by name
    files: list[bytes] = field(default_factory=list)
    places: list[bytes] = field(default_factory=list)
    frames: list[bytes] = field(default_factory=list)

    def to_bytes(self) -> bytes:
        entry = self._computation("main", self.instructions)
        body = tagged_bytes(1, self.name.encode()) + tagged_bytes(2, b"main")
        body += b"".join(tagged_bytes(3, computation) for computation in self.computations)
        stacks = [(1, self.files), (3, self.places), (4, self.frames)]
        index = b"".join(tagged_bytes(number, each) for number, rows in stacks for each in rows)
        return body + tagged_varint(6, entry) + (tagged_bytes(17, index) if index else b"")

    def _frame(self, stack: Sequence[tuple[str, int]]) -> int:
        """The id of the innermost frame of a stack; 0 for none."""
        caller = 0
        for file, line in reversed(stack):
            self.files.append(file.encode())
            self.places.append(tagged_varint(1, len(self.files)) + tagged_varint(3, line))
            self.frames.append(tagged_varint(1, len(self.places)) + tagged_varint(2, caller))
            caller = len(self.frames)
        return caller

    def _id(self) -> int:
        self.ids += 1
        return self.ids

    def _computation(self, name: str, instructions: Sequence[Instruction]) -> int:
        own, members = self._id(), b""
        for instruction in instructions:
            members += self._instruction(instruction)
        body = tagged_bytes(1, name.encode()) + members + tagged_varint(5, own)
        self.computations.append(body)
        return own

    def _instruction(self, made: Instruction) -> bytes:
        """With its operands as parameters before it."""
        parameters, operands = b"", b""
        for at, tensor in enumerate(made.operands):
            if at < len(made.reads):
                operands += tagged_varint(36, self.made[made.reads[at]])
                continue
            own = self._id()
            body = head(f"{made.name}.p{at}", "parameter", tensor, "") + tagged_varint(35, own)
            parameters += tagged_bytes(2, body)
            operands += tagged_varint(36, own)
        body = head(made.name, made.opcode, made.result, made.op_name, self._frame(made.stack), made.source)
        body += tagged_bytes(28, made.custom_call.encode()) if made.custom_call else b""
        if "$conv" in made.custom_call:
            body += tagged_bytes(16, _CONVOLUTION)
        if made.contracting is not None:
            config = {"dot_dimension_numbers": {"lhs_contracting_dimensions": [str(made.contracting)]}}
            body += tagged_bytes(43, json.dumps({"gemm_backend_config": config}).encode())
        self.made[made.name] = self._id()
        body += tagged_varint(35, self.made[made.name]) + operands
        if made.inside:
            body += tagged_varint(38, self._computation(f"fused_{made.name}", made.inside))
        return parameters + tagged_bytes(2, body)


# NHWC images, HWIO filters: the filter's input features are axis 2, its spatial axes 0 and 1.
_CONVOLUTION = tagged_varint(3, 2) + tagged_varint(4, 3) + tagged_varint(6, 0) + tagged_varint(6, 1)


def head(
    name: str, opcode: str, result: Tensor, op_name: str, frame: int = 0, source: tuple[str, int] = ("", 0)
) -> bytes:
    """The first fields of an instruction."""
    dtype, dims = result
    shape = tagged_varint(2, _TYPES[dtype]) + b"".join(tagged_varint(3, d) for d in dims)
    body = tagged_bytes(1, name.encode()) + tagged_bytes(2, opcode.encode()) + tagged_bytes(3, shape)
    about = tagged_bytes(2, op_name.encode()) if op_name else b""
    about += tagged_varint(15, frame) if frame else b""
    about += tagged_bytes(3, source[0].encode()) + tagged_varint(4, source[1]) if source[0] else b""
    return body + (tagged_bytes(7, about) if about else b"")
