"""Damage to protobuf messages that keeps their frame: fields are changed, and the lengths around them are
right again, so that a reader gets far enough to meet them."""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache

from tests.builders.xspace import tagged_bytes, varint

NUMBERS = (
    0,
    1,
    2,
    3,
    -1,
    127,
    128,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
    2**61,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
TEXTS = (
    b"", b"\xff\xfe", b"\xed\xa0\x80", b"/device:GPU:0", b"/host:CPU", b"/host:metadata", b"Steps", b"a" * 3000,
    b"/device:GPU:99999999999", b"/device:TPU:1", b"hlo_proto", b"correlation_id", b"kernel_details", b"group_id",
    b"size:" + b"9" * 30, b"grid:1,1,1 block:" + b"7" * 25, b"(f32[" + b"9" * 30 + b"])", b"x/" * 300, b"fusion", b"dot",
    b'{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["\xc2\xb2"]}}}',
    b"[" * 2000, b"%", b"Profiled batch 99999999999999999999", b"custom-call", b"__cublas$gemm", b"while", b"\x00",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """A field `depth` messages down; `raw` is the whole of it, tag included."""

    number: int
    wire: int
    payload: bytes
    depth: int
    raw: bytes

    @property
    def inner(self) -> tuple[Field, ...]:
        """Its message's fields where it is one; of most fields nobody asks."""
        return fields_of(self.payload, self.depth + 1) if self.wire == 2 and self.depth < 12 else ()


@lru_cache(maxsize=64)
def fields_of(data: bytes, depth: int = 0) -> tuple[Field, ...]:
    """All fields, empty where the bytes are no message."""
    found, at = [], 0
    while at < len(data):
        begin = at
        tag, at = _varint(data, at)
        size = 0
        if tag & 7 == 0:
            start = at
            _, at = _varint(data, at)
        elif tag & 7 == 2:
            size, start = _varint(data, at)
            at = start + size
        elif tag & 7 in (1, 5):
            start, at = at, at + (8 if tag & 7 == 1 else 4)
        else:
            return ()
        if at > len(data) or not 0 < tag >> 3 < 100:
            return ()
        found.append(Field(tag >> 3, tag & 7, data[start:at], depth, data[begin:at]))
    return tuple(found)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if data[at - 1] < 0x80:
            return value, at
    return 0, len(data) + 1


def changed(dice: random.Random, data: bytes) -> bytes:
    """One to four fields of the message changed."""
    for _ in range(dice.choice((1, 1, 2, 4))):
        data = _within(dice, fields_of(data)) or data
    return data


def _within(dice: random.Random, fields: tuple[Field, ...]) -> bytes:
    if not fields:
        return b""
    at = dice.randrange(len(fields))
    field = fields[at]
    # Down to where the leaves are: a field of the outermost message is one of hundreds only.
    if (inner := field.inner) and dice.random() < 0.85:
        made = tagged_bytes(field.number, _within(dice, inner))
    else:
        made = _one(dice, field, fields)
    return b"".join((*(f.raw for f in fields[:at]), made, *(f.raw for f in fields[at + 1 :])))


def _one(dice: random.Random, field: Field, beside: tuple[Field, ...]) -> bytes:
    tag = varint(field.number << 3 | field.wire)
    match dice.randrange(9):
        case 0:
            return b""
        case 1:
            return field.raw * dice.choice((2, 3, 50))
        case 2:
            return field.raw + dice.choice(beside).raw
        case 3:
            return (
                varint(dice.choice((0, 1, 2, 3, 4, 5, 7, 15, 2**29, 2**32)) << 3 | field.wire) + field.raw[1:]
            )
        case 4 if field.wire == 2:  # a length that is not the payload's
            size = dice.choice(
                (0, len(field.payload) + 1, 2**31, 2**62, 2**63, 2**64 - 1, max(0, len(field.payload) - 1))
            )
            return tag + varint(size) + field.payload
        case 5 if field.wire == 2:
            return tagged_bytes(field.number, dice.choice(TEXTS))
        case 6 if field.wire == 2:  # into itself, again and again
            inner = field.payload
            for _ in range(dice.choice((1, 5, 60))):
                inner = tagged_bytes(field.number, inner)
            return tagged_bytes(field.number, inner)
        case 7:
            return tag + b"\x80" * 11 + b"\x01"
        case _ if field.wire == 0:
            return tag + varint(dice.choice(NUMBERS))
        case _:
            return tagged_bytes(field.number, dice.choice(beside).payload)
