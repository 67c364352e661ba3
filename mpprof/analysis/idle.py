"""What a device waited for: each idle gap takes its class from what the host did meanwhile.

The thread asked is the one that launches the next kernel; where it did nothing, input waits and compilation
on any thread, then the thread that trains. A kernel that was launched before the gap began waited for
nothing on the host, whatever the host did then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.grouping import pick
from mpprof.analysis.intervals import EMPTY, Intervals, gaps, join, union
from mpprof.analysis.timeline import Marks
from mpprof.model.account import IDLE_CLASSES, Class
from mpprof.model.frozen import frozen
from mpprof.model.trace import HostKind, Trace

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

MISJOINED_NS = 1_000_000
"""Clocks of host and device are brought together to microseconds. A few launches that are later than their
kernel by more than this were joined with the wrong kernel; many mean that the clocks are off."""
_MISJOINED_RATIO = 0.001

_ROW = {role: row for row, role in enumerate(IDLE_CLASSES)}
_BLOCK = 1 << 16
"""So many gaps are looked at together: a table of classes for all gaps would be as large as the trace."""
_ALWAYS = Intervals(np.array([-(1 << 60)]), np.array([1 << 60]))
_LAUNCHING = (HostKind.OP, HostKind.LAUNCH, HostKind.COPY)
_WORKING = (*_LAUNCHING, HostKind.SYNC, HostKind.EXECUTOR, HostKind.COMPILE, HostKind.INPUT)


@frozen
class ClockShift:
    """How far kernels start before their launch at worst: the host's clock is taken to be that much early.

    `misjoined` are rows of the kernel table whose launch is of no use."""

    ns: int
    misjoined: Int64


def clock_shift(trace: Trace, rows: Int64) -> ClockShift:
    """The shift that lets every launch precede its kernel, 0 where none is needed."""
    launch = pick(trace.kernels.launch, rows)
    linked = pick(rows, np.flatnonzero(launch >= 0))
    early = trace.host.start_ns[pick(trace.kernels.launch, linked)] - pick(trace.kernels.start_ns, linked)
    far = early > MISJOINED_NS
    if 0 < np.count_nonzero(far) <= _MISJOINED_RATIO * len(early):
        return ClockShift(max(0, int(early[~far].max(initial=0))), linked[far])
    return ClockShift(max(0, int(early.max(initial=0))), linked[:0])


def classify(
    trace: Trace,
    idle: Intervals,
    next_row: Int64,
    found: Marks | None,
    shift: ClockShift,
    *,
    threads: Bool | None = None,
) -> dict[Class, int]:
    """Idle nanoseconds by class; they sum to the length of `idle`.

    `next_row` is the row in the kernel table of the work that ends each gap, -1 where none does. `threads`
    says which threads are of the device's host; None where all are.
    """
    if not len(trace.host):
        return {"idle_other": idle.length_ns}
    total = np.zeros(len(IDLE_CLASSES), np.int64)
    host = _Host(trace, found, -shift.ns, threads)
    for launcher, rows, until in _by_launcher(trace, idle, next_row, shift):
        layers = _Again(_layers(host, launcher, trace.basis == "host"))
        for at in range(0, len(rows), _BLOCK):
            block = rows[at : at + _BLOCK]
            amounts = _amounts(layers, idle.start[block], idle.end[block], until[at : at + _BLOCK])
            _do_not_split_below(amounts, shift.ns)
            total += amounts.sum(axis=0)
    return dict(zip(IDLE_CLASSES, total.tolist(), strict=True))


def _amounts(layers: _Again, begin: Int64, end: Int64, until: Int64) -> Int64:
    """Nanoseconds of each gap by class: from its beginning `until` the launch that ends it returned what the
    layers explain of it; from there on the launch was on its way to the device."""
    amounts = np.zeros((len(begin), len(IDLE_CLASSES)), np.int64)
    rows = np.flatnonzero(until > begin)
    amounts[rows, _ROW["idle_launch"]] = end[rows] - until[rows]
    known = np.zeros(len(rows), np.int64)
    for role, instants in layers:
        if not len(rows):
            break
        part = instants.overlap(begin[rows], until[rows])
        amounts[rows, _ROW[role]] += part - known
        more = part < until[rows] - begin[rows]  # deeper layers have nothing to add to the others
        rows, known = rows[more], part[more]
    amounts[:, _ROW["idle_other"]] += end - begin - amounts.sum(axis=1)
    return amounts


class _Again:
    """What an iterator yields, as often as asked for; each made when it is first asked for."""

    def __init__(self, made: Iterator[tuple[Class, Intervals]]) -> None:
        self._made, self._kept = made, list[tuple[Class, Intervals]]()

    def __iter__(self) -> Iterator[tuple[Class, Intervals]]:
        yield from self._kept
        for one in self._made:
            self._kept.append(one)
            yield one


def _by_launcher(
    trace: Trace, idle: Intervals, next_row: Int64, shift: ClockShift
) -> list[tuple[int | None, Int64, Int64]]:
    """Gaps by the thread that launches what ends them (None: not known), and when that launch returned.

    From there to the end of the gap the launch was on its way to the device.
    """
    if trace.basis == "host":
        return [(None, np.arange(len(idle)), idle.end)]
    launch = np.where(next_row >= 0, trace.kernels.launch[next_row], -1)
    launch[np.isin(next_row, shift.misjoined)] = -1
    linked = np.flatnonzero(launch >= 0)
    row = launch[linked]
    returned = trace.host.start_ns[row] + trace.host.duration_ns[row] - shift.ns
    until = np.clip(returned, idle.start[linked], idle.end[linked])
    thread = trace.host.thread[row]
    unknown = np.flatnonzero(launch < 0)
    parts: list[tuple[int | None, Int64, Int64]] = []
    if len(unknown):
        parts.append((None, unknown, idle.end[unknown]))
    for one in np.flatnonzero(np.bincount(thread)).tolist():
        own = thread == one
        parts.append((one, linked[own], until[own]))
    return parts


@dataclass
class _Host:
    """The host's events as sets of instants, on the device's clock."""

    trace: Trace
    found: Marks | None
    shift_ns: int
    threads: Bool | None = None

    def __post_init__(self) -> None:
        self._bounds = np.searchsorted(
            self.trace.host.thread, np.arange(len(self.trace.threads) + 1, dtype=np.int32)
        )
        self._anywhere: dict[tuple[HostKind, ...], Intervals] = {}

    def on(self, thread: int, *kinds: HostKind) -> Intervals:
        """When this thread was in an event of one of these kinds."""
        return self._instants(slice(self._bounds[thread], self._bounds[thread + 1]), kinds)

    def anywhere(self, *kinds: HostKind) -> Intervals:
        """When any thread of the device's host was in an event of one of these kinds."""
        if kinds not in self._anywhere:
            own = slice(None) if self.threads is None else self.threads[self.trace.host.thread]
            self._anywhere[kinds] = self._instants(own, kinds)
        return self._anywhere[kinds]

    def between_steps(self) -> Intervals:
        return self._between_steps

    @cached_property
    def _between_steps(self) -> Intervals:
        """When the thread that trains was outside its steps: before the first launch under a marker or
        after the last one (the first and last event where none launches), or under no marker."""
        marks = self.found
        if marks is None or not len(marks):
            return EMPTY
        work = self.anywhere(HostKind.LAUNCH)
        if not len(work):
            work = self.on(marks.thread, *_WORKING)
        if not len(work):
            return EMPTY
        begin, end = marks.start_ns + self.shift_ns, marks.end_ns + self.shift_ns
        first = np.searchsorted(work.end, begin, side="right")
        last = np.searchsorted(work.start, end, side="left") - 1
        any_work = first <= last
        start = np.maximum(work.start[np.minimum(first, len(work) - 1)], begin)[any_work]
        stop = np.minimum(work.end[np.maximum(last, 0)], end)[any_work]
        return gaps(union(start, stop), _ALWAYS)

    def _instants(self, rows: slice | Bool, kinds: tuple[HostKind, ...]) -> Intervals:
        table = self.trace.host
        kind = table.kind[rows]
        chosen = kind == kinds[0]
        for other in kinds[1:]:
            chosen |= kind == other
        start = table.start_ns[rows][chosen]
        if self.shift_ns:
            start += self.shift_ns
        return union(start, start + table.duration_ns[rows][chosen])


