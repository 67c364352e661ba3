"""A training loop of one's own: exact times from a clock that is given, and a process that is killed."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.analysis.steps.run_time import run_time
from mpprof.errors import UsageError
from mpprof.record import StepRecorder
from mpprof.record.calls import CallLog
from mpprof.runs.loading import load
from mpprof.store import read_records


class Clock:
    now = 1_000_000

    def __call__(self) -> int:
        return self.now

    def passes(self, ns: int) -> None:
        self.now += ns


def recorder(logdir: Path, clock: Clock, **more: object) -> StepRecorder:
    return StepRecorder(
        logdir, clock=clock, hardware=False, profile_steps=None, announce=None, **more  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_loop_is_recorded_as_it_ran(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()

    def data() -> Iterator[int]:
        for item in range(3):
            clock.passes(40)
            yield item

    with recorder(tmp_path / "run", clock, batch_size=32) as record:
        for item in record.batches(data()):
            with record.step():
                clock.passes(100)
                if item == 1:
                    record.update(skipped=1, loss_scale=1024.0)
            record.update(loss=item / 2, mood=3)
            clock.passes(10)
        with record.validation():
            clock.passes(500)
        with record.step():
            clock.passes(100)
    records = read_records(tmp_path / "run")
    table, facts = records.steps, records.facts
    assert records.warnings == ()
    assert records.finished
    assert table.step.tolist() == [1, 2, 3, 4]
    assert table.duration_ns.tolist() == [100] * 4
    assert table.interval_ns.tolist() == [150, 150, -1, -1]
    assert table.input_wait_ns.tolist() == [40, 40, 40, -1]
    assert table.gap_ns.tolist() == [-1, 50, 50, -1]
    assert table.loss[:3].tolist() == [0.0, 0.5, 1.0]
    assert table.skipped.tolist() == [-1, 1, -1, -1]
    assert table.loss_scale[1] == 1024.0
    assert records.validations.duration_ns.tolist() == [500]
    assert facts.fits[0].batch_size == 32
    assert "model" in facts.absent
    assert "skipped" not in facts.absent  # the loop gave it
    written = json.loads((tmp_path / "run" / "mpprof" / "run.json").read_text())
    assert "input_wait_ns" not in written["absent"]  # and each line has it
    printed = capsys.readouterr().out
    assert printed.count("\n") == 1
    assert "4 steps" in printed
    assert "mpprof report" in printed


def test_what_is_told_after_an_epoch_or_a_validation_is_of_the_last_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, Clock(), verbose=0) as record:
        for epoch in range(2):
            for _ in range(3):
                with record.step():
                    record.update(loss=float(epoch), skipped=1)
            record.epoch()
            record.update(loss=10.0 + epoch, skipped=2, accuracy=0.25)
            with record.validation():
                record.update(loss_scale=64.0 + epoch)
            record.update(skipped=1, mood="fine", score=epoch)
        told = record._session.summary()
    table = read_records(tmp_path).steps
    assert table.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert table.loss.tolist() == [0.0, 0.0, 10.0, 1.0, 1.0, 11.0]
    assert table.skipped.tolist() == [1, 1, 4, 1, 1, 4]
    assert table.loss_scale[[2, 5]].tolist() == [64.0, 65.0]
    assert table.loss_scale_known.tolist() == [False, False, True] * 2
    assert "12 skipped" in told
    lines = [json.loads(line) for line in (tmp_path / "mpprof" / "steps.jsonl").read_text().splitlines()[1:]]
    late = [line for line in lines if line["kind"] == "update"]
    assert [line["step"] for line in late] == [3] * 3 + [6] * 3
    assert [(line.get("accuracy"), line.get("score")) for line in late] == [
        (0.25, None), (None, None), (None, 0.0), (0.25, None), (None, None), (None, 1.0),
    ]  # fmt: skip
    assert [said.getMessage() for said in caplog.records] == [
        "mpprof no longer records update.mood: ValueError: could not convert string to float: 'fine'"
    ]


def test_an_epoch_and_a_validation_within_a_step_cost_no_step(tmp_path: Path) -> None:
    """The epoch ends with the step; the validation's time is none of the step's."""
    clock = Clock()
    with recorder(tmp_path, clock, verbose=0) as record:
        for k in range(4):
            with record.step():
                clock.passes(10)
                if k == 1:
                    record.epoch()
                if k == 2:
                    with record.validation():
                        clock.passes(500)
                clock.passes(5)
    table = read_records(tmp_path).steps
    assert table.step.tolist() == [1, 2, 3, 4]
    assert table.epoch.tolist() == [0, 0, 1, 1]
    assert table.duration_ns.tolist() == [15] * 4
    assert table.interval_ns[[0, 2]].tolist() == [15] * 2
    validations = read_records(tmp_path).validations
    assert validations.duration_ns.tolist() == [500]


@pytest.mark.parametrize(
    ("name", "values"), [("skipped", (-5, 1 << 40)), ("input_wait_ns", (-1, 1 << 70)), ("skipped", (1 << 30,) * 3)]
)  # fmt: skip
def test_a_count_that_could_not_be_read_costs_no_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, values: tuple[int, ...]
) -> None:
    with recorder(tmp_path, Clock(), verbose=0) as record:
        with record.step():
            pass
        for value in values:
            record.update(**{name: value})
    read = read_records(tmp_path)
    assert (len(read.steps), read.warnings) == (1, ())
    assert "between 0 and" in read.facts.absent[f"update.{name}"]
    assert len(caplog.records) == 1


def test_a_clock_of_seconds_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="monotonic_ns"):
        StepRecorder(tmp_path, clock=time.monotonic)  # type: ignore[arg-type]


def test_what_is_told_of_no_step_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with recorder(tmp_path, Clock(), verbose=0) as record:
        for _ in range(2):
            record.update(loss=1.0)
        with record.step():
            pass
    for _ in range(2):
        record.update(loss=2.0)
    assert [said.getMessage() for said in caplog.records] == [
        "mpprof: update() before the first step was ignored",
        "mpprof: an update after the recorder has ended is not recorded",
    ]
    table = read_records(tmp_path).steps
    assert table.loss_known.tolist() == [False]


def test_a_wait_for_a_batch_can_be_told(tmp_path: Path) -> None:
    with recorder(tmp_path, Clock(), verbose=0) as record, record.step():
        record.update(input_wait_ns=40.0)
    table = read_records(tmp_path).steps
    assert table.input_wait_ns.tolist() == [40]


def test_where_the_block_does_not_wait_times_are_means_between_waits(tmp_path: Path) -> None:
    clock = Clock()
    with recorder(tmp_path, clock, wait=lambda: clock.passes(400), read_every=4, verbose=0) as record:
        for _ in range(8):
            with record.step():
                clock.passes(100)
    records = read_records(tmp_path)
    assert records.facts.timing.basis == "asynchronous"
    assert records.steps.interval_ns.tolist() == [-1, -1, -1, 200, -1, -1, -1, 200]
    assert records.steps.synced.tolist() == [False, False, False, True] * 2
    assert records.steps.dispatch_ns.tolist() == [100] * 8
    assert records.steps.duration_ns.tolist() == [-1] * 8


def test_a_failing_step_leaves_no_line_and_its_error_passes(tmp_path: Path) -> None:
    def train() -> None:
        with recorder(tmp_path, Clock(), verbose=0) as record:
            with record.step():
                pass
            with record.step():
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train()
    records = read_records(tmp_path)
    assert records.steps.step.tolist() == [1]
    assert '"reason":"error"' in (tmp_path / "mpprof" / "steps.jsonl").read_text()


def test_a_step_within_a_step_and_an_unknown_backend_are_wrong_usage(tmp_path: Path) -> None:
    def nest() -> None:
        with recorder(tmp_path, Clock(), verbose=0) as record, record.step(), record.step():
            pass

    with pytest.raises(UsageError, match="within a step"):
        nest()
    with pytest.raises(UsageError, match="no backend"):
        recorder(tmp_path, Clock(), backend="theano")


def test_steps_outside_of_the_recorder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    record = recorder(tmp_path, Clock(), verbose=0)
    with pytest.raises(UsageError, match="before the recorder was entered"), record.step():
        pass
    with record, record.step():
        pass
    for _ in range(2):
        with record.step():  # training goes on
            record.update(loss=1.0)
    assert [said.getMessage() for said in caplog.records] == [
        "mpprof: a step after the recorder has ended is not recorded"
    ]
    with pytest.raises(UsageError, match="entered twice"), record:
        pass
    read = read_records(tmp_path)
    assert (len(read.steps), read.finished) == (1, True)


def test_what_is_no_number_is_said_once_and_costs_no_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recorder(tmp_path, Clock(), verbose=0) as record:
        for k in range(6):
            with record.step():
                record.update(loss=None if k % 2 else float(k))  # known on every other step
            record.update(mood="fine", epoch=7)
    assert [said.getMessage() for said in caplog.records] == [
        "mpprof no longer records update.mood: ValueError: could not convert string to float: 'fine'",
        "mpprof no longer records update.epoch: UsageError: update(epoch=…) is reserved for the recorder. "
        "Choose another name",
    ]
    read = read_records(tmp_path)
    assert read.finished
    assert read.steps.step.tolist() == [1, 2, 3, 4, 5, 6]
    assert read.steps.loss[::2].tolist() == [0.0, 2.0, 4.0]
    assert set(read.steps.epoch.tolist()) == {0}
    assert {"update.mood", "update.epoch"} <= set(read.facts.absent)


def test_no_name_of_the_users_switches_off_a_part_of_ours(tmp_path: Path) -> None:
    clock, waits = Clock(), []
    names = ("recording", "waiting", "hardware", "profile_windows", "markers", "skipped", "memory")
    with recorder(tmp_path, clock, wait=lambda: waits.append(clock.passes(1)), verbose=0) as record:
        for _ in range(40):
            with record.step():
                clock.passes(10)
            record.update(**dict.fromkeys(names, "no number"), **{"\ud800": 1.0})
    read = read_records(tmp_path)
    assert (len(read.steps), read.finished) == (40, True)
    assert read.steps.synced.sum() == len(waits) > 0
    assert {"hardware", "profile_windows"} <= set(read.facts.absent)
    assert "not wanted" in read.facts.absent["profile_windows"]


def test_a_wait_that_fails_gives_no_times(tmp_path: Path) -> None:
    clock, waits = Clock(), itertools.count()

    def wait() -> None:
        clock.passes(400)
        if next(waits) == 1:
            raise ConnectionError("the device has gone")

    with recorder(tmp_path, clock, wait=wait, read_every=4, verbose=0) as record:
        for _ in range(16):
            with record.step():
                clock.passes(100)
    read = read_records(tmp_path)
    assert (np.flatnonzero(read.steps.synced) + 1).tolist() == [4]
    assert (np.flatnonzero(read.steps.interval_ns >= 0) + 1).tolist() == [4]
    assert "the device has gone" in read.facts.absent["waiting"]


def test_an_interrupt_as_a_step_begins_leaves_the_next_ones_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, calls = CallLog.begin, itertools.count(1)

    def interrupted(self: CallLog, batch: int, now_ns: int) -> Any:
        if next(calls) == 5:
            raise KeyboardInterrupt
        return begin(self, batch, now_ns)

    monkeypatch.setattr(CallLog, "begin", interrupted)
    with recorder(tmp_path, Clock(), verbose=0) as record:
        for _ in range(20):
            with contextlib.suppress(KeyboardInterrupt), record.step():
                pass
    read = read_records(tmp_path)
    assert len(read.steps) == 19


def test_where_recording_fails_no_profiler_runs_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running: list[str] = []
    record = StepRecorder(
        tmp_path, clock=Clock(), hardware=False, profile_steps=(2, 9), announce=None, verbose=0
    )
    probe = record._session.probe
    monkeypatch.setattr(probe, "start_trace", lambda folder: running.append("profiler"))
    monkeypatch.setattr(probe, "stop_trace", running.clear)
    with record:
        for k in range(5):
            if k == 3:
                assert running == ["profiler"]
                monkeypatch.setattr(record._session, "end", None)
            with record.step():
                pass
        assert running == []


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file")


def test_a_closed_stdout_hides_no_error_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Closed())
    with recorder(tmp_path / "a", Clock()) as record, record.step():
        pass
    with pytest.raises(ZeroDivisionError), recorder(tmp_path / "b", Clock()) as record, record.step():
        raise ZeroDivisionError


class NotToBeFlushed:
    """As many write that send what is printed into a file, too."""

    def write(self, text: str) -> None:
        print(text, end="", file=sys.__stderr__)


class Gone(io.StringIO):
    def write(self, text: str) -> int:
        raise RuntimeError("the widget has been deleted")


@pytest.mark.parametrize("stdout", [NotToBeFlushed(), Gone()])
@pytest.mark.parametrize("announce", [None, lambda root: 5, lambda root: 1 / 0])
def test_nothing_that_is_said_at_the_end_fails_the_loop(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    stdout: Any,
    announce: Any,
) -> None:
    """Nor does a log whose handler fails at what is only for who looks for it."""

    class Fails(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise RuntimeError("no more room")

    caplog.set_level(logging.DEBUG, "mpprof")
    monkeypatch.setattr(logging.getLogger("mpprof"), "handlers", [Fails()])
    monkeypatch.setattr(sys, "stdout", stdout)
    with StepRecorder(tmp_path, hardware=False, announce=announce) as record, record.step():
        pass
    read = read_records(tmp_path)
    assert (read.finished, "recording" in read.facts.absent) == (True, False)


def test_a_directory_that_cannot_be_written_stops_no_loop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with recorder(tmp_path / "file" / "run", Clock()) as record:
        for _ in range(3):
            with record.step():
                record.update(loss=1.0)
    assert len(caplog.records) == 1
    assert "records nothing" in caplog.text


KILLED = """
import os, signal, sys, time
from mpprof.record import StepRecorder
with StepRecorder(sys.argv[1], hardware=False, profile_steps=None) as recorder:
    begin, step, ended = time.monotonic(), 0, []
    while True:
        with recorder.step():
            step += 1
        recorder.update(loss=step / 7)
        ended.append(time.monotonic())
        if ended[-1] - begin > float(sys.argv[2]):
            print(step, sum(each < ended[-1] - float(sys.argv[3]) for each in ended), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.0005)
