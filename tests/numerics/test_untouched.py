"""A look changes nothing: neither what a model holds nor the training after it."""

from __future__ import annotations

import pytest

from tests.numerics.on_tensorflow import setups

pytestmark = pytest.mark.framework
FEW = ("dropout", "plain attributes")
"""Seed generators, and attributes with the generators of Python and NumPy."""


@setups.AS_KERAS_WARNS
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.full) for name in setups.SETUPS]
)
def test_state_and_training_are_bit_identical_after_a_look(name: str) -> None:
    assert setups.changed(name) == []