def _layers(host: _Host, launcher: int | None, on_host: bool) -> Iterator[tuple[Class, Intervals]]:
    """What the host did, surest first, each set holding the ones before it; made only when asked for."""
    trainer = host.found.thread if host.found is not None and host.found.thread >= 0 else None
    whole = EMPTY
    for role, part in _parts(host, launcher, trainer, on_host):
        found = part()
        if len(found):
            whole = join(whole, found)
            yield role, whole


def _parts(
    host: _Host, launcher: int | None, trainer: int | None, on_host: bool
) -> Iterator[tuple[Class, Callable[[], Intervals]]]:
    if launcher is not None:
        yield "idle_input", partial(host.on, launcher, HostKind.INPUT)
        yield "idle_compile", partial(host.on, launcher, HostKind.COMPILE)
        yield "idle_sync", partial(host.on, launcher, HostKind.SYNC)
        yield "idle_launch", partial(host.on, launcher, *_LAUNCHING)
    yield "idle_input", partial(host.anywhere, HostKind.INPUT)
    yield "idle_compile", partial(host.anywhere, HostKind.COMPILE)
    if launcher is not None:
        yield "idle_launch", partial(host.on, launcher, HostKind.EXECUTOR)
    if trainer is not None and (launcher is not None or on_host):
        yield "idle_sync", partial(host.on, trainer, HostKind.SYNC)
        yield "idle_launch", partial(host.on, trainer, *_LAUNCHING, HostKind.EXECUTOR)
    if on_host:
        yield "idle_launch", partial(host.anywhere, *_LAUNCHING, HostKind.EXECUTOR)
    yield "idle_between_steps", host.between_steps


def _do_not_split_below(amounts: Int64, error_ns: int) -> None:
    """Parts of a gap that are shorter than the clocks' error go to the gap's largest part."""
    if error_ns <= 0 or not len(amounts):
        return
    largest = np.argmax(amounts, axis=1)
    small = (amounts > 0) & (amounts <= error_ns)
    small[np.arange(len(amounts)), largest] = False
    moved = np.where(small, amounts, 0)
    amounts -= moved
    amounts[np.arange(len(amounts)), largest] += moved.sum(axis=1)
