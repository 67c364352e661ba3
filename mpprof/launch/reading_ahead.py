"""Batches that are made ahead of the step, in what a `fit` is given."""

from __future__ import annotations

import inspect
from typing import Any

from mpprof.launch.fit import Argument
from mpprof.record.keras_compat import Method

AUTO = -1
"""`tf.data.AUTOTUNE`."""

Given = tuple[tuple[Any, ...], dict[str, Any], str | None]
"""Arguments by place and by name, and why they are as they were; None: they are not."""


def prefetched(fit: Method, args: tuple[Any, ...], kwargs: dict[str, Any], size: str) -> Given:
    """Return the arguments of a fit with a tf.data set that prefetches this many batches, or "auto"."""
    x = Argument(fit, "x")
    data = x.of(args, kwargs)
    if not _is_a("DatasetV2", data):
        return args, kwargs, f"a {type(data).__name__} has no prefetch: that is of a tf.data set"
    args, kwargs = x.put(args, kwargs, data.prefetch(AUTO if size == "auto" else int(size)))
    return args, kwargs, None


def with_workers(fit: Method, args: tuple[Any, ...], kwargs: dict[str, Any], count: str) -> Given:
    """Return the arguments of a fit whose PyDataset makes batches in this many workers. It stays the object
    that it is. In Keras 2 `fit` takes their number for a Sequence."""
    data = Argument(fit, "x").of(args, kwargs)
    if "workers" in inspect.signature(fit).parameters and _is_a("Sequence", data):
        args, kwargs = Argument(fit, "workers").put(args, kwargs, int(count))
    elif _is_a("PyDataset", data):
        data.workers = int(count)
    else:
        return args, kwargs, f"a {type(data).__name__} has no workers: those are of a PyDataset"
    return args, kwargs, None


def _is_a(name: str, data: Any) -> bool:
    return any(kind.__name__ == name for kind in type(data).__mro__)
