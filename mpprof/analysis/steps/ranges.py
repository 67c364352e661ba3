"""Steps that the user names: ranges of a host's annotations (NVTX, `record_function`, TraceMe).

A name is a range's exact name; between slashes it is a regular expression that the whole name must match. Its
first group, where it holds digits, is the step's number.
"""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from mpprof.analysis.arrays.intervals import union
from mpprof.analysis.steps.calls import RANGE
from mpprof.analysis.steps.unmarked import MODULE_CALL, WARM_UP
from mpprof.errors import NotFoundError, UsageError
from mpprof.model.arrays import Bool, Int64
from mpprof.model.quantities import format_count, format_ratio
from mpprof.model.trace import HostKind, MarkerTable, NamedRanges, Trace

MOST_LISTED, MOST_NEAR = 5, 3
NOTABLE_RATIO = 0.01
"""Launches outside of the steps are told from a hundredth on."""
MANY_LAUNCHES_RATIO = 0.5
"""What most of a trace's work is not launched in is no step of it."""
_LIKE_A_STEP = re.compile(r"(?i)(?<![a-z])(train|step|batch|iter(ation)?|execute|decode|prefill)(?![a-z]*\()")
"""What loops and servers call a step: `training_step`, `train_batch`, `execute_context_0`,
`step[DECODE bs=32]`."""
_LONGEST = 80
_DIGITS = re.compile(r"\d+")
_DRIVER = (HostKind.LAUNCH, HostKind.COPY, HostKind.SYNC)
_FRAMEWORK = (HostKind.OP, HostKind.EXECUTOR, HostKind.CODE)
"""Events of a framework's own, of which a step has any number."""


def with_steps_of(trace: Trace, wanted: str) -> Trace:
    """Return the trace with these ranges as its only steps, and a note of how many there are.

    If ranges of one thread overlap, the first is taken. Raises UsageError for a pattern that is not a regular
    expression, and NotFoundError, with the names that there are, where no range has that name.
    """
    matches = _matches(trace, wanted)
    host = trace.host
    rows = np.flatnonzero(np.array([number is not None for number in matches], np.bool_)[host.name])
    if not len(rows):
        raise NotFoundError(
            f"no range is named {wanted!r}", where=trace.source.path.name, next=_instead(trace, wanted)
        )
    start, end = host.start_ns[rows], host.start_ns[rows] + host.duration_ns[rows]
    own = np.zeros(len(rows), np.bool_)
    for thread in np.unique(host.thread[rows]).tolist():
        at = np.flatnonzero(host.thread[rows] == thread)
        own[at] = _apart(start[at], end[at])
    kept = np.flatnonzero(own)
    kept = kept[np.argsort(start[kept], kind="stable")]
    strings = trace.strings if RANGE in trace.strings else (*trace.strings, RANGE)
    number = np.array([matches[name] for name in host.name[rows[kept]].tolist()], np.int64)
    for thread in np.unique(host.thread[rows[kept]]).tolist():
        own = host.thread[rows[kept]] == thread
        if (np.diff(number[own]) <= 0).any():  # it counts nothing: a batch size, say
            number[own] = -1
    marks = MarkerTable(
        number=number,
        start_ns=start[kept],
        end_ns=end[kept],
        thread=host.thread[rows[kept]],
        family=np.full(len(kept), strings.index(RANGE), np.int32),
        device=np.full(len(kept), -1, np.int32),
    )
    notes = (*trace.notes, *_notes(trace, wanted, marks, len(rows) - len(kept)))
    return replace(trace, markers=marks, strings=strings, notes=notes)


def _apart(start: Int64, end: Int64) -> Bool:
    """Return which of these intervals, sorted by start, begin after the end of the last one that is kept."""
    kept = np.zeros(len(start), np.bool_)
    until = np.iinfo(np.int64).min
    for row, (begin, finish) in enumerate(zip(start.tolist(), end.tolist(), strict=True)):
        if begin >= until:
            kept[row], until = True, finish
    return kept


def _matches(trace: Trace, wanted: str) -> list[int | None]:
    """Return the step's number for each of the trace's strings, -1 without a number; None where the string is
    another name."""
    if len(wanted) < 3 or wanted[0] != "/" or wanted[-1] != "/":
        return [-1 if text == wanted else None for text in trace.strings]
    try:
        pattern = re.compile(wanted[1:-1])
    except re.error as error:
        raise UsageError(
            f"{wanted} is not a regular expression: {error}", next="Give a name, or a pattern between slashes"
        ) from error
    found: list[int | None] = []
    for text in trace.strings:
        match = pattern.fullmatch(text)
        group = match[1] if match is not None and pattern.groups else None
        digits = group if group and group.isascii() and group.isdigit() and len(group) < 19 else "-1"
        found.append(None if match is None else int(digits))
    return found


