"""Student's t: how far the mean of a few values may be from the true one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

_T_95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip
"""Two-sided 95 % quantiles by degrees of freedom, from 1 (any table of the distribution has them)."""


def quantile_95(freedom: int) -> float:
    """Return the two-sided 95 % quantile. Above 30 degrees of freedom that of 30, which is a little wide."""
    return _T_95[min(freedom, len(_T_95)) - 1]


def half_width(values: NDArray[np.float64]) -> float | None:
    """Return half of the 95 % interval of the mean of `values`, which do not depend on each other. None:
    fewer than two."""
    n = len(values)
    return None if n < 2 else quantile_95(n - 1) * float(np.std(values, ddof=1)) / math.sqrt(n)
