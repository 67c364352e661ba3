"""Groups of equal rows, against what a dictionary says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from mpprof.model import arrays
from mpprof.model.arrays import distinct, groups

I64 = np.iinfo(np.int64)


def _check(*columns: NDArray[Any]) -> None:
    rows = list(zip(*(column.tolist() for column in columns), strict=True))
    numbers = {row: at for at, row in enumerate(sorted(set(rows)))}
    group, first = groups(columns, len(rows))
    assert group.tolist() == [numbers[row] for row in rows]
    assert first.tolist() == [rows.index(row) for row in numbers]


@pytest.mark.parametrize("rows", [0, 1, 2, 500])
def test_rows_that_agree_in_all_columns_are_one_group_in_the_order_of_values(rows: int) -> None:
    random = np.random.default_rng(rows)
    few = random.integers(-1, 3, rows).astype(np.int8)
    some = random.integers(-1, 40, rows).astype(np.int32)
    _check(few)
    _check(few, some)
    _check(some, np.broadcast_to(np.int64(7), rows), few)


def test_a_group_may_begin_in_any_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "_BLOCK", 7)
    _check(np.arange(50) // 3)
    _check(np.random.default_rng(0).integers(0, 20, 200))


@pytest.mark.parametrize("width", [1 << 21, 1 << 23, 1 << 40])
def test_values_may_lie_far_apart(width: int) -> None:
    random = np.random.default_rng(width)
    wide = random.integers(-width, width, 60)[random.integers(0, 60, 400)]
    other = random.integers(5, width, 50)[random.integers(0, 50, 400)]
    narrow = random.integers(-128, 128, 400).astype(np.int8)
    _check(wide, other)
    _check(narrow, wide, narrow, other)


def test_the_ends_of_the_numbers_there_are() -> None:
    ends = np.array([I64.max, I64.min, 0, -1, I64.max, I64.min], np.int64)
    _check(ends)
    _check(ends, ends[::-1].copy())
    _check(np.full(6, I64.min), ends)
    _check(np.array([-128, 127, -128, 0, 1, 127], np.int8), ends)


@pytest.mark.parametrize("width", [3, 1 << 15, 1 << 40])
def test_distinct_values_are_those_of_a_set(width: int) -> None:
    random = np.random.default_rng(width)
    for values in (random.integers(-width, width, 300), np.empty(0, np.int32), np.array([I64.max, I64.min])):
        assert distinct(values).tolist() == sorted(set(values.tolist()))
        assert distinct(values).dtype == values.dtype
