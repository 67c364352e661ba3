"""What a device waited for: each idle gap takes its class from what the host did meanwhile.

The thread asked first is the one that launches the next kernel; where it did nothing, what blocks any
launch: a wait for input, compilation, a driver call that does not return, an op that runs on the CPU.
Waiting for input is waiting for the iterator, and nothing else. What no event explains is launching where it
is as short as launching is, gap by gap. Longer than that, or before a copy from the host by a thread that
does nothing else (an input's own), it is code of the host's that launches nothing: where Python was traced,
its function is named; where not, the trace does not show what the device waited for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import tee

import numpy as np

from mpprof.analysis.arrays.intervals import EMPTY, MANY, Intervals, gaps_before, join, union
from mpprof.analysis.steps.calls import FUNCTIONS, Calls
from mpprof.analysis.steps.clocks import ClockShift
from mpprof.model.account import Class
from mpprof.model.arrays import Bool, Int8, Int64
from mpprof.model.frozen import frozen
from mpprof.model.trace import CopyKind, HostKind, Trace

BLOCKED_NS = 400_000
"""Launching takes up to 40 µs (TensorFlow's guide); in recorded steps 99 of 100 driver calls return within
300 µs. One that takes ten launches longer than the device's work for it was held up in the driver."""
LAUNCH_NS = 1_000_000
"""25 launches: what the host needs longer for between two of them is no launching."""
CALL_NS = 5_000_000
"""Python needs 0.3 to 1.4 ms for a call of the training function in recorded steps, until the executor
runs."""
OP_NS = 100_000
"""Launching an op takes some 10 µs; ten times that is work. Eager dispatch has many ops that only make views
or empty tensors, which belong to launching."""

Part = tuple[Class, str | None]
"""A class of idle time, and what is known of it beyond that."""

# From a call's beginning to the first op that runs; between launches; after a step's last work. A driver call
# that does not return; ops that run on the CPU; work that is launched, and that the device has not begun.
INPUT: Part = ("idle_input", None)
COMPILE: Part = ("idle_compile", None)
SYNC: Part = ("idle_sync", None)
CALLING: Part = ("idle_launch", "calling the function")
LAUNCHING: Part = ("idle_launch", "between launches")
CHECKING: Part = ("idle_launch", "between launches of the loss scale")
LEAVING: Part = ("idle_launch", "leaving the function")
ALLOCATING: Part = ("idle_other", "memory allocated by the driver")
COPYING: Part = ("idle_other", "copies that block the host")
BLOCKED: Part = ("idle_other", "blocked driver calls")
HOST_OPS: Part = ("idle_other", "ops busy on the host")
QUEUED: Part = ("idle_other", "gaps in the queue")
UNKNOWN: Part = ("idle_other", None)
_DISPATCH: Part = ("idle_launch", "ops that launch")  # LAUNCHING, or HOST_OPS where one takes too long
_PYTHON: Part = ("idle_launch", "Python")  # CALLING, or UNKNOWN where it takes too long
_PARTS = (
    INPUT, COMPILE, SYNC, CALLING, LAUNCHING, CHECKING, LEAVING, ALLOCATING, COPYING, BLOCKED, HOST_OPS,
    QUEUED, UNKNOWN, _DISPATCH, _PYTHON,
)  # fmt: skip
_ROW = {part: row for row, part in enumerate(_PARTS)}
HOST_RUNS = "the host runs "
"""How a cause begins that names a function of the host's code."""
_OTHER_CODE = "other functions"
_MOST_NAMED = 8

_PROGRAMS = ("XLA GPU module", "LoadedExecutable::Execute", "LoadedExecutable::Enqueue")
_BLOCK = 1 << 16
"""So many gaps are looked at together: a table of classes for all gaps would be as large as the trace."""
_CALLS = (HostKind.LAUNCH, HostKind.COPY)


@frozen
class Pauses:
    """The idle gaps of a device."""

    gaps: Intervals
    next_row: Int64  # in the kernel table, of the work that ends each; -1 where none does
    last: Bool  # after a step's last work, when the call only returns
    checking: Bool  # ended by work of the loss scale


def classify(
    trace: Trace, pauses: Pauses, found: Calls | None, shift: ClockShift, threads: Bool | None
) -> dict[Part, int]:
    """Return the idle nanoseconds by part; they sum to the length of the gaps. `threads` says which threads
    are of the device's host; None where all are."""
    if not len(trace.host):
        return {UNKNOWN: pauses.gaps.length_ns}
    code = _code(trace)
    total = np.zeros(len(_PARTS) + len(code), np.int64)
    for _, amounts in _blocks(trace, pauses, found, shift, threads, code):
        total += amounts.sum(axis=0)
    total[_ROW[QUEUED]] += pauses.gaps.length_ns - total.sum()  # what is in no block
    return {part: ns for part, ns in zip((*_PARTS, *code), total.tolist(), strict=True) if ns}


def mainly(
    trace: Trace, pauses: Pauses, found: Calls | None, shift: ClockShift, threads: Bool | None
) -> list[Part]:
    """Return the part that most of each gap belongs to; arguments as of `classify`."""
    if not len(trace.host):
        return [UNKNOWN] * len(pauses.gaps)
    code = _code(trace)
    parts = (*_PARTS, *code)
    rows = np.full(len(pauses.gaps), _ROW[QUEUED])
    for block, amounts in _blocks(trace, pauses, found, shift, threads, code):
        rows[block] = np.argmax(amounts, axis=1)
    return [parts[row] for row in rows.tolist()]


def _code(trace: Trace) -> dict[Part, Int64]:
    """Return the parts of the functions of the host's code, those that took longest by name, and the names of
    each."""
    rows = np.flatnonzero(trace.host.kind == HostKind.CODE)
    names, of = np.unique(trace.host.name[rows].astype(np.int64), return_inverse=True)
    names = names[np.argsort(-np.bincount(of, trace.host.duration_ns[rows], len(names)), kind="stable")]
    parts: dict[Part, Int64] = {
        ("idle_other", HOST_RUNS + trace.strings[name]): np.array([name])
        for name in names[:_MOST_NAMED].tolist()
    }
    if len(names) > _MOST_NAMED:
        parts["idle_other", HOST_RUNS + _OTHER_CODE] = names[_MOST_NAMED:]
    return parts


def _blocks(
    trace: Trace,
    pauses: Pauses,
    found: Calls | None,
    shift: ClockShift,
    threads: Bool | None,
    code: Mapping[Part, Int64],
) -> Iterator[tuple[Int64, Int64]]:
    """Yield the rows of gaps, and the nanoseconds of each by part, those of `code` last. A gap that began
    when what ends it had been launched is in no block: all of it is QUEUED."""
    idle, next_row, last = pauses.gaps, pauses.next_row, pauses.last
    launcher, until = _launched(trace, idle, next_row, shift)
    waiting = np.flatnonzero(until > idle.start)
    host = _Host(trace, found, -shift.ns, Intervals(idle.start[waiting], idle.end[waiting]), threads)
    row_of = {part: row for row, part in enumerate((*_PARTS, *code))}
    for one in np.flatnonzero(np.bincount(launcher[waiting] + 1)).tolist():
        thread = one - 1 if one else None
        rows = waiting[launcher[waiting] == one - 1]
        layers = _layers(host, thread, code)
        for at in range(0, len(rows), _BLOCK):
            block = rows[at : at + _BLOCK]
            known = np.full(len(block), thread is not None or trace.basis == "host")
            if thread is not None:
                known &= ~_awaits_data(host, thread, idle, next_row, block)
            layers, again = tee(layers)  # each is made when it is first asked for, and kept
            amounts = _amounts(again, idle.start[block], idle.end[block], until[block], row_of)
            _judge(amounts, known | last[block], last[block])
            moved = np.where(pauses.checking[block], amounts[:, _ROW[LAUNCHING]], 0)
            amounts[:, _ROW[CHECKING]] += moved
            amounts[:, _ROW[LAUNCHING]] -= moved
            _do_not_split_below(amounts, shift.ns)
            yield block, amounts


def _awaits_data(host: _Host, launcher: int, idle: Intervals, next_row: Int64, block: Int64) -> Bool:
    """Return which gaps end in a copy from the host whose thread did nothing but copy: that thread waited for
    data, not for its turn to launch."""
    row = next_row[block]
    waits = (row >= 0) & (host.trace.kernels.copy[row] == CopyKind.HOST_TO_DEVICE)
    own = block[waits]
    if len(own):
        begin, end = idle.start[own], idle.end[own]
        waits[waits] = 2 * host.at_work(launcher).overlap(begin, end) < end - begin
    return np.asarray(waits, np.bool_)


def _amounts(
    layers: Iterable[tuple[Part, Intervals]],
    begin: Int64,
    end: Int64,
    until: Int64,
    row_of: Mapping[Part, int],
) -> Int64:
    """Return the nanoseconds of each gap by part: from its beginning `until` the launch that ends it returned
    what the layers explain of it, the rest UNKNOWN; from there on the launch was on its way to the device."""
    amounts = np.zeros((len(begin), len(row_of)), np.int64)
    rows = np.arange(len(begin))
    way = np.where(end - until > BLOCKED_NS, _ROW[QUEUED], _ROW[LAUNCHING])
    amounts[rows, way] = end - until
    known = np.zeros(len(rows), np.int64)
    for part, instants in layers:
        explained = instants.overlap(begin[rows], until[rows])
        amounts[rows, row_of[part]] += explained - known
        more = explained < until[rows] - begin[rows]  # deeper layers have nothing to add to the others
        rows, known = rows[more], explained[more]
        if not len(rows):
            break
    amounts[:, _ROW[UNKNOWN]] += end - begin - amounts.sum(axis=1)
    return amounts


def _judge(amounts: Int64, told: Bool, last: Bool) -> None:
    """Decide gap by gap what takes no longer than launching does. `told`: it is known who launches next."""
    code = amounts[:, len(_PARTS) :]
    quick = amounts[:, _ROW[UNKNOWN]] + code.sum(axis=1) <= LAUNCH_NS
    amounts[:, _ROW[UNKNOWN]] += np.where(told & quick, code.sum(axis=1), 0)
    code[told & quick] = 0
    unknown, dispatch, python = (amounts[:, _ROW[part]].copy() for part in (UNKNOWN, _DISPATCH, _PYTHON))
    short = told & quick
    for part, rows in ((LEAVING, short & last), (LAUNCHING, short & ~last)):
        amounts[rows, _ROW[part]] += unknown[rows]
        amounts[rows, _ROW[UNKNOWN]] = 0
    quick = dispatch <= LAUNCH_NS
    amounts[:, _ROW[LAUNCHING]] += np.where(quick, dispatch, 0)
    amounts[:, _ROW[HOST_OPS]] += np.where(quick, 0, dispatch)
    amounts[:, _ROW[CALLING]] += np.where(python <= CALL_NS, python, 0)
    amounts[:, _ROW[UNKNOWN]] += np.where(python <= CALL_NS, 0, python)
    amounts[:, [_ROW[_DISPATCH], _ROW[_PYTHON]]] = 0


def _launched(trace: Trace, idle: Intervals, next_row: Int64, shift: ClockShift) -> tuple[Int64, Int64]:
    """Return the thread that launches what ends each gap (-1: not known), and when that launch returned. From
    there to the end of the gap the launch was on its way to the device."""
    if trace.basis == "host":
        return np.full(len(idle), -1), idle.end
    host = trace.host
    launch = np.where(next_row >= 0, trace.kernels.launch[next_row], np.int32(-1))
    if len(shift.misjoined):
        launch[np.isin(next_row, shift.misjoined)] = -1
    linked = launch >= 0
    returned = host.start_ns.take(launch) + host.duration_ns.take(launch) - shift.ns
    until = np.where(linked, np.minimum(np.maximum(returned, idle.start), idle.end), idle.end)
    return np.where(linked, host.thread.take(launch), -1).astype(np.int64), until


def held_up_in(trace: Trace, within: Intervals) -> Int64:
    """Return the rows of the driver calls that began in these instants (of the host's clock) and did not
    return soon, but for copies that block the host."""
    return np.flatnonzero(held_up(trace) & within.contains(trace.host.start_ns))


def held_up(trace: Trace) -> Bool:
    """Return which host events are driver calls that did not return soon, but for copies that block the
    host."""
    blocked = _blocked(trace)
    return blocked & ~_copying(trace, blocked)


def copying(trace: Trace) -> Bool:
    """Return which host events are copies that do not return before all work queued in front of them."""
    return _copying(trace, _blocked(trace))


def _blocked(trace: Trace) -> Bool:
    """Return which host events are driver calls that took far longer than the device worked on what they
    enqueued: a copy from pageable memory may block as long as that."""
    table, kernels = trace.host, trace.kernels
    blocked = _of(table.kind, _CALLS) & (table.correlation >= 0) & (table.duration_ns > BLOCKED_NS)
    if blocked.any():
        device_ns = np.zeros(len(table) + 1, np.int64)  # launch -1 finds the last
        np.add.at(device_ns, kernels.launch, kernels.duration_ns)
        blocked &= table.duration_ns - device_ns[:-1] > BLOCKED_NS
    return np.asarray(blocked)


def _copying(trace: Trace, blocked: Bool) -> Bool:
    """Return which of the `blocked` calls are copies to the host, or from its pageable memory: by their
    nature they do not return before their copy is done, and so not before all work that is queued in front of
    it. Other copies from the host wait for nothing, and were held up."""
    copying, kernels = np.zeros(len(blocked) + 1, np.bool_), trace.kernels  # launch -1 finds the last
    if blocked.any():
        pageable = np.array(["pageable ->" in text.lower() for text in trace.strings], np.bool_)
        waits = kernels.copy == CopyKind.DEVICE_TO_HOST
        waits |= (kernels.copy == CopyKind.HOST_TO_DEVICE) & pageable[kernels.name]
        copying[kernels.launch[waits]] = True
    return np.asarray(copying[:-1] & blocked)


def _of(kind: Int8, kinds: Sequence[HostKind]) -> Bool:
    """Return which of these are one of a few kinds: several times as fast as `np.isin`."""
    found = np.zeros(len(kind), np.bool_)
    for one in kinds:
        found |= kind == one
    return found


@dataclass(eq=False, repr=False)
class _Host:
    """The host's events as sets of instants, on the device's clock; of use in the instants `asked` for alone,
    since events that lie outside of them may be left out."""

    trace: Trace
    found: Calls | None
    shift_ns: int
    asked: Intervals
    threads: Bool | None = None
    _anywhere: dict[object, Intervals] = field(default_factory=dict)

    def __post_init__(self) -> None:
        table = self.trace.host
        self._bounds = np.searchsorted(table.thread, np.arange(len(self.trace.threads) + 1, dtype=np.int32))

    @cached_property
    def _blocked(self) -> Bool:
        return _blocked(self.trace)

    @cached_property
    def _copying(self) -> Bool:
        return _copying(self.trace, self._blocked)

    @cached_property
    def _of_programs(self) -> Bool:
        return np.array([any(part in text for part in _PROGRAMS) for text in self.trace.strings], np.bool_)

    @cached_property
    def _cpu_ops(self) -> Bool:
        if self.trace.basis == "device":
            return self._runs_on_cpu()
        return np.zeros(len(self.trace.host), np.bool_)

    def on(self, thread: int, *kinds: HostKind) -> Intervals:
        """Return when this thread was in an event of one of these kinds."""
        rows = slice(self._bounds[thread], self._bounds[thread + 1])
        return self._instants(rows, _of(self.trace.host.kind[rows], kinds))

    def programs(self, thread: int) -> Intervals:
        """Return when this thread was in XLA's runtime, which does nothing but enqueue a program's work."""
        rows = slice(self._bounds[thread], self._bounds[thread + 1])
        return self._instants(rows, self._of_programs[self.trace.host.name[rows]])

    def at_work(self, thread: int) -> Intervals:
        """Return when this thread was in any event but a driver call or code that launches nothing."""
        rows = slice(self._bounds[thread], self._bounds[thread + 1])
        return self._instants(rows, ~_of(self.trace.host.kind[rows], (*_CALLS, HostKind.CODE)))

    def code(self, thread: int, names: Int64) -> Intervals:
        """Return when this thread was in functions of these names that launch nothing."""
        rows = slice(self._bounds[thread], self._bounds[thread + 1])
        table = self.trace.host
        return self._instants(rows, (table.kind[rows] == HostKind.CODE) & np.isin(table.name[rows], names))

    def anywhere(self, *kinds: HostKind) -> Intervals:
        """Return when any thread of the device's host was in an event of one of these kinds."""
        return self._of_all(kinds, _of(self.trace.host.kind, kinds))

    def calls(self, thread: int) -> Intervals:
        """Return when this thread was in a driver call that returned soon enough."""
        rows = slice(self._bounds[thread], self._bounds[thread + 1])
        return self._instants(rows, _of(self.trace.host.kind[rows], _CALLS) & ~self._blocked[rows])

    def blocked(self, thread: int | None = None) -> Intervals:
        """Return when a thread was in a driver call that did not return; any thread where none is given."""
        if thread is None:
            return self._of_all("blocked", self._blocked)
        return self._chosen(thread, self._blocked)

    def copying(self, thread: int | None = None) -> Intervals:
        """Return when a thread was in a copy that blocks it; any thread where none is given."""
        if thread is None:
            return self._of_all("copying", self._copying)
        return self._chosen(thread, self._copying)

    def cpu_ops(self, thread: int | None = None) -> Intervals:
        """Return when an op ran on the CPU."""
        if thread is None:
            return self._of_all("cpu ops", self._cpu_ops)
        return self._chosen(thread, self._cpu_ops)

    @cached_property
    def fronts(self) -> Intervals:
        """From the beginning of each call to the first thing that its executor does or that it launches."""
        if self.found is None or self.found.family not in FUNCTIONS:
            return EMPTY
        table = self.trace.host
        runs = np.array([text.startswith("ExecutorState::Process") for text in self.trace.strings], np.bool_)
        first = (runs[table.name] & (table.kind == HostKind.EXECUTOR)) | (
            (table.kind == HostKind.LAUNCH) & (table.correlation >= 0)
        )
        if self.threads is not None:
            first &= self.threads[table.thread]
        starts = np.append(np.sort(table.start_ns[first], kind="stable"), np.iinfo(np.int64).max)
        end = starts[np.searchsorted(starts[:-1], self.found.start_ns)]
        end = np.minimum(end, self.found.end_ns)
        return union(self.found.start_ns + self.shift_ns, end + self.shift_ns)

    def _chosen(self, thread: int, rows: Bool) -> Intervals:
        own = slice(self._bounds[thread], self._bounds[thread + 1])
        return self._instants(own, rows[own])

    def _of_all(self, key: object, rows: Bool) -> Intervals:
        if key not in self._anywhere:
            if self.threads is not None:
                rows = rows & self.threads[self.trace.host.thread]
            self._anywhere[key] = self._instants(slice(None), rows)
        return self._anywhere[key]

    def _instants(self, rows: slice, chosen: Bool) -> Intervals:
        table, at = self.trace.host, np.flatnonzero(chosen)
        if not len(at):
            return EMPTY
        start = table.start_ns[rows][at] + self.shift_ns
        end = start + table.duration_ns[rows][at]
        if MANY * len(self.asked) < len(start):
            near = self.asked.met_by(start, end)
            start, end = start[near], end[near]
        return union(start, end)

    def _runs_on_cpu(self) -> Bool:
        """Return which op events are of ops that run on the CPU: no kernel is of theirs, and they launch
        nothing."""
        table, kernels = self.trace.host, self.trace.kernels
        chosen = np.zeros(len(table), np.bool_)
        rows = np.flatnonzero((table.kind == HostKind.OP) & (table.op >= 0) & (table.duration_ns >= OP_NS))
        on_device = np.zeros(len(self.trace.ops) + 1, np.bool_)
        on_device[kernels.op] = True  # op -1 finds the last
        rows = rows[~on_device[table.op[rows]]]
        if not len(rows):
            return chosen
        before = np.concatenate([[0], np.cumsum(_of(table.kind, _CALLS))])
        for thread in np.unique(table.thread[rows]).tolist():
            own = rows[table.thread[rows] == thread]
            first, last = self._bounds[thread], self._bounds[thread + 1]
            until = table.start_ns[own] + table.duration_ns[own]
            end = first + np.searchsorted(table.start_ns[first:last], until)
            chosen[own[before[end] == before[own]]] = True
        return chosen


def _layers(
    host: _Host, launcher: int | None, code: Mapping[Part, Int64]
) -> Iterator[tuple[Part, Intervals]]:
    """Yield what the host did, surest first, each set holding the ones before it; each set is computed only
    when asked for."""
    whole = EMPTY
    for part, instants in _explanations(host, launcher, code):
        found = instants()
        if len(found):
            whole = join(whole, found)
            yield part, whole


def _explanations(
    host: _Host, launcher: int | None, code: Mapping[Part, Int64]
) -> Iterator[tuple[Part, Callable[[], Intervals]]]:
    trainer = host.found.thread if host.found is not None and host.found.thread >= 0 else None
    if launcher is not None:
        yield INPUT, partial(host.on, launcher, HostKind.INPUT)
        yield COMPILE, partial(host.on, launcher, HostKind.COMPILE)
        yield SYNC, partial(host.on, launcher, HostKind.SYNC)
        yield ALLOCATING, partial(host.on, launcher, HostKind.ALLOCATE)
        yield COPYING, partial(host.copying, launcher)
        yield BLOCKED, partial(host.blocked, launcher)
        yield HOST_OPS, partial(host.cpu_ops, launcher)
        yield LAUNCHING, partial(host.calls, launcher)
        yield _DISPATCH, partial(host.on, launcher, HostKind.OP)
    yield INPUT, partial(host.anywhere, HostKind.INPUT)
    yield COMPILE, partial(host.anywhere, HostKind.COMPILE)
    if trainer is not None:
        yield SYNC, partial(host.on, trainer, HostKind.SYNC)
        yield CALLING, partial(_called, host, trainer)
        yield _PYTHON, lambda: host.fronts
    if launcher is not None:
        yield LAUNCHING, partial(host.programs, launcher)
    yield COPYING, host.copying
    yield BLOCKED, host.blocked
    yield HOST_OPS, host.cpu_ops
    if (thread := trainer if launcher is None else launcher) is not None:
        for part, names in code.items():
            yield part, partial(host.code, thread, names)


def _called(host: _Host, trainer: int) -> Intervals:
    """Return when the thread that trains was in the framework's code on the way to the first op of a call."""
    fronts = host.fronts
    busy = host.on(trainer, HostKind.EXECUTOR, HostKind.COPY, HostKind.OP)
    return gaps_before(gaps_before(busy, fronts)[0], fronts)[0]


def _do_not_split_below(amounts: Int64, error_ns: int) -> None:
    """Move the parts of a gap that are shorter than the clocks' error to the gap's largest part."""
    if error_ns <= 0 or not len(amounts):
        return
    largest = np.argmax(amounts, axis=1)
    small = (amounts > 0) & (amounts <= error_ns)
    small[np.arange(len(amounts)), largest] = False
    moved = np.where(small, amounts, 0)
    amounts -= moved
    amounts[np.arange(len(amounts)), largest] += moved.sum(axis=1)
