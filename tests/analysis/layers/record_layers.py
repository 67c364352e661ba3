"""Train a small model with awkward layer names under a profiler; run by layer_cases in a process.

Every dense layer has a width of its own, so that the shapes in compiled programs tell which one an op
belongs to, whatever its name says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

STEPS = 3


def main(out: Path, backend: str, flags: frozenset[str]) -> None:
    import keras
    import numpy as np

    from mpprof.record.facts.layers import model_facts

    model = build(_custom(keras) if "custom" in flags else keras.Model)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile="jit" in flags)
    features = np.random.default_rng(0).random((STEPS * 32, 8, 8, 3), np.float32)
    labels = np.zeros(STEPS * 32, np.int32)
    out.mkdir(parents=True, exist_ok=True)
    (out / "model.json").write_text(json.dumps(model_facts(model)))
    if "loop" in flags:
        own_loop(model, loss, features, labels, out, jit="jit" in flags)
        return

    def fit() -> None:
        model.fit(features, labels, batch_size=32, verbose=0)

    fit()
    {"jax": profile_jax, "torch": profile_torch, "tensorflow": profile_tensorflow}[backend](fit, out, flags)


def build(kind: Any) -> Any:
    import keras
    from keras import layers

    shared = layers.Dense(64, name="shared", activation="relu")
    inputs = layers.Input((8, 8, 3))
    x = layers.Conv2D(16, 3, padding="same")(inputs)
    x = layers.BatchNormalization()(x)
    x = layers.Conv2D(24, 3, name="my_conv", padding="same")(x)
    x = layers.Flatten()(x)
    x = shared(layers.Dense(64, name="narrow")(x))
    x = keras.Sequential([layers.Input((64,)), layers.Dense(72), layers.Dense(80)], name="encoder")(x)
    x = keras.Sequential([layers.Input((80,)), layers.Dense(88), layers.Dense(64)], name="decoder")(x)
    x = layers.Dense(96, name="my_dense")(shared(x))
    x = layers.LayerNormalization()(x)
    x = layers.Dense(104, name="dense")(x)
    x = layers.Dense(112, name="dense_1")(x)
    return kind(inputs, layers.Dense(10, name="head")(x))


def _custom(keras: Any) -> Any:
    class Custom(keras.Model):  # type: ignore[misc]
        """A train step of the user's own, on TensorFlow."""

        def train_step(self, data: Any) -> Any:
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"loss": loss}

    return Custom


def own_loop(model: Any, loss: Any, features: Any, labels: Any, out: Path, *, jit: bool) -> None:
    """A training loop without `fit`, recorded by `StepRecorder`, whose window makes the trace."""
    import tensorflow as tf

    from mpprof import StepRecorder

    @tf.function(jit_compile=jit)
    def train_step(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            value = loss(y, model(x, training=True))
        variables = model.trainable_variables
        model.optimizer.apply(tape.gradient(value, variables), variables)
        return value

    model.optimizer.build(model.trainable_variables)
    data = tf.data.Dataset.from_tensor_slices((features, labels)).batch(32).repeat(4)
    with StepRecorder(out, model=model, profile_steps=(5, 5 + STEPS), hardware=False, verbose=0) as recorder:
        for x, y in recorder.batches(data):
            with recorder.step():
                train_step(x, y).numpy()


def profile_jax(fit: Any, out: Path, flags: frozenset[str]) -> None:
    import jax

    more = {}
    if hasattr(jax.profiler, "ProfileOptions"):  # older versions have none, and trace Python's frames, too
        more["profiler_options"] = jax.profiler.ProfileOptions()
        more["profiler_options"].python_tracer_level = 0
        more["profiler_options"].host_tracer_level = 2
    jax.profiler.start_trace(str(out), **more)
    fit()
    jax.block_until_ready(jax.live_arrays())
    jax.profiler.stop_trace()


def profile_torch(fit: Any, out: Path, flags: frozenset[str]) -> None:
    """By the frames of Python's tracer, or by the ranges that our own window puts round layers."""
    import torch

    if "ranges" in flags:
        from mpprof.record.backends.torch import TorchTrace

        window = TorchTrace()
        window.start(out)
        fit()
        window.stop()
        return
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, with_stack=True) as profiler:
        fit()
    profiler.export_chrome_trace(str(out / "host.pt.trace.json"))


def profile_tensorflow(fit: Any, out: Path, flags: frozenset[str]) -> None:
    import tensorflow as tf

    options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
    tf.profiler.experimental.start(str(out), options)
    fit()
    tf.profiler.experimental.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], frozenset(sys.argv[3:]))
