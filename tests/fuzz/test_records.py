"""Our own files and Nsight Compute's tables, damaged in many ways: records, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import FEW, fuzz


@pytest.mark.parametrize("target", ["run", "steps", "hardware", "verdicts", "counters"])
def test_no_damage_is_more_than_one_clear_error(target: str) -> None:
    figures = fuzz(target, FEW)
    assert figures["executions"] == FEW
    assert figures["refused"] < 0.95 * FEW  # else the damage is not of the kind that gets far
