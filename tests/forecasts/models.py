"""Models whose train steps were compiled for cards that are not here: see `make_programs`."""

from __future__ import annotations

from typing import Any


def convnet() -> Any:
    """The convolutional network of a published comparison on V100, at a quarter of its image."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((64, 64, 3))])
    for filters, size in ((32, 5), (64, 7), (128, 11)):
        model.add(layers.Conv2D(filters, size, strides=2, padding="same", activation="relu"))
        model.add(layers.BatchNormalization())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10))
    model.add(layers.Activation("softmax", dtype="float32"))
    model.compile("adam", "categorical_crossentropy")
    return model


def published_convnet() -> Any:
    """The same at its published size: 256 x 256 images, filters without padding."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((256, 256, 3))])
    for filters, size in ((32, 5), (64, 7), (128, 11)):
        model.add(layers.Conv2D(filters, size, strides=2, activation="relu"))
        model.add(layers.BatchNormalization())
    model.add(layers.GlobalAveragePooling2D())
    model.add(layers.Dense(10))
    model.add(layers.Activation("softmax", dtype="float32"))
    model.compile("adam", "categorical_crossentropy")
    return model


def resnet() -> Any:
    """ResNet-50, as Keras builds it."""
    import keras

    model = keras.applications.ResNet50(weights=None)
    model.compile("sgd", "sparse_categorical_crossentropy")
    return model


def transfer() -> Any:
    """ResNet-50 with a head of five classes, as a published comparison on T4 trained it whole."""
    import keras
    from keras import layers

    base = keras.applications.ResNet50(weights=None, include_top=False, input_shape=(224, 224, 3))
    value = layers.GlobalAveragePooling2D()(base.output)
    model = keras.Model(base.input, layers.Dense(5, activation="softmax", dtype="float32")(value))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def transformer() -> Any:
    """Two blocks of a decoder with a vocabulary of odd size."""
    import keras
    from keras import layers

    words, width, heads, length = 1001, 64, 4, 32
    value = inputs = keras.Input((length,), dtype="int32")
    value = layers.Embedding(words, width)(value)
    for _ in range(2):
        normed = layers.LayerNormalization()(value)
        attended = layers.MultiHeadAttention(heads, width // heads)(normed, normed, use_causal_mask=True)
        value = layers.Add()([value, attended])
        normed = layers.LayerNormalization()(value)
        hidden = layers.Dense(4 * width, activation="gelu")(normed)
        value = layers.Add()([value, layers.Dense(width)(hidden)])
    outputs = layers.Activation("linear", dtype="float32")(layers.Dense(words, name="head")(value))
    model = keras.Model(inputs, outputs)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def recurrent() -> Any:
    import keras
    from keras import layers

    model = keras.Sequential(
        [keras.Input((10,), dtype="int32"), layers.Embedding(100, 32), layers.LSTM(64), layers.Dense(8)]
    )
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model


def depthwise() -> Any:
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((32, 32, 8)),
            layers.DepthwiseConv2D(3, padding="same", name="depthwise"),
            layers.Conv2D(16, 1, name="pointwise"),
            layers.GlobalAveragePooling2D(),
            layers.Dense(8, name="head"),
        ]
    )
    model.compile("sgd", "mse")
    return model


def convolutions() -> Any:
    """Every kind of convolution, whose operations have a plain formula."""
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((33, 33, 16)),
            layers.Conv2D(32, 3, strides=2, name="strided"),
            layers.Conv2D(32, 5, padding="same", name="padded"),
            layers.Conv2D(64, 3, groups=4, padding="same", name="grouped"),
            layers.Conv2D(32, 3, dilation_rate=2, name="dilated"),
            layers.Conv2DTranspose(16, 4, strides=2, padding="same", name="transposed"),
            layers.SeparableConv2D(24, 3, padding="same", name="separable"),
            layers.Reshape((576, 24)),
            layers.Conv1D(32, 7, strides=3, padding="same", name="one"),
            layers.Reshape((4, 6, 8, 32)),
            layers.Conv3D(16, 3, padding="same", name="three"),
            layers.GlobalAveragePooling3D(),
            layers.Dense(8, name="head"),
        ]
    )
    model.compile("sgd", "mse")
    return model


def dense() -> Any:
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input((1024,)),
            layers.Dense(512, activation="relu", name="hidden"),
            layers.Dense(256, name="head"),
        ]
    )
    model.compile("sgd", "mse")
    return model


def small() -> Any:
    """A convolutional network of 60,000 parameters, whose kernels are shorter than their launches."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((28, 28, 1))])
    for filters in (16, 32, 48):
        model.add(layers.Conv2D(filters, 3, padding="same", activation="relu"))
        model.add(layers.MaxPooling2D())
    model.add(layers.Flatten())
    model.add(layers.Dense(90, activation="relu"))
    model.add(layers.Dense(10, activation="softmax", dtype="float32"))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def resnet20() -> Any:
    """ResNet-20 on images of 32 x 32."""
    import keras
    from keras import layers

    def normed(value: Any) -> Any:
        return layers.BatchNormalization()(value)

    inputs = keras.Input((32, 32, 3))
    value = layers.ReLU()(normed(layers.Conv2D(16, 3, padding="same")(inputs)))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(3):
            stride = 2 if stage and not block else 1
            inner = layers.ReLU()(normed(layers.Conv2D(filters, 3, stride, padding="same")(value)))
            inner = normed(layers.Conv2D(filters, 3, padding="same")(inner))
            if stride == 2:
                value = layers.Conv2D(filters, 1, 2)(value)
            value = layers.ReLU()(layers.Add()([value, inner]))
    value = layers.Dense(10)(layers.GlobalAveragePooling2D()(value))
    model = keras.Model(inputs, layers.Activation("softmax", dtype="float32")(value))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def uncompiled() -> Any:
    import keras

    return keras.Sequential([keras.Input((4,)), keras.layers.Dense(2)])


def broken() -> Any:
    raise RuntimeError("no such dataset")


def float8() -> Any:
    """Dense layers in float8, the last one left out of it."""
    import keras
    from keras import layers

    model = keras.Sequential([keras.Input((1024,))])
    for name in ("a", "b"):
        model.add(layers.Dense(4096, activation="relu", name=name))
    model.add(layers.Dense(16, name="logits"))
    model.add(layers.Activation("linear", dtype="float32"))
    model.quantize("float8", filters=lambda layer: layer.name != "logits")
    model.compile("adam", "mse")
    return model
