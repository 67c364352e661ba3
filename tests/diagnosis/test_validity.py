"""Is the measurement good enough to judge by? Runs by their records alone, each with one thing wrong."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest

from mpprof.analysis.steps.statistics import per_step_ns, steady
from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from mpprof.report import json as documents
from tests.builders.gpus import V100
from tests.builders.read_back import text
from tests.builders.records import Recorded, imagenette_convnet, write


def recorded(dtype: str = "float16", step_ms: float = 20.0, **facts) -> Recorded:  # type: ignore[no-untyped-def]
    return Recorded(dtype, V100, dtype, imagenette_convnet(dtype), 64, step_ms, **facts)


def judged(tmp_path: Path, run: Recorded, baseline: Recorded | None = None) -> Diagnosis:
    other = workflows.load(write(baseline, tmp_path)) if baseline else None
    return workflows.diagnose(workflows.load(write(run, tmp_path)), other)


def severities(found: Diagnosis) -> dict[str, str]:
    return {finding.code: finding.severity for finding in found.findings}


@pytest.mark.parametrize("steps", [4, 5])
def test_a_few_steps_give_no_speedup_and_the_verdict_says_so(tmp_path, steps: int) -> None:
    found = judged(tmp_path, recorded(steps=steps), recorded("float32", 40.0))
    assert (found.speedup.observed, found.speedup.interval) == (None, None)
    steady = found.steps.steady if found.steps else 0
    assert 0 < steady < 6
    why = str((found.speedup.absent or {})["observed"])
    assert why.endswith(" steady steps; an observed speedup needs 6 in each run")
    assert f"No speedup is stated: {why}." in found.explanation
    assert severities(found)["MP911"] == "warning"
    assert f"no observed speedup ({why})" in text.render(documents.document(found), width=200)


def test_one_step_alone_is_called_one_step(tmp_path) -> None:
    found = judged(tmp_path, recorded(steps=3))
    assert found.steps.steady == 1
    assert found.verdict == "Only 1 steady step was recorded: step times are uncertain."


def test_enough_steps_have_an_error_bar_and_the_verdict_no_caveat(tmp_path) -> None:
    found = judged(tmp_path, recorded(), recorded("float32", 40.0))
    low, high = found.speedup.interval or (0.0, 0.0)
    assert low < 2.0 < high
    assert high - low < 0.02
    assert "is stated" not in " ".join(found.explanation)
    assert "MP911" not in severities(found)


@pytest.mark.parametrize(("step_ms", "told"), [(20.0, True), (20.3, False), (19.7, False)])
def test_no_measurable_difference_is_said_where_it_is_the_truth(tmp_path, step_ms: float, told: bool) -> None:
    noisy = {"noise": 0.01, "steps": 400}
    found = judged(tmp_path, recorded(step_ms=step_ms, seed=5, **noisy), recorded("float32", 20.0, **noisy))
    assert ("brings nothing here" in found.verdict) is told
    shown = text.render(documents.document(found), width=200)
    assert ("no measurable difference)" in shown) is told


def test_warm_up_ends_where_the_times_change_and_not_at_a_fixed_step(tmp_path) -> None:
    found = judged(tmp_path, recorded(factor=lambda number: 6.0 - number / 8 if number <= 37 else 1.0))
    assert found.steps.median_ns == pytest.approx(20e6, rel=0.01)
    assert found.steps.first_steady in range(36, 40)


def test_long_steps_are_named_and_do_not_move_the_median(tmp_path) -> None:
    found = judged(tmp_path, recorded(steps=200, factor=lambda number: 40.0 if number % 25 == 0 else 1.0))
    assert found.steps.median_ns == pytest.approx(20e6, rel=0.01)
    assert "MP902" not in severities(found)  # nothing on record says that these steps were compiled
    (unable,) = [unable for unable in found.unable if unable.code == "MP902"]
    assert "neither a trace count nor a compile event" in unable.reason
    (doubt,) = found.warnings
    assert "median 20.0 ms: every 25th step takes 801 ms: it stalls within the training function" in doubt
    assert found.steps.mean_ns == pytest.approx(20e6 * (1 + 39 / 25), rel=0.05)
    once = judged(
        tmp_path / "once", recorded(steps=200, factor=lambda number: 20.0 if number == 100 else 1.0)
    )
    assert "MP902" in once.clear
    assert once.warnings == ()


def test_steps_that_become_slower_are_a_cause_and_those_that_become_faster_a_doubt(tmp_path) -> None:
    slower = judged(tmp_path / "slower", recorded(steps=300, factor=lambda number: 1.0 + number / 1500))
    assert "MP807" in severities(slower)
    faster = judged(tmp_path / "faster", recorded(steps=300, factor=lambda number: 1.3 - number / 1500))
    assert "MP807" not in severities(faster)
    (said,) = [warning for warning in faster.warnings if "shorter from the first third" in warning]
    assert "train longer" in said


def test_two_kinds_of_steps_are_told_apart(tmp_path) -> None:
    chosen = random.Random(7)
    kinds = {number: 1.5 if chosen.random() < 0.3 else 1.0 for number in range(1, 301)}
    found = judged(tmp_path, recorded(steps=300, factor=kinds.__getitem__))
    (said,) = [warning for warning in found.warnings if "two kinds" in warning]
    assert "20.0 ms and 30.0 ms" in said
    assert "two kinds" in text.render(documents.document(found))


def test_a_steady_run_raises_no_doubt(tmp_path) -> None:
    assert judged(tmp_path, recorded(steps=300, noise=0.02)).warnings == ()


def test_what_the_host_took_is_never_the_step_of_a_backend_that_runs_ahead(tmp_path) -> None:
    found = judged(tmp_path, recorded(steps=320, dispatch_ms=0.4))
    assert found.steps.median_ns == pytest.approx(20e6, rel=0.01)
    assert found.steps.interval_ns is not None
    assert found.steps.steady > 200  # each wait stands for the steps before it


def test_few_waits_that_stand_for_many_steps_have_a_wide_interval(tmp_path) -> None:
    """Three means of 16 steps: too few for the interval of a median, and Student's of the mean is wide."""
    found = judged(tmp_path, recorded(steps=80, dispatch_ms=0.4), recorded("float32", 40.0))
    assert found.steps.steady > 40
    low, high = found.steps.interval_ns
    times = per_step_ns(found.run.steps)[steady(found.run.steps)]
    assert len(times) == 3
    half = 4.303 * np.std(times, ddof=1) / 3**0.5  # the quantile of two degrees of freedom
    assert (low, high) == pytest.approx((times.mean() - half, times.mean() + half))
    assert found.speedup.observed is not None
    assert found.speedup.interval is not None


def test_a_single_wait_is_one_timing_however_many_steps_it_stands_for(tmp_path) -> None:
    found = judged(tmp_path, recorded(steps=40, dispatch_ms=0.4), recorded("float32", 40.0))
    assert found.steps.interval_ns is None
    assert found.speedup.observed == pytest.approx(2.0, rel=0.05)
    assert found.speedup.difference == "not known"
    assert found.verdict.startswith("The timings do not show whether mixed precision is faster than float32")
