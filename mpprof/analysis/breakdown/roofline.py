"""Operations and bytes of ops and layers, and what a device could make of them.

One multiplication with its addition counts as two operations. Shapes come from the HLO of an XLA program,
from the `tensor_shapes` that TensorFlow writes beside a kernel, or from the recorded layers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.attainable.work import BoundBy, roofline
from mpprof.analysis.kernels.eligibility import (
    Tensor,
    batches_of,
    inner_sizes,
    operands_of,
    parse_shapes,
    precision_of,
)
from mpprof.analysis.kernels.op_types import family_of
from mpprof.analysis.layers.attribution import Ownership
from mpprof.model.account import Account, Cell
from mpprof.model.device import DevicePeaks
from mpprof.model.frozen import changed, frozen
from mpprof.model.kernels import ACCELERATED, MATMUL_FAMILIES, Family, Placement, Precision
from mpprof.model.run import LayerFacts, ModelFacts, Run
from mpprof.model.trace import Op

BYTES: dict[Precision, float] = {
    "fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1, "fp4": 0.5,
}  # fmt: skip
_OTHER_BYTES = {
    "pred": 1, "bool": 1, "s16": 2, "u16": 2, "int16": 2, "s32": 4, "u32": 4, "int": 4, "int32": 4,
    "uint32": 4, "s64": 8, "u64": 8, "int64": 8, "uint64": 8, "long": 8, "long int": 8,
}  # fmt: skip
"""Of what is no precision of arithmetic: masks, indices, keys of random numbers."""
_CONVOLUTIONS = frozenset(("Conv1D", "Conv2D", "Conv3D", "SeparableConv1D", "SeparableConv2D"))
_DEPTHWISE = frozenset(("DepthwiseConv1D", "DepthwiseConv2D"))
_TRANSPOSED = frozenset(("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"))
_GATES = {"LSTM": 4, "GRU": 3, "SimpleRNN": 1}
_BIASES = {"LSTM": 1, "GRU": 2, "SimpleRNN": 1}  # bias vectors per gate; GRU has two with reset_after
_ATTENTION = frozenset(("MultiHeadAttention", "GroupedQueryAttention", "GroupQueryAttention"))


@frozen
class Cost:
    """Of one call. None: the shapes that it takes are not known."""

    flops: float | None
    bytes: float | None


@frozen
class Roof:
    """The least time that a call can take, and what it is bound by."""

    least_ns: float
    bound: BoundBy


# --- ops ---------------------------------------------------------------------------------------------------


def cost(
    op: Op | None,
    shapes: str = "",
    *,
    family: Family,
    layer: LayerFacts | None = None,
    batch: int | None = None,
    precision: Precision = "unknown",
) -> Cost:
    """Return what one call of an op of `family` takes: from its HLO, else from `shapes` as its event states
    them, else, for matrix work, from the recorded shapes of its `layer` at `batch` examples, whose tensors
    have this `precision`.

    The two gradients of a layer each take as many operations as its forward pass. Where the operands fit
    several products, and no layer tells which, operations and bytes are not known.
    """
    if op is not None and op.hlo is not None:
        return Cost(op.hlo.flops, _bytes([Tensor(*tensor) for tensor in op.hlo.tensors]))
    op_type = op.type if op else ""
    tensors = parse_shapes(shapes) if shapes and _reads_its_inputs(op_type) else ()
    if family not in MATMUL_FAMILIES:
        return Cost(None, _elementwise_bytes(tensors))
    by_layer = _flops_by_layer(family, layer, batch) if layer is not None and batch else None
    product = _product(op_type, tensors, by_layer) if family == "gemm" else None
    if product is not None:
        read = _bytes(tensors)
        size = BYTES.get(precision_of(operands_of(op_type, tensors)[0].dtype), 4)
        return Cost(product.flops, None if read is None else read + product.made * size)
    known = None if several_fit(op_type, tensors, family) else by_layer
    if family == "gemm":
        stated = known is not None and not tensors
        return Cost(known, _dense_bytes(layer, batch, precision) if stated and layer and batch else None)
    return Cost(known, _convolution_bytes(tensors, family, layer, batch))


def _reads_its_inputs(op_type: str) -> bool:
    """Return whether a kernel of such an op reads what the op states as its inputs. Other ops than those of
    TensorFlow and PyTorch run several kernels (a compiled function), list their results too, or a whole cache
    of which they write a line (`reshape_and_cache_flash`)."""
    return not op_type or op_type.startswith("aten::") or family_of(op_type) is not None


def _flops_by_layer(family: Family, layer: LayerFacts, batch: int) -> float | None:
    """Return the operations of one product of a layer at this batch; None where the layer does not tell."""
    per_example = layer_flops(layer)
    if not per_example:
        return None
    # Attention multiplies twice: queries with keys, and scores with values.
    products = 2 if family == "gemm" and layer.class_name in _ATTENTION else 1
    return per_example * batch / products


def several_fit(op_type: str, tensors: Sequence[Tensor], family: Family | None) -> bool:
    """Return whether the operands fit several products and the event does not say which one ran: then its
    operations and the size of its result are not known."""
    return family == "gemm" and len(inner_sizes(op_type, operands_of(op_type, tensors))) > 1


@frozen
class _Product:
    """Matrix products of one call: their operations, and how many values they make."""

    flops: float
    made: float


def _product(op_type: str, tensors: Sequence[Tensor], by_layer: float | None) -> _Product | None:
    """Return what a call computes; of several products that fit the one that takes as many operations as its
    layer's (`by_layer`; None: not known). None where that leaves none, or several."""
    operands = operands_of(op_type, tensors)
    found = []
    for inner in inner_sizes(op_type, operands):
        outer = math.prod(math.prod(each.dims[-2:]) / inner for each in operands)
        made = outer * batches_of(operands)
        found.append(_Product(2.0 * inner * made, made))
    if len(found) > 1:
        found = [each for each in found if by_layer and math.isclose(each.flops, by_layer, rel_tol=1e-6)]
    return found[0] if len(found) == 1 and found[0].made > 0 else None


