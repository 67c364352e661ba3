"""kill -9 at random moments: the log always opens, at most the last second is missing, and a report says what is
not there. Fits are killed at moments that their files tell, too."""

from __future__ import annotations

import contextlib
import io
import mmap
import os
import random
import re
import resource
import signal
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.cli import main
from mpprof.record import StepRecorder
from mpprof.store import read_records
from tests.record.processes import Process
from tests.record.training import callback, data, model

WINDOW = (30, 1_000_000)
MOST_BYTES = 32 << 10
"""Of a file, less than a trace has: see `fit_that_may_write_little`."""

LATE_NS = 1_500_000_000  # a second, and a busy machine's lateness


class Truth:
    """Which step a process has finished, and when, where a kill leaves it to be read."""

    def __init__(self, folder: Path) -> None:
        with (folder / "truth").open("r+b") as file:
            self._bytes = mmap.mmap(file.fileno(), 24)
        self._step = self._first = 0

    def stepped(self) -> None:
        self._step += 1
        self._first = self._first or time.monotonic_ns()
        self._bytes[:] = struct.pack("<qqq", self._step, time.monotonic_ns(), self._first)


def loop(folder: Path) -> None:
    truth = Truth(folder)
    quiet: dict[str, Any] = {"hardware": False, "verbose": 0, "announce": None, "profile_steps": None}
    with StepRecorder(folder / "run", backend="none", **quiet) as recorder:
        while True:
            with recorder.step():
                time.sleep(0.0005)
            recorder.update(loss=0.5)
            truth.stepped()


def fit(folder: Path, window: tuple[int, int] = WINDOW, *, waits_at: int = 0) -> None:
    """`waits_at` a step until run.json, which a thread writes, names the window."""
    import keras

    truth = Truth(folder)

    class Telling(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            truth.stepped()
            while batch == waits_at - 1 and not window_is_named(folder):
                time.sleep(0.002)

    x, y = data(400)
    recorded = callback(folder / "run", profile_steps=window)
    model().fit(x, y, batch_size=8, epochs=10_000, verbose=0, callbacks=[recorded, Telling()])


def fit_with_a_window_that_ends(folder: Path) -> None:
    fit(folder, (WINDOW[0], WINDOW[0] + 200))


def fit_that_may_write_little(folder: Path) -> None:
    """The system kills it, as abruptly as kill -9 does, in the midst of writing the first large file: the
    trace. (The log is cut off at no byte that matters: it is smaller.)"""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)  # Python ignores it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_BYTES, MOST_BYTES))
    fit(folder, (WINDOW[0], WINDOW[0] + 5), waits_at=WINDOW[0] + 2)


def start(program: Callable[[Path], None], folder: Path) -> Process:
    folder.mkdir(parents=True)
    (folder / "truth").write_bytes(bytes(24))
    return Process(folder / "said", program, folder)


def truth(folder: Path) -> tuple[int, int, int]:
    """The steps that ran, and when the last and the first of them ended (monotonic, in ns)."""
    with (folder / "truth").open("rb") as file:
        step, last_ns, first_ns = struct.unpack(
            "<qqq", mmap.mmap(file.fileno(), 24, access=mmap.ACCESS_READ)[:]
        )
    return step, last_ns, first_ns


Moment = Callable[[Path], bool]


def after(steps: int, seconds: float = 0.0) -> Moment:
    """So many steps have run, and so many seconds have passed since the first one."""

    def now(folder: Path) -> bool:
        step, _, first_ns = truth(folder)
        return step >= steps and time.monotonic_ns() - first_ns >= seconds * 1e9

    return now


def window_is_open(folder: Path) -> bool:
    """The run's own files say so, and hold a step of it."""
    log = folder / "run" / "mpprof" / "steps.jsonl"
    return log.exists() and b'"profiled":true' in log.read_bytes() and window_is_named(folder)


def window_is_named(folder: Path) -> bool:
    """By run.json."""
    return (
        b'"first_step"'
        in (folder / "run" / "mpprof" / "run.json").read_bytes().partition(b'"profile_windows"')[2]
    )


