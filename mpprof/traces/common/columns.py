"""Small tools for columns: interning, codes of distinct rows, joins and the order of events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Bool, Int32, Int64

_Table = TypeVar("_Table")


class Interner:
    """Texts to rows, in the order of first use."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self._rows.setdefault(text, len(self._rows))

    def texts(self) -> tuple[str, ...]:
        return tuple(self._rows)


def names(table: type) -> tuple[str, ...]:
    """Return the columns of a table of the trace, in order."""
    return tuple(each.name for each in fields(table))


_DTYPES = {
    "Int64": np.int64, "Int32": np.int32, "Int8": np.int8, "Bool": np.bool_, "Float64": np.float64,
}  # fmt: skip


def table_of(table: type[_Table], n: int, **given: Any) -> _Table:
    """Return a table of `n` rows with these columns; in every other column, all rows are -1 (False).

    For readers of formats that know few of the columns (CONTRIBUTING.md's example).
    """
    rest = {
        each.name: constant(-1 if dtype is not np.bool_ else 0, n, dtype)
        for each in fields(table)  # type: ignore[arg-type]
        if each.name not in given
        for dtype in [_DTYPES[str(each.type).removesuffix(" | None")]]
    }
    return table(**given, **rest)


def constant(value: int, n: int, dtype: Any = np.int64) -> NDArray[Any]:
    """Return a column of one value that takes no memory (read-only)."""
    return np.broadcast_to(np.array(value, dtype), n)


def replace(
    column: NDArray[Any], values: NDArray[Any], by: Sequence[int], dtype: Any = np.int32
) -> NDArray[Any]:
    """Return the column with each of the sorted distinct `values` replaced by its entry in `by`."""
    if not len(column):
        return np.empty(0, dtype)
    low, high = int(values[0]), int(values[-1])
    if low == high:
        return np.full(len(column), by[0], dtype)
    if high - low >= max(4 * len(column), 1 << 16):
        return np.asarray(by, dtype)[np.searchsorted(values, column)]
    table = np.zeros(high - low + 1, dtype)
    table[values - low] = by
    return np.asarray(table.take(column - low))


def join(keys: Int64, to: Int64) -> Int32:
    """Return for each key the first row of `to` that equals it, -1 where there is none or the key is
    negative."""
    if not len(keys) or not len(to):
        return np.full(len(keys), -1, np.int32)
    high = int(to.max())
    if high < max(8 * len(to), 1 << 16):
        table = np.full(high + 2, -1, np.int32)
        known = np.flatnonzero(to >= 0)[::-1]
        table[to[known]] = known
        inside = (keys >= 0) & (keys <= high)
        return np.asarray(table.take(keys if inside.all() else np.where(inside, keys, high + 1)))
    order = np.argsort(to, kind="stable")
    at = np.minimum(np.searchsorted(to[order], keys), len(to) - 1)
    found = order[at]
    return np.where((to[found] == keys) & (keys >= 0), found, -1).astype(np.int32)


def is_ordered(start: Int64, duration: Int64) -> bool:
    """Return whether intervals are sorted by start, of equal starts the longest first."""
    if (start[1:] < start[:-1]).any():
        return False
    tied = np.flatnonzero(start[1:] == start[:-1])
    return not (duration[tied + 1] > duration[tied]).any()


def parents_first(start: Int64, duration: Int64) -> Int64:
    """Return the order by start, of equal starts the longest first."""
    order = np.argsort(start, kind="stable")
    if is_ordered(start[order], duration[order]):
        return order
    return np.lexsort((-duration, start))


def leaves(start: Int64, duration: Int64, group: NDArray[Any] | None = None) -> Bool:
    """Return which intervals hold no other one. The intervals are in the order of `parents_first`; with
    several groups (threads, streams), one group follows the other.

    An interval that begins when another ends is not its child; of two equal ones the later is the leaf. Empty
    intervals make no parent.
    """
    leaf = np.ones(len(start), np.bool_)
    solid = np.flatnonzero(duration > 0)
    end = start + duration
    this, following = solid[:-1], solid[1:]
    rounding = 1  # both ends are rounded down to whole nanoseconds
    inside = (start[following] < end[this]) & (end[following] <= end[this] + rounding)
    if group is not None:
        inside &= group[this] == group[following]
    leaf[this[inside]] = False
    return leaf
