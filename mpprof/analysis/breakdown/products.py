"""Which product a matrix kernel computes: its shape, as HLO or the tensors beside its op state it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

from mpprof.analysis.kernels import shapes
from mpprof.analysis.kernels.convolution_gradients import BOTH
from mpprof.analysis.kernels.eligibility import (
    Product,
    Tensor,
    inner_sizes,
    operands_of,
    parse_shapes,
    product_of_shapes,
)
from mpprof.analysis.kernels.placement import products
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Family, Placement, Precision, Verdict
from mpprof.model.run import LayerFacts
from mpprof.model.trace import HloInstruction, Op

_MOST_OPERANDS = 3
"""Of an op whose sizes M, N and K are not known so many tensors are named: attention has three."""


@frozen
class Multiplied:
    """A product by what makes it one of its kind. `m`, `n` and `k` are of one matrix product, of which a call
    does `batch`; None where they are not known, and for what is no plain product. `shape` is "M x N x K", or
    the sizes of the operands; None: not stated. `operands`: the tensors as the trace states them."""

    family: Family
    placement: Placement
    precision: Precision
    shape: str | None = None
    batch: int | None = None
    m: int | None = None
    n: int | None = None
    k: int | None = None
    operands: str | None = None


def multiplied(op: Op | None, stated_shapes: str, verdict: Verdict) -> Multiplied:
    """Return the product of a matrix kernel of this op that got `verdict`. `stated_shapes`: as its event
    states them."""
    family = verdict.family
    kind = (family, verdict.placement, verdict.precision)
    if op is not None and op.hlo is not None:
        inner = products(op.hlo)
        hlo = inner[0] if inner else op.hlo
        operands = tuple(map(Tensor, hlo.operand_dtypes[:2], hlo.operand_shapes[:2]))
        sizes = _of_hlo(hlo) if family == "gemm" else None
    else:
        tensors = parse_shapes(stated_shapes) if stated_shapes else ()
        op_type = op.type if op else ""
        operands = operands_of(op_type, tensors) if family == "gemm" else _matrices(op_type, tensors, family)
        sizes = _of_tensors(op_type, operands) if family == "gemm" else None
    if len(operands) < 2 or any(min(each.dims, default=-1) < 0 for each in operands):
        return Multiplied(*kind)
    stated = "; ".join(f"{each.dtype}[{','.join(map(str, each.dims))}]" for each in operands)
    if sizes is None:
        return Multiplied(
            *kind, " by ".join("x".join(map(str, each.dims)) for each in operands), operands=stated
        )
    batch, m, n, k = sizes
    return Multiplied(*kind, f"{f'{batch} of ' if batch > 1 else ''}{m} x {n} x {k}", batch, m, n, k, stated)


def by_layer(found: Multiplied, layer: LayerFacts, batch: int, *, forward: bool) -> Multiplied:
    """Return the product with the sizes of its dense layer at `batch` examples: M, N and K of the forward
    pass, of which a gradient is named, because nothing says which of the two it is. Unchanged for other
    layers, and where a size was not recorded."""
    of_input = layer.input_shape
    k, n = shapes.read(layer, of_input), shapes.width(layer)
    if found.family != "gemm" or not k or not n or not isinstance(of_input, list | tuple):
        return found
    sizes = of_input[1:]
    if not all(isinstance(size, int) for size in sizes) or prod(sizes) % k:
        return found
    m = batch * prod(sizes) // k
    shape = f"{m} x {n} x {k}"
    if not forward:
        return replace(found, shape=f"a gradient of {shape}")
    return replace(found, shape=shape, batch=1, m=m, n=n, k=k)


def _matrices(op_type: str, tensors: Sequence[Tensor], family: Family) -> tuple[Tensor, ...]:
    found = tuple(each for each in tensors if len(each.dims) > 1)[:_MOST_OPERANDS]
    if op_type == BOTH and len(found) == _MOST_OPERANDS:  # the output's gradient, the input, the weights
        return (found[0], found[1 if family == "conv_wgrad" else 2])
    return found


def _of_hlo(hlo: HloInstruction) -> tuple[int, int, int, int] | None:
    """Return (batch, M, N, K) of a dot or a call of a library: the result has M and N, its operations K."""
    *batch, m, n = hlo.shape if len(hlo.shape) > 1 else (1, *hlo.shape, 1)[-2:]
    made = prod(hlo.shape)
    if not hlo.flops or not made:
        return None
    return prod(batch), m, n, round(hlo.flops / (2 * made))


def _of_tensors(op_type: str, operands: Sequence[Tensor]) -> tuple[int, int, int, int] | None:
    """Return (batch, M, N, K) of a product of these operands; None where they do not tell, because an event
    does not say which of them are transposed, and several products fit."""
    if len(inner_sizes(op_type, operands)) != 1:
        return None
    product: Product | None = product_of_shapes(op_type, operands, "gemm")
    if product is None or min(product.m, product.n, product.k) <= 0:
        return None
    batch = max(prod(each.dims[:-2]) for each in operands)
    return batch, product.m, product.n, product.k
