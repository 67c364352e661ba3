"""What the loop and its callbacks do between two steps, by the events on the thread that trains."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

from mpprof.analysis.arrays.intervals import EMPTY, Intervals, are_among, gaps, join, latest, union
from mpprof.analysis.steps.accounted_steps import Window
from mpprof.analysis.steps.boundaries import PROGRAM
from mpprof.analysis.steps.calls import Calls, calls, outermost
from mpprof.model.account import Between
from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen
from mpprof.model.trace import HostKind, Trace

_EVENT = (
    r"^(?:Eager(?:Local)?Execute: (?P<op>\S+)$|PjitFunction\((?P<jit>\w+)\)|"
    r"(?P<call>(?:test|predict)_function)$)"
)
"""What says by name what it does: an op or function that TensorFlow runs eagerly, a function that JAX has
compiled, Keras' validation and prediction."""
_WRITES = r"^(Write\w*Summary|(Flush|Create|Close)?SummaryWriter|Create\w*SummaryWriter|FlushSummaryWriter)$"
_WITH_SUMMARIES = frozenset(("LogicalAnd", "Identity"))
"""Ops that TensorBoard's callback runs to decide whether a summary is due."""
_VALIDATION = "validation"
_READING, _WAITING = "reading the logs", "waiting for the device"
"""Waits for the device are part of the first where something is read. Without, as behind the last step that
PyTorch's profiler records, they are waits alone."""
_PLAIN: tuple[tuple[str, str], ...] = (
    ("TensorBoard's summary writer", _WRITES),
    (_READING, r"^(ReadVariableOp|OptionalHasValue|OptionalGetValue|MemcpyD2H)$"),
    (_WAITING, r"^\w*(Stream|Event|Ctx|Device)Synchronize$"),
    (_VALIDATION, r"^(__inference_)?test_(function|step)(_\d+)?$"),
    ("prediction", r"^(__inference_)?predict_(function|step)(_\d+)?$"),
    ("saving a checkpoint", r"^(Save(V2|Slices)?|MergeV2Checkpoints|ShardedFilename)$"),
    ("making the data's iterator", r"^(Make|Anonymous|One|Multi)?\w*(Iterator|Dataset)(V\d)?$"),
)  # fmt: skip
_UNNAMED = "other work of the host (Python)"
_MOST_NAMES = 6


@frozen
class _Spans:
    """Events between the calls: under which name, and when."""

    name: str
    start_ns: Int64
    end_ns: Int64
    device_ns: float


def listed(trace: Trace, window: Window) -> tuple[tuple[Between, ...] | None, str | None]:
    """Return what lies between the steps of this window, the longest on the host first; None with the reason
    where the trace has no calls that tell the steps from what lies between.

    Of several steps it is what lies between two that follow one another; of a single one what follows it.
    """
    periods = window.periods
    told = periods.pause_ns is not None and periods.source != PROGRAM
    found = calls(trace, window.device) if told else None
    if found is None:
        return None, "the trace holds no call of the training function: steps were found by other means"
    if found.thread < 0:
        return None, "the calls are on no thread of the trace"
    pauses = _pauses(trace, window, found)
    scale = max(1, int(periods.followed().sum())) * window.steps / len(periods)  # steps that have a next one
    groups: dict[str, list[_Spans]] = {}
    spans = list(_spans(trace, window, found))
    writes = any(re.match(_WRITES, one.name) for one in spans)
    for one in spans:
        groups.setdefault(_plain_name(one.name, writes=writes), []).append(one)
    if _READING in groups:
        groups[_READING] += groups.pop(_WAITING, [])
    entries = [_entry(name, parts, pauses, scale) for name, parts in groups.items()]
    known = EMPTY
    for one in spans:
        known = join(known, union(one.start_ns, one.end_ns))
    rest_ns = pauses.length_ns - _within(known, pauses)
    if rest_ns > 0:
        entries.append(Between(_UNNAMED, rest_ns / scale, 0.0))
    some = (entry for entry in entries if entry.host_ns or entry.device_ns)
    return tuple(sorted(some, key=lambda e: (-e.host_ns, -e.device_ns, e.name))), None


def _pauses(trace: Trace, window: Window, found: Calls) -> Intervals:
    """Return when the thread that trains was between two steps, on the host's clock; where there is one step,
    when it was behind that step."""
    periods, followed = window.periods, window.periods.followed()
    start, end = (time_ns + window.shift.ns for time_ns in (periods.start_ns, periods.end_ns))
    if periods.pause_ns is not None and followed.any():
        return union(end[followed], (end + periods.pause_ns)[followed])
    return gaps(union(start, end), union(end[:1], np.array([_last_event(trace, found)])))


