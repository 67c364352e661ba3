"""Where an op ran: the words for it. The contract's lists, in the contract's spelling."""

from __future__ import annotations

from typing import Literal, get_args

from mpprof.model.arrays import Int32
from mpprof.model.frozen import frozen

Placement = Literal["tensor_core", "matrix_core", "cuda_core", "cpu", "not_matmul", "unknown"]
Precision = Literal["fp16", "bf16", "tf32", "fp32", "fp64", "fp8", "int8", "fp4", "mixed", "unknown"]
Family = Literal[
    "gemm", "conv_fprop", "conv_dgrad", "conv_wgrad", "attention", "depthwise", "rnn",
    "norm", "softmax", "pool", "elementwise", "reduce", "gather_scatter", "random",
    "cast", "layout", "optimizer", "loss_scale", "fusion", "memset", "copy", "comm", "mpprof", "other",
]  # fmt: skip
Strength = Literal["counter", "name", "op", "family", "none"]

OTHER_CARD = "counter-other-card"
"""Reason code of a verdict by counters of another card than the run's: said, and never called verified."""

TRANSFORMS: frozenset[str] = frozenset(("conv-transform", "conv-offsets", "miopen-transform", "im2col"))
"""Reason codes of the transforms around a convolution's product: Winograd, FFT, im2col and their indices."""

PLACEMENTS: tuple[Placement, ...] = get_args(Placement)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)
FAMILIES: tuple[Family, ...] = get_args(Family)
MATMUL_FAMILIES: frozenset[Family] = frozenset(
    ("gemm", "conv_fprop", "conv_dgrad", "conv_wgrad", "attention", "depthwise", "rnn")
)
CONVOLUTIONS: frozenset[Family] = frozenset(("conv_fprop", "conv_dgrad", "conv_wgrad"))
NARROW: frozenset[Precision] = frozenset(("fp16", "bf16", "fp8", "int8", "fp4", "mixed"))
"""Operands of 16 bits or less; a matrix product of two different ones is "mixed"."""
PAIRS = "pairs of narrow types"
"""What "mixed" is to people: a product of two types, such as weights of 4 bits with inputs of 8."""
COMPUTE_DTYPES: dict[str, Precision] = {
    "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
}  # fmt: skip
"""The types that a Keras policy can compute in."""
ACCELERATED: frozenset[Placement] = frozenset(("tensor_core", "matrix_core"))


@frozen
class Reason:
    """Which counter, pattern, type or shape decided. `code` is stable; `text` is for people."""

    code: str
    text: str


@frozen
class Verdict:
    """What is held to be true of one kernel, and why."""

    placement: Placement
    precision: Precision
    family: Family
    reason: Reason
    strength: Strength = "none"
    accumulate: Precision | None = None  # None: not known


UNKNOWN = Verdict(
    "unknown", "unknown", "other", Reason("no-evidence", "nothing in the name or the op says what it does")
)


@frozen
class Placements:
    """The verdict of every row of a trace's KernelTable: `verdicts[index[row]]`."""

    verdicts: tuple[Verdict, ...]
    index: Int32
