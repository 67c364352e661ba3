"""What is made once for all who ask: by whom it is waited for, and when it is made anew."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.api.source import READ_AT_ONCE, LogDirectory
from mpprof.shared_results import SharedResults
from tests.paths import SAMPLES

LONG_S = 60
"""Nothing here takes so long but what waits for ever."""


def test_a_value_is_made_once_for_its_version_and_the_least_asked_for_goes_first() -> None:
    kept: SharedResults[str, int] = SharedResults(2)
    made: list[str] = []

    def value(key: str, version: int) -> int:
        return kept.get(key, version, lambda: made.append(key) or len(made))

    assert [value("a", 1), value("a", 1), value("a", 2), value("b", 1), value("a", 2)] == [1, 1, 2, 3, 2]
    assert [value("c", 1), value("a", 2), value("b", 1)] == [4, 2, 5]


def test_what_fails_is_tried_again_by_the_next() -> None:
    kept: SharedResults[str, int] = SharedResults(2)
    with pytest.raises(ZeroDivisionError):
        kept.get("a", 1, lambda: 1 // 0)
    assert kept.get("a", 1, lambda: 7) == 7


def in_thread(what: Any) -> Any:
    """The thread that has begun with it, and a list that gets its result."""
    result: list[Any] = []
    thread = threading.Thread(target=lambda: result.append(what()), daemon=True)
    thread.start()
    return thread, result


def test_five_who_ask_for_the_same_get_the_one_that_the_first_has_made() -> None:
    kept: SharedResults[str, object] = SharedResults(2)
    begun, go_on = threading.Event(), threading.Event()

    def make() -> object:
        assert not begun.is_set(), "made twice"
        begun.set()
        assert go_on.wait(LONG_S)
        return object()

    asking = [in_thread(lambda: kept.get("a", 1, make)) for _ in range(5)]
    assert begun.wait(LONG_S)
    go_on.set()
    for thread, _ in asking:
        thread.join(LONG_S)
    assert len({id(value) for _, (value,) in asking}) == 1


def test_who_asks_for_what_was_read_waits_for_no_trace_that_is_being_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = LogDirectory(SAMPLES)
    known = "v100-loss-scale-thrash"
    report, rows = source.report(known), source.kernels(known)
    others = ["v100-float32-island", "h100-mixed-bfloat16", "gtx1080ti-float32"]
    go_on, reading = threading.Event(), threading.Semaphore(0)
    analyse = workflows.analyse

    def slow(loaded: Any) -> Any:
        reading.release()
        assert go_on.wait(LONG_S)
        return analyse(loaded)

    monkeypatch.setattr(workflows, "analyse", slow)
    asking = [in_thread(lambda other=other: source.report(other)) for other in others]
    for _ in range(READ_AT_ONCE):
        assert reading.acquire(timeout=LONG_S)
    assert not reading.acquire(blocking=False)  # no more traces at once
    beside, found = in_thread(
        lambda: (source.entries(), source.report(known), source.kernels(known), source.steps(known))
    )
    beside.join(LONG_S)
    assert found, "who asked for a report that was there waits for others' traces"
    assert found[0][1] is report
    assert found[0][2] is rows
    go_on.set()
    for thread, result in asking:
        thread.join(LONG_S)
        assert result[0].run.name in others