def _last_event(trace: Trace, found: Calls) -> int:
    first, last = np.searchsorted(trace.host.thread, [found.thread, found.thread + 1])
    end = trace.host.start_ns[first:last] + trace.host.duration_ns[first:last]
    return int(end.max(initial=0))


def _spans(trace: Trace, window: Window, found: Calls) -> Iterable[_Spans]:
    """Yield the eager ops, functions and waits outside the calls, and the launches that are in none of
    them."""
    host, kernels = trace.host, trace.kernels
    first, last = np.searchsorted(host.thread, [found.thread, found.thread + 1])
    rows = np.arange(first, last)
    rows = rows[_outside(window, found, host.start_ns[rows])]
    names = {row: _event_name(trace.strings[row]) for row in set(host.name[rows].tolist())}
    named = np.array([bool(names[row]) for row in host.name[rows].tolist()], np.bool_)
    ops = rows[named]
    ops = ops[outermost(host.start_ns[ops], host.start_ns[ops] + host.duration_ns[ops])]
    start, end = host.start_ns[ops], host.start_ns[ops] + host.duration_ns[ops]
    covered = union(start, end)
    other = rows[np.isin(host.kind[rows], (HostKind.LAUNCH, HostKind.COPY, HostKind.SYNC))]
    other = other[~covered.contains(host.start_ns[other])]
    other = other[outermost(host.start_ns[other], host.start_ns[other] + host.duration_ns[other])]
    mine = np.flatnonzero((kernels.device == window.device) & (kernels.launch >= 0))
    mine = mine[np.isin(kernels.launch[mine], rows)]
    work = np.zeros(len(mine)) if trace.basis == "host" else kernels.duration_ns[mine].astype(np.float64)
    at = host.start_ns[kernels.launch[mine]]
    owner = np.searchsorted(start, at, side="right") - 1
    inside = (owner >= 0) & (at < end[np.maximum(owner, 0)]) if len(ops) else np.zeros(len(mine), np.bool_)
    validates = found.validation.contains(start)
    if validates.any():
        yield _Spans(
            _VALIDATION, start[validates], end[validates], float(work[inside & validates[owner]].sum())
        )
    for row in sorted(set(host.name[ops[~validates]].tolist())):
        of = ~validates & (host.name[ops] == row)
        yield _Spans(str(names[row]), start[of], end[of], float(work[inside & of[owner]].sum()))
    for row in sorted(set(host.name[other].tolist())):
        of = other[host.name[other] == row]
        launched = ~inside & np.isin(kernels.launch[mine], of)
        yield _Spans(
            trace.strings[row],
            host.start_ns[of],
            host.start_ns[of] + host.duration_ns[of],
            float(work[launched].sum()),
        )


def _outside(window: Window, found: Calls, time_ns: Int64) -> Bool:
    """Return which of these times lie between a step of the window and the next call; where there is one
    call, which lie behind it."""
    outside = found.at(time_ns) < 0
    if len(found) < 2:
        outside &= time_ns > found.start_ns[0]
        return outside
    entered = window.periods.marker_ns
    assert entered is not None
    followed = are_among(entered[window.periods.followed()], found.marker_ns)
    rows = np.flatnonzero(outside)
    after = latest(found.start_ns, time_ns[rows])
    outside[rows] = (after >= 0) & followed[after]
    return outside


def _event_name(name: str) -> str | None:
    match = re.match(_EVENT, name)
    return None if match is None else match["op"] or match["jit"] or match["call"]


def _plain_name(name: str, *, writes: bool) -> str:
    if writes and name in _WITH_SUMMARIES:
        return _PLAIN[0][0]
    return next((plain for plain, pattern in _PLAIN if re.match(pattern, name)), name)


def _entry(name: str, parts: list[_Spans], pauses: Intervals, scale: float) -> Between:
    spans = EMPTY
    for part in parts:
        spans = join(spans, union(part.start_ns, part.end_ns))
    events = list(dict.fromkeys(part.name for part in sorted(parts, key=_longest_first)))
    shown = ", ".join(events[:_MOST_NAMES]) + (" and others" if len(events) > _MOST_NAMES else "")
    label = name if events == [name] else f"{name} ({shown})"
    return Between(label, _within(spans, pauses) / scale, sum(part.device_ns for part in parts) / scale)


def _longest_first(part: _Spans) -> tuple[int, int, str]:
    return -int((part.end_ns - part.start_ns).sum()), min(part.start_ns.tolist(), default=0), part.name


def _within(some: Intervals, others: Intervals) -> int:
    return int(others.overlap(some.start, some.end).sum()) if len(some) else 0