def trace_is_written(folder: Path) -> bool:
    """The profiler has begun to write it."""
    return any(trace_files(folder)) or any((folder / "run").glob("plugins/profile/*"))


def trace_files(folder: Path) -> list[Path]:
    """What the profiler has written so far of a trace that is not the run's yet."""
    return list((folder / "run" / "mpprof").glob(".window-*/plugins/profile/*/*.xplane.pb"))


def kill(processes: dict[Path, Process], moments: dict[Path, Moment]) -> None:
    """Each at its moment."""
    deadline, left = time.monotonic() + 90, dict(processes)
    while left:
        for folder, process in list(left.items()):
            assert process.code is None, process.said.read_text()
            if moments[folder](folder):
                os.kill(process.pid, signal.SIGKILL)
                left.pop(folder).wait()
        assert time.monotonic() < deadline
        time.sleep(0.002)


def check(folder: Path) -> str:
    """Of a killed process: what is missing, as its report says it, too."""
    step, ended_ns, first_ns = truth(folder)
    read = read_records(folder / "run")
    assert not read.finished
    assert read.facts is not None
    kept = [] if read.steps is None else read.steps.step.tolist()
    text = report(folder / "run")
    either = (
        "the log does not show the end of the training: it was killed, or still runs",
        "without an end on record: its process was killed, or its machine stopped",
    )  # 15 s after its last line
    assert sum(said in " ".join(text.split()) for said in either) == 1
    assert re.search(rf"^Steps +{len(kept):,} steps, ", text, re.M)
    assert kept == list(range(1, len(kept) + 1))
    assert len(kept) <= step + 1
    if read.steps is None or not kept:
        assert ended_ns - first_ns < LATE_NS  # killed within a second of its first step
        return text
    missing_ns = ended_ns - (read.facts.clock_monotonic_ns + int(read.steps.t_ns[-1]))
    assert missing_ns < LATE_NS, f"{step - len(kept)} steps of the last {missing_ns / 1e9:.2f} s are missing"
    return text


def report(root: Path) -> str:
    """What `mpprof report` prints of it; all white space alike."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert main(["report", str(root), "-v"]) == 0
    return re.sub(r"[ \t]*\n {2,}", " ", out.getvalue())


def kill_and_check_loops(folder: Path, count: int, together: int = 10) -> None:
    moments = random.Random(count)
    for first in range(0, count, together):
        folders = [folder / str(k) for k in range(first, min(count, first + together))]
        kill(
            {one: start(loop, one) for one in folders},
            {one: after(1, moments.uniform(0.0, 0.7)) for one in folders},
        )
        for one in folders:
            check(one)


def test_a_loop_killed_at_twenty_moments(tmp_path: Path) -> None:
    kill_and_check_loops(tmp_path, 20)


@pytest.mark.framework
def test_a_fit_killed_as_it_begins_within_its_profile_window_and_as_the_trace_is_written(
    tmp_path: Path,
) -> None:
    pytest.importorskip("tensorflow")
    begins, within, as_it_ends, writes = (tmp_path / str(k) for k in range(4))
    limited = start(fit_that_may_write_little, writes)
    kill(
        {
            begins: start(fit, begins),
            within: start(fit, within),
            as_it_ends: start(fit_with_a_window_that_ends, as_it_ends),
        },
        {begins: after(1), within: window_is_open, as_it_ends: trace_is_written},
    )
    limited.wait()
    assert limited.code == -signal.SIGXFSZ
    (half,) = trace_files(writes)
    assert half.stat().st_size == MOST_BYTES
    check(begins)
    check(as_it_ends)
    for folder in (within, writes):
        text = check(folder)
        facts = read_records(folder / "run").facts
        assert [(window.first_step, window.status) for window in facts.profile_windows] == [
            (WINDOW[0], "open")
        ]
        assert "there is no trace: the profile window had not closed by step" in " ".join(text.split())
    damaged = f"{half}: no event is left: the file is cut off or damaged"
    assert "".join(damaged.split()) in "".join(text.split())  # lines end within a path


@pytest.mark.soak
def test_a_loop_killed_at_two_hundred_moments(tmp_path: Path) -> None:
    kill_and_check_loops(tmp_path, 200)