"""


def test_a_killed_process_loses_at_most_its_last_second(tmp_path: Path) -> None:
    """What is older is there: than a second, and a fifth of one for the thread's own lateness. Counted by the clock of
    the process, whose steps may take longer in one second than in the next."""
    command = [sys.executable, "-c", KILLED, str(tmp_path), "2.2", "1.2"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    records = read_records(tmp_path)
    assert records.steps is not None
    assert records.facts is not None
    assert not records.finished
    kept = records.steps
    assert kept.step.tolist() == list(range(1, len(kept) + 1))
    done, old = map(int, ended.stdout.split())
    assert 0 < old <= len(kept) <= done
    assert json.loads((tmp_path / "mpprof" / "run.json").read_text())["schema"] == "mpprof.run/1"


def test_what_a_loop_does_not_tell_is_absent_and_no_zero(tmp_path: Path) -> None:
    """How often TensorFlow traced, and whether weights that it does not know are numbers."""
    pytest.importorskip("tensorflow")
    with (
        StepRecorder(
            tmp_path, backend="tensorflow", hardware=False, profile_steps=None, announce=None, verbose=0
        ) as record,
        record.step(),
    ):
        pass
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert "no train function" in facts["absent"]["run_time.compile"]
    assert "no model was given" in facts["absent"]["non_finite_weights"]
    times = run_time(load(tmp_path))
    assert times is not None
    assert times.part("compile") is None
