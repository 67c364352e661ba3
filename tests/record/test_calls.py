"""Step lines from hooks, with times that are given and not measured."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from mpprof.record.calls import NEVER, CallLog
from mpprof.record.step_line import Line, Recorded, record_of, text_of
from mpprof.record.wall_time.sums import Spent
from mpprof.store import formats


def started(per_call: int = 1, in_epoch: int | None = None) -> CallLog:
    calls = CallLog(1000)
    calls.start_fit(per_call, in_epoch)
    calls.start_epoch(3)
    return calls


def raised(error: BaseException) -> None:
    raise error


class Fast:
    """The hooks of the fast path. Where a call is not like any other, `otherwise` has what they were told."""

    def __init__(self, calls: CallLog, clock: Callable[[], int]) -> None:
        self.otherwise: list[Any] = []
        spent = Spent(clock)

        def slow(*told: Any) -> None:
            self.otherwise.append(told)

        self.begin = calls.begin_hook(spent, (), slow, raised)
        self.end = partial(calls.end_hook(spent, (), slow, raised), 0)


def test_interval_duration_and_gap_of_a_call() -> None:
    calls = started()
    assert calls.begin(0, 1100) is None
    calls.end(1140)
    first = calls.begin(1, 1150)
    calls.end(1200)
    last = calls.close_epoch()
    assert first.record() == {
        "kind": "step", "step": 1, "fit": 1, "epoch": 3, "batch": 0, "covers": 1, "t_ns": 140,
        "synced": False, "profiled": False, "duration_ns": 40, "interval_ns": 50,
    }  # fmt: skip
    assert (last.step, last.gap_ns, last.duration_ns) == (2, 10, 50)
    assert last.interval_ns is None  # nothing begins after it


def test_a_begin_without_an_end_never_ran() -> None:
    calls = started()
    calls.begin(0, 0)
    calls.end(5)
    line = calls.begin(1, 6)
    assert line is not None
    assert calls.close_epoch() is None
    assert calls.step == 1
    calls.start_epoch(4)
    assert calls.begin(0, 100) is None
    calls.end(110)
    line = calls.begin(1, 120)
    assert (line.step, line.epoch) == (2, 4)
    assert line.gap_ns is None  # validation and the epoch's end lie before it


def test_the_last_call_of_an_epoch_covers_what_is_left() -> None:
    calls = started(per_call=4, in_epoch=10)
    lines: list[Line] = []
    for batch in (0, 4, 8):
        line = calls.begin(batch, batch)
        calls.end(batch + 1)
        lines += [line] if line else []
    last = calls.close_epoch()
    assert last is not None
    assert [(line.step, line.covers, line.batch) for line in [*lines, last]] == [
        (4, 4, 3), (8, 4, 7), (10, 2, 9),
    ]  # fmt: skip


def test_on_an_asynchronous_backend_only_waits_give_intervals() -> None:
    calls = started()
    calls.runs_behind = True
    assert calls.dispatched(0, 100) is None
    first = calls.dispatched(1, 110)
    second = calls.dispatched(2, 125)
    assert first.dispatch_ns == 10
    assert first.interval_ns is None
    assert first.duration_ns is None
    calls.waited(300, second)
    assert second.synced is True
    assert (second.interval_ns, second.interval_calls) == (100, 2)
    third = calls.dispatched(3, 310)
    calls.waited(360, third)
    assert (third.interval_ns, third.interval_calls) == (60, 1)


def test_where_only_begins_are_seen_and_nothing_runs_behind_they_give_the_interval() -> None:
    calls = started()
    assert calls.dispatched(0, 100) is None
    first = calls.dispatched(1, 110)
    calls.restart_interval(115)  # a profile window was opened in between
    second = calls.dispatched(2, 125)
    last = calls.dispatched(None, 140)
    assert [line and line.interval_ns for line in (first, second, last)] == [10, 10, None]
    assert not any(line and line.dispatch_ns for line in (first, second, last))


def test_a_wait_for_the_call_before_the_last_gives_intervals_up_to_that_call() -> None:
    calls = started()
    calls.dispatched(0, 100)
    first = calls.dispatched(1, 110)
    second = calls.dispatched(2, 125)
    calls.waited(300, first, behind=1)
    assert (first.interval_ns, first.interval_calls) == (200, 1)
    assert second.synced is False
    calls.waited(450, second)
    assert (second.interval_ns, second.interval_calls) == (150, 1)


def test_our_own_work_belongs_to_no_interval() -> None:
    calls = started()
    calls.begin(0, 0)
    calls.restart_interval(1000)  # a window was opened within the begin hook
    calls.end(1040)
    line = calls.begin(1, 1050)
    assert (line.interval_ns, line.duration_ns) == (50, 40)


def test_a_begin_that_is_told_twice_is_one_call() -> None:
    """As of a callback that stands in the list twice, where only begins are seen."""
    calls = started()
    lines = [calls.dispatched(batch, 1100 + 10 * k) for k, batch in enumerate((0, 0, 1, 1, 2, 2))]
    lines += [calls.dispatched(None, 1200), calls.dispatched(None, 1210)]
    assert [line.step for line in lines if line is not None] == [1, 2, 3]


def test_a_call_like_any_other_is_told_as_every_call() -> None:
    calls, now, intervals, put = started(), iter((1150, 1200, 1210)), list[int](), list[Recorded]()
    calls.begin(0, 1100)
    calls.end(1140)
    calls.enter_fast_path(5, intervals.append, put.append, put.append)
    fast = Fast(calls, lambda: next(now))
    fast.begin(1)
    fast.end({"loss": 0.5, "accuracy": 1.0})
    fast.begin(2)
    assert calls.is_open
    assert intervals == [50, 60]
    first, second = map(record_of, put)
    assert (first["step"], first["interval_ns"], first["duration_ns"]) == (1, 50, 40)
    assert second == {
        "kind": "step", "step": 2, "fit": 1, "epoch": 3, "batch": 1, "covers": 1, "t_ns": 200,
        "synced": False, "profiled": False, "interval_ns": 60, "duration_ns": 50, "gap_ns": 10, "loss": 0.5,
    }  # fmt: skip
    assert json.loads(text_of(put[1])) == second
    assert calls.close_epoch() is None  # the call that is open has never run, and no line comes twice


def test_where_something_else_happens_the_last_call_alike_has_a_line_that_may_be_added_to() -> None:
    calls, now, put = started(), iter((1150, 1200)), list[Recorded]()
    calls.begin(0, 1100)
    calls.end(1140)
    calls.enter_fast_path(5, [].append, put.append, put.append)
    fast = Fast(calls, lambda: next(now))
    fast.begin(1)
    fast.end(None)
    line = calls.ended_line()
    assert (line.step, line.batch, line.duration_ns, line.gap_ns, line.loss) == (2, 1, 50, 10, None)
    assert line is calls.ended_line()
    assert calls.fast_until == NEVER
    line.skipped = 1
    assert calls.begin(2, 1230) is line
    assert line.interval_ns == 80
    assert len(put) == 1


def test_an_interrupt_as_a_line_is_handed_over_gives_no_line_twice() -> None:
    """Python raises it as soon as a function returns: here the one that takes the line."""
    lines: list[Recorded] = []

    def put(record: Recorded) -> None:
        lines.append(record)
        if len(lines) == 2:
            raise KeyboardInterrupt

    calls = started()
    calls.begin(0, 1100)
    calls.end(1140)
    calls.enter_fast_path(5, [].append, put, put)
    fast = Fast(calls, iter(range(1150, 1200)).__next__)
    fast.begin(1)
    fast.end(None)
    with pytest.raises(KeyboardInterrupt):
        fast.begin(2)
    assert calls.close_epoch() is None
    assert [record_of(line)["step"] for line in lines] == [1, 2]


def test_an_interrupt_as_the_loss_is_asked_for_gives_no_step_the_loss_of_another() -> None:
    class Logs(dict[str, float]):
        def get(self, *_: Any) -> Any:
            raise KeyboardInterrupt

    calls = started()
    calls.begin(0, 1100)
    calls.end(1140)
    calls.enter_fast_path(5, [].append, [].append, [].append)
    fast = Fast(calls, iter(range(1150, 1200)).__next__)
    fast.begin(1)
    fast.end({"loss": 1.0})
    fast.begin(2)
    with pytest.raises(KeyboardInterrupt):
        fast.end(Logs(loss=0.5))
    last = calls.close_epoch()
    assert (last.step, last.loss) == (3, None)


def told(events: list[tuple[str, int, int]], alike: int) -> tuple[list[str], list[int], int]:
    """Lines, intervals and steps of what happens, told as the callback tells it: `alike` calls of a kind."""
    calls, lines, intervals = started(), list[str](), list[int]()
    now, clock = 1000, [1000]
    fast = Fast(calls, lambda: clock[0])

    def put(record: Recorded | None) -> None:
        if record is not None:
            lines.append(text_of(record))

    for what, ns, number in events:
        now = clock[0] = now + ns
        fast.otherwise.clear()
        if what == "begin":
            fast.begin(number)
        elif what == "end":
            fast.end({"loss": number / 8})
        if what == "begin" and fast.otherwise:
            line = calls.begin(number, now)
            if line is not None and line.interval_ns is not None:
                intervals.append(line.interval_ns)
            put(line)
        elif what == "end" and fast.otherwise and (line := calls.end(now)) is not None:
            line.loss = number / 8
            calls.enter_fast_path(calls.step + alike if alike else NEVER, intervals.append, put, put)
        elif what == "read" and (line := calls.ended_line()) is not None:
            line.skipped = number
        elif what == "wished":
            calls.fast_until = NEVER
        elif what == "evaluated":
            calls.leave_out(min(ns, number))
        elif what == "window":
            calls.restart_interval(now)
        elif what == "no input":
            calls.drop()
        elif what == "epoch":
            put(calls.close_epoch())
            calls.start_epoch(number)
        elif what == "fit":
            put(calls.close_epoch())
            calls.start_fit(1, None)
            calls.start_epoch(0)
    put(calls.close_epoch())
    return lines, intervals, calls.step


WHOLE_CALL = some.just(("begin", "end"))
OTHER = some.sampled_from(
    ["begin", "end", "read", "wished", "evaluated", "window", "no input", "epoch", "fit"]
).map(lambda what: (what,))
WHAT = some.lists(WHOLE_CALL | WHOLE_CALL | OTHER, max_size=40).map(
    lambda parts: [what for part in parts for what in part]
)
NUMBER = some.integers(0, 1000)


@given(
    WHAT.flatmap(
        lambda whats: some.tuples(*(some.tuples(some.just(what), NUMBER, NUMBER) for what in whats))
    ),
    some.integers(1, 9),
)
def test_whatever_happens_in_between_calls_alike_give_the_same_lines(
    events: tuple[tuple[str, int, int], ...], alike: int
) -> None:
    assert told([*events], alike) == told([*events], 0)


def dispatches(events: list[tuple[str, int]], alike: bool) -> tuple[list[dict[str, Any]], int]:
    """Lines and steps where only begins are seen and the device runs behind."""
    calls, lines, now, batch = started(), [], [1000], 0
    calls.runs_behind = True
    told: list[Recorded | None] = []
    begin = calls.dispatch_hook(
        Spent(lambda: now[0]),
        (),
        lambda line, now_ns: told.append(line),
        lambda batch, now_ns: told.append(calls.dispatched(batch, now_ns)),
        raised,
    )
    for what, number in events:
        now[0] += 1 + number
        match what:
            case "begin" | "begin told twice":
                batch += what == "begin"
                calls.fast_until = 10**9 if alike else NEVER
                begin(batch)
            case "wait":
                last = Line(calls.step, 1, 3, batch, 1)
                calls.waited(now[0], last)
                told.append(last)
            case "evaluation":
                calls.leave_out(number)
            case "epoch":
                told.append(calls.dispatched(None, now[0]))
                calls.close_epoch()
                calls.start_epoch(number)
        lines += [json.loads(text_of(each)) for each in told if each is not None]
        told.clear()
    return lines, calls.step


@given(
    some.lists(
        some.tuples(
            some.sampled_from(["begin"] * 6 + ["begin told twice", "wait", "evaluation", "epoch"]),
            some.integers(0, 9),
        ),
        max_size=40,
    )
)
def test_dispatches_alike_give_the_same_lines(events: list[tuple[str, int]]) -> None:
    assert dispatches(events, True) == dispatches(events, False)


NS = some.none() | some.integers(0, 2**62)
NUMBERS = some.floats() | some.sampled_from([math.nan, math.inf, 0.0, 1e-320])
KNOWN = {
    **dict.fromkeys(("interval_ns", "duration_ns", "dispatch_ns", "gap_ns", "interval_calls", "skipped"), NS),
    **dict.fromkeys(("loss", "loss_scale", "input_wait_ns"), some.none() | NUMBERS),
    **dict.fromkeys(("synced", "profiled"), some.booleans()),
    "memory": some.none() | some.just([{"device": "GPU:0", "peak_bytes": 5, "live_bytes": 3}]),
    "values": some.none() | some.dictionaries(some.text(), NUMBERS, max_size=3),
}


# In a fresh checkout hypothesis first builds its tables of Unicode, and would take that for slow data.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(some.fixed_dictionaries({}, optional=KNOWN), some.integers(1, 2**40))
def test_a_line_is_written_as_the_encoder_would_write_it(known: dict[str, Any], step: int) -> None:
    line = Line(step, 1, 0, step - 1, 1)
    for name, value in known.items():
        setattr(line, name, value)
    told = {name: value for name, value in known.items() if value is not None and name != "values"}
    values = known.get("values") or {}
    record = line.record()
    assert set(record) == {
        "kind",
        "step",
        "fit",
        "epoch",
        "batch",
        "covers",
        "t_ns",
        "synced",
        "profiled",
    } | (told.keys() | values.keys())
    assert json.loads(line.text(), parse_constant=str) == json.loads(formats.line(record), parse_constant=str)
