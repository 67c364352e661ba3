"""What each block of memory is for, by the op that allocated it and by how long it lived."""

from __future__ import annotations

import re

import numpy as np

from mpprof.analysis.arrays.intervals import row_around, union
from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.memory.blocks import NEVER, Blocks
from mpprof.analysis.steps.autotuning import tuned_ops
from mpprof.analysis.steps.calls import Calls
from mpprof.model.account import PHASES, Phase
from mpprof.model.arrays import Bool, Int8, Int32, groups
from mpprof.model.memory import KINDS
from mpprof.model.run import Run
from mpprof.model.trace import Op, Trace
from mpprof.tensors import HALF, axes

_CAST = r"(?:^|/)Cast(?:_\d+)?$"
_RECEIVED = r"(?:^|/)(?:SameWorkerRecvDone|_?Host(?:Send|Recv)|_?Recv|IteratorGetNext\w*)(?:_\d+)?$"
"""Ops that place a batch on the device; TensorFlow calls the copies themselves `SameWorkerRecvDone`."""
_INPUT_THREAD = re.compile(r"tf_data_(?!iterator_get_next)")
"""TensorFlow's names of its input pipeline's threads: `tf_data_private_threadpool/7`, `tf_data_prefetch/7`.
The one that hands a batch to the step may go on with the step."""
_CODE = {kind: code for code, kind in enumerate(KINDS)}
FORWARD, BACKWARD, OTHER = (PHASES.index(phase) for phase in ("forward", "backward", "other"))
CODE = "code"
"""Type of an op that stands for a line of code in no module, optimizer or backward pass, by its stack."""
_UNDECIDED = -1  # of the forward pass: kept for backward or not, which only its life tells
_OPERAND = -2  # an operand of a gradient's op in another layout
_TRANSPOSED = r"(?:^|/)(\w+?)(?:_\d+)?-(\d+)-Transpose\w+-LayoutOptimizer$"
_NO_GRADIENTS = {
    "Conv2DBackpropFilter": "0", "Conv2DBackpropInput": "1", "Conv3DBackpropFilterV2": "0",
    "Conv3DBackpropInputV2": "1", "DepthwiseConv2dNativeBackpropFilter": "0",
    "DepthwiseConv2dNativeBackpropInput": "1", "MaxPoolGrad": "01", "FusedBatchNormGrad": "1",
    "FusedBatchNormGradV2": "1", "FusedBatchNormGradV3": "1", "ReluGrad": "1", "Relu6Grad": "1",
    "SigmoidGrad": "0", "TanhGrad": "0",
}  # fmt: skip
"""Of ops of the backward pass the operands that are no gradients, by place (TensorFlow's op definitions):
inputs, filters and results of the forward pass. Grappler names a transposed operand by op and place."""


def kinds(trace: Trace, ownership: Ownership, blocks: Blocks, steps: Calls | None, run: Run | None) -> Int8:
    """Return for each block the place of its kind in KINDS.

    An activation is kept for backward if it outlives the first allocation of the backward pass after it;
    where the trace ends before that pass, it counts as kept. Where neither the trace nor the records tell of
    a training, nothing is, nor what was allocated between `steps` by an op that is not of the forward pass
    (a callback's, a metric's).
    """
    table, rows = trace.allocations, blocks.row
    op, region, dtype, shape = table.op[rows], table.region[rows], table.dtype[rows], table.shapes[rows]
    scratch, fed = _scratch(trace, blocks) | _tried_out(trace, blocks), _fed(trace, blocks)
    group, first = groups([op, region, dtype, shape, scratch, fed], len(rows))
    batch = batch_of(trace, ownership, blocks, run)
    found = np.array(
        [
            _kind(trace, ownership, int(op[at]), _text(trace, region[at]), _text(trace, dtype[at]),
                  _text(trace, shape[at]), batch, scratch=bool(scratch[at]), fed=bool(fed[at]))
            for at in first.tolist()
        ],
        np.int8,
    )[group] if len(rows) else np.empty(0, np.int8)  # fmt: skip
    phases = phases_of(ownership, op)
    phases[found == _OPERAND] = OTHER  # allocated as the forward pass runs, whatever pass it is named after
    found[found == _OPERAND] = _CODE["other"]
    kept = _kept(blocks, phases, _trains(ownership, run))
    if steps is not None:
        kept &= (phases == FORWARD) | (steps.at(trace.allocations.time_ns[rows]) >= 0)
    undecided = found == _UNDECIDED
    found[undecided & kept] = _CODE["activations kept for backward"]
    passing = np.where(phases == FORWARD, _CODE["other activations"], _CODE["other"])
    found[undecided & ~kept] = passing[undecided & ~kept]
    return found


def _kind(
    trace: Trace,
    ownership: Ownership,
    op: int,
    region: str,
    dtype: str,
    shape: str,
    batch: int | None,
    *,
    scratch: bool,
    fed: bool,
) -> int:
    """Return the code of the kind that op, region and type state; _UNDECIDED for what may be an
    activation."""
    phase = ownership.phase_of(op)
    named = trace.ops[op] if op >= 0 else None
    if region.startswith("persist"):
        return _CODE["optimizer slots" if phase in ("optimizer", "loss_scale") else "parameters"]
    if fed:
        return _CODE["input"]
    if named is not None and _copies_a_weight(named, dtype, shape, phase, batch):
        return _CODE["16-bit weight copies"]
    if scratch:
        return _CODE["workspaces"]
    if phase == "input" or (named is not None and re.search(_RECEIVED, named.name)):
        return _CODE["input"]
    if phase == "backward":
        return _OPERAND if named is not None and _transposes_an_operand(named.name) else _CODE["gradients"]
    if phase in ("optimizer", "loss_scale"):
        return _CODE["optimizer temporaries"]
    return _CODE["unknown"] if named is None or named.type == CODE else _UNDECIDED


