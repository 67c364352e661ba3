"""Models whose activations are forecast, and held to XLA's buffer assignment: see `make_assignments`."""

from __future__ import annotations

from typing import Any

BATCH = {
    "convnet": 128, "resnet": 64, "transformer": 16, "lstm": 128, "unet": 16,
    "vgg": 64, "perceptron": 8192, "subclassed_convnet": 128, "subclassed_encoder": 32, "subclassed_blocks": 32,
    "attention_by_functions": 16, "gates_by_functions": 64, "mixer_by_functions": 32,
}  # fmt: skip
"""Examples a step of each model."""

SUBCLASSED = ("subclassed_convnet", "subclassed_encoder", "subclassed_blocks")
CUSTOM = "subclassed_blocks"
"""Of layers of no known kind: its forecast is a lower bound."""


def convnet() -> Any:
    """Convolutions with batch normalisation between product and activation."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((128, 128, 3))])
    for filters, size in ((32, 5), (64, 7)):
        model.add(layers.Conv2D(filters, size, strides=2))
        model.add(layers.BatchNormalization())
        model.add(layers.ReLU())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(256, activation="relu"))
    model.add(layers.Dense(10))
    model.add(layers.Activation("softmax", dtype="float32"))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def resnet() -> Any:
    """ResNet-50, as Keras builds it."""
    import keras

    model = keras.applications.ResNet50(weights=None)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    return model


def transformer() -> Any:
    """Four blocks of a decoder with dropout."""
    import keras
    from keras import layers

    words, width, heads, length, rate = 4096, 256, 4, 256, 0.1
    value = inputs = keras.Input((length,), dtype="int32")
    value = layers.Embedding(words, width)(value)
    for _ in range(4):
        near = layers.LayerNormalization()(value)
        near = layers.MultiHeadAttention(heads, width // heads)(near, near, use_causal_mask=True)
        value = layers.Add()([value, layers.Dropout(rate)(near)])
        near = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(value))
        value = layers.Add()([value, layers.Dropout(rate)(layers.Dense(width)(near))])
    value = layers.Dense(words, name="head")(layers.LayerNormalization()(value))
    model = keras.Model(inputs, layers.Activation("linear", dtype="float32")(value))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def lstm() -> Any:
    """Two recurrent layers over a text, as loops: cuDNN's cannot be compiled without a card."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((128,), dtype="int32"),
            layers.Embedding(5000, 128),
            layers.LSTM(256, return_sequences=True, use_cudnn=False),
            layers.LSTM(256, use_cudnn=False),
            layers.Dense(20),
            layers.Activation("softmax", dtype="float32"),
        ]
    )
    model.compile("rmsprop", "sparse_categorical_crossentropy")
    return model


def unet() -> Any:
    """Three levels down and up again, with concatenations."""
    import keras
    from keras import layers

    def twice(value: Any, filters: int) -> Any:
        for _ in range(2):
            value = layers.Conv2D(filters, 3, padding="same", activation="relu")(value)
        return value

    inputs = value = keras.Input((128, 128, 3))
    kept = []
    for filters in (32, 64, 128):
        value = twice(value, filters)
        kept.append(value)
        value = layers.MaxPooling2D()(value)
    value = twice(value, 256)
    for filters in (128, 64, 32):
        value = layers.Conv2DTranspose(filters, 2, strides=2, padding="same")(value)
        value = twice(layers.Concatenate()([value, kept.pop()]), filters)
    value = layers.Conv2D(1, 1)(value)
    model = keras.Model(inputs, layers.Activation("sigmoid", dtype="float32")(value))
    model.compile("adam", "binary_crossentropy")
    return model


