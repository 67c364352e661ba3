"""Where a device's steps begin and end.

A step is the work of the training function: it begins with the host's call and ends with the later of that
call's end and the end of the last kernel launched in it. Where steps overlap on the device, a step begins
where the kernels of those before it end, so that no two steps share an instant. What is launched between two
calls belongs to no step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from mpprof.analysis.arrays.group_sums import pick
from mpprof.analysis.arrays.intervals import Intervals, latest, row_around
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.autotuning import tuned_steps
from mpprof.analysis.steps.calls import (
    FUNCTIONS,
    MODULE,
    OPTIMIZER,
    RANGE,
    Calls,
    calls,
    outermost,
    threads_of,
)
from mpprof.analysis.steps.clocks import clock_shift
from mpprof.analysis.steps.repetition import begins, repetition
from mpprof.analysis.steps.unmarked import trains, warm_up
from mpprof.model.account import StepUnit
from mpprof.model.arrays import Bool, Int32, Int64
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_ns, format_ratio
from mpprof.model.trace import XLA_MODULE, HostKind, Trace, WorkKind

PROGRAM = "program"
_UNEVEN = 2.0
_LEAST_IN_CALLS = 0.9
"""Share of the device's time in the calls where each waits for its work: 95 % and more in recorded traces,
35 % where the host ran ahead."""
_MOST_LATE = 0.05
"""A step whose optimizer update is skipped has fewer ops than others, but not half as many."""


@frozen
class Work:
    """Rows of the kernel table that belong to steps, in its order, and which step each belongs to."""

    row: Int64
    step: Int64

    def of(self, steps: Bool) -> Work:
        """Return the work of the steps that `steps` keeps, which are numbered anew."""
        if steps.all():
            return self
        mine = steps[self.step]
        return Work(self.row[mine], (np.cumsum(steps) - 1)[self.step[mine]])


@frozen
class Periods:
    """The whole steps of one device, in order; empty arrays where it has none, and `notes` say why.

    `number` is the marker's step number, -1 where it has none. `source` says how steps were told apart:
    "function" (calls of the training function), a marker family, "group", "steps_line", "program" (runs of
    a compiled program) or "period" (the repetition of the kernel sequence). `unit` says what one of them is,
    and `of` whose pass it is. `missing_ratio` is the share of the launches in these steps whose kernel is not
    in the trace. `marker_ns` is when the host entered each step's marker, and `numbered` the
    family of that marker; None and "" where steps come from no marker. `work` is what was launched in the
    steps; None where only time tells. `tuned` counts the steps that were left out because a library tried out
    algorithms in them. `pause_ns` is the time from each step's end to the beginning of the next one, -1 where
    that is not in the trace; None where steps were not told by calls, and nothing lies between them.
    """

    start_ns: Int64
    end_ns: Int64
    number: Int64
    source: str
    notes: tuple[str, ...] = ()
    missing_ratio: float = 0.0
    marker_ns: Int64 | None = None
    numbered: str = ""
    work: Work | None = None
    pause_ns: Int64 | None = None
    unit: StepUnit = "step"
    of: str = ""
    tuned: int = 0

    def __len__(self) -> int:
        return len(self.start_ns)

    def keep(self, rows: Bool, *notes: str) -> Periods:
        """Return the periods with these steps only."""
        return Periods(
            self.start_ns[rows], self.end_ns[rows], self.number[rows], self.source,
            (*self.notes, *notes), self.missing_ratio,
            None if self.marker_ns is None else self.marker_ns[rows], self.numbered,
            None if self.work is None else self.work.of(rows),
            None if self.pause_ns is None else self.pause_ns[rows],
            self.unit, self.of, self.tuned,
        )  # fmt: skip

    def followed(self) -> Bool:
        """Return which steps are followed by the next one in the trace."""
        return np.zeros(len(self), np.bool_) if self.pause_ns is None else self.pause_ns >= 0

    def instants(self) -> Intervals:
        return Intervals(self.start_ns, self.end_ns)


def nothing(*notes: str) -> Periods:
    none = np.empty(0, np.int64)
    return Periods(none, none, none, "none", notes)


def periods(trace: Trace, device: int) -> Periods:
    """Return the whole steps of the device in this row of `trace.devices`.

    Steps come from the host's calls, joined with kernels through launches; else from the file's own step
    groups; else from its `Steps` line; else, without calls that work can be joined with, from the repetition
    of the kernel sequence. A step with launches but no kernels was cut by the collector and is left out.
    """
    rows = np.flatnonzero(trace.kernels.device == device)
    kernels = rows[trace.kernels.kind[rows] == WorkKind.KERNEL]
    if not len(kernels):
        return nothing("the trace holds no kernel of this device")
    notes: list[str] = []
    for attempt in _attempts(trace, device, rows, kernels):
        found = _without_tuning(trace, kernels, attempt)
        if len(found):
            return found
        notes += found.notes
    return nothing(*notes)


def _attempts(trace: Trace, device: int, rows: Int64, kernels: Int64) -> Iterator[Periods]:
    found = calls(trace, device)
    joined = None if found is None else _join(trace, found, rows)
    if found is not None and joined is not None:
        yield _by_calls(trace, device, found, joined, rows)
        if found.family == RANGE:
            return  # whoever names ranges asks for no other steps
    yield _by_group(trace, kernels)
    yield _by_steps_line(trace, device)
    yield _by_programs(trace, device)
    if joined is None or not joined.known:
        yield _without_warm_up(trace, kernels, _by_repetition(trace, kernels))


# --- calls of the host -------------------------------------------------------------------------------------


def _by_calls(trace: Trace, device: int, found: Calls, joined: _Joined, rows: Int64) -> Periods:
    """Return the periods from each call to the later of its end and that of the last work launched in it; of
    a module that does not train to the end of that work, since its call may return before or after it."""
    table = trace.kernels
    step, notes = joined.step, [*found.notes, *joined.notes]
    n, begin = len(found), pick(table.start_ns, rows)
    end = begin + pick(table.duration_ns, rows)
    first, last = np.full(n, _NEVER), np.full(n, -_NEVER)
    own = np.flatnonzero(step >= 0)
    of = pick(step, own)
    np.minimum.at(first, of, pick(begin, own))
    np.maximum.at(last, of, pick(end, own))
    shift_ns = clock_shift(trace, rows).ns
    before = np.concatenate([[-_NEVER], np.maximum.accumulate(last)[:-1]])
    other = np.flatnonzero((step < 0) & (table.kind[rows] == WorkKind.KERNEL))
    before = np.maximum(before, _ran_before(found, joined.time_ns[other], end[other]))
    start = np.maximum(found.start_ns - shift_ns, before)
    until = last if found.family == MODULE else np.maximum(found.end_ns - shift_ns, last)
    launches, missing = _launches(trace, device, found)
    cut = (first == _NEVER) & (missing > 0)
    if cut.any():
        which = ", ".join(str(n) if n >= 0 else "without a number" for n in found.number[cut].tolist())
        notes.append(f"cut by the collector (launches but no kernels) and left out: step {which}")
    whole = (first < _NEVER) & (until > start)
    if not whole.any():
        what = _CALLED.get(found.family, f"call of the training function ({found.family})")
        return nothing(*notes, f"no {what} launched kernels")
    launched, lost = int(launches[whole].sum()), int(missing[whole].sum())
    ratio = lost / launched if launched else 0.0
    if lost:
        notes.append(f"{lost} of {launched} launches ({format_ratio(ratio)}) have no kernel in the trace")
    next_one = whole[1:] & _follows(found.number) & ~_validated(found)
    pause = np.append(np.where(next_one, start[1:] - until[:-1], -1), -1)
    if found.of:
        notes += _parts_of_pass(trace, rows[own[of == np.argmax(whole)]])
    # A batch that was sent between two calls is copied while a step runs: the device does not idle then.
    strays = np.flatnonzero((step < 0) & (table.kind[rows] == WorkKind.MEMCPY))
    at = latest(start, end[strays] - 1)
    during = (at >= 0) & (begin[strays] < until[at])
    own, of = np.concatenate([own, strays[during]]), np.concatenate([of, at[during]])
    order = np.argsort(own, kind="stable")
    return Periods(
        start, until, found.number, found.family, tuple(notes), ratio, found.marker_ns, found.numbered,
        Work(pick(rows, own[order]), of[order]), None if found.family == OPTIMIZER else pause,
        "pass" if found.of else "step", found.of,
    ).keep(whole)  # fmt: skip


_CALLED = {
    RANGE: "range of that name",
    OPTIMIZER: "work between two updates of an optimizer",
    MODULE: "call of a module",
}


def _parts_of_pass(trace: Trace, rows: Int64) -> list[str]:
    """Return a note on the parts that one pass repeats: they are not passes."""
    rows = _of_busiest_stream(trace, rows[trace.kernels.kind[rows] == WorkKind.KERNEL])
    found = repetition(trace.kernels.name[rows])
    if found is None:
        return []
    start = trace.kernels.start_ns[rows]
    first = begins(trace.kernels.name[rows], start, start + trace.kernels.duration_ns[rows], found.length)
    if len(first) < 2:
        return []
    count, each_ns = (len(rows) - found.outside) // found.length, median(np.diff(start[first]))
    return [
        f"a pass repeats a sequence of {found.length} kernels {count} times, {format_ns(each_ns)} each: "
        "these are parts of it, such as its layers"
    ]


def _of_busiest_stream(trace: Trace, rows: Int64) -> Int64:
    """Return those of these rows that are of the stream with most of them: streams beside it run when they
    can, so their kernels come in no fixed order."""
    streams, counts = np.unique(trace.kernels.stream[rows], return_counts=True)
    return rows[trace.kernels.stream[rows] == streams[np.argmax(counts)]] if len(rows) else rows


_NEVER = np.iinfo(np.int64).max


@frozen
class _Joined:
    """Per row of the kernel table: the call that launched it, -1 for none, and when it was launched."""

    step: Int64
    time_ns: Int64
    notes: list[str]
    known: bool = True  # False: nothing tells which call launched what


def _join(trace: Trace, found: Calls, rows: Int64) -> _Joined:
    """Join rows of the kernel table with calls by their launches; by time where the trace has no launches."""
    table, host = trace.kernels, trace.host
    launch, start = pick(table.launch, rows), pick(table.start_ns, rows)
    linked = launch >= 0
    if not linked.any():
        return _join_by_time(found, start, pick(table.duration_ns, rows), ahead=trace.basis == "device")
    time = host.start_ns.take(launch)
    if not linked.all():
        time = np.where(linked, time, start)
        stream, shared = table.stream[rows], ~linked
        shared[shared] = _has_call(trace, rows[shared])
        time[_launched_before(stream, start, linked) & ~shared] = -_NEVER
        if shared.any():
            near, off = _like_neighbours(found, stream, start, time, linked)
            if np.count_nonzero(off & shared) > _MOST_LATE * len(rows):
                return _unjoined(start, "launches of several steps in a row share their correlation ids")
            time[shared] = near[shared]
    kernels = rows[linked & (table.kind[rows] == WorkKind.KERNEL)]
    if not _lagging(trace, found, kernels):
        return _Joined(found.at(time), time, [])
    said = "another thread launched kernels after the calls of their steps had returned: {}".format
    first = _first_of_each(trace, kernels, found)
    if first is not None:
        return _Joined(latest(np.sort(first), start), time, [said("a step begins with the program's first")])
    return _Joined(latest(found.start_ns, time), time, [said("where a step begins is not sure")])


def _join_by_time(found: Calls, start: Int64, duration: Int64, *, ahead: bool) -> _Joined:
    """Join work with the calls in which it began; with none where the host may run `ahead` and much of the
    work began outside of them."""
    step, note = found.at(start), "no kernel names its launch"
    since = (start >= found.start_ns[0]) & ~found.validation.contains(start)
    within, total = int(duration[since & (step >= 0)].sum()), int(duration[since].sum())
    if not ahead or within >= _LEAST_IN_CALLS * total:
        return _Joined(step, start, [f"{note}: kernels were joined with the calls of the step by time"])
    outside = f"{format_ratio(1 - within / total)} of the device's time lies outside the calls of the step"
    return _unjoined(start, f"{note}, and {outside}")


def _unjoined(start: Int64, why: str) -> _Joined:
    said = f"{why}: the host ran ahead of the device, and which call the work is of is not known"
    return _Joined(np.full(len(start), -1, np.int64), start, [said], known=False)


def _like_neighbours(
    found: Calls, stream: Int32, start: Int64, time: Int64, linked: Bool
) -> tuple[Int64, Bool]:
    """Return when work was launched, by the launch of the next on its stream, because streams run their work
    in order; and whether that may be several calls off. The last work of a stream is taken to be of the call
    in which it began, else of the call that launched the one before it."""
    order = np.lexsort((start, stream))
    place, known, own = np.arange(len(order)), linked[order], stream[order]
    after = np.minimum.accumulate(np.where(known, place, len(order))[::-1])[::-1]
    before = np.maximum.accumulate(np.where(known, place, -1))
    preceded = (before >= 0) & (own[before] == own)
    by = np.where((after < len(order)) & (own[after % len(order)] == own), after, place)
    last = (by == place) & (found.at(start[order]) < 0) & preceded
    times, begun = time[order], start[order]
    until = np.minimum(times[np.where(last, before, by)], begun)
    call = np.where(preceded, latest(found.start_ns, times[before]), -1)
    doubtful = (until < begun) & (latest(found.start_ns, until) > call + 1)
    launched, off = np.empty(len(order), np.int64), np.empty(len(order), np.bool_)
    launched[order], off[order] = until, doubtful
    return launched, off


def _launched_before(stream: Int32, start: Int64, linked: Bool) -> Bool:
    """Return which work without a launch ran before all work of its stream that has one: such work was
    launched before the window began."""
    first = np.full(int(stream.max()) + 1, _NEVER)
    np.minimum.at(first, stream[linked], start[linked])
    return np.asarray(~linked & (start < np.where(first < _NEVER, first, start[linked][0])[stream]))


def _has_call(trace: Trace, rows: Int64) -> Bool:
    """Return which of these rows of one device have a call with their correlation id in the trace."""
    host, own = trace.host, threads_of(trace, int(trace.kernels.device[rows[0]]))
    ids = host.correlation if own is None else host.correlation[own[host.thread]]
    return np.isin(trace.kernels.correlation[rows], ids[ids >= 0])


def _ran_before(found: Calls, time_ns: Int64, end: Int64) -> Int64:
    """Return when the last of this work that was launched before each call ended."""
    last = np.full(len(found) + 1, -_NEVER)
    np.maximum.at(last, latest(found.start_ns, time_ns) + 1, end)
    return np.maximum.accumulate(last)[:-1]


def _lagging(trace: Trace, found: Calls, rows: Int64) -> bool:
    """Return whether threads of their own launched these kernels, and not in the calls of their steps;
    kernels of a validation belong to no step."""
    host, launch = trace.host, pick(trace.kernels.launch, rows)
    if len(found.validation):
        launch = launch[~found.validation.contains(host.start_ns[launch])]
    other = host.thread.take(launch) != found.thread
    if found.family in (RANGE, OPTIMIZER, MODULE) or 2 * np.count_nonzero(other) <= len(other):
        return False
    at = found.at(host.start_ns[launch])
    if np.count_nonzero(other & (at < 0)) > _MOST_LATE * len(other):
        return True
    return found.family not in FUNCTIONS and not _ran_under(trace, found, host.start_ns[launch])


def _ran_under(trace: Trace, found: Calls, start: Int64) -> bool:
    """Return whether the work of each step ran under its marker: all of it (but for one step's at the end,
    which the window may have cut), and about as much under each."""
    if len(found) < 2:
        return True
    marker = found.at(start)
    late = np.count_nonzero(start >= trace.markers.end_ns[trace.markers.thread == found.thread].max())
    count = np.bincount(marker[marker >= 0], minlength=len(found))[:-1]  # the last may be cut
    usual = median(count)
    even = (count >= usual / _UNEVEN).all() and (count <= usual * _UNEVEN).all()
    return bool(even and late <= max(_MOST_LATE * len(start), usual))


def _first_of_each(trace: Trace, rows: Int64, found: Calls) -> Int64 | None:
    """Return when the first of the ops that ran once for each call, each time after its call began, ran."""
    kernels = trace.kernels
    _, code, count = np.unique(
        kernels.name[rows] * np.int64(len(trace.ops) + 1) + kernels.op[rows],
        return_inverse=True, return_counts=True,
    )  # fmt: skip
    often = np.flatnonzero(count[code] == len(found))
    if not len(often):
        return None
    start = np.asarray(kernels.start_ns[rows[code == code[often[0]]]])
    return start if (start >= found.start_ns).all() else None


def _launches(trace: Trace, device: int, found: Calls) -> tuple[Int64, Int64]:
    """Return per call the launches by the device's host in it, and those of them whose kernel is in the trace
    of no device."""
    host, kernels = trace.host, trace.kernels
    rows = np.flatnonzero((host.kind == HostKind.LAUNCH) & (host.correlation >= 0))
    own, ids = threads_of(trace, device), kernels.correlation
    if own is not None:
        rows = rows[own[host.thread[rows]]]
        same = np.array([each.host == trace.devices[device].host for each in trace.devices])
        ids = ids[same[kernels.device]]
    call = found.at(host.start_ns[rows])
    within = np.flatnonzero(call >= 0)
    rows, call = pick(rows, within), pick(call, within)
    seen = np.zeros(len(host) + 1, np.bool_)
    seen[kernels.launch] = True
    lost = ~seen[rows]
    # A driver call within a runtime call shares its correlation: one of the two holds the kernel.
    if lost.any():
        lost[lost] = ~np.isin(host.correlation[rows[lost]], ids)
    count = np.bincount(call, minlength=len(found)).astype(np.int64)
    return count, np.bincount(call[lost], minlength=len(found)).astype(np.int64)


def _follows(number: Int64) -> Bool:
    """Return whether each call but the last is followed by the next step: numbers grow, by a constant stride
    where a call covers several steps, and not at all where a call is one of several of one number. Calls
    without numbers are taken to follow one another."""
    step = np.diff(number)
    if not len(step) or (number < 0).any():
        return np.ones(len(step), np.bool_)
    grows = step > 0
    return np.asarray((step >= 0) & (step <= median(step[grows]))) if grows.any() else step == 0


def _validated(found: Calls) -> Bool:
    """Return whether a validation lies between each call and the next: the time from one to the other is then
    an epoch's edge, and belongs to no step."""
    before = np.searchsorted(found.validation.start, found.start_ns)
    return np.asarray(np.diff(before) > 0)


