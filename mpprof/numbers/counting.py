"""Counts one tensor on its device, in the operations of `keras.ops`: the same for all backends.

What is counted, and why by bits, `tallies` says. Only whole numbers leave the device: as many for each
tensor, whatever its size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpprof.numbers import tallies

LENGTH = max(len(tallies.edges(dtype)) for dtype in tallies.LIMITS) + 2
"""How many numbers are given of each tensor: the counts of the type that has most, and the largest bits."""


def counted(ops: Any, tensor: Any, dtype: str, bits_of: Callable[[Any, str], Any]) -> Any:
    """Return the counts of a tensor that has elements, as int32 of shape (`LENGTH`,): first the counts
    between the edges of its type, then zeros, and last the bits of its largest finite magnitude.

    `ops` is `keras.ops`; `bits_of(tensor, name)` gives a tensor's bits as integers of that type."""
    flat, edges = ops.reshape(tensor, (-1,)), tallies.edges(dtype)
    if tallies.counted_as(dtype) == "float32":
        magnitude = ops.bitwise_and(bits_of(ops.cast(flat, "float32"), "int32"), 0x7FFFFFFF)
    else:
        magnitude = ops.bitwise_and(ops.cast(bits_of(flat, "int16"), "int32"), 0x7FFF)
    between = ops.cast(ops.searchsorted(ops.convert_to_tensor(edges), magnitude, side="right"), "int32")
    counts = ops.segment_sum(ops.ones_like(magnitude), between, num_segments=LENGTH - 1)
    finite = ops.where(magnitude < int(edges[-2]), magnitude, ops.zeros_like(magnitude))
    return ops.concatenate([counts, ops.reshape(ops.max(finite), (1,))])
