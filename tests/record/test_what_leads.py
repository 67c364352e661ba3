"""Situations, and what leads the report of each: real small trainings, made-up records where a CPU has no
such situation. The table was written before the code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders import records
from tests.builders.gpus import V100
from tests.builders.played_fit import Hook, Play, play
from tests.builders.simulate import Host, Training
from tests.planted.cases import F16, convnet
from tests.planted.generator import run, written
from tests.planted.suite import clean
from tests.record.training import BATCH, FEATURES, callback, data, model

pytestmark = pytest.mark.framework

EXPECTED = {
    "crash": ("error", "MP913"),
    "out of memory": ("error", "MP913"),
    "loss not finite": ("learning", "MP206"),
    "endless skips": ("learning", "MP201"),
    "scale without end": ("learning", "MP203"),
    "no loss scaling": ("learning", "MP102"),
    "scale never applied": ("learning", "MP103"),
    "policy after build": ("inactive", "MP101"),
    "on a CPU": ("nothing", None),
    "no trace": ("invalid", "MP910"),
    "no trace wanted": ("nothing", None),
    "window in warm-up": ("invalid", "MP901"),
    "automatic window in warm-up": ("nothing", None),
    "input-bound": ("time", "MP301"),
    "stalls": ("time", "MP305"),
    "healthy": ("nothing", None),
    "a callback at each epoch's end": ("time", "MP305"),
    "fits that compile anew": ("time", "MP902"),
    "the first batch of each epoch": ("time", "MP301"),
    "half of the run validates": ("nothing", None),
}


def report(run: Path, baseline: Path | None = None) -> Any:
    return documents.document(workflows.diagnose(run, baseline))


def trained(
    folder: Path, made: Any, steps: int = 80, *beside: Any, x: Any = None, y: Any = None, **given: Any
) -> Path:
    """Where a real training was recorded."""
    mine = callback(folder, **{"read_every": 1, **given})
    features, labels = data(steps)
    try:
        made.fit(
            features if x is None else x, labels if y is None else y, batch_size=BATCH, shuffle=False,
            verbose=0, callbacks=[*beside, mine],
        )  # fmt: skip
    finally:
        mine.close()
    return folder


def regression(policy: str = "mixed_float16", **scaling: Any) -> Any:
    """A model with one layer whose loss has no limit, and that hardly learns."""
    import keras

    keras.config.set_dtype_policy(policy)
    made = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1)])
    inner = keras.optimizers.SGD(1e-12)
    made.compile(loss="mse", optimizer=keras.optimizers.LossScaleOptimizer(inner, **scaling))
    keras.config.set_dtype_policy("float32")
    return made


def numbers(steps: int, scale: float = 1.0) -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    x = random.normal(size=(steps * BATCH, FEATURES)).astype("float32")
    return x, scale * np.sign(random.normal(size=(steps * BATCH, 1))).astype("float32")


# --- the situations ----------------------------------------------------------------------------------------


def crash(folder: Path) -> Any:
    import keras

    class Fails(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 60:
                raise RuntimeError("loss service went away")

    with pytest.raises(RuntimeError, match="went away"):
        trained(folder, model(), 80, Fails())
    return report(folder)


def out_of_memory(folder: Path) -> Any:
    error = "ResourceExhaustedError: OOM when allocating tensor with shape[64,1024,1024] and type half"
    ended = {"ended": {"reason": "out_of_memory", "error": error}}
    return report(records.write(_recorded("run", facts=ended), folder))


def loss_not_finite(folder: Path) -> Any:
    x, y = data(80)
    x[39 * BATCH :] = np.nan
    return report(trained(folder, model(), x=x, y=y))


def endless_skips(folder: Path) -> Any:
    """The first 22 of 80 updates: a loss whose gradients overflow float16 at any scale."""
    x, y = numbers(80)
    x[: 22 * BATCH] *= 3e3
    y[: 22 * BATCH] *= 6e4
    return report(trained(folder, regression(), x=x, y=y))


def scale_without_end(folder: Path) -> Any:
    """Gradients of zero, of a backward pass in float32, overflow at no scale."""
    x, y = numbers(80)
    made = regression("float32", initial_scale=2.0**60, dynamic_growth_steps=1)
    return report(trained(folder, made, x=0 * x, y=0 * y))


def no_loss_scaling(folder: Path) -> Any:
    import keras

    made = keras.Sequential([keras.Input((FEATURES,)), keras.layers.Dense(1, dtype="mixed_float16")])
    made.compile(loss="mse", optimizer="sgd")
    x, y = numbers(80)
    return report(trained(folder, made, x=x, y=y))


def scale_never_applied(folder: Path) -> Any:
    """A `train_step` that takes the gradients of the loss itself; `apply` divides them by the scale."""
    import keras
    import tensorflow as tf

    class Unscaled(keras.Model):  # type: ignore[misc]  # keras has no types
        def train_step(self, batch: Any) -> Any:
            x, y = batch
            with tf.GradientTape() as tape:
                loss = self.compute_loss(x, y, self(x, training=True))
            variables = self.trainable_variables
            self.optimizer.apply(tape.gradient(loss, variables), variables)
            return {"loss": loss}

    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((FEATURES,))
    made = Unscaled(inputs, keras.layers.Dense(1)(inputs))
    made.compile(loss="mse", optimizer="sgd")
    keras.config.set_dtype_policy("float32")
    x, y = numbers(80)
    return report(trained(folder, made, x=x, y=y))


def policy_after_build(folder: Path) -> Any:
    import keras

    made = model("float32")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return report(trained(folder, made))
    finally:
        keras.config.set_dtype_policy("float32")


def on_a_cpu(folder: Path) -> Any:
    return report(records.write(_recorded("run", gpu=None), folder))


def no_trace(folder: Path) -> Any:
    """Five steps: the window would have opened at step 13, and of so few no cause is told."""
    return report(trained(folder, model(), 5, profile_steps="auto"))


def no_trace_wanted(folder: Path) -> Any:
    absent = {"absent": {"profile_windows": "not wanted (profile_steps=None)"}}
    return report(records.write(_recorded("run", facts=absent), folder))


def window_in_warm_up(folder: Path, *, automatic: bool = False) -> Any:
    """Of a run in which nothing is to be mended. The user chose the window's steps, or mpprof did."""
    slower = {1: 4.0, 12: 1.0}
    training = run("early", V100, F16, convnet(V100, F16), profile=(3, 7), slower=slower)
    recorded = written(training, folder)
    file = recorded / "mpprof" / "run.json"
    facts = json.loads(file.read_text())
    facts["profile_windows"][0]["automatic"] = automatic
    file.write_text(json.dumps(facts))
    return report(recorded)


