"""Whatever fails in the instrument, training ends as it would have: all of its steps, the same weights, one
warning, and what was recorded before is readable.

One model is trained again and again in this process, set back to where it began each time. The first tables
break parts on purpose (an error, a hang, nonsense instead of an answer); the tests below them are real. Each says
of how many steps a line must be left: exactly so many, or from so many to so many.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import functools
import hashlib
import json
import logging
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.store import find_runs, read_records, writing
from tests.paths import ROOT
from tests.record import hangs
from tests.record.on_tensorflow import keras, tf
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework

STEPS = 40
WINDOW = (20, 24)
MOMENT = 15
"""Faults in the midst of training come before this batch, counted from 0: so many steps have run. The line of the
last of them is handed over as the batch begins."""

Kept = int | tuple[int, int]
World = dict[int, Callable[[], object]]


class Patient:
    """One compiled model that can be set back."""

    def __init__(self) -> None:
        self.x, self.y = data(STEPS, bad_steps=(3, 36))
        self.model = model()
        self.model.optimizer.build(self.model.trainable_variables)
        self.variables = [*self.model.variables, *self.model.optimizer.variables]
        self.start = [variable.numpy() for variable in self.variables]
        self.healthy = self.train()

    def train(self, *callbacks: Any, at: World | None = None) -> str:
        """Trains from the start, all steps; `at` says what happens to the world before which batch. The weights'
        digest."""
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)
        moments, ended = dict(at or {}), [0]

        class Happens(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch in moments:
                    moments.pop(batch)()

            def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
                ended[0] += 1

        self.model.fit(
            self.x, self.y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[Happens(), *callbacks]
        )
        assert not moments
        assert ended == [STEPS]
        values = b"".join(variable.numpy().tobytes() for variable in self.variables)
        return hashlib.sha256(values).hexdigest()


@pytest.fixture(scope="module")
def patient() -> Patient:
    return Patient()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flushes and samples come often enough for a short training."""
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr("mpprof.record.profile.window.LEAST_FREE_BYTES", 1)
    monkeypatch.setattr("mpprof.record.hardware.EVERY_SECONDS", 0.005)


# --- broken on purpose -------------------------------------------------------------------------------------


def error(kind: Callable[[], BaseException]) -> Callable[..., Any]:
    def broken(*arguments: Any, **more: Any) -> Any:
        raise kind()

    return broken


