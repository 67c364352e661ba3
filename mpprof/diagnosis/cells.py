"""What several rules ask of the account's cells."""

from __future__ import annotations

from collections.abc import Iterable

from mpprof.analysis.attainable import evidence as reached
from mpprof.analysis.kernels import shapes
from mpprof.analysis.layers import kinds as layers
from mpprof.analysis.layers.scopes import LOSS_SCOPES
from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import Unable, known
from mpprof.diagnosis.signals import HALF_DTYPES, HALF_PRECISIONS, Signals
from mpprof.model.account import Cell
from mpprof.model.run import LayerFacts

_LOSSES = ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits", "LogSoftmax")


def off_or_narrow(cell: Cell) -> bool:
    """Return whether the cell is a matrix kernel on 16-bit operands that missed the matrix units, or reads
    them in narrow loads."""
    sixteen = cell.precision in HALF_PRECISIONS or any(
        dtype in ("half", "bfloat16", "f16", "bf16") for dtype, _ in shapes.tensors(cell.shapes or "")
    )
    if not sixteen or cell.family in ("depthwise", "rnn"):
        return False
    alignment = shapes.kernel_alignment(cell.kernel or "")
    return cell.placement == "cuda_core" or (alignment is not None and alignment < shapes.ALIGNMENT)


def missed(signals: Signals, row: int) -> bool:
    """Return whether the cell is 16-bit matrix work that missed the matrix units, or feeds them badly: by its
    placement, by the alignment in its kernel's name, or by its size where a compiler made the kernel."""
    return off_or_narrow(signals.cells[row]) or badly_fed(signals, row)


def badly_fed(signals: Signals, row: int) -> bool:
    """Return whether the cell is a large 16-bit product on matrix units with an odd size, in a kernel of
    XLA's."""
    cell = signals.cells[row]
    return reached.badly_fed(cell, signals.layer(cell.layer), known(signals.peaks))


def bad_sizes(signals: Signals, row: int) -> tuple[int, ...] | None:
    """Return the sizes of this cell's work that are not multiples of 8; None where too few are known to
    tell."""
    cell = signals.cells[row]
    return reached.bad_sizes(cell, signals.layer(cell.layer))


def unattributed(layers: Iterable[str]) -> Unable:
    """Return the answer of a rule about layers of which the trace shows no kernel."""
    return Unable(f"no kernel in the trace could be attributed to {evidence.listed(sorted(layers))}")


def norms_by_scope(signals: Signals) -> frozenset[str]:
    """Return the layers that have a kernel which its scope shows to be a norm's."""
    return frozenset(cell.layer for cell in signals.cells if cell.category == "norm" and cell.layer)


def is_loss(cell: Cell) -> bool:
    """Return whether the cell is work of the loss in float32 that is no matrix work."""
    if cell.category not in ("elementwise", "reduce", "other") or cell.precision not in ("fp32", "mixed"):
        return False
    scopes = (cell.op or "").replace("(", "/").replace(")", "/").split("/")
    return cell.op_type in _LOSSES or not LOSS_SCOPES.isdisjoint(scopes)


def gives_float32(layer: LayerFacts) -> bool:
    """Return whether the layer has float32 output and is no entry to the model."""
    return layer.output_dtype == "float32" and not layers.is_entry(layer)


def activation_casts(signals: Signals) -> tuple[int, ...]:
    """Return the rows of casts in 16-bit layers that are not casts of a weight: casts of the layer's input,
    and of its gradient. The first layer, which takes the data in, norms, and the model's end are left out."""
    facts = known(signals.layers) or ()
    first = next((layer.name for layer in facts if not layers.is_entry(layer)), None)
    by_right = {first, *layers.head(facts), *(layer.name for layer in facts if layers.is_norm(layer))}
    sizes = {
        layer.name: _weights(layer)
        for layer in facts
        if layer.compute_dtype in HALF_DTYPES and layer.name not in by_right
    }
    found = signals.select(
        lambda cell: (
            cell.category == "cast"
            and cell.layer in sizes
            and bool(values := shapes.largest(cell.shapes))
            and values not in sizes[cell.layer]
        )
    )
    inside = {signals.cells[row].layer for row in found if _goes_up(signals.cells[row])}
    return tuple(row for row in found if signals.cells[row].layer not in inside)


def _goes_up(cell: Cell) -> bool:
    """Return whether the cell is a cast to float32 in the forward pass: what follows computes in float32,
    within the layer or behind it. A layer that is fed float32 casts its input down, and casts only its
    gradient up again."""
    kind = next((dtype for dtype, _ in shapes.tensors(cell.shapes or "")), "")
    return cell.phase == "forward" and kind in ("half", "bfloat16", "f16", "bf16")


def _weights(layer: LayerFacts) -> frozenset[int]:
    """Return how many values the layer's kernel and bias may have, each by itself or together."""
    parameters, bias = layer.parameters or 0, shapes.width(layer) or 0
    return frozenset((parameters, parameters - bias, bias))
