"""Profiled steps that differ much: their mean stands for none of them, so their spread stands beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders import unmarked
from tests.builders.read_back import brief, markdown, text

UNLIKE_US = (115_000, 1_021_000, 1_076_000)


def report(folder: Path, lengths_us: tuple[float, ...], unit: str = "step") -> Any:
    path = folder / "steps.pt.trace.json"
    path.write_bytes(unmarked.lasting(lengths_us, unit).text())
    return documents.document(workflows.diagnose(path))


def said(document: Any) -> list[str]:
    """The first screen, the whole text, and markdown, each on one line."""
    return [" ".join(each.render(document).split()) for each in (brief, text, markdown)]


def test_a_mean_of_unlike_steps_comes_with_their_spread(tmp_path: Path) -> None:
    document = report(tmp_path, UNLIKE_US)
    assert document["time"]["step_ns"] == pytest.approx(737.333e6, abs=1e3)
    assert document["time"]["spread"] == {
        "shortest_ns": 115e6, "median_ns": 1_021e6, "longest_ns": 1_076e6,
    }  # fmt: skip
    assert all("115 ms to 1.08 s, median 1.02 s" in each for each in said(document))
    assert "step 737 ms (mean of 3 steps of 115 ms to 1.08 s, median 1.02 s)" in said(document)[0]


def test_a_mean_beyond_its_steps_counts_what_lies_between_them(tmp_path: Path) -> None:
    """Seen on JAX: "706 µs (mean of 3 steps of 174 µs to 285 µs)"."""
    document = report(tmp_path, UNLIKE_US)
    document["time"]["spread"] = {"shortest_ns": 115e6, "median_ns": 120e6, "longest_ns": 300e6}
    assert (
        "step 737 ms (mean of 3 steps; 115 ms to 300 ms without what lies between them, median 120 ms)"
        in said(document)[0]
    )


@pytest.mark.parametrize(("unit", "name"), [("pass", "3 passes"), ("part", "2 repeating parts")])
def test_passes_and_parts_have_theirs_under_their_own_name(tmp_path: Path, unit: str, name: str) -> None:
    document = report(tmp_path, UNLIKE_US, unit)
    found = document["time"]["spread"]
    assert found["longest_ns"] > 3 * found["shortest_ns"]
    assert f"(mean of {name} of " in said(document)[0]
    for each in said(document)[1:]:
        assert f"profiled {name.partition(' ')[2]} of " in each


@pytest.mark.parametrize("lengths_us", [(1_000_000, 1_021_000, 1_076_000), (1_021_000,)])
def test_steps_that_agree_and_a_single_one_have_none(tmp_path: Path, lengths_us: tuple[float, ...]) -> None:
    document = report(tmp_path, lengths_us)
    assert "spread" not in document["time"]
    assert not any("mean of" in each or "median" in each for each in said(document)[:1])


@pytest.mark.parametrize(("short_us", "shown"), [(620_000, True), (640_000, False)])
def test_the_limit_is_a_deviation_of_a_fifth_of_the_mean(
    tmp_path: Path, short_us: float, shown: bool
) -> None:
    assert ("spread" in report(tmp_path, (short_us, 1_000_000, 1_000_000))["time"]) is shown
