"""Trainings on JAX whose epochs are timed by a callback of the test's own, beside the recorder's."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

STEPS, EPOCHS, PAUSE_S = 12, 4, 0.3


def train(folder: Path) -> None:
    """Train in each of these ways, and write what the test's own callback measured. The first end of the first
    one compiles the metrics' results, which are those of all. How long the input's end takes, which a busy machine
    decides, is no matter here."""
    from mpprof.record import session

    session.LONG_END_NS = int(1e9)
    own = {name: _train(folder / name, name) for name in ("plain", "validated", "late", "rare")}
    own["read"] = _train(folder / "read", "read", read_every=16, steps=28)
    own["fits"] = _train(folder / "fits", "fits", epochs=1, fits=3)
    own["overtaken"] = _train(folder / "overtaken", "overtaken", read_every=16, steps=17, epochs=1)
    (folder / "own.json").write_text(json.dumps(own))


def _train(
    root: Path, kind: str, read_every: int = 1000, steps: int = STEPS, epochs: int = EPOCHS, fits: int = 1
) -> list[float]:
    """Return the ms of a step of each epoch by the wall: from the first call's begin to the epoch's end, or to
    its validation."""
    import keras
    import numpy as np

    from mpprof import MPProfilerCallback

    means: list[float] = []

    class Own(keras.callbacks.Callback):  # type: ignore[misc]
        begin: float | None = None

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 0:
                self.begin = time.perf_counter()

        def on_test_begin(self, logs: Any = None) -> None:
            self.ends()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.ends()

        def ends(self) -> None:
            if self.begin is not None:
                _wait(self._model)
                means.append((time.perf_counter() - self.begin) / steps * 1e3)
            self.begin = None

    class Pause(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            time.sleep(PAUSE_S)

        def on_test_begin(self, logs: Any = None) -> None:
            time.sleep(PAUSE_S)

    ours = MPProfilerCallback(
        root, read_every=read_every, profile_steps=None, hardware=False, verbose=0, announce=None
    )
    callbacks = [Pause(), ours, Own()] if kind == "late" else [ours, Own(), Pause()]
    layers = keras.layers
    model = keras.Sequential([keras.Input((512,)), *(layers.Dense(512) for _ in range(3)), layers.Dense(4)])
    model.compile(loss="mse", optimizer="adam", metrics=["mae"])
    x, y = np.ones((256 * steps, 512), "float32"), np.ones((256 * steps, 4), "float32")
    validation = (x[:512], y[:512]) if kind in ("validated", "rare") else None
    freq = 2 if kind == "rare" else 1
    for _ in range(fits):
        model.fit(
            x, y, batch_size=256, epochs=epochs, verbose=0, callbacks=callbacks,
            validation_data=validation, validation_freq=freq,
        )  # fmt: skip
    return means


def _wait(model: Any) -> None:
    import jax

    jax.block_until_ready([variable.value for variable in model.variables])
