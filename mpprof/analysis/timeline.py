"""Where a device's steps begin and end.

Device step n runs from the first compute kernel launched under marker n to that of marker n + 1, so N
markers give N - 1 whole steps, and the time between two steps belongs to the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.grouping import pick
from mpprof.analysis.intervals import Intervals, latest
from mpprof.analysis.quantiles import median
from mpprof.analysis.repetition import begins, repetition
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_ratio
from mpprof.model.trace import HostKind, Trace, WorkKind

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

MARKER_FAMILIES = ("mpprof", "keras", "tensorflow", "jax")
"""Whose markers are believed first. `steps_line` is no host marker: a converter derived it."""

_UNEVEN = 2.0
_MOST_LATE = 0.05
"""A step whose optimizer update is skipped has fewer ops than others, but not half as many."""


@frozen
class Periods:
    """The whole steps of one device, in order; empty arrays where it has none, and `notes` say why.

    `number` is the marker's step number, -1 where it has none. `source` says how steps were told apart:
    a marker family, "group", "steps_line" or "period" (the repetition of the kernel sequence).
    `missing_ratio` is the share of the launches in these steps whose kernel is not in the trace. `marker_ns`
    is when the host entered each step's marker; None where steps come from no marker.
    """

    start_ns: Int64
    end_ns: Int64
    number: Int64
    source: str
    notes: tuple[str, ...] = ()
    missing_ratio: float = 0.0
    marker_ns: Int64 | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    def keep(self, rows: Bool, *notes: str) -> Periods:
        """These steps only."""
        return Periods(
            self.start_ns[rows], self.end_ns[rows], self.number[rows], self.source,
            (*self.notes, *notes), self.missing_ratio,
            None if self.marker_ns is None else self.marker_ns[rows],
        )  # fmt: skip

    def instants(self) -> Intervals:
        return Intervals(self.start_ns, self.end_ns)


def nothing(*notes: str) -> Periods:
    none = np.empty(0, np.int64)
    return Periods(none, none, none, "none", notes)


@frozen
class Marks:
    """Step markers that follow one another on one thread."""

    number: Int64
    start_ns: Int64
    end_ns: Int64
    family: str
    thread: int

    def __len__(self) -> int:
        return len(self.start_ns)

    def at(self, time_ns: Int64) -> Int64:
        """The marker around each time, -1 outside all of them."""
        row = latest(self.start_ns, time_ns)
        inside = (row >= 0) & (time_ns < self.end_ns[np.maximum(row, 0)])
        return np.where(inside, row, -1)


def threads_of(trace: Trace, device: int) -> Bool | None:
    """Which threads are of the host that launches the work of this device; None where all are."""
    hosts = np.array(trace.thread_hosts or (0,) * len(trace.threads), np.int64)
    own = hosts == trace.devices[device].host if device < len(trace.devices) else hosts == 0
    return None if own.all() else own


def marks(trace: Trace, device: int = 0) -> Marks | None:
    """The step markers of the thread that trains with this device: of the first family that has any, on the
    thread of its host that has most, the outermost where they nest. None without host markers."""
    table = trace.markers
    own = threads_of(trace, device)
    families = np.array([trace.strings[row] if row >= 0 else "" for row in table.family.tolist()], object)
    others = sorted({f for f in families.tolist() if f not in (*MARKER_FAMILIES, "steps_line", "")})
    for family in (*MARKER_FAMILIES, *others):
        rows = np.flatnonzero(families == family)
        if own is not None:
            rows = rows[(table.thread[rows] >= 0) & own[table.thread[rows]]]
        if not len(rows):
            continue
        threads, counts = np.unique(table.thread[rows], return_counts=True)
        thread = int(threads[np.argmax(counts)])
        rows = rows[table.thread[rows] == thread]
        rows = rows[_outermost(table.start_ns[rows], table.end_ns[rows])]
        return Marks(table.number[rows], table.start_ns[rows], table.end_ns[rows], family, thread)
    return None


def periods(trace: Trace, device: int) -> Periods:
    """The whole steps of the device in this row of `trace.devices`.

    Steps come from host markers joined through launches; else from the file's own step groups; else from
    its `Steps` line; else from the repetition of the kernel sequence. A step with launches but no kernels
    was cut by the collector and is left out; so is a pair of markers whose numbers do not follow one
    another, since something else ran between them.
    """
    rows = np.flatnonzero((trace.kernels.device == device) & (trace.kernels.kind == WorkKind.KERNEL))
    if not len(rows):
        return nothing("no kernel ran on this device")
    notes: list[str] = []
    for found in _attempts(trace, device, rows):
        if len(found):
            return found
        notes += found.notes
    return nothing(*notes)


def _attempts(trace: Trace, device: int, rows: Int64) -> Iterator[Periods]:
    found = marks(trace, device)
    if found is not None:
        called = rows if trace.basis == "device" else _called(trace, rows)
        if len(called):
            yield _by_launch(trace, device, found, called)
        if trace.basis == "host":
            yield _by_host_time(trace, found, rows)
    yield _by_group(trace, rows)
    yield _by_steps_line(trace, device)
    if found is None:
        yield _by_repetition(trace, rows)


# --- markers -----------------------------------------------------------------------------------------------


def _called(trace: Trace, rows: Int64) -> Int64:
    """Of the ops of a host those that another event started: a call that returned before they ran. Empty
    where they take less than half of the time."""
    kernels, host = trace.kernels, trace.host
    launch, total = kernels.launch[rows], int(kernels.duration_ns[rows].sum())
    rows, launch = rows[launch >= 0], launch[launch >= 0]
    other = host.name[launch] != kernels.name[rows]
    time = int(kernels.duration_ns[rows[other]].sum())
    return rows[other] if 2 * time > total else rows[:0]


def _by_host_time(trace: Trace, found: Marks, rows: Int64) -> Periods:
    """From marker to marker, where the ops ran under them; else from run to run of the op that begins a step.

    A backend that only dispatches under a marker runs its ops later: then the markers' times are not those
    of the steps, and the op that ran once per marker, before the others, tells the steps apart.
    """
    if len(found) < 2:
        return nothing(_one_marker(found))
    whole = _follows(found.number)
    edges = found.start_ns
    notes: tuple[str, ...] = ()
    if not _ran_under(trace, found, trace.kernels.start_ns[rows]):
        first = _first_of_each(trace, rows, found)
        if first is None:
            return nothing("ops ran after the step markers under which they were dispatched")
        edges = first
        notes = ("the host runs ahead of its ops: a step begins with the op that begins the program",)
    return Periods(
        edges[:-1][whole], edges[1:][whole], found.number[:-1][whole], found.family, notes,
        marker_ns=found.start_ns[:-1][whole],
    )  # fmt: skip


def _ran_under(trace: Trace, found: Marks, start: Int64, may_be_late: float = 0.0) -> bool:
    """Whether the work of each step ran under its marker: all of it (but for so many steps' at the end), and
    about as much under each. The end is that of the last marker of any family: somebody else's may go on."""
    marker = found.at(start)
    late = np.count_nonzero(start >= trace.markers.end_ns[trace.markers.thread == found.thread].max())
    count = np.bincount(marker[marker >= 0], minlength=len(found))[:-1]  # the last may be cut
    usual = median(count)
    even = (count >= usual / _UNEVEN).all() and (count <= usual * _UNEVEN).all()
    return bool(even and late <= max(_MOST_LATE * len(start), may_be_late * usual))


def _first_of_each(trace: Trace, rows: Int64, found: Marks) -> Int64 | None:
    """When the first of the ops that ran once for each marker, each time after its marker, ran."""
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


def _by_launch(trace: Trace, device: int, found: Marks, rows: Int64) -> Periods:
    """From the first kernel launched under a marker to the first under the next one."""
    kernels, host = trace.kernels, trace.host
    launch = pick(kernels.launch, rows)
    linked = pick(rows, np.flatnonzero(launch >= 0))
    notes: list[str] = []
    joined = linked if len(linked) else rows
    start, stream = pick(kernels.start_ns, joined), pick(kernels.stream, joined)
    if len(linked):
        marker = found.at(host.start_ns[pick(kernels.launch, linked)])
    else:
        notes.append("no kernel names its launch: kernels were joined with step markers by time")
        marker = found.at(start)
    first = _first_under(len(found), marker, start, stream if trace.basis == "device" else None)
    if _lagging(trace, found, linked):
        own = _first_of_each(trace, linked, found)
        where = "where a step begins is not sure" if own is None else "a step begins with the program's first"
        notes.append(f"another thread launched kernels after their step markers had passed: {where}")
        first = first if own is None else own
    cut = np.zeros(len(found), np.bool_)
    missing = launches = np.zeros(len(found), np.int64)
    if len(linked):
        launches, missing = _launches(trace, device, found)
        cut = (first < 0) & (missing > 0)
    if cut.any():
        which = ", ".join(str(n) if n >= 0 else "without a number" for n in found.number[cut].tolist())
        notes.append(f"cut by the collector (launches but no kernels) and left out: step {which}")
    if len(found) < 2:
        return nothing(*notes, _one_marker(found))
    whole = (first[:-1] >= 0) & (first[1:] > first[:-1]) & _follows(found.number)
    whole &= _after_one_another(first[:-1], first[1:], whole)
    if not whole.any():
        return nothing(
            *notes, f"no two step markers ({found.family}) that follow one another launched kernels"
        )
    launched, lost = int(launches[:-1][whole].sum()), int(missing[:-1][whole].sum())
    ratio = lost / launched if launched else 0.0
    if lost:
        notes.append(f"{lost} of {launched} launches ({format_ratio(ratio)}) have no kernel in the trace")
    return Periods(
        first[:-1][whole], first[1:][whole], found.number[:-1][whole], found.family, tuple(notes), ratio,
        found.start_ns[:-1][whole],
    )  # fmt: skip


def _first_under(count: int, marker: Int64, start: Int64, stream: NDArray[np.int32] | None) -> Int64:
    """When the first kernel under each marker started, -1 without any. `start` is sorted.

    Of the busiest stream, where that has work under every marker: on a stream beside it a kernel of the next
    step starts while the device is still at work on this one."""

    def first_of(rows: NDArray[np.intp]) -> Int64:
        first = np.full(count, -1, np.int64)
        # Written last to first, so that the first kernel of each marker stays.
        first[marker[rows][::-1]] = start[rows][::-1]
        return first

    rows = np.flatnonzero(marker >= 0)
    first = first_of(rows)
    if stream is not None and len(rows):
        busiest = rows[stream[rows] == np.bincount(stream[rows]).argmax()]
        own = first_of(busiest) if len(busiest) < len(rows) else first
        first = own if ((own >= 0) == (first >= 0)).all() else first
    return first


def _lagging(trace: Trace, found: Marks, rows: Int64) -> bool:
    """Whether a thread of its own launched these kernels, and not under their step markers."""
    host, launch = trace.host, trace.kernels.launch[rows]
    if len(found) < 2 or not len(rows):
        return False
    own = 2 * np.count_nonzero(host.thread[launch] == found.thread) > len(rows)
    # A step that the window cuts has launches, but its marker was never closed: one step may be late.
    return not own and not _ran_under(trace, found, host.start_ns[launch], may_be_late=1.0)


def _launches(trace: Trace, device: int, found: Marks) -> tuple[Int64, Int64]:
    """Per marker: launches by the device's host under it, and those of them whose kernel is in the trace of
    no device."""
    host, kernels = trace.host, trace.kernels
    rows = np.flatnonzero((host.kind == HostKind.LAUNCH) & (host.correlation >= 0))
    own, ids = threads_of(trace, device), kernels.correlation
    if own is not None:
        rows = rows[own[host.thread[rows]]]
        same = np.array([each.host == trace.devices[device].host for each in trace.devices])
        ids = ids[same[kernels.device]]
    marker = found.at(host.start_ns[rows])
    rows, marker = rows[marker >= 0], marker[marker >= 0]
    seen = np.zeros(len(host) + 1, np.bool_)
    seen[kernels.launch] = True
    lost = ~seen[rows]
    # A driver call within a runtime call shares its correlation: one of the two holds the kernel.
    lost[lost] = ~np.isin(host.correlation[rows[lost]], ids)
    count = np.bincount(marker, minlength=len(found)).astype(np.int64)
    return count, np.bincount(marker[lost], minlength=len(found)).astype(np.int64)


def _after_one_another(begin: Int64, end: Int64, whole: Bool) -> Bool:
    """Which steps begin after all whole ones before them ended: launches joined with the wrong kernel mix
    steps up, and no instant may count twice."""
    reach = np.maximum.accumulate(np.where(whole, end, np.int64(-1)))
    return np.asarray(begin >= np.concatenate([[-1], reach[:-1]]))


def _follows(number: Int64) -> Bool:
    """Whether each marker but the last is followed by the next step: numbers grow, by a constant stride
    where a call covers several steps. Markers without numbers are believed."""
    step = np.diff(number)
    if not len(step) or (number < 0).any():
        return np.ones(len(step), np.bool_)
    grows = step > 0
    return np.asarray(grows & (step <= median(step[grows]))) if grows.any() else grows


def _one_marker(found: Marks) -> str:
    return (
        f"{len(found)} step marker ({found.family}): a whole step lies between two, so the window must hold "
        "at least two steps"
    )


def _outermost(start: Int64, end: Int64) -> Bool:
    reach = np.maximum.accumulate(end)
    return np.concatenate([[True], start[1:] >= reach[:-1]]) if len(start) else np.empty(0, np.bool_)


# --- without host markers ----------------------------------------------------------------------------------


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
    rows = rows[_outermost(table.start_ns[rows], table.end_ns[rows])]
    start, end, number = table.start_ns[rows], table.end_ns[rows], table.number[rows]
    if len(rows) == 1 and end[0] > start[0]:
        note = "one step as marked on the device, taken as it stands: the time to the next is not in it"
        return Periods(start, end, number, "steps_line", (note,))
    if len(rows) < 2:
        return nothing()
    whole = _follows(number)
    return Periods(start[:-1][whole], start[1:][whole], number[:-1][whole], "steps_line")


def _by_repetition(trace: Trace, rows: Int64) -> Periods:
    """The period of the sequence of kernel names on the device's busiest stream; its steps begin after the
    longest usual pause. Streams beside it run when they can, so their kernels come in no fixed order."""
    table = trace.kernels
    streams, counts = np.unique(table.stream[rows], return_counts=True)
    rows = rows[table.stream[rows] == streams[np.argmax(counts)]]
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
    edges = start[first]
    note = f"no step markers: steps are repetitions of the sequence of {found.length} kernels"
    distinct = np.diff(edges) > 0
    return Periods(
        edges[:-1][distinct],
        edges[1:][distinct],
        np.full(int(distinct.sum()), -1, np.int64),
        "period",
        (note,),
    )
