"""The first remedy's code of a cause, applied as it stands to a training with that cause: judged again, it is gone, or
asks for that code no more where `curing.STAYS` says why.

The scripts are in `curing`; those for Keras on torch are run by `tests/torch`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.diagnosis.rules import ALL
from tests.record import curing
from tests.record.curing import JAX, KERAS_2, SCRIPTS, TF
from tests.record.on_tensorflow import keras
from tests.record.processes import done, done_on_jax

pytestmark = pytest.mark.framework
LIGHT = [key for key, script in SCRIPTS.items() if script.light]


def on_jax(folder: Path) -> None:
    done_on_jax(curing.on_jax, folder)


def in_a_process(name: str) -> Callable[[Path], object]:
    return lambda folder: done(folder / "said", curing.all_of, name, folder)


HOW: dict[str, Callable[[Path], object]] = {
    TF: in_a_process(TF),
    JAX: on_jax,
    KERAS_2: in_a_process(KERAS_2),
}


def test_every_cause_is_tried_or_has_a_reason_why_not() -> None:
    tried = {script.code for script in SCRIPTS.values()}
    assert tried.isdisjoint(curing.NOT_TRIED)
    wrong = (tried | set(curing.NOT_TRIED)) ^ {rule.CODE for rule in ALL}
    assert not wrong, f"try it in SCRIPTS of tests/record/curing.py, or say why not in its NOT_TRIED: {wrong}"
    assert {script.code for script in SCRIPTS.values() if script.stays} == set(curing.STAYS)


@pytest.mark.parametrize("key", LIGHT)
def test_the_first_remedys_code_cures(key: str, tmp_path: Path) -> None:
    curing.assert_cured({key: vars(curing.cure(SCRIPTS[key], TF, tmp_path))}, key)


@pytest.fixture(scope="module")
def became(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Any]:
    """What became of the causes on a framework; each is trained on once."""
    known: dict[str, Any] = {}

    def results(name: str) -> Any:
        if name not in known:
            pytest.importorskip(name)
            folder = tmp_path_factory.mktemp(name)
            known[name] = {}  # where the process fails the first test says why, and none begins it again
            HOW[name](folder)
            known[name] = json.loads((folder / "cured.json").read_text())
        return known[name]

    return results


@pytest.mark.full
@pytest.mark.parametrize(("name", "key"), [(name, key) for name in HOW for key in curing.tried(name)])
def test_it_cures_on_every_framework(name: str, key: str, became: Callable[[str], Any]) -> None:
    curing.assert_cured(became(name), key)


@pytest.mark.full
@pytest.mark.parametrize("name", HOW)
def test_what_finds_the_first_value_that_is_not_finite_stops_there(
    name: str, became: Callable[[str], Any]
) -> None:
    curing.assert_located(became(name), name)


@pytest.mark.full
def test_a_last_product_that_overflows_is_cured_by_what_its_output_is_told_to_do(tmp_path: Path) -> None:
    """An activation in float32 after it receives infinities; the layer in float32 makes none."""
    snippet = curing.run(SCRIPTS["MP106"], TF, tmp_path)["MP106"][0]
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((curing.FEATURES,))
    x = keras.layers.Dense(32, activation="relu", bias_initializer="ones")(inputs)
    large = keras.layers.Dense(curing.CLASSES, kernel_initializer=keras.initializers.Constant(3e4))
    model = keras.Model(inputs, large(x))
    some = np.ones((curing.BATCH, curing.FEATURES), "float32")
    assert not np.isfinite(model(some)).all()
    names: dict[str, Any] = {"keras": keras, "x": x}
    exec(snippet, names)
    cured = keras.Model(inputs, names["outputs"])
    keras.config.set_dtype_policy("float32")
    cured.layers[-1].set_weights(model.layers[-1].get_weights())
    assert np.isfinite(cured(some)).all()
