"""A run is never its own baseline: it would be "as fast", with an interval."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import FLOAT32, MIXED, Mpprof

SAID = "is its own baseline. Name another run of the same model"


def test_report_and_compare_refuse_it_and_a_copy_of_it(mpprof: Mpprof, tmp_path: Path) -> None:
    copied = shutil.copytree(MIXED, tmp_path / "elsewhere")
    for command in (
        ("report", MIXED, "--baseline", MIXED),
        ("report", MIXED, "--baseline", copied),
        ("compare", copied, MIXED),
        ("compare", FLOAT32, MIXED, FLOAT32),
    ):
        done = mpprof(*command)
        assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
        assert SAID in done.err


def test_a_trace_without_records_is_told_by_its_place(mpprof: Mpprof, tmp_path: Path) -> None:
    (trace,) = MIXED.glob("plugins/**/*.xplane.pb")
    alone = [shutil.copy(trace, tmp_path / name) for name in ("a.xplane.pb", "b.xplane.pb")]
    assert SAID in mpprof("compare", alone[0], alone[0]).err
    assert mpprof("compare", *alone).code == 0


@pytest.mark.parametrize("own", [True, False])
def test_check_refuses_the_report_of_the_run_itself(own: bool, mpprof: Mpprof, tmp_path: Path) -> None:
    stored = tmp_path / "baseline.json"
    assert mpprof("report", MIXED, "--format", "json", "-o", stored).code == 0
    if not own:
        document = json.loads(stored.read_text())
        document["run"]["id"] = "last-week"
        stored.write_text(json.dumps(document))
    bounds = tmp_path / "bounds.toml"
    bounds.write_text('[bounds]\nmax_step_regression_ratio = 0.5\nbaseline = "baseline.json"\n')
    done = mpprof("check", MIXED, "--bounds", bounds)
    assert (done.code, SAID in done.err) == ((2, True) if own else (0, False))
