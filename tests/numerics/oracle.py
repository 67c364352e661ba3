"""What is to be counted of a tensor, computed apart: by NumPy's own casts and in float64."""

from __future__ import annotations

import importlib
from typing import Any

import keras
import ml_dtypes
import numpy as np

from mpprof.numbers import counting, tallies

TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
NORMAL = {"float16": 2.0**-14, "bfloat16": 2.0**-126, "float32": 2.0**-126}


def arrays() -> dict[str, Any]:
    """Return all values of float16 and of bfloat16, and of float32 every 20,011th, and those about each limit."""
    halves = np.arange(1 << 16, dtype=np.uint16)
    limits = np.array(
        [
            0x33000000,
            0x33800000,
            0x38800000,
            0x477FE000,
            0x477FF000,
            0x00800000,
            0x8000,
            0x7F7F8000,
            0x7F800000,
        ],
        np.uint32,
    )
    near = np.concatenate([limits + np.uint32(1), limits, limits - np.uint32(1)])
    singles = np.concatenate([np.arange(0, 1 << 32, 20_011, dtype=np.uint64).astype(np.uint32), near])
    return {
        "float16": halves.view(np.float16),
        "bfloat16": halves.view(ml_dtypes.bfloat16),
        "float32": singles.view(np.float32),
    }


def expected(values: Any, dtype: str) -> dict[str, Any]:
    """Return the figures of `counted` for values of that type."""
    with np.errstate(invalid="ignore"):  # a NaN that signals
        exact = np.abs(values.astype(np.float64))
    finite = exact[np.isfinite(exact)]
    exponents = np.frexp(finite[finite > 0])[1] - 1
    names, counts = np.unique(exponents, return_counts=True)
    return {
        "elements": values.size,
        "nonfinite": int((~np.isfinite(exact)).sum()),
        "zero": int((exact == 0).sum()),
        "max_abs": float(finite.max()),
        "exponents": {str(name): int(count) for name, count in zip(names, counts, strict=True)},
        "subnormal": int(((finite > 0) & (finite < NORMAL[dtype])).sum()),
        "would_be": {name: _would_be(values, exact, name) for name in ("float16", "bfloat16")},
    }


def _would_be(values: Any, exact: Any, name: str) -> list[int]:
    with np.errstate(over="ignore", invalid="ignore"):
        made = np.abs(values.astype(TYPES[name]).astype(np.float64))
    flushed = (exact > 0) & (made == 0)
    small = (exact > 0) & (exact < NORMAL[name]) & ~flushed
    return [int((~np.isfinite(made)).sum()), int(flushed.sum()), int(small.sum())]


def counted(values: Any, dtype: str) -> dict[str, Any]:
    """Return the figures that the backend of this process counts."""
    backend = importlib.import_module(f"mpprof.numbers.{keras.backend.backend()}")
    tensor = (
        backend.tensors(keras, values)
        if dtype != "bfloat16"
        else keras.ops.cast(values.astype("float32"), dtype)
    )
    counts = keras.ops.convert_to_numpy(counting.counted(keras.ops, tensor, dtype, backend.bits_of))
    found = tallies.tally(dtype, counts)
    shares = {name: found.would_be(name) for name in ("float16", "bfloat16")}
    n = found.elements
    return {
        "elements": n,
        "nonfinite": found.nonfinite,
        "zero": found.zero,
        "max_abs": found.max_abs,
        "exponents": {str(exponent): count for exponent, count in sorted(found.exponents.items())},
        "subnormal": round(found.subnormal_ratio * n),
        "would_be": {
            name: [
                round(share * n) for share in (each.nonfinite_ratio, each.flushed_ratio, each.subnormal_ratio)
            ]
            for name, each in shares.items()
        },
    }


def differences() -> list[str]:
    """Return the types and figures that this process' backend counts otherwise."""
    said = []
    for dtype, values in arrays().items():
        mine, truth = counted(values, dtype), expected(values, dtype)
        said += [
            f"{dtype} {name}: {mine[name]} for {truth[name]}" for name in truth if mine[name] != truth[name]
        ]
    return said
