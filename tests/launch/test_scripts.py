"""Fifteen scripts as people write them: their output, exit code and weights are the same under `mpprof run`, and the
report is of what they trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launch.running import Forked, Ran, launched, options, python

pytestmark = pytest.mark.framework


def records(logdir: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """run.json and the step lines of a run."""
    folder = logdir / "mpprof"
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return json.loads((folder / "run.json").read_text()), lines


def steps(lines: list[dict[str, Any]]) -> int:
    return sum(line["covers"] for line in lines if line.get("kind") == "step")


def both(folder: Path, name: str, *arguments: str) -> Ran:
    """The script under `mpprof run`; its output and exit code are those without it."""
    plain = Forked(folder, name, *arguments)
    under = Forked(folder, name, *arguments, options=options(folder, name))
    without, ran = plain.ended(), under.ended()
    assert (ran.code, ran.out) == (without.code, without.out), ran.err[-3000:]
    assert without.out
    assert without.err in ran.err or without.code == 1  # a traceback holds frames of ours, too
    written = {path.name for path in (folder / "launched").iterdir()}
    assert written == {path.name for path in (folder / "plain").iterdir()}
    return ran


FIT = {
    "arrays.py": (("--epochs", "2"), 5, 54, 1),
    "dataset.py": ((), 0, 40, 1),
    "pydataset.py": ((), 0, 48, 1),
    "generator.py": ((), 0, 40, 1),
    "subclassed.py": ((), 0, 50, 1),
    "custom_step.py": ((), 1, 40, 1),
    "policy.py": ((), 0, 40, 1),
    "two_fits.py": ((), 1, 80, 2),
    "notebook.py": ((), 0, 40, 1),
    "keras2.py": ((), 0, 40, 1),
    "devices.py": ((), 0, 20, 1),
}
"""By script: its arguments, its exit code, the steps and fits of its run."""


@pytest.mark.parametrize("name", FIT)
def test_a_script_is_recorded_and_nothing_else_changes(name: str, tmp_path: Path) -> None:
    arguments, code, ran_steps, fits = FIT[name]
    ran = both(tmp_path, name, *arguments)
    facts, lines = records(tmp_path / "logs")
    assert (ran.code, steps(lines), len(facts["fits"])) == (code, ran_steps, fits)
    assert "mpprof report " in ran.err
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == ["finished"] * fits
