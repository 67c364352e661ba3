"""When a window opens and closes, and that sessions never overwrite each other."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from mpprof.errors import UsageError
from mpprof.record.backends import Unanswered
from mpprof.record.profile.window import EARLIEST_STEP, STEPS, Plan, Window


def plan(wanted: Any = "auto") -> Plan:
    made = Plan.of(wanted)
    assert made is not None
    return made


def test_auto_waits_until_intervals_have_settled() -> None:
    auto = plan()
    opened = None
    for step in range(1, 60):
        auto.calls = step - 1
        if auto.opens(step, None, step == 1):
            opened = step
            break
        auto.interval(5000 if step < 20 else 10)
        auto.interval(10)
    assert opened is not None
    assert EARLIEST_STEP < 20 < opened < 30


def test_auto_does_not_wait_for_ever_nor_start_where_the_epoch_ends() -> None:
    auto = plan()
    for step in range(200):
        auto.interval(10 if step % 2 else 1000)
    auto.calls = 30
    assert not auto.opens(31, None, False)
    auto.calls = 100
    assert auto.opens(101, None, False)
    assert not auto.opens(101, None, True)
    assert not auto.opens(101, STEPS, False)
    assert auto.opens(101, STEPS + 1, False)
    assert not auto.closes(106, STEPS - 1)
    assert auto.closes(106, STEPS)


def test_auto_takes_the_last_chance_of_an_epoch() -> None:
    auto = plan()
    auto.calls = 12
    assert not auto.opens(13, STEPS + 2, False)
    assert auto.opens(14, STEPS + 1, False)
    auto.calls = 1
    assert not auto.opens(14, STEPS + 1, False)  # the first calls compile


def test_auto_goes_across_epochs_that_are_shorter_than_a_window() -> None:
    auto = plan()
    opened = []
    for step in range(1, 101):
        auto.calls = step - 1
        if auto.opens(step, 5 - (step - 1) % 5, step % 5 == 1):
            opened.append(step)
    assert opened[0] == 41
    assert auto.closes(46, STEPS)
    assert not auto.opens(101, STEPS + 2, True)  # long enough: within it


def test_given_steps_are_inclusive_and_counted_from_one() -> None:
    given = plan((3, 5))
    assert [step for step in range(1, 9) if given.opens(step, None, False)] == [3, 4, 5]
    assert [step for step in range(3, 9) if given.closes(step, 0)] == [6, 7, 8]
    assert Plan.of(None) is None


@pytest.mark.parametrize("wrong", ["always", (5, 3), (0, 4), (1,), 7, True, (1.0, 2.0)])
def test_other_wishes_are_the_callers_error(wrong: Any) -> None:
    with pytest.raises(UsageError, match="profile_steps"):
        Plan.of(wrong)


class OneSecond(Unanswered):
    """A profiler that names every session after the same second."""

    def start_trace(self, folder: Path) -> None:
        self.folder = folder

    def stop_trace(self) -> None:
        session = self.folder / "plugins" / "profile" / "2026_01_01_00_00_00"
        session.mkdir(parents=True)
        (session / "host.xplane.pb").write_bytes(b"x" * 10)


def test_two_windows_in_one_second_have_directories_of_their_own(tmp_path: Path) -> None:
    clock = itertools.count(0, 7).__next__
    facts = []
    for first in (1, 9):
        window = Window(OneSecond(), tmp_path, clock, first)
        window.start()
        for step in (first, first + 1):
            window.mark(step)
            window.ran(step)
        window.mark(first + 2)  # which never runs
        window.stop()
        facts.append(window.facts)
    assert [fact["trace"] for fact in facts] == [
        "plugins/profile/2026_01_01_00_00_00",
        "plugins/profile/2026_01_01_00_00_00_2",
    ]
    assert all((tmp_path / fact["trace"] / "host.xplane.pb").is_file() for fact in facts)
    assert facts[0]["status"] == "done"
    assert (facts[0]["first_step"], facts[0]["last_step"], facts[0]["host"]) == (1, 2, "host")
    assert facts[0]["trace_bytes"] == 10
    assert facts[0]["start_cost_ns"] == facts[0]["stop_cost_ns"] == 7
    assert list((tmp_path / "mpprof").iterdir()) == []


class Interrupted(OneSecond):
    """The user presses Ctrl-C while the profiler stops, which then has not been stopped."""

    stops = 0

    def stop_trace(self) -> None:
        self.stops += 1
        if self.stops == 1:
            raise KeyboardInterrupt


def test_an_interrupt_as_a_window_closes_stops_the_profiler(tmp_path: Path) -> None:
    probe = Interrupted()
    window = Window(probe, tmp_path, itertools.count().__next__, 4)
    window.start()
    with pytest.raises(KeyboardInterrupt):
        window.stop()
    assert probe.stops == 2
    assert window.failure is not None
    assert "KeyboardInterrupt" in window.failure
    assert not list(tmp_path.rglob(".window*"))


def test_a_profiler_that_cannot_start_is_a_status_and_no_error(tmp_path: Path) -> None:
    window = Window(Unanswered("exotic"), tmp_path, itertools.count().__next__, 4)
    window.start()
    window.mark(4)
    window.stop()
    assert window.facts["status"] == "failed: RuntimeError: no probe for the backend exotic"
    assert "trace" not in window.facts


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "16", True])
def test_reading_every_so_many_steps_needs_a_whole_number(tmp_path: Path, wrong: Any) -> None:
    from mpprof.record import StepRecorder

    with pytest.raises(UsageError, match="read_every"):
        StepRecorder(tmp_path, read_every=wrong)