def _dense_bytes(layer: LayerFacts, batch: int, precision: Precision) -> float | None:
    """Return the bytes of a dense layer's input, weights and output, each once: its product and the two
    gradients touch the same three. None for other layers, and where a size or the type is not known."""
    size, read, made = BYTES.get(precision), _dims(layer.input_shape), _dims(layer.output_shape)
    if layer.class_name not in ("Dense", "EinsumDense") or size is None or layer.parameters is None:
        return None
    if not read or not made or made[-1] is None or None in read or None in made:
        return None
    values = sum(math.prod(each for each in side if each is not None) for side in (read, made))
    return (batch * values + _without_biases(layer, made[-1])) * size


def _convolution_bytes(
    tensors: Sequence[Tensor], family: Family, layer: LayerFacts | None, batch: int | None
) -> float | None:
    """Return the bytes of the operands, read once, and of the result, written once: a forward convolution's
    follows from its layer. None where either is not known: the result may be most of what is moved."""
    read = _bytes(tensors)
    if read is None or len(tensors) < 2:
        return None
    if family in ("conv_dgrad", "conv_wgrad"):
        return read  # both hold the larger of the two images
    written = _dims(layer.output_shape) if layer else None
    if family != "conv_fprop" or not written or None in written or not batch:
        return None
    values = math.prod(size for size in written if size is not None) * batch
    return read + values * BYTES.get(precision_of(tensors[0].dtype), 4)


def _bytes(tensors: Sequence[Tensor]) -> float | None:
    sizes = [BYTES.get(precision_of(tensor.dtype), _OTHER_BYTES.get(tensor.dtype)) for tensor in tensors]
    if not tensors or None in sizes or any(min(tensor.dims, default=1) < 0 for tensor in tensors):
        return None
    return sum(math.prod(t.dims) * size for t, size in zip(tensors, sizes, strict=True) if size is not None)


