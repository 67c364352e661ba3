"""The parser holds the options of the commands that are named, and the names of all."""

from __future__ import annotations

import argparse
import errno
import io
import os
import re
import sys
from pathlib import Path

import pytest

import mpprof
from mpprof.cli import GROUPS, NAMES, main, paths, progress
from mpprof.errors import UsageError


def test_help_lists_every_command_in_its_group_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    said = capsys.readouterr().out
    groups = dict(re.findall(r"^(\w.+):\n((?:  \w.+\.\n)+)", said, re.MULTILINE))
    listed = {name: re.findall(r"^  (\w+) ", lines, re.MULTILINE) for name, lines in groups.items()}
    assert listed == {heading: list(group) for heading, group in GROUPS.items()}
    assert all(len(line) <= 80 for line in said.splitlines())


@pytest.mark.parametrize("words", [["--quiet", "repotr", "x"], ["repotr"]])
def test_a_word_that_is_no_command_gets_the_names_of_all(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    said = capsys.readouterr().err
    assert all(repr(name) in said for name in NAMES)


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (["report", "x", "--frob"], "mpprof report"),
        (["--quiet", "ls", "x", "y"], "mpprof ls"),
        (["--frob"], "mpprof"),
    ],
)
def test_what_a_command_does_not_take_points_to_its_own_help(
    words: list[str], shown: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f"See `{shown} --help`\n")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["reprot", "x"], "Did you mean report? See `mpprof --help`"),
        (["report", "x", "--basline", "y"], "Did you mean --baseline? See `mpprof report --help`"),
        (["ls", "--fromat=json", "x"], "Did you mean --format? See `mpprof ls --help`"),
        (["ls", "--format", "jsn", "x"], "Did you mean json? See `mpprof ls --help`"),
        (["report", "x", "--fail-on", "MP3011"], "Did you mean MP301 input-bound?"),
        (["report", "x", "--frobnicate"], "arguments: --frobnicate. See `mpprof report --help`"),
    ],
)
def test_a_slip_of_the_keyboard_gets_the_word_that_was_meant(
    words: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert capsys.readouterr().err.endswith(f"{meant}\n")


def test_a_command_may_follow_the_options_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--quiet", "explain", "MP101"]) == 0
    assert "MP101" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_each_has_the_options_of_every_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    said = capsys.readouterr().out
    assert f"usage: mpprof {name}" in said
    assert all(flag in said for flag in ("--quiet", "--no-color", "--no-cache", "--strict"))


@pytest.mark.parametrize(
    "words",
    [["report", ""], ["ls", ""], ["audit", ""], ["report", "x", "--baseline", ""],
     ["report", "x", "-o", ""], ["check", "x", ""]],
    ids=" ".join,
)  # fmt: skip
def test_an_empty_name_is_not_the_current_directory(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words) == 2
    said = capsys.readouterr().err
    assert "an empty name" in said or words[0] == "check"
    assert len(said.splitlines()) == 1


def test_an_empty_name_is_no_run_in_a_script_either() -> None:
    with pytest.raises(UsageError, match="an empty name"):
        mpprof.load("")


class Full(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["report", "--help"]], ids=" ".join)
def test_help_that_cannot_be_written_is_an_error(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Full())
    assert main(words) == 2
    assert "standard output: cannot be written (No space left on device)" in capsys.readouterr().err


def test_a_search_says_where_it_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(progress, "say", said.append)
    with paths.opened(argparse.Namespace(), tmp_path):
        assert said == [f"looking for runs in {tmp_path} and below"]
