"""kill -9 at random moments: the log always opens, and at most the last second is missing."""

from __future__ import annotations

import mmap
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from mpprof.store import read_records
from tests.record.test_fit_jax import REPOSITORY

LATE_NS = 1_500_000_000  # a second, and a busy machine's lateness

LOOP = """
import mmap, struct, sys, time
from mpprof.record import StepRecorder
file = open(sys.argv[1], "r+b")
truth = mmap.mmap(file.fileno(), 24)
quiet = dict(hardware=False, verbose=0, announce=None, profile_steps=None)
with StepRecorder(sys.argv[2], **quiet) as recorder:
    step = first = 0
    while True:
        with recorder.step():
            time.sleep(0.0005)
        recorder.update(loss=0.5)
        step += 1
        first = first or time.monotonic_ns()
        truth[:] = struct.pack("<qqq", step, time.monotonic_ns(), first)
"""

FIT = """
import mmap, pathlib, struct, sys, time
from tests.record.training import callback, data, model
import keras
file = open(sys.argv[1], "r+b")
truth = mmap.mmap(file.fileno(), 24)
class Truth(keras.callbacks.Callback):
    step = first = 0
    def on_train_batch_end(self, batch, logs=None):
        self.step += 1
        self.first = self.first or time.monotonic_ns()
        truth[:] = struct.pack("<qqq", self.step, time.monotonic_ns(), self.first)
x, y = data(400)
recorded = callback(pathlib.Path(sys.argv[2]), profile_steps=(30, 5000))
model().fit(x, y, batch_size=8, epochs=10_000, verbose=0, callbacks=[recorded, Truth()])
"""


def start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    folder.mkdir(parents=True)
    (folder / "truth").write_bytes(bytes(24))
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "PYTHONPATH": str(REPOSITORY)}
    command = [sys.executable, "-c", program, str(folder / "truth"), str(folder / "run")]
    return subprocess.Popen(command, env=environment, cwd=REPOSITORY, stderr=subprocess.DEVNULL)


def truth(folder: Path) -> tuple[int, int, int]:
    """The steps that ran, and when the last and the first of them ended (monotonic, in ns)."""
    with (folder / "truth").open("rb") as file:
        step, last_ns, first_ns = struct.unpack(
            "<qqq", mmap.mmap(file.fileno(), 24, access=mmap.ACCESS_READ)[:]
        )
    return step, last_ns, first_ns


def kill(process: subprocess.Popen[bytes], folder: Path, after_s: float) -> None:
    deadline = time.monotonic() + 90
    while truth(folder)[0] == 0:  # until it trains
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(after_s)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def check(folder: Path) -> None:
    step, ended_ns, first_ns = truth(folder)
    read = read_records(folder / "run")
    assert not read.finished
    assert read.facts is not None
    kept = read.steps
    if kept is None or not len(kept):
        assert ended_ns - first_ns < LATE_NS  # killed within a second of its first step
        return
    assert kept.step.tolist() == list(range(1, len(kept) + 1))
    assert len(kept) <= step + 1
    missing_ns = ended_ns - (read.facts.clock_monotonic_ns + int(kept.t_ns[-1]))
    assert missing_ns < LATE_NS, f"{step - len(kept)} steps of the last {missing_ns / 1e9:.2f} s are missing"


def killed_loops(folder: Path, count: int, together: int = 5) -> None:
    moments = random.Random(count)
    for first in range(0, count, together):
        folders = [folder / str(k) for k in range(first, min(count, first + together))]
        processes = [start(LOOP, one) for one in folders]
        for process, one in zip(processes, folders, strict=True):
            kill(process, one, moments.uniform(0.0, 0.7))
        for one in folders:
            check(one)


def test_a_loop_killed_at_twenty_moments(tmp_path: Path) -> None:
    killed_loops(tmp_path, 20)


@pytest.mark.framework
def test_a_fit_killed_at_three_moments_two_of_them_within_its_profile_window(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    folders = [tmp_path / str(k) for k in range(3)]
    processes = [start(FIT, one) for one in folders]
    for process, one, after_s in zip(processes, folders, (0.0, 0.6, 1.3), strict=True):
        kill(process, one, after_s)
    for one in folders:
        check(one)


@pytest.mark.soak
def test_a_loop_killed_at_two_hundred_moments(tmp_path: Path) -> None:
    killed_loops(tmp_path, 200)
