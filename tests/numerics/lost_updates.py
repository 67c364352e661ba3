"""What an update loses of weights of 16 bits, on every backend, against NumPy's own arithmetic and casts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np

import mpprof
from mpprof.numbers.tallies import HALF
from tests.numerics.oracle import TYPES
from tests.record.training import seed

RATE = 2.0**-12


def _scaled() -> Any:
    return keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(RATE), initial_scale=1024.0)


def _momentum() -> Any:
    return keras.optimizers.SGD(RATE, momentum=1.0)


def _adam() -> Any:
    return keras.optimizers.Adam(5 * RATE)


CASES: dict[str, tuple[str, Callable[[], Any], int, Callable[[Any], Any]]] = {
    "momentum": ("bfloat16", _momentum, 1, lambda each: 2 * RATE * each),
    "loss scale": ("float16", _scaled, 0, lambda each: RATE * each),
    "adam": ("bfloat16", _adam, 0, lambda each: 5 * RATE * each / (each + 1e-7)),
}
"""By name: the type of the weights, the optimizer, how many updates come before the one that is looked at, and
that update of a gradient, in float64. With a momentum of 1 the second update is twice the first. Adam's is no
power of 2, of which the last bit of float32 would say how half the distance of two values rounds."""


def wrong() -> list[str]:
    """Return what is not as NumPy has it."""
    said = []
    for name, (dtype, optimizer, before, update) in CASES.items():
        keras.utils.clear_session()
        seed(1)
        head = keras.layers.Dense(16, use_bias=False, name="head", dtype=dtype)
        model = keras.Sequential([keras.Input((64,)), head])
        model.compile(optimizer(), lambda y, outputs: keras.ops.sum(outputs))
        x = np.exp2(np.random.default_rng(5).integers(-4, 4, (1, 64))).astype(np.float32)
        y = np.zeros((1, 16), np.float32)
        for _ in range(before):
            model.train_on_batch(x, y)
        weights = keras.ops.convert_to_numpy(keras.ops.cast(head.kernel, "float32")).astype(np.float64)
        change = update(np.tile(x.T.astype(np.float64), (1, 16)))
        row = next(row for row in mpprof.numerics(model, x, y).layers if row.weight)
        for other in HALF:
            kind = TYPES[other]
            held = weights.astype(kind)
            truth = float(np.mean(held == (held.astype(np.float64) - change).astype(kind)))
            found = (row.update_lost or {}).get(other)
            if found is None or abs(found - truth) > 2 / weights.size:
                said.append(f"{name}, {other}: {found} for {truth}")
    return said
