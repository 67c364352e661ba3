"""Steps that stall: how often they come, and what they wait for, as far as the records tell.

A mean step far above the median is made by a few long ones: a loader that delivers several batches at once, a
checkpoint now and then, a compilation that comes back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.mean_interval import STALL
from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps import spent
from mpprof.analysis.steps import statistics as stepping
from mpprof.model.account import ProfiledStalls
from mpprof.model.arrays import Int64
from mpprof.model.frozen import frozen
from mpprof.model.limits import LONG_CALL_NS
from mpprof.model.quantities import format_count, format_ns
from mpprof.model.run import Run
from mpprof.model.steps import StepTable

NOTABLE_RATIO = 1.2
"""A mean step so many times the median is said to hold stalls."""
FEWEST = 3
"""Stalls of which a period is told."""
REGULAR_RATIO = 0.75
"""Share of the stalls that are followed by another one period later, where there is a period."""
LONGEST_PERIOD, MOST_STEPS = 128, 1 << 16
BEGINS = "mean "
"""How the sentence on stalls begins, among the warnings of a report."""
LOADER = "waits for the loader"
NOT_TOLD = "the records do not show where"
_MOSTLY, _MUCH = 0.5, 0.1
"""Shares of what stalls add from which a cause is theirs, and of their time from which another is named."""
_UNLIKE, _LONGEST = 1.25, 0.2
"""Stalls are unlike whose mean is so many times their median, or the other way round; of these the longest is
named where it takes such a share of the time of all."""
_HOLDS_UP = ("input", "callbacks", "compile")
"""Parts whose long calls have lines of their own."""


@frozen
class Stalls:
    """`count` of `of` timings are longer than twice the median, and than the mean; `length_ns` is the median
    of theirs per step, `total_ns` the time of all. `every`: so many steps apart they come again; None: not
    regularly. `cause`: what a stalled step does, in words; `cause_ns`: how much of what stalls add to a step
    is known to be that. `grouped`: each timing is of several steps. `on_host`: the timings are of calls, on a
    backend where the device runs behind the host; `median_ns` is then the mean step without what held the
    host up."""

    mean_ns: float
    median_ns: float
    count: int
    of: int
    every: int | None
    cause: str | None
    cause_ns: float
    grouped: bool
    partly: str | None = None
    """How much of the stalls the cause takes, where it is not known to be in nearly each of them."""
    length_ns: float = 0.0
    total_ns: float = 0.0
    also: str = ""
    """What else is known to take much of them, with its time."""
    on_host: bool = False
    shortest_ns: float = 0.0
    longest_ns: float = 0.0
    longest: str = ""
    """Of stalls that are unlike: when the longest was, and what it does as far as it is known."""
    longest_differs: bool = False
    """Whether that is something else than `cause`."""

    @property
    def unlike(self) -> bool:
        """Whether `count` times `length_ns` is far from the time of all."""
        return self.shortest_ns > 0

    @property
    def in_each(self) -> int:
        """How many stalls there are in each period."""
        return max(1, round(self.count / self.of * (self.every or 1)))

    @property
    def notable(self) -> bool:
        return self.mean_ns >= NOTABLE_RATIO * self.median_ns

    def __str__(self) -> str:
        said = f"{BEGINS}{format_ns(self.mean_ns)} a step"
        if not self.on_host:
            said += f", median {format_ns(self.median_ns)}"
        what = "timings of several steps" if self.grouped else "steps"
        if not self.count:
            return f"{said}: the {what} differ, and none is over twice the median"
        length = format_ns(self.length_ns)
        if self.unlike:
            length = f"{format_ns(self.shortest_ns)} to {format_ns(self.longest_ns)}"
        length += " on the host" if self.on_host else ""
        if self.grouped:
            length += " a step"
        if self.unlike or (self.partly and (self.grouped or self.count > 1)):
            length += f", {format_ns(self.total_ns)} in all"
        also = f"{self.also}{self.longest}"
        if self.every is not None and self.in_each == 1:
            why = f"; {self.partly or NOT_TOLD}" if self.partly or not self.cause else f": it {self.cause}"
            return f"{said}: every {_ordinal(self.every)} step takes {length}{why}{also}"
        of = f"{format_count(self.count)} of {format_count(self.of)}"
        if self.every is not None:
            of = f"{self.in_each} of every {self.every}"
        are = "is a stall of" if self.count == 1 else f"are stalls of{'' if self.unlike else ' about'}"
        who = "it" if self.count == 1 else "each of the others" if self.longest_differs else "each"
        why = self.partly or (f"{who} {self.cause}" if self.cause else NOT_TOLD)
        return f"{said}: {of} {what} {are} {length}; {why}{also}"


def stalls(run: Run, profiled: ProfiledStalls | None = None) -> Stalls | None:
    """Return what the records tell of stalls, and a trace of some of them (`profiled`); None where no step
    has a time."""
    steps = run.steps
    if steps is None:
        return None
    times = stepping.averaged(steps, run.facts, run.spans)
    usual = stepping.per_step_ns(steps)[stepping.steady(steps)]
    if (mean_ns := times.mean_ns) is None or not len(usual):
        return None
    grouped = stepping.asynchronous(steps, run.facts)
    if grouped and (found := _on_host(run, times, mean_ns)) is not None:
        return found
    middle = median(usual)
    long = times.row[times.time_ns > max(STALL * middle, mean_ns)]  # what is shorter makes no mean longer
    every = None if grouped else _period(steps, long)
    cause, cause_ns, partly, also = _cause(run, times, long, every, mean_ns - middle, profiled)
    return Stalls(
        mean_ns, middle, len(long), len(times.row), every, cause, cause_ns, grouped, partly,
        _length_ns(times, long), _total_ns(times, long), also, False,
        *_unlike(run, times, long, cause, told=bool(partly or also)),
    )  # fmt: skip


def _length_ns(times: stepping.Averaged, long: Int64) -> float:
    return median(times.time_ns[np.isin(times.row, long)]) if len(long) else 0.0


def _total_ns(times: stepping.Averaged, long: Int64) -> float:
    rows = np.isin(times.row, long)
    return float((times.time_ns[rows] * times.steps[rows]).sum())


def _on_host(run: Run, times: stepping.Averaged, mean_ns: float) -> Stalls | None:
    """Return the calls that the loader, a callback or a compile held up, where steps are timed in groups,
    which do not show them; None where they are not notable."""
    steps = run.steps
    assert steps is not None
    if run.spans is None or not len(times.row):
        return None
    last = steps.step[times.row]
    group = np.minimum(np.searchsorted(last, steps.step), len(last) - 1)
    timed = (steps.step <= last[group]) & (steps.step > (last - times.steps)[group])
    row = np.flatnonzero((steps.dispatch_ns >= 0) & timed & ~steps.profiled)
    calls = stepping.Averaged(
        row, steps.dispatch_ns[row] / np.maximum(steps.covers[row], 1), steps.covers[row]
    )
    if not len(row):
        return None
    long = row[calls.time_ns > max(STALL * median(calls.time_ns), LONG_CALL_NS)]
    held = _held(run, calls, long)
    by_those = 2 * held >= steps.dispatch_ns[long]  # others wait for the device
    long = long[by_those]
    added_ns = float(held[by_those].sum()) / max(1, int(calls.steps.sum()))
    cause, cause_ns, partly, also = _cause(run, calls, long, None, added_ns, None)
    every, without_ns = _period(steps, long), mean_ns - cause_ns
    found = Stalls(
        mean_ns, without_ns, len(long), len(row), every, cause, cause_ns, False, partly,
        _length_ns(calls, long), _total_ns(calls, long), also, True,
        *_unlike(run, calls, long, cause, told=bool(partly or also)),
    )  # fmt: skip
    return found if found.notable else None


def _unlike(
    run: Run, times: stepping.Averaged, long: Int64, cause: str | None, *, told: bool
) -> tuple[float, float, str, bool]:
    """Return `Stalls.shortest_ns` to `Stalls.longest_differs`. `told`: times of causes say already how unlike
    the stalls are."""
    rows = np.isin(times.row, long)
    ns, steps = times.time_ns[rows], times.steps[rows]
    mean_ns = float((ns * steps).sum()) / max(1, int(steps.sum()))
    if told or len(long) < 2 or mean_ns / _UNLIKE < np.sort(ns)[(len(ns) - 1) // 2] < mean_ns * _UNLIKE:
        return 0.0, 0.0, "", False
    at = int(np.argmax(ns))
    if run.steps is None or ns[at] * steps[at] < _LONGEST * float((ns * steps).sum()):
        return float(ns.min()), float(ns.max()), "", False
    said = f"; the longest takes {format_ns(float(ns[at]))}, at step {int(run.steps.step[long[at]])}"
    loader, hooks, compilers = (_in_stalls(run, part, times, long[[at]]) for part in _HOLDS_UP)
    named = [
        *((LOADER, own) for _, _, own in loader),
        *((f"runs {name}", own) for name, _, own in hooks),
        *((f"compiles ({name})", own) for name, _, own in compilers),
    ]
    does, own = max(named, key=lambda each: each[1], default=("", 0.0))
    if does == cause or own < _MOSTLY * float(ns[at] * steps[at]):
        return float(ns.min()), float(ns.max()), said, False
    return float(ns.min()), float(ns.max()), f"{said}: it {does}", True


def _period(steps: StepTable, long: Int64) -> int | None:
    """Return the smallest distance, in steps, at which most stalls are followed by another, and by far more
    than chance would have it; None where there is none."""
    if len(long) < FEWEST:
        return None
    first = int(steps.step[long[0]])
    stalled = np.zeros(min(int(steps.step[long[-1]]) - first + 1, MOST_STEPS), np.bool_)
    at = steps.step[long] - first
    stalled[at[at < len(stalled)]] = True
    for apart in range(2, min(LONGEST_PERIOD, len(stalled) // 2) + 1):
        followed = float(stalled[apart:][stalled[:-apart]].mean()) if stalled[:-apart].any() else 0.0
        if followed >= REGULAR_RATIO and followed > 2 * float(stalled.mean()):
            return apart
    return None


def _cause(
    run: Run,
    times: stepping.Averaged,
    long: Int64,
    every: int | None,
    added_ns: float,
    profiled: ProfiledStalls | None,
) -> tuple[str | None, float, str | None, str]:
    """Return what a stalled step does, how many ns of a mean step that is known to take of those that stalls
    add, and `Stalls.partly` and `Stalls.also`. What was timed comes first, then what the trace shows of
    stalls, then how often they come."""
    steps = run.steps
    if steps is None or not len(long) or added_ns <= 0:
        return None, 0.0, None, ""
    ran = int(times.steps.sum())
    loader, hooks, compilers = (_in_stalls(run, part, times, long) for part in _HOLDS_UP)
    loader = loader or _in_lines(steps, long)
    named = [
        *((LOADER, "the wait for the loader", count, ns) for _, count, ns in loader),
        *((f"runs {name}", name, count, ns) for name, count, ns in hooks),
        *((f"compiles ({name})", f"compiling ({name})", count, ns) for name, count, ns in compilers),
    ]
    cause, what, count, ns = max(named, key=lambda each: each[3], default=("", "", 0, 0.0))
    compiled = spent.per_step(run, "compile", whole=True)  # of these only sums are known
    compiler, compiled_ns = next(iter(compiled.items()), ("", 0.0))
    if compiled_ns * ran > ns:
        cause, what, count, ns = f"compiles ({compiler})", f"compiling ({compiler})", 0, compiled_ns * ran
    if ns < _MOSTLY * added_ns * ran:
        if profiled is not None and profiled.waits_ratio >= _MOSTLY:
            return LOADER, added_ns * profiled.waits_ratio, None, ""
        in_rounds = profiled is None and every in stepping.rounds(run.facts)
        otherwise = in_rounds and _otherwise(run, len(long), hooks, added_ns)
        place, ns = _place(run, times, long, in_rounds=in_rounds and not otherwise)
        return place, min(ns / ran, added_ns), None, ""
    in_most, total_ns = count >= REGULAR_RATIO * len(long), _total_ns(times, long)
    partly = None if in_most else f"{what} takes {format_ns(min(ns, total_ns))} of that"
    more = [
        f"{name} {format_ns(own)}" for of, name, _, own in named if of != cause and own >= _MUCH * total_ns
    ]
    also = f"; beside that {', '.join(more)}" if more else ""
    return cause, min(ns / ran, added_ns), partly, also


def _in_stalls(run: Run, part: str, times: stepping.Averaged, long: Int64) -> list[tuple[str, int, float]]:
    """Return the name, the stalls that hold a long call of it, and the ns of those calls, by the calls that
    have a line of their own."""
    names, stall, ns = _long_calls(run, part, times, long)
    return [
        (str(name), len(np.unique(stall[names == name])), float(ns[names == name].sum()))
        for name in np.unique(names)
    ]


def _in_lines(steps: StepTable, long: Int64) -> list[tuple[str, int, float]]:
    """Return the same of the waits for input that step lines have, as a recorded loop writes them: a stall
    may be the wait for the batch of the next step."""
    waits = np.maximum(np.append(steps.input_wait_ns, 0), 0)
    held = np.maximum(waits[long], waits[long + 1])
    long_ns = steps.interval_ns[long]
    count = int((2 * held >= long_ns).sum())
    return [("", count, float(held.sum()))] if count else []


def _long_calls(
    run: Run, part: str, times: stepping.Averaged, long: Int64
) -> tuple[NDArray[np.str_], Int64, Int64]:
    """Return the name, the stall (a row of `long`) and the ns of each call with a line of its own."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None:
        return np.empty(0, np.str_), np.empty(0, np.int64), np.empty(0, np.int64)
    table, last = spans.spent, steps.step[long]
    first = last - times.steps[np.isin(times.row, long)] + 1
    own = table.rows(part, ("batch",)) & (table.calls <= 1) & (table.first_step == table.last_step)
    rows = np.flatnonzero(own & (table.ns > 0))
    stall = np.searchsorted(last, table.last_step[rows])
    within = stall < len(long)
    within[within] = table.first_step[rows][within] >= first[stall[within]]
    rows, stall = rows[within], stall[within]
    names = np.array([key.name for key in table.keys], np.str_)[table.key[rows]]
    return names, stall, table.ns[rows]


