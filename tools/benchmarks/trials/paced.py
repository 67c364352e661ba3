"""Steps of a known length, in float32 RATIO times those in 16 bits; each process is off by 3 %, as on a GPU."""

import os
import random
import sys
import time

import keras
import numpy as np
import tensorflow as tf

RATIO, STEP_S, SCATTER = float(sys.argv[1]), 0.02, 0.03
MOST_S = 0.1  # a step that is later than this is not made up for
in_float32 = keras.config.dtype_policy().compute_dtype == "float32"
period_s = STEP_S * (RATIO if in_float32 else 1.0) * random.Random(os.urandom(8)).lognormvariate(0, SCATTER)
last_s = 0.0


def paced(x):
    global last_s
    last_s += period_s
    late_s = time.monotonic() - last_s
    if late_s > MOST_S:
        last_s = time.monotonic()
    time.sleep(max(0.0, -late_s))
    return x


class Paced(keras.layers.Layer):
    def call(self, x):
        return tf.ensure_shape(tf.numpy_function(paced, [x], x.dtype), x.shape)


model = keras.Sequential([keras.Input((4,), batch_size=8), Paced(), keras.layers.Dense(1)])
model.compile("sgd", "mse", jit_compile=False)
x = np.random.default_rng(1).random((8000, 4), dtype="float32")
model.fit(x, x[:, :1], batch_size=8, epochs=100, verbose=0)
