"""A training's process: what it sees, how it ends, and that it leaves no process behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from mpprof.launch.options import Options, Trial
from mpprof.trial import measured, training
from mpprof.trial.ladder import Turn
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import Setting
from tests.launch.running import interruptible, surroundings

LEAVES_CHILDREN = """
import os, subprocess, sys, time
one = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
with open("pids.part", "w") as file:
    file.write(f"{os.getpid()} {one.pid} {other.pid}")
os.replace("pids.part", "pids")
"""
SLEEPS = LEAVES_CHILDREN + "time.sleep(600)\n"


def tried(folder: Path, script: str, within_s: float = 60.0, **more: object) -> tuple[Trained, Path]:
    path, answer, output = folder / "train.py", folder / "answer.json", folder / "output.txt"
    path.write_text(script)
    trial = Trial(os.getpid(), str(answer), seconds=0.0)
    options = Options(str(folder / "run"), "train.py", 3, trial=trial, quiet=True)
    ended = training.run([str(path)], options, output, within_s)
    return measured.trained(Turn(Setting(), 0, 0, 1), ended, answer, output, 3), output


def gone(pids: list[int]) -> bool:
    """Whether these processes end, be it that the machine is busy; a minute is for none that is ended."""
    end_s = time.monotonic() + 60
    while any(map(lives, pids)) and time.monotonic() < end_s:
        time.sleep(0.05)
    return not any(map(lives, pids))


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


@pytest.mark.parametrize(
    ("script", "error", "of_script"),
    [
        ("print('nothing is trained')", "no fit of Keras was called", True),
        ("input('which one? ')", "it asks for input, and there is no terminal here", True),
        ("raise EOFError('Ran out of input')", "EOFError: Ran out of input", True),
        ("raise ValueError('no data')", "ValueError: no data", True),
        (
            "import sys; sys.exit('no data found')",
            "it ended with exit code 1 before any fit; its last line: no data found",
            True,
        ),
        (
            "import os; print('bye', flush=True); os._exit(4)",
            "it ended with exit code 4 before any fit; its last line: bye",
            True,
        ),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "ended by SIGKILL", False),
    ],
)
def test_why_nothing_was_measured_is_said(script: str, error: str, of_script: bool, tmp_path: Path) -> None:
    one, _ = tried(tmp_path, script)
    assert (one.error, one.script_failed) == (error, of_script)


def test_a_script_is_told_that_it_is_tried_and_has_no_input(tmp_path: Path) -> None:
    _, output = tried(
        tmp_path, "import os, sys; print(os.environ['MPPROF_TRY'], repr(sys.stdin.read()), sys.argv[1:])"
    )
    assert output.read_text() == "1 '' []\n"


def test_a_training_that_takes_too_long_is_ended_with_all_that_it_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    one, _ = tried(tmp_path, LEAVES_CHILDREN + "open('ready', 'w'); time.sleep(600)", within_s=5.0)
    assert one.error is not None
    assert "steady steps were not reached in time" in one.error
    if Path("pids").exists():
        assert gone([int(pid) for pid in Path("pids").read_text().split()])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_leaves_no_process_behind(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SLEEPS)
    command = [
        sys.executable,
        "-m",
        "mpprof",
        "try",
        "--logdir",
        "logs",
        "--policies",
        "float32,mixed_bfloat16",
        "train.py",
    ]
    with subprocess.Popen(
        command, cwd=tmp_path, env=surroundings(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=interruptible,
    ) as process:  # fmt: skip
        while not (tmp_path / "pids").exists():
            assert process.poll() is None
            time.sleep(0.05)
        pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
        process.send_signal(number)
        out, err = process.communicate()
    if number == signal.SIGKILL:  # nothing can be done then: the training itself ends with its parent
        assert gone(pids[:1])
        for pid in pids[1:]:
            os.kill(pid, signal.SIGKILL)
        return
    assert process.returncode == 128 + number, err
    assert gone(pids)
    assert "--resume" in err
    assert "No setting could be measured" in out
    (line,) = (tmp_path / "logs" / "trainings.jsonl").read_text().splitlines()
    assert json.loads(line)["schema"] == "mpprof.trainings/1"
