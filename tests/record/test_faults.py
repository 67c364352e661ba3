"""Whatever fails in the instrument, training ends as it would have: same weights, at most one warning, and
what was recorded before is readable.

One model is trained again and again in this process, set back to where it began each time. The first table
breaks parts on purpose (an error, a hang, nonsense instead of an answer); the tests below it are real.
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import json
import logging
import os
import resource
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.record import aside as waiting
from mpprof.store import find_runs, read_records, writing
from tests.record.processes import REPOSITORY
from tests.record.training import BATCH, callback, data, model

tf = pytest.importorskip("tensorflow")
keras = pytest.importorskip("keras")
if keras.backend.backend() != "tensorflow":
    pytest.skip("Keras runs on another backend in this process", allow_module_level=True)
pytestmark = pytest.mark.framework

STEPS = 40
WINDOW = (20, 24)


class Patient:
    """One compiled model that can be set back."""

    def __init__(self) -> None:
        self.x, self.y = data(STEPS, bad_steps=(3, 36))
        self.model = model()
        self.model.optimizer.build(self.model.trainable_variables)
        self.variables = [*self.model.variables, *self.model.optimizer.variables]
        self.start = [variable.numpy() for variable in self.variables]
        self.healthy = self.train()

    def train(self, *callbacks: Any, at: dict[int, Callable[[], object]] | None = None) -> str:
        """Trains from the start; `at` says what happens to the world before which batch. The weights' digest."""
        for variable, value in zip(self.variables, self.start, strict=True):
            variable.assign(value)
        moments = dict(at or {})

        class World(keras.callbacks.Callback):  # type: ignore[misc]
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch in moments:
                    moments.pop(batch)()

        self.model.fit(
            self.x, self.y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[World(), *callbacks]
        )
        assert not moments
        values = b"".join(variable.numpy().tobytes() for variable in self.variables)
        return hashlib.sha256(values).hexdigest()


