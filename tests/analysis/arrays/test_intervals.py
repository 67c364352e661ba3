"""Interval arithmetic against an oracle that looks at every nanosecond."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.arrays.intervals import (
    EMPTY,
    Intervals,
    are_among,
    crowded,
    gaps,
    gaps_before,
    join,
    row_around,
    sweep,
    union,
)

END = 60
ROWS = st.lists(
    st.tuples(st.integers(0, END), st.integers(0, 15), st.integers(0, 3)), min_size=0, max_size=12
)


def arrays(rows: list[tuple[int, int, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    table = np.array(rows, np.int64).reshape(-1, 3)
    return table[:, 0], table[:, 0] + table[:, 1], table[:, 2]


def instants(start: np.ndarray, end: np.ndarray) -> set[int]:
    return {t for a, b in zip(start.tolist(), end.tolist(), strict=True) for t in range(a, b)}


def of(*pairs: tuple[int, int]) -> Intervals:
    table = np.array(pairs, np.int64).reshape(-1, 2)
    return Intervals(table[:, 0], table[:, 1])


def pairs(found: Intervals) -> list[tuple[int, int]]:
    return list(zip(found.start.tolist(), found.end.tolist(), strict=True))


def slow_sweep(start: np.ndarray, end: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Nanosecond by nanosecond."""
    own = np.zeros(len(start))
    for t in range(END + 20):
        active = np.flatnonzero((start <= t) & (t < end))
        if len(active):
            best = active[rank[active] == rank[active].min()]
            own[best] += 1 / len(best)
    return own


@given(ROWS)
def test_the_sweep_equals_the_oracle(rows: list[tuple[int, int, int]]) -> None:
    start, end, rank = arrays(rows)
    np.testing.assert_allclose(sweep(start, end, rank), slow_sweep(start, end, rank), atol=1e-9)


@given(ROWS)
def test_the_sweep_gives_every_instant_of_the_union_once(rows: list[tuple[int, int, int]]) -> None:
    start, end, rank = arrays(rows)
    assert sweep(start, end, rank).sum() == pytest.approx(union(start, end).length_ns, abs=1e-9)


@given(ROWS)
def test_union_is_disjoint_sorted_and_the_same_instants(rows: list[tuple[int, int, int]]) -> None:
    start, end, _ = arrays(rows)
    found = union(start, end)
    assert instants(found.start, found.end) == instants(start, end)
    assert (found.end > found.start).all()
    assert (found.start[1:] > found.end[:-1]).all()
    assert found.length_ns == len(instants(start, end))


@given(ROWS, ROWS)
def test_gaps_are_what_is_left_of_each_window(
    rows: list[tuple[int, int, int]], windows: list[tuple[int, int, int]]
) -> None:
    start, end, _ = arrays(rows)
    begin, until, _ = arrays(windows)
    within = union(begin, until)
    found = gaps(union(start, end), within)
    assert instants(found.start, found.end) == instants(begin, until) - instants(start, end)
    assert (found.end > found.start).all()


@given(ROWS, ROWS)
def test_each_gap_is_followed_by_the_first_interval_after_it(
    rows: list[tuple[int, int, int]], windows: list[tuple[int, int, int]]
) -> None:
    start, end, _ = arrays(rows)
    begin, until, _ = arrays(windows)
    busy = union(start, end)
    found, following = gaps_before(busy, union(begin, until))
    assert following.tolist() == np.searchsorted(busy.start, found.end).tolist()


@given(ROWS, st.lists(st.integers(-5, END + 30), max_size=10))
def test_before_counts_the_instants_before(rows: list[tuple[int, int, int]], times: list[int]) -> None:
    start, end, _ = arrays(rows)
    found = union(start, end)
    inside = instants(start, end)
    expected = [sum(t < time for t in inside) for time in times]
    assert found.before(np.array(times, np.int64)).tolist() == expected
    assert found.contains(np.array(times, np.int64)).tolist() == [time in inside for time in times]


@given(ROWS, st.lists(st.integers(-5, END + 30), max_size=200))
def test_the_interval_around_a_time(rows: list[tuple[int, int, int]], times: list[int]) -> None:
    found = union(*arrays(rows)[:2])
    expected = [next((row for row, (a, b) in enumerate(pairs(found)) if a <= t < b), -1) for t in times]
    for asked in (times, sorted(times)):  # sorted ones are looked up the other way round
        around = row_around(found.start, found.end, np.array(asked, np.int64))
        assert dict(zip(asked, around.tolist(), strict=True)) == dict(zip(times, expected, strict=True))
        assert found.contains(np.array(asked, np.int64)).tolist() == (around >= 0).tolist()
    assert are_among(found.end, np.array(times, np.int64)).tolist() == [t in found.end for t in times]


@given(ROWS, ROWS)
def test_which_intervals_hold_an_instant_of_a_set(
    rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]]
) -> None:
    whole = union(*arrays(rows)[:2])
    start, end, _ = arrays(others)
    inside = instants(whole.start, whole.end)
    solid = end > start  # of an empty one it is of no account
    expected = [bool(inside & set(range(a, b))) for a, b in zip(start[solid], end[solid], strict=True)]
    assert whole.met_by(start, end)[solid].tolist() == expected


@given(ROWS)
def test_crowded_are_those_that_share_an_instant(rows: list[tuple[int, int, int]]) -> None:
    start, end, _ = arrays(rows)
    expected = [
        i
        for i in range(len(start))
        if any(j != i and max(start[i], start[j]) < min(end[i], end[j]) for j in range(len(start)))
    ]
    assert set(expected) >= set(crowded(start, end).tolist()) - _touching_empty(start, end)
    assert set(expected) <= set(crowded(start, end).tolist())


def _touching_empty(start: np.ndarray, end: np.ndarray) -> set[int]:
    """An empty interval inside another may mark it; it shares nothing, and the sweep is not wrong for it."""
    empty = start == end
    return {i for i in range(len(start)) if any(start[i] <= t <= end[i] for t in start[empty].tolist())}


def test_two_of_one_rank_share_and_a_better_rank_takes_all() -> None:
    start, end = np.array([0, 4, 6]), np.array([10, 12, 8])
    own = sweep(start, end, np.array([1, 1, 0]))
    # 0-4 the first alone; 4-6 and 8-10 shared; 6-8 the third; 10-12 the second alone
    assert own.tolist() == [4 + 1 + 1, 1 + 1 + 2, 2]


def test_a_gap_is_cut_where_a_window_ends() -> None:
    found = gaps(of((2, 4)), of((0, 10), (10, 20), (30, 40)))
    assert pairs(found) == [(0, 2), (4, 10), (10, 20), (30, 40)]


def test_empty_sets() -> None:
    assert union(np.array([3, 5]), np.array([3, 5])) is EMPTY
    assert pairs(gaps(EMPTY, of((1, 3)))) == [(1, 3)]
    assert pairs(gaps(of((1, 3)), EMPTY)) == []
    assert EMPTY.length_ns == 0
    assert EMPTY.before(np.array([5])).tolist() == [0]
    assert EMPTY.contains(np.array([5])).tolist() == [False]
    assert pairs(join(EMPTY, of((1, 2)))) == [(1, 2)]
    assert sweep(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []
