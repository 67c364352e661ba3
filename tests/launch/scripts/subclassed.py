"""A model class that overrides fit, and calls Keras' with everything by place."""

import keras
import numpy as np


class Model(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)

    def call(self, x):
        return self.out(self.hidden(x))

    def fit(self, x, y, callbacks):
        return super().fit(x, y, 16, 2, 0, callbacks)


keras.utils.set_random_seed(5)
x = np.random.default_rng(5).random((400, 4), dtype="float32")
seen = []
model = Model()
model.compile("adam", "mse")
model.fit(
    x, x[:, :1], [keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.append(batch))]
)
print(len(seen), [w.tobytes().hex()[:32] for w in model.get_weights()])
