"""All of a run's wall time, from its records alone: each instant of every `fit` belongs to one part.

A `fit` is three pools of time: within calls of the train function, between two calls of one epoch, and at the
edges of epochs (before the first call, after the last, between). What the records timed by itself is taken
out of the pool that it lies in, never more than is there. What is left of the pools is `steps`, `loop` and
`between_epochs`. So the parts sum to the wall time whatever a file states.

Where Keras tells only begins (JAX, torch), a call goes from its begin to the next one: fetching, the batch
hooks of callbacks and the loop itself lie within it. On torch the batch is taken before the call begins: the
first of an epoch lies at the edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

import numpy as np

from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen
from mpprof.model.limits import LONGEST_SUM_NS
from mpprof.model.run import ProfileWindow, Run
from mpprof.model.run_time import FitSpan, NamedTime, PartName, RunPart, RunTime, Spans, SpentTable
from mpprof.model.steps import ABSENT, StepTable, ValidationTable

Names = dict[str, int]
"""ns by name."""

NAMES: tuple[PartName, ...] = get_args(PartName)
NOT_TIMED = "recorded by an mpprof that did not time it"
ENDED_BEFORE = "the log ends before its first line that says what was timed"
COUNTED = "the framework tells how often it compiled, and not for how long"
OWN_LOOP = "a loop of the user's own has no callbacks: its work between steps is in `loop`"
SETUP = "what a `fit` does before its first hook is not seen by a callback"
WITHIN_STEPS = "Keras tells only when a call begins on this backend: the loop's own time is in `steps`"
CALLBACKS_AND_LOOP = "callbacks and loop"
CALLBACKS_AND_BETWEEN = "callbacks and what is between epochs"
STEPS_AND_INPUT = "steps and the wait for their input"
WITH_CALLBACKS = {True: ", with callbacks and loop", False: ", with callbacks ahead of mpprof's"}
"""What steps hold where callbacks were not timed, by whether Keras tells only when a call begins."""
LOOP_AND_INPUT = "loop and the wait for its input"
END_OF_DATA = "the end of the data"
BEFORE_ITS_HOOK: tuple[PartName, str] = ("validation", "before its first hook")
AFTER_ITS_HOOK = "after its last hook"
ITERATORS = "making the iterator of an epoch"
"""What a part is named, within itself, where it holds what was not told apart."""

BEHIND = "end"
"""Where our own work lies once the record of a `fit` has ended, before that returns."""
BETWEEN, EDGE, CALL = "between calls", "edge", "call"
_INNER_HOOKS = ("epoch begin", "epoch", "train", "validation")
_NEXT = {True: (BETWEEN, CALL), False: (CALL, EDGE)}
"""Where an epoch's first batch was taken, by whether it is taken before the call."""


@frozen
class _Calls:
    """The calls of one fit, in the order written: where each begins and ends, and what lies before it.

    `first`, `last`: of an epoch. `unread`: lines before it are missing."""

    begin_ns: Int64
    end_ns: Int64
    before_ns: Int64
    step: Int64
    covers: Int64
    first: Bool
    unread: Bool
    ahead_ns: Int64  # from the first hook of an epoch to its first call
    profiled: Bool
    waited_ns: Int64  # for input, by the step lines; ABSENT where not measured
    begins_only: bool  # Keras told no ends
    fetched_before: bool  # a call's batch is taken before it begins

    @property
    def last(self) -> Bool:
        return np.append(self.first[1:], True)[: len(self.first)]

    def holding(self, step: int | None) -> int | None:
        """Return the row of the call that ran this step; None where none did."""
        if step is None:
            return None
        row = int(np.searchsorted(self.step, step))
        return row if row < len(self.step) and self.step[row] - self.covers[row] < step else None

    def pool_before(self, row: int) -> str:
        """Return the pool of what lies before this call; of what comes after the last one the edge."""
        return EDGE if row >= len(self.first) or self.first[row] else BETWEEN