@pytest.fixture(scope="module")
def patient() -> Patient:
    return Patient()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Deadlines and flushes in fractions of a second, so that a hang does not hang the tests. Not where a part
    fails at once: there a busy machine must not make another one late."""
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr("mpprof.record.window.LEAST_FREE_BYTES", 1)
    monkeypatch.setattr("mpprof.record.hardware.EVERY_SECONDS", 0.005)
    case = getattr(request.node, "callspec", None)
    if case is not None and case.params.get("kind", "hang") != "hang":
        return
    monkeypatch.setattr(waiting, "DEADLINE_SECONDS", 1.2)
    monkeypatch.setattr("mpprof.record.window.KEEPING_SECONDS", 0.5)
    monkeypatch.setattr("mpprof.record.announcing.PATIENCE_SECONDS", 0.2)
    monkeypatch.setattr("mpprof.record.recorder.DEADLINE_SECONDS", 0.3)
    monkeypatch.setattr("mpprof.record.foreign.KEEPING_SECONDS", 0.5)
    monkeypatch.setattr(writing.LineWriter.close, "__defaults__", (0.3,))


# --- broken on purpose -------------------------------------------------------------------------------------


def error(kind: Callable[[], BaseException]) -> Callable[..., Any]:
    def broken(*arguments: Any, **more: Any) -> Any:
        raise kind()

    return broken


RELEASED = threading.Event()


def hangs(*arguments: Any, **more: Any) -> Any:
    RELEASED.wait(3)
    raise RuntimeError("released")


def answers(value: Any) -> Callable[..., Any]:
    return lambda *arguments, **more: value


def full() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def broken() -> RuntimeError:
    return RuntimeError("broken on purpose")


PROBE = "probes.tensorflow.TensorFlowProbe."
KINDS: dict[str, Callable[..., Any]] = {
    "error": error(broken),
    "full": error(full),
    "denied": error(lambda: PermissionError(13, "Permission denied")),
    "memory": error(lambda: MemoryError()),
    "exit": error(lambda: SystemExit(3)),
    "recursion": error(lambda: RecursionError("maximum recursion depth exceeded")),
    "hang": hangs,
    "none": answers(None),
    "nonsense": answers("nonsense"),
}
ONE, NONE, SOME = (1, 1), (0, 0), (0, 1)

# (what breaks, how, after how many calls, how many warnings, the field of `absent` that says so)
BROKEN: tuple[tuple[str, str, int, tuple[int, int], str | None], ...] = (
    (PROBE + "__init__", "error", 0, ONE, None),
    (PROBE + "framework", "error", 0, ONE, "framework"),
    (PROBE + "framework", "exit", 0, ONE, "framework"),
    (PROBE + "framework", "nonsense", 0, ONE, "framework"),
    (PROBE + "settings", "error", 0, ONE, "settings"),
    (PROBE + "settings", "none", 0, SOME, None),
    (PROBE + "settings", "memory", 0, ONE, "settings"),
    (PROBE + "devices", "error", 0, ONE, "devices"),
    (PROBE + "devices", "hang", 0, ONE, "devices"),
    (PROBE + "devices", "none", 0, ONE, "devices"),
    (PROBE + "worker", "error", 0, ONE, "worker"),
    (PROBE + "distribution", "error", 0, ONE, "distribution"),
    (PROBE + "memory", "error", 0, ONE, "memory"),
    (PROBE + "memory", "error", 1, SOME, None),
    (PROBE + "memory", "nonsense", 0, SOME, None),
    (PROBE + "counters", "error", 0, ONE, "skipped"),
    (PROBE + "counters", "error", 1, ONE, "skipped"),
    (PROBE + "counters", "nonsense", 0, ONE, "skipped"),
    (PROBE + "marker", "error", 0, ONE, "markers"),
    (PROBE + "marker", "error", 2, ONE, "markers"),
    (PROBE + "marker", "none", 0, ONE, "markers"),
    (PROBE + "start_trace", "error", 0, ONE, None),
    (PROBE + "start_trace", "denied", 0, ONE, None),
    (PROBE + "start_trace", "exit", 0, ONE, None),
    (PROBE + "stop_trace", "error", 0, ONE, None),
    (PROBE + "stop_trace", "memory", 0, ONE, None),
    (PROBE + "reset_memory_peak", "error", 0, SOME, None),
    ("probes.tensorflow._reader", "error", 0, ONE, "skipped"),
    ("reading.SkipCounter.settle", "error", 0, ONE, "recording"),
    ("reading.SkipCounter.settle", "error", 20, ONE, "recording"),
    ("reading.Schedule.due", "recursion", 15, ONE, "recording"),
    ("session.model_facts", "error", 0, ONE, "model"),
    ("session.model_facts", "recursion", 0, ONE, "model"),
    ("session.model_facts", "nonsense", 0, NONE, None),
    ("session.fit_facts", "error", 0, ONE, "fits"),
    ("session.batch_size_of_running_fit", "error", 0, ONE, "batch_size"),
    ("describe.machine.cpu", "error", 0, ONE, "devices"),
    ("describe.machine.cpu", "hang", 0, ONE, "devices"),
    ("describe.machine.with_nvml", "hang", 0, ONE, "devices"),
    ("calls.CallLog.begin", "error", 0, ONE, "recording"),
    ("calls.CallLog.begin", "memory", 30, ONE, "recording"),
    ("calls.CallLog.end", "error", 7, ONE, "recording"),
    ("calls.CallLog.close_epoch", "error", 0, ONE, "recording"),
    ("window.Plan.opens", "error", 0, ONE, "recording"),
    ("window.Plan.closes", "error", 0, ONE, "recording"),
    ("window._require_space", "full", 0, ONE, None),
    ("window._require_space", "hang", 0, ONE, None),
    ("window._rss_bytes", "error", 0, ONE, "profile_windows"),
    ("window._rss_bytes", "hang", 0, ONE, "profile_windows"),
    ("window._rss_bytes", "hang", 1, NONE, None),
    ("profiling.profile_of", "error", 0, ONE, "profile_windows"),
    ("window.Window._move", "full", 0, ONE, None),
    ("window.Window._move", "hang", 0, ONE, None),
    ("window.Window.mark", "exit", 0, ONE, "markers"),
    ("recorder.HardwareSampler.start", "error", 0, ONE, "hardware"),
    ("hardware._process", "error", 0, NONE, "hardware"),
    ("hardware._process", "exit", 0, NONE, "hardware"),
    ("hardware._process", "hang", 0, NONE, None),
    ("hardware._gpus", "hang", 0, NONE, None),
    ("hardware._gpus", "nonsense", 0, NONE, "hardware"),
    ("recorder.claim", "denied", 0, ONE, None),
    ("recorder.claim", "hang", 0, ONE, None),
    ("recorder.write_run", "full", 0, ONE, None),
    ("recorder.write_run", "full", 3, ONE, None),
    ("recorder.write_run", "hang", 2, ONE, None),
    ("recorder.write_run", "hang", 0, ONE, None),
    ("recorder.LineWriter.__init__", "error", 0, ONE, None),
    ("recorder.LineWriter.__init__", "hang", 0, ONE, None),
    ("recorder.LineWriter.__init__", "hang", 1, ONE, "hardware"),
    ("recorder.LineWriter.put", "error", 10, ONE, "recording"),
    ("recorder.platform.node", "error", 0, ONE, None),
    ("callback.probe_for", "error", 0, ONE, None),
)  # fmt: skip

STORE_BROKEN: tuple[tuple[str, str, int, tuple[int, int]], ...] = (
    ("writing.LineWriter._write", "full", 1, ONE),
    ("writing.LineWriter._write", "full", 3, ONE),
    ("writing.LineWriter._write", "exit", 3, ONE),
    ("writing.LineWriter._write", "hang", 2, ONE),
    ("writing.formats.line", "memory", 12, ONE),
    ("writing.formats.line", "hang", 12, ONE),
    ("writing.formats.document", "error", 1, ONE),
    ("writing.os.fsync", "full", 2, ONE),
    ("writing.os.fsync", "hang", 1, ONE),
    ("writing.os.replace", "hang", 2, ONE),
    ("writing.os.replace", "denied", 1, ONE),
    ("writing.os.close", "full", 0, SOME),
)  # fmt: skip


def put_in(monkeypatch: pytest.MonkeyPatch, place: str, kind: str, after: int) -> None:
    """Replaces what lies at `place` by what works `after` times and then breaks."""
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

    def breaking(*arguments: Any, **more: Any) -> Any:
        calls[0] += 1
        return (works if calls[0] <= after else KINDS[kind])(*arguments, **more)

    monkeypatch.setattr(holder, names[-1], breaking)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """All but the alarm: the loss of this training is not finite on purpose."""
    said = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in said if "MP206" not in text]


def check(caplog: pytest.LogCaptureFixture, root: Path, warned: tuple[int, int] = ONE) -> dict[str, str]:
    """Of a run that has met its fault: the warnings, and that its records can be read. Its `absent`."""
    said = warnings_of(caplog)
    assert warned[0] <= len(said) <= warned[1], said
    absent: dict[str, str] = {}
    for run in find_runs(root) if root.is_dir() else ():
        read = read_records(run)
        if read.steps is not None and len(read.steps):
            assert read.steps.step.tolist() == list(range(1, len(read.steps) + 1))
        if read.facts is not None:
            absent |= read.facts.absent
    return absent


@pytest.mark.parametrize(("place", "kind", "after", "warned", "field"), BROKEN)
def test_a_broken_part_stops_no_training(
    patient: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    kind: str,
    after: int,
    warned: tuple[int, int],
    field: str | None,
) -> None:
    RELEASED.clear()
    with monkeypatch.context() as broken_world:
        put_in(broken_world, f"mpprof.record.{place}", kind, after)
        assert patient.train(callback(tmp_path, profile_steps=WINDOW, hardware=True)) == patient.healthy
        RELEASED.set()
    if place.endswith("stop_trace"):
        tf.profiler.experimental.stop(save=False)
    with pytest.raises(tf.errors.UnavailableError):  # nothing else has left it running
        tf.profiler.experimental.stop(save=False)
    absent = check(caplog, tmp_path, warned)
    if field is not None:
        assert "failed" in absent[field]
        assert kind != "error" or "broken on purpose" in absent[field]


@pytest.mark.parametrize(("place", "kind", "after", "warned"), STORE_BROKEN)
def test_a_broken_shelf_stops_no_training(
    patient: Patient,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    place: str,
    kind: str,
    after: int,
    warned: tuple[int, int],
) -> None:
    RELEASED.clear()
    with monkeypatch.context() as broken_world:
        put_in(broken_world, f"mpprof.store.{place}", kind, after)
        assert patient.train(callback(tmp_path, hardware=False)) == patient.healthy
        RELEASED.set()
    check(caplog, tmp_path, warned)


def test_a_broken_verdict_a_closed_stdout_and_a_broken_log_stop_no_training(
    patient: Patient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    RELEASED.clear()
    for k, announce in enumerate((KINDS["hang"], KINDS["exit"], KINDS["memory"])):
        recorded = callback(tmp_path / str(k), verbose=1, announce=announce)
        assert patient.train(recorded) == patient.healthy
    with monkeypatch.context() as world:
        world.setattr("mpprof.auditing.announce", KINDS["hang"])
        assert patient.train(callback(tmp_path / "audit", verbose=1, audit=True)) == patient.healthy
    RELEASED.set()

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


def real(test: Callable[..., None]) -> Callable[..., None]:
    """Nothing of ours is replaced: the world itself is at fault."""
    REAL.append(test.__name__)
    return test


@contextlib.contextmanager
def small_disk(folder: Path, options: str) -> Iterator[Path]:
    """A small file system of its own; needs the right to mount."""
    folder.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


@real
def test_a_disk_that_is_full_from_the_start(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "size=64k") as disk:
        with contextlib.suppress(OSError):
            (disk / "fill").write_bytes(b"x" * (1 << 20))
        assert patient.train(callback(disk / "run", hardware=True)) == patient.healthy
        check(caplog, disk / "run")


@real
def test_a_disk_that_fills_up_while_training(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def fill() -> None:
        with contextlib.suppress(OSError):
            (tmp_path / "disk" / "fill").write_bytes(b"x" * (1 << 20))
        flushed.wait(0.1)

    flushed = threading.Event()
    with small_disk(tmp_path / "disk", "size=64k") as disk:
        assert (
            patient.train(callback(disk / "run"), at={10: lambda: flushed.wait(0.1), 12: fill})
            == patient.healthy
        )
        check(caplog, disk / "run")
        steps = read_records(disk / "run").steps
        assert steps is not None
        assert 8 <= len(steps) < STEPS


@real
def test_a_disk_without_room_for_another_file(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "size=1m,nr_inodes=4") as disk:
        assert patient.train(callback(disk / "run", hardware=True)) == patient.healthy
        check(caplog, disk / "run")


@real
def test_a_disk_that_is_full_when_the_trace_is_written(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "size=36k") as disk:
        assert patient.train(callback(disk / "run", profile_steps=WINDOW)) == patient.healthy
        check(caplog, disk / "run")


@real
def test_a_disk_that_becomes_read_only(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:
        recorded = callback(disk / "run")

        def freeze() -> None:
            for writer in (recorded._session.recorder._steps,):  # a file that is open for writing forbids it
                os.close(writer._file)
                writer._file = os.open(writer.path, os.O_RDONLY)
            frozen = subprocess.run(
                ["mount", "-o", "remount,ro", str(disk)], capture_output=True, check=False
            )
            assert frozen.returncode == 0, frozen.stderr

        assert patient.train(recorded, at={10: freeze}) == patient.healthy
        check(caplog, disk / "run")


@real
def test_a_mount_that_is_taken_away(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with small_disk(tmp_path / "disk", "size=1m") as disk:

        def away() -> None:
            subprocess.run(["umount", "-l", str(disk)], check=True)

        assert patient.train(callback(disk / "run"), at={10: away}) == patient.healthy
        check(caplog, disk / "run")


@real
def test_a_directory_that_is_removed(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    logdir = tmp_path / "run"
    at = {15: lambda: shutil.rmtree(logdir)}
    assert patient.train(callback(logdir, hardware=True, profile_steps=WINDOW), at=at) == patient.healthy
    check(caplog, logdir)


@real
def test_a_step_log_that_is_removed(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    at = {15: (tmp_path / "mpprof" / "steps.jsonl").unlink}
    assert patient.train(callback(tmp_path), at=at) == patient.healthy
    check(caplog, tmp_path)


@real
def test_a_directory_that_is_exchanged_for_a_file(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def exchange() -> None:
        (tmp_path / "run").rename(tmp_path / "elsewhere")
        (tmp_path / "run").write_text("in the way")

    assert patient.train(callback(tmp_path / "run"), at={15: exchange}) == patient.healthy
    check(caplog, tmp_path / "elsewhere")
    assert len(read_records(tmp_path / "elsewhere").warnings) <= 1


@real
def test_a_file_stands_where_the_directory_should_be(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").write_text("in the way")
    assert patient.train(callback(tmp_path / "run")) == patient.healthy
    check(caplog, tmp_path)


@real
@pytest.mark.parametrize("name", ["x" * 300, "with\0null", "loop/run"])
def test_a_path_that_cannot_be(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert patient.train(callback(tmp_path / name)) == patient.healthy
    check(caplog, tmp_path / "none")


@real
def test_pipes_that_nobody_reads_stand_where_files_should_be(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "mpprof").mkdir()
    for name in ("hardware.jsonl", f".run.json.{os.getpid()}", "window-please"):
        os.mkfifo(tmp_path / "mpprof" / name)
    (tmp_path / "plugins").mkdir()
    os.mkfifo(tmp_path / "plugins" / "profile")
    recorded = callback(tmp_path, hardware=True, profile_steps=WINDOW)
    assert patient.train(recorded) == patient.healthy
    said = warnings_of(caplog)
    assert 1 <= len(said) <= 2
    assert recorded.root is not None


@real
def test_a_log_directory_of_somebody_else(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if os.geteuid() != 0:
        logdir = tmp_path / "theirs"
        logdir.mkdir(mode=0o500)
        assert patient.train(callback(logdir / "run")) == patient.healthy
    else:  # permissions do not bind root: an immutable directory does, where the file system knows it
        logdir = Path("/proc/1")
        assert patient.train(callback(logdir / "run")) == patient.healthy
    check(caplog, tmp_path)


@real
def test_no_file_may_be_opened(patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    recorded = callback(tmp_path, hardware=True)
    at = {10: lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))}
    try:
        digest = patient.train(recorded, at=at)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert digest == patient.healthy
    check(caplog, tmp_path)


@real
def test_files_may_not_grow(patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, limits[1]))
    try:
        digest = patient.train(callback(tmp_path))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert digest == patient.healthy
    check(caplog, tmp_path)
    steps = read_records(tmp_path).steps
    assert steps is not None
    assert len(steps) < STEPS


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
    check(caplog, tmp_path, NONE)
    steps = read_records(tmp_path).steps
    assert steps is not None
    assert len(steps) == STEPS


@real
def test_a_copy_taken_in_the_middle_is_another_run(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded, copies = callback(tmp_path), []
    assert patient.train(recorded, at={10: lambda: copies.append(copy.deepcopy(recorded))}) == patient.healthy
    assert patient.train(copies[0]) == patient.healthy
    check(caplog, tmp_path, NONE)
    assert len(find_runs(tmp_path)) == 2


@real
def test_a_stopped_process_goes_on_where_it_was(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop() -> None:
        helper = subprocess.Popen(["sh", "-c", f"sleep 0.2; kill -CONT {os.getpid()}"])
        os.kill(os.getpid(), signal.SIGSTOP)
        helper.wait()

    assert patient.train(callback(tmp_path, hardware=True), at={10: stop}) == patient.healthy
    check(caplog, tmp_path, NONE)


def test_no_thread_can_be_started(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as world:
        world.setattr(threading.Thread, "start", KINDS["error"])
        assert patient.train(callback(tmp_path, hardware=True, profile_steps=WINDOW)) == patient.healthy
    check(caplog, tmp_path)


class Hungry(keras.layers.Layer):  # type: ignore[misc]
    """Makes an array of as many numbers as its variable says, in each step. NumPy's: TensorFlow's own allocator
    of host memory waits ten seconds before it gives up."""

    def build(self, shape: Any) -> None:
        self.numbers = tf.Variable(1, dtype=tf.int64, trainable=False)

    def call(self, x: Any) -> Any:
        made = tf.numpy_function(lambda numbers: np.zeros(numbers, "float32")[:1], [self.numbers], tf.float32)
        return x + tf.reduce_sum(made)


@real
def test_after_a_step_that_ran_out_of_memory_the_allocators_state_is_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The step fails for want of memory, really; the allocator's numbers are a GPU's, which is not here."""
    from mpprof.record.probes.tensorflow import TensorFlowProbe

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
    with pytest.raises(tf.errors.ResourceExhaustedError, match=r"Unable to allocate 256\.? TiB"):
        made.fit(tf.ones([160, 8]), tf.ones([160, 4]), batch_size=8, verbose=0, callbacks=[Eat(), recorded])
    recorded._session.at_exit()  # as when the process ends
    lines = [json.loads(line) for line in (tmp_path / "mpprof" / "steps.jsonl").read_text().splitlines()]
    assert lines[-2]["step"] == 10
    assert (lines[-1]["kind"], lines[-1]["reason"]) == ("fit_end", "interrupted")
    assert lines[-1]["memory"][0]["peak_bytes"] > lines[-2]["memory"][0]["peak_bytes"]
    samples = (tmp_path / "mpprof" / "hardware.jsonl").read_text().splitlines()
    assert json.loads(samples[-1])["rss_bytes"] > 0
    check(caplog, tmp_path, NONE)


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
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    ended = subprocess.run(
        [sys.executable, "-c", STARVED, str(tmp_path)],
        env=environment, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert "MemoryError" in ended.stderr.splitlines()[-1]
    read = read_records(tmp_path)
    assert read.finished
    assert read.steps is not None
    assert len(read.steps) == 40


@real
def test_a_sink_whose_helper_is_stopped(
    patient: Patient, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading, writing_end = os.pipe()
    helper = subprocess.Popen(["cat"], stdin=reading, stdout=subprocess.DEVNULL)
    os.close(reading)
    os.kill(helper.pid, signal.SIGSTOP)

    class Piped:
        def scalars(self, step: int, unix_s: float, values: Any) -> None:
            os.write(writing_end, b"x" * (1 << 20))  # more than a pipe holds: it blocks

        def close(self) -> None: ...

    try:
        assert patient.train(callback(tmp_path, sinks=[Piped()])) == patient.healthy
        absent = check(caplog, tmp_path)
        assert "within" in absent["sink.Piped"]
        steps = read_records(tmp_path).steps
        assert steps is not None
        assert len(steps) == STEPS
    finally:
        helper.kill()
        helper.wait()
        os.close(writing_end)


@real
def test_a_machine_without_nvidias_driver(patient: Patient, tmp_path: Path) -> None:
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has NVIDIA's driver")
    recorded = callback(tmp_path, hardware=True)
    assert patient.train(recorded, at={10: lambda: threading.Event().wait(0.1)}) == patient.healthy
    facts = read_records(tmp_path).facts
    assert facts is not None
    assert facts.absent["hardware.gpu"].startswith("NVML: ")


def test_there_are_enough_of_them() -> None:
    broken = {entry[:3] for entry in BROKEN} | {entry[:3] for entry in STORE_BROKEN}
    print(f"{len(broken)} faults made on purpose, {len(REAL)} kinds of real ones")
    assert len(broken) >= 60
    assert len(REAL) >= 20
