"""A warm-up and a training of the same model, then a shorter one of another; a script's exit in mid-air."""

import sys

import keras
import numpy as np


def dense():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


keras.utils.set_random_seed(8)
x = np.random.default_rng(8).random((320, 4), dtype="float32")
model, other = dense(), dense()
model.fit(x, x[:, :1], batch_size=8, verbose=0)
model.fit(x, x[:, :1], batch_size=8, verbose=0, initial_epoch=1, epochs=2)
other.fit(x[:80], x[:80, :1], batch_size=8, verbose=0)
print([w.tobytes().hex()[:32] for one in (model, other) for w in one.get_weights()])
sys.exit("that is all")
