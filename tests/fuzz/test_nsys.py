"""Exports of Nsight Systems, damaged in many ways: a trace, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import FEW, fuzz


@pytest.mark.parametrize("target", ["nsys"])
def test_no_damage_is_more_than_one_clear_error(target: str) -> None:
    figures = fuzz(target, FEW)
    assert figures["executions"] == FEW
    assert figures["refused"] < 0.95 * FEW  # else the damage is not of the kind that gets far
