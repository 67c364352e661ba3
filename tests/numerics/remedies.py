"""Trainings that break in 16 bits, and the code that a look prints for each, put where it belongs: it cures them.

None of them is a planted break. The same on every backend:

    KERAS_BACKEND=jax python -m tests.numerics.remedies [NAME …]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import mpprof

layers, ops = keras.layers, keras.ops
ROWS = 64
Made = tuple[Any, Any, Any]
CASES: dict[str, Callable[[str], Made]] = {}
"""By name: what makes the model with its batch, and runs the code that is given where it belongs."""


def case(make: Callable[[str], Made]) -> Callable[[str], Made]:
    CASES[make.__name__] = make
    return make


def run(code: str, **names: Any) -> dict[str, Any]:
    """Run the code that was printed, with these names; return the names after it."""
    found = {"keras": keras, **names}
    exec(code, found)
    return found


def normal(*shape: int, scale: float = 1.0) -> Any:
    return (np.random.default_rng(3).normal(size=(ROWS, *shape)) * scale).astype(np.float32)


def trained(stack: list[Any], x: Any, optimizer: Any = None, loss: Any = "mse", y: Any = None) -> Made:
    model = keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype.name), *stack])
    model.compile(optimizer or keras.optimizers.Adam(1e-3), loss)
    return model, x, normal(1) if y is None else y


def low() -> Any:
    """Return an optimizer whose loss scale is good for gradients of some hundreds."""
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=16.0)


def given(code: str, kind: Any, **more: Any) -> Any:
    """Return a layer of this kind, with what the code gives its constructor."""
    return eval(code.partition("#")[0].replace("...", "**more"), {kind.__name__: kind, "more": more})


class Attention(layers.Layer):  # type: ignore[misc]
    """Scores that nothing scales: products of two layers of its own."""

    def __init__(self, code: str) -> None:
        super().__init__(name="attention")
        self.code = code
        draw = keras.initializers.RandomNormal(stddev=0.25, seed=1)
        self.queries, self.keys = (
            layers.Dense(64, kernel_initializer=draw, name=each) for each in ("q", "k")
        )

    def call(self, x: Any) -> Any:
        queries, keys = (run(self.code, x=each(x))["x"] for each in (self.queries, self.keys))
        scores = ops.softmax(ops.matmul(queries, ops.transpose(keys, (0, 2, 1))))
        return ops.matmul(scores, ops.cast(x, scores.dtype))


@case
def attention_without_scaling(code: str) -> Made:
    stack = [Attention(code), layers.GlobalAveragePooling1D(), layers.Dense(1, dtype="float32")]
    return trained(stack, normal(16, 64, scale=60))


class Norm(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        x = x - ops.mean(x, -1, keepdims=True)
        return x * ops.rsqrt(ops.mean(ops.square(x), -1, keepdims=True) + 1e-3)


@case
def variance_in_a_norm_of_ones_own(code: str) -> Made:
    norm = given(code or "Norm(...)", Norm, name="norm")
    return trained([norm, layers.Dense(1, dtype="float32")], normal(64, scale=400))


@case
def loss_times_a_million(code: str) -> Made:
    optimizer = run(code, optimizer=keras.optimizers.Adam(1e-3))["optimizer"]
    stack = [layers.Dense(32, activation="relu"), layers.Dense(1)]
    return trained(
        stack, normal(64), optimizer, lambda y, outputs: 1e6 * keras.losses.mean_squared_error(y, outputs)
    )


class Total(layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return ops.sum(x, axis=1)


@case
def sum_over_a_long_axis(code: str) -> Made:
    """125,000 of each channel, which the next layer reads."""
    names = run(code, optimizer=keras.optimizers.Adam(1e-3))
    x = np.random.default_rng(3).uniform(10, 50, (ROWS, 4096, 2)).astype(np.float32)
    return trained([Total(name="total"), layers.Dense(1, name="out")], x, names["optimizer"])


@case
def embedding_with_tiny_gradients(code: str) -> Made:
    begins_low = keras.optimizers.LossScaleOptimizer(keras.optimizers.Adam(1e-3), initial_scale=1.0)
    optimizer = run(code, optimizer=keras.optimizers.Adam(1e-3))["optimizer"] if code else begins_low
    stack = [layers.Embedding(50, 16), layers.GlobalAveragePooling1D(), layers.Dense(1),
             layers.Rescaling(1e-3, dtype="float32")]  # fmt: skip
    x = np.random.default_rng(3).integers(0, 50, (ROWS, 256)).astype(np.int32)
    return trained(stack, x, optimizer, y=normal(1, scale=1e-3))


@case
def layer_that_casts_by_itself(code: str) -> Made:
    def squares(x: Any) -> Any:
        x = run(code, x=ops.cast(x, "float16"))["x"]
        return ops.log(1.0 + ops.sum(ops.square(x), -1, keepdims=True))

    stack = [layers.Lambda(squares, output_shape=(1,), name="squares"), layers.Dense(1, dtype="float32")]
    return trained(stack, normal(64, scale=100))


@case
def function_between_layers(code: str) -> Made:
    inputs = keras.Input((64,))
    x = run(code, x=layers.Dense(32, name="before")(inputs))["x"]
    outputs = layers.Dense(1, dtype="float32")(ops.log1p(ops.exp(x)))
    model = keras.Model(inputs, outputs)
    model.compile(low(), "mse")
    return model, normal(64, scale=10), normal(1)


@case
def logarithm_of_zero(code: str) -> Made:
    def logs(x: Any) -> Any:
        return eval(code or "keras.ops.log(x)", {"keras": keras, "x": x})

    stack = [
        layers.Dense(8, activation="relu"),
        layers.Lambda(logs, name="logs"),
        layers.Dense(1, dtype="float32"),
    ]
    return trained(stack, normal(64), low())


@case
def updates_of_weights_of_16_bits(code: str) -> Made:
    keras.config.set_dtype_policy("bfloat16")
    run(code)
    return trained(
        [layers.Dense(32, activation="relu"), layers.Dense(1)], normal(64), keras.optimizers.SGD(1e-4)
    )


def made(name: str, code: str = "") -> Made:
    keras.utils.clear_session()
    keras.utils.set_random_seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        return CASES[name](code)
    finally:
        keras.config.set_dtype_policy(before)


def uncured(name: str, steps: int = 10) -> list[str]:
    """Return what is wrong: no code for a break, a break that the code leaves, or a training that skips updates."""
    found = mpprof.numerics(*made(name))
    if not found.advice:
        return [f"no advice: {found!r}"]
    code = found.advice[0].snippet
    model, x, y = made(name, code)
    cured = mpprof.numerics(model, x, y)
    left = [each for each in (cured.first_forward, cured.first_backward, *cured.advice) if each is not None]
    said = [f"{code}: {each}" for each in left]
    losses = [float(model.train_on_batch(x, y)) for _ in range(steps)]
    if not np.isfinite(losses).all() or losses[-1] > losses[0]:
        said.append(f"{code}: losses {losses}")
    inner = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    applied = int(keras.ops.convert_to_numpy(inner.iterations))
    return said + ([] if applied == steps else [f"{code}: {applied} of {steps} updates"])


if __name__ == "__main__":
    for each in sys.argv[1:] or list(CASES):
        print(each, uncured(each), flush=True)
