"""What is counted of one tensor, and what the counts say: shares by type and exponents, in NumPy alone.

A tensor is counted where it lies (`counting`): how many of its elements lie between each two of its type's
`edges`, powers of two and the limits of float16 and bfloat16. They are compared as bits, which for magnitudes
are in the order of the values, so a unit that flushes subnormal values to zero counts them all the same.
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from mpprof.model.frozen import frozen

LARGEST16 = 65504.0


class Limits(NamedTuple):
    """Of a type, as float64: what it rounds to 0 at most, its smallest normal value, and what it rounds to
    infinity at least."""

    lost: float
    normal: float
    over: float


LIMITS = {
    "float16": Limits(2.0**-25, 2.0**-14, 65520.0),
    "bfloat16": Limits(2.0**-134, 2.0**-126, 2.0**128 - 2.0**119),
    "float32": Limits(2.0**-150, 2.0**-126, 2.0**128 - 2.0**103),
}
HALF = ("float16", "bfloat16")
_INFINITE = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}


@functools.cache
def edges(dtype: str) -> Any:
    """Return the magnitudes between which is counted, as their bits in that type (float64: in float32), as
    int32, ascending, without 0. What is not finite comes last: infinity, then NaN."""
    at = [2.0**exponent for exponent in range(-149, 128)] + [LIMITS[name].over for name in HALF]
    above = [LIMITS[name].lost for name in HALF]
    dtype = counted_as(dtype)
    if dtype == "float32":
        bits = [*np.array(at, np.float32).view(np.int32), *(np.array(above, np.float32).view(np.int32) + 1)]
    else:
        values = values_of(np.arange(_INFINITE[dtype], dtype=np.int32), dtype)
        bits = [*np.searchsorted(values, at), *np.searchsorted(values, above, side="right")]
    infinite = _INFINITE[dtype]
    return np.unique([*(each for each in bits if 0 < each < infinite), infinite, infinite + 1]).astype(
        np.int32
    )


def counted_as(dtype: str) -> str:
    """Return the type in whose bits a tensor is counted."""
    return dtype if dtype in HALF else "float32"


def values_of(bits: Any, dtype: str) -> Any:
    """Return the float64 values of magnitudes that are given by their bits."""
    if counted_as(dtype) == "float16":
        return np.asarray(bits).astype(np.uint16).view(np.float16).astype(np.float64)
    shift = 16 if dtype == "bfloat16" else 0
    with np.errstate(invalid="ignore"):  # a NaN that signals
        return (np.asarray(bits).astype(np.uint32) << shift).view(np.float32).astype(np.float64)


@functools.cache
def _lows(dtype: str) -> tuple[float, ...]:
    """Return the smallest magnitude of each count."""
    return tuple(values_of(np.array([0, *edges(dtype)]), dtype).tolist())


@frozen
class Shares:
    """Of all elements of a tensor: those that are not finite, that are 0 though the value is not, and that
    are subnormal."""

    nonfinite_ratio: float
    flushed_ratio: float
    subnormal_ratio: float


@frozen
class Tally:
    """The counts of one tensor: how many elements lie from each of its type's edges to the next, and the bits
    of the largest finite magnitude."""

    dtype: str
    counts: tuple[int, ...]
    largest_bits: int

    @property
    def elements(self) -> int:
        return sum(self.counts)

    @property
    def zero(self) -> int:
        return self.counts[0]

    @property
    def nonfinite(self) -> int:
        return sum(self.counts[-2:])  # infinite, and NaN

    @property
    def max_abs(self) -> float | None:
        """The largest finite magnitude; None where no element is finite."""
        if self.nonfinite == self.elements:
            return None
        return float(values_of(self.largest_bits, self.dtype))

    @property
    def exponents(self) -> dict[int, int]:
        """By exponent: how many finite elements that are not 0 have it; 3 holds magnitudes from 8 to 16."""
        found: dict[int, int] = {}
        for low, count in zip(_lows(self.dtype)[1:-2], self.counts[1:-2], strict=True):
            if count:
                exponent = math.frexp(low)[1] - 1
                found[exponent] = found.get(exponent, 0) + count
        return found

    def _share(self, low: float, high: float) -> float:
        """Return the share of magnitudes from `low` on, below `high`; NaN is above all."""
        pairs = zip(_lows(self.dtype), self.counts, strict=True)
        return sum(count for each, count in pairs if low <= each and not each >= high) / self.elements

    @property
    def subnormal_ratio(self) -> float:
        """The share that is subnormal in the type that the tensor has."""
        return self._share(math.ulp(0.0), LIMITS[counted_as(self.dtype)].normal)

    def would_be(self, dtype: str) -> Shares:
        """Return the shares that the same values would have in float16 or bfloat16."""
        lost, normal, over = LIMITS[dtype]
        above = math.nextafter(lost, math.inf)
        finite = self._share(0.0, over)
        return Shares(1.0 - finite, self._share(math.ulp(0.0), above), self._share(above, normal))


def tally(dtype: str, counted: Any) -> Tally:
    """Return the tally of what `counting.counted` gave."""
    *counts, largest = (int(each) for each in counted)
    return Tally(dtype, tuple(counts[: len(edges(dtype)) + 1]), largest)
