"""Our own files and Nsight Compute's tables, damaged in many ways: records, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import fuzz


@pytest.mark.parametrize(
    ("target", "count"),
    [("run", 5_000), ("steps", 5_000), ("hardware", 5_000), ("verdicts", 5_000), ("counters", 5_000)],
)
def test_no_damage_is_more_than_one_clear_error(target: str, count: int) -> None:
    figures = fuzz(target, count)
    assert figures["executions"] == count
    assert figures["refused"] < 0.95 * count  # else the damage is not of the kind that gets far
