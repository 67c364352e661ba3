"""The models that are trained on a GPU to record cases and to check forecasts, at any size.

Every model is built by a function of its knobs, so that a remedy is a change of one argument. Keras is imported
inside: the backend is the environment's choice.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

VOCABULARY = 33_709  # odd: not a multiple of 8


@dataclass(frozen=True)
class Case:
    """A model, its batch size, and the shapes of its random data."""

    model: str  # a key of MODELS
    batch: int
    policy: str  # "float32", "mixed_float16", "mixed_bfloat16"
    knobs: dict[str, Any] = field(default_factory=dict)
    jit_compile: bool | str = "auto"
    precision: str = ""  # of JAX's float32 products: "highest" forbids TF32
    rewrite: bool = False  # TensorFlow's own rewrite of a float32 graph to mixed precision

    @property
    def name(self) -> str:
        extra = "".join(
            f"-{key}-{value}" for key, value in sorted(self.knobs.items()) if isinstance(value, int)
        )
        extra += f"-{self.precision}" if self.precision else ""
        extra += "-rewrite" if self.rewrite else ""
        extra += "" if self.jit_compile == "auto" else f"-{'xla' if self.jit_compile else 'no-xla'}"
        return f"{self.model}-b{self.batch}-{self.policy}{extra}".replace("_", "-")


def convnet(size: int = 256, widths: tuple[int, ...] = (32, 64, 128)) -> Any:
    """The seed experiment's network: 5x5, 7x7 and 11x11 convolutions of stride 2, each with batch norm. Images are
    bytes, as pipelines send them: of float32 images the copy alone would take longer than the step."""
    import keras

    layers = keras.layers
    blocks: list[Any] = [keras.Input((size, size, 3), dtype="uint8"), layers.Rescaling(1 / 255)]
    for width, kernel in zip(widths, (5, 7, 11), strict=True):
        blocks += [layers.Conv2D(width, kernel, strides=2, activation="relu"), layers.BatchNormalization()]
    head = [layers.GlobalAveragePooling2D(), layers.Dense(10), layers.Activation("softmax", dtype="float32")]
    return keras.Sequential([*blocks, *head])


def resnet50(size: int = 224, classes: int = 1000) -> Any:
    """ResNet-50 without weights, on images of bytes, a float32 softmax on top."""
    import keras

    images = keras.Input((size, size, 3), dtype="uint8")
    body = keras.applications.ResNet50(
        weights=None, include_top=False, pooling="avg", input_tensor=keras.layers.Rescaling(1 / 255)(images)
    )
    logits = keras.layers.Dense(classes)(body.output)
    return keras.Model(images, keras.layers.Activation("softmax", dtype="float32")(logits))


def transformer(
    vocabulary: int = VOCABULARY, length: int = 128, width: int = 512, blocks: int = 4, island: bool = False
) -> Any:
    """A small causal language model. `island` keeps the feed-forward layers in float32."""
    import keras

    layers = keras.layers
    dtype = "float32" if island else None
    tokens = keras.Input((length,), dtype="int32")
    x = layers.Embedding(vocabulary, width)(tokens)
    for _ in range(blocks):
        attention = layers.MultiHeadAttention(8, width // 8)
        x = layers.LayerNormalization()(layers.Add()([x, attention(x, x, use_causal_mask=True)]))
        up = layers.Dense(4 * width, activation="relu", dtype=dtype)(x)
        x = layers.LayerNormalization()(layers.Add()([x, layers.Dense(width, dtype=dtype)(up)]))
    logits = layers.Dense(vocabulary)(x)
    return keras.Model(tokens, layers.Activation("softmax", dtype="float32")(logits))


MODELS: dict[str, Callable[..., Any]] = {"convnet": convnet, "resnet50": resnet50, "transformer": transformer}


def data(model: Any, batch: int, steps: int) -> tuple[Any, Any]:
    """Random inputs and labels for `steps` steps; a few batches, repeated, so that large inputs fit in memory."""
    import numpy as np

    random = np.random.default_rng(1)
    kept = min(steps, 4)
    shape = (kept * batch, *model.input_shape[1:])
    classes = model.output_shape[-1]
    match str(model.inputs[0].dtype):
        case "int32":
            x = random.integers(0, classes, shape).astype("int32")
        case "uint8":
            x = random.integers(0, 256, shape, np.uint8)
        case _:
            x = random.random(shape, dtype=np.float32)
    y = random.integers(0, classes, (kept * batch, *model.output_shape[1:-1])).astype("int32")
    return x, y


def train(case: Case, logdir: str, steps: int, delay_s: float = 0.0, lock: str = "") -> None:
    """Trains one case in this process with the callback. `delay_s` makes every batch late (an input bound). From the
    first use of the GPU on no other process with the same `lock` uses it."""
    import keras

    from mpprof import MPProfilerCallback

    hold(lock)
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(case.policy)
    if case.precision:
        import jax

        jax.config.update("jax_default_matmul_precision", case.precision)
    if case.rewrite:
        import tensorflow as tf

        tf.config.optimizer.set_experimental_options({"auto_mixed_precision": True})
    model = MODELS[case.model](**case.knobs)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=case.jit_compile)
    x, y = data(model, case.batch, steps)
    given = {
        "steps_per_epoch": steps,
        "epochs": 1,
        "verbose": 0,
        "callbacks": [MPProfilerCallback(logdir, announce=None)],
    }
    model.fit(batches(x, y, case.batch, steps, delay_s), **given)
    print(json.dumps({"case": case.name, "clock_step_ns": clock_step_ns(model, case, x, y, delay_s)}))


def clock_step_ns(model: Any, case: Case, x: Any, y: Any, delay_s: float) -> float:
    """A step's mean time by a clock of its own, without a callback: a fit of 70 steps less one of 10, over 60. What a
    fit costs at its begin and end is in both."""
    took = []
    for steps in (10, 10, 70):
        began = time.perf_counter_ns()
        model.fit(batches(x, y, case.batch, steps, delay_s), steps_per_epoch=steps, verbose=0)
        took.append(time.perf_counter_ns() - began)
    return (took[2] - took[1]) / 60


def hold(lock: str) -> None:
    """Wait until no process holds the file, and hold it until this one ends."""
    if lock:
        import fcntl

        fcntl.flock(os.open(lock, os.O_CREAT | os.O_RDWR), fcntl.LOCK_EX)


def batches(x: Any, y: Any, batch: int, steps: int, delay_s: float = 0.0) -> Any:
    """The batches of a fit: of TensorFlow a `tf.data` pipeline, of the others a generator."""
    import keras

    def generated() -> Any:
        for step in range(steps):
            at = step % (len(x) // batch) * batch
            time.sleep(delay_s)
            yield x[at : at + batch], y[at : at + batch]

    if keras.backend.backend() == "tensorflow" and not delay_s:
        import tensorflow as tf

        return (
            tf.data.Dataset.from_tensor_slices((x, y)).batch(batch, drop_remainder=True).repeat().prefetch(2)
        )
    return generated()