# --- without calls of the host -----------------------------------------------------------------------------


def _by_group(trace: Trace, rows: Int64) -> Periods:
    group, start = trace.kernels.group[rows], trace.kernels.start_ns[rows]
    group, start = group[group >= 0], start[group >= 0]
    _, first = np.unique(group, return_index=True)
    edges = np.sort(start[first])
    if len(edges) < 2 or len(group) < 0.5 * len(rows):
        return nothing()
    return Periods(edges[:-1], edges[1:], np.full(len(edges) - 1, -1, np.int64), "group")


def _by_steps_line(trace: Trace, device: int) -> Periods:
    table = trace.markers
    lines = np.array(
        [trace.strings[row] == "steps_line" if row >= 0 else False for row in table.family.tolist()]
    )
    rows = np.flatnonzero(lines)
    if table.device is not None:
        rows = rows[np.isin(table.device[rows], (device, -1))]
    rows = rows[outermost(table.start_ns[rows], table.end_ns[rows])]
    start, end, number = table.start_ns[rows], table.end_ns[rows], table.number[rows]
    if len(rows) == 1 and end[0] > start[0]:
        note = "one step as marked on the device: the time to the next step is not included"
        return Periods(start, end, number, "steps_line", (note,))
    if len(rows) < 2:
        return nothing()
    whole = _follows(number)
    return Periods(start[:-1][whole], start[1:][whole], number[:-1][whole], "steps_line")


