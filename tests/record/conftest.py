from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mpprof.record import end_of_fit
from mpprof.record.facts import described
from tests.record import hangs


@pytest.fixture(autouse=True)
def no_clock() -> Iterator[None]:
    """However busy the machine is, no part of mpprof is late in a test."""
    hangs.no_clock()
    yield
    hangs.by_the_clock()


@pytest.fixture(autouse=True)
def no_verdict_was_given() -> None:
    """The first verdict of a process is always given."""
    vars(end_of_fit.VERDICTS).update(vars(end_of_fit.Verdicts()))


@pytest.fixture(scope="session")
def keras() -> Any:
    """Keras on TensorFlow, imported where a test asks for it; without it the test skips."""
    from tests.record.on_tensorflow import keras

    return keras


@pytest.fixture
def looked_at_by_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks at a saved model need not import TensorFlow first."""
    from tests.record.processes import Looking

    monkeypatch.setattr(described, "started", Looking)


@pytest.fixture(scope="module")
def trained(keras: Any) -> Any:
    """One compiled model on TensorFlow, for tests to which it does not matter that others have trained it before."""
    from tests.record.training import model

    return model()
