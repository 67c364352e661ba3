"""Attention writes its scores to memory.

What it means
    Without a fused kernel (on TensorFlow Keras has none) scores of batch x heads x length x length are
    written, masked, normalised and read again. In 16 bits that is half the bytes, and still most of the
    layer.

How we know
    On TensorFlow: recorded attention layers, and the softmax and elementwise kernels of these layers. On
    PyTorch: a softmax over as many values as a batched product of the same module reads or writes, which does
    not exist with fused kernels; and the elementwise kernels that work on as many values.

What it costs
    The time of those kernels. On TensorFlow one run cannot show how much of it a fused kernel would save. On
    PyTorch a fused kernel keeps the scores on the chip, so that all of it may go; what its products gain is
    not counted.

When to ignore
    With short sequences.

Sources
    Read in Keras 3.15.1: `dot_product_attention(flash_attention=True)` raises ValueError on TensorFlow;
    executed: softmax of MultiHeadAttention runs in float16. PyTorch's documentation of
    `scaled_dot_product_attention`; FlashAttention (arXiv:2205.14135): the scores are never written.
"""

from __future__ import annotations

from math import prod

from mpprof.diagnosis.cells import unattributed
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.frameworks import ON_TORCH

CODE, SLUG, TITLE = "MP411", "attention-unfused", "Attention writes its scores to memory"
ABOUT = "unfused attention"
SAYS = "attention writes its scores to memory[, which costs {time}]"
ONCE = "once attention is fused"
SPECIFICITY = NAMED
OF_ACCELERATOR = True

INFO_RATIO = 0.10
"""A tenth of the step around the products of attention: worth knowing, and a ceiling rather than a fault."""
SCALE = Scale(info_ratio=0.05, warning_ratio=INFO_RATIO, error_ratio=0.40)
"""Where a fused kernel is at hand, it is a fault from a tenth on (our judgement)."""
_PROJECTIONS = ("query", "key", "value", "attention_output")
_ATTENTION = ("MultiHeadAttention", "GroupedQueryAttention", "Attention", "AdditiveAttention")


def judge(signals: Signals) -> Outcome:
    if signals.framework in ON_TORCH:
        return _by_shapes(signals)
    names = {f.name for f in need(signals.layers) if f.class_name in _ATTENTION or f.kind in _ATTENTION}
    if not names:
        return NotApplicable("the model has no attention layer")
    if known(signals.backend) not in (None, "tensorflow"):
        return NotApplicable("other backends have fused attention")
    need(signals.gpu_activity)
    mine = signals.select(lambda cell: _within(cell.layer, names))
    if not mine:
        return unattributed(names)
    rows = tuple(
        row
        for row in mine
        if signals.cells[row].category in ("elementwise", "reduce", "layout")
        and not _of_a_projection(signals, signals.cells[row])
    )
    ratio = signals.time(rows) / signals.whole_ns
    if ratio < INFO_RATIO:
        return Clear(f"softmax and masks of attention take {format_ratio(ratio)} of the step")
    return Found(
        summary=f"softmax, masks and transposes of attention take {format_ratio(ratio)} of {{whole}}",
        evidence=(evidence.ratio("attention beside its products", ratio, INFO_RATIO),),
        severity="info",
        layers=tuple(sorted(names)),
    )


def _within(layer: str | None, names: set[str]) -> bool:
    """Return whether `layer` is one of the named layers or inside one (its projections are layers of their
    own)."""
    return layer is not None and (layer in names or any(layer.startswith(f"{name}/") for name in names))


def _of_a_projection(signals: Signals, cell: Cell) -> bool:
    """Return whether the cell is work of one of attention's projections, which are layers of their own: their
    biases and the gradients of these are no work on scores."""
    layer = signals.layer(cell.layer)
    inner = (cell.layer or "").rpartition("/")[2]
    return inner in _PROJECTIONS or (layer is not None and layer.kind in ("Dense", "EinsumDense"))


def _by_shapes(signals: Signals) -> Outcome:
    """Judge a run of PyTorch, whose traces state the sizes of every op."""
    need(signals.gpu_activity)
    softmaxes = signals.select(lambda cell: cell.family == "softmax")
    if softmaxes and not any(signals.cells[row].shapes for row in softmaxes):
        return Unable("the trace does not state the shapes of ops (record them with record_shapes=True)")
    multiplied = {(cell.layer, size) for cell in signals.cells for size in _of_batched_product(cell)}
    scores = {_sized(signals.cells[row]) for row in softmaxes if _sized(signals.cells[row])[:2] in multiplied}
    rows = signals.select(
        lambda cell: cell.category in ("elementwise", "reduce", "cast") and _sized(cell) in scores
    )
    claims = attainable.whole(rows)
    ratio = signals.cost_ratio(claims)
    if ratio < SCALE.info_ratio:
        return Clear(f"softmax and masks over the scores of attention take {format_ratio(ratio)} of the step")
    return Found(
        summary=(
            "softmax and elementwise work on attention's scores, which a fused kernel never writes, take "
            "{cost} {each} ({share})"
        ),
        evidence=(
            evidence.ratio("softmax and elementwise work on scores", ratio, SCALE.crossed(ratio)),
            evidence.count("scores in one call", max(size for _, size, _ in scores)),
        ),
        confidence="medium",
        scale=SCALE,
        claims=claims,
        layers=signals.layers_of(rows),
    )


def _sized(cell: Cell) -> tuple[str | None, int, int]:
    """Return the layer of a cell, how many values its largest tensor has, and how long that one's rows are:
    as many values in rows of another length are a projection's."""
    of = max((dims for _, dims in shapes.tensors(cell.shapes or "")), key=prod, default=())
    return cell.layer, prod(of) if of else 0, of[-1] if of else 0


def _of_batched_product(cell: Cell) -> set[int]:
    """Return how many values the operands and the result of this product of batches have; empty for
    others."""
    tensors = eligibility.parse_shapes(cell.shapes or "") if cell.family == "gemm" else ()
    operands = eligibility.operands_of(cell.op_type or "", tensors)
    product = eligibility.product_of_shapes(cell.op_type or "", tensors, "gemm")
    if product is None or min(len(tensor.dims) for tensor in operands) < 3:
        return set()
    result = eligibility.batches_of(operands) * product.m * product.n
    return {result, *(prod(tensor.dims) for tensor in operands)} - {0}
