"""Train a small model with awkward layer names under a profiler; run by test_layers_recorded in a process.

Every dense layer has a width of its own, so that the shapes in compiled programs tell which one an op
belongs to, whatever its name says.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path


def main(out: Path, backend: str, jit: bool, custom: bool) -> None:
    import keras
    import numpy as np
    from keras import layers

    from mpprof.record.layers import model_facts

    class Custom(keras.Model):
        """A train step of the user's own, on TensorFlow."""

        def train_step(self, data):  # type: ignore[no-untyped-def]
            import tensorflow as tf

            x, y = data
            with tf.GradientTape() as tape:
                loss = self.compute_loss(y=y, y_pred=self(x, training=True))
            variables = self.trainable_variables
            self.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
            return {"loss": loss}

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
    outputs = layers.Dense(10, name="head")(x)
    model = (Custom if custom else keras.Model)(inputs, outputs)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=jit)
    features = np.random.default_rng(0).random((96, 8, 8, 3), np.float32)
    labels = np.zeros(96, np.int32)
    model.fit(features, labels, batch_size=32, verbose=0)
    if backend == "jax":
        import jax

        jax.profiler.start_trace(out)
        model.fit(features, labels, batch_size=32, verbose=0)
        jax.block_until_ready([variable.value for variable in model.variables])
        jax.profiler.stop_trace()
    else:
        import tensorflow as tf

        options = tf.profiler.experimental.ProfilerOptions(host_tracer_level=2, python_tracer_level=0)
        tf.profiler.experimental.start(str(out), options)
        model.fit(features, labels, batch_size=32, verbose=0)
        tf.profiler.experimental.stop()
    (out / "model.json").write_text(json.dumps(model_facts(model)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "jit" in sys.argv[3:], "custom" in sys.argv[3:])
