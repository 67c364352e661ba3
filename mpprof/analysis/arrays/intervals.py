"""Interval arithmetic over arrays of `[start, end)` in nanoseconds: unions, gaps, and the sweep.

Everything is vectorised; nothing here knows what an interval means.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Bool, Float64, Int64, distinct
from mpprof.model.frozen import frozen

_NEVER = np.iinfo(np.int64).max
MANY = 16
"""Times the number of some edges from which on a search among them is better done the other way round."""


def latest(edges: Int64, time: Int64) -> Int64:
    """Return the last of the sorted `edges` at or before each time; -1: none."""
    return _between(edges, np.arange(-1, len(edges)), time)


def row_around(start: Int64, end: Int64, time: Int64) -> Int64:
    """Return the row of the sorted, disjoint `[start, end)` that each time lies in, -1 outside of all."""
    rows = np.full(2 * len(start) + 1, -1, np.int64)
    rows[1::2] = np.arange(len(start))
    return _between(np.column_stack([start, end]).ravel(), rows, time)


def _between(edges: Int64, values: Int64, time: Int64) -> Int64:
    """Return for each time the value of the stretch between two of the sorted `edges` that it lies in: there
    is one stretch before the first edge and one after the last. Quick where the times are sorted, too, and
    far more than the edges."""
    if len(time) < MANY * len(edges) or not _sorted(time):
        return values[np.searchsorted(edges, time, side="right")]
    bounds = np.concatenate([[0], np.searchsorted(time, edges, side="left"), [len(time)]])
    return np.repeat(values, np.diff(bounds))


def are_among(edges: Int64, time: Int64) -> Bool:
    """Return which of these times are one of the sorted `edges`."""
    if not len(edges):
        return np.zeros(len(time), np.bool_)
    return np.asarray(edges[latest(edges, time)] == time)  # before the first one is the last one


@frozen(slots=False)
class Intervals:
    """A set of instants: intervals that are disjoint, not empty and sorted. Two may touch."""

    start: Int64
    end: Int64

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def _before(self) -> Int64:
        return np.concatenate([[0], np.cumsum(self.end - self.start)]).astype(np.int64)

    @property
    def length_ns(self) -> int:
        return int(self._before[-1])

    @cached_property
    def _unbroken(self) -> bool:
        """Whether each interval begins where the last one ends."""
        return bool((self.start[1:] == self.end[:-1]).all())

    def before(self, time: Int64) -> Int64:
        """Return how much of the set lies before each of these times: the reading of a clock that runs only
        within the set."""
        if not len(self.start):
            return np.zeros(len(time), np.int64)
        if self._unbroken:
            return np.asarray(np.clip(time, self.start[0], self.end[-1]) - self.start[0])
        return self._up_to(time, latest(self.start, time))

    def _up_to(self, time: Int64, at: Int64) -> Int64:
        """Return `before`, with the last interval that begins by each time; -1: there is none."""
        row = np.maximum(at, 0)
        begin = self.start[row]
        inside = np.clip(time - begin, 0, self.end[row] - begin)
        return np.where(at >= 0, self._before[row] + inside, 0)

    def overlap(self, start: Int64, end: Int64) -> Int64:
        """Return how much of the set lies within each `[start, end)`."""
        if not len(self.start):
            return np.zeros(len(start), np.int64)
        first = latest(self.start, start)
        last = first.copy()  # most queries are short and end where they begin: only the others are searched
        far = np.flatnonzero(end >= np.append(self.start, _NEVER)[first + 1])
        last[far] = np.searchsorted(self.start, end[far], side="right") - 1
        return self._up_to(end, last) - self._up_to(start, first)

    def met_by(self, start: Int64, end: Int64) -> Bool:
        """Return which of these `[start, end)` hold any instant of the set."""
        following = latest(self.end, start) + 1
        return np.asarray(np.append(self.start, _NEVER)[following] < end)

    def contains(self, time: Int64) -> Bool:
        if not len(self.start):
            return np.zeros(len(time), np.bool_)
        if self._unbroken:
            return np.asarray((time >= self.start[0]) & (time < self.end[-1]))
        return row_around(self.start, self.end, time) >= 0


EMPTY = Intervals(np.empty(0, np.int64), np.empty(0, np.int64))


def union(start: Int64, end: Int64) -> Intervals:
    """Return the instants that lie in any of these intervals; empty intervals are ignored, and touching ones
    are joined."""
    whole = end > start
    if not whole.all():
        start, end = start[whole], end[whole]
    if not len(start):
        return EMPTY
    start, end = _by_start(start, end)
    if (start[1:] > end[:-1]).all():  # most often nothing meets
        return Intervals(start, end)
    end = np.maximum.accumulate(end)
    first = np.concatenate([[True], start[1:] > end[:-1]])
    last = np.concatenate([first[1:], [True]])
    return Intervals(start[first], end[last])


def join(one: Intervals, other: Intervals) -> Intervals:
    """Return the instants of either set."""
    if not len(other):
        return one
    if not len(one):
        return other
    return union(np.concatenate([one.start, other.start]), np.concatenate([one.end, other.end]))


def gaps(busy: Intervals, within: Intervals) -> Intervals:
    """Return the instants of `within` that are not in `busy`, cut where an interval of `within` ends."""
    return gaps_before(busy, within)[0]


def gaps_before(busy: Intervals, within: Intervals) -> tuple[Intervals, Int64]:
    """Return the `gaps`, and for each the row of the first of `busy` after it; `len(busy)`: there is none."""
    if not len(within):
        return EMPTY, np.empty(0, np.int64)
    edges = np.concatenate([[within.start[0] - 1], busy.end]), np.concatenate([busy.start, [within.end[-1]]])
    start, end = np.maximum(edges[0], within.start[0]), np.minimum(edges[1], within.end[-1])
    following = np.flatnonzero(end > start)
    start, end = start[following], end[following]
    # Most gaps lie within one interval of `within`; the others are cut.
    window = row_around(within.start, within.end, start)
    others = np.flatnonzero((window < 0) | (end > within.end[window]))
    if not len(others):
        return Intervals(start, end), following
    pieces, of = _cut(start[others], end[others], within)
    whole = np.ones(len(start), np.bool_)
    whole[others] = False
    start = np.concatenate([start[whole], pieces.start])
    end = np.concatenate([end[whole], pieces.end])
    following = np.concatenate([following[whole], following[others[of]]])
    order = np.argsort(start, kind="stable")
    return Intervals(start[order], end[order]), following[order]


def _cut(start: Int64, end: Int64, within: Intervals) -> tuple[Intervals, Int64]:
    """Return the parts of some sorted, disjoint intervals that lie in `within`: a piece for each interval of
    `within`; and the row that each is a part of."""
    first = latest(within.end, start) + 1
    pieces = np.maximum(latest(within.start, end - 1) - first + 1, 0)
    row = np.repeat(np.arange(len(start)), pieces)
    window = first[row] + np.arange(len(row)) - np.repeat(np.cumsum(pieces) - pieces, pieces)
    begin, finish = np.maximum(start[row], within.start[window]), np.minimum(end[row], within.end[window])
    return Intervals(begin, finish), row


def sweep(start: Int64, end: Int64, rank: NDArray[np.integer], among: Int64 | None = None) -> Float64:
    """Return the time that belongs to each interval alone, in the order given; the results sum to the length
    of the union.

    Where several intervals run at once, the instant goes to the one of the lowest rank; several of that
    rank share it equally. Intervals may come in any order and overlap in any way. `among`: those that are
    `crowded`, where they are known.
    """
    own = (end - start).astype(np.float64)
    rows = crowded(start, end) if among is None else among  # most intervals of a device overlap no other
    if len(rows):
        own[rows] = _share(start[rows], end[rows], rank[rows])
    return own


def crowded(start: Int64, end: Int64) -> Int64:
    """Return the intervals that overlap another one; empty ones overlap none."""
    if _sorted(start):
        return _crowded(start, end)
    order = np.argsort(start, kind="stable")
    return np.sort(order[_crowded(start[order], end[order])])


def _crowded(start: Int64, end: Int64) -> Int64:
    if (start[1:] >= end[:-1]).all():
        return np.empty(0, np.int64)
    meets = np.zeros(len(start), np.bool_)
    meets[1:] = start[1:] < np.maximum.accumulate(end)[:-1]
    meets[:-1] |= start[1:] < end[:-1]
    return np.flatnonzero(meets & (end > start))


def _share(start: Int64, end: Int64, rank: NDArray[np.integer]) -> Float64:
    """Return for each rank the time since the first endpoint that each active interval gets, by a sweep over
    all endpoints."""
    n = len(start)
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    position = np.empty(2 * n, np.int32)
    position[order] = np.arange(2 * n, dtype=np.int32)
    begins, ends = position[:n], position[n:]
    left = np.diff(times[order]).astype(np.float64)  # what no better rank has taken, per segment
    own = np.empty(n, np.float64)
    for one in distinct(rank).tolist():
        rows = np.flatnonzero(rank == one)
        change = np.zeros(2 * n, np.int32)
        change[begins[rows]] = 1
        change[ends[rows]] = -1
        active = np.cumsum(change, dtype=np.int32)[:-1]
        running = active > 0
        part = np.where(running, left / np.maximum(active, 1), 0.0)
        clock = np.concatenate([[0.0], np.cumsum(part)])
        own[rows] = clock[ends[rows]] - clock[begins[rows]]
        left[running] = 0.0
    return own


def _sorted(values: Int64) -> bool:
    return bool((values[1:] >= values[:-1]).all())


def _by_start(start: Int64, end: Int64) -> tuple[Int64, Int64]:
    if (start[1:] >= start[:-1]).all():
        return start, end
    order = np.argsort(start, kind="stable")
    return start[order], end[order]
