"""Sums over groups of equal rows, in numpy: what the tables are made with."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Float64, Int32, Int64
from mpprof.model.limits import LONGEST_SUM_NS

T = TypeVar("T", bound=np.generic)


def pick(column: NDArray[T], rows: NDArray[np.integer]) -> NDArray[T]:
    """Return these rows of a column, ascending and each once; return the column itself where they are all of
    it."""
    return column if len(rows) == len(column) else column[rows]


def lookup(column: NDArray[Any], op: Int32) -> Int64:
    """Return `column[op]` where some ops are -1 (their value is not used); a column may be empty."""
    return np.append(column, -1)[op].astype(np.int64)


def sums(group: Int64, values: NDArray[Any], count: int) -> Int64:
    """Return the sums per group. They are exact: float64 holds whole nanoseconds up to 104 days. At most
    `LONGEST_SUM_NS`."""
    total = np.rint(np.bincount(group, weights=values, minlength=count))
    return np.clip(total, -LONGEST_SUM_NS, LONGEST_SUM_NS).astype(np.int64)


def cross(group: Int64, column: NDArray[Any], values: NDArray[Any], count: int, width: int) -> Int64:
    """Return the sums per group and value of `column`: shape (count, width)."""
    return sums(group * width + column, values, count * width).reshape(count, width)


def ratios(total: Int64, device: NDArray[Any], devices: int) -> Float64:
    whole = np.bincount(device, weights=total, minlength=devices)[device]
    ratio: Float64 = np.divide(total, whole, out=np.zeros(len(total)), where=whole > 0)
    return ratio


def longest_first(device: NDArray[Any], total: Int64) -> Int64:
    return np.lexsort((-total, device)).astype(np.int64)
