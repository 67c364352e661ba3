"""Steps of a trace and lines of the step log, on a recorded Keras training whose clock is then set wrong."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpprof.analysis.steps.accounted_steps import StepLines, step_lines
from mpprof.analysis.steps.boundaries import Periods, periods
from mpprof.api import workflows
from mpprof.model.run import Run
from mpprof.model.trace import Trace
from mpprof.traces import read
from tests.paths import SAMPLES

RECORDED = SAMPLES / "recorded-cpu-float32"
SECOND = 1_000_000_000


def recorded(folder: Path, *, clock_ns: int = 0) -> Path:
    """A copy of a recorded run whose records' clock stands this much later."""
    shutil.copytree(RECORDED, folder)
    facts = json.loads((folder / "mpprof" / "run.json").read_text())
    facts["clock"]["unix_ns"] += clock_ns
    (folder / "mpprof" / "run.json").write_text(json.dumps(facts))
    return folder


def joined(path: Path, *, family: str = "mpprof", renumbered: int = 0) -> tuple[StepLines, Periods, Run]:
    run = workflows.load(path)
    trace = read(run.traces[-1])
    found = periods(trace, 0)
    found = replace(found, numbered=family, number=found.number + renumbered)
    return step_lines(trace, found, run), found, run


def test_clock_and_markers_of_a_recorded_training_agree() -> None:
    lines, found, run = joined(RECORDED)
    assert lines.row is not None
    assert run.steps.step[lines.row].tolist() == found.number.tolist() == [11, 12, 13, 14, 15]
    assert lines.offset_ns is not None
    assert abs(lines.offset_ns) < 0.001 * SECOND
    assert lines.notes == ()


@pytest.mark.parametrize("seconds", [-3600, -5, 5, 3600])
def test_a_clock_that_was_set_is_said_and_the_markers_are_believed(seconds: int, tmp_path: Path) -> None:
    path = recorded(tmp_path / "run", clock_ns=seconds * SECOND)
    lines, _, _ = joined(path)
    true = joined(RECORDED)[0]
    assert lines.row.tolist() == true.row.tolist()
    assert lines.offset_ns == pytest.approx(-seconds * SECOND, abs=0.01 * SECOND)
    (note,) = lines.notes
    assert ("behind" if seconds > 0 else "ahead of") in note
    assert ("another run" in note) == (abs(seconds) > 60)
    analysis = workflows.analyse(workflows.load(path))
    assert note in analysis.account.notes
    unperturbed = workflows.analyse(workflows.load(RECORDED)).account
    assert analysis.account.step_ns == unperturbed.step_ns


@pytest.mark.parametrize(("family", "renumbered"), [("keras", -10), ("torch", 0), ("jax", 1000)])
def test_markers_that_count_otherwise_are_joined_by_the_clock(family: str, renumbered: int) -> None:
    lines, _, _ = joined(RECORDED, family=family, renumbered=renumbered)
    true = joined(RECORDED)[0]
    assert lines.row.tolist() == true.row.tolist()
    assert [family in note for note in lines.notes] == ([True] if renumbered else [])


def test_such_markers_are_not_joined_by_a_clock_that_is_wrong(tmp_path: Path) -> None:
    lines, _, _ = joined(recorded(tmp_path / "run", clock_ns=5 * SECOND), family="torch")
    assert lines.row is None
    assert "not found" in lines.notes[0]


def test_without_a_clock_only_our_own_markers_are_joined() -> None:
    run = workflows.load(RECORDED)
    trace: Trace = replace(read(run.traces[-1]), origin_unix_ns=None)
    found = periods(trace, 0)
    assert step_lines(trace, found, run).row is not None
    assert step_lines(trace, replace(found, numbered="keras"), run) == StepLines(None)
    assert step_lines(trace, found, None) == StepLines(None)
    assert step_lines(trace, found.keep(np.zeros(len(found), np.bool_)), run) == StepLines(None)
