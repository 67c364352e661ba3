"""Step lines from hooks, with times that are given and not measured."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as some

from mpprof.record.calls import CallLog
from mpprof.record.lines import Line
from mpprof.store import formats


def started(per_call: int = 1, in_epoch: int | None = None) -> CallLog:
    calls = CallLog(1000)
    calls.start_fit(per_call, in_epoch)
    calls.start_epoch(3)
    return calls


def test_interval_duration_and_gap_of_a_call() -> None:
    calls = started()
    assert calls.begin(0, 1100) is None
    calls.end(1140)
    first = calls.begin(1, 1150)
    calls.end(1200)
    last = calls.close_epoch()
    assert first is not None
    assert first.record() == {
        "kind": "step", "step": 1, "fit": 1, "epoch": 3, "batch": 0, "covers": 1, "t_ns": 140,
        "synced": False, "profiled": False, "duration_ns": 40, "interval_ns": 50,
    }  # fmt: skip
    assert last is not None
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
    assert line is not None
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
    assert first is not None
    assert second is not None
    assert first.dispatch_ns == 10
    assert first.interval_ns is None
    assert first.duration_ns is None
    calls.waited(300, second)
    assert second.synced is True
    assert (second.interval_ns, second.interval_calls) == (100, 2)
    third = calls.dispatched(3, 310)
    assert third is not None
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
    assert first is not None
    assert second is not None
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
    assert line is not None
    assert (line.interval_ns, line.duration_ns) == (50, 40)


def test_a_begin_that_is_told_twice_is_one_call() -> None:
    """As of a callback that stands in the list twice, where only begins are seen."""
    calls = started()
    lines = [calls.dispatched(batch, 1100 + 10 * k) for k, batch in enumerate((0, 0, 1, 1, 2, 2))]
    lines += [calls.dispatched(None, 1200), calls.dispatched(None, 1210)]
    assert [line.step for line in lines if line is not None] == [1, 2, 3]


NS = some.none() | some.integers(0, 2**62)
NUMBERS = some.floats() | some.sampled_from([math.nan, math.inf, 0.0, 1e-320])
KNOWN = {
    **dict.fromkeys(("interval_ns", "duration_ns", "dispatch_ns", "gap_ns", "interval_calls", "skipped"), NS),
    **dict.fromkeys(("loss", "loss_scale", "input_wait_ns"), some.none() | NUMBERS),
    **dict.fromkeys(("synced", "profiled"), some.booleans()),
    "memory": some.none() | some.just([{"device": "GPU:0", "peak_bytes": 5, "live_bytes": 3}]),
    "values": some.none() | some.dictionaries(some.text(), NUMBERS, max_size=3),
}


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
