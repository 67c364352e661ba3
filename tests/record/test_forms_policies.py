"""Mixed precision in its forms, each trained for real on the CPU: what is recorded, and what the report says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.model.finding import Diagnosis
from tests.record.on_tensorflow import keras, tf
from tests.record.training import BATCH, CLASSES, FEATURES, callback, data

pytestmark = [
    pytest.mark.framework,
    pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning"),
]

STEPS = 12


@dataclass(frozen=True)
class Trained:
    run: dict[str, Any]
    diagnosis: Diagnosis
    skipped: int

    @property
    def fit(self) -> dict[str, Any]:
        return dict(self.run["fits"][-1])

    def layer(self, name: str) -> dict[str, Any]:
        return next(dict(one) for one in self.run["model"]["layers"] if one["name"] == name)

    def found(self, code: str) -> str | None:
        """ "severity: summary" of a cause; None where it was not found."""
        return next((f"{f.severity}: {f.summary}" for f in self.diagnosis.findings if f.code == code), None)


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    yield
    keras.config.set_dtype_policy("float32")


def built(policy: str, *, end: str | None = "float32", hidden: str | None = None, **compiling: Any) -> Any:
    """Two dense layers and a softmax. `hidden`, `end`: policies of the first and of the last layer alone."""
    keras.utils.set_random_seed(11)
    keras.config.set_dtype_policy(policy)
    layers = keras.layers
    made = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(16, activation="relu", name="hidden", **({"dtype": hidden} if hidden else {})),
            layers.Dense(CLASSES, name="head"),
            layers.Activation("softmax", name="end", **({"dtype": end} if end else {})),
        ]
    )
    made.compile(loss="sparse_categorical_crossentropy", **{"optimizer": "adam", **compiling})
    return made


def trained(tmp_path: Path, made: Any, bad_steps: tuple[int, ...] = ()) -> Trained:
    x, y = data(STEPS, bad_steps)
    recorded = callback(tmp_path)
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[recorded])
    run = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    return Trained(run, mpprof.diagnose(mpprof.load(tmp_path)), recorded.result().skipped)


@dataclass(frozen=True)
class Form:
    make: Callable[[], Any]
    policy: tuple[str, str, str]  # the process', the model's compute and variable dtype
    optimizer: dict[str, Any]
    verdict: str  # how the run is called
    finds: dict[str, str] = field(default_factory=dict)  # code -> words
    not_found: tuple[str, ...] = ("MP102", "MP106")
    skips: int = 0


DYNAMIC = {
    "class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True, "initial_scale": 2.0**15, "growth_steps": 2000,
    "slots": 2,
}  # fmt: skip
PLAIN = {"class": "Adam", "slots": 2}

FORMS = {
    "a global policy": Form(
        lambda: built("mixed_float16"), ("mixed_float16", "float16", "float32"), DYNAMIC, "mixed_float16", skips=1
    ),
    "mixed bfloat16": Form(
        lambda: built("mixed_bfloat16"), ("mixed_bfloat16", "bfloat16", "float32"), PLAIN, "mixed_bfloat16"
    ),
    "policies of single layers": Form(
        lambda: built("float32", hidden="mixed_float16"), ("float32", "float32", "float32"), PLAIN, "mixed_float16",
        {"MP102": "warning: 1 layers compute in float16 (hidden), but Adam does not scale the loss"}, ("MP106",),
    ),
    "pure float16": Form(
        lambda: built("float16", end=None), ("float16", "float16", "float16"), PLAIN, "float16",
        {"MP102": "but Adam does not scale the loss", "MP106": "the last layer, end, gives float16"}, (),
    ),
    "pure bfloat16": Form(
        lambda: built("bfloat16", end=None), ("bfloat16", "bfloat16", "bfloat16"), PLAIN, "bfloat16",
        {"MP106": "the last layer, end, gives bfloat16"}, ("MP102",),
    ),
    "a dynamic scale of one's own": Form(
        lambda: built("mixed_float16", optimizer=keras.optimizers.LossScaleOptimizer(
            keras.optimizers.SGD(0.1), initial_scale=1024.0, dynamic_growth_steps=5)),
        ("mixed_float16", "float16", "float32"),
        {**DYNAMIC, "inner": "SGD", "initial_scale": 1024.0, "growth_steps": 5, "slots": 0}, "mixed_float16", skips=1,
    ),
    "loss_scale_factor": Form(
        lambda: built("float32", hidden="mixed_float16", optimizer=keras.optimizers.Adam(loss_scale_factor=256.0)),
        ("float32", "float32", "float32"), {"class": "Adam", "dynamic": False, "fixed_scale": 256.0, "slots": 2}, "mixed_float16",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_recorded_and_called_by_its_name(tmp_path: Path, name: str) -> None:
    form = FORMS[name]
    told = trained(tmp_path, form.make(), bad_steps=(5,))
    of_process, compute, variable = form.policy
    assert told.fit["policy"] == {"global": of_process, "compute_dtype": compute, "variable_dtype": variable}
    assert told.fit["optimizer"] == form.optimizer
    assert told.skipped == form.skips
    assert told.diagnosis.answer.kind == "cpu"
    for code, words in form.finds.items():
        assert words in str(told.found(code))
    assert [code for code in form.not_found if told.found(code)] == []
    assert ("loss_scale" in told.run["absent"]) == (form.optimizer.get("inner") is None)


def test_a_fixed_scale_skips_nothing_and_the_lost_weights_are_found(tmp_path: Path) -> None:
    made = built("float32", optimizer=keras.optimizers.Adam(loss_scale_factor=256.0))
    told = trained(tmp_path, made, bad_steps=(5,))
    assert told.run["absent"]["loss_scale"] == "the loss scale is fixed at 256.0"
    lost = [w.path for w in made.weights if not np.isfinite(w.numpy()).all()]
    assert lost
    assert told.fit["non_finite_weights"] == lost
    assert str(told.found("MP206")).startswith("error: ")
    assert lost[0] in str(told.found("MP206"))


def test_a_dynamic_scale_keeps_the_weights(tmp_path: Path) -> None:
    told = trained(tmp_path, built("mixed_float16"), bad_steps=(5,))
    assert told.fit["non_finite_weights"] == []
    assert told.skipped == 1


def test_run_eagerly(tmp_path: Path) -> None:
    told = trained(tmp_path, built("mixed_float16", run_eagerly=True))
    assert (told.fit["run_eagerly"], told.fit["jit_compile"]) == (True, False)
    assert told.found("MP308") == "error: training runs eagerly, op by op"


def test_xla_on(tmp_path: Path) -> None:
    told = trained(tmp_path, built("mixed_float16", jit_compile=True))
    assert told.fit["jit_compile"] is True
    assert "MP309" in told.diagnosis.clear


@pytest.mark.parametrize("jit", [False, "auto"])
def test_xla_off_without_an_obstacle_is_a_choice(tmp_path: Path, jit: bool | str) -> None:
    told = trained(tmp_path, built("mixed_float16", jit_compile=jit))
    assert told.fit["jit_compile"] is False  # Keras' "auto" takes no XLA where there is no GPU
    assert "MP309" in told.diagnosis.clear


def test_the_layer_that_turned_xla_off_is_named(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    layers = keras.layers
    made = keras.Sequential(
        [
            keras.Input((FEATURES,)), layers.Reshape((4, 2, 1)), layers.RandomTranslation(0.1, 0.1, name="moves"),
            layers.Flatten(), layers.Dense(CLASSES), layers.Activation("softmax", dtype="float32"),
        ]
    )  # fmt: skip
    made.compile("adam", "sparse_categorical_crossentropy")
    told = trained(tmp_path, made)
    assert told.layer("moves")["supports_jit"] is False
    assert told.found("MP309") == "info: XLA is off because of moves (RandomTranslation)"


@pytest.mark.parametrize("on", [True, False])
def test_tf32(tmp_path: Path, on: bool) -> None:
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    tf.config.experimental.enable_tensor_float_32_execution(on)
    try:
        told = trained(tmp_path, built("float32"))
    finally:
        tf.config.experimental.enable_tensor_float_32_execution(before)
    assert told.run["tf32_enabled"] is on


def test_determinism(tmp_path: Path) -> None:
    from tensorflow.python.framework import config

    made = built("mixed_float16")
    tf.config.experimental.enable_op_determinism()
    try:
        told = trained(tmp_path, made)
    finally:
        config.disable_op_determinism()
    assert told.run["deterministic_ops"] is True
    assert "deterministic ops" in str(told.found("MP309"))


@pytest.mark.parametrize("kind", ["int8", "float8"])
def test_a_quantised_model(tmp_path: Path, kind: str) -> None:
    made = built("float32")
    made.quantize(kind)
    made.compile("adam", "sparse_categorical_crossentropy")
    told = trained(tmp_path, made)
    hidden = told.layer("hidden")
    assert hidden["dtype_policy"] == f"{kind}_from_float32"
    assert hidden["config"]["quantization_mode"] == kind
    assert told.layer("end")["dtype_policy"] == "float32"


def test_a_model_with_lora(tmp_path: Path) -> None:
    made = built("mixed_float16")
    made.get_layer("hidden").enable_lora(4)
    made.compile("adam", "sparse_categorical_crossentropy")
    told = trained(tmp_path, made, bad_steps=(5,))
    hidden = told.layer("hidden")
    assert hidden["config"]["lora_rank"] == 4
    assert hidden["parameters"] == FEATURES * 16 + 16 + 4 * (FEATURES + 16)
    assert told.run["model"]["trainable_parameters"] < told.run["model"]["parameters"]
    assert told.skipped == 1


def test_a_quantised_model_that_trains_through_lora(tmp_path: Path) -> None:
    made = built("mixed_bfloat16")
    made.quantize("int8")
    made.get_layer("hidden").enable_lora(2)
    made.compile("adam", "sparse_categorical_crossentropy")
    told = trained(tmp_path, made)
    assert told.layer("hidden")["dtype_policy"] == "int8_from_mixed_bfloat16"
    assert told.layer("hidden")["config"]["lora_rank"] == 2
