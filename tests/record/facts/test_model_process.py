"""The process that looks at a model has bounds only while the one that has started it watches."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.paths import ROOT
from tests.record.facts.test_model_attacks import as_keras, dense, model

pytestmark = [
    pytest.mark.framework,
    pytest.mark.skipif(os.name != "posix", reason="Windows has no such signals"),
]

ASKS = """
import sys
from mpprof.record.facts import described
described.describe(sys.argv[1], ["waits"])
"""
WAITS = """
import os, pathlib, time
started = pathlib.Path(__file__).with_name("started")
started.with_suffix(".new").write_text(str(os.getpid()))
started.with_suffix(".new").rename(started)
time.sleep(600)
"""


def until(holds: Callable[[], bool]) -> bool:
    """Wait for what another process does; no longer than a minute."""
    ends = time.monotonic() + 60
    while not (held := holds()) and time.monotonic() < ends:
        time.sleep(0.02)
    return held


def lives(process: int) -> bool:
    """A process that has ended and that nobody has waited for is dead."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        return state not in ("Z", "X")
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.fixture
def asking(tmp_path: Path) -> tuple[subprocess.Popen[bytes], int, Path]:
    """A process that asks for a model's facts, that which it has started, and the directory between them."""
    (tmp_path / "waits.py").write_text(WAITS)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    path = as_keras(tmp_path, model(dense()))
    places = os.pathsep.join((str(ROOT), str(tmp_path)))
    process = subprocess.Popen(
        [sys.executable, "-c", ASKS, str(path)], stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": places, "TMPDIR": str(scratch)},
    )  # fmt: skip
    assert until(lambda: (tmp_path / "started").exists() or process.poll() is not None)
    return process, int((tmp_path / "started").read_text()), scratch


Asking = tuple[subprocess.Popen[bytes], int, Path]


def ended(process: int) -> bool:
    """Whether it ends; it is ended in any case."""
    if until(lambda: not lives(process)):
        return True
    os.kill(process, signal.SIGKILL)
    return False


def test_what_looks_at_a_model_ends_with_a_process_that_is_killed(asking: Asking) -> None:
    process, looking, _ = asking
    process.kill()
    process.wait()
    assert ended(looking)


def test_what_looks_at_a_model_ends_with_a_process_that_is_asked_to_end(asking: Asking) -> None:
    process, looking, scratch = asking
    process.terminate()
    process.wait()
    assert ended(looking)
    assert not list(scratch.iterdir())
