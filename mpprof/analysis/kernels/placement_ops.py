"""What an op says of its kernels: its HLO's products, its tensors' types, its role in the step."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import lru_cache

from mpprof.analysis.kernels.eligibility import parse_shapes, precision_of
from mpprof.analysis.kernels.name_parts import operands, values
from mpprof.analysis.kernels.op_types import family_of, type_from_name
from mpprof.analysis.layers import scopes
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Precision, Verdict
from mpprof.model.trace import HloInstruction, Op

NO_OP = Op("", "")
_GENERIC: frozenset[Family] = frozenset(("elementwise", "reduce", "fusion", "other", "memset"))
_NAMED_BY_ROOT = frozenset(("xla-loop-fusion", "xla-named-fusion"))
"""XLA names a fusion after a few of its instructions; its HLO lists them all."""

_TELLS_NOTHING: frozenset[Family] = frozenset(("other", "copy"))
_TOLD_BY_BODY: frozenset[Family] = _TELLS_NOTHING | {"cast", "layout", "gather_scatter"}
"""A fusion is named after its root: one that multiplies, adds and then converts is no cast, and what it holds
of these its body says."""

_CONVOLUTIONS: frozenset[Family] = frozenset(("conv_fprop", "conv_dgrad", "conv_wgrad"))
_DIRECTION = re.compile(r"(?i)fprop|dgrad|wgrad")

DOT_CODES = frozenset(("dot", "ragged-dot", "scaled-dot"))


def products(hlo: HloInstruction, depth: int = 4) -> list[HloInstruction]:
    """Return the matrix products inside an instruction: itself, or those of the computations that it
    calls."""
    if hlo.opcode in DOT_CODES or hlo.opcode == "convolution":
        return [hlo]
    if depth == 0:
        return []
    return [product for inner in hlo.called for product in products(inner, depth - 1)]


_SHAPE_ONLY = frozenset(
    ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota", "reshape")
)
_RANK: tuple[Family, ...] = (
    "gather_scatter",
    "random",
    "reduce",
    "pool",
    "norm",
    "elementwise",
    "cast",
    "layout",
)
"""Of several instructions in one fusion the first family in this order is what it mainly does."""


@lru_cache(maxsize=65536)
def hlo_family(hlo: HloInstruction) -> Family | None:
    """Return the family of an instruction or of what a fusion holds; None: an opcode that is not known."""
    if not hlo.called or hlo.opcode in (
        "reduce",
        "sort",
        "scatter",
        "map",
        "reduce-window",
        "select-and-scatter",
    ):
        return family_of(hlo.opcode)
    inside = {family_of(inner.opcode) for inner in hlo.called if inner.opcode not in _SHAPE_ONLY}
    for inner in hlo.called:
        if inner.called and inner.opcode == "fusion":
            inside.add(hlo_family(inner))
    return next(
        (family for family in _RANK if family in inside), "layout" if not inside - {None} else "elementwise"
    )


def hlo_types(hlo: HloInstruction) -> tuple[Precision, ...]:
    return tuple(
        precision
        for dtype in (*hlo.operand_dtypes, hlo.dtype)
        if (precision := precision_of(dtype)) != "unknown"
    )


def tensors_precision(op: Op, shapes: str) -> Precision:
    """Return the precision of an op's operands, from the recorded shapes, else from its HLO."""
    stated = [precision_of(tensor.dtype) for tensor in parse_shapes(shapes)]
    stated = [precision for precision in stated if precision not in ("unknown", "int8")]
    if not stated and op.hlo is not None:
        stated = [precision for precision in hlo_types(op.hlo) if precision != "int8"]
    return values(stated)


def inputs_precision(op: Op, shapes: str) -> Precision:
    """Return the type of a matrix op's two factors, by its HLO's product or its recorded shapes.

    Sizes and indices beside them are integers; a bias, an accumulator or a workspace comes after them.
    """
    inside = products(op.hlo) if op.hlo is not None else []
    if inside:
        return operands(map(precision_of, inside[0].operand_dtypes[:2]))
    stated = [precision_of(tensor.dtype) for tensor in parse_shapes(shapes)]
    if not stated and op.hlo is not None:
        stated = [precision_of(dtype) for dtype in op.hlo.operand_dtypes]
    stated = [precision for precision in stated if precision != "unknown"]
    return operands([precision for precision in stated if precision != "int8"][:2] or stated[:2])


def category_of(verdict: Verdict, op: Op, kernel: str = "") -> Family:
    """Return the family that the op gives to its kernel: the direction of a convolution, the optimizer's
    work.

    A direction that the kernel's own name states stays: JAX calls the gradients of a convolution
    `conv_general_dilated` too.
    """
    op_type = op.type if op.hlo is None else ""
    of_type = family_of(op_type or type_from_name(op.name))
    if op.hlo is not None and verdict.reason.code in _NAMED_BY_ROOT:
        verdict = replace(verdict, family=hlo_family(op.hlo) or verdict.family)
    if verdict.family in MATMUL_FAMILIES:
        if of_type in _CONVOLUTIONS and verdict.family in _CONVOLUTIONS and _DIRECTION.search(kernel):
            return verdict.family
        return of_type if of_type in MATMUL_FAMILIES and verdict.family != "attention" else verdict.family
    if verdict.placement != "not_matmul":
        return verdict.family
    if verdict.family in _GENERIC:
        if of_type in ("optimizer", "loss_scale"):
            return of_type
        phase = scopes.parse(op.name, op.type).phase
        if phase in ("optimizer", "loss_scale"):
            return phase
        if (
            of_type is not None
            and of_type not in MATMUL_FAMILIES
            and of_type not in (_TOLD_BY_BODY if op.hlo is not None and op.hlo.called else _TELLS_NOTHING)
            and verdict.family in ("elementwise", "fusion", "other")
        ):
            return of_type
    return verdict.family
