"""run.json is written beside the training: a disk that is slow with it costs no step, and where recording ends
early nothing says that the training did."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.cli import main
from mpprof.record import StepRecorder
from mpprof.record.recorder import MOST_FITS_HELD
from mpprof.store import read_records, writing
from tests.record import hangs

STEPS = 1_200


def loop(logdir: Path, steps: int, at: Callable[[int], object] = id, **more: Any) -> StepRecorder:
    with StepRecorder(
        logdir, verbose=0, announce=None, profile_steps=None, hardware=False, batch_size=8, **more
    ) as recorder:
        for step in range(steps):
            at(step)
            with recorder.step():
                pass
    return recorder


def until(happens: Callable[[], bool]) -> None:
    """Wait for what the writer's thread does; 20 s are longer than any machine takes."""
    for _ in range(6_000):
        if happens():
            return
        threading.Event().wait(0.003)
    raise AssertionError("it has not happened")


def kinds(root: Path) -> list[str | None]:
    lines = (root / "mpprof" / "steps.jsonl").read_text().splitlines()
    return [json.loads(line).get("kind") for line in lines]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace", "open_above_standard"])
def test_a_disk_that_is_slow_with_run_json_costs_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, call: str
) -> None:
    """The first write of run.json hangs from before the first step to after the last but one hundred."""
    answers, asked = threading.Event(), list[threading.Thread]()
    holder: Any = os if call.startswith("os.") else writing
    name = call.removeprefix("os.")
    works = getattr(holder, name)

    def slow(*arguments: Any, **more: Any) -> Any:
        mine = threading.current_thread()
        if mine.name == "mpprof run.json" and mine not in asked:
            asked.append(mine)
            hangs.hanging()
            answers.wait(hangs.GIVEN_UP_S)
        return works(*arguments, **more)

    def passes(step: int) -> None:
        if step == STEPS - 100:
            answers.set()
            hangs.join_by_the_clock(asked[0])

    monkeypatch.setattr(holder, name, slow)
    with caplog.at_level(logging.WARNING):
        loop(tmp_path, STEPS, passes)
    assert len(asked) == 1
    assert not caplog.records
    read = read_records(tmp_path)
    assert (len(read.steps), read.finished, read.warnings) == (STEPS, True, ())
    assert "recording" not in read.facts.absent


