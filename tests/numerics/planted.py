"""Small models with one known break each, and their healthy twins; the same on every backend.

Weights are constants, so that what a layer gives can be computed apart, by hand or in NumPy's float64.

    KERAS_BACKEND=jax python -m tests.numerics.planted [NAME …]
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import layers, ops

import mpprof
from tests.record.training import seed

ROWS, WIDTH = 8, 64
SCALE = 2.0**15
NOT_ON_TORCH = ("sum_of_a_convolution", "constant_of_a_mask")
"""PyTorch 2.13 cannot train Keras' float16 convolution on the CPU: "slow_conv2d: grad_weight must be contiguous". And
it multiplies a float16 tensor by one number in float32."""


class Made(layers.Layer):  # type: ignore[misc]
    """A layer of one function."""

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        super().__init__(name=name)
        self.function = function

    def call(self, x: Any) -> Any:
        return self.function(x)


@dataclass(frozen=True)
class Case:
    """A model that computes in mixed_float16, its batch, and what to look at it with. `truth`: by layer and
    tensor, the largest magnitude, computed apart in float64; of gradients at the loss scale that is looked at."""

    model: Any
    x: Any
    y: Any
    more: dict[str, Any]
    truth: dict[tuple[str, str], float]


@dataclass(frozen=True)
class Planted:
    """`broken` and `healthy` make the case. `tensor` and `kind` of the break, in `layer`; `source`: where it comes from,
    where that is another."""

    layer: str
    tensor: str
    kind: str
    make: Callable[[bool], Case]
    source: str | None = None


PLANTED: dict[str, Planted] = {}


def plant(
    layer: str, tensor: str, kind: str, source: str | None = None
) -> Callable[[Callable[[bool], Case]], Callable[[bool], Case]]:
    """Add the function that makes a broken model (True) and its twin to `PLANTED`, by its name."""

    def add(make: Callable[[bool], Case]) -> Callable[[bool], Case]:
        PLANTED[make.__name__.removeprefix("plant_")] = Planted(layer, tensor, kind, make, source)
        return make

    return add


def dense(units: int, value: float, name: str, **more: Any) -> Any:
    return layers.Dense(
        units, kernel_initializer=keras.initializers.Constant(value), use_bias=False, name=name, **more
    )


def filled(value: float, *shape: int) -> np.ndarray[Any, Any]:
    return np.full((ROWS, *(shape or (WIDTH,))), value, np.float32)


def case(
    stack: list[Any],
    x: Any,
    *,
    y: float | None = 0.0,
    optimizer: Any = None,
    truth: dict[tuple[str, str], float] | None = None,
    **more: Any,
) -> Case:
    """Return a sequential model with mean squared error, so that nothing but the planted break is in it: y None is
    what the model gives, so that loss and gradients are 0."""
    model = keras.Sequential([keras.Input(x.shape[1:]), *stack])
    loss = None if "loss" in more else "mse"
    model.compile(
        optimizer or keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=SCALE),
        loss=loss,
    )
    wanted = np.zeros((ROWS, *model.output_shape[1:]), np.float32)
    return Case(model, x, wanted + (0.0 if y is None else y), more, truth or {})


def forward(stack: list[Any], x: Any, **more: Any) -> Case:
    """Return a case whose backward pass is harmless: the output goes through a small float32 layer."""
    small = dense(1, 1e-4, "small", dtype="float32")
    return case([*stack, small], x, **more)


@plant("head", "output", "sum")
def plant_sum_of_a_wide_dense(broken: bool) -> Case:
    """tensorflow#38357: inputs of 50 to 100, 4,096 ones, and their sum."""
    x = np.linspace(50, 100, ROWS, dtype=np.float32)[:, None] / (1 if broken else 50)
    truth = {("wide", "output"): float(x.max()), ("head", "output"): 4096 * float(x.astype(np.float64).max())}
    return forward([dense(4096, 1, "wide"), dense(1, 1, "head")], x, truth=truth)


