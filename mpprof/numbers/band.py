"""The loss scales at which a backward pass neither overflows nor loses small gradients, by exponent of 2."""

from __future__ import annotations

from collections.abc import Callable

from mpprof.model.limits import LOWEST_SCALE_EXPONENT

LOWEST, HIGHEST = LOWEST_SCALE_EXPONENT, 126
"""The loss scales that are tried: up to 2^126, above which the scale itself overflows float32."""
MOST_LOST = 0.01
"""The share of the gradients' elements that may be 0 though they are not in float32."""


def highest(is_finite: Callable[[int], bool]) -> int | None:
    """Return the highest exponent at which all gradients are finite; None where they are at none.

    A gradient that overflows at a scale does so at a higher one, so halving the range finds it."""
    if not is_finite(LOWEST):
        return None
    return _last(is_finite, LOWEST, HIGHEST)


def lowest(lost: Callable[[int], float], high: int) -> int | None:
    """Return the lowest exponent at which at most `MOST_LOST` is lost; None where more is at `high`."""
    if lost(high) > MOST_LOST:
        return None
    return -_last(lambda negative: lost(-negative) <= MOST_LOST, -high, -LOWEST)


def _last(holds: Callable[[int], bool], low: int, high: int) -> int:
    """Return the last number for which it holds: it does for `low`, and up to one place for all."""
    if holds(high):
        return high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def lost_ratio(zeros: int, zeros_of_float32: int, elements: int) -> float:
    """Return the share of the elements that are not 0 in float32 and are here; 0 where all are 0 there."""
    other = elements - zeros_of_float32
    return max(zeros - zeros_of_float32, 0) / other if other else 0.0
