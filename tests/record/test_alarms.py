"""Alarms: pure detection, and what a training does with one."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpprof.errors import UsageError
from mpprof.record import StepRecorder
from mpprof.record.alarms import DRIFT_STEPS, Kind, Seen, Watch, checked
from mpprof.record.backends import Unanswered
from mpprof.record.backends.base import Reading
from mpprof.record.calls import CallLog
from mpprof.record.observer import Observer
from mpprof.record.recorder import Recorder
from mpprof.record.step_line import Line
from mpprof.store import read_records
from tests.record.training import BATCH, callback, data, model


def test_a_scale_that_runs_away_from_a_loss_that_is_never_scaled_is_that_fault() -> None:
    for scaled, code in ((True, "MP203"), (None, "MP203"), (False, "MP103")):
        (alarm,) = Watch(scaled=scaled).see(Seen(21, 1, loss_scale=2.0**25))
        assert code in alarm.text


def kinds(watch: Watch, *seen: Seen) -> list[tuple[Kind, int]]:
    return [(alarm.kind, alarm.step) for one in seen for alarm in watch.see(one)]


def test_skips_while_the_scale_settles_are_no_alarm_and_endless_ones_are() -> None:
    settling = [Seen(step, 1, skipped=1, loss_scale=2.0 ** (16 - step)) for step in range(1, 12)]
    assert kinds(Watch(), *settling) == []
    endless = [Seen(step, 1, skipped=1) for step in range(1, 40)]
    assert kinds(Watch(), *endless) == [("endless_skips", 30)]
    interrupted = [Seen(step, 1, skipped=step % 10 != 0) for step in range(21, 121)]
    assert kinds(Watch(), *interrupted) == []


def test_one_step_in_twenty_skipped_over_hundreds_is_an_alarm() -> None:
    at = [Seen(16 * k, 16, skipped=int(k % 5 != 0)) for k in range(2, 60)]  # 4 of 80: the limit
    assert kinds(Watch(), *at) == [("endless_skips", 16 * 26)]
    below = [Seen(16 * k, 16, skipped=int(k % 2 == 0)) for k in range(2, 200)]
    assert kinds(Watch(), *below) == []


@pytest.mark.parametrize(
    ("scale", "kind"),
    [(0.5, None), (1.0, None), (2.0**24, None), (2.0**25, "loss_scale_runaway"), (math.inf, "loss_scale_runaway")],
)  # fmt: skip
def test_the_limits_of_the_loss_scale(scale: float, kind: Kind | None) -> None:
    said = kinds(Watch(), Seen(100, 1, 0, scale), Seen(101, 1, 0, scale))
    assert said == ([(kind, 100)] if kind else [])


@pytest.mark.parametrize(
    ("before", "seen", "at"),
    [
        (None, [Seen(1, 1, 0, 0.125), Seen(2001, 2000, 0, 0.25)], None),  # it began there, and grows
        (None, [Seen(1, 1, 0, 0.125), Seen(2, 1, 1, 0.0625)], 2),
        (None, [Seen(1, 1, 1, 0.5)], 1),
        (2.0, [Seen(1, 1, None, 1.0), Seen(2, 1, None, 0.5)], 2),  # skips are not told
        (1.0, [Seen(16, 16, 2, 0.5)], 16),
        (None, [Seen(1, 1, 1, 1.0), Seen(2, 1, 0, 1.0), Seen(3, 1, 1, 1.0)], 3),  # Keras 2 stops at 1
        (1.0, [Seen(16, 16, 1, 1.0)], None),  # it took back a doubling
    ],
)
def test_a_low_scale_is_an_alarm_where_unscaled_gradients_overflow(
    before: float | None, seen: list[Seen], at: int | None
) -> None:
    first = [] if before is None else [Seen(0, 1, 0, before)]
    assert kinds(Watch(), *first, *seen) == ([("loss_scale_low", at)] if at else [])


def test_the_lower_scale_of_another_fit_has_not_fallen() -> None:
    watch = Watch()
    assert kinds(watch, Seen(1, 1, 0, 2.0**15)) == []
    watch.start_fit(2000, 0.125)
    assert kinds(watch, Seen(2, 1, None, 0.125)) == []
    watch.start_fit(2000, 0.125)
    assert kinds(watch, Seen(3, 1, None, 0.0625)) == [("loss_scale_low", 3)]


def test_a_scale_that_an_overflow_stopped_does_not_run_away() -> None:
    falling = [Seen(step, 1, 1, 2.0 ** (40 - step)) for step in range(1, 12)]
    held = [Seen(step, 1, 0, 2.0**29) for step in range(12, 40)]
    assert kinds(Watch(), *falling, *held) == []
    beyond = [Seen(40, 1, 0, 2.0**30), Seen(41, 1, 0, 2.0**31)]
    assert kinds(Watch(), *falling, *held, *beyond) == [("loss_scale_runaway", 41)]


def test_skips_that_take_a_doubling_back_are_no_alarm_however_often_they_come() -> None:
    growing = [Seen(16 * k, 16, skipped=1, loss_scale=2.0**15) for k in range(1, 60)]
    assert kinds(Watch(growth_steps=15), *growing) == []
    falling = [Seen(16 * k, 16, skipped=1, loss_scale=2.0 ** (100 - k)) for k in range(1, 60)]
    assert kinds(Watch(growth_steps=15), *falling)[0] == ("endless_skips", 16 * 26)


def test_a_scale_that_should_have_doubled_is_stuck() -> None:
    readings = [Seen(16 * k, 16, skipped=0, loss_scale=8.0) for k in range(1, 30)]
    assert kinds(Watch(growth_steps=100), *readings) == [("loss_scale_stuck", 16 * 20)]
    assert kinds(Watch(growth_steps=None), *readings) == []
    skipping = [Seen(16 * k, 16, skipped=int(k % 10 == 0), loss_scale=8.0) for k in range(1, 30)]
    assert kinds(Watch(growth_steps=100), *skipping) == []
    growing = [Seen(16 * k, 16, skipped=0, loss_scale=2.0 ** (k // 10)) for k in range(1, 60)]
    assert kinds(Watch(growth_steps=100), *growing) == []


def test_slower_steps_are_an_alarm_where_the_gpu_throttles() -> None:
    usual = [Seen(k, 1, intervals_ns=(1_000_000,)) for k in range(1, 65)]
    slow = [Seen(k, 1, intervals_ns=(1_100_000,), throttle=("sw_thermal",)) for k in range(65, 140)]
    assert kinds(Watch(), *usual, *slow) == [("throttling", 128)]
    not_slow = [Seen(k, 1, intervals_ns=(1_090_000,), throttle=("sw_thermal",)) for k in range(65, 140)]
    assert kinds(Watch(), *usual, *not_slow) == []
    unthrottled = [Seen(k, 1, intervals_ns=(2_000_000,)) for k in range(65, 140)]
    assert kinds(Watch(), *usual, *unthrottled) == []


def test_an_alarm_that_does_not_exist_cannot_stop_anything() -> None:
    assert checked("throttling") == {"throttling"}
    with pytest.raises(UsageError, match="no alarm 'fire'"):
        checked(["fire"])


def test_a_loop_is_told_to_stop(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    quiet: Any = {"hardware": False, "verbose": 0, "announce": None, "profile_steps": None}
    with StepRecorder(tmp_path, stop_on="non_finite_loss", **quiet) as recorder:
        for step in range(20):
            if recorder.stop_requested:
                break
            with recorder.step():
                pass
            recorder.update(loss=math.nan if step == 6 else 0.5)
    steps = read_records(tmp_path).steps
    assert len(steps) == 7
    assert "training is stopped" in caplog.text


@pytest.mark.framework
@pytest.mark.usefixtures("keras")
def test_training_is_warned_once_and_stopped_where_that_is_wanted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    x, y = data(60, bad_steps=(40,))
    made = model()
    for name, stop_on, steps in (("warned", (), 60), ("stopped", ("non_finite_loss",), 48)):
        caplog.clear()
        made.fit(
            x,
            y,
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            callbacks=[callback(tmp_path / name, stop_on=stop_on)],
        )
        assert [r.getMessage() for r in caplog.records if "the loss is nan" in r.getMessage()] == [
            "mpprof: the loss is nan by step 48 (MP206)" + ("; training is stopped" if stop_on else "")
        ]
        read = read_records(tmp_path / name)
        assert len(read.steps) == steps
        alarms = json.loads((tmp_path / name / "mpprof" / "run.json").read_text())["alarms"]
        assert [(alarm["kind"], alarm["step"]) for alarm in alarms] == [("non_finite_loss", 48)]
        made = model()


def test_a_gpu_that_throttles_at_every_reading_is_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(tmp_path, hardware=False, clock=lambda: 0)
    observer = Observer(recorder, Unanswered(), CallLog(0), 16, frozenset())
    for step in range(1, 2 * DRIFT_STEPS + 1):
        recorder.throttling.add("hw_thermal")
        observer.new_intervals.append(1_000_000 if step <= DRIFT_STEPS else 1_300_000)
        observer.look_at(Line(step, 1, 0, step - 1, 1))
    (alarm,) = recorder.facts["alarms"]
    assert (alarm["kind"], alarm["step"]) == ("throttling", 2 * DRIFT_STEPS)
    assert "hw_thermal" in caplog.text
    assert len(observer.intervals) == 2 * DRIFT_STEPS


def test_what_breaks_is_told_with_the_loss_scale_of_its_update(tmp_path: Path) -> None:
    """Where the device runs behind, the loss at an epoch's end may be known before the reading of its skip."""
    calls = CallLog(0)
    observer = Observer(
        Recorder(tmp_path, hardware=False, clock=lambda: 0), Unanswered(), calls, 16, frozenset()
    )
    told: list[float | None] = []
    observer.broke = lambda seen, scale: told.append(scale)
    optimizer: Any = SimpleNamespace(initial_scale=2.0**15, dynamic_growth_steps=2000)
    observer.start_counting(optimizer, Reading(0))
    observer.alarm(Seen(1, 0, loss=math.inf))
    for calls.step, reading in ((1, Reading(0, 2.0**14, 0)), (2, Reading(1, 2.0**14, 1))):
        line = Line(calls.step, 1, 0, calls.step - 1, 1)
        observer.note(line, reading)
        observer.look_at(line)
    observer.alarm(Seen(3, 0, loss=math.inf))
    assert told == [2.0**15, 2.0**15, 2.0**14]  # nothing is told of the second reading
