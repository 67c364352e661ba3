"""The band of loss scales against a training step of its own at every power of two, and NumPy's float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.numbers import band
from tests.numerics.on_tensorflow import keras, tf

pytestmark = pytest.mark.framework
MODELS = 20
ROWS = 16


def made(number: int) -> tuple[Any, Any, Any]:
    """One of 20 networks of three layers, whose inputs, weights and targets have magnitudes of their own."""
    draw = np.random.default_rng(number)
    widths = [int(draw.integers(4, 40)) for _ in range(3)]
    sizes = 10.0 ** draw.uniform(-1.5, 1.0, 3)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        stack = [keras.layers.Dense(width, activation="relu") for width in widths[1:]]
        model = keras.Sequential([keras.Input((widths[0],)), *stack, keras.layers.Dense(1, dtype="float32")])
    finally:
        keras.config.set_dtype_policy(before)
    model.set_weights(
        [(draw.normal(size=each.shape) * sizes[1] / np.sqrt(each.shape[0])) for each in model.weights]
    )
    x = (draw.normal(size=(ROWS, widths[0])) * sizes[0]).astype(np.float32)
    y = (draw.normal(size=(ROWS, 1)) * 10 * sizes[2]).astype(np.float32)
    model.compile("sgd", "mse")
    return model, x, y


def exact(model: Any, x: Any, y: Any) -> list[Any]:
    """The gradients of the weights in float64."""
    weights = [each.astype(np.float64) for each in model.get_weights()]
    kernels, biases = weights[::2], weights[1::2]
    values = [x.astype(np.float64)]
    for kernel, bias in zip(kernels, biases, strict=True):
        before = values[-1] @ kernel + bias
        values.append(before if kernel is kernels[-1] else np.maximum(before, 0))
    back, found = 2 * (values[-1] - y) / ROWS, []
    for number in reversed(range(len(kernels))):
        found[:0] = [values[number].T @ back, back.sum(axis=0)]
        back = (back @ kernels[number].T) * (values[number] > 0)
    return found


def steps(model: Any, x: Any, y: Any) -> dict[int, list[Any]]:
    """By exponent of the loss scale: the gradients of the weights of a compiled step without mpprof."""

    @tf.function
    def gradients(x: Any, y: Any, scale: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y)) * scale
        return tape.gradient(loss, [each.value for each in model.trainable_variables])

    given = tf.constant(x), tf.constant(y)
    return {
        exponent: [each.numpy() for each in gradients(*given, tf.constant(2.0**exponent, tf.float32))]
        for exponent in range(band.LOWEST, band.HIGHEST + 1)
    }


def truth(model: Any, x: Any, y: Any) -> tuple[int, int]:
    """The first and the last exponent of the band, by trying each."""
    tried, wanted = steps(model, x, y), exact(model, x, y)
    finite = [exponent for exponent, some in tried.items() if all(np.isfinite(each).all() for each in some)]
    assert finite == list(range(band.LOWEST, len(finite) + band.LOWEST))
    other = sum(int((each != 0).sum()) for each in wanted)

    def lost(exponent: int) -> float:
        pairs = zip(tried[exponent], wanted, strict=True)
        return sum(int(((mine == 0) & (true != 0)).sum()) for mine, true in pairs) / other

    return next(exponent for exponent in finite if lost(exponent) <= band.MOST_LOST), finite[-1]


@pytest.mark.parametrize(
    "numbers", [pytest.param([3], id="one"), pytest.param(range(MODELS), marks=pytest.mark.full, id="all")]
)
def test_the_band_is_that_of_a_step_at_each_power_of_two(numbers: Any) -> None:
    """Its end exactly; its beginning to one power of two in 9 of 10."""
    far = []
    for number in numbers:
        model, x, y = made(number)
        low, high = truth(model, x, y)
        found = mpprof.numerics(model, x, y).loss_scale
        assert found.high == 2.0**high, number
        assert found.low is not None, number
        if abs(np.log2(found.low) - low) > 1:
            far.append((number, low, np.log2(found.low)))
    assert len(far) <= len(numbers) / 10, far
