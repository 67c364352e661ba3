"""The sizes in an EinsumDense: what its equation makes of the axes of input and kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

Config = Mapping[str, object]


def axes(equation: object) -> tuple[str, str, str] | None:
    """Return the labels of the input, the kernel and the output; None for what is no such equation."""
    found = re.fullmatch(r"\s*([\w.]+)\s*,\s*(\w+)\s*->\s*([\w.]+)\s*", str(equation))
    return (found[1], found[2], found[3]) if found else None


def made_axes(config: Config) -> list[tuple[int, int]]:
    """Return (place in `output_shape`, size) of the axes of the output that come from the kernel."""
    labels, shape = axes(config.get("equation")), config.get("output_shape")
    sizes = list(shape) if isinstance(shape, list | tuple) else [shape]
    if labels is None:
        return []
    inputs, kernel, output = labels
    places = [(len(sizes) - len(output) + place, label) for place, label in enumerate(output)]
    free = [at for at, label in places if label in kernel and label not in inputs and at >= 0]
    return [(at, size) for at in free if isinstance(size := sizes[at], int)]


def made(config: Config) -> int:
    """Return how many features come from the kernel; 0 where that is not known."""
    sizes = [size for _, size in made_axes(config)]
    return prod(sizes) if sizes else 0


def read(config: Config, shape: object) -> int | None:
    """Return the number of features that the layer sums over; None where the shape of its input does not
    say."""
    labels = axes(config.get("equation"))
    if labels is None or not isinstance(shape, list | tuple):
        return None
    inputs, kernel, _ = labels
    behind = [(place - len(inputs), label) for place, label in enumerate(inputs)]
    sizes = [shape[at] for at, label in behind if label in kernel and -at <= len(shape)]
    return prod(sizes) if sizes and all(isinstance(size, int) for size in sizes) else None


def kept(config: Config, shape: object) -> list[int | None] | None:
    """Return the axes of the input, but for the batch, that the kernel does not touch: the places that it is
    applied at. None where the equation or the shape does not say."""
    labels = axes(config.get("equation"))
    if labels is None or "." in labels[0] or not isinstance(shape, list | tuple):
        return None
    inputs, kernel, _ = labels
    if len(inputs) != len(shape):
        return None
    sizes = [size for label, size in zip(inputs, shape, strict=True) if label not in kernel]
    return [size if isinstance(size, int) and size > 0 else None for size in sizes[1:]]
