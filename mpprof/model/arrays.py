"""NumPy's arrays by the type of what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Int32 = NDArray[np.int32]
Int16 = NDArray[np.int16]
Int8 = NDArray[np.int8]
Bool = NDArray[np.bool_]
Float64 = NDArray[np.float64]
Bytes = NDArray[np.uint8]


# Rows of columns that are equal: what readers and analysis alike ask of every event.

T = TypeVar("T", bound=np.integer)

_TABLE = 1 << 20
"""Keys of a range up to it are renumbered through a table, ten times faster than by sorting them. The system
would take longer to give the memory of a larger one than a few columns take to fill it."""
_BLOCK = 1 << 16


def groups(columns: Sequence[NDArray[Any]], n: int) -> tuple[Int64, Int64]:
    """Return those of `n` rows that agree in all columns of whole numbers: the group of each row, and the
    first row of each group. Groups are numbered in the order of their values, by the first column before the
    others. Both are empty where there is no row."""
    key: Int64 | None = None
    size, most = 1, max(_TABLE, 4 * n)  # keys lie below `size`
    for column in columns:
        if not n or column.strides == (0,):  # the same value in every row
            continue
        low = int(column.min())
        width = int(column.max()) - low + 1
        if key is not None and size * width > most:
            key, size = _without_holes(key, 0, size, most)
        if size * width > most:
            column, width = _without_holes(column, low, width, most)
            low = 0
        if width == 1:
            continue
        if key is None:
            key = np.subtract(column, low, dtype=np.int64)
        else:
            key *= width
            key += column
            key -= low
        size *= width
    group, count = _without_holes(np.zeros(n, np.int64) if key is None else key, 0, size, most)
    return group, _first_rows(group, count)


def _first_rows(group: Int64, count: int) -> Int64:
    """Return the first row of each group, by blocks: most often the first few hold every group."""
    first = np.full(count, -1, np.int64)
    at, left = 0, count
    while left:
        block = group[at : at + _BLOCK]
        new = np.flatnonzero(first[block] < 0)[::-1]
        first[block[new]] = at + new  # written last to first, so that the first row stays
        left -= int(np.count_nonzero(first[block[new]] == at + new))
        at += _BLOCK
    return first


def distinct(column: NDArray[T]) -> NDArray[T]:
    """Return the values of a column of whole numbers, ascending and each once.

    As `np.unique`, which imports NumPy's masked arrays: that takes longer than a small trace is read in."""
    if not len(column):
        return column[:0].copy()
    low, high = int(column.min()), int(column.max())
    if low == high:
        return column[:1].copy()
    if high - low >= max(4 * len(column), 1 << 16):
        ordered = np.sort(column)
        return np.asarray(ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])])
    seen = np.zeros(high - low + 1, np.bool_)
    seen[column - low] = True
    return (np.flatnonzero(seen) + low).astype(column.dtype)


def _without_holes(keys: NDArray[Any], low: int, width: int, most: int) -> tuple[Int64, int]:
    """Return keys of `width` values from `low` on, numbered in their order without holes, and how many there
    are."""
    if width == 1 or not len(keys):
        return np.zeros(len(keys), np.int64), min(1, len(keys))
    if width > most:
        values, number = np.unique(keys, return_inverse=True)
        return number, len(values)
    if low:
        keys = np.subtract(keys, low, dtype=np.int64)
    met = np.zeros(width, np.bool_)
    met[keys] = True
    present = np.flatnonzero(met)
    table = np.empty(width, np.int64)  # takes memory only where it is written
    table[present] = np.arange(len(present))
    return table[keys], len(present)
