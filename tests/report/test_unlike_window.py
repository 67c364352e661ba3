"""A window in which the profiler made steps twice as long: shares are of the profiled step, and it is said why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards.export import render
from mpprof_dashboards.pages import why

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from mpprof.report import json as documents
from tests.builders.read_back import markdown, reading, text
from tests.planted.generator import JAX_HOST, Planted, written
from tests.planted.suite import planted

why = reading(why)

UNLIKE = "The window is not representative: profiled steps take"


@pytest.fixture(scope="module")
def launches() -> Planted:
    return next(case for case in planted() if case.name == "jax-a100-launches")


@pytest.fixture(scope="module")
def found(launches: Planted, tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    return judged(launches, tmp_path_factory.mktemp("unlike"), profiled=2.4)


def judged(case: Planted, folder: Path, profiled: float) -> Diagnosis:
    host = replace(case.training.host, profiled=profiled)
    run = workflows.load(written(replace(case.training, host=host), folder))
    assert case.baseline is not None
    return workflows.diagnose(run, workflows.load(written(case.baseline, folder)))


@pytest.fixture(scope="module")
def report(found: Diagnosis) -> Any:
    return documents.document(found)


def shares_of(lines: list[str]) -> list[float]:
    marked = [line.split("|")[3] for line in lines if line.startswith("| ") and "%" in line]
    return [float(share.strip(" %")) for share in marked]


def test_no_share_is_above_the_whole_and_nothing_is_taken_off(report: Any) -> None:
    shown = markdown.render(report)
    shares = shares_of(shown.partition("Kernels above")[0].splitlines())
    assert max(shares) == 100.0
    assert min(shares) >= 0.0
    assert "| profiling |" not in shown
    assert "| class | per profiled step, 5 steps |" in shown
    assert report["time"] is not None
    assert sum(part["ns_per_step"] for part in report["time"]["slices"]) == pytest.approx(
        report["time"]["step_ns"]
    )


def test_every_rendering_says_that_the_window_is_not_representative_and_why(report: Any) -> None:
    page = "".join(render(part) for part in why.content(report))
    for said in (text.render(report), markdown.render(report), page):
        words = " ".join(said.split())
        assert UNLIKE in words
        assert "the profiler makes them longer" in words


def test_the_figure_adds_up_to_the_profiled_step(report: Any) -> None:
    assert report["time"] is not None
    rows = why.account_rows(report["time"])
    assert rows[-1].name == "Profiled step"
    assert sum(row.length_ns for row in rows[:-1]) == pytest.approx(rows[-1].length_ns)
    assert "profiling" not in [row.key for row in rows]


def test_the_gap_is_not_split_by_it(found: Diagnosis, report: Any) -> None:
    assert found.speedup.observed is not None
    assert found.speedup.slices == ()
    assert "not representative" in (found.speedup.absent or {})["slices"]
    assert all(finding.lost_ratio is None for finding in found.findings)
    assert "% of the loss" not in text.render(report)


def test_a_window_like_the_run_is_shown_as_before(launches: Planted, tmp_path: Path) -> None:
    alike = judged(launches, tmp_path, profiled=JAX_HOST.profiled)
    assert alike.unlike is None
    assert alike.speedup.slices
    shown = markdown.render(documents.document(alike))
    assert "| class | per step, 5 steps |" in shown
    assert "not representative" not in shown
