"""A loader that delivers eight batches at once is as fast as one that delivers each alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.builders import records
from tests.builders.gpus import V100
from tests.cli.conftest import Mpprof


def recorded(
    folder: Path, name: str, step_ms: float, factor: Callable[[int], float] = lambda number: 1.0
) -> Path:
    dtype = "float32" if name == "one-worker" else "float16"
    run = records.Recorded(
        name,
        V100,
        dtype,
        records.imagenette_convnet(dtype),
        batch=32,
        step_ms=step_ms,
        steps=600,
        noise=0.02,
        factor=factor,
    )
    return records.write(run, folder)


@pytest.fixture
def even(tmp_path: Path) -> Path:
    return recorded(tmp_path, "one-worker", 44.0)


def test_bursts_are_no_speedup(mpprof: Mpprof, even: Path, tmp_path: Path) -> None:
    """Seen: 42.6 and 1.70 ms by the median, "observed 25.0x (22.0x to 27.1x)", and --min-speedup 2 passed."""
    bursty = recorded(tmp_path, "eight-workers", 1.7, lambda number: 200.0 if number % 8 == 0 else 1.0)
    step = json.loads(mpprof("compare", even, bursty, "--format", "json").out)["steps"][0]
    low, high = step["interval"]
    assert 0.97 < low < step["observed"] < high < 1.07
    assert step["difference"] in ("none", "faster")
    assert mpprof("compare", even, bursty, "--min-speedup", "2").code == 1
    assert "within this pair of runs" in mpprof("compare", even, bursty, "-v").out


def test_three_long_stalls_leave_it_open_and_say_why(mpprof: Mpprof, even: Path, tmp_path: Path) -> None:
    stalled = recorded(tmp_path, "stalled", 20.0, lambda number: 150.0 if number in (200, 350, 500) else 1.0)
    done = mpprof("compare", even, stalled, "--min-speedup", "1.1")
    assert done.code == 1
    assert "without an interval: stalled: too few stalls (3)" in done.err
    assert "no interval: stalled: too few stalls (3)" in " ".join(done.out.split())
    report = json.loads(mpprof("report", stalled, "--baseline", even, "--format", "json").out)
    assert report["speedup"]["observed"] == pytest.approx(44.0 / (20.0 + 3 * 149 * 20 / 600), rel=0.03)
    assert report["speedup"]["interval"] is None
    assert report["speedup"]["difference"] == "not known"
    assert report["absent"]["speedup.interval"] == "stalled: too few stalls (3)"
    assert report["absent"]["steps.mean_interval_ns"] == "too few stalls (3)"
    assert "too few stalls (3)" in " ".join(report["answer"]["because"])


ONE_STALL = [
    ("run", 55.0, "slower"),
    ("run", 20.0, "faster"),
    ("run", 43.5, "not known"),
    ("one-worker", 30.0, "faster"),
    ("one-worker", 45.0, "not known"),
]


@pytest.mark.parametrize(("stalled", "step_ms", "tells"), ONE_STALL)
def test_one_stall_leaves_the_ratio_open_and_not_the_sign(
    mpprof: Mpprof, tmp_path: Path, stalled: str, step_ms: float, tells: str
) -> None:
    """Seen: 0.81x, of a run each of whose steps was longer than all of the baseline's, was "not certain"."""

    def once(number: int) -> float:
        return 60.0 if number == 300 else 1.0  # about a tenth of the time

    def never(number: int) -> float:
        return 1.0

    baseline = recorded(tmp_path, "one-worker", 44.0, once if stalled == "one-worker" else never)
    run = recorded(tmp_path, "run", step_ms, once if stalled == "run" else never)
    report = json.loads(mpprof("report", run, "--baseline", baseline, "--format", "json").out)
    assert report["speedup"]["interval"] is None
    assert report["speedup"]["difference"] == tells
    assert report["absent"]["speedup.interval"] == f"{stalled}: too few stalls (1)"
    text = " ".join(mpprof("report", run, "--baseline", baseline).out.split())
    assert ("do not show whether" in text) == (tells == "not known")
    assert (f"It is {tells} with and without stalls; the figure has no interval" in text) == (
        tells != "not known"
    )
    assert mpprof("compare", baseline, run, "--min-speedup", "1").code == 1  # by how much is not known


def test_runs_of_one_name_are_told_apart_by_their_directories(mpprof: Mpprof, tmp_path: Path) -> None:
    runs = [recorded(tmp_path / where / "new", "log", 20.0) for where in ("a", "b")]
    facts = runs[0] / "mpprof" / "run.json"
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"run_id": "another"}))
    assert "a/new/log → b/new/log" in mpprof("compare", *runs).out
    names = [
        run["run"]["name"] for run in json.loads(mpprof("compare", *runs, "--format", "json").out)["runs"]
    ]
    assert names == ["a/new/log", "b/new/log"]


def test_on_a_cpu_no_speed_is_stated_above_timings_that_do_not_show_it(
    mpprof: Mpprof, tmp_path: Path
) -> None:
    def on_a_cpu(name: str, step_ms: float, noise: float) -> Path:
        layers = records.imagenette_convnet("float32")
        run = records.Recorded(
            name, None, "float32", layers, 32, step_ms, steps=40, noise=noise, seed=len(name)
        )
        return records.write(run, tmp_path)

    before = on_a_cpu("before", 20.0, 0.4)
    unsure = json.loads(mpprof("compare", before, on_a_cpu("unsure", 18.5, 0.4), "--format", "json").out)
    (step,) = unsure["steps"]
    assert step["difference"] == "not known"
    assert "as fast as" not in step["answer"]["label"]
    low, high = step["interval"]
    assert step["answer"]["label"].endswith(f"x ({low:.2f}x to {high:.2f}x)")
    sure = json.loads(mpprof("compare", before, on_a_cpu("sure", 5.0, 0.01), "--format", "json").out)
    assert "x as fast as the baseline" in sure["steps"][0]["answer"]["label"]
