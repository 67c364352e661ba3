"""What two runs of one script differ in is no regression: `check --repeat` judges by the scatter between runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.builders import records
from tests.builders.gpus import V100
from tests.cli.conftest import Mpprof

KEY = "max_step_regression_ratio"


def recorded(folder: Path, name: str, step_ms: float) -> Path:
    layers = records.imagenette_convnet("float16")
    run = records.Recorded(name, V100, "float16", layers, batch=64, step_ms=step_ms, steps=300)
    return records.write(run, folder)


@pytest.fixture
def bounds(mpprof: Mpprof, tmp_path: Path) -> Path:
    """A baseline of 20.0 ms whose repeats take 19.0 and 21.0 ms, and a bound of 10 %."""
    first = recorded(tmp_path / "before", "b1", 20.0)
    recorded(tmp_path / "before", "b2", 19.0)
    recorded(tmp_path / "before", "b3", 21.0)
    assert mpprof("report", first, "--format", "json", "-o", tmp_path / "baseline.json").code == 0
    path = tmp_path / "mpprof.toml"
    path.write_text(f'[bounds]\n{KEY} = 0.1\nbaseline = "baseline.json"\n')
    return path


def said(out: str) -> str:
    (line,) = [line for line in out.splitlines() if KEY in line]
    return line


def test_repeats_take_the_place_of_the_interval_within_the_runs(
    mpprof: Mpprof, bounds: Path, tmp_path: Path
) -> None:
    run = recorded(tmp_path / "after", "a1", 22.5)
    alone = mpprof("check", run, "--bounds", bounds)
    assert alone.code == 1
    assert "failed" in said(alone.out)
    assert "95 %, within this pair of runs; what their repeats would differ in is not in it" in said(
        alone.out
    )
    recorded(tmp_path / "after", "a2", 20.5)
    recorded(tmp_path / "after", "a3", 21.5)
    repeated = mpprof(
        "check",
        run,
        "--bounds",
        bounds,
        "--repeat",
        tmp_path / "after",
        "--baseline-repeat",
        tmp_path / "before",
    )
    assert "cannot" not in said(repeated.out)
    assert said(repeated.out).startswith("unable")  # +7 %, and the runs scatter by 5 %
    assert "by the scatter between 3 and 3 runs" in said(repeated.out)
    assert "within this pair" not in repeated.out


def test_even_runs_that_are_longer_fail_and_repeats_of_one_side_are_enough(
    mpprof: Mpprof, bounds: Path, tmp_path: Path
) -> None:
    run = recorded(tmp_path, "a1", 26.0)
    more = [recorded(tmp_path, f"a{number}", 26.0 + number / 10) for number in (2, 3, 4)]
    done = mpprof("check", run, "--bounds", bounds, "--repeat", *more)
    assert said(done.out).startswith("failed")
    assert "by the scatter between 4 and 1 runs" in said(done.out)


def test_a_run_counts_once_and_on_one_side(mpprof: Mpprof, bounds: Path, tmp_path: Path) -> None:
    run = recorded(tmp_path, "a1", 20.0)
    done = mpprof("check", run, "--bounds", bounds, "--repeat", run, run)
    assert "within this pair of runs" in said(done.out)
    assert said(done.out).endswith("; given twice, and counted once: a1")
    both = mpprof("check", run, "--bounds", bounds, "--repeat", tmp_path / "before")
    assert both.code == 2
    assert "b1 is its own baseline" in both.err


def test_a_repeat_of_another_batch_or_without_a_baseline_is_refused(
    mpprof: Mpprof, bounds: Path, tmp_path: Path
) -> None:
    run, other = recorded(tmp_path, "a1", 20.0), recorded(tmp_path, "a2", 20.0)
    facts = json.loads((other / "mpprof/run.json").read_text())
    facts["fits"][-1]["batch_size"] = 32
    (other / "mpprof/run.json").write_text(json.dumps(facts))
    done = mpprof("check", run, "--bounds", bounds, "--repeat", other)
    assert "cannot be judged: the batch size is 32" in said(done.out)
    bounds.write_text('[bounds]\nforbidden = ["MP104"]\n')
    assert mpprof("check", run, "--bounds", bounds, "--repeat", other).code == 2


@pytest.mark.parametrize("old", ["mean_ns", "mean_interval_ns"])
def test_a_stored_baseline_without_a_mean_or_its_interval_is_unable(
    old: str, mpprof: Mpprof, bounds: Path, tmp_path: Path
) -> None:
    stored = tmp_path / "baseline.json"
    document = json.loads(stored.read_text())
    del document["steps"][old]
    stored.write_text(json.dumps(document))
    done = mpprof("check", recorded(tmp_path, "a1", 20.0), "--bounds", bounds)
    assert done.code == 1
    assert said(done.out).startswith("unable")
    assert ("Store one: mpprof report RUN" in said(done.out)) is (old == "mean_ns")