def answers(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **more: value


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def broken() -> RuntimeError:
    return RuntimeError("broken on purpose")


PROBE = "backends.tensorflow.TensorFlowProbe."
KINDS: dict[str, Callable[..., Any]] = {
    "error": error(broken),
    "full": error(full),
    "denied": error(lambda: PermissionError(13, "Permission denied")),
    "memory": error(lambda: MemoryError()),
    "exit": error(lambda: SystemExit(3)),
    "recursion": error(lambda: RecursionError("maximum recursion depth exceeded")),
    "hang": hangs.hang,
    "none": answers(None),
    "nonsense": answers("nonsense"),
}
GPU = PROBE + "memory", PROBE + "reset_memory_peak"  # asked again only where there seems to be one

# (what breaks, how, after how many calls, of how many steps a line is left, the field of `absent` that says so)
BROKEN: tuple[tuple[str, str, int, Kept, str | None], ...] = (
    (PROBE + "__init__", "error", 0, 0, None),
    (PROBE + "framework", "error", 0, STEPS, "framework"),
    (PROBE + "framework", "exit", 0, STEPS, "framework"),
    (PROBE + "framework", "nonsense", 0, STEPS, "framework"),
    (PROBE + "settings", "error", 0, STEPS, "settings"),
    (PROBE + "settings", "none", 0, STEPS, "settings"),
    (PROBE + "settings", "memory", 0, STEPS, "settings"),
    (PROBE + "devices", "error", 0, STEPS, "devices"),
    (PROBE + "devices", "hang", 0, STEPS, "devices"),
    (PROBE + "devices", "none", 0, STEPS, "devices"),
    (PROBE + "worker", "error", 0, STEPS, "worker"),
    (PROBE + "distribution", "error", 0, STEPS, "distribution"),
    (PROBE + "memory", "error", 0, STEPS, "memory"),
    (PROBE + "memory", "error", 12, STEPS, "memory"),
    (PROBE + "memory", "nonsense", 0, STEPS, "memory"),
    (PROBE + "counters", "error", 0, STEPS, "skipped"),
    (PROBE + "counters", "error", 1, STEPS, "skipped"),
    (PROBE + "counters", "nonsense", 0, STEPS, "skipped"),
    (PROBE + "marker", "error", 0, STEPS, "markers"),
    (PROBE + "marker", "error", 2, STEPS, "markers"),
    (PROBE + "marker", "none", 0, STEPS, "markers"),
    (PROBE + "start_trace", "error", 0, STEPS, None),
    (PROBE + "start_trace", "denied", 0, STEPS, None),
    (PROBE + "start_trace", "exit", 0, STEPS, None),
    (PROBE + "stop_trace", "error", 0, STEPS, None),
    (PROBE + "stop_trace", "memory", 0, STEPS, None),
    (PROBE + "reset_memory_peak", "error", 0, STEPS, "memory"),
    ("backends.tensorflow._reader", "error", 0, STEPS, "skipped"),
    ("reading.SkipCounter.settle", "error", 0, 3, "recording"),  # the first skip
    ("reading.SkipCounter.settle", "error", 1, STEPS, "recording"),  # the second one, found at the end
    ("reading.Schedule.due", "recursion", 15, 16, "recording"),
    ("session.model_facts", "error", 0, STEPS, "model"),
    ("session.model_facts", "recursion", 0, STEPS, "model"),
    ("session.model_facts", "exit", 0, STEPS, "model"),
    ("session.fit_facts", "error", 0, STEPS, "fits"),
    ("session.batch_size_of_running_fit", "error", 0, STEPS, "batch_size"),
    ("facts.machine.cpu", "error", 0, STEPS, "devices"),
    ("facts.machine.cpu", "hang", 0, STEPS, "devices"),
    ("facts.machine.with_nvml", "hang", 0, STEPS, "devices"),
    ("calls.CallLog.begin", "error", 0, 0, "recording"),
    ("calls.CallLog.end", "memory", 30, 30, "recording"),
    ("calls.CallLog.end", "error", 7, 7, "recording"),
    ("calls.CallLog.close_epoch", "error", 0, STEPS, "recording"),
    ("profile.window.Plan.opens", "error", 10, 10, "recording"),
    ("profile.window.Plan.closes", "error", 0, 20, "recording"),
    ("profile.window._require_space", "full", 0, STEPS, None),
    ("profile.window._require_space", "hang", 0, STEPS, None),
    ("profile.window._rss_bytes", "error", 0, STEPS, "profile_windows"),
    ("profile.window._rss_bytes", "hang", 0, STEPS, "profile_windows"),
    ("profile.schedule.profile_of", "error", 0, STEPS, "profile_windows"),
    ("profile.window.Window._move", "full", 0, STEPS, None),
    ("profile.window.Window._move", "hang", 0, STEPS, None),
    ("profile.window.Window.mark", "exit", 0, STEPS, "markers"),
    ("recorder.HardwareSampler.start", "error", 0, STEPS, "hardware"),
    ("hardware._process", "error", 0, STEPS, "hardware"),
    ("hardware._process", "exit", 0, STEPS, "hardware"),
    ("hardware._process", "hang", 0, STEPS, "hardware"),
    ("hardware._gpus", "hang", 0, STEPS, "hardware"),
    ("hardware._gpus", "nonsense", 0, STEPS, "hardware"),
    ("recorder.claim", "denied", 0, 0, None),
    ("recorder.claim", "hang", 0, 0, None),
    ("recorder.DocumentWriter.put", "error", 0, STEPS, None),
    ("recorder.LineWriter.__init__", "error", 0, 0, None),
    ("recorder.LineWriter.__init__", "hang", 0, 0, None),
    ("recorder.LineWriter.__init__", "hang", 1, STEPS, "hardware"),
    ("recorder.LineWriter.put", "error", 10, (5, 9), "recording"),  # the others are a fit and sums
    ("recorder.platform.node", "error", 0, 0, None),
    ("callback.probe_for", "error", 0, 0, None),
)  # fmt: skip

# (what breaks, how, before which batch, or None: from the start, of how many steps a line is left). Where run.json
# alone cannot be written, of all.
STORE_BROKEN: tuple[tuple[str, str, int | None, int], ...] = (
    ("writing.LineWriter._write", "full", None, 0),
    ("writing.LineWriter._write", "full", 0, 0),
    ("writing.LineWriter._write", "full", MOMENT, MOMENT - 1),
    ("writing.LineWriter._write", "exit", MOMENT, MOMENT - 1),
    ("writing.LineWriter._write", "hang", MOMENT, MOMENT - 1),
    ("writing.formats.line", "memory", MOMENT, MOMENT - 1),
    ("writing.formats.line", "hang", MOMENT, MOMENT - 1),
    ("writing.formats.document", "error", MOMENT, STEPS),
    ("writing.os.fsync", "full", None, STEPS),
    ("writing.os.fsync", "hang", None, STEPS),
    ("writing.os.fsync", "full", MOMENT, STEPS),
    ("writing.os.fsync", "hang", MOMENT, STEPS),
    ("writing.os.replace", "hang", MOMENT, STEPS),
    ("writing.os.replace", "denied", None, STEPS),
    ("writing.os.replace", "denied", MOMENT, STEPS),
)  # fmt: skip


def put_in(
    monkeypatch: pytest.MonkeyPatch, place: str, kind: str, breaks: Callable[[int], bool]
) -> list[int]:
    """Replaces what lies at `place` by what works until `breaks` says of a call, counted from 1, that it breaks.
    The calls that have met the fault."""
    module, names = place.split(".")[:-1], place
    target = None
    for cut in range(len(module) + 1, 0, -1):
        with contextlib.suppress(ImportError):
            parts = place.split(".")
            target = __import__(".".join(parts[:cut]), fromlist=["x"])
            names = parts[cut:]
            break
    holder: Any = target
    for name in names[:-1]:
        holder = getattr(holder, name)
    works, calls = getattr(holder, names[-1]), [0]
    met: list[int] = []

    def breaking(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        if not breaks(calls[0]):
            return works(*arguments, **more)
        met.append(calls[0])
        return KINDS[kind](*arguments, **more)

    monkeypatch.setattr(holder, names[-1], breaking)
    return met


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """All but the alarm: the loss of this training is not finite on purpose."""
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in said if "MP206" not in text]


def check(caplog: pytest.LogCaptureFixture, root: Path, kept: Kept, warned: Kept = 1) -> dict[str, str]:
    """Of a run that has met its fault: the warnings, and that its records can be read. Its `absent`.

    Nothing at all may be left only where recording could not begin, and that is said."""
    said = warnings_of(caplog)
    fewest, most = warned if isinstance(warned, tuple) else (warned, warned)
    assert fewest <= len(said) <= most, said
    least, most = kept if isinstance(kept, tuple) else (kept, kept)
    if least == 0:
        assert re.match("mpprof (records nothing|stops recording)", said[0])
    if not (root.is_dir() and root in find_runs(root)):
        assert least == 0
        return {}
    read = read_records(root)
    steps = [] if read.steps is None else read.steps.step.tolist()
    assert steps == list(range(1, len(steps) + 1))
    assert least <= len(steps) <= most
    assert read.facts is not None or least == 0 or "run.json cannot be written" in "".join(said)
    absent = {} if read.facts is None else read.facts.absent
    if absent.get("recording", "").startswith("ended") and read.steps is not None:
        assert not read.finished  # the training did not end with its record
    return absent


def written(root: Path, steps: int) -> None:
    """Waits until so many steps are on disk, which a thread of the recorder's sees to."""
    deadline = time.monotonic() + 30
    while (root / "mpprof" / "steps.jsonl").read_bytes().count(b'"kind":"step"') < steps:
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)