@plant("conv", "output", "sum")
def plant_sum_of_a_convolution(broken: bool) -> Case:
    value = 200.0 if broken else 20.0
    conv = layers.Conv2D(1, 3, kernel_initializer="ones", name="conv")
    truth = {("conv", "output"): 9 * WIDTH * value}
    return forward([conv, layers.Flatten()], filled(value, 4, 4, WIDTH), truth=truth)


@plant("add", "output", "sum")
def plant_sum_of_a_residual(broken: bool) -> Case:
    value = 40_000.0 if broken else 4_000.0
    inputs = keras.Input((1,))
    inner = dense(1, 1, "branch")(inputs)
    total = layers.Add(name="add")([inner, dense(1, 1, "other")(inputs)])
    return functional(
        inputs, total, filled(value, 1), {("branch", "output"): value, ("add", "output"): 2 * value}
    )


def functional(inputs: Any, outputs: Any, x: Any, truth: dict[tuple[str, str], float]) -> Case:
    outputs = dense(1, 1e-4, "small", dtype="float32")(outputs)
    made = keras.Model(inputs, outputs)
    made.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=SCALE), loss="mse")
    return Case(made, x, np.zeros((ROWS, *outputs.shape[1:]), np.float32), {}, truth)


@plant("scores", "output", "sum")
def plant_sum_of_a_dot_product(broken: bool) -> Case:
    value = 100.0 if broken else 10.0
    inputs = keras.Input((WIDTH,))
    query, key = dense(WIDTH, 1 / WIDTH, "query")(inputs), dense(WIDTH, 1 / WIDTH, "key")(inputs)
    scores = layers.Dot(axes=-1, name="scores")([query, key])
    truth = {("query", "output"): value, ("scores", "output"): WIDTH * value * value}
    return functional(inputs, scores, filled(value), truth)


@plant("gate", "output", "product")
def plant_product_of_two_branches(broken: bool) -> Case:
    value = 300.0 if broken else 30.0
    inputs = keras.Input((1,))
    product = layers.Multiply(name="gate")([dense(1, 1, "left")(inputs), dense(1, 1, "right")(inputs)])
    return functional(inputs, product, filled(value, 1), {("gate", "output"): value * value})


@plant("norm", "output", "variance")
def plant_variance_of_large_activations(broken: bool) -> Case:
    def norm(x: Any) -> Any:
        return ops.square(x) * 1e-3

    value = 300.0 if broken else 30.0
    return forward([Made(norm, "norm")], filled(value), truth={("norm", "output"): value * value * 1e-3})


@plant("length", "output", "variance")
def plant_variance_by_a_sum_of_squares(broken: bool) -> Case:
    def length(x: Any) -> Any:
        return ops.sum(ops.square(x), axis=-1, keepdims=True)

    value = 100.0 if broken else 10.0
    return forward(
        [Made(length, "length")], filled(value), truth={("length", "output"): WIDTH * value * value}
    )


@plant("norm", "output", "underflow")
def plant_underflow_by_a_variance_that_a_root_hides(broken: bool) -> Case:
    """The square of 300 is infinite in float16, and the reciprocal of its root 0; in float64 the norm gives 1."""

    def norm(x: Any) -> Any:
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-3)

    return forward(
        [Made(norm, "norm"), dense(2, 1 / WIDTH, "after")],
        filled(300.0 if broken else 30.0),
        truth={} if broken else {("norm", "output"): 1.0, ("after", "output"): 1.0},
    )


@plant("head", "gradient", "loss scale")
def plant_loss_scale_behind_a_dropout(broken: bool) -> Case:
    """Another mask in the pass in float32 would make a gradient 0 here and not there."""
    stack = [layers.Dropout(0.9, name="dropout"), dense(1, 1e-3 / WIDTH, "head")]
    return case(stack, filled(1.0, 1024), y=100.0 if broken else 0.01)


@plant("exponential", "output", "exp")
def plant_exp_of_a_large_logit(broken: bool) -> Case:
    value = 12.0 if broken else 5.0
    activation = layers.Activation("exponential", name="exponential")
    return forward([activation], filled(value), truth={("exponential", "output"): float(np.exp(value))})


