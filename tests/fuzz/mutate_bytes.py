"""Damage that knows nothing of a format: bytes changed, cut off, left out, repeated, put elsewhere."""

from __future__ import annotations

import gzip
import random
import zlib
from functools import cache

HOSTILE = (
    b"\x00", b"\xff", b"\xff\xff\xff\xff", b"\x80" * 12, b"\x7f", b"\xed\xa0\x80", b"\xc3", b"\xf8\x88",
    b"NaN", b"Infinity", b"-1", b"1e999", b"9" * 40, b"9" * 5000, b'"', b"{", b"}", b"[", b"]", b",", b"\n", b"\r",
    b"null", b"[" * 3000, b'{"a":' * 400, b"-9223372036854775808", b"18446744073709551616", b"\\ud800", b"\x1f\x8b",
)  # fmt: skip


def changed(dice: random.Random, data: bytes, at_most: int = 8) -> bytes:
    """One to `at_most` changes, most often one."""
    made = bytearray(data)
    for _ in range(min(dice.choice((1, 1, 1, 2, 4, 16)), at_most)):
        if not made:
            return b"\n"
        at = dice.randrange(len(made))
        end = at + min(len(made), 1 << dice.randrange(10))
        match dice.randrange(8):
            case 0:
                made[at] = dice.randrange(256)
            case 1:
                made[at] ^= 1 << dice.randrange(8)
            case 2:
                made[at:at] = dice.choice(HOSTILE)
            case 3:
                piece = dice.choice(HOSTILE)
                made[at : at + len(piece)] = piece
            case 4:
                del made[at:end]
            case 5:
                made[at:at] = made[at:end]
            case 6:
                to = dice.randrange(len(made))
                made[to : to + end - at] = made[at:end]
            case _:
                made[at:end] = dice.randbytes(min(end - at, 8))
    return bytes(made)


def cut(dice: random.Random, data: bytes) -> bytes:
    """The beginning of the file, at least a byte."""
    return data[: dice.randrange(1, len(data))]


def spliced(dice: random.Random, data: bytes, other: bytes) -> bytes:
    """The beginning of one file and the end of another."""
    return data[: dice.randrange(len(data))] + other[dice.randrange(len(other)) :]


@cache
def _zeros() -> bytes:
    return gzip.compress(b"\0" * (3 << 20), 9, mtime=0)


def packed(dice: random.Random, data: bytes) -> bytes:
    """A gzip file of the data that is whole, damaged, cut off, in several members, or swells to megabytes."""
    made = gzip.compress(data, 1, mtime=0)
    match dice.randrange(6):
        case 0:
            return made
        case 1:
            return cut(dice, made)
        case 2:
            return made + dice.choice((_zeros(), made, b"garbage", b"\0" * 100, gzip.compress(b"", mtime=0)))
        case 3:
            raw = zlib.compressobj(0, wbits=zlib.MAX_WBITS | 16)  # stored, so that a change keeps its place
            return changed(dice, raw.compress(data) + raw.flush())
        case _:
            return changed(dice, made)
