"""The rules of TensorFlow's mixed precision guide, each on a real Keras model that breaks it, and on its twin.

The models are trained on this machine's CPU with the callback, so that layers, optimizer and steps are what the
callback writes. Where a rule is about a card, the run's `run.json` is made to name one, and its memory is put
into the step log: nothing else of the records is changed, and nothing here says how such a card behaves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import MPProfilerCallback
from mpprof.api import workflows
from mpprof.model.finding import Diagnosis, Finding
from tests.builders.gpus import V100
from tests.record import curing
from tests.record.on_tensorflow import keras

pytestmark = pytest.mark.framework

CARD = {
    "kind": "gpu", "name": V100.name, "compute_capability": [7, 0], "memory_bytes": V100.memory_bytes,
    "sm_count": V100.cores,
}  # fmt: skip
TPU = {"kind": "tpu", "name": "TPU v3"}


@pytest.fixture(autouse=True)
def mixed() -> Any:
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy("float32")


def classifier(*, units: int = 64, classes: int = 8, output: str | None = "float32") -> Any:
    """The guide's model in small: dense layers, logits, and a softmax of its own."""
    layers = keras.layers
    return keras.Sequential([
        layers.Input((16,)), layers.Dense(units, activation="relu", name="hidden"),
        layers.Dense(classes, name="logits"), layers.Activation("softmax", dtype=output, name="probabilities"),
    ])  # fmt: skip


def trained(
    directory: Path, model: Any, x: Any = None, y: Any = None, steps: int = 12, **compiled: Any
) -> Path:
    """The log directory of a training of so many steps, without a profile window."""
    rng = np.random.default_rng(0)
    if x is None:
        x, y = rng.normal(size=(8 * steps, 16)).astype("float32"), rng.integers(0, 8, 8 * steps)
    model.compile(
        **{"optimizer": "adam", "loss": "sparse_categorical_crossentropy", "jit_compile": False, **compiled}
    )
    recorder = MPProfilerCallback(directory, profile_steps=None, verbose=0)
    model.fit(x, y, batch_size=8, shuffle=False, verbose=0, callbacks=[recorder])
    return directory


def on(directory: Path, device: dict[str, Any], peak_bytes: int | None = None) -> Path:
    """The same records, as of a run on this device."""
    [facts] = directory.rglob("run.json")
    facts.write_text(json.dumps(json.loads(facts.read_text()) | {"devices": [device]}))
    if peak_bytes is not None:
        log = facts.parent / "steps.jsonl"
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            if line.get("kind") == "step":
                line["memory"] = [
                    {"device": "GPU:0", "peak_bytes": peak_bytes, "live_bytes": peak_bytes // 2}
                ]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return directory


def judged(directory: Path) -> Diagnosis:
    return workflows.diagnose(workflows.load(directory))


def found(code: str, directory: Path) -> Finding | None:
    return next((finding for finding in judged(directory).findings if finding.code == code), None)


def test_outputs_in_float32(tmp_path: Path) -> None:
    broken = found("MP106", trained(tmp_path / "broken", classifier(output=None)))
    assert broken.layers == ("probabilities",)
    assert found("MP106", trained(tmp_path / "kept", classifier())) is None


def test_multiples_of_eight(tmp_path: Path) -> None:
    broken = found("MP402", on(trained(tmp_path / "broken", classifier(classes=8201)), CARD))
    assert "logits (8201)" in broken.summary
    assert found("MP402", on(trained(tmp_path / "kept", classifier(classes=8256)), CARD)) is None


def test_multiples_of_128_on_a_tpu(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_bfloat16")
    broken = found("MP401", on(trained(tmp_path / "broken", classifier(units=100, classes=128)), TPU))
    assert broken.layers == ("hidden",)
    assert found("MP401", on(trained(tmp_path / "kept", classifier(units=128, classes=128)), TPU)) is None


def test_twice_the_batch(tmp_path: Path) -> None:
    run = trained(tmp_path, classifier())
    assert found("MP303", on(run, CARD, peak_bytes=round(0.3 * V100.memory_bytes))) is not None
    assert found("MP303", on(run, CARD, peak_bytes=round(0.8 * V100.memory_bytes))) is None


@pytest.mark.parametrize("hashed", [True, False])
def test_xla(tmp_path: Path, hashed: bool) -> None:
    """One layer that XLA cannot compile makes Keras leave the whole model uncompiled."""
    layers = keras.layers
    model = keras.Sequential([
        layers.Input((5,), dtype="int32"), *([layers.Hashing(32, name="hashed")] if hashed else []),
        layers.Embedding(32, 8), layers.GlobalAveragePooling1D(), layers.Dense(8),
        layers.Activation("softmax", dtype="float32"),
    ])  # fmt: skip
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 32, (24, 5)), rng.integers(0, 8, 24)
    got = found("MP309", on(trained(tmp_path, model, x, y, jit_compile="auto"), CARD))
    assert (got is not None) is hashed
    if got is not None:
        assert got.layers == ("hashed",)


def test_start_up_skips_of_the_loss_scale(tmp_path: Path) -> None:
    """Targets so large that gradients overflow at the first scale of 2^15, and no longer a few halvings later;
    the weights are seeded, since with some of them one more update is skipped late."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(0)
    model = keras.Sequential(
        [keras.layers.Input((16,)), keras.layers.Dense(8), keras.layers.Dense(1, dtype="float32")]
    )
    x, y = rng.normal(size=(8 * 48, 16)).astype("float32"), np.full((8 * 48, 1), 40.0, "float32")
    run = judged(trained(tmp_path, model, x, y, loss="mse", optimizer=keras.optimizers.Adam(1e-3)))
    skipped = next(finding for finding in run.findings if finding.code == "MP204")
    assert skipped.severity == "info"
    assert "MP201" not in {finding.code for finding in run.findings}
    assert run.steps.skipped is not None
    assert 0 < run.steps.skipped < 10


def in_a_loop(kit: curing.Kit) -> Path:
    """The guide's custom loop, as Keras 3 calls it: its optimizer un-scales what `scale_loss` has scaled."""
    return curing.in_a_step_without_scaling(kit)


@pytest.mark.parametrize("scales", [False, True])
def test_a_custom_loop_with_a_loss_scale(tmp_path: Path, scales: bool) -> None:
    code = "scaled = optimizer.scale_loss(loss)" if scales else ""
    curing.run(curing.Script("MP103", in_a_loop), curing.TF, tmp_path, code)
    said = judged(tmp_path).answer
    assert said is not None
    first = "The loss is never scaled in the training step: float16 gradients below 2^-24 are lost."
    assert (said.sentence == first) is not scales
