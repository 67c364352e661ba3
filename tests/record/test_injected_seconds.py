"""Known seconds, put into one place of a training, are in the part of `run_time` that holds it, and in no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.record.processes import done, done_on_jax

pytestmark = pytest.mark.framework


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "measured.json").read_text())
    return found


def test_on_a_clock_of_its_own_on_tensorflow(keras: Any, tmp_path: Path) -> None:
    from tests.record import injected

    injected.on_own_clock(tmp_path, "tensorflow")
    found = rows(tmp_path)
    assert {row["training"] for row in found} == set(injected.TRAININGS)
    assert [said for row in found for said in injected.wrong(row, "tensorflow")] == []


def test_on_a_clock_of_its_own_on_jax(keras: Any, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from tests.record import injected

    done_on_jax(injected.on_own_clock, tmp_path)
    found = rows(tmp_path)
    assert "loader" in {row["place"] for row in found}
    assert [said for row in found for said in injected.wrong(row, "jax")] == []


@pytest.mark.full
def test_real_seconds_on_tensorflow(keras: Any, tmp_path: Path) -> None:
    from tests.record import injected

    done(tmp_path / "said", injected.measured, tmp_path)
    # From a second fit's second epoch on Keras itself takes a second or more to make the iterator of a slow
    # PyDataset, in which it asks for no batch: that is found, and was not put there.
    put = [row for row in rows(tmp_path) if (row["training"], row["place"]) != ("PyDataset", "loader")]
    assert [said for row in put for said in injected.wrong(row, "tensorflow")] == []


@pytest.mark.full
def test_real_seconds_on_jax(keras: Any, tmp_path: Path) -> None:
    pytest.importorskip("jax")
    from tests.record import injected

    done_on_jax(injected.measured, tmp_path)
    assert [said for row in rows(tmp_path) for said in injected.wrong(row, "jax")] == []
