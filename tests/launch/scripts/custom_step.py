"""A train_step of the script's own, and an exception behind the training."""

import keras
import numpy as np
import tensorflow as tf


class Model(keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compute_loss(x=x, y=y, y_pred=self(x, training=True))
        self.optimizer.apply_gradients(
            zip(tape.gradient(loss, self.trainable_variables), self.trainable_variables, strict=True)
        )
        return {"loss": loss}


keras.utils.set_random_seed(6)
inputs = keras.Input((4,))
model = Model(inputs, keras.layers.Dense(1)(keras.layers.Dense(8)(inputs)))
model.compile(keras.optimizers.SGD(0.1), "mse")
x = np.random.default_rng(6).random((320, 4), dtype="float32")
model.fit(x, x[:, :1], batch_size=8, verbose=0)
print([w.tobytes().hex()[:32] for w in model.get_weights()])
raise RuntimeError("behind the training")