def input_bound(folder: Path) -> Any:
    return report(written(_on_a_v100("waiting", Host(input_us=40_000.0)), folder))


def stalls(folder: Path) -> Any:
    return report(written(_on_a_v100("stalling", Host(between_us=40_000.0)), folder))


def healthy(folder: Path) -> Any:
    training, baseline = clean()[0]
    assert baseline is not None
    return report(written(training, folder), written(baseline, folder))


def epochs(folder: Path, **given: Any) -> Any:
    """A played training on torch whose steps are healthy."""
    no_window = {"profile_windows": "not wanted (profile_steps=None)"}
    played = Play(**{"backend": "torch", "epochs": 5, "calls": 40, "absent": no_window, **given})
    return report(play(played, folder).root)


def _recorded(name: str, gpu: Any = V100, **laid_over: Any) -> records.Recorded:
    layers = records.imagenette_convnet("float16")
    return records.Recorded(name, gpu, "float16", layers, batch=64, step_ms=20.0, **laid_over)


def _on_a_v100(name: str, host: Host) -> Training:
    return run(name, V100, F16, convnet(V100, F16), host=host)


SITUATIONS: dict[str, Callable[[Path], Any]] = {
    "crash": crash,
    "out of memory": out_of_memory,
    "loss not finite": loss_not_finite,
    "endless skips": endless_skips,
    "scale without end": scale_without_end,
    "no loss scaling": no_loss_scaling,
    "scale never applied": scale_never_applied,
    "policy after build": policy_after_build,
    "on a CPU": on_a_cpu,
    "no trace": no_trace,
    "no trace wanted": no_trace_wanted,
    "window in warm-up": window_in_warm_up,
    "automatic window in warm-up": lambda folder: window_in_warm_up(folder, automatic=True),
    "input-bound": input_bound,
    "stalls": stalls,
    "healthy": healthy,
    "a callback at each epoch's end": lambda folder: epochs(
        folder, callbacks=(Hook("Board", epoch_end=400),)
    ),
    "fits that compile anew": lambda folder: epochs(folder, epochs=1, fits=5, compile=900),
    "the first batch of each epoch": lambda folder: epochs(folder, first_batch=400),
    "half of the run validates": lambda folder: epochs(folder, validation=400),
}


@pytest.mark.usefixtures("keras")
@pytest.mark.parametrize("name", EXPECTED)
def test_what_leads(name: str, tmp_path: Path) -> None:
    document = SITUATIONS[name](tmp_path)
    answer = document["answer"]
    assert (answer["leads"], answer["code"]) == EXPECTED[name]
