"""Types and shapes of tensors by the names that records, allocator events and error texts have for them, and
how many tensors an optimizer keeps for each parameter."""

from __future__ import annotations

import math
import re

HALF = frozenset(("half", "bfloat16", "float16"))
WIDE = frozenset(("float", "float32"))

WIDTHS = {
    "float64": 8, "double": 8, "int64": 8, "uint64": 8, "float32": 4, "float": 4, "int32": 4, "uint32": 4,
    "float16": 2, "half": 2, "bfloat16": 2, "int16": 2, "uint16": 2, "int8": 1, "uint8": 1, "bool": 1,
    "float8_e4m3fn": 1, "float8_e5m2": 1,
}  # fmt: skip
"""Bytes of one value, by Keras' and by TensorFlow's names of types."""

SLOTS = {
    "SGD": 0, "Adam": 2, "AdamW": 2, "Nadam": 2, "Adamax": 2, "Lamb": 2, "RMSprop": 1, "Adagrad": 1,
    "Adadelta": 2, "Ftrl": 2, "Lion": 1,
}  # fmt: skip
"""Values for each parameter with the arguments that an optimizer has by default: the variables that `build`
adds in Keras 3.15 (keras/src/optimizers). Adafactor's and Muon's depend on the shapes."""


def tensor_bytes(tensor: str) -> int:
    """Return the bytes of "bfloat16[4,3,224,224]"; 0 of a type that is not known."""
    return math.prod(axes(tensor.partition("[")[2]), start=WIDTHS.get(tensor.partition("[")[0], 0))


def axes(shape: str) -> tuple[int, ...]:
    """Return the sizes in a shape, "[256,28,28,1]"; empty for a scalar or none."""
    return tuple(int(size) for size in re.findall(r"\d{1,18}", shape.partition("]")[0]))
