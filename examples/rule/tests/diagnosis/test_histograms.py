"""The planted case of the rule, judged alone; tests/planted judges it among all others."""

from pathlib import Path

import pytest

from tests.planted.matrix import CLOSE, diagnosed
from tests.planted.suite import planted


def test_histograms_are_found_at_their_cost_and_their_remedy_shortens_the_step(tmp_path: Path) -> None:
    (case,) = (case for case in planted() if "MP599" in case.twins)
    first = diagnosed(case.training, case.baseline, tmp_path).findings[0]
    assert (first.code, first.severity) == ("MP599", "error")
    assert first.cost_ns_per_step == pytest.approx(case.cost_ns("MP599"), rel=CLOSE)
    assert "step % 100" in first.remedies[0].snippet


def test_a_step_without_histograms_is_clear(tmp_path: Path) -> None:
    (case,) = (case for case in planted() if "MP599" in case.twins)
    twin = case.twins["MP599"]
    assert twin is not None
    assert "MP599" in diagnosed(twin, case.baseline, tmp_path).clear
