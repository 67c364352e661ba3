"""tf_keras: a train_step that scales its loss, by what only the LossScaleOptimizer of tf_keras has."""

import numpy as np
import tensorflow as tf
import tf_keras

tf_keras.utils.set_random_seed(23)
tf_keras.mixed_precision.set_global_policy("mixed_float16")


class Scaled(tf_keras.Model):
    def train_step(self, data):
        x, y = data
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(y, self(x, training=True))
            scaled = self.optimizer.get_scaled_loss(loss)
        gradients = self.optimizer.get_unscaled_gradients(tape.gradient(scaled, self.trainable_variables))
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}


inputs = tf_keras.Input((4,))
outputs = tf_keras.layers.Dense(1, dtype="float32")(tf_keras.layers.Dense(8)(inputs))
model = Scaled(inputs, outputs)
model.compile(tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.Adam()), "mse")
x = np.random.default_rng(23).random((80, 4), dtype="float32")
model.fit(x, x[:, :1], batch_size=8, verbose=0)
print(model.layers[1].compute_dtype)
