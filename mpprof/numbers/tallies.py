"""What is counted of one tensor, and what the counts say: shares by type and exponents, in NumPy alone.

A tensor is counted where it lies, in one vector of `LENGTH` whole numbers (`counting`): how many elements
have each exponent field of float32, then `FIELDS`. All limits are compared as bits, so a unit that flushes
subnormal values to zero counts them all the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpprof.model.frozen import frozen

BINS = 256
"""Exponent fields of float32: 0 holds 0 and its subnormal values, 255 infinities and NaN."""
FIELDS = ("zero", "nan", "infinite", "tie16", "over16", "lost_bfloat16", "over_bfloat16", "largest_bits")
LENGTH = BINS + len(FIELDS)

INFINITE = 0x7F800000
"""The bits of float32's infinity; below: bits of float32 magnitudes."""
TIE16 = 0x33000000
"""2^-25, half of float16's smallest value: it rounds to 0, what is above it does not."""
OVER16 = 0x477FF000
"""65,520: from here on float16 rounds to infinity."""
LOST_BFLOAT16 = 0x00008000
"""2^-134, half of bfloat16's smallest value."""
OVER_BFLOAT16 = 0x7F7F8000
"""From here on bfloat16 rounds to infinity."""

LARGEST16 = 65504.0
NORMAL16, SMALLEST16 = -14, -24
"""Exponents of float16's smallest normal value and of its smallest value."""


@frozen
class Shares:
    """Of all elements of a tensor: those that are not finite, that are 0 though the value is not, and that
    are subnormal."""

    nonfinite_ratio: float
    flushed_ratio: float
    subnormal_ratio: float


@frozen
class Tally:
    """The counts of one tensor; `counts` has `LENGTH` whole numbers."""

    dtype: str
    counts: tuple[int, ...]

    @property
    def elements(self) -> int:
        return sum(self.counts[:BINS])

    def of(self, field: str) -> int:
        """Return the count of one of `FIELDS`."""
        return self.counts[BINS + FIELDS.index(field)]

    @property
    def nonfinite(self) -> int:
        return self.of("nan") + self.of("infinite")

    @property
    def max_abs(self) -> float | None:
        """The largest finite magnitude; None where no element is finite."""
        if self.nonfinite == self.elements:
            return None
        return float(np.array(self.of("largest_bits"), np.int32).view(np.float32))

    @property
    def exponents(self) -> dict[int, int]:
        """By exponent: how many finite elements that are not 0 have it; 3 holds magnitudes from 8 to 16.
        Float32's subnormal values are all in -127."""
        found = {field - 127: count for field, count in enumerate(self.counts[: BINS - 1]) if count}
        found[-127] = found.get(-127, 0) - self.of("zero")
        return {exponent: count for exponent, count in found.items() if count}

    def _between(self, low: int, high: int) -> int:
        return sum(count for exponent, count in self.exponents.items() if low <= exponent <= high)

    @property
    def subnormal_ratio(self) -> float:
        """The share that is subnormal in the type that the tensor has."""
        highest = NORMAL16 - 1 if self.dtype == "float16" else -127
        return self._between(-127, highest) / self.elements

    def would_be(self, dtype: str) -> Shares:
        """Return the shares that the same values would have in float16 or bfloat16."""
        if dtype == "float16":
            lost = self._between(-127, SMALLEST16 - 2) + self.of("tie16")
            small, over = self._between(-127, NORMAL16 - 1) - lost, self.of("over16")
        else:
            lost, over = self.of("lost_bfloat16"), self.of("over_bfloat16")
            small = self._between(-127, -127) - lost
        n = self.elements
        return Shares((self.nonfinite + over) / n, lost / n, small / n)


def tally(dtype: str, counts: Any) -> Tally:
    """Return the tally of a vector that `counting.counted` gave."""
    return Tally(dtype, tuple(int(count) for count in counts))
