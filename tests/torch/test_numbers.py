"""Numbers by layer with Keras on torch: breaks are named, twins are silent, nothing changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torch.training import keras

pytest.importorskip("ml_dtypes")

from tests.numerics import lost_updates, oracle, planted, setups

pytestmark = pytest.mark.framework


@pytest.mark.parametrize("name", [name for name in planted.PLANTED if name not in planted.NOT_ON_TORCH])
def test_a_planted_break_is_named_and_its_twin_is_silent(name: str) -> None:
    assert planted.said_of([name]) == {name: []}


@pytest.mark.parametrize("name", list(setups.SETUPS))
def test_state_and_training_are_bit_identical_after_a_look(name: str) -> None:
    assert keras.backend.backend() == "torch"
    assert setups.changed(name) == []


@pytest.mark.parametrize("name", list(setups.SETUPS))
def test_a_training_that_is_looked_at_is_bit_identical(name: str, tmp_path: Path) -> None:
    assert setups.changed_by_fit(name, tmp_path / "run") == []


def test_what_is_counted_is_what_numpy_counts() -> None:
    assert oracle.differences() == []


def test_what_an_update_loses_is_what_numpy_loses() -> None:
    assert lost_updates.wrong() == []
