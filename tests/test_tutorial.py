"""The tutorial can be followed to the letter, and the documents show commands that exist and what they print."""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from mpprof.cli import build_parser, main
from tests.paths import ROOT
from tests.test_readme import uncounted

TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def sessions(text: str) -> list[tuple[str, str]]:
    """(command, what it prints) of the console blocks, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    parts = [part for block in blocks for part in re.split(r"^\$ ", block, flags=re.MULTILINE) if part]
    return [(command, printed) for command, _, printed in (part.partition("\n") for part in parts)]


def commands(page: Path) -> list[str]:
    """Every line of a page's blocks of code that calls mpprof, but for what a command prints."""
    text = page.read_text(encoding="utf-8")
    if page.name == "tutorial.md":
        return [command for command, _ in sessions(text) if command.startswith("mpprof ")]
    blocks = re.findall(r"^```\n(.*?)^```$", text.partition("<!-- report -->")[0], re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if line.startswith("mpprof ")]


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=lambda page: page.name)
def test_every_command_of_a_page_is_understood(page: Path) -> None:
    for command in commands(page):
        words = shlex.split(re.split(r" [|>] ", command)[0], comments=True)[1:]
        understood = build_parser(words).parse_args(words, argparse.Namespace(main=main))
        assert understood.run.__self__.name == words[0]


ON_SAMPLES = [each for each in sessions(TUTORIAL) if "sample_traces/" in each[0] or " explain " in each[0]]


@pytest.mark.parametrize(("command", "printed"), ON_SAMPLES, ids=[command for command, _ in ON_SAMPLES])
def test_what_the_tutorial_shows_of_the_samples_is_what_is_printed(
    command: str, printed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(shlex.split(command)[1:]) == 0
    assert uncounted(capsys.readouterr().out) == uncounted(printed), (
        "python -m tests.test_tutorial writes it anew"
    )


@pytest.mark.full
def test_the_tutorial_can_be_followed_from_an_empty_directory(tmp_path: Path) -> None:
    """Each command as printed, in an environment of its own that has the built wheel; several minutes."""
    pytest.importorskip("tensorflow", reason="no TensorFlow for this platform")
    (wheel,) = built(tmp_path / "wheel")
    folder = tmp_path / "empty"
    folder.mkdir()
    (script,) = re.findall(r"^```python title=\"train.py\"\n(.*?)^```$", TUTORIAL, re.MULTILINE | re.DOTALL)
    (change,) = re.findall(r"^```diff\n-(.*)\n\+(.*)\n```$", TUTORIAL, re.MULTILINE)
    assert script.count(f"\n{change[0]}\n") == 1
    os.symlink(ROOT / "sample_traces", folder / "sample_traces")
    (folder / "train.py").write_text(script)
    shell, said = Shell(folder), {}
    for command, _ in sessions(TUTORIAL):
        if command.startswith("mpprof serve"):
            assert b"mpprof" in shell.served(command)
            continue
        if command.endswith("logs/cached") and command.startswith("python"):
            (folder / "train.py").write_text(script.replace(*change))
        said[command] = shell.run(command.replace("'mpprof[", f"'{wheel}["))
    assert "First: parallelise the pipeline:" in said["python train.py logs/slow"]
    assert "1. MP301: parallelise the pipeline:" in said["mpprof report logs/slow"]
    assert "MP301 input-bound: predicted" in said["mpprof compare logs/slow logs/cached"]
    assert "applied (.cache()" in said["mpprof compare logs/slow logs/cached"]
    steps = re.search(
        r"slow → cached: ([\d.]+) (µs|ms|s) → ([\d.]+) (µs|ms|s) a step",
        said["mpprof compare logs/slow logs/cached"],
    )
    assert steps
    slow, cached = float(steps[1]) * SECONDS[steps[2]], float(steps[3]) * SECONDS[steps[4]]
    assert slow > 1.5 * cached


SECONDS = {"µs": 1e-6, "ms": 1e-3, "s": 1.0}


def built(folder: Path) -> list[Path]:
    """The wheel of the tracked files alone."""
    source = folder / "source"
    subprocess.run(
        ["git", "checkout-index", "--all", f"--prefix={source}/"], cwd=ROOT, check=True, capture_output=True
    )
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir",
         str(folder), str(source)], check=True,
    )  # fmt: skip
    return list(folder.glob("*.whl"))


class Shell:
    """A shell of a reader: the environment that was made is used by the commands after it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        kept = ("HOME", "PATH", "LANG", "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
        self.environment = {name: os.environ[name] for name in kept if name in os.environ}
        self.environment |= {"PYTHONIOENCODING": "utf-8", "PYTHONWARNINGS": "default"}

    def run(self, command: str) -> str:
        if command == ". venv/bin/activate":
            self.environment["PATH"] = f"{self.folder / 'venv' / 'bin'}:{self.environment['PATH']}"
            return ""
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environment, capture_output=True, encoding="utf-8",
            check=False, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, f"$ {command}\n{done.stdout}\n{done.stderr}"
        return " ".join(done.stdout.split()) if " compare " in command else done.stdout

    def served(self, command: str) -> bytes:
        """What the page sends whose address the command prints; then Ctrl+C."""
        with subprocess.Popen(
            [*shlex.split(command), "--port", "0"], cwd=self.folder, env=self.environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout
            try:
                address = next(
                    found[0] for line in process.stdout if (found := re.search(r"http://\S+", line))
                )
                with urllib.request.urlopen(address, timeout=60) as answer:
                    return bytes(answer.read())
            finally:
                process.terminate()


if __name__ == "__main__":
    os.environ.pop("COLUMNS", None)
    os.chdir(ROOT)
    for shown_command, shown_text in ON_SAMPLES:
        fresh = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        with contextlib.redirect_stdout(fresh):
            main(shlex.split(shown_command)[1:])
        fresh.seek(0)
        TUTORIAL = TUTORIAL.replace(f"$ {shown_command}\n{shown_text}", f"$ {shown_command}\n{fresh.read()}")
    (ROOT / "docs" / "tutorial.md").write_text(TUTORIAL, encoding="utf-8")
