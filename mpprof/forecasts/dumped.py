"""What XLA dumps as it compiles a train step: the matrix instructions of its kernels, and what is live at the
peak; and the program itself, as it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

MATRIX_INSTRUCTIONS = re.compile(r"\b(?:wgmma\.mma_async|mma\.sync|wmma\.mma|tcgen05\.mma)(?:\.[a-z0-9_:]+)*")
"""The PTX instructions of the matrix units (PTX ISA 9.0, section on warp-level, warpgroup-level and
tensor-core 5th-generation matrix instructions)."""

_ENTRY = re.compile(r"\.entry\s+([A-Za-z0-9_$]+)")
_THUNK = re.compile(r"^\s*(\d+):\s+k(?:CustomKernel|Kernel)\s.*?\]\s+(\S+)", re.MULTILINE)
_ANNOTATED = re.compile(r'profile_annotation:\s+"([^"]+)"\s+thunk_id:\s+(\d+)')
MODULE = "jit_train_step"


def alive(dump: Path, modules: Sequence[str]) -> list[tuple[str, str, int]]:
    """Return what XLA's own account holds alive at the peak, without the program's arguments: name of the
    instruction, type and bytes, largest first. What is too little to tell stands last, without a name."""
    found: list[tuple[str, str, int]] = []
    for module in modules:
        types: dict[tuple[str, str], str] = {}
        for path in dump.glob(f"{module}.{MODULE}.*buffer-assignment.txt"):
            types |= {(name, part or ""): dtype for name, part, dtype in _VALUE.findall(path.read_text())}
        for path in dump.glob(f"{module}.{MODULE}.*live-range.txt"):
            for listed in _PEAK.findall(path.read_text()):
                found += [
                    (name, types.get((name, part), ""), int(size))
                    for name, part, size in _ALIVE.findall(listed)
                    if not _ARGUMENT.match(name)
                ]
    least = sum(size for *_, size in found) * _LEAST_ALIVE
    kept = sorted((one for one in found if one[2] >= least), key=lambda one: -one[2])
    rest = sum(size for *_, size in found) - sum(size for *_, size in kept)
    return [*kept, ("", "", rest)] if rest else kept


_PEAK = re.compile(r"^ *Live ranges at \d+ \(peak\):\n((?: +.+: \d+ bytes .*\n)*)", re.MULTILINE)
_ALIVE = re.compile(r"^ +(\S+?)\{([\d,]*)\}: (\d+) bytes", re.MULTILINE)
_VALUE = re.compile(
    r"^ value: <\d+ (\S+?)(?:\{([\d,]*)\})? @\d+> \(size=\d+,offset=\d+\): (\w+)\[", re.MULTILINE
)
_ARGUMENT = re.compile(r"(?:state|data)_\d")  # as `train_step` names what it is given
_LEAST_ALIVE = 0.001


def has_own_products(path: Path) -> bool:
    """Return whether Triton compiles any product of the program (the kinds of its fusions:
    xla/service/gpu)."""
    return re.search(rb"__triton_(?:nested_)?gemm", path.read_bytes()) is not None


def modules_in(dump: Path) -> list[str]:
    return [path.name.split(".", 1)[0] for path in dump.glob(f"*.{MODULE}.*thunk_sequence.txt")]


def kernels(dump: Path, modules: Sequence[str]) -> dict[str, list[str]]:
    """Return the matrix instructions in the PTX of each instruction's kernel, by the instruction's name. An
    instruction that is not listed has no kernel of XLA's own."""
    found: dict[str, list[str]] = {}
    for module in modules:
        by_entry: dict[str, list[str]] = {}
        for path in dump.glob(f"{module}.{MODULE}.*ptx"):
            text = path.read_text(errors="replace")
            entries = _ENTRY.findall(text)
            used = sorted(set(MATRIX_INSTRUCTIONS.findall(text)))
            for entry in entries:
                by_entry[entry] = used if len(entries) == 1 else _of_entry(text, entry)
        kernel_of: dict[int, str] = {}
        for path in dump.glob(f"{module}.{MODULE}.thunk_sequence.txt"):
            kernel_of |= {int(id): kernel for id, kernel in _THUNK.findall(path.read_text())}
        for path in dump.glob(f"{module}.{MODULE}.thunk_metadata.txt"):
            for instruction, id in _ANNOTATED.findall(path.read_text()):
                kernel = kernel_of.get(int(id))
                if kernel in by_entry:
                    found[instruction] = by_entry[kernel]
    return found


def _of_entry(text: str, entry: str) -> list[str]:
    """Return the instructions between this entry and the next."""
    begin = re.search(rf"\.entry\s+{re.escape(entry)}\b", text)
    assert begin is not None
    after = _ENTRY.search(text, begin.end())
    return sorted(set(MATRIX_INSTRUCTIONS.findall(text[begin.end() : after.start() if after else len(text)])))


_STACK_FRAMES = 17
"""`HloModuleProto.stack_frame_index`: paths of this machine's files, which nothing here reads."""


def hlo_proto(module: bytes) -> bytes:
    """Return an HloProto around an HloModuleProto (field 1), without the paths of source files."""
    kept = b"".join(field for number, field in _split(module) if number != _STACK_FRAMES)
    return b"\x0a" + _varint(len(kept)) + kept


def _split(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the fields of a protobuf message, each with its bytes as they stand there."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _read_varint(message, at)
        wire = key & 7
        if wire == 2:
            size, at = _read_varint(message, at)
            at += size
        elif wire == 0:
            _, at = _read_varint(message, at)
        else:
            at += 8 if wire == 1 else 4
        yield key >> 3, message[begin:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _varint(value: int) -> bytes:
    made = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        made.append(low | (0x80 if value else 0))
        if not value:
            return bytes(made)
