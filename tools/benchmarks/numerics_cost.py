"""What a look at the numbers by layer costs on a CPU: processor time and memory, beside a training step's.

    python -m tools.benchmarks.numerics_cost

Each model trains two steps in a process of its own (the second is the one that counts), and in another it is
looked at after them. Processor time is counted, not the clock, so that a busy machine tells the same.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def resnet(keras: Any) -> tuple[Any, Any, Any]:
    """ResNet-50 on 4 images of 64 by 64."""
    model = keras.applications.ResNet50(weights=None, input_shape=(64, 64, 3), classes=10)
    return model, np.random.default_rng(0).uniform(0, 1, (4, 64, 64, 3)).astype(np.float32), np.arange(4)


def transformer(keras: Any) -> tuple[Any, Any, Any]:
    """4 blocks of width 256 over 8 times 128 words of 8,000."""
    layers = keras.layers
    inputs = keras.Input((128,), dtype="int32")
    found = layers.Embedding(8000, 256)(inputs)
    for _ in range(4):
        normed = layers.LayerNormalization()(found)
        found = found + layers.MultiHeadAttention(4, 64)(normed, normed, use_causal_mask=True)
        normed = layers.LayerNormalization()(found)
        found = found + layers.Dense(256)(layers.Dense(1024, activation="gelu")(normed))
    outputs = layers.Dense(8000, activation="softmax", dtype="float32")(found)
    words = np.random.default_rng(0).integers(0, 8000, (8, 129))
    return keras.Model(inputs, outputs), words[:, :-1], words[:, 1:]


MODELS: dict[str, Callable[[Any], tuple[Any, Any, Any]]] = {"resnet": resnet, "transformer": transformer}


def _spent(function: Callable[[], Any]) -> float:
    begin = time.process_time()
    function()
    return time.process_time() - begin


def measure(name: str, looks: bool) -> dict[str, float]:
    """Return what the steps, and the look, took in this process."""
    import keras

    import mpprof

    keras.config.set_dtype_policy("mixed_float16")
    model, x, y = MODELS[name](keras)
    model.compile("adam", "sparse_categorical_crossentropy", jit_compile=False)
    first, step = (_spent(lambda: model.train_on_batch(x, y)) for _ in range(2))
    found = {"first_step_s": first, "step_s": step}
    if looks:
        seen: list[Any] = []
        found["look_s"] = _spent(lambda: seen.append(mpprof.numerics(model, x, y)))
        found["tensors"] = len(seen[0].layers)
        print(repr(seen[0]), file=sys.stderr)
    return {**found, "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def main() -> None:
    """Print a line for each model and process."""
    for name in MODELS:
        for looks in ("steps", "look"):
            command = [sys.executable, "-m", "tools.benchmarks.numerics_cost", name, looks]
            said = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
            print(name, looks, said.splitlines()[-1], flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(sys.argv[1], sys.argv[2] == "look")))
    else:
        main()
