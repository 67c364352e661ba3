"""The median without `np.median`, whose first call imports `numpy.ma`: as long as reading a small trace."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def median(values: NDArray[Any]) -> float:
    """The median of numbers that are not NaN; NaN where there are none."""
    n = len(values)
    if not n:
        return float("nan")
    middle = (n - 1) // 2, n // 2
    ordered = np.partition(values, middle)
    return (float(ordered[middle[0]]) + float(ordered[middle[1]])) / 2
