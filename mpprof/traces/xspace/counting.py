"""Whether a file holds more fields than may be read of it, found in little memory: piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from mpprof.model.arrays import Bytes, Int64
from mpprof.traces.common import walk
from mpprof.traces.common.planes import extents, one

PIECE_BYTES = 1 << 20
_READ = (1 << 7) - 2 | 1 << 11
"""The fields of planes, lines and names that are kept while a file is read: 1 to 6, and 11."""
_Tree = dict[int, "_Tree"]
_ENTRY: _Tree = {2: {}}
_SPACE: _Tree = {1: {3: {}, 4: _ENTRY, 5: _ENTRY}}
"""Messages in messages by their field: planes (1); in them lines (3), and maps (4, 5) to names (2).
What an event holds makes columns of one length, however much it is."""


def holds_more(buffer: Bytes, most: int) -> bool:
    """Return whether the planes, lines, events, names and their stats have more than `most` fields."""
    count = 0
    for found in _counts(buffer, one(0), one(len(buffer)), _SPACE):
        count += found
        if count > most:
            return True
    return False


def _counts(buffer: Bytes, starts: Int64, ends: Int64, inner: _Tree) -> Iterator[int]:
    """Yield the number of fields of these messages and of those in them, at most about PIECE_BYTES at
    once."""
    sizes = ends - starts
    short = np.flatnonzero((sizes > 0) & (sizes <= PIECE_BYTES))
    group = np.cumsum(sizes[short]) // PIECE_BYTES
    for rows in np.split(short, np.flatnonzero(np.diff(group)) + 1) if len(short) else ():
        yield from _of(buffer, walk.scan(buffer, starts[rows], ends[rows], _READ), inner)
    for row in np.flatnonzero(sizes > PIECE_BYTES).tolist():
        yield from _of_long(buffer, int(starts[row]), int(ends[row]), inner)


def _of(buffer: Bytes, fields: walk.Fields, inner: _Tree) -> Iterator[int]:
    yield len(fields.number)
    for number, tree in inner.items():
        begins, stops, _ = extents(fields, number)
        if len(begins):
            yield from _counts(buffer, begins, stops, tree)


def _of_long(buffer: Bytes, start: int, end: int, inner: _Tree) -> Iterator[int]:
    while start < end:
        stop = min(end, start + PIECE_BYTES)
        cut = walk.scan(buffer, one(start), one(stop), 0).damage
        whole = stop if cut < 0 else cut
        if whole > start:
            yield from _of(buffer, walk.scan(buffer, one(start), one(whole), _READ), inner)
            start = whole
        else:  # it is longer than a piece, or damaged
            tag, at = _varint(buffer, start)
            size, at = _varint(buffer, at)
            if tag & 7 != 2 or at + size > end:
                return
            yield 1
            if tag >> 3 in inner:
                yield from _counts(buffer, one(at), one(at + size), inner[tag >> 3])
            start = at + size


def _varint(buffer: Bytes, at: int) -> tuple[int, int]:
    """Return a varint and where it ends; for a damaged field, both may be any number."""
    value = 0
    for shift, byte in enumerate(buffer[at : at + 10].tolist()):
        value |= (byte & 127) << 7 * shift
        if byte < 128:
            return value, at + shift + 1
    return value, at + 10