def _by_programs(trace: Trace, device: int) -> Periods:
    """Return the runs of the compiled program that took most of the device's time, as its profiler marks
    them; of one that is named a training step, if there is such. Without backward or optimizer work a run is
    a pass."""
    table = trace.markers
    if table.device is None:
        return nothing()
    own = np.flatnonzero(table.device == device)
    families = np.array([trace.strings[row] for row in table.family[own].tolist()], np.object_)
    programs = sorted({family for family in families.tolist() if family.startswith(XLA_MODULE)})
    if not programs:
        return nothing()
    took = {each: int((table.end_ns - table.start_ns)[own[families == each]].sum()) for each in programs}
    named = [each for each in programs if _STEP_PROGRAM.search(each)]
    chosen = max(named or programs, key=lambda each: took[each])
    rows = own[families == chosen]
    rows = rows[outermost(table.start_ns[rows], table.end_ns[rows])]
    start, end, name = table.start_ns[rows], table.end_ns[rows], chosen.removeprefix(XLA_MODULE)
    if len(rows) < 2:
        return nothing()
    unit: StepUnit = "step" if named or trains(trace) else "pass"
    note = f"no step markers: a {unit} is a run of the program {name}, as the profiler marks it on the device"
    pause = np.append(start[1:] - end[:-1], -1)
    return Periods(start, end, table.number[rows], PROGRAM, (note,), pause_ns=pause, unit=unit, of=name)


