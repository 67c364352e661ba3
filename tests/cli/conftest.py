"""What the tests of the command line share."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from mpprof.cli import main
from tests.paths import NO_TRACES, SAMPLES, SHARED

MIXED = SAMPLES / "v100-convnet-mixed-float16"
FLOAT32 = SAMPLES / "v100-convnet-float32"
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=NO_TRACES)


@dataclass(frozen=True, slots=True)
class Done:
    """One command that ended."""

    code: int
    out: str
    err: str


Mpprof = Callable[..., Done]


@pytest.fixture(autouse=True)
def _outside_github(monkeypatch: pytest.MonkeyPatch) -> None:
    """Failed checks print annotations in GitHub Actions, where these tests run, too."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)


@pytest.fixture
def mpprof(capsys: pytest.CaptureFixture[str]) -> Mpprof:
    """Runs a command in this process."""

    def run(*args: object) -> Done:
        code = main([str(arg) for arg in args])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return run


def in_a_process(*args: object, stdin: bytes | None = None, **kwargs: object) -> Done:
    """Runs a command as a user's shell would."""
    command = [sys.executable, "-m", "mpprof.cli", *(str(arg) for arg in args)]
    done = subprocess.run(command, input=stdin, capture_output=True, check=False, **kwargs)  # type: ignore[call-overload]
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


def left_of(said: str) -> str:
    """What a terminal shows in the end of lines that are written over one another."""
    assert said.endswith("\r"), "what comes next begins at the left"
    shown = ""
    for part in said.split("\r"):
        shown = part + shown[len(part) :]
    return shown.rstrip()
