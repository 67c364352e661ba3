"""Whether a training's own step scales the loss is seen as it is traced, and nothing of it is left behind."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.record.on_tensorflow import keras, tf
from tests.record.training import callback

pytestmark = pytest.mark.framework


def built(kind: str) -> Any:
    class Model(keras.Model):
        if kind != "keras":

            def train_step(self, data: Any) -> Any:
                x, y = data
                with tf.GradientTape() as tape:
                    loss = self.compute_loss(x, y, self(x, training=True))
                    scaled = loss * self.optimizer.dynamic_scale if kind == "by hand" else loss
                gradients = tape.gradient(scaled, self.trainable_variables)
                if kind == "fails":
                    raise ValueError("broken on purpose")
                self.optimizer.apply(gradients, self.trainable_variables)
                return {"loss": loss}

    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((4,))
    made = Model(inputs, keras.layers.Dense(2, dtype="float32")(keras.layers.Dense(4)(inputs)))
    keras.config.set_dtype_policy("float32")
    made.compile("sgd", "mse", run_eagerly=kind == "eager")
    made.optimizer.build(made.trainable_variables)
    return made


class Reads(keras.callbacks.Callback):
    """Reads the scale for its own purpose, and copies the optimizer."""

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        assert float(self.model.optimizer.dynamic_scale) > 0
        pickle.dumps(self.model.optimizer.get_config())


def called(root: Path, made: Any, fits: int = 1) -> list[bool | None]:
    recorded, numbers = callback(root), np.ones((8, 4), "float32")
    for _ in range(fits):
        made.fit(numbers, numbers[:, :2], batch_size=4, verbose=0, callbacks=[Reads(), recorded])
    facts = json.loads((root / "mpprof" / "run.json").read_text())
    return [fit.get("scale_loss_called") for fit in facts["fits"]]


@pytest.mark.parametrize(("kind", "scales"), [("keras", True), ("by hand", True), ("missing", False)])
def test_a_step_that_is_traced_shows_whether_it_scales(tmp_path: Path, kind: str, scales: bool) -> None:
    made = built(kind)
    before = dict(vars(keras.optimizers.LossScaleOptimizer))
    assert called(tmp_path / "a", made, fits=2) == [scales, scales]  # a second fit traces nothing
    assert called(tmp_path / "b", made) == [scales]
    made.compile("sgd", "mse")  # another function, which nobody watches as it is traced
    made.optimizer.build(made.trainable_variables)
    made.fit(np.ones((4, 4)), np.ones((4, 2)), verbose=0)
    assert called(tmp_path / "c", made) == [None]
    assert dict(vars(keras.optimizers.LossScaleOptimizer)) == before


def test_a_step_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    before = dict(vars(keras.optimizers.LossScaleOptimizer))
    recorded, numbers = callback(tmp_path), np.ones((8, 4), "float32")
    with pytest.raises(ValueError, match="broken on purpose"):
        built("fails").fit(numbers, numbers[:, :2], batch_size=4, verbose=0, callbacks=[recorded])
    recorded.close()
    assert dict(vars(keras.optimizers.LossScaleOptimizer)) == before


def test_an_optimizer_that_scales_nothing_is_not_looked_at(tmp_path: Path) -> None:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])
    made.compile("sgd", "mse")
    recorded, numbers = callback(tmp_path), np.ones((8, 4), "float32")
    made.fit(numbers, numbers[:, :2], batch_size=4, verbose=0, callbacks=[recorded])
    (fit,) = json.loads((tmp_path / "mpprof" / "run.json").read_text())["fits"]
    assert "scale_loss_called" not in fit
