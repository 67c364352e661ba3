"""A loop with GradientTape."""

import keras
import numpy as np
import tensorflow as tf

keras.utils.set_random_seed(13)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
optimizer = keras.optimizers.SGD(0.1)
x = np.random.default_rng(13).random((8, 4), dtype="float32")
for _ in range(5):
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model(x) ** 2)
    optimizer.apply(tape.gradient(loss, model.trainable_variables), model.trainable_variables)
print(float(loss))
