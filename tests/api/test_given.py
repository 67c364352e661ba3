"""What `load`, `diagnose` and `compare` take: paths, runs, or lists of either."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import mpprof
from mpprof.errors import SeveralRunsError, UsageError
from mpprof.model.finding import Diagnosis
from tests.cli.conftest import FLOAT32, MIXED


def test_load_takes_a_path_a_run_or_a_list_of_either() -> None:
    run = mpprof.load(str(MIXED))
    assert mpprof.load(run) is run
    assert [each.name for each in mpprof.load([FLOAT32, run])] == [FLOAT32.name, MIXED.name]
    assert mpprof.load(()) == ()


def test_diagnose_takes_a_path_a_run_or_a_list_of_either() -> None:
    by_path = mpprof.diagnose(str(MIXED), FLOAT32)
    assert isinstance(by_path, Diagnosis)
    assert by_path.verdict == mpprof.diagnose(mpprof.load(MIXED), mpprof.load(FLOAT32)).verdict
    several = mpprof.diagnose([MIXED, mpprof.load(FLOAT32)])
    assert [each.run.name for each in several] == [MIXED.name, FLOAT32.name]
    assert several[0].verdict == mpprof.diagnose(MIXED).verdict


def test_compare_takes_paths_runs_or_lists_of_either(tmp_path: Path) -> None:
    for run in (FLOAT32, MIXED):
        shutil.copytree(run, tmp_path / run.name)
    by_list = mpprof.compare([mpprof.load(FLOAT32), str(MIXED)])
    apart = mpprof.compare(FLOAT32, mpprof.load(MIXED))
    folder = mpprof.compare(tmp_path)  # all of its runs, oldest first
    observed = [rung.speedup.observed for rung in by_list.rungs if rung.speedup]
    assert observed
    assert [rung.speedup.observed for rung in apart.rungs if rung.speedup] == observed
    assert {each.run.name for each in folder.runs} == {FLOAT32.name, MIXED.name}
    with pytest.raises(SeveralRunsError, match=r"load\(path, run="):
        mpprof.diagnose(tmp_path)
    with pytest.raises(UsageError, match="two runs"):
        mpprof.compare(FLOAT32)


@pytest.mark.parametrize("wrong", [3, None, b"logs", {"run"}])
def test_what_is_no_run_is_said_to_be_none(wrong: object) -> None:
    for ask in (mpprof.load, mpprof.diagnose, mpprof.compare):
        with pytest.raises(UsageError, match=f"^{type(wrong).__name__} is not a run"):
            ask(wrong)
