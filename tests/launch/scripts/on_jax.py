"""Chooses its backend and flags in its first lines."""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3 --xla_backend_optimization_level=0"

import random
import sys

FRAMEWORKS = {"keras", "jax", "numpy", "tensorflow", "torch"}
assert not FRAMEWORKS & set(sys.modules), "something was imported before the script imports it"

import jax
import keras
import numpy as np

random.seed(14)
np.random.seed(14)  # noqa: NPY002 - Keras shuffles with it
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.default_rng(14).random((320, 4), dtype="float32")
losses = []


class Interrupted(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        losses.append(logs["loss"])
        if epoch == 1:
            raise KeyboardInterrupt


try:
    model.fit(x, x[:, :1], batch_size=8, epochs=5, verbose=0, callbacks=[Interrupted()])
finally:
    print(jax.device_count(), losses)
