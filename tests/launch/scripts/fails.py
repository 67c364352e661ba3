"""A training that a callback ends by an error."""

import keras
import numpy as np


class Fails(keras.callbacks.Callback):
    def on_train_batch_begin(self, batch, logs=None):
        if batch == 20:
            raise RuntimeError("no more data")


keras.utils.set_random_seed(18)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
print(model.name)
model.fit(np.ones((320, 4)), np.ones((320, 1)), batch_size=8, verbose=0, callbacks=[Fails()])
