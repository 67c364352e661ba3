"""Why a tensor stopped being finite: the first of the operations that computed it whose result is not.

The operations are those of one layer, run one by one; here their names and a few figures of what went in and
came out are judged, without a framework."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mpprof.model.frozen import frozen
from mpprof.numbers.tallies import LARGEST16

LOST = 2.0**-25
"""Float16 rounds this and what is smaller to 0."""


@frozen
class Summary:
    """Of one tensor of floats that went into an operation or came out: whether all of it is finite, the
    largest and the smallest magnitude of what is, and whether it is one number."""

    dtype: str  # "scalar": a number of Python's
    is_finite: bool
    largest: float
    smallest: float
    is_scalar: bool


@frozen
class Op:
    """One operation: its name in the framework, and its tensors of floats. `squares`: both are the same."""

    name: str
    inputs: tuple[Summary, ...]
    outputs: tuple[Summary, ...]
    squares: bool = False


def summary(values: Any, dtype: str) -> Summary:
    """Return the summary of an array of NumPy's."""
    array = np.abs(np.asarray(values).astype(np.float64))
    finite = array[np.isfinite(array)]
    largest, smallest = (float(finite.max()), float(finite.min())) if finite.size else (0.0, 0.0)
    return Summary(dtype, finite.size == array.size, largest, smallest, array.ndim == 0)


KINDS = {
    "variance": r"var|var_mean|native_(layer|batch|group)_norm|squared?difference|square|integer_pow|pow",
    "exp": r"exp2?|expm1|softplus|sinh|cosh",
    "cast": r"cast|convert_element_type|to_copy",
    "sum": r"add(v2|n|mm|_n|_any)?|sub|(reduce_)?(sum|mean)|cumsum|biasadd|(batch|_fused|sparse)*matmul(v\d)?"
    r"|mm|bmm|baddbmm|linear|einsum|dot|dot_general|(_fused)?conv.*|depthwiseconv.*|avg_?pool.*"
    r"|reduce_window_sum|(un)?(sorted)?segmentsum|scatter-?add|logsumexp",
    "division": r"(real)?div(_no_nan)?|truediv|rsqrt|reciprocal|inv|log(1p)?|xlogy",
    "product": r"mul|prod",
}
"""How the frameworks name the operations of a kind, in lower case; the first that fits."""
_KINDS = [(kind, re.compile(pattern)) for kind, pattern in KINDS.items()]
_MULTIPLIES = re.compile(r".*matmul(v\d)?|(add)?mm|(badd)?bmm|linear|einsum|dot(_general)?|.*conv.*")
_ADDS = re.compile(r"add(v2)?|max(imum)?|clamp(_min)?")


def kind_of(op: Op) -> str | None:
    """Return the kind of arithmetic that an operation is of; None where it cannot overflow."""
    name = op.name.lower().strip("_")
    kind = next((kind for kind, pattern in _KINDS if pattern.fullmatch(name)), None)
    return "variance" if kind == "product" and op.squares else kind


def cause(ops: Sequence[Op], *, of_one: bool = True) -> tuple[str, str] | None:
    """Return the kind and the text of the first operation that gives what is not finite from what is; else of
    the first that is given what no operation before it gave, a constant. None where there is none, or it is
    of an unknown kind. What the first is given is finite. `of_one`: they are those of one layer, so that a
    cast is of a result that it computed in float32."""
    for number, op in enumerate(ops):
        if all(each.is_finite for each in op.outputs) or not all(each.is_finite for each in op.inputs):
            continue
        before = [kind for each in ops[:number] if (kind := kind_of(each)) is not None]
        return _judged(op, kind_of(op), before if of_one else [], ops[:number])
    given = next((each for op in ops for each in op.inputs if not each.is_finite), None)
    if given is None:
        return None
    largest = f", which ends at {LARGEST16:,.0f}" if given.dtype == "float16" else ""
    return "constant", f"a constant is infinite in {given.dtype}{largest}"


def _judged(op: Op, kind: str | None, before: list[str], earlier: Sequence[Op]) -> tuple[str, str] | None:
    most = max((each.largest for each in op.inputs), default=0.0)
    if kind == "cast":  # of a result that was computed in float32
        recent = before[-5:]
        kind = next((each for each in ("variance", "exp", "sum", "product") if each in recent), "cast")
        if kind != "cast":
            return kind, f"{NAMED[kind]} is {figure(most)}, beyond float16's {LARGEST16:,.0f}"
    if kind == "sum" and before and before[-1] == "variance":
        return _overflows(
            "variance", f"a sum of squares (a variance or a norm) of values up to {figure(most)}"
        )
    match kind:
        case "sum":
            return _overflows("sum", f"a sum of {_summed(op, most)}")
        case "variance":
            return _overflows("variance", f"the square (of a variance or a norm) of {figure(most)}")
        case "exp":
            kind, text = _overflows("exp", f"exp of {figure(most)}")
            return kind, f"{text}; float16 holds up to exp of 11.09"
        case "product":
            return _overflows("product", f"a product of {figure(most)}")
        case "cast":
            return "cast", f"{figure(most)} was made float16, which ends at {LARGEST16:,.0f}"
        case "division":
            divides = "log" if op.name.lower().startswith("log") else "a division or its like"
            if min((each.smallest for each in op.inputs), default=1.0) > 0:
                return _overflows("division", f"{divides} by {figure(min(e.smallest for e in op.inputs))}")
            if any(_adds_nothing(each) for each in earlier):
                return "epsilon", f"{divides} of 0: the epsilon that is added rounds to 0 in float16"
            return "division", f"{divides} of 0"
    return None


NAMED = {
    "variance": "a sum of squares (a variance or a norm)",
    "exp": "an exp",
    "sum": "a sum",
    "product": "a product",
}


def _summed(op: Op, most: float) -> str:
    """Return what an operation sums up. A product of matrices may overflow where no sum of what it is given
    does: its factors are named."""
    name = op.name.lower().strip("_")
    factors = op.inputs[name in ("addmm", "baddbmm") :][:2]
    if len(factors) < 2 or not _MULTIPLIES.fullmatch(name):
        return f"values up to {figure(most)}"
    return f"values up to {' x '.join(figure(each.largest) for each in factors)}"


def _overflows(kind: str, what: str) -> tuple[str, str]:
    return kind, f"{what} overflows"


def figure(value: float) -> str:
    """Return a magnitude as people write it."""
    return f"{value:,.0f}" if 1000 <= value < 1e9 else f"{value:.3g}"


def _adds_nothing(op: Op) -> bool:
    """Return whether an operation adds a number, or takes it as the least value, that is 0 in 16 bits."""
    return bool(
        _ADDS.fullmatch(op.name.lower().strip("_"))
        and any(each.dtype in ("float16", "bfloat16") for each in op.outputs)
        and any(each.is_scalar and each.largest <= LOST for each in op.inputs)
    )
