"""`mpprof report` on a directory of several runs: a pair needs no options, all others a choice."""

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import FLOAT32, MIXED, Mpprof
from tests.paths import SAMPLES


def holding(folder: Path, *runs: Path) -> Path:
    for run in runs:
        shutil.copytree(run, folder / run.name)
    return folder


def test_of_a_pair_the_mixed_run_is_compared_with_the_other(mpprof: Mpprof, tmp_path: Path) -> None:
    logs = holding(tmp_path / "logs", FLOAT32, MIXED)
    done = mpprof("report", logs, "--format", "json")
    named = mpprof("report", MIXED, "--baseline", FLOAT32, "--format", "json")
    assert done.code == 0
    assert f"{MIXED.name} is compared with {FLOAT32.name}" in done.err
    assert json.loads(done.out)["facts"] == json.loads(named.out)["facts"]
    assert f"mpprof report {logs} -v" in mpprof("report", logs).out


def test_whoever_names_a_run_or_a_baseline_gets_what_was_named(mpprof: Mpprof, tmp_path: Path) -> None:
    logs = holding(tmp_path / "logs", FLOAT32, MIXED)
    alone = mpprof("report", logs, "--run", MIXED.name, "--format", "json")
    assert json.loads(alone.out)["facts"]["observed"] is None
    assert alone.err == ""
    assert mpprof("report", logs, "--baseline", FLOAT32).code == 2  # which run is not said


def test_no_pair_and_more_runs_than_a_pair_ask_for_a_choice(mpprof: Mpprof, tmp_path: Path) -> None:
    other = SAMPLES / "a100-launch-bound-float32"
    for number, runs in enumerate([(other, MIXED), (FLOAT32, other), (FLOAT32, MIXED, other)]):
        done = mpprof("report", holding(tmp_path / str(number), *runs))
        assert done.code == 2
        assert f"{len(runs)} runs lie here" in done.err


@pytest.mark.parametrize("command", ["report", "kernels", "memory"])
def test_a_choice_is_made_from_the_table_of_ls_with_whole_names(
    command: str, mpprof: Mpprof, tmp_path: Path
) -> None:
    logs = holding(tmp_path / "logs", FLOAT32, MIXED, SAMPLES / "a100-launch-bound-float32")
    done = mpprof(command, logs)
    assert done.code == 2
    head, titles, *rows = done.err.strip().splitlines()
    assert "3 runs lie here. Choose one with --run NAME or --run latest:" in head
    assert titles.split() == ["run", "policy", "card", "batch", "step", "state", "written"]
    assert [row.split()[0] for row in rows] == [
        run["run"] for run in json.loads(mpprof("ls", logs, "--format", "json").out)
    ]
    assert mpprof(command, logs, "--run", rows[0].split()[0]).code == 0
