"""Whether a model's weights are still numbers when a training has ended.

A fixed loss scale skips no step, and a loss need not show it: a ReLU makes 0 of a weight that is NaN."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from mpprof.model.limits import MOST_WEIGHTS_NAMED
from mpprof.record.keras_compat import KERAS_2, keras_of


def non_finite_weights(model: Any) -> list[str] | None:
    """Return the paths of weights that hold a NaN or an infinity, the first 20 of them; None where `model`
    has no weights to look at: it is neither Keras' nor a module of PyTorch. Reads every weight once."""
    torch = sys.modules.get("torch")
    weights, keras = getattr(model, "weights", None), keras_of(model)
    if not weights and torch is not None and isinstance(model, torch.nn.Module):
        named = ((name, weight) for name, weight in model.named_parameters() if weight.is_floating_point())
        lost = (name for name, weight in named if not bool(torch.isfinite(weight).all()))
        return list(itertools.islice(lost, MOST_WEIGHTS_NAMED))
    if not weights or keras is None:
        return None
    finite = _finite_in_keras_2 if keras.__name__ == KERAS_2 else _finite
    floats = [weight for weight in weights if "float" in str(weight.dtype)]
    found = (str(getattr(weight, "path", weight.name)) for weight in floats if not finite(weight))
    return list(itertools.islice(found, MOST_WEIGHTS_NAMED))


def _finite(weight: Any) -> bool:
    import keras

    jax = sys.modules.get("jax") if keras.backend.backend() == "jax" else None
    if jax is not None and jax.default_backend() == "cpu":  # each shape would be compiled for
        return bool(np.isfinite(np.asarray(weight)).all())
    return bool(keras.ops.all(keras.ops.isfinite(weight)))


def _finite_in_keras_2(weight: Any) -> bool:
    import tensorflow as tf

    return bool(tf.reduce_all(tf.math.is_finite(weight)))
