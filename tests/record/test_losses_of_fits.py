"""Real fits: the loss on record is the mean of the epoch so far, of which the losses of single steps come back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.analysis.comparison.learning import learning
from mpprof.record.facts.fit import describe_loss
from mpprof.report import json as documents
from tests.builders.read_back import markdown, text
from tests.record.on_tensorflow import keras
from tests.record.training import BATCH, CLASSES, FEATURES, callback, data

pytestmark = pytest.mark.framework

STEPS, EPOCHS = 40, 2


def built(optimizer: Any = "adam", loss: Any = None, model: Any = None, **compiling: Any) -> Any:
    keras.utils.set_random_seed(11)
    x = given = keras.Input((FEATURES,))
    x = keras.layers.Dense(16, activation="relu")(x)
    made = (model or keras.Model)(given, keras.layers.Dense(CLASSES)(x))
    loss = loss or keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    made.compile(optimizer, loss, **compiling)
    return made


def trained(root: Path, made: Any, batch: int = BATCH) -> mpprof.Run:
    x, y = data(STEPS)
    given = {"shuffle": False, "verbose": 0, "epochs": EPOCHS, "batch_size": batch}
    made.fit(x, y, callbacks=[callback(root)], **given)
    return mpprof.load(root)


def test_the_losses_of_stretches_are_those_that_keras_evaluates(tmp_path: Path) -> None:
    """A learning rate of 0 leaves every batch's loss as `evaluate` gives it."""
    runs = [
        trained(tmp_path / name, built(keras.optimizers.SGD(0.0), steps_per_execution=per_call))
        for name, per_call in (("single", 1), ("double", 2))
    ]
    x, y = data(STEPS)
    model = built()
    batches = range(0, STEPS * BATCH, BATCH)
    truth = [model.evaluate(x[at : at + BATCH], y[at : at + BATCH], verbose=0) for at in batches]
    found = learning(*runs)
    assert found.window == (STEPS, 2 * STEPS)
    assert found.loss == pytest.approx((np.mean(truth), np.mean(truth)), rel=1e-4)
    assert [each.loss for each in found.curves.start] == pytest.approx(truth * EPOCHS, rel=2e-3)
    assert [each.loss for each in found.curves.end] == pytest.approx(
        np.tile(np.reshape(truth, (-1, 2)).mean(axis=1), EPOCHS), rel=2e-3
    )
    assert found.verdict == "alike"


def test_a_run_that_learns_nothing_is_told_from_one_that_does(tmp_path: Path) -> None:
    runs = [
        trained(tmp_path / name, built(keras.optimizers.Adam(rate), "sparse_categorical_crossentropy"))
        for name, rate in (("learns", 0.02), ("stands", 0.0))
    ]
    document = documents.compare_document(mpprof.compare(runs))
    told = document["steps"][0]["learning"]
    assert (told["verdict"], told["severity"]) in [("worse", "info"), ("worse", "warning")]
    for rendered in (text.render_comparison(document), markdown.render_comparison(document)):
        assert "loss at equal applied updates" in rendered
        assert "the runs diverge" in " ".join(rendered.split())


class OwnStep(keras.Model):  # type: ignore[misc]
    def train_step(self, given: Any) -> Any:
        return super().train_step(given)


def test_what_is_no_known_mean_is_not_judged(tmp_path: Path) -> None:
    plain = trained(tmp_path / "plain", built())
    own = trained(tmp_path / "own", built(model=OwnStep))
    assert "a train_step of its own" in (learning(plain, own).reason or "")
    other = trained(tmp_path / "other", built(loss="sparse_categorical_crossentropy"))
    assert "the loss function differs" in (learning(plain, other).reason or "")
    half = trained(tmp_path / "half", built(), batch=BATCH // 2)
    assert "the batch size differs" in (learning(plain, half).reason or "")


class OwnLoss(keras.Model):  # type: ignore[misc]
    def compute_loss(self, *given: Any, **more: Any) -> Any:
        return super().compute_loss(*given, **more)


def test_a_loss_is_described_in_one_line() -> None:
    assert describe_loss(built()) == "SparseCategoricalCrossentropy(from_logits=True)"
    assert describe_loss(built(loss="mse")) == "mean_squared_error"
    assert describe_loss(built(loss=keras.losses.mean_squared_error)) == "mean_squared_error"
    assert describe_loss(built(loss=["mse"], loss_weights=[0.5])) == "[mse], weighted [0.5]"
    assert describe_loss(built(model=OwnLoss)) == (
        "OwnLoss.compute_loss over SparseCategoricalCrossentropy(from_logits=True)"
    )
    assert describe_loss(keras.Sequential([keras.layers.Dense(1)])) is None
    assert describe_loss(object()) is None
