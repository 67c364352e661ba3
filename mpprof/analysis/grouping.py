"""Sums over groups of equal rows, in numpy: what the tables are made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]

_DENSE = 1 << 22  # codes up to here are counted in an array, larger ones are sorted


def groups(columns: Sequence[NDArray[Any]]) -> tuple[Int64, Int64]:
    """First row of each group of rows that are equal in all columns, and each row's group."""
    code = np.zeros(len(columns[0]), np.int64)
    count = min(1, len(code))
    for column in columns:
        values = column.astype(np.int64) + 1  # -1 marks "none"
        code, count = _compact(code * (int(values.max(initial=0)) + 1) + values)
    first = np.full(count, len(code), np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    return first, code


def _compact(code: Int64) -> tuple[Int64, int]:
    """The codes renumbered from 0 without holes, and how many there are."""
    size = int(code.max(initial=-1)) + 1
    if size > _DENSE:
        distinct, inverse = np.unique(code, return_inverse=True)
        return inverse.astype(np.int64).reshape(-1), len(distinct)
    present = np.zeros(size, np.bool_)
    present[code] = True
    rank = np.cumsum(present) - 1
    return rank[code], int(present.sum())


def lookup(column: NDArray[Any], op: NDArray[np.int32]) -> Int64:
    """`column[op]` where some ops are -1 (their value is of no account); a column may be empty."""
    return np.append(column, -1)[op].astype(np.int64)


def sums(group: Int64, values: NDArray[Any], count: int) -> Int64:
    """Sums per group. Exact: float64 holds whole nanoseconds up to 104 days."""
    return np.rint(np.bincount(group, weights=values, minlength=count)).astype(np.int64)


def cross(group: Int64, column: NDArray[Any], values: NDArray[Any], count: int, width: int) -> Int64:
    """Sums per group and value of `column`: shape (count, width)."""
    return sums(group * width + column, values, count * width).reshape(count, width)


def ratios(total: Int64, device: NDArray[Any], devices: int) -> Float64:
    whole = np.bincount(device, weights=total, minlength=devices)[device]
    ratio: Float64 = np.divide(total, whole, out=np.zeros(len(total)), where=whole > 0)
    return ratio


def longest_first(device: NDArray[Any], total: Int64) -> Int64:
    return np.lexsort((-total, device)).astype(np.int64)