def _held(run: Run, times: stepping.Averaged, long: Int64) -> Int64:
    """Return for how many ns the loader, callbacks and compiles held up each of these stalls."""
    held = np.zeros(len(long), np.int64)
    for part in _HOLDS_UP:
        _, stall, ns = _long_calls(run, part, times, long)
        np.add.at(held, stall, ns)
    return held


def _otherwise(run: Run, stalled: int, hooks: list[tuple[str, int, float]], added_ns: float) -> bool:
    """Return whether the records show that stalls, which come as often as a loader of several workers
    delivers, are something else's: a callback is long in most of them, the waits for input are shorter, or as
    many steps were compiled."""
    compiled = spent.compiles(run)
    calls = [count for _, count, _ in hooks] + ([] if compiled is None else [compiled.calls])
    waited_ns = spent.input_ns(run)
    short = waited_ns is not None and waited_ns < _MOSTLY * added_ns
    return short or max(calls, default=0) >= REGULAR_RATIO * stalled


def _place(run: Run, times: stepping.Averaged, long: Int64, *, in_rounds: bool) -> tuple[str | None, float]:
    """Return where a stalled step is longer, by the times of calls and between them, and how many ns of all
    stalls are known to be that: those `in_rounds`, as a loader of several workers delivers."""
    steps = run.steps
    assert steps is not None
    known = (steps.duration_ns >= 0) & (steps.interval_ns >= steps.duration_ns)
    rows, long = times.row[known[times.row]], long[known[long]]
    if not len(long):
        return None, 0.0
    gap_ns = steps.interval_ns - steps.duration_ns
    between = float((gap_ns[long] - median(gap_ns[rows])).sum())
    within = float((steps.duration_ns[long] - median(steps.duration_ns[rows])).sum())
    on_torch = run.facts is not None and run.facts.framework.get("backend") == "torch"
    if in_rounds and (on_torch or within > between):
        return LOADER, between if on_torch else within
    compiled = spent.compiles(run)
    measured = spent.input_ns(run) is not None
    own = run.facts is not None and run.facts.framework.get("loop") == "custom"
    if between > within:
        what = "your own code" if own else "callbacks or the loop"
        return f"stalls between two calls ({'input, ' if on_torch and not measured else ''}{what})", 0.0
    may = [
        *([] if measured else ["input"]),
        *([] if compiled is not None and not compiled.calls and compiled.ns is not None else ["compiling"]),
    ]
    if own:
        return f"stalls within the step ({' or '.join([*may, 'your own code in it'])})", 0.0
    if len(may) < 2:
        return f"stalls within the training function ({', or '.join([*may, 'the step itself'])})", 0.0
    return f"stalls within the training function ({' or '.join(may)})", 0.0


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