def _notes(trace: Trace, wanted: str, marks: MarkerTable, left_out: int) -> list[str]:
    """Return the notes on what of the trace is in none of the steps, and on which ranges make no step."""
    said = []
    host = trace.host
    launches = host.start_ns[np.isin(host.kind, _DRIVER[:2])]
    inside = union(marks.start_ns, marks.end_ns).contains(launches)
    outside_ratio = 1.0 - float(inside.mean()) if len(launches) else 0.0
    if outside_ratio >= NOTABLE_RATIO:
        said.append(
            f"{format_ratio(outside_ratio)} of the launches lie outside of the ranges {wanted!r} that make "
            "the steps: what they launched is left out"
        )
    if len(np.unique(marks.thread)) > 1:
        said.append(
            f"ranges {wanted!r} are on several threads: a device's steps are those of the thread that "
            "launches most of its work"
        )
    if left_out:
        said.append(
            f"{format_count(left_out)} more ranges {wanted!r} lie in another one or overlap an earlier one: "
            "they make no step of their own"
        )
    return said


# --- what there is to choose from --------------------------------------------------------------------------


def listed(trace: Trace) -> list[NamedRanges]:
    """Return the ranges under which work was launched, those with most of it first; names that differ in
    their digits as one pattern. Empty where the trace has no host events, or none is a range."""
    host = trace.host
    rows = np.flatnonzero((host.correlation < 0) & ~np.isin(host.kind, (*_DRIVER, *_FRAMEWORK)))
    launches = np.flatnonzero(np.isin(host.kind, _DRIVER[:2]))
    total = len(launches)
    if not len(rows) or not total:
        return []
    inside = _launched_in(trace, rows, launches)
    if not inside.any():
        inside = _within(trace, rows, np.sort(host.start_ns[launches]))
    rows, inside = rows[inside > 0], inside[inside > 0]
    groups: dict[str, list[int]] = {}
    for name in np.unique(host.name[rows]).tolist():
        if trace.strings[name].startswith("$"):  # a frame of a Python tracer
            continue
        groups.setdefault(_pattern(trace.strings[name]), []).append(name)
    found = []
    for names in groups.values():
        mine = np.isin(host.name[rows], names)
        text = trace.strings[names[0]]
        name = text if len(names) == 1 else f"/{_pattern(text)}/"
        share = min(1.0, float(inside[mine].sum()) / total)
        found.append(NamedRanges(name, int(mine.sum()), share))
    return sorted(found, key=lambda each: (-each.launches_ratio, each.count, each.name))


def _launched_in(trace: Trace, rows: Int64, launches: Int64) -> Int64:
    """Return how many launches on its own thread lie in each of these events."""
    host, count = trace.host, np.zeros(len(rows), np.int64)
    for thread in np.unique(host.thread[rows]).tolist():
        at = np.flatnonzero(host.thread[rows] == thread)
        times = np.sort(host.start_ns[launches[host.thread[launches] == thread]])
        count[at] = _within(trace, rows[at], times)
    return count


def _within(trace: Trace, rows: Int64, times: Int64) -> Int64:
    """Return how many of these times lie in each of these events."""
    start = trace.host.start_ns[rows]
    end = start + trace.host.duration_ns[rows]
    return np.searchsorted(times, end) - np.searchsorted(times, start)


def _pattern(text: str) -> str:
    """Return the pattern of the name with any digits for its own; the first of them are the step's number."""
    first = _DIGITS.sub(r"(\\d+)", re.escape(text).replace(r"\ ", " "), count=1)
    head, group, tail = first.partition(r"(\d+)")
    return head + group + _DIGITS.sub(r"\\d+", tail)


def suggested(trace: Trace) -> list[NamedRanges]:
    """Return those of `listed` that may be steps: with half of the launches or more in them, or named as
    steps are, and more than one, unless there is no such. Calls of modules, instructions of compiled programs
    and what says warm-up are left out."""
    instructions = {op.hlo.name for op in trace.ops if op.hlo is not None}
    holding = [
        each
        for each in listed(trace)
        if not (each.name.startswith((MODULE_CALL, f"/{MODULE_CALL}")) or WARM_UP.search(each.name))
        and (each.launches_ratio >= MANY_LAUNCHES_RATIO or _LIKE_A_STEP.search(each.name))
        and each.name not in instructions
    ]
    return ([each for each in holding if each.count > 1] or holding)[:MOST_LISTED]


def _instead(trace: Trace, wanted: str) -> str:
    """Return the nearest names, then the ranges that hold most launches."""
    there = listed(trace)
    if not there:
        return (
            "The trace holds no range under which work was launched: mark each step (NVTX, record_function, "
            "TraceMe) and record again"
        )
    by_name = {each.name: each for each in there}
    near = get_close_matches(wanted.strip("/"), list(by_name), n=MOST_NEAR)
    shown = [by_name[name] for name in dict.fromkeys((*near, *by_name))][:MOST_LISTED]
    more = f", and {len(there) - len(shown)} more names" if len(there) > len(shown) else ""
    return f"The trace has: {', '.join(map(_said, shown))}{more}"


def _said(found: NamedRanges) -> str:
    name = found.name if len(found.name) <= _LONGEST else f"{found.name[: _LONGEST - 1]}…"
    return f"{name!r} ({format_count(found.count)}, {format_ratio(found.launches_ratio)} of the launches)"
