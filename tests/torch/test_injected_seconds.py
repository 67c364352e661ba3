"""Known seconds, put into one place of a training on torch, are in the part of `run_time` that holds it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.record import injected
from tests.torch.training import keras  # noqa: F401  which skips these tests where torch is not installed


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "measured.json").read_text())
    return found


def test_on_a_clock_of_its_own_on_torch(tmp_path: Path) -> None:
    injected.on_own_clock(tmp_path, injected.TRAININGS, "torch")
    assert [said for row in rows(tmp_path) for said in injected.wrong(row, "torch")] == []


@pytest.mark.full
@pytest.mark.parametrize("training", injected.cells("torch"))
def test_real_seconds_on_torch(tmp_path: Path, training: str) -> None:
    folder = tmp_path / training
    injected.really_measured(folder, "torch")
    assert [said for row in rows(folder) for said in injected.wrong(row, "torch")] == []