def midst(root: Path, fault: Callable[[], object]) -> World:
    """Something happens in the midst of training, when all that has been handed over is on disk."""

    def happens() -> None:
        written(root, MOMENT - 1)
        fault()

    return {MOMENT: happens}


Survives = Callable[..., dict[str, str]]


@pytest.fixture
def survives(patient: Patient, caplog: pytest.LogCaptureFixture) -> Survives:
    """Trains with a callback while something happens to the world: the weights are those of a training without
    either. What is left under `root` is checked by `check`, whose answer it returns."""

    def survive(recorded: Any, root: Path, kept: Kept, *, at: World | None = None, warned: Kept = 1) -> Any:
        assert patient.train(recorded, at=at) == patient.healthy
        return check(caplog, root, kept, warned)

    return survive


BROKEN_BY_ERROR = {place for place, kind, *_ in BROKEN if kind == "error"}
"""There another kind of error, which goes the same way, is tried in `make full`."""


@pytest.mark.parametrize(
    ("place", "kind", "after", "kept", "field"),
    [
        pytest.param(
            *each,
            marks=[pytest.mark.full]
            * (each[0] in BROKEN_BY_ERROR and each[1] in ("denied", "memory", "recursion")),
        )
        for each in BROKEN
    ],
)
def test_a_broken_part_stops_no_training(
    patient: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    kind: str,
    after: int,
    kept: Kept,
    field: str | None,
) -> None:
    recorded = callback(tmp_path, profile_steps=WINDOW, hardware=not place.endswith("LineWriter.put"))
    with monkeypatch.context() as broken_world:
        for asked, told in zip(GPU, ([{"device": "GPU:0", "peak_bytes": 2}], None), strict=True):
            if place in GPU:
                broken_world.setattr(f"mpprof.record.{asked}", answers(told))
        met = put_in(broken_world, f"mpprof.record.{place}", kind, lambda call: call > after)
        assert patient.train(recorded) == patient.healthy
        hangs.RELEASED.set()
    assert met
    if place.endswith("stop_trace"):
        tf.profiler.experimental.stop(save=False)
    with pytest.raises(tf.errors.UnavailableError):  # nothing else has left it running
        tf.profiler.experimental.stop(save=False)
    absent = check(caplog, tmp_path, kept)
    if field is not None:
        assert "failed" in absent[field]
        assert kind != "error" or "broken on purpose" in absent[field]