def test_run_json_that_cannot_be_written_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each second by the thread that writes steps, without any change of facts."""
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 0.001)
    fsync, failed = os.fsync, [0]

    def full(file: int) -> None:
        if failed[0] < 3:
            failed[0] += 1
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    def waits(step: int) -> None:
        if step == 50:
            until((tmp_path / "mpprof" / "run.json").exists)

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING):
        loop(tmp_path, 100, waits)
    assert failed == [3]
    assert not caplog.records
    read = read_records(tmp_path)
    assert read.facts.fits[0].batch_size == 8
    assert read.finished


def test_run_json_that_is_never_written_costs_no_step_and_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(file: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING):
        recorder = loop(tmp_path, 100)
    (said,) = caplog.records
    assert "steps are recorded, but" in said.getMessage()
    assert "run.json cannot be written" in said.getMessage()
    assert recorder.root == tmp_path
    read = read_records(tmp_path)
    assert (len(read.steps), read.facts, read.finished) == (100, None, True)


def test_where_the_step_log_fails_recording_has_ended_and_the_training_has_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The disk fails for good within a line, and takes one line more when it has room again."""
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 0.001)
    full, write, halves = threading.Event(), os.write, [0]
    log = tmp_path / "mpprof" / "steps.jsonl"

    def half(file: int, data: Any) -> int:
        if not full.is_set() or b'"kind":"step"' not in bytes(data):
            return write(file, data)
        if halves[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        halves[0] = 1
        return write(file, bytes(data)[:40])

    def fails(step: int) -> None:
        if step == 60:
            until(lambda: log.read_bytes().count(b'"kind":"step"') >= 59)
            full.set()
        if step == 80:
            until(lambda: b"recording_end" in log.read_bytes())

    monkeypatch.setattr(os, "write", half)
    loop(tmp_path, 100, fails)
    assert "fit_end" not in kinds_of_whole_lines(log)
    last = json.loads(log.read_text().splitlines()[-1])
    assert (last["kind"], last["step"]) == ("recording_end", 59)
    assert last["reason"] == "ended: steps.jsonl cannot be written (No space left on device)"
    assert last["t_ns"] > 0
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert facts["absent"]["recording"] == last["reason"]
    says_it(tmp_path, capsys)
    for gone in ("run.json", "steps.jsonl"):  # either of them alone says it, too
        file = tmp_path / "mpprof" / gone
        before = file.read_text()
        if gone == "run.json":
            del facts["absent"]["recording"]
            file.write_text(json.dumps(facts))
        else:
            file.write_text("".join(before.splitlines(keepends=True)[:-1]))
        says_it(tmp_path, capsys)
        file.write_text(before)


def kinds_of_whole_lines(log: Path) -> list[str]:
    return [text.partition('"kind":"')[2].partition('"')[0] for text in log.read_text().splitlines()]


def says_it(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    read = read_records(root)
    assert (len(read.steps), read.finished) == (59, False)
    assert main(["ls", str(root), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["state"] == "unrecorded"
    assert main(["report", str(root), "-v"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "recording ended after step 59, before the training did" in text


def test_a_failure_of_our_own_ends_the_recording_in_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpprof.record.calls import CallLog

    begin, calls = CallLog.begin, [0]

    def broken(self: CallLog, *arguments: Any) -> Any:
        calls[0] += 1
        if calls[0] == 7:
            raise RuntimeError("broken on purpose")
        return begin(self, *arguments)

    monkeypatch.setattr(CallLog, "begin", broken)
    loop(tmp_path, 300)
    assert kinds(tmp_path)[-1] == "recording_end"
    assert "fit_end" not in kinds(tmp_path)
    read = read_records(tmp_path)
    assert not read.finished
    assert "broken on purpose" in read.facts.absent["recording"]


def test_samples_that_cannot_be_written_cost_no_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 0.001)
    monkeypatch.setattr("mpprof.record.hardware.EVERY_SECONDS", 0.001)
    write = os.write

    def full(file: int, data: Any) -> int:
        if b"rss_bytes" in bytes(data):
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data)

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(
        "mpprof.record.recorder.HardwareSampler.start", lambda self: self._put({"rss_bytes": 1})
    )
    monkeypatch.setattr("mpprof.record.recorder.HardwareSampler.stop", lambda self: None)
    with (
        caplog.at_level(logging.WARNING),
        StepRecorder(tmp_path, verbose=0, announce=None, profile_steps=None) as recorder,
    ):
        for _ in range(100):
            with recorder.step():
                pass
    assert "mpprof no longer records hardware" in caplog.text
    read = read_records(tmp_path)
    assert (len(read.steps), read.finished) == (100, True)
    assert "No space left" in read.facts.absent["hardware"]


def test_an_errors_text_names_neither_the_users_directories_nor_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, logs = tmp_path / "people" / "quillon", tmp_path / "Study of Quinn"
    home.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))

    def fails(self: Any, *arguments: Any) -> Any:
        raise FileNotFoundError(2, f"quillon has no {home}/x", f"{logs}/run/y")

    monkeypatch.setattr("mpprof.record.calls.CallLog.begin", fails)
    loop(logs / "run", 3)
    for name in ("run.json", "steps.jsonl"):
        text = (logs / "run" / "mpprof" / name).read_text()
        assert "<user> has no ~/x: '<logdir>/y'" in text
        assert not any(word in text for word in ("quillon", "Quinn", "people"))


# --- many fits ---------------------------------------------------------------------------------------------


def fits(recorder: StepRecorder, number: int) -> None:
    """So many fits of one run, each of one step, as `fit` calls of one callback are."""
    session = recorder._session
    for _ in range(number):
        session.open(recorder._loop)
        session.begin(0)
        session.end(None)
        session.finish("finished")


def one(logdir: Path) -> StepRecorder:
    return StepRecorder(
        logdir, verbose=0, announce=None, profile_steps=None, hardware=False, backend="none", batch_size=8
    )


def test_a_fit_writes_no_facts_of_the_fits_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    put = writing.DocumentWriter.put

    def counted(self: writing.DocumentWriter, text: str) -> None:
        written.append(len(text))
        put(self, text)

    monkeypatch.setattr(writing.DocumentWriter, "put", counted)
    recorder, each = one(tmp_path), []
    for _ in range(3):
        fits(recorder, 40)
        each.append(sum(written))
        written.clear()
    first, second, third = each
    assert third < 1.05 * second < 2 * first
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    held = [*range(1, MOST_FITS_HELD), 120]  # as a reader of before takes it
    assert [fit["fit"] for fit in facts["fits"]] == held
    read = read_records(tmp_path)
    assert [(fit.fit, fit.first_step, fit.batch_size) for fit in read.facts.fits] == [
        (fit, fit, 8) for fit in range(1, 121)
    ]
    assert read.steps.fit.tolist() == list(range(1, 121))


def test_of_a_run_killed_in_its_fiftieth_fit_all_fits_are_known(tmp_path: Path) -> None:
    recorder, kept = one(tmp_path), tmp_path / "kept"
    fits(recorder, 49)
    recorder._session.open(recorder._loop)
    recorder._recorder._run_file.settle(hangs.GIVEN_UP_S)
    shutil.copytree(tmp_path / "mpprof", kept / "mpprof")  # what a kill would leave
    recorder._session.finish("finished")
    read = read_records(kept)
    assert [fit.fit for fit in read.facts.fits] == list(range(1, 51))


def test_facts_that_did_not_change_are_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = one(tmp_path)
    fits(recorder, 1)
    written: list[str] = []
    monkeypatch.setattr(writing.DocumentWriter, "put", lambda self, text: written.append(text))
    recorder._recorder.save()
    assert written == []
    recorder._recorder.facts["host"] = "another"
    recorder._recorder.save()
    assert len(written) == 1
    recorder._recorder.close()


def test_a_fit_that_tells_nothing_new_reads_no_steps_of_the_fits_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last line's step time: a thousand fits read each step a thousand times."""
    from mpprof.record import result
    from tests.record.training import BATCH, callback, data, model

    read: list[str] = []

    def times(path: Path) -> tuple[float, float]:
        read.append(path.name)
        return 1.0, 1.0

    monkeypatch.setattr(result, "named", lambda name: times)
    made, (x, y), recorded = model(), data(2), callback(tmp_path, verbose=1)
    for _ in range(40):
        made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    assert 10 < len(read) < 30  # each tenth more of steps


def fits_of_a_callback(recorded: Any, made: Any) -> Callable[[int], None]:
    """Returns what runs so many fits: the hooks as `fit` calls them, of one step each, with a real optimizer to be
    read, and no training in between."""
    import keras

    made.optimizer.build(made.trainable_variables)

    def run(number: int) -> None:
        for _ in range(number):
            hooks = keras.callbacks.CallbackList([recorded], model=made, epochs=1, steps=1, verbose=0)
            hooks.on_train_begin()
            hooks.on_epoch_begin(0)
            hooks.on_train_batch_begin(0)
            made.optimizer.inner_optimizer._iterations.assign_add(1)
            hooks.on_train_batch_end(0, {"loss": 0.25})
            hooks.on_epoch_end(0, {"loss": 0.25})
            hooks.on_train_end()

    return run


@pytest.mark.framework
@pytest.mark.usefixtures("keras")
def test_the_callback_holds_no_more_facts_after_many_fits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is in memory and in each text of run.json, after 20 fits and after 60; each fit trains a model of
    another name."""
    from tests.record.training import callback, model

    written: list[int] = []
    put = writing.DocumentWriter.put

    def counted(self: writing.DocumentWriter, text: str) -> None:
        written.append(len(text))
        put(self, text)

    monkeypatch.setattr(writing.DocumentWriter, "put", counted)
    made, recorded = model(kind="linear"), callback(tmp_path)
    run, sizes = fits_of_a_callback(recorded, made), []
    for number in range(60):
        made.name = f"model_{number:02}"
        run(1)
        sizes.append((len(written), max(written)))
        written.clear()
    assert sizes[59][0] == sizes[19][0]
    assert sizes[59][1] < 1.02 * sizes[19][1]
    assert len(recorded._session.recorder.facts["fits"]) == MOST_FITS_HELD
    read = read_records(tmp_path)
    assert [fit.fit for fit in read.facts.fits] == list(range(1, 61))
    assert read.facts.absent["model.earlier"].endswith("not " + ", ".join(
        f"model_{number:02}" for number in range(8)
    ) + " and 51 more")  # fmt: skip


@pytest.mark.full
@pytest.mark.framework
@pytest.mark.usefixtures("keras")
def test_the_ten_thousandth_fit_of_a_callback_costs_what_the_tenth_does(tmp_path: Path) -> None:
    """In processor time of the training's thread: the disk is the machine's. By turns with the tenth fits of other
    callbacks: whatever else the machine does makes both dearer."""
    from tests.record.training import callback, model

    hangs.by_the_clock()
    late, tenths, lasts = fits_of_a_callback(callback(tmp_path / "late"), model(kind="linear")), [], []
    late(10_000 - 3 * 11)
    for number in range(3):
        early = fits_of_a_callback(callback(tmp_path / f"early{number}"), model(kind="linear"))
        early(4)
        for _ in range(11):  # the fifth to the fifteenth
            tenths.append(thread_time_of(early))
            lasts.append(thread_time_of(late))
    tenth, last = statistics.median(tenths), statistics.median(lasts)
    print(f"the tenth {tenth * 1e3:.2f} ms, the ten thousandth {last * 1e3:.2f} ms")
    assert last < 1.2 * tenth


def thread_time_of(run: Callable[[int], None]) -> float:
    began = time.thread_time()
    run(1)
    return time.thread_time() - began
