"""What each block of memory is for, by the op that allocated it and by how long it lived."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.memory.blocks import NEVER, Blocks
from mpprof.model.account import PHASES, Phase
from mpprof.model.grouping import groups
from mpprof.model.memory import KINDS, Kind
from mpprof.model.run import Run
from mpprof.model.trace import Op, Trace

Int8 = NDArray[np.int8]
Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

HALF = frozenset(("half", "bfloat16", "float16"))
"""Names of 16-bit types in traces."""
_CAST = re.compile(r"(?:^|/)Cast(?:_\d+)?$")
_RECEIVED = re.compile(
    r"(?:^|/)(?:SameWorkerRecvDone|_?Host(?:Send|Recv)|_?Recv|IteratorGetNext\w*)(?:_\d+)?$"
)
"""Ops that place a batch on the device; TensorFlow calls the copies themselves `SameWorkerRecvDone`."""
_CODE = {kind: code for code, kind in enumerate(KINDS)}
_UNDECIDED = -1  # of the forward pass: kept for backward or not, which only its life tells
_OPERAND = -2  # an operand of a gradient's op in another layout
_TRANSPOSED = re.compile(r"(?:^|/)(\w+?)(?:_\d+)?-(\d+)-Transpose\w+-LayoutOptimizer$")
_NO_GRADIENTS = {
    "Conv2DBackpropFilter": "0", "Conv2DBackpropInput": "1", "Conv3DBackpropFilterV2": "0",
    "Conv3DBackpropInputV2": "1", "DepthwiseConv2dNativeBackpropFilter": "0",
    "DepthwiseConv2dNativeBackpropInput": "1", "MaxPoolGrad": "01", "FusedBatchNormGrad": "1",
    "FusedBatchNormGradV2": "1", "FusedBatchNormGradV3": "1", "ReluGrad": "1", "Relu6Grad": "1",
    "SigmoidGrad": "0", "TanhGrad": "0",
}  # fmt: skip
"""Of ops of the backward pass the operands that are no gradients, by place (TensorFlow's op definitions):
inputs, filters and results of the forward pass. Grappler names a transposed operand by op and place."""


def kinds(trace: Trace, ownership: Ownership, blocks: Blocks, run: Run | None) -> Int8:
    """Return for each block the place of its kind in KINDS.

    An activation is kept for backward if it outlives the first allocation of the backward pass after it;
    where the trace ends before that pass, it counts as kept. Where neither the trace nor the records tell of
    a training, nothing is.
    """
    table, rows = trace.allocations, blocks.row
    op, region, dtype, shape = table.op[rows], table.region[rows], table.dtype[rows], table.shapes[rows]
    group, first = groups([op, region, dtype, shape], len(rows))
    batch = _batch(trace, ownership, blocks, run)
    found = np.array(
        [
            _kind(trace, ownership, int(op[at]), _text(trace, region[at]), _text(trace, dtype[at]),
                  _text(trace, shape[at]), batch)
            for at in first.tolist()
        ],
        np.int8,
    )[group] if len(rows) else np.empty(0, np.int8)  # fmt: skip
    phases = _phases(ownership, op)
    phases[found == _OPERAND] = "other"  # allocated as the forward pass runs, whatever pass it is named after
    found[found == _OPERAND] = _CODE["other"]
    kept = _kept(blocks, phases, _trains(ownership, run))
    undecided = found == _UNDECIDED
    found[undecided & kept] = _CODE["activations kept for backward"]
    passing = np.where(phases == "forward", _CODE["other activations"], _CODE["other"])
    found[undecided & ~kept] = passing[undecided & ~kept]
    return found


def _kind(
    trace: Trace, ownership: Ownership, op: int, region: str, dtype: str, shape: str, batch: int | None
) -> int:
    """The code of what op, region and type say; _UNDECIDED for what may be an activation."""
    phase = ownership.phase_of(op)
    named = trace.ops[op] if op >= 0 else None
    if region.startswith("persist"):
        return _CODE["optimizer slots" if phase in ("optimizer", "loss_scale") else "parameters"]
    if named is not None and _copies_a_weight(named, dtype, shape, phase, batch):
        return _CODE["16-bit weight copies"]
    if region == "temp":
        return _CODE["workspaces"]
    if phase == "input" or (named is not None and _RECEIVED.search(named.name)):
        return _CODE["input"]
    if phase == "backward":
        return _OPERAND if named is not None and _transposes_an_operand(named.name) else _CODE["gradients"]
    if phase in ("optimizer", "loss_scale"):
        return _CODE["optimizer temporaries"]
    return _CODE["unknown"] if named is None else _UNDECIDED


def _transposes_an_operand(name: str) -> bool:
    """Whether an op puts what is no gradient into another layout, for an op of the backward pass."""
    found = _TRANSPOSED.search(name)
    return found is not None and found[2] in _NO_GRADIENTS.get(found[1], "")


def _copies_a_weight(op: Op, dtype: str, shape: str, phase: Phase, batch: int | None) -> bool:
    """A cast to 16 bits of what does not grow with the batch."""
    if dtype not in HALF or phase not in ("forward", "backward"):
        return False
    if op.type != "Cast" and not _CAST.search(op.name):
        return False
    sizes = axes(shape)
    return bool(sizes) and batch is not None and sizes[0] != batch


def axes(shape: str) -> tuple[int, ...]:
    """The sizes in a shape as allocator events write it, "[256,28,28,1]"; empty for a scalar or none."""
    return tuple(int(size) for size in re.findall(r"\d{1,18}", shape.partition("]")[0]))


def _batch(trace: Trace, ownership: Ownership, blocks: Blocks, run: Run | None) -> int | None:
    """The batch of one device: as recorded, else the first axis of most bytes of the forward pass."""
    recorded = run.facts.fits[-1].batch_size if run and run.facts and run.facts.fits else None
    if recorded and run and run.facts and not (run.facts.replicas or 1) > 1:
        return recorded
    table = trace.allocations
    forward = np.flatnonzero(_phases(ownership, table.op[blocks.row]) == "forward")
    shape, size = table.shapes[blocks.row][forward], blocks.bytes[forward]
    weight: dict[int, int] = {}
    for row in np.unique(shape).tolist():
        sizes = axes(_text(trace, row))
        if len(sizes) > 1:
            weight[sizes[0]] = weight.get(sizes[0], 0) + int(size[shape == row].sum())
    return max(weight, key=lambda axis: weight[axis]) if weight else None


def _phases(ownership: Ownership, op: NDArray[np.int32]) -> NDArray[np.object_]:
    values, inverse = np.unique(op, return_inverse=True)
    return np.array([ownership.phase_of(at) for at in values.tolist()], object)[inverse]


def _trains(ownership: Ownership, run: Run | None) -> bool:
    """Whether a backward pass is known of: by the records, or by any op of the trace."""
    fits = run is not None and run.facts is not None and bool(run.facts.fits)
    return fits or bool((ownership.phase == PHASES.index("backward")).any())


def _kept(blocks: Blocks, phases: NDArray[np.object_], trains: bool) -> Bool:
    """Which blocks are still there when the backward pass after their allocation begins; without one after
    them, those of a training."""
    backward = blocks.born[phases == "backward"]  # blocks are in order of time
    at = np.searchsorted(backward, blocks.born, side="right")
    begins = np.append(backward, NEVER)[at]
    return np.where(begins == NEVER, trains, blocks.died > begins)


def _text(trace: Trace, row: int) -> str:
    return trace.strings[row] if row >= 0 else ""


def names(codes: Int8) -> list[Kind]:
    """The kinds of these codes."""
    return [KINDS[code] for code in codes.tolist()]