@plant("softmax", "output", "exp")
def plant_exp_of_a_softmax_by_hand(broken: bool) -> Case:
    def softmax(x: Any) -> Any:
        return ops.exp(x) / ops.sum(ops.exp(x), axis=-1, keepdims=True)

    return forward(
        [Made(softmax, "softmax")], filled(12.0 if broken else 5.0), truth={("softmax", "output"): 1 / WIDTH}
    )


@plant("norm", "output", "epsilon")
def plant_epsilon_of_a_division(broken: bool) -> Case:
    epsilon = 1e-8 if broken else 1e-3

    def norm(x: Any) -> Any:
        spread = x - ops.mean(x, axis=-1, keepdims=True)
        return spread / (ops.sqrt(ops.mean(spread * spread, axis=-1, keepdims=True)) + epsilon)

    twin = None if broken else np.tile(np.array([1.0, -1.0], np.float32), (ROWS, WIDTH // 2))
    x = filled(2.0) if twin is None else twin
    return forward([Made(norm, "norm")], x, truth={} if broken else {("norm", "output"): 1 / 1.001})


@plant("norm", "output", "epsilon")
def plant_epsilon_of_a_reciprocal_root(broken: bool) -> Case:
    epsilon = 1e-8 if broken else 1e-3

    def norm(x: Any) -> Any:
        return x * ops.rsqrt(ops.mean(x, axis=-1, keepdims=True) + epsilon)

    return forward([Made(norm, "norm")], filled(0.0), truth={("norm", "output"): 0.0})


@plant("share", "output", "division")
def plant_division_by_a_sum_of_zeros(broken: bool) -> Case:
    def share(x: Any) -> Any:
        return x / ops.sum(x, axis=-1, keepdims=True)

    return forward(
        [Made(share, "share")], filled(0.0 if broken else 1.0), truth={("share", "output"): 1 / WIDTH}
    )


@plant("loss", "output", "epsilon")
def plant_epsilon_of_a_loss(broken: bool) -> Case:
    epsilon = 1e-8 if broken else 1e-3

    def surprise(y: Any, outputs: Any) -> Any:
        return -ops.mean(ops.log(outputs + epsilon))

    stack = [dense(1, 1, "head"), layers.Activation("sigmoid", name="sigmoid")]
    truth = {("loss", "output"): -float(np.log(0.5 + epsilon))}
    return case(
        stack,
        filled(-20.0 if broken else 0.0, 1),
        loss=surprise,
        loss_scale=1.0,
        truth={} if broken else truth,
    )


@plant("head", "output", "batch")
def plant_batch_with_a_nan(broken: bool) -> Case:
    x = filled(1.0)
    x[3, 5] = np.nan if broken else 1.0
    return forward([dense(1, 1, "head")], x, truth={("head", "output"): float(WIDTH)})


@plant("head", "output", "cast")
def plant_cast_of_a_large_batch(broken: bool) -> Case:
    value = 70_000.0 if broken else 7_000.0
    return forward([dense(1, 1 / WIDTH, "head")], filled(value), truth={("head", "output"): value})


@plant("head", "output", "weights")
def plant_weights_beyond_float16(broken: bool) -> Case:
    value = 70_000.0 if broken else 7.0
    return forward([dense(1, value, "head")], filled(1 / WIDTH), truth={("head", "output"): value})


@plant("head", "output", "weights")
def plant_weights_with_an_infinity(broken: bool) -> Case:
    value = np.inf if broken else 1.0
    return forward([dense(1, value, "head")], filled(1 / WIDTH), truth={("head", "output"): value})


@plant("head", "gradient", "loss scale")
def plant_loss_scale_of_a_large_loss(broken: bool) -> Case:
    """The gradient of the mean of 8 squares is 2/8 of the error."""
    error = 100.0 if broken else 1.0
    truth = {("head", "gradient"): 2 / ROWS * error * SCALE}
    head = dense(1, 1e-3 / WIDTH, "head", kernel_regularizer="l2")
    return case([head], filled(0.0), y=error, truth=truth)


@plant("head", "weight_gradient", "loss scale")
def plant_loss_scale_of_a_sum_over_the_batch(broken: bool) -> Case:
    value = 100.0 if broken else 1.0
    error = 0.1
    truth = {
        ("head", "gradient"): 2 / ROWS * error * SCALE,
        ("head", "weight_gradient"): 2 * value * error * SCALE,
    }
    return case([dense(1, 0, "head")], filled(value), y=error, truth=truth)


@plant("first", "gradient", "loss scale")
def plant_loss_scale_of_a_gradient_that_flows_back(broken: bool) -> Case:
    weight = 100.0 if broken else 0.1
    at_head = 2 / ROWS * 0.1 * SCALE
    truth = {("head", "gradient"): at_head, ("first", "gradient"): WIDTH * at_head * weight}
    return case(
        [dense(1, 0, "first"), dense(WIDTH, weight, "head")], filled(1e-2), y=0.1 * WIDTH, truth=truth
    )


@plant("head", "gradient", "underflow")
def plant_underflow_without_a_loss_scale(broken: bool) -> Case:
    """A gradient of 2e-8: float16 rounds it to 0, and at a loss scale of 2^15 it is 6.6e-4."""
    scale = 1.0 if broken else SCALE

    def small(y: Any, outputs: Any) -> Any:
        return ops.mean(ops.cast(outputs, "float32")) * (2e-8 * ROWS)

    truth = {} if broken else {("head", "gradient"): 2e-8 * SCALE}
    return case(
        [dense(1, 1, "head")], filled(1.0), loss=small, loss_scale=scale, optimizer="sgd", truth=truth
    )


@plant("first", "gradient", "every scale", "length")
def plant_every_scale_by_the_root_of_zero(broken: bool) -> Case:
    add = 0.0 if broken else 1.0

    def length(x: Any) -> Any:
        return ops.sqrt(ops.sum(ops.square(x), axis=-1, keepdims=True) + add)

    truth = {("length", "output"): add}
    return case([dense(4, 0, "first"), Made(length, "length")], filled(1.0), y=1.0, truth=truth)


@plant("first", "gradient", "every scale", "length")
def plant_every_scale_beside_an_overflow_by_the_scale(broken: bool) -> Case:
    """The root of zero again, and after it a gradient of 2/8 of an error of 80 times 2^15, which overflows first."""
    made = plant_every_scale_by_the_root_of_zero(broken)
    made.model.add(dense(1, 1.0, "head"))
    return case(made.model.layers, filled(1.0), y=80.0 if broken else 1.0)


@plant("first", "gradient", "every scale", "sigmoid")
def plant_every_scale_by_an_infinity_that_the_output_hides(broken: bool) -> Case:
    """1 / (1 + exp(20)) is 1 / inf, 0, in float16, as 2e-9 is; its derivative is 0 times infinity."""

    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + ops.exp(x))

    value = 20.0 if broken else 1.0
    truth = {} if broken else {("sigmoid", "output"): float(1 / (1 + np.exp(value)))}
    return case([dense(1, value, "first"), Made(sigmoid, "sigmoid")], filled(1.0, 1), truth=truth)


@plant("scores", "output", "constant")
def plant_constant_of_a_mask(broken: bool) -> Case:
    """-1e9 is infinite in float16, and 0 times that is no number; a mask of -3e4 does the same for the softmax."""
    value = -1e9 if broken else -3e4

    def scores(x: Any) -> Any:
        hidden = ops.cast(np.arange(WIDTH) % 2, x.dtype)
        return ops.softmax(x + ops.multiply(hidden, value))

    return forward([Made(scores, "scores")], filled(1.0), truth={("scores", "output"): 2 / WIDTH})


class Between(keras.Model):  # type: ignore[misc]
    """Multiplies in its own call, between two layers."""

    def __init__(self) -> None:
        super().__init__(name="between")
        self.first, self.after = dense(4, 1, "first"), dense(1, 1e-4, "after")
        self.small = dense(1, 1e-4, "small", dtype="float32")

    def call(self, x: Any) -> Any:
        found = self.first(x)
        return self.small(self.after(found * -found))


@plant("after", "output", "product")
def plant_product_between_two_layers(broken: bool) -> Case:
    value = 300.0 if broken else 30.0
    model, x = Between(), filled(value, 1)
    model(x)
    model.compile(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=SCALE), loss="mse"
    )
    truth = {("first", "output"): value, ("after", "output"): 4e-4 * value**2}
    return Case(model, x, np.ones((ROWS, 1), np.float32), {}, truth)