def _elementwise_bytes(tensors: Sequence[Tensor]) -> float | None:
    """Return the bytes of the inputs, read once, and of an output as large as the largest of them."""
    read = _bytes(tensors)
    return None if read is None else read + max(_bytes([tensor]) or 0.0 for tensor in tensors)


def roof(work: Cost, placement: Placement, precision: Precision, peaks: DevicePeaks | None) -> Roof | None:
    """Return the roofline bound of a call; None where neither its operations nor its bytes, or no peak, is
    known.

    The ridge between the two is the device's peak rate over its bandwidth.
    """
    if peaks is None:
        return None
    rate = peak_rate(placement, precision, peaks)
    found = roofline(work.flops, work.bytes, rate, peaks.bandwidth_bytes_per_s)
    return None if found is None else Roof(*found)


def peak_rate(placement: Placement, precision: Precision, peaks: DevicePeaks | None) -> float | None:
    """Return the device's peak rate in this precision on the units that a kernel ran on, in operations per
    second; None where it is not known."""
    rates = peaks.flops_per_s if peaks else {}
    if placement in ACCELERATED:
        return rates.get(precision)
    rate = rates.get(f"{precision}_cuda")
    if precision in ("fp16", "bf16"):
        # Ordinary arithmetic may also convert to float32, which on many cards is the faster way.
        return max((found for found in (rate, rates.get("fp32_cuda")) if found), default=None)
    return rate


# --- layers and models -------------------------------------------------------------------------------------


@frozen
class ModelFlops:
    """Matrix operations of a model, per example. `unknown` are layers that do matrix work of unknown size:
    with any of them, `forward` and `training` are lower bounds.
    """

    forward: float
    training: float
    unknown: tuple[str, ...] = ()


def model_flops(model: ModelFacts) -> ModelFlops:
    """Return the matrix operations of the model's forward pass and of its training step. Forward: the sum
    over the layers. Training: forward and twice that for the gradients, of the weights and of the inputs,
    without the input gradient of the first matrix layer, which nothing needs.

    Shared layers count once. Kernels that use fewer operations (Winograd, FFT) do less than this.
    """
    sizes = {layer.name: layer_flops(layer) for layer in model.layers}
    known = [size for size in sizes.values() if size]
    forward = sum(known)
    unknown = tuple(name for name, size in sizes.items() if size is None)
    return ModelFlops(forward, 3.0 * forward - (known[0] if known else 0.0), unknown)


def layer_flops(layer: LayerFacts) -> float | None:
    """Return the matrix operations of one layer's forward pass, per example; 0.0 for a layer that does no
    matrix work, None for one whose shapes were not recorded.

    Twice the kernel's weights for each place that it is applied at: the positions of the output for dense
    layers and convolutions (of the input, if transposed), the time steps for recurrent ones. Attention adds
    4 T² heads key_dim for its two products of scores.
    """
    kind, config = layer.class_name, layer.config
    output, inputs = _dims(layer.output_shape), _dims(layer.input_shape)
    if kind in ("Dense", "EinsumDense") or kind in _CONVOLUTIONS or kind in _DEPTHWISE:
        return _applied(layer, output, channels_first=config.get("data_format") == "channels_first")
    if kind in _TRANSPOSED:
        return _applied(layer, inputs, channels_first=config.get("data_format") == "channels_first")
    if kind in _GATES:
        units, weights = _size(layer, "units"), layer.parameters
        if not inputs or inputs[0] is None or not units or weights is None:
            return None
        biases = _GATES[kind] * _BIASES[kind] * units if config.get("use_bias", True) else 0
        return 2.0 * inputs[0] * (weights - biases)
    if kind in _ATTENTION:
        heads, key = _size(layer, "num_heads") or _size(layer, "num_query_heads"), _size(layer, "key_dim")
        if not output or output[0] is None or not heads or not key:
            return None
        return float(4.0 * output[0] ** 2 * heads * key)
    return 0.0


