"""Trainings with state of every kind, in which a look changes nothing."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from keras import layers, ops

import mpprof
from mpprof.numbers import files
from tests.record.training import seed

ROWS = 16


def _images() -> Any:
    return np.random.default_rng(0).uniform(0, 1, (ROWS, 8, 8, 2)).astype(np.float32)


def _words() -> Any:
    return np.random.default_rng(0).integers(0, 30, (ROWS, 6))


def _vectors() -> Any:
    return np.random.default_rng(0).normal(size=(ROWS, 8)).astype(np.float32)


class Counting(layers.Layer):  # type: ignore[misc]
    """Counts its calls in a plain attribute, and keeps what it gave last; draws from NumPy and Python."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.kept: list[Any] = []
        self.last: Any = None

    def call(self, x: Any) -> Any:
        self.calls += 1
        self.kept.append(self.calls)
        self.last = x
        np.random.rand()  # noqa: NPY002
        random.random()
        return x


def _stack(inner: Callable[[], list[Any]]) -> Callable[[Any], Any]:
    def model(x: Any) -> Any:
        return keras.Sequential(
            [keras.Input(x.shape[1:], dtype=str(x.dtype)), *inner(), layers.Dense(1, dtype="float32")]
        )

    return model


def _two_outputs(x: Any) -> Any:
    inputs = keras.Input(x.shape[1:])
    shared = keras.Sequential([layers.Dense(8, activation="relu"), layers.Dropout(0.3)], name="shared")
    first, second = shared(inputs), shared(inputs * 2.0)
    return keras.Model(inputs, [layers.Dense(1, name="a")(first), layers.Dense(1, name="b")(second)])


def _attention(x: Any) -> Any:
    inputs = keras.Input(x.shape[1:], dtype="int32")
    found = layers.Embedding(30, 8, mask_zero=True)(inputs)
    found = layers.MultiHeadAttention(2, 4, dropout=0.2)(found, found)
    return keras.Model(inputs, layers.Dense(1, dtype="float32")(layers.GlobalAveragePooling1D()(found)))


def dense() -> Any:
    return layers.Dense(8, name="inner")


