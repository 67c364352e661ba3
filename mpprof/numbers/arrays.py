"""A structure of tensors as arrays of NumPy's."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpprof.numbers.job import Job


def largest(job: Job, structure: Any) -> float:
    """Return the largest magnitude in a structure of tensors; 0 where it holds no number."""
    return max((float(np.abs(each).max()) for each in _arrays(job, structure) if each.size), default=0.0)


def is_finite(job: Job, structure: Any) -> bool:
    """Return whether all numbers in a structure of tensors are finite."""
    return all(np.isfinite(array).all() for array in _arrays(job, structure))


def _arrays(job: Job, structure: Any) -> list[Any]:
    """Return the arrays of a structure that hold numbers, as float32."""
    flat = [each for each in job.keras.tree.flatten(structure) if each is not None]
    arrays = [np.asarray(job.keras.ops.convert_to_numpy(each)) for each in flat if not isinstance(each, str)]
    return [each.astype(np.float32) for each in arrays if each.dtype.kind not in "OUS"]