def _fed(trace: Trace, blocks: Blocks) -> Bool:
    """Return which blocks a thread of `tf.data` asked for: batches and what they are made of. The ops that it
    runs (`GatherV2` of an array's rows) have no scope, and copying examples into a batch is no op at all."""
    thread = trace.allocations.thread
    if thread is None:
        return np.zeros(len(blocks), np.bool_)
    of_input = [row for row, name in enumerate(trace.threads) if _INPUT_THREAD.match(name)]
    return np.isin(thread[blocks.row], of_input)


def _scratch(trace: Trace, blocks: Blocks) -> Bool:
    """Return which blocks only the op that allocated them uses: it frees them itself.

    Where no free states its op, what was allocated as temporary: of that some outlives its op and is its
    result, as the gradient that TensorFlow's Conv2DBackpropInput computes in another layout. Only
    TensorFlow's allocator states regions, and only its ops are one node each: elsewhere one name is many
    calls."""
    table = trace.allocations
    region = table.region[blocks.row]
    ended = blocks.died != NEVER
    freed_by = np.full(len(blocks), -1)
    freed_by[ended] = table.op[blocks.rows[blocks.died[ended]]]
    freed_by[region < 0] = -1
    if (freed_by >= 0).any():
        return np.asarray((freed_by >= 0) & (freed_by == table.op[blocks.row]))
    temporary = [at for at, text in enumerate(trace.strings) if text == "temp"]
    return np.isin(region, temporary)


def _tried_out(trace: Trace, blocks: Blocks) -> Bool:
    """Return which blocks an op that tried out algorithms took and gave back while it ran: what each
    algorithm worked in, and a buffer for its result."""
    table, host = trace.allocations, trace.host
    found = np.zeros(len(blocks), np.bool_)
    for op in tuned_ops(trace).tolist():
        mine = np.flatnonzero((table.op[blocks.row] == op) & (blocks.died != NEVER))
        ran = union(host.start_ns[host.op == op], (host.start_ns + host.duration_ns)[host.op == op])
        born = row_around(ran.start, ran.end, table.time_ns[blocks.row[mine]])
        died = row_around(ran.start, ran.end, table.time_ns[blocks.rows[blocks.died[mine]]])
        found[mine] = (born >= 0) & (born == died)
    return found


def _transposes_an_operand(name: str) -> bool:
    """Return whether an op puts a tensor that is no gradient into another layout, for an op of the backward
    pass."""
    found = re.search(_TRANSPOSED, name)
    return found is not None and found[2] in _NO_GRADIENTS.get(found[1], "")


def _copies_a_weight(op: Op, dtype: str, shape: str, phase: Phase, batch: int | None) -> bool:
    """Return whether the op is a cast to 16 bits of what does not grow with the batch."""
    if dtype not in HALF or phase not in ("forward", "backward"):
        return False
    if op.type != "Cast" and not re.search(_CAST, op.name):
        return False
    sizes = axes(shape)
    return bool(sizes) and batch is not None and sizes[0] != batch


def batch_of(trace: Trace, ownership: Ownership, blocks: Blocks, run: Run | None) -> int | None:
    """Return the batch of one device: as recorded, else the first axis of most bytes of the forward pass."""
    recorded = run.facts.fits[-1].batch_size if run and run.facts and run.facts.fits else None
    if recorded and run and run.facts and not (run.facts.replicas or 1) > 1:
        return recorded
    table = trace.allocations
    forward = np.flatnonzero(phases_of(ownership, table.op[blocks.row]) == FORWARD)
    group, first = groups([table.shapes[blocks.row[forward]]], len(forward))
    bytes_of = np.bincount(group, weights=blocks.bytes[forward], minlength=len(first)).astype(np.int64)
    weight: dict[int, int] = {}
    for row, size in zip(table.shapes[blocks.row[forward[first]]].tolist(), bytes_of.tolist(), strict=True):
        sizes = axes(_text(trace, row))
        if len(sizes) > 1:
            weight[sizes[0]] = weight.get(sizes[0], 0) + size
    return max(weight, key=lambda axis: weight[axis]) if weight else None


def phases_of(ownership: Ownership, op: Int32) -> Int8:
    """Return the places in PHASES of the ops in these rows; that of "other" for row -1."""
    return np.append(ownership.phase, np.int8(OTHER))[op]


def _trains(ownership: Ownership, run: Run | None) -> bool:
    """Return whether a backward pass is known of: by the records, or by any op of the trace."""
    fits = run is not None and run.facts is not None and bool(run.facts.fits)
    return fits or bool((ownership.phase == BACKWARD).any())


def _kept(blocks: Blocks, phases: Int8, trains: bool) -> Bool:
    """Return which blocks are still there when the backward pass after their allocation begins; where no
    backward pass follows, all of them in a training."""
    backward = blocks.born[phases == BACKWARD]  # blocks are in order of time
    at = np.searchsorted(backward, blocks.born, side="right")
    begins = np.append(backward, NEVER)[at]
    return np.where(begins == NEVER, trains, blocks.died > begins)


def _text(trace: Trace, row: int) -> str:
    return trace.strings[row] if row >= 0 else ""
