"""Mixed precision, set by the script under one of its older names."""

import numpy as np
from tensorflow import keras

keras.mixed_precision.set_global_policy("mixed_float16")
keras.utils.set_random_seed(7)
model = keras.Sequential(
    [keras.layers.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1, dtype="float32", name="out")]
)
model.compile(keras.mixed_precision.LossScaleOptimizer(keras.optimizers.Adam()), "mse")
x = np.random.default_rng(7).random((320, 8), dtype="float32")
model.fit(x, x[:, :1], batch_size=8, verbose=0)
print(keras.mixed_precision.global_policy().name, type(model.optimizer).__name__)
print([layer.compute_dtype for layer in model.layers], [w.tobytes().hex()[:32] for w in model.get_weights()])
