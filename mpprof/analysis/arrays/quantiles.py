"""Median and quantiles. The first call of NumPy's imports `numpy.ma`: as long as reading a small trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def median(values: NDArray[Any]) -> float:
    """Return the median of numbers that are not NaN; NaN where there are none."""
    n = len(values)
    if not n:
        return float("nan")
    middle = (n - 1) // 2, n // 2
    ordered = np.partition(values, middle)
    return (float(ordered[middle[0]]) + float(ordered[middle[1]])) / 2


def quantile(values: NDArray[Any], ratio: float) -> float:
    """Return the value below which this share of the numbers lies, interpolated as `np.quantile` does. No
    number is NaN, and there is at least one."""
    at = ratio * (len(values) - 1)
    row = int(at)
    following = min(row + 1, len(values) - 1)
    ordered = np.partition(values, (row, following))
    low, high = float(ordered[row]), float(ordered[following])
    part = at - row
    return high - (high - low) * (1 - part) if part >= 0.5 else low + (high - low) * part