class Adding(keras.Model):  # type: ignore[misc]
    """Has a loss and a metric of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = layers.Dense(8), layers.Dense(1, dtype="float32")
        self.seen = keras.metrics.Mean(name="seen")

    def call(self, x: Any) -> Any:
        found = self.inner(x)
        self.add_loss(1e-3 * ops.mean(ops.square(ops.cast(found, "float32"))))
        return self.head(found)

    def compute_loss(
        self,
        x: Any = None,
        y: Any = None,
        y_pred: Any = None,
        sample_weight: Any = None,
        training: bool = True,
    ) -> Any:
        loss = super().compute_loss(x, y, y_pred, sample_weight, training)
        self.seen.update_state(loss)
        return loss


def _adding(x: Any) -> Any:
    model = Adding()
    model(x)
    return model


SETUPS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], dict[str, Any]]] = {
    "dropout": (_vectors, _stack(lambda: [dense(), layers.Dropout(0.5)]), {}),
    "augmentation": (
        _images,
        _stack(lambda: [layers.RandomFlip(), layers.RandomTranslation(0.2, 0.2), layers.Flatten()]),
        {},
    ),
    "batch norm": (_vectors, _stack(lambda: [dense(), layers.BatchNormalization()]), {}),
    "moving average of weights": (
        _vectors,
        _stack(lambda: [dense()]),
        {"use_ema": True, "ema_momentum": 0.9},
    ),
    "gradient accumulation": (_vectors, _stack(lambda: [dense()]), {"gradient_accumulation_steps": 2}),
    "metrics": (_vectors, _stack(lambda: [dense()]), {"metrics": ["mae", "auc"]}),
    "noise": (_vectors, _stack(lambda: [layers.GaussianNoise(0.1), dense()]), {}),
    "recurrent dropout": (
        _images,
        _stack(lambda: [layers.Reshape((8, 16)), layers.LSTM(4, dropout=0.2, recurrent_dropout=0.2)]),
        {},
    ),
    "two outputs of a shared model": (_vectors, _two_outputs, {}),
    "attention over words": (_words, _attention, {}),
    "spectral norm": (_vectors, _stack(lambda: [layers.SpectralNormalization(dense())]), {}),
    "losses of its own": (_vectors, _adding, {}),
    "plain attributes": (_vectors, _stack(lambda: [dense(), Counting()]), {}),
}


def made(name: str) -> tuple[Any, Any, Any]:
    """Return a compiled model, always the same, and its batch."""
    keras.utils.clear_session()
    seed(3)
    data, build, more = SETUPS[name]
    x = data()
    settings = {key: more[key] for key in more if key != "metrics"}
    metrics = [keras.metrics.AUC(name=each) if each == "auc" else each for each in more.get("metrics", ())]
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        model = build(x)
        model.compile(keras.optimizers.Adam(1e-2, **settings), loss="mse", metrics=metrics)
    finally:
        keras.config.set_dtype_policy(before)
    y = np.linspace(0, 1, ROWS, dtype=np.float32)[:, None]
    return model, x, [y, y] if build is _two_outputs else y


def digest(model: Any) -> str:
    """Return a digest of all that training changes, and of the random generators of Python and of NumPy."""
    variables = [*model.variables, *model.optimizer.variables, *model.metrics_variables]
    values = [np.asarray(keras.ops.convert_to_numpy(each)).tobytes() for each in variables]
    values += [repr((random.getstate(), np.random.get_state())).encode()]  # noqa: NPY002
    plain = [
        (layer.calls, list(layer.kept), layer.last is None)
        for layer in model.layers
        if isinstance(layer, Counting)
    ]
    return hashlib.sha256(b"".join([*values, repr(plain).encode()])).hexdigest()


def changed(name: str, steps: int = 2) -> list[str]:
    """Return what a look changes: by itself, or of the training after it."""
    said = []
    digests = []
    for looks in (True, False):
        model, x, y = made(name)
        for step in range(steps):
            if looks:
                before, memory = digest(model), _attributes(model)
                found = mpprof.numerics(model, x, y)
                said += [f"no rows at {step}"] if len(found.layers) < 4 else []
                said += [f"state at {step}"] if digest(model) != before else []
                said += [f"attributes at {step}: {each}" for each in _differences(memory, _attributes(model))]
            model.train_on_batch(x, y)
        digests.append(digest(model))
    return said + (["the training after it"] if digests[0] != digests[1] else [])


def _attributes(model: Any) -> dict[str, dict[str, int]]:
    return {
        layer.name: {name: id(value) for name, value in vars(layer).items()}
        for layer in model._flatten_layers(include_self=True)
    }


def _differences(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [f"{name}.{key}" for name in before for key in before[name].keys() | after[name].keys()
            if before[name].get(key) != after[name].get(key)]  # fmt: skip


BATCHES, SCALE = 4, 2.0**10
AS_KERAS_WARNS = pytest.mark.filterwarnings("ignore:.*overflow encountered in cast:RuntimeWarning")
"""Keras' SpectralNormalization makes a float16 of 1e7 when it trains, with mpprof and without."""
LARGE = 1e30
"""Of the second batch's targets, whose square is not finite: where gradients are in float16 its update is skipped."""


class Order(keras.callbacks.Callback):  # type: ignore[misc]
    """Ends the training with a look at what Keras will draw next from its generators."""

    def on_train_end(self, logs: Any = None) -> None:
        self.next = float(keras.ops.convert_to_numpy(keras.random.uniform(())))


def trained(name: str, folder: Path | None, shuffle: bool = True, **more: Any) -> tuple[str, dict[str, Any]]:
    """Train a model by `fit`; with `folder` it is looked at as it trains. Returns a digest of its state and of
    all generators, and what the looks found, without their layers."""
    model, x, y = made(name)
    model.optimizer.initial_scale = SCALE
    y = keras.tree.map_structure(lambda each: np.concatenate([each, each * LARGE, each, each]), y)
    callbacks: list[Any] = [order := Order()]
    if folder is not None:
        callbacks.append(
            mpprof.MPProfilerCallback(
                folder, numerics=True, profile_steps=None, hardware=False, verbose=0, read_every=4, **more
            )
        )
    given = np.concatenate([x] * BATCHES)
    history = model.fit(
        given, y, batch_size=ROWS, epochs=2, shuffle=shuffle, verbose=0, callbacks=callbacks
    ).history
    looks = [] if folder is None else files.looks(folder)[0]
    kept = [
        {key: look.get(key) for key in look if key not in ("layers", "cost_ns", "t_ns")} for look in looks
    ]
    return f"{digest(model)} {history} {order.next}", {"looks": kept}


def changed_by_fit(name: str, folder: Path) -> list[str]:
    """Return what the callback's looks change of a training whose second batch overflows."""
    with_looks, found = trained(name, folder)
    reasons = [each["trigger"] for each in found["looks"]]
    said = [] if {"skipped", "loss"} & {*reasons} and reasons[-1] == "end" else [str(found)]
    return said + ([] if with_looks == trained(name, None)[0] else ["the training"])
