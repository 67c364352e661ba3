"""A gzip stream part by part; of a damaged one, what it holds up to the damage."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from mpprof.errors import UnreadableError
from mpprof.model import limits

_PACKED, _UNPACKED = 1 << 16, 1 << 20
"""Bytes that are given and taken at a time. What follows a member is copied for each: few are given."""
_STEPS = (1 << 10, 1)
"""Packed bytes given at a time: some, then one by one, because a call in which zlib fails gives none."""


def parts(file: BinaryIO, path: Path, damages: list[str]) -> Iterator[bytes]:
    """Yield the unpacked bytes of all members. Raises UnreadableError where these are more than a file of its
    size has."""
    most = max(limits.MEMBERS_OF_SMALL_PACKED, path.stat().st_size // limits.PACKED_BYTES_OF_MEMBER)
    members, total, problem = 1, 0, ""
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    packed = file.read(_PACKED)
    try:
        while packed:
            before = stream.copy()
            part = stream.decompress(packed, _UNPACKED)
            total += len(part)
            if part:
                yield part
            packed = stream.unconsumed_tail or stream.unused_data or file.read(_PACKED)
            if stream.eof and packed:  # several members in a row are one file
                stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
                members += 1
                if members > most:
                    raise UnreadableError(
                        f"is packed in more than {most:,} parts", where=str(path),
                        next="If it is a trace, unpack it with gunzip and read the result.",
                    )  # fmt: skip
        problem = "" if stream.eof else "it ends too early"
    except zlib.error as error:
        problem = str(error)
        if part := _before_damage(before, packed):
            total += len(part)
            yield part
    if problem:
        damages.append(f"the compressed file is damaged after {total} unpacked bytes: {problem}")


def _before_damage(stream: Any, packed: bytes) -> bytes:
    """Return the bytes before the place where unpacking `packed` fails.

    `stream` is a copy of the decompressor as it was before it was given these bytes.
    """
    found = bytearray()
    for size in _STEPS:
        while packed:
            kept = stream.copy()
            try:
                found += stream.decompress(packed[:size])
            except zlib.error:
                stream = kept
                break
            packed = packed[size:]
    return bytes(found)