@plant("head", "gradient", "underflow", "head")
def plant_underflow_of_a_probability(broken: bool) -> Case:
    """The sigmoid of -20 is 2e-9: float16 rounds it to 0, and with it the gradient, at every loss scale."""
    value = -20.0 if broken else -2.0

    def small(y: Any, outputs: Any) -> Any:
        return ops.mean(ops.square(ops.cast(outputs, "float32")))

    truth = {} if broken else {("head", "output"): float(1 / (1 + np.exp(2.0)))}
    stack = [dense(1, value, "head", activation="sigmoid")]
    return case(stack, filled(1.0, 1), loss=small, optimizer="sgd", loss_scale=SCALE, truth=truth)


def look(name: str, broken: bool, **more: Any) -> dict[str, Any]:
    """Return what is found in a planted model, with the truth under "truth"."""
    keras.utils.clear_session()
    seed(1)
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        made = PLANTED[name].make(broken)
    finally:
        keras.config.set_dtype_policy(before)
    found = mpprof.numerics(made.model, made.x, made.y, **made.more, **more).to_dict()
    return {**found, "truth": [[*place, value] for place, value in made.truth.items()]}


def complaints(name: str, broken: bool, found: dict[str, Any]) -> list[str]:
    """Return what is wrong of what was found: the break, or of a twin a break; and figures that are not the truth."""
    planted = PLANTED[name]
    what = "first_forward" if planted.tensor == "output" else "first_backward"
    said = []
    if broken:
        one = found[what] or {}
        got = tuple(one.get(key) for key in ("layer", "tensor", "kind"))
        if got != (planted.layer, planted.tensor, planted.kind):
            said.append(f"{got}: {one.get('reason')}")
        if planted.source not in (None, one.get("source")):
            said.append(f"from {one.get('source')}: {one.get('reason')}")
        if what == "first_backward" and found["first_forward"] is not None:
            said.append(f"forward: {found['first_forward']}")
        if not any(each["layer"] in (planted.source or planted.layer, None) for each in found["advice"]):
            said.append(f"no advice: {found['advice']}")
    else:
        said += [
            f"twin: {found[key]}" for key in ("first_forward", "first_backward") if found[key] is not None
        ]
        said += [f"twin: {each}" for each in found["advice"]]
        said += [f"{row['layer']} flushed" for row in found["layers"] if (row["flushed_ratio"] or 0) > 0.01]
    if found["basis"] != ("eager" if keras.backend.backend() == "torch" else "compiled"):
        said.append(found["basis"])
    for layer, tensor, value in found["truth"]:
        breaks = broken and (layer, tensor) == (planted.layer, planted.tensor)
        said += [wrong] if (wrong := _untrue(found, layer, tensor, value, breaks)) else []
    return said


def _untrue(found: dict[str, Any], layer: str, tensor: str, value: float, breaks: bool) -> str | None:
    """Return where a tensor's largest magnitude is not the truth to 1 %; or it is not finite though the truth is
    within float16, and it is not the one that `breaks`."""
    row = next((row for row in found["layers"] if (row["layer"], row["tensor"]) == (layer, tensor)), None)
    if row is None:
        return f"{layer} {tensor}: not looked at"
    if row["nonfinite_ratio"]:
        return None if breaks or value >= 65_520 else f"{layer} {tensor}: not finite for {value}"
    right = row["max_abs"] is not None and abs(row["max_abs"] - value) <= 0.01 * value
    return None if right else f"{layer} {tensor}: {row['max_abs']} for {value}"


def said_of(names: Iterable[str]) -> dict[str, list[str]]:
    """Return what is wrong of what is found in these models and in their twins."""
    return {
        name: [each for broken in (True, False) for each in complaints(name, broken, look(name, broken))]
        for name in names
    }


if __name__ == "__main__":
    for each in sys.argv[1:] or list(PLANTED):
        print(each, said_of([each])[each], flush=True)
