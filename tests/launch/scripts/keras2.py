"""Keras 2."""

import numpy as np
import tf_keras

tf_keras.utils.set_random_seed(10)
model = tf_keras.Sequential([tf_keras.layers.Input((4,)), tf_keras.layers.Dense(8), tf_keras.layers.Dense(1)])
model.compile("adam", "mse")
x = np.random.default_rng(10).random((320, 4), dtype="float32")
model.fit(x, x[:, :1], batch_size=8, verbose=0, callbacks=[tf_keras.callbacks.TerminateOnNaN()])
print(tf_keras.mixed_precision.global_policy().name, [w.tobytes().hex()[:32] for w in model.get_weights()])
