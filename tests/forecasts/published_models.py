"""Models whose steps were measured and published, as `make_calibration` compiles them.

Each stands for the published one in layers, shapes and batch. Regularisation, augmentation and metrics are left out.
"""

from __future__ import annotations

from typing import Any

from tests.forecasts.models import published_convnet, resnet, transfer
from tools.gpu import models as recorded

__all__ = ["published_convnet", "resnet", "transfer"]

SPARSE = "sparse_categorical_crossentropy"


def _compiled(model: Any, optimizer: str = "adam", loss: Any = SPARSE) -> Any:
    model.compile(optimizer, loss)
    return model


def resnet50_bytes() -> Any:
    return _compiled(recorded.resnet50(), "sgd")


def convnet_bytes() -> Any:
    return _compiled(recorded.convnet())


def language_model() -> Any:
    return _compiled(recorded.transformer())


# --- encoders (BERT's shape, by their published configurations) ----------------------------------------------


def _encoder(blocks: int, width: int, heads: int, length: int, words: int, outputs: int, each: bool) -> Any:
    """`each`: an answer for every token (SQuAD), else one for the sequence. Dropout as published: 0.1."""
    import keras
    from keras import layers

    tokens = keras.Input((length,), dtype="int32")
    places = keras.ops.zeros_like(tokens) + keras.ops.arange(length, dtype="int32")
    value = layers.Embedding(words, width)(tokens) + layers.Embedding(514, width)(places)
    value = layers.Dropout(0.1)(layers.LayerNormalization()(value))
    for _ in range(blocks):
        near = layers.MultiHeadAttention(heads, width // heads, dropout=0.1)(value, value)
        value = layers.LayerNormalization()(layers.Add()([value, layers.Dropout(0.1)(near)]))
        near = layers.Dense(width)(layers.Dense(4 * width, activation="gelu")(value))
        value = layers.LayerNormalization()(layers.Add()([value, layers.Dropout(0.1)(near)]))
    if not each:
        value = layers.Dense(width, activation="tanh")(value[:, 0])
    logits = layers.Dense(outputs)(value)
    probabilities = layers.Activation("softmax", dtype="float32")(logits)
    return _compiled(keras.Model(tokens, probabilities))


def distilroberta() -> Any:
    return _encoder(6, 768, 12, 128, 50_265, 2, each=False)


def roberta_base() -> Any:
    return _encoder(12, 768, 12, 128, 50_265, 2, each=False)


def roberta_large() -> Any:
    return _encoder(24, 1024, 16, 128, 50_265, 2, each=False)


def bert_large() -> Any:
    return _encoder(24, 1024, 16, 384, 30_522, 2, each=True)


def electra_base() -> Any:
    return _encoder(12, 768, 12, 384, 30_522, 2, each=True)


bert_base = electra_base
"""The same layers: ELECTRA-base is a BERT-base that was trained in another way."""


# --- convolutional networks ----------------------------------------------------------------------------------


def unet_medical() -> Any:
    """NVIDIA's UNet_Medical: images of 572 x 572, convolutions without padding."""
    import keras
    from keras import layers

    def twice(value: Any, filters: int) -> Any:
        for _ in range(2):
            value = layers.Conv2D(filters, 3, activation="relu")(value)
        return value

    def joined(value: Any, kept: Any) -> Any:
        cut = (kept.shape[1] - value.shape[1]) // 2
        rest = kept.shape[1] - value.shape[1] - cut
        return layers.Concatenate()([value, layers.Cropping2D(((cut, rest), (cut, rest)))(kept)])

    def wider(value: Any, filters: int) -> Any:
        return layers.Conv2DTranspose(filters, 3, strides=2, padding="same", activation="relu")(value)

    inputs = value = keras.Input((572, 572, 1))
    kept = []
    for filters in (64, 128, 256, 512):
        value = twice(value, filters)
        kept.append(value)
        value = layers.MaxPooling2D()(value)
    value = wider(layers.Dropout(0.5)(twice(value, 1024)), 512)
    for filters in (512, 256, 128):
        value = wider(twice(joined(value, kept.pop()), filters), filters // 2)
    value = layers.Conv2D(2, 1)(twice(joined(value, kept.pop()), 64))
    return _compiled(keras.Model(inputs, layers.Activation("softmax", dtype="float32")(value)))


def unet_industrial() -> Any:
    """NVIDIA's UNet_Industrial, "tinyUNet": images of 512 x 512, padded convolutions."""
    import keras
    from keras import layers

    def convolved(value: Any, filters: int) -> Any:
        return layers.Conv2D(filters, 3, padding="same", activation="relu")(value)

    def wider(value: Any, filters: int) -> Any:
        return layers.Conv2DTranspose(filters, 2, strides=2, padding="same", activation="relu")(value)

    inputs = value = keras.Input((512, 512, 1))
    kept = []
    for filters in (32, 32, 64, 128):
        value = convolved(convolved(value, filters), filters)
        kept.append(value)
        value = layers.MaxPooling2D()(value)
    value = wider(convolved(convolved(value, 256), 256), 128)
    for filters in (128, 64, 32):
        value = layers.Concatenate()([value, kept.pop()])
        value = wider(convolved(convolved(value, filters), filters // 2), filters // 2)
    value = layers.Concatenate()([value, kept.pop()])
    value = layers.Conv2D(1, 1)(convolved(convolved(value, 32), 32))
    outputs = layers.Activation("sigmoid", dtype="float32")(value)
    return _compiled(keras.Model(inputs, outputs), "rmsprop", "binary_crossentropy")


def gan() -> Any:
    """Argonne's GAN of 28 x 28 images: a step trains the generator, then the discriminator, each through both."""
    import keras
    from keras import layers, ops

    def made() -> Any:
        steps: list[Any] = [keras.Input((100,)), layers.Dense(7 * 7 * 64), layers.Reshape((7, 7, 64))]
        for filters, after in ((64, True), (32, True), (8, False)):
            steps += [
                layers.BatchNormalization(),
                layers.Conv2D(filters, 5, padding="same", activation="tanh"),
            ]
            steps += [layers.UpSampling2D()] if after else []
        last = [layers.BatchNormalization(), layers.Conv2D(1, 5, padding="same", activation="sigmoid")]
        return keras.Sequential([*steps, *last])

    def judged() -> Any:
        steps: list[Any] = [keras.Input((28, 28, 1))]
        for filters in (24, 64, 128):
            steps += [layers.Conv2D(filters, 5, padding="same", activation="tanh"), layers.MaxPooling2D()]
            steps += [layers.Dropout(0.4)]
        return keras.Sequential([*steps, layers.Flatten(), layers.Dense(1)])

    class Gan(keras.Model):
        """One loss whose gradient is that of both steps: each network's own loss, the other's weights held."""

        def __init__(self) -> None:
            super().__init__()
            self.generator, self.discriminator = made(), judged()
            self.held_generator, self.held_discriminator = made(), judged()
            self.held_generator.trainable = self.held_discriminator.trainable = False

        def build(self, shape: Any) -> None:
            self.built = True

        def call(self, real: Any) -> Any:
            noise = ops.reshape(real, (-1, 784))[:, :100]
            fooled = self.held_discriminator(self.generator(noise))
            also_real = self.held_discriminator(real)
            told = [self.discriminator(real), self.discriminator(self.held_generator(noise))]
            return ops.cast(ops.concatenate([fooled, also_real, *told], axis=-1), "float32")

    inputs = keras.Input((28, 28, 1))
    return _compiled(
        keras.Model(inputs, Gan()(inputs)), "adam", keras.losses.BinaryCrossentropy(from_logits=True)
    )
