"""A command that takes longer shows on a terminal what it does, and removes it before the result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import MIXED, left_of

pty = pytest.importorskip("pty", reason="no pseudo-terminals here")

_AT_ONCE = """
import os, sys
from mpprof.cli import main, progress
progress.AFTER_S = float(os.environ.get("AFTER_S", "0"))
sys.exit(main(sys.argv[1:]))
"""


def on_a_terminal(*arguments: str, out: Path, **environment: str) -> str:
    """What a command writes to a terminal as stderr, with stdout in a file."""
    mine, theirs = pty.openpty()
    with out.open("wb") as stdout:
        child = subprocess.Popen(
            [sys.executable, "-c", _AT_ONCE, *arguments], stdin=subprocess.DEVNULL, stdout=stdout, stderr=theirs,
            env=os.environ | {"TERM": "xterm"} | environment,
        )  # fmt: skip
    os.close(theirs)
    said = b""
    while True:
        try:
            part = os.read(mine, 4096)
        except OSError:  # so Linux ends a pseudo-terminal
            break
        if not part:
            break
        said += part
    os.close(mine)
    assert child.wait() == 0, said.decode()
    return said.decode()


def test_the_line_goes_to_the_terminal_alone_and_is_gone_at_the_end(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = on_a_terminal("report", str(MIXED), out=out)
    assert "reading " in said
    assert left_of(said) == ""
    assert max(map(len, said.split("\r"))) < 80
    assert "\x1b" not in out.read_text()
    plain = subprocess.run(
        [sys.executable, "-c", _AT_ONCE, "report", str(MIXED)], capture_output=True, text=True, check=True
    )
    assert plain.stdout == out.read_text()
    assert plain.stderr == ""  # nobody watches a pipe


def test_a_survey_says_how_far_it_is(tmp_path: Path) -> None:
    said = on_a_terminal("survey", str(MIXED), "--workers", "1", out=tmp_path / "out")
    assert "1 of 1 runs" in said


def test_what_is_over_sooner_is_not_spoken_of(tmp_path: Path) -> None:
    assert on_a_terminal("report", str(MIXED), out=tmp_path / "out", AFTER_S="600") == ""


@pytest.mark.parametrize("how", [["--quiet"], []])
def test_who_does_not_want_it_does_not_get_it(how: list[str], tmp_path: Path) -> None:
    environment = {} if how else {"TERM": "dumb"}
    assert on_a_terminal("report", str(MIXED), *how, out=tmp_path / "out", **environment) == ""