def vgg() -> Any:
    """Eight convolutions and dense layers of many weights, in the shape of VGG-11."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((96, 96, 3))])
    for filters, times in ((64, 1), (128, 1), (256, 2), (512, 2)):
        for _ in range(times):
            model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(2048, activation="relu"))
    model.add(layers.Dropout(0.5))
    model.add(layers.Dense(100))
    model.add(layers.Activation("softmax", dtype="float32"))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def perceptron() -> Any:
    """Dense layers with layer normalisation between them."""
    import keras
    from keras import layers

    value = inputs = keras.Input((1024,))
    for _ in range(4):
        value = layers.LayerNormalization()(layers.Dense(2048, activation="relu")(value))
    value = layers.Dense(10)(value)
    model = keras.Model(inputs, layers.Activation("softmax", dtype="float32")(value))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def subclassed_convnet() -> Any:
    """A subclassed model of Keras' own layers."""
    import keras
    from keras import layers

    class Convnet(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.convolved = [
                layers.Conv2D(filters, 3, strides=2, padding="same") for filters in (64, 128, 256)
            ]
            self.normed = [layers.BatchNormalization() for _ in self.convolved]
            self.active = [layers.ReLU() for _ in self.convolved]
            self.pooled, self.head = layers.GlobalAveragePooling2D(), layers.Dense(10)
            self.last = layers.Activation("softmax", dtype="float32")

        def call(self, value: Any) -> Any:
            for convolved, normed, active in zip(self.convolved, self.normed, self.active, strict=True):
                value = active(normed(convolved(value)))
            return self.last(self.head(self.pooled(value)))

    return _called(Convnet(), (128, 128, 3), "float32", "sparse_categorical_crossentropy")


def subclassed_encoder() -> Any:
    """A subclassed transformer whose call is made of Keras' layers."""
    import keras
    from keras import layers

    class Encoder(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embedded = layers.Embedding(8192, 256)
            self.attended = [layers.MultiHeadAttention(4, 64) for _ in range(3)]
            self.normed = [layers.LayerNormalization() for _ in range(6)]
            self.up = [layers.Dense(1024, activation="relu") for _ in range(3)]
            self.down = [layers.Dense(256) for _ in range(3)]
            self.added = [layers.Add() for _ in range(6)]
            self.pooled, self.head = layers.GlobalAveragePooling1D(), layers.Dense(5)
            self.last = layers.Activation("softmax", dtype="float32")

        def call(self, tokens: Any) -> Any:
            value = self.embedded(tokens)
            for at in range(3):
                near = self.attended[at](value, value)
                value = self.normed[2 * at](self.added[2 * at]([value, near]))
                near = self.down[at](self.up[at](value))
                value = self.normed[2 * at + 1](self.added[2 * at + 1]([value, near]))
            return self.last(self.head(self.pooled(value)))

    return _called(Encoder(), (256,), "int32", "sparse_categorical_crossentropy")


def subclassed_blocks() -> Any:
    """A subclassed transformer of six layers of its own kind."""
    import keras
    from keras import layers

    class Block(layers.Layer):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = layers.LayerNormalization(), layers.LayerNormalization()
            self.attended = layers.MultiHeadAttention(8, 64)
            self.up, self.down = layers.Dense(2048, activation="gelu"), layers.Dense(512)

        def call(self, value: Any) -> Any:
            near = self.first(value)
            value = value + self.attended(near, near, use_causal_mask=True)
            return value + self.down(self.up(self.second(value)))

    class Blocks(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embedded, self.head = layers.Embedding(8192, 512), layers.Dense(8192)
            self.blocks = [Block() for _ in range(6)]
            self.last = layers.Activation("linear", dtype="float32")

        def call(self, tokens: Any) -> Any:
            value = self.embedded(tokens)
            for block in self.blocks:
                value = block(value)
            return self.last(self.head(value))

    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    return _called(Blocks(), (256,), "int32", loss)


def attention_by_functions() -> Any:
    """Three blocks of a decoder whose attention is made of functions of `keras.ops` between layers."""
    import keras
    from keras import layers, ops

    words, width, heads, length = 4096, 256, 8, 256
    depth = width // heads
    mask = ops.tril(ops.ones((length, length)))

    def split(value: Any) -> Any:
        return ops.transpose(ops.reshape(value, (-1, length, heads, depth)), (0, 2, 1, 3))

    value = inputs = keras.Input((length,), dtype="int32")
    value = layers.Embedding(words, width)(value)
    for _ in range(3):
        near = layers.LayerNormalization()(value)
        query, key, given = (split(layers.Dense(width)(near)) for _ in range(3))
        scores = ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))) / depth**0.5
        scores = ops.where(mask, scores, -1e4)
        near = ops.matmul(ops.softmax(scores), given)
        near = ops.reshape(ops.transpose(near, (0, 2, 1, 3)), (-1, length, width))
        value = value + layers.Dense(width)(near)
        near = ops.gelu(layers.Dense(4 * width)(layers.LayerNormalization()(value)))
        value = value + layers.Dense(width)(near)
    value = layers.Dense(words, name="head")(layers.LayerNormalization()(value))
    model = keras.Model(inputs, layers.Activation("linear", dtype="float32")(value))
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def gates_by_functions() -> Any:
    """Convolutions with gated activations, sums and means by functions of `keras.ops` between layers."""
    import keras
    from keras import layers, ops

    value = inputs = keras.Input((96, 96, 3))
    for filters in (32, 64, 128):
        value = layers.Conv2D(filters, 3, strides=2, padding="same")(value)
        near = layers.Conv2D(2 * filters, 3, padding="same")(ops.relu(value))
        left, right = ops.split(near, 2, axis=-1)
        near = left * ops.sigmoid(right)
        weights = layers.Dense(filters, activation="sigmoid")(ops.mean(near, axis=(1, 2)))
        value = ops.concatenate([value, near * ops.expand_dims(ops.expand_dims(weights, 1), 1)], axis=-1)
    value = layers.Dense(20)(ops.mean(value, axis=(1, 2)))
    model = keras.Model(inputs, layers.Activation("softmax", dtype="float32")(value))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def mixer_by_functions() -> Any:
    """Four blocks that mix positions by `einsum` and channels by a gate, with a root mean square by functions."""
    import keras
    from keras import layers, ops

    length, width = 196, 256

    def normed(value: Any) -> Any:
        return value * ops.rsqrt(ops.mean(ops.square(value), axis=-1, keepdims=True) + 1e-6)

    inputs = keras.Input((224, 224, 3))
    value = ops.reshape(layers.Conv2D(width, 16, strides=16)(inputs), (-1, length, width))
    for _ in range(4):
        near = ops.swapaxes(normed(value), 1, 2)
        near = ops.swapaxes(layers.Dense(length)(ops.tanh(layers.Dense(2 * length)(near))), 1, 2)
        weights = ops.softmax(ops.einsum("bpc,bqc->bpq", near, value))
        value = value + near + ops.einsum("bpq,bqc->bpc", weights, near)
        left, right = ops.split(layers.Dense(4 * width)(normed(value)), 2, axis=-1)
        value = value + layers.Dense(width)(ops.silu(left) * right)
    value = layers.Dense(100)(ops.mean(value, axis=1))
    model = keras.Model(inputs, layers.Activation("softmax", dtype="float32")(value))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def _called(model: Any, shape: tuple[int, ...], dtype: str, loss: Any) -> Any:
    """The model, built by a call on one example, and compiled."""
    import numpy as np

    model(np.zeros((1, *shape), dtype))
    model.compile("adam", loss)
    return model
