"""The first remedy's code of a cause, applied as it stands to a training with that cause: judged again, it is gone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.model.finding import Finding
from tests.record.on_tensorflow import keras, tf

pytestmark = [pytest.mark.framework, pytest.mark.full]

FEATURES, CLASSES, BATCH = 16, 4, 8
Names = dict[str, Any]
"""What a user's script has at hand where the code is copied to."""


@pytest.fixture(autouse=True)
def _float32_again() -> Any:
    yield
    keras.config.set_dtype_policy("float32")


def build_model() -> Any:
    inputs = keras.Input((FEATURES,))
    x = keras.layers.Dense(32, activation="relu")(inputs)
    return keras.Model(
        inputs, keras.layers.Activation("linear", dtype="float32")(keras.layers.Dense(CLASSES)(x))
    )


def compiled(model: Any, **options: Any) -> Any:
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), **options)
    return model


def before_its_policy() -> Names:
    model = build_model()
    keras.config.set_dtype_policy("mixed_float16")
    return {"model": compiled(model)}


def without_loss_scaling() -> Names:
    keras.config.set_dtype_policy("mixed_float16")
    return {"model": compiled(build_model(), auto_scale_loss=False)}


def in_eager() -> Names:
    return {"model": compiled(build_model(), run_eagerly=True)}


def with_float16_output() -> Names:
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((FEATURES,))
    x = keras.layers.Dense(32, activation="relu")(inputs)
    outputs = keras.layers.Dense(CLASSES)(x)
    return {"model": compiled(keras.Model(inputs, outputs)), "inputs": inputs, "x": x}


def compiled_anew(names: Names) -> Any:
    return compiled(names["model"])


def of_new_outputs(names: Names) -> Any:
    return compiled(keras.Model(names["inputs"], names["outputs"]))


def as_the_code_left_it(names: Names) -> Any:
    return names["model"]


CASES: dict[str, tuple[Callable[[], Names], Callable[[Names], Any]]] = {
    "MP101": (before_its_policy, compiled_anew),
    "MP102": (without_loss_scaling, as_the_code_left_it),
    "MP106": (with_float16_output, of_new_outputs),
    "MP308": (in_eager, as_the_code_left_it),
}
"""A training with the cause, and what the script goes on with once the code has run."""


def judged(model: Any, root: Path) -> dict[str, Finding]:
    random = np.random.default_rng(3)
    x = random.standard_normal((BATCH * 20, FEATURES)).astype("float32")
    y = random.integers(0, CLASSES, BATCH * 20)
    recorded = mpprof.MPProfilerCallback(root, profile_steps=None, verbose=0, audit=False)
    model.fit(x, y, batch_size=BATCH, epochs=2, verbose=0, callbacks=[recorded])
    return {each.code: each for each in mpprof.diagnose(root).findings}


@pytest.mark.parametrize("code", CASES)
def test_the_first_remedys_code_cures(code: str, tmp_path: Path) -> None:
    plant, then = CASES[code]
    names = plant()
    found = judged(names["model"], tmp_path / "before")
    assert code in found
    snippet = next(each.snippet for each in found[code].remedies if each.snippet)
    names |= {"keras": keras, "tf": tf, "build_model": build_model}
    exec(snippet, names)
    assert code not in judged(then(names), tmp_path / "after"), snippet


def test_a_last_product_that_overflows_is_cured_by_what_its_output_is_told_to_do(tmp_path: Path) -> None:
    """An activation in float32 after it receives infinities; the layer in float32 makes none."""
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((FEATURES,))
    x = keras.layers.Dense(32, activation="relu", bias_initializer="ones")(inputs)
    large = keras.layers.Dense(CLASSES, kernel_initializer=keras.initializers.Constant(3e4))
    model = compiled(keras.Model(inputs, large(x)))
    some = np.ones((BATCH, FEATURES), "float32")
    assert not np.isfinite(model(some)).all()
    snippet = judged(model, tmp_path)["MP106"].remedies[0].snippet
    names: Names = {"keras": keras, "x": x}
    exec(snippet, names)
    cured = keras.Model(inputs, names["outputs"])
    cured.layers[-1].set_weights(model.layers[-1].get_weights())
    assert np.isfinite(cured(some)).all()
