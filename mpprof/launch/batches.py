"""Another batch size for what a `fit` is given."""

from __future__ import annotations

import math
from typing import Any

from mpprof.launch.fit import Argument
from mpprof.record.keras_compat import Method

USUAL = 32
"""Keras' batch size where a fit of arrays states none."""


def times(
    fit: Method, args: tuple[Any, ...], kwargs: dict[str, Any], factor: float
) -> tuple[tuple[Any, ...], dict[str, Any], int | str]:
    """Return the arguments of a fit with `factor` times its batch size, and that size; or why it cannot be
    changed. Arrays get it by `batch_size`, a tf.data set by `rebatch`, which costs time of its own."""
    x, size = Argument(fit, "x"), Argument(fit, "batch_size")
    data = x.of(args, kwargs)
    kinds = {kind.__name__ for kind in type(data).__mro__}
    if "DatasetV2" in kinds:
        from mpprof.record.facts.dataset import batch_size_of_pipeline

        own = batch_size_of_pipeline(data)
        if own is None:
            return args, kwargs, "the batch size of the tf.data set is not known"
        wanted = max(1, round(own * factor))
        args, kwargs = x.put(args, kwargs, data.rebatch(wanted))
    elif _is_arrays(data):
        wanted = max(1, round((size.of(args, kwargs) or USUAL) * factor))
        args, kwargs = size.put(args, kwargs, wanted)
    else:
        return args, kwargs, f"the batches of a {type(data).__name__} are its own"
    steps = Argument(fit, "steps_per_epoch")
    if given := steps.of(args, kwargs):
        args, kwargs = steps.put(args, kwargs, math.ceil(given / factor))
    return args, kwargs, wanted


def _is_arrays(data: Any) -> bool:
    """Return whether these are arrays, which Keras cuts into batches: one, or several in a structure."""
    if isinstance(data, dict):
        data = list(data.values())
    if isinstance(data, list | tuple):
        return bool(data) and all(_is_arrays(each) for each in data)
    return hasattr(data, "shape") and not callable(getattr(data, "__next__", None))
