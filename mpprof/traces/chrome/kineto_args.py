"""What Kineto writes into an event's `args`: launch dimensions, and the inputs of an op."""

from __future__ import annotations

import re
from typing import Any

_DTYPES = {
    "c10::bfloat16": "bfloat16", "c10::half": "half", "long int": "int64", "long": "int64", "int": "int32",
    "short int": "int16", "short": "int16", "signed char": "int8", "unsigned char": "uint8", "char": "int8",
    "c10::complex<float>": "complex64", "c10::complex<double>": "complex128",
    "unsigned short": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
}  # fmt: skip
"""C++ types as Kineto prints them (`Input type`), in the spelling of TensorFlow's `tensor_shapes`."""

_NO_TENSOR = frozenset(("", "scalar", "scalarlist", "tensorlist", "genericlist", "device", "none", "string"))
_NAME = re.compile(r"[a-z_][\w:]{0,63}")
_MOST = 16
"""Inputs of an op that are written down."""


def shapes(args: dict[str, Any]) -> str:
    """Return the tensors among an op's inputs: "(bfloat16[4,3,224,224];bfloat16[768,3,16,16])"; "" where they
    are unknown."""
    dims = args.get("Input Dims", args.get("Input dims"))
    types = args.get("Input type", args.get("Input Type"))
    if not isinstance(dims, list) or not isinstance(types, list):
        return ""
    tensors = []
    for shape, dtype in zip(dims[:64], types[:64], strict=False):
        if not isinstance(dtype, str) or dtype.lower() in _NO_TENSOR or not _flat(shape):
            continue
        tensors.append(f"{_dtype(dtype)}[{','.join(map(str, shape))}]")
        if len(tensors) == _MOST:
            break
    return f"({';'.join(tensors)})" if tensors else ""


def _flat(shape: object) -> bool:
    return (
        isinstance(shape, list)
        and len(shape) <= 16
        and all(isinstance(size, int) and abs(size) < 10**15 for size in shape)
    )


def _dtype(text: str) -> str:
    lower = text.lower()
    name = _DTYPES.get(lower) or lower.removeprefix("c10::")
    return name if _NAME.fullmatch(name) else "unknown"


def details(args: dict[str, Any]) -> str:
    """Return registers, shared memory, grid and block, spelled as in an xplane's `kernel_details`; "" where
    none are stated."""
    parts = [
        f"{short}:{value}"
        for short, key in (("regs", "registers per thread"), ("shared", "shared memory"))
        if isinstance(value := args.get(key), int) and abs(value) < 1 << 60
    ]
    for key in ("grid", "block"):
        size = args.get(key)
        if isinstance(size, list) and len(size) == 3 and _flat(size):
            parts.append(f"{key}:{','.join(map(str, size))}")
    occupancy = args.get("est. achieved occupancy %")
    if isinstance(occupancy, int) and 0 <= occupancy <= 100:
        parts.append(f"occ_pct:{occupancy}")
    return " ".join(parts)


def graph_of(args: dict[str, Any]) -> int:
    """Return the CUDA graph that a kernel ran in, -1 where none is stated; 0 is Kineto's value for "no
    graph"."""
    value = args.get("graph id")
    return value if isinstance(value, int) and 0 < value < 1 << 62 else -1
