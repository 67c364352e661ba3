"""Exports of Nsight Systems, damaged in many ways: a trace, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import counts, fuzz


@pytest.mark.parametrize(("target", "count"), counts("nsys"))
def test_no_damage_is_more_than_one_clear_error(target: str, count: int) -> None:
    figures = fuzz(target, count)
    assert figures["executions"] == count
    assert figures["refused"] < 0.95 * count  # else the damage is not of the kind that gets far
