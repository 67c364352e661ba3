"""A PyDataset with workers, and a tuple of callbacks."""

import keras
import numpy as np


class Batches(keras.utils.PyDataset):
    def __len__(self):
        return 24

    def __getitem__(self, index):
        x = np.random.default_rng(index).random((8, 4), dtype="float32")
        return x, x[:, :1]


keras.utils.set_random_seed(3)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
model.compile("adam", "mse")
losses = []
told = keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: losses.append(logs["loss"]))
model.fit(
    Batches(workers=2, use_multiprocessing=False), epochs=2, verbose=0, shuffle=False, callbacks=(told,)
)
print(losses, [w.tobytes().hex()[:32] for w in model.get_weights()])
