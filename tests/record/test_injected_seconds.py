"""Known seconds, put into one place of a training, are in the part of `run_time` that holds it, and in no other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.record.processes import done, done_on_jax

pytestmark = pytest.mark.framework
Trainings = dict[str, tuple[str, ...]]

TRAININGS = (
    "arrays", "tf.data", "PyDataset", "PyDataset of 8 workers", "generator", "two fits", "several steps a call",
    "jit", "run eagerly", "mixed precision", "loop",
)  # fmt: skip
"""Those of `injected.TRAININGS` that there are on TensorFlow and JAX; Keras is not imported to list the tests."""


OFTEN = {
    "tensorflow": ("PyDataset", "several steps a call", "loop"),
    "jax": ("PyDataset of 8 workers", "generator", "two fits", "run eagerly"),
}
"""Those that every change is tried with, on one of the two; the others take minutes."""
RARELY = {backend: tuple(each for each in TRAININGS if each not in often) for backend, often in OFTEN.items()}
CHOSEN = [pytest.param(OFTEN, id="often"), pytest.param(RARELY, id="rarely", marks=pytest.mark.full)]


def rows(folder: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((folder / "measured.json").read_text())
    return found


def test_what_can_be_put_where(keras: Any) -> None:
    """Of 12 trainings and 8 places. What does not apply stands with its reason in `DOES_NOT_APPLY`."""
    from tests.record import injected

    assert (len(injected.TRAININGS), len(injected.HELD_BY)) == (12, 8)
    counted = {name: sum(map(len, injected.cells(name).values())) for name in injected.BACKENDS}
    assert counted == {"tensorflow": 70, "jax": 70, "torch": 56}
    assert set(injected.cells("tensorflow")) == set(injected.cells("jax")) == set(TRAININGS)
    for backend, training, place in injected.DOES_NOT_APPLY:
        assert backend in ("", *injected.BACKENDS)
        assert training in ("", *injected.TRAININGS)
        assert place in ("", *injected.HELD_BY)


def assert_each_is_held(found: list[dict[str, Any]], backend: str, trainings: tuple[str, ...]) -> None:
    from tests.record import injected

    cells = injected.cells_on_own_clock(backend)
    assert [(row["training"], row["place"]) for row in found] == [
        (of, at) for of in cells if of in trainings for at in cells[of]
    ]
    assert [said for row in found for said in injected.wrong(row, backend)] == []


@pytest.mark.parametrize("chosen", CHOSEN)
def test_on_a_clock_of_its_own_on_tensorflow(keras: Any, tmp_path: Path, chosen: Trainings) -> None:
    from tests.record import injected

    injected.on_own_clock(tmp_path, chosen["tensorflow"], "tensorflow")
    assert_each_is_held(rows(tmp_path), "tensorflow", chosen["tensorflow"])


@pytest.mark.parametrize("chosen", CHOSEN)
def test_on_a_clock_of_its_own_on_jax(keras: Any, tmp_path: Path, chosen: Trainings) -> None:
    pytest.importorskip("jax")
    from tests.record import injected

    done_on_jax(injected.on_own_clock_on_jax, tmp_path, TRAININGS="|".join(chosen["jax"]))
    assert_each_is_held(rows(tmp_path), "jax", chosen["jax"])


@pytest.mark.full
@pytest.mark.parametrize("training", TRAININGS)
def test_real_seconds_on_tensorflow(keras: Any, tmp_path: Path, training: str) -> None:
    from tests.record import injected

    folder = tmp_path / training
    done(tmp_path / "said", injected.really_measured, folder, "tensorflow")
    assert [said for row in rows(folder) for said in injected.wrong(row, "tensorflow")] == []


@pytest.mark.full
@pytest.mark.parametrize("training", TRAININGS)
def test_real_seconds_on_jax(keras: Any, tmp_path: Path, training: str) -> None:
    pytest.importorskip("jax")
    from tests.record import injected

    folder = tmp_path / training
    folder.mkdir()
    done_on_jax(injected.really_measured_on_jax, folder)
    assert [said for row in rows(folder) for said in injected.wrong(row, "jax")] == []