class _Sums:
    """The `spent` lines of one fit: ns by part and place, then by name. `late`: of the callbacks' batch hooks
    what came after an epoch's last call."""

    def __init__(self, spent: SpentTable, rows: Int64, calls: _Calls) -> None:
        self._found: dict[tuple[str, str], Names] = {}
        self.late: Names = {}
        lasts = np.concatenate([[0], np.cumsum(calls.last)])
        low = np.searchsorted(calls.step, spent.first_step[rows])
        high = np.maximum(np.searchsorted(calls.step, spent.last_step[rows], side="right"), low)
        # A line written while a call ends lacks that call's hooks; the next line has them.
        among = np.maximum(np.maximum(1, spent.calls[rows]), high - low)
        columns = (spent.key[rows], spent.ns[rows], lasts[high] - lasts[low], among)
        for row, ns, late, among in zip(*(column.tolist() for column in columns), strict=True):
            if ns == ABSENT:
                continue
            key = spent.keys[row]
            _add(self._found.setdefault((key.part, key.at), {}), key.name, ns)
            if key.part == "callbacks" and key.at == "batch":
                _add(self.late, key.name, ns * late // among)

    def of(self, part: str, *places: str) -> Names:
        """Return the ns of a part at these places, by name; at all of them where none is named."""
        total: Names = {}
        for (own, at), names in self._found.items():
            for name, ns in names.items() if own == part and at in (places or (at,)) else ():
                _add(total, name, ns)
        return total


def _add(names: Names, name: str, ns: int) -> None:
    names[name] = names.get(name, 0) + ns


class _Pools:
    """What is left of each pool of one fit, and what was taken of all of them, by part and name."""

    def __init__(self, taken: dict[PartName, Names], left: dict[str, int]) -> None:
        self._taken = taken
        self.left = left

    def take(self, part: PartName, name: str, ns: int, *pools: str) -> int:
        """Take this time out of the pools, one after another; returns what was not there to take."""
        for pool in pools:
            found = max(0, min(ns, self.left[pool]))
            if found:
                self.left[pool] -= found
                ns -= found
                _add(self._taken.setdefault(part, {}), name, found)
        return max(0, ns)

    def take_all(self, part: PartName, name: str, pool: str) -> None:
        self.take(part, name, self.left[pool], pool)


def run_time(run: Run) -> RunTime | None:
    """Return what the wall time of all `fit` calls was spent on; None where the run has no step log, or no
    time passed in it."""
    steps, spans = run.steps, run.spans
    if steps is None or spans is None:
        return None
    absent = _absent(run, steps, spans)
    taken: dict[PartName, Names] = {}
    wall_ns = unknown_ns = 0
    for fit in _fits(run, steps, spans):
        wall, unknown = _of_fit(fit, run, spans, absent, taken)
        wall_ns, unknown_ns = wall_ns + wall, unknown_ns + unknown
    if wall_ns <= 0:
        return None
    parts = tuple(
        _part(name, taken.get(name, {}), wall_ns) for name in NAMES if name in taken or name not in absent
    )
    return RunTime(wall_ns, parts, unknown_ns, absent)


def why_none(run: Run) -> str:
    """Return why a run has no times of its parts."""
    if run.steps is None or run.spans is None:
        return "there is no step log"
    return "no time passed between two lines of the step log"


def _part(name: PartName, names: Names, wall_ns: int) -> RunPart:
    ns = sum(names.values())
    by = sorted((NamedTime(each, own) for each, own in names.items()), key=lambda each: -each.ns)
    return RunPart(name, ns, ns / wall_ns, by=tuple(by))


def _absent(run: Run, steps: StepTable, spans: Spans) -> dict[str, str]:
    """Return why parts could not be told apart."""
    facts, spent = run.facts, spans.spent
    said = {} if facts is None else facts.absent
    own_loop = _own_loop(run)
    timed = {
        "input": bool(spent.rows("input").any() or (steps.input_wait_ns >= 0).any()),
        # Our own hooks are timed where those of the others are not, too.
        "callbacks": (own_loop or "run_time.callbacks" not in said) and bool(spent.rows("callbacks").any()),
        "compile": bool((spent.rows("compile") & (spent.ns != ABSENT)).any()),
        "profiler": facts is not None,
    }
    counted = spent.rows("compile").any()
    general = {"callbacks": OWN_LOOP if own_loop else None, "compile": COUNTED if counted else None}
    if not spans.told:
        general["input"] = said.get("input_wait_ns")
    absent = {"setup": said.get("run_time.setup") or SETUP}
    for part, known in timed.items():
        why = said.get(f"run_time.{part}") or general.get(part)
        if not known and (why or not spans.told):
            absent[part] = why or (NOT_TIMED if run.finished or len(spans.epochs) else ENDED_BEFORE)
    if _begins_only(steps):
        absent["loop"] = WITHIN_STEPS
    return absent


def callbacks_untold(absent: Mapping[str, str]) -> bool:
    """Return whether the record itself says that callbacks ran, or may have, which were not timed: of a log
    that says nothing of them that is not known."""
    return absent.get("callbacks", NOT_TIMED) not in (NOT_TIMED, ENDED_BEFORE)


def _own_loop(run: Run) -> bool:
    return run.facts is not None and run.facts.framework.get("loop") == "custom"


def _begins_only(steps: StepTable) -> bool:
    return bool(len(steps)) and not ((steps.duration_ns >= 0) | (steps.gap_ns >= 0)).any()


# --- one fit ---------------------------------------------------------------------------------------------


@frozen
class _Fit:
    """What the log holds of one fit. `evaluated`: begin and end of its validations, in order."""

    span: FitSpan
    begin_ns: int
    end_ns: int
    calls: _Calls
    spent: Int64  # rows
    evaluated: tuple[tuple[int, int], ...]
    epoch_ends_ns: Int64


def _fits(run: Run, steps: StepTable, spans: Spans) -> Iterator[_Fit]:
    """Yield the fits of the log in order, also one whose own line is missing; of a number told twice the
    first."""
    told = {span.fit: span for span in reversed(spans.fits)}
    steps_of, epochs_of, spent_of = map(_rows_of, (steps.fit, spans.epochs.fit, spans.spent.fit))
    begins_only = _begins_only(steps)
    on_jax = run.facts is not None and run.facts.framework.get("backend") == "jax"
    fetched_before = not (begins_only and on_jax)
    evaluated = _validations(run.validations)
    taken = 0  # validations of earlier fits
    numbers = sorted({*told, *steps_of})
    for fit in numbers:
        span, rows = told.get(fit) or FitSpan(fit, None), steps_of.get(fit, _NONE)
        epochs = epochs_of.get(fit, _NONE)
        begin_ns = _begin(steps, rows, span)
        until_ns = span.end_ns if span.end_ns is not None else _next_begin(told, numbers, fit)
        own: list[tuple[int, int]] = []
        while taken < len(evaluated) and (until_ns is None or evaluated[taken][1] <= until_ns):
            since, end = evaluated[taken]
            own += [(max(begin_ns, since), end)] if end > begin_ns else []
            taken += 1
        lines_ns = [*steps.t_ns[rows][-1:].tolist(), *spans.epochs.end_ns[epochs][-1:].tolist()]
        last_ns = max([begin_ns, *lines_ns, *(end for _, end in own[-1:])])
        end_ns = max(begin_ns, last_ns if span.end_ns is None else span.end_ns)
        begins = dict(
            zip(spans.epochs.epoch[epochs].tolist(), spans.epochs.begin_ns[epochs].tolist(), strict=True)
        )
        calls = _calls(
            steps, rows, (begin_ns, end_ns), begins, begins_only=begins_only, fetched_before=fetched_before
        )
        ends_ns = spans.epochs.end_ns[epochs]
        yield _Fit(span, begin_ns, end_ns, calls, spent_of.get(fit, _NONE), tuple(own), ends_ns)


_NONE: Int64 = np.empty(0, np.int64)


def _rows_of(fits: Int64) -> dict[int, Int64]:
    """Return the rows of each fit, in the order written."""
    order = np.argsort(fits, kind="stable")
    numbers, starts = np.unique(fits[order], return_index=True)
    return dict(zip(numbers.tolist(), np.split(order, starts[1:]), strict=True)) if len(fits) else {}


def _begin(steps: StepTable, rows: Int64, span: FitSpan) -> int:
    if span.begin_ns is not None:
        return span.begin_ns
    if not len(rows):
        return 0 if span.end_ns is None else span.end_ns
    first = rows[:1]
    return int(steps.t_ns[first][0] - max(0, _own_ns(steps, first, begins_only=_begins_only(steps))[0]))


def _next_begin(told: Mapping[int, FitSpan], numbers: Sequence[int], fit: int) -> int | None:
    at = numbers.index(fit) + 1
    later = told.get(numbers[at]) if at < len(numbers) else None
    return None if later is None else later.begin_ns


def _validations(table: ValidationTable | None) -> list[tuple[int, int]]:
    """Return begin and end of the validations, none before the one before has ended."""
    found: list[tuple[int, int]] = []
    if table is None:
        return found
    for end_ns, duration_ns in sorted(zip(table.t_ns.tolist(), table.duration_ns.tolist(), strict=True)):
        since = end_ns - max(0, duration_ns)
        found.append((max(since, found[-1][1]) if found else since, end_ns))
    return found


def _own_ns(steps: StepTable, rows: Int64, *, begins_only: bool) -> Int64:
    """Return how long each call took by its own line: between its hooks, or to the next one's begin."""
    to_next = steps.interval_ns if begins_only and (steps.dispatch_ns < 0).all() else steps.dispatch_ns
    return np.where(steps.duration_ns[rows] >= 0, steps.duration_ns[rows], to_next[rows])


def _calls(
    steps: StepTable,
    rows: Int64,
    bounds: tuple[int, int],
    epoch_begins: Mapping[int, int],
    *,
    begins_only: bool,
    fetched_before: bool,
) -> _Calls:
    """Return the calls of one fit within its bounds, each after the one before whatever the lines say."""
    end = np.clip(np.maximum.accumulate(steps.t_ns[rows]), *bounds) if len(rows) else rows
    before = np.append(bounds[0], end[:-1])[: len(rows)]
    step, covers, epoch = steps.step[rows], steps.covers[rows], steps.epoch[rows]
    first = np.ones(len(rows), np.bool_)
    first[1:] = np.diff(epoch) != 0
    unread = np.zeros(len(rows), np.bool_)
    unread[1:] = ~first[1:] & (step[1:] - covers[1:] > step[:-1])
    own, gap = _own_ns(steps, rows, begins_only=begins_only), np.maximum(0, steps.gap_ns[rows])
    begin = np.where(own >= 0, end - np.minimum(own, end - before), before + np.minimum(gap, end - before))
    for row in np.flatnonzero(
        first & (own < 0)
    ).tolist():  # an epoch's only call, which has no time of its own
        begin[row] = epoch_begins.get(int(epoch[row]), int(end[row]))
    begin = np.clip(begin, before, end)
    begun = [epoch_begins.get(one, int(own)) for one, own in zip(epoch.tolist(), begin.tolist(), strict=True)]
    ahead = np.where(first, np.minimum(np.maximum(0, begin - np.array(begun, np.int64)), begin - before), 0)
    return _Calls(
        begin, end, begin - before, step, covers, first, unread, ahead, steps.profiled[rows],
        steps.input_wait_ns[rows], begins_only, fetched_before,
    )  # fmt: skip


def _of_fit(
    fit: _Fit, run: Run, spans: Spans, absent: Mapping[str, str], taken: dict[PartName, Names]
) -> tuple[int, int]:
    """Return the wall time of one fit, and what of it is not known; add its parts to `taken`."""
    calls, wall_ns = fit.calls, fit.end_ns - fit.begin_ns
    called_ns = int((calls.end_ns - calls.begin_ns).sum())
    unknown_ns = int(calls.before_ns[calls.unread].sum())
    between_ns = int(calls.before_ns[~calls.first & ~calls.unread].sum())
    edge_ns = wall_ns - called_ns - unknown_ns - between_ns
    pools = _Pools(taken, {CALL: called_ns, BETWEEN: between_ns, EDGE: edge_ns})
    sums = _Sums(spans.spent, fit.spent, calls)
    _take_profiler(pools, sums, calls, run.facts.profile_windows if run.facts is not None else ())
    own_loop = _own_loop(run)  # which takes its batches between two steps
    split = "callbacks" not in absent or own_loop
    _take_hooks(pools, sums)
    _take_validations(pools, sums, fit, within_hooks=bool(sums.of("callbacks")))
    for ns in sums.of("input", "epoch").values():  # where only begins are told, the last call goes on
        pools.take("between_epochs", END_OF_DATA, ns, *((CALL, EDGE) if calls.begins_only else (EDGE,)))
    _take_input(pools, sums, calls)
    _take_batch_hooks(pools, sums, calls)
    for name, ns in sums.of("compile", "batch", "epoch").items():
        pools.take("compile", name, ns, CALL, EDGE)
    if split and not calls.begins_only:
        _take_before_validations(pools, sums, fit, *(("loop", "loop") if own_loop else BEFORE_ITS_HOOK))
        if not own_loop:
            _take_after_validations(pools, spans.spent, fit)
        if "input" in absent and not own_loop:
            pools.take("steps", ITERATORS, int(calls.ahead_ns.sum()), EDGE)
    _take_calls(pools, calls, absent, fetched=not own_loop)
    loop = LOOP_AND_INPUT if own_loop and "input" in absent else "loop"
    pools.take_all("loop", loop if split else CALLBACKS_AND_LOOP, BETWEEN)
    pools.take_all("between_epochs", "between epochs" if split else CALLBACKS_AND_BETWEEN, EDGE)
    behind = sums.of("profiler", BEHIND)
    for name, ns in behind.items():
        _add(taken.setdefault("profiler", {}), name, ns)
    return wall_ns + sum(behind.values()), unknown_ns


def _take_profiler(pools: _Pools, sums: _Sums, calls: _Calls, windows: Iterable[ProfileWindow]) -> None:
    """Take what opening and closing the windows cost, before the first profiled call and after the last, and
    the looks at the numbers by layer."""
    for window in windows:
        opened = calls.holding(window.first_step)
        if opened is None:
            continue
        closed = calls.holding(window.last_step)
        after = len(calls.step) if closed is None else closed + 1
        for row, cost_ns in ((opened, window.start_cost_ns), (after, window.stop_cost_ns)):
            pools.take("profiler", "profile windows", cost_ns or 0, calls.pool_before(row), BETWEEN, CALL)
    for name, ns in sums.of("profiler", "epoch begin", "epoch", "train").items():
        pools.take("profiler", name, ns, EDGE)
    for name, ns in sums.of("profiler", "batch").items():
        pools.take("profiler", name, ns, BETWEEN, CALL, EDGE)
    if calls.begins_only:  # a call goes on to the next one's begin
        pools.left[CALL], pools.left[BETWEEN] = pools.left[CALL] + pools.left[BETWEEN], 0


def _take_hooks(pools: _Pools, sums: _Sums) -> None:
    """Take the callbacks' hooks beside those of batches."""
    for name, ns in sums.of("callbacks", *_INNER_HOOKS).items():
        pools.take("callbacks", name, ns, EDGE, CALL)


def _take_validations(pools: _Pools, sums: _Sums, fit: _Fit, *, within_hooks: bool) -> None:
    """Take the validations, without the hooks and compiles in them. One between two calls is in the hook of
    the callback that evaluates, where hooks are timed."""
    compiled_ns = 0
    for name, ns in sums.of("compile", "validation").items():
        compiled_ns += ns - pools.take("compile", name, ns, EDGE)
    in_hooks_ns = sum(sums.of("callbacks", "validation").values())
    lengths = {BETWEEN: 0, EDGE: -compiled_ns - in_hooks_ns}
    for begin_ns, end_ns in fit.evaluated:
        lengths[fit.calls.pool_before(_ended(fit.calls, begin_ns))] += end_ns - begin_ns
    pools.take("validation", "validation", lengths[EDGE], EDGE)
    if not within_hooks:
        pools.take("validation", "validation", lengths[BETWEEN], BETWEEN, CALL)


def _ended(calls: _Calls, ns: int) -> int:
    """Return how many calls have ended at this time."""
    return int(np.searchsorted(calls.end_ns, ns, side="right"))


def _take_before_validations(pools: _Pools, sums: _Sums, fit: _Fit, part: PartName, name: str) -> None:
    """Take what Keras, or a loop of the user's own, does between an epoch's last call and the first hook of
    its validation."""
    calls = fit.calls
    ahead_ns = -sum(sums.late.values())  # hooks of the last call
    for begin_ns, _ in fit.evaluated:
        row = _ended(calls, begin_ns)
        if row and calls.pool_before(row) == EDGE:
            ahead_ns += max(0, begin_ns - int(calls.end_ns[row - 1]))
    pools.take(part, name, ahead_ns, EDGE)


def _take_after_validations(pools: _Pools, spent: SpentTable, fit: _Fit) -> None:
    """Take what Keras does between the last hook of an epoch's validation and the epoch's own end, where it
    releases the validation's iterator, without what was timed at that end by itself."""
    calls_ns, ends_ns = fit.calls.end_ns, fit.epoch_ends_ns
    if not len(ends_ns):
        return
    validated_ns = np.array([end for _, end in fit.evaluated], np.int64)
    last = np.searchsorted(validated_ns, ends_ns, side="right") - 1
    since_ns = np.append(validated_ns, 0)[last]  # of an epoch without one ahead, the 0
    with_one = (last >= 0) & (np.searchsorted(calls_ns, ends_ns) == np.searchsorted(calls_ns, since_ns))
    after_ns = int((ends_ns - since_ns)[with_one].sum())
    timed = spent.rows("callbacks", ("epoch",)) | spent.rows("profiler", ("epoch",))
    rows = fit.spent[timed[fit.spent]]
    call = np.searchsorted(fit.calls.step, spent.last_step[rows])
    epoch = np.searchsorted(ends_ns, np.append(calls_ns, ends_ns[-1:])[np.minimum(call, len(calls_ns))])
    after_ns -= sum(spent.ns[rows][np.append(with_one, False)[epoch]].tolist())
    pools.take("validation", AFTER_ITS_HOOK, after_ns, EDGE)


def _take_input(pools: _Pools, sums: _Sums, calls: _Calls) -> None:
    """Take the recorded waits for input: as their own lines have them, else as the step lines do."""
    first, later = sums.of("input", "first"), sums.of("input", "batch")
    if not first and not later:
        waits = np.maximum(0, calls.waited_ns)
        first = {"batches": sum(waits[calls.first].tolist())}
        later = {"batches": sum(waits[~calls.first].tolist())}
    # Where a call takes its own batch, Keras still makes the epoch's iterator before the first one begins.
    ahead_ns = LONGEST_SUM_NS if calls.fetched_before else int(calls.ahead_ns.sum())
    for name, ns in first.items():
        missing = pools.take("input", name, min(ns, ahead_ns), EDGE)
        pools.take("input", name, missing + max(0, ns - ahead_ns), *_NEXT[calls.fetched_before])
    for name, ns in later.items():
        pools.take("input", name, ns, *((CALL,) if calls.begins_only else (BETWEEN, CALL)))


def _take_batch_hooks(pools: _Pools, sums: _Sums, calls: _Calls) -> None:
    """Take the callbacks' batch hooks, which lie between two calls or after an epoch's last; where only
    begins are told, within the calls."""
    for name, ns in sums.of("callbacks", "batch").items():
        late = 0 if calls.begins_only else sums.late.get(name, 0)
        missing = pools.take("callbacks", name, ns - late, BETWEEN)
        pools.take("callbacks", name, missing + late, *((EDGE,) if late else ()), BETWEEN, CALL, EDGE)


def _take_calls(pools: _Pools, calls: _Calls, absent: Mapping[str, str], *, fetched: bool) -> None:
    """Take what is left of the calls (with their batches, where those are `fetched` in them) as steps:
    profiled ones, the first of the fit where it holds the tracing and compiling that nobody timed, and the
    others."""
    took = calls.end_ns - calls.begin_ns
    if not calls.begins_only or pools.left[CALL] >= int(took.sum()):  # nothing else lay in the calls
        pools.take("steps", "profiled steps", int(took[calls.profiled].sum()), CALL)
        if "compile" in absent and len(took) and not calls.profiled[0]:
            pools.take("steps", "the first call with tracing and compiling", int(took[0]), CALL)
    held = WITH_CALLBACKS[calls.begins_only] if fetched and callbacks_untold(absent) else ""
    pools.take_all("steps", (STEPS_AND_INPUT if fetched and "input" in absent else "steps") + held, CALL)
