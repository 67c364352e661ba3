"""Models whose activations are forecast, and held to XLA's buffer assignment: see `make_assignments`."""

from __future__ import annotations

from typing import Any

BATCH = {"convnet": 128, "resnet": 64, "transformer": 16, "lstm": 128, "unet": 16}
"""Examples a step of each model."""


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
