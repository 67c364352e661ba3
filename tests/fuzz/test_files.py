"""Every kind of file that is read, damaged in many ways: what can be read of it, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import FEW, fuzz
from tests.fuzz.targets import TARGETS


@pytest.mark.parametrize("target", [each.name for each in TARGETS if not each.name.startswith("command-")])
def test_no_damage_is_more_than_one_clear_error(target: str) -> None:
    figures = fuzz(target, FEW)
    assert figures["executions"] == FEW
    assert figures["refused"] < 0.95 * FEW  # else the damage is not of the kind that gets far
