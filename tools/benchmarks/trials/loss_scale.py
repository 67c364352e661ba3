"""A loss scale that starts at 2^100: it is halved, an update skipped each time, until gradients fit."""

import keras
import numpy as np

keras.utils.set_random_seed(1)
keras.config.set_dtype_policy("mixed_float16")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1, dtype="float32")])
model.compile(
    keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.01), initial_scale=2.0**100),
    "mse",
    jit_compile=False,
)
x = np.random.default_rng(1).random((3200, 4), dtype="float32")
model.fit(x, x[:, :1], batch_size=8, epochs=100, verbose=0)