_STEP_PROGRAM = re.compile(r"(?<![a-z])(train|step)(?!\w*(eval|test|valid|predict|infer))")


def _by_repetition(trace: Trace, rows: Int64) -> Periods:
    """Return the period of the sequence of kernel names on the device's busiest stream; its steps begin after
    the longest usual pause. They are steps of a training alone, and only where no call of one module or range
    holds several of them."""
    table = trace.kernels
    rows = _of_busiest_stream(trace, rows)
    name, start = table.name[rows], table.start_ns[rows]
    found = repetition(name)
    if found is None:
        return nothing(
            "no step markers, and the sequence of kernels does not repeat: no step can be told apart"
        )
    if not found.steps:
        return nothing(
            f"no step markers; a sequence of {found.length} kernels repeats, but {found.outside} kernels lie "
            "outside of it, so it may be a layer as well as a step: no step can be told apart"
        )
    first = begins(name, start, start + table.duration_ns[rows], found.length)
    if len(first) < 2:
        return nothing("no step markers, and fewer than two whole repetitions of the sequence of kernels")
    edges, trained = start[first], trains(trace)
    if trained and _within_one_range(trace, rows[first]):
        return nothing(
            f"no step markers; a sequence of {found.length} kernels repeats within one call of a module or "
            "range, so it is a part of that: no step can be told apart"
        )
    note = f"no step markers: steps are repetitions of the sequence of {found.length} kernels"
    program = "" if trained else _program_of_each(trace, rows, first)
    if program:
        note = f"no step markers: a pass is a run of the program {program}, {found.length} kernels"
    elif not trained:
        note = (
            f"the account is of a part that repeats ({found.length} kernels), which may be a layer as well "
            "as a whole pass: no step markers, and no backward or optimizer work"
        )
    distinct = np.diff(edges) > 0
    return Periods(
        edges[:-1][distinct],
        edges[1:][distinct],
        np.full(int(distinct.sum()), -1, np.int64),
        "period",
        (note,),
        unit="step" if trained else "pass" if program else "part",
        of=program,
    )


