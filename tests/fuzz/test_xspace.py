"""XSpace files and the compiled modules in them, damaged in many ways: a trace, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import fuzz


@pytest.mark.parametrize(
    ("target", "count"), [("xspace", 5_000), ("xspace-gz", 1_500), ("hlo", 5_000), ("walk", 1_500)]
)
def test_no_damage_is_more_than_one_clear_error(target: str, count: int) -> None:
    figures = fuzz(target, count)
    assert figures["executions"] == count
    assert figures["refused"] < 0.95 * count  # else the damage is not of the kind that gets far
