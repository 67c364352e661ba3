"""Tensor shapes as traces write them, and what of them a matrix kernel cares about."""

from __future__ import annotations

import re
from functools import lru_cache
from math import prod

from mpprof.analysis.layers import einsum
from mpprof.model.account import Cell
from mpprof.model.kernels import Family
from mpprof.model.run import LayerFacts
from mpprof.tensors import HALF

ALIGNMENT = 8
"""16-bit matrix instructions want M, N, K or channels in multiples of 8 values, which is 16 bytes: NVIDIA's
matrix multiplication and convolution guides."""

VOCABULARY = 8192
"""Fewer outputs are classes, not vocabularies, and a small part of the step (our judgement)."""

_TENSOR = r"([A-Za-z][A-Za-z0-9_]*)\[([0-9,\s]*)\]"
_ALIGN = re.compile(r"align(?:ment)?_?([1-9][0-9]?)(?![0-9])")

HALF_TYPES = HALF | {"f16", "bf16"}  # as HLO has them

Tensor = tuple[str, tuple[int, ...]]


@lru_cache(maxsize=8192)
def tensors(text: str) -> tuple[Tensor, ...]:
    """Return the tensors of a text: `"(half[32,512];half[512,1001])"` -> (("half", (32, 512)), ("half", (512,
    1001))).

    Anything else in the text is passed over; no tensor gives an empty tuple.
    """
    return tuple(
        (dtype, tuple(int(d) for d in dims.split(",") if d.strip()))
        for dtype, dims in re.findall(_TENSOR, text)
    )


def half_rows(cell: Cell) -> frozenset[int]:
    """Return the lengths of the rows of all 16-bit tensors of two and more axes that a cell reads or writes,
    by its HLO, else by the shapes that the trace states; empty where neither tells."""
    named = tensors(cell.shapes or "")
    if (hlo := cell.hlo) is not None:
        named = ((hlo.dtype, hlo.shape), *zip(hlo.operand_dtypes, hlo.operand_shapes, strict=False))
    return frozenset(shape[-1] for dtype, shape in named if dtype in HALF_TYPES and len(shape) > 1)


def largest(text: str | None) -> int:
    """Return how many values the largest of these tensors has; 0 where there is none."""
    return max((prod(dims) for _, dims in tensors(text or "")), default=0)


def matrix_dimensions(shapes: str | None, family: Family | None) -> tuple[int, ...]:
    """Return the sizes that decide how well matrix instructions are filled; empty where the shapes are not
    known.

    GEMM: the last two axes of each operand (M, N, K; batch axes do not matter). Convolution in NHWC: the
    last axis of each operand (channels in, channels out); spatial sizes and the batch only multiply M.
    """
    operands = [dims for _, dims in tensors(shapes or "") if len(dims) >= 2]
    if family in ("conv_fprop", "conv_dgrad", "conv_wgrad"):
        return tuple(dims[-1] for dims in operands if len(dims) >= 4)
    return tuple(d for dims in operands for d in dims[-2:])


def unaligned(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the sizes that are not multiples of 8, each once, in order."""
    return tuple(dict.fromkeys(size for size in sizes if size % ALIGNMENT))


@lru_cache(maxsize=8192)
def kernel_alignment(name: str) -> int | None:
    """Return the operand alignment that a kernel's name states (`..._align1`), in values; None where it does
    not."""
    found = _ALIGN.search(name)
    return int(found.group(1)) if found else None


def made(layer: LayerFacts) -> tuple[str, int] | None:
    """Return (argument, size) of what decides how many features or channels a layer gives out, of several
    axes their product; None for others."""
    if layer.kind == "EinsumDense":
        size = einsum.made(layer.config)
        return ("output_shape", size) if size else None
    # A tied embedding looks words up in its table, and multiplies by all of it in the end.
    for key in ("input_dim",) if layer.kind == "ReversibleEmbedding" else ("units", "filters", "output_dim"):
        value = layer.config.get(key)
        if isinstance(value, int) and not isinstance(value, bool):
            return key, value
    return None


def read(layer: LayerFacts, shape: object) -> int | None:
    """Return how many features or channels a layer sums over, by the shape of its input; None: not known."""
    if layer.kind == "EinsumDense":
        return einsum.read(layer.config, shape)
    if layer.config.get("data_format") == "channels_first":
        return shape[1] if isinstance(shape, list | tuple) and isinstance(shape[1], int) else None
    return last_axis(shape)


def width(layer: LayerFacts) -> int | None:
    """Return the output features or channels of a layer that multiplies matrices; None for others."""
    found = made(layer)
    return found[1] if found else None


def last_axis(shape: object) -> int | None:
    """Return the last axis of a recorded shape; None where it is unknown, dynamic, or of several tensors."""
    if isinstance(shape, list | tuple) and shape and isinstance(shape[-1], int):
        return shape[-1]
    return None