_RUN_OF_A_PROGRAM = ":XLA GPU module"
"""How XLA ends the name of the host's event in which it launches a program: `jit_step:XLA GPU module`."""


def _program_of_each(trace: Trace, rows: Int64, first: Int64) -> str:
    """Return the name of the compiled program of which each repetition of these kernels was one run; "" where
    that does not show. `first`: the places in `rows` at which repetitions begin."""
    host, launch = trace.host, trace.kernels.launch[rows[first[0] : first[-1]]]
    runs = np.array([text.endswith(_RUN_OF_A_PROGRAM) for text in trace.strings], np.bool_)
    if not runs.any() or (launch < 0).any() or len(np.unique(host.thread[launch])) != 1:
        return ""
    found = np.flatnonzero(runs[host.name] & (host.thread == host.thread[launch[0]]))
    found = found[outermost(host.start_ns[found], host.start_ns[found] + host.duration_ns[found])]
    end_ns = host.start_ns[found] + host.duration_ns[found]
    at = row_around(host.start_ns[found], end_ns, host.start_ns[launch])
    starts = first[:-1] - first[0]
    one_each = np.array_equal(at, np.repeat(at[starts], np.diff(first)))
    names = {trace.strings[host.name[found[row]]] for row in at[starts].tolist() if row >= 0}
    if not one_each or (at < 0).any() or len(np.unique(at[starts])) != len(starts) or len(names) != 1:
        return ""
    return str(names.pop()).removesuffix(_RUN_OF_A_PROGRAM)


