"""What a damaged gzip stream still holds up to the damage."""

from __future__ import annotations

import zlib
from typing import Any

_STEPS = (1 << 10, 1)
"""Packed bytes given at a time: some, then one by one, because a call in which zlib fails gives none."""


def before_damage(stream: Any, packed: bytes) -> bytes:
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
