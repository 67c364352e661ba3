"""What an optimizer keeps for a model's parameters where its kind does not tell: counted on one like it."""

from __future__ import annotations

import math
from typing import Any

from mpprof.record.keras_compat import keras_of
from mpprof.tensors import WIDTHS

_OF_THE_STEP = ("iteration", "learning_rate")
"""Variables that every optimizer has, once for all parameters."""


def counted_slots_bytes(model: Any) -> int | None:
    """Return the bytes of the variables that the model's optimizer adds for its trained parameters, as they
    are.

    An optimizer that is built is counted; else one with the same arguments is built beside it, on the host,
    and let go: for that moment the slots take their size in host memory. None: the model is not compiled, or
    the optimizer cannot be made again from its arguments, or keeps a type of unknown size."""
    optimizer = getattr(model, "optimizer", None)
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)
    keras = keras_of(model)
    if optimizer is None or keras is None:
        return None
    try:
        if not optimizer.built:
            with keras.device("cpu:0"):
                optimizer = type(optimizer).from_config(optimizer.get_config())
                optimizer.build(model.trainable_variables)
        added = [one for one in optimizer.variables if one.name not in _OF_THE_STEP]
        return sum(int(math.prod(one.shape)) * WIDTHS[str(one.dtype)] for one in added)
    except Exception:  # noqa: BLE001 - an optimizer of the user's may do anything
        return None