def test_a_window_whose_size_cannot_be_told_closes(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as broken_world:
        met = put_in(broken_world, "mpprof.record.profile.window._rss_bytes", "hang", lambda call: call > 1)
        assert patient.train(callback(tmp_path, profile_steps=WINDOW)) == patient.healthy
        hangs.RELEASED.set()
    assert met
    check(caplog, tmp_path, STEPS, warned=0)  # nothing is lost but the steps that the trace does not hold
    facts = read_records(tmp_path).facts
    assert [(w.first_step, w.last_step, w.status) for w in facts.profile_windows] == [(20, 20, "done")]


@pytest.mark.parametrize(("place", "kind", "moment", "kept"), STORE_BROKEN)
def test_a_store_that_breaks_stops_no_training(
    patient: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    kind: str,
    moment: int | None,
    kept: Kept,
) -> None:
    broken = threading.Event()

    def break_it() -> None:
        written(tmp_path, max(0, (moment or 0) - 1))
        broken.set()

    at: World = {} if moment is None else {moment: break_it}
    if moment is None:
        broken.set()
    with monkeypatch.context() as broken_world:
        met = put_in(broken_world, f"mpprof.store.{place}", kind, lambda call: broken.is_set())
        assert patient.train(callback(tmp_path, profile_steps=WINDOW), at=at) == patient.healthy
        hangs.RELEASED.set()
    assert met
    check(caplog, tmp_path, kept, warned=(1, 2))  # of the window's trace, too


@pytest.mark.parametrize("first", [1, 2])  # the claim of the directory; the step log
def test_a_file_that_cannot_be_closed_has_all_lines(
    patient: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    first: int,
) -> None:
    with monkeypatch.context() as broken_world:
        met = put_in(broken_world, "mpprof.store.writing.os.close", "full", lambda call: call >= first)
        assert patient.train(callback(tmp_path)) == patient.healthy
    assert met
    check(caplog, tmp_path, STEPS, warned=0)


def test_a_broken_verdict_a_closed_stdout_and_a_broken_log_stop_no_training(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k, announce in enumerate((KINDS["hang"], KINDS["exit"], KINDS["memory"])):
        recorded = callback(tmp_path / str(k), verbose=1, announce=announce)
        assert patient.train(recorded) == patient.healthy
    with monkeypatch.context() as world:
        world.setattr("mpprof.api.auditing.announce", KINDS["hang"])
        assert patient.train(callback(tmp_path / "audit", verbose=1, audit=True)) == patient.healthy
    hangs.RELEASED.set()

    class Closed:
        def write(self, text: str) -> int:
            raise BrokenPipeError(32, "Broken pipe")

        def flush(self) -> None:
            raise BrokenPipeError(32, "Broken pipe")

    with monkeypatch.context() as world:
        world.setattr("sys.stdout", Closed())
        assert patient.train(callback(tmp_path / "closed", verbose=1)) == patient.healthy
    with monkeypatch.context() as world:
        world.setattr("mpprof.record.recorder.log.warning", KINDS["error"])
        world.setattr("mpprof.record.calls.CallLog.end", KINDS["error"])
        assert patient.train(callback(tmp_path / "mute")) == patient.healthy


# --- real ones ---------------------------------------------------------------------------------------------

REAL: list[str] = []
UNABLE: list[str] = []


def real(test: Callable[..., None]) -> Callable[..., None]:
    """Nothing of ours is replaced: the world itself is at fault. Counted once, whatever its parameters, and not
    where this machine cannot have it."""
    REAL.append(test.__name__)

    @functools.wraps(test)
    def tried(*arguments: Any, **more: Any) -> None:
        try:
            test(*arguments, **more)
        except pytest.skip.Exception:
            UNABLE.append(test.__name__)
            raise

    return tried


def done(*command: object) -> None:
    made = subprocess.run([str(part) for part in command], capture_output=True, check=False)
    assert made.returncode == 0, made.stderr


@contextlib.contextmanager
def small_disk(folder: Path, *how: object) -> Iterator[Path]:
    """A small file system of its own; needs the right to mount."""
    folder.mkdir()
    made = subprocess.run(["mount", *map(str, how), str(folder)], capture_output=True, check=False)
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def in_memory(options: str) -> tuple[str, ...]:
    return ("-t", "tmpfs", "-o", options, "none")


@real
def test_a_disk_that_is_full_from_the_start(survives: Survives, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", *in_memory("size=64k")) as disk:
        with contextlib.suppress(OSError):
            (disk / "fill").write_bytes(b"x" * (1 << 20))
        survives(callback(disk / "run", hardware=True), disk / "run", 0)


@real
def test_a_disk_that_fills_up_while_training(survives: Survives, tmp_path: Path) -> None:
    def fill() -> None:
        with contextlib.suppress(OSError):
            (tmp_path / "disk" / "fill").write_bytes(b"x" * (1 << 20))

    with small_disk(tmp_path / "disk", *in_memory("size=64k")) as disk:
        kept = MOMENT - 1, STEPS - 1  # its last page may take some lines more
        survives(callback(disk / "run"), disk / "run", kept, at=midst(disk / "run", fill))


@real
def test_a_disk_without_room_for_another_file(survives: Survives, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", *in_memory("size=1m,nr_inodes=4")) as disk:
        survives(callback(disk / "run", hardware=True), disk / "run", 0)


@real
def test_a_disk_that_is_full_when_the_trace_is_written(survives: Survives, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", *in_memory("size=36k")) as disk:
        # Lines that meet the disk while the profiler fills it are lost; those before the window are not.
        at = {WINDOW[0] - 1: lambda: written(disk / "run", WINDOW[0] - 2)}
        survives(callback(disk / "run", profile_steps=WINDOW), disk / "run", (WINDOW[0] - 2, STEPS), at=at)


@real
def test_a_disk_that_errs_and_becomes_read_only(survives: Survives, tmp_path: Path) -> None:
    """As the system does with a file system that is damaged, also where a file is open for writing."""
    with (tmp_path / "image").open("wb") as image:
        image.truncate(4 << 20)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("mkfs.ext4 is not installed")
    done("mkfs.ext4", "-q", "-F", tmp_path / "image")
    with small_disk(tmp_path / "disk", "-o", "loop", tmp_path / "image") as disk:
        err = functools.partial(done, "mount", "-o", "remount,abort", disk)
        survives(callback(disk / "run"), disk / "run", MOMENT - 1, at=midst(disk / "run", err))


@real
def test_a_disk_that_is_read_only_when_training_goes_on(
    survives: Survives, patient: Patient, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "disk", *in_memory("size=1m")) as disk:
        recorded = callback(disk / "run", hardware=True)
        assert patient.train(recorded) == patient.healthy
        done("mount", "-o", "remount,ro", disk)
        survives(recorded, disk / "run", STEPS)


@real
def test_a_mount_that_is_taken_away(survives: Survives, tmp_path: Path) -> None:
    mounted = small_disk(tmp_path / "disk", *in_memory("size=1m"))
    with mounted as disk, small_disk(tmp_path / "elsewhere", "--bind", disk) as elsewhere:
        away = functools.partial(done, "umount", "-l", disk)
        survives(callback(disk / "run"), elsewhere / "run", MOMENT - 1, at=midst(disk / "run", away))


def kept_elsewhere(root: Path, elsewhere: Path) -> None:
    """What is on disk now stays readable there, and so does what is written into it later."""
    (elsewhere / "mpprof").mkdir(parents=True)
    for name in ("run.json", "steps.jsonl"):
        os.link(root / "mpprof" / name, elsewhere / "mpprof" / name)


@real
def test_a_directory_that_is_removed(survives: Survives, tmp_path: Path) -> None:
    logdir = tmp_path / "run"

    def remove() -> None:
        kept_elsewhere(logdir, tmp_path / "kept")
        shutil.rmtree(logdir)

    recorded = callback(logdir, hardware=True, profile_steps=WINDOW)
    survives(recorded, tmp_path / "kept", MOMENT - 1, at=midst(logdir, remove), warned=(1, 2))
    assert not logdir.exists()


@real
def test_a_step_log_that_is_removed(survives: Survives, tmp_path: Path) -> None:
    logdir = tmp_path / "run"

    def remove() -> None:
        kept_elsewhere(logdir, tmp_path / "kept")
        (logdir / "mpprof" / "steps.jsonl").unlink()

    survives(callback(logdir), tmp_path / "kept", MOMENT - 1, at=midst(logdir, remove))


@real
def test_a_directory_that_is_exchanged_for_a_file(survives: Survives, tmp_path: Path) -> None:
    logdir = tmp_path / "run"

    def exchange() -> None:
        logdir.rename(tmp_path / "elsewhere")
        logdir.write_text("in the way")

    survives(callback(logdir), tmp_path / "elsewhere", MOMENT - 1, at=midst(logdir, exchange))


@real
def test_a_file_stands_where_the_directory_should_be(survives: Survives, tmp_path: Path) -> None:
    (tmp_path / "run").write_text("in the way")
    survives(callback(tmp_path / "run"), tmp_path / "run", 0)


@real
@pytest.mark.parametrize("name", ["x" * 300, "with\0null", "loop/run"])
def test_a_path_that_cannot_be(survives: Survives, tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    survives(callback(tmp_path / name), tmp_path / "none", 0)


def let_go(pipe: Path) -> None:
    """Who waits for somebody to read this pipe waits no longer."""
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))


@real
def test_a_pipe_that_nobody_reads_blocks_the_first_file(survives: Survives, tmp_path: Path) -> None:
    pipe = tmp_path / "mpprof" / f".run.json.{os.getpid()}"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    try:
        survives(callback(tmp_path, hardware=True), tmp_path, STEPS)  # without run.json
    finally:
        let_go(pipe)


@real
def test_a_pipe_that_nobody_reads_blocks_a_later_file(survives: Survives, tmp_path: Path) -> None:
    pipe = tmp_path / "mpprof" / f".run.json.{os.getpid()}"
    recorded = callback(tmp_path, profile_steps=WINDOW)
    try:
        at = midst(tmp_path, lambda: os.mkfifo(pipe))
        survives(recorded, tmp_path, STEPS, at=at)  # as the window opens, run.json is written
    finally:
        let_go(pipe)


@real
@pytest.mark.parametrize("name", ["mpprof/hardware.jsonl", "plugins/profile"])
def test_a_pipe_stands_where_a_file_or_a_directory_should_be(
    survives: Survives, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).parent.mkdir()
    os.mkfifo(tmp_path / name)
    survives(callback(tmp_path, hardware=True, profile_steps=WINDOW), tmp_path, STEPS)


NOBODY = 65534


@pytest.fixture
def bound(patient: Patient, tmp_path: Path) -> Iterator[Path]:
    """A directory of a user whom permissions bind, and who this process is then: they do not bind root."""
    assert patient.train(callback(tmp_path / "first")) == patient.healthy  # that user may not read modules
    with tempfile.TemporaryDirectory() as folder:
        if os.geteuid() != 0:
            yield Path(folder)
            return
        os.chown(folder, NOBODY, NOBODY)
        os.seteuid(NOBODY)
        try:
            yield Path(folder)
        finally:
            os.seteuid(0)


@real
def test_a_log_directory_of_somebody_else(
    patient: Patient, bound: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (bound / "theirs").mkdir(mode=0o500)
    assert patient.train(callback(bound / "theirs" / "run")) == patient.healthy
    assert "Permission denied" in caplog.text
    check(caplog, bound / "theirs" / "run", 0)


@real
def test_a_directory_that_is_closed_to_us(
    patient: Patient, bound: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = bound / "run" / "mpprof"
    try:
        at = midst(bound / "run", lambda: folder.chmod(0))
        assert patient.train(callback(bound / "run"), at=at) == patient.healthy
    finally:
        folder.chmod(0o700)
    check(caplog, bound / "run", MOMENT - 1)


@real
def test_a_directory_in_which_no_file_may_be_made_any_more(
    patient: Patient, bound: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = bound / "run" / "mpprof"
    try:
        at = midst(bound / "run", lambda: folder.chmod(0o500))
        assert patient.train(callback(bound / "run", profile_steps=WINDOW), at=at) == patient.healthy
    finally:
        folder.chmod(0o700)
    assert "Permission denied" in caplog.text
    check(caplog, bound / "run", STEPS, warned=2)  # no trace, and run.json as it was


@real
def test_no_file_may_be_opened(patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    recorded = callback(tmp_path, hardware=True)
    at: World = {10: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))}
    try:
        digest = patient.train(recorded, at=at)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert digest == patient.healthy
    check(caplog, tmp_path, STEPS, warned=(1, 2))  # run.json as it was, perhaps no samples; the log is open


@real
def test_files_may_not_grow(patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        digest = patient.train(callback(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert digest == patient.healthy
    log = (tmp_path / "mpprof" / "steps.jsonl").read_bytes()
    assert len(log) == 8192
    check(caplog, tmp_path, log[: log.rindex(b"\n")].count(b'"kind":"step"'))
    check(caplog, tmp_path, (25, STEPS - 1))


@real
def test_a_fork_in_the_middle_of_training_leaves_the_run_to_the_parent(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded = callback(tmp_path, hardware=True)
    seen: list[int] = []

    def fork() -> None:
        child = os.fork()
        if child == 0:
            clean = not recorded._session.recorder.on
            recorded.on_train_batch_end(0, {})
            recorded.on_train_end()
            os._exit(0 if clean else 1)
        seen.append(os.waitpid(child, 0)[1])

    assert patient.train(recorded, at={10: fork}) == patient.healthy
    assert seen == [0]
    check(caplog, tmp_path, STEPS, warned=0)


def test_a_copy_taken_in_the_middle_is_another_run(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded, copies = callback(tmp_path), []
    assert patient.train(recorded, at={10: lambda: copies.append(copy.deepcopy(recorded))}) == patient.healthy
    assert patient.train(copies[0]) == patient.healthy
    assert len(find_runs(tmp_path)) == 2
    for root in (tmp_path, copies[0].root):
        check(caplog, root, STEPS, warned=0)


def test_a_stopped_process_goes_on_where_it_was(survives: Survives, tmp_path: Path) -> None:
    def stop() -> None:
        stopped = f"until grep -q '^State:.T' /proc/{os.getpid()}/status; do :; done"
        helper = subprocess.Popen(["sh", "-c", f"{stopped}; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
        helper.wait()

    survives(callback(tmp_path, hardware=True), tmp_path, STEPS, at={10: stop}, warned=0)


def test_no_thread_can_be_started(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as world:
        world.setattr(threading.Thread, "start", KINDS["error"])
        assert patient.train(callback(tmp_path, hardware=True, profile_steps=WINDOW)) == patient.healthy
    check(caplog, tmp_path, 0)


class Hungry(keras.layers.Layer):  # type: ignore[misc]
    """Makes an array of as many numbers as its variable says, in each step. NumPy's: TensorFlow's own allocator
    of host memory waits ten seconds before it gives up."""

    def build(self, shape: Any) -> None:
        self.numbers = tf.Variable(1, dtype=tf.int64, trainable=False)

    def call(self, x: Any) -> Any:
        made = tf.numpy_function(lambda numbers: np.zeros(numbers, "float32")[:1], [self.numbers], tf.float32)
        return x + tf.reduce_sum(made)


@real
@pytest.mark.parametrize("then", ["close", "fit"])
def test_after_a_step_that_ran_out_of_memory_the_allocators_state_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, then: str
) -> None:
    """The step fails for want of memory, really; the allocator's numbers are a GPU's, which is not here."""
    from mpprof.record.backends.tensorflow import TensorFlowProbe

    reads = [0]

    def memory(self: Any) -> Any:
        reads[0] += 1
        return [{"device": "GPU:0", "peak_bytes": 1000 + reads[0], "live_bytes": reads[0]}]

    monkeypatch.setattr(TensorFlowProbe, "memory", memory)
    monkeypatch.setattr(TensorFlowProbe, "reset_memory_peak", lambda self: None)
    hungry = Hungry()
    made = keras.Sequential([keras.Input((8,)), hungry, keras.layers.Dense(4)])
    made.compile("sgd", "mse", jit_compile=False)

    class Eat(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 10:
                hungry.numbers.assign(1 << 46)  # 256 TiB

    recorded = callback(tmp_path, hardware=True)

    def fit(*others: Any) -> None:
        made.fit(tf.ones([160, 8]), tf.ones([160, 4]), batch_size=8, verbose=0, callbacks=[*others, recorded])

    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"Unable to allocate 256\.? TiB"):
        fit(Eat())
    written(tmp_path, 9)
    before = [json.loads(line) for line in (tmp_path / "mpprof" / "steps.jsonl").read_text().splitlines()]
    assert [line["memory"][0]["live_bytes"] for line in before if line.get("kind") == "step"][:9] == [
        *range(2, 11)
    ]
    if then == "close":
        recorded.close()
    else:
        hungry.numbers.assign(1)
        fit()
    lines = [json.loads(line) for line in (tmp_path / "mpprof" / "steps.jsonl").read_text().splitlines()]
    (end,) = (k for k, line in enumerate(lines) if line.get("reason") == "out_of_memory")
    last = [line for line in lines[:end] if line.get("kind") == "step"][-1]
    assert (lines[end]["kind"], last["step"]) == ("fit_end", 10)
    assert lines[end]["memory"][0]["peak_bytes"] > last["memory"][0]["peak_bytes"]
    samples = (tmp_path / "mpprof" / "hardware.jsonl").read_text().splitlines()
    assert json.loads(samples[-1])["rss_bytes"] > 0
    check(caplog, tmp_path, 10 if then == "close" else 30, warned=0)


STARVED = """
import resource, sys
import numpy, psutil
from mpprof.record import StepRecorder
with StepRecorder(sys.argv[1], verbose=0, announce=None, profile_steps=None) as recorder:
    for step in range(50):
        with recorder.step():
            if step == 40:
                used = psutil.Process().memory_info().vms
                resource.setrlimit(resource.RLIMIT_AS, (used + (1 << 20), -1))
                numpy.ones(1 << 26)
"""


@real
def test_a_process_without_memory_leaves_a_whole_record(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ended = subprocess.run(
        [sys.executable, "-c", STARVED, str(tmp_path)],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "MemoryError" in ended.stderr.splitlines()[-1]
    read = read_records(tmp_path)
    assert read.finished
    assert len(read.steps) == 40


@real
def test_a_sink_whose_helper_is_stopped(survives: Survives, tmp_path: Path) -> None:
    reading, writing_end = os.pipe()
    helper = subprocess.Popen(["cat"], stdin=reading, stdout=subprocess.DEVNULL)
    os.close(reading)
    os.kill(helper.pid, signal.SIGSTOP)

    class Piped:
        def scalars(self, step: int, unix_s: float, values: Any) -> None:
            hangs.hanging()
            os.write(writing_end, b"x" * (1 << 20))  # more than a pipe holds: it blocks

        def close(self) -> None: ...

    try:
        absent = survives(callback(tmp_path, sinks=[Piped()]), tmp_path, STEPS)
        assert "within" in absent["sink.Piped"]
    finally:
        helper.kill()
        helper.wait()
        os.close(writing_end)


def test_a_machine_without_nvidias_driver(survives: Survives, tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has NVIDIA's driver")
    recorded = callback(tmp_path, hardware=True)
    assert survives(recorded, tmp_path, STEPS, warned=0)["hardware.gpu"].startswith("NVML: ")


def test_there_are_enough_of_them() -> None:
    on_purpose = {entry[:3] for entry in BROKEN} | {entry[:3] for entry in STORE_BROKEN}
    happened = set(REAL) - set(UNABLE)
    print(f"{len(on_purpose)} faults made on purpose, {len(happened)} kinds of real ones")
    assert len(on_purpose) + len(happened) >= 60
    assert len(happened) >= 10
