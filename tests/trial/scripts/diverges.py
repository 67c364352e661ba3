"""Values beyond the range of float16: its loss is not a number, and no update is applied."""

import keras
import numpy as np

keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.Input((4,)),
        keras.layers.Dense(8),
        keras.layers.Lambda(lambda x: x * x * 1e5 / 1e5),
        keras.layers.Dense(1, dtype="float32"),
    ]
)
model.compile("adam", "mse", jit_compile=False)
x = np.random.default_rng(1).random((3200, 4), dtype="float32") * 1000
model.fit(x, x[:, :1] / 1000, batch_size=8, epochs=100, verbose=0)