def _applied(layer: LayerFacts, shape: Sequence[int | None] | None, *, channels_first: bool) -> float | None:
    if not shape or layer.parameters is None:
        return None
    positions = shape[1:] if channels_first else shape[:-1]
    if None in positions:
        return None
    channels = shape[0] if channels_first else shape[-1]
    if layer.class_name in _TRANSPOSED or channels is None:
        channels = _size(layer, "filters") or _size(layer, "units")
    if channels is None:
        return None
    places = math.prod(size for size in positions if size is not None)
    return 2.0 * places * _without_biases(layer, channels)


def _without_biases(layer: LayerFacts, channels: int) -> int:
    return max(0, (layer.parameters or 0) - (channels if layer.config.get("use_bias", True) else 0))


_MOST_DIMS = 16


def _size(layer: LayerFacts, key: str) -> int | None:
    """Return a size from a layer's configuration, which may hold anything; None where there is none."""
    size = layer.config.get(key)
    return size if isinstance(size, int) and size > 0 else None


def _dims(shape: Any) -> list[int | None] | None:
    """Return the dimensions without the batch; None for no shape, several tensors, or too many dimensions."""
    if not isinstance(shape, list | tuple) or isinstance(shape[0] if shape else 0, list | tuple | dict):
        return None
    if not 2 <= len(shape) <= _MOST_DIMS:
        return None
    return [size if isinstance(size, int) and size > 0 else None for size in shape[1:]]


# --- accounts ----------------------------------------------------------------------------------------------


def weighed(account: Account, ownership: Ownership, run: Run | None) -> Account:
    """Return the account with operations and bytes in its cells, where shapes state them."""
    facts = dict(zip(ownership.layers, ownership.facts, strict=False))
    fit = run.last_fit if run else None
    replicas = (run.facts.replicas or 1) if run and run.facts else 1
    batch = fit.batch_size // replicas if fit and fit.batch_size else None

    costs: dict[tuple[object, ...], Cost] = {}  # many ops are of one type, shape and layer

    def weigh(cell: Cell) -> Cell:
        if cell.op is None or cell.family is None or not cell.done_per_step:
            return cell
        if cell.category == "copy":
            return cell  # whose bytes the collector states
        key = (
            id(cell.hlo) if cell.hlo else None, cell.op_type, cell.shapes, cell.family, cell.layer,
            cell.precision,
        )  # fmt: skip
        if (found := costs.get(key)) is None:
            layer = facts.get(cell.layer) if cell.layer else None
            op = Op(cell.op, cell.op_type or "", cell.hlo)
            found = costs[key] = cost(
                op, cell.shapes or "", family=cell.family, layer=layer, batch=batch,
                precision=cell.precision or "unknown",
            )  # fmt: skip
        if not (found.flops or found.bytes):
            return cell
        return changed(
            cell,
            flops_per_step=found.flops * cell.done_per_step if found.flops else None,
            bytes_per_step=found.bytes * cell.done_per_step if found.bytes else None,
        )

    devices = tuple(
        replace(device, cells=_shared_bytes(tuple(map(weigh, device.cells)))) for device in account.devices
    )
    return replace(account, main=devices[0], devices=devices)


def _shared_bytes(cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
    """Return the cells with the bytes that a convolution and its two gradients share: they touch the same
    three tensors, and the shapes of one of them may state only two. Each takes the largest figure of its
    layer in its precision."""

    def key(cell: Cell) -> tuple[str | None, Precision | None]:
        return cell.layer, cell.precision

    most: dict[tuple[str | None, Precision | None], float] = {}
    for cell in cells:
        if (
            cell.layer
            and (cell.family or "").startswith("conv_")
            and cell.bytes_per_step
            and cell.done_per_step
        ):
            most[key(cell)] = max(most.get(key(cell), 0.0), cell.bytes_per_step / cell.done_per_step)
    return tuple(
        replace(cell, bytes_per_step=most[key(cell)] * cell.done_per_step)
        if key(cell) in most and (cell.family or "").startswith("conv_")
        else cell
        for cell in cells
    )
