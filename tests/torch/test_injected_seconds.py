"""Known seconds, put into one place of a training on torch, are in the part of `run_time` that holds it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.record import injected


@pytest.mark.full
def test_real_seconds_on_torch(tmp_path: Path) -> None:
    injected.measured(tmp_path, kinds={name: injected.TRAININGS[name] for name in ("PyDataset", "arrays")})
    rows = json.loads((tmp_path / "measured.json").read_text())
    assert [said for row in rows for said in injected.wrong(row, "torch")] == []