def _within_one_range(trace: Trace, firsts: Int64) -> bool:
    """Return whether several of the repetitions that begin with these rows were launched in one of the
    outermost ranges (or modules) of the host."""
    host, launch = trace.host, trace.kernels.launch[firsts]
    launch = launch[launch >= 0]
    for thread in np.unique(host.thread[launch]).tolist():
        ranges = (host.thread == thread) & (host.kind == HostKind.OTHER) & (host.correlation < 0)
        rows = np.flatnonzero(ranges)
        rows = rows[outermost(host.start_ns[rows], host.start_ns[rows] + host.duration_ns[rows])]
        end_ns = host.start_ns[rows] + host.duration_ns[rows]
        at = row_around(host.start_ns[rows], end_ns, host.start_ns[launch[host.thread[launch] == thread]])
        if (np.bincount(at[at >= 0]) > 1).any():
            return True
    return False


def _without_tuning(trace: Trace, rows: Int64, found: Periods) -> Periods:
    """Return the steps in which no library tried out algorithms."""
    if not len(found):
        return found
    if found.work is not None:
        rows, step = found.work.row, found.work.step
    else:
        step = row_around(found.start_ns, found.end_ns, trace.kernels.start_ns[rows])
        rows, step = rows[step >= 0], step[step >= 0]
    tuned = tuned_steps(trace, rows, step, len(found))
    count = int(np.count_nonzero(tuned))
    if not count:
        return found
    said = (
        f"{format_count(count)} of {format_count(len(found))} steps tried out several algorithms for a "
        "convolution (autotuning), and were left out"
    )
    if count == len(found):
        return nothing(*found.notes, said)
    return replace(found.keep(~tuned, said), tuned=count)


def _without_warm_up(trace: Trace, rows: Int64, found: Periods) -> Periods:
    """Return the steps with no kernel launched in a warm-up range."""
    warm = warm_up(trace)
    rows = rows[trace.kernels.launch[rows] >= 0]
    if not len(found) or not len(warm) or not len(rows):
        return found
    launched = trace.host.start_ns[trace.kernels.launch[rows]]
    early = np.sort(trace.kernels.start_ns[rows[warm.contains(launched)]], kind="stable")
    kept = np.searchsorted(early, found.start_ns) == np.searchsorted(early, found.end_ns)
    count = int(np.count_nonzero(~kept))
    if not count:
        return found
    said = f"{count} of {len(found)} repetitions lie in a range that says warm-up, and were left out"
    return found.keep(kept, said) if kept.any() else nothing(*found.notes, said)
