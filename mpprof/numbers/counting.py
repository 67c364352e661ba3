"""Counts one tensor on its device, in the operations of `keras.ops`: the same for all backends.

What is counted, and why by bits, `tallies` says. Only whole numbers leave the device: as many for each
tensor, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpprof.numbers import tallies

HALF = ("float16", "bfloat16")


def counted(ops: Any, tensor: Any, dtype: str, bits_of: Callable[[Any, str], Any]) -> Any:
    """Return the counts of a tensor that has elements, as int32 of shape (`tallies.LENGTH`,).

    `ops` is `keras.ops`; `bits_of(tensor, name)` gives a tensor's bits as integers of that type. Float64 is
    counted as float32."""
    magnitude = _magnitude(ops, ops.reshape(tensor, (-1,)), dtype, bits_of)

    def count(where: Any) -> Any:
        return ops.sum(ops.cast(where, "int32"))

    finite = magnitude < tallies.INFINITE
    fields = {
        "zero": count(magnitude == 0),
        "nan": count(magnitude > tallies.INFINITE),
        "infinite": count(magnitude == tallies.INFINITE),
        "tie16": count(magnitude == tallies.TIE16),
        "over16": count(ops.logical_and(finite, magnitude >= tallies.OVER16)),
        "lost_bfloat16": count(ops.logical_and(magnitude > 0, magnitude <= tallies.LOST_BFLOAT16)),
        "over_bfloat16": count(ops.logical_and(finite, magnitude >= tallies.OVER_BFLOAT16)),
        "largest_bits": ops.max(ops.where(finite, magnitude, ops.zeros_like(magnitude))),
    }
    exponents = ops.segment_sum(
        ops.ones_like(magnitude), ops.right_shift(magnitude, 23), num_segments=tallies.BINS
    )
    return ops.concatenate([exponents, ops.stack([fields[name] for name in tallies.FIELDS])])


def _magnitude(ops: Any, flat: Any, dtype: str, bits_of: Callable[[Any, str], Any]) -> Any:
    """Return the bits that each element's magnitude has as float32, as int32."""
    if dtype not in HALF:
        return ops.bitwise_and(bits_of(ops.cast(flat, "float32"), "int32"), 0x7FFFFFFF)
    bits = ops.bitwise_and(ops.cast(bits_of(flat, "int16"), "int32"), 0x7FFF)
    if dtype == "bfloat16":
        return ops.left_shift(bits, 16)
    exponent, mantissa = ops.right_shift(bits, 10), ops.bitwise_and(bits, 0x3FF)
    widened = ops.left_shift(mantissa, 13)
    normal = ops.bitwise_or(ops.left_shift(exponent + (127 - 15), 23), widened)
    # A subnormal value is its mantissa times 2^-24: as a whole number float32 holds it exactly.
    subnormal = bits_of(ops.cast(mantissa, "float32"), "int32") - (24 << 23)
    small = ops.where(mantissa > 0, subnormal, ops.zeros_like(mantissa))
    special = ops.bitwise_or(ops.zeros_like(mantissa) + tallies.INFINITE, widened)
    return ops.where(exponent == 31, special, ops.where(exponent > 0, normal, small))
