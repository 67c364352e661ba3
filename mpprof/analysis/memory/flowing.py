"""Which blocks are activations that nothing keeps, or gradients of activations: they hold a value for each
example.

A weight's gradient may have the batch as its first axis, too. It waits for the update: the op that lets go of
it is the optimizer's. A gradient of an activation is used up in the backward pass.
"""

from __future__ import annotations

import math

import numpy as np

from mpprof.analysis.arrays.intervals import latest
from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.memory.block_kinds import BACKWARD, FORWARD, phases_of
from mpprof.analysis.memory.blocks import NEVER, Blocks
from mpprof.model.account import PHASES
from mpprof.model.arrays import Bool, Int32, Int64
from mpprof.model.frozen import frozen
from mpprof.model.grouping import distinct
from mpprof.model.memory import KINDS, UPDATE
from mpprof.model.run import Run
from mpprof.model.trace import Trace
from mpprof.tensors import axes

_GRADIENTS, _PASSING = KINDS.index("gradients"), KINDS.index("other activations")
_UPDATE = [PHASES.index(name) for name in UPDATE]


@frozen
class Flowing:
    """`is_flow`: which blocks are activations that nothing keeps or their gradients. `is_open`: gradients
    that may be an activation's or a weight's, as far as the trace shows."""

    is_flow: Bool
    is_open: Bool


def flowing(
    trace: Trace, ownership: Ownership, blocks: Blocks, kind: Int64, batch: int | None, run: Run | None
) -> Flowing:
    """Return which blocks are activations or gradients of activations that pass; `kind` is each block's place
    in KINDS.

    What an op of the forward or backward pass lets go of is an activation's gradient. The result of another
    op (a sum, a reduction over devices) is one if it has more values than a recorded layer has parameters, or
    if no weight's gradient has its shape (where the trace shows these)."""
    shapes = trace.allocations.shapes[blocks.row]
    sizes = {row: axes(trace.strings[row]) for row in distinct(shapes).tolist() if row >= 0}
    of_batch = np.isin(shapes, [row for row, each in sizes.items() if each[:1] == (batch,)])
    most = _most_parameters(run)
    small = np.isin(shapes, [row for row, each in sizes.items() if most is None or math.prod(each) <= most])
    gradient = kind == _GRADIENTS
    phase = phases_of(ownership, _let_go_by(trace, blocks, gradient))
    of_weight = gradient & np.isin(phase, _UPDATE)
    passes = np.isin(phase, [FORWARD, BACKWARD])
    of_weights = distinct(shapes[of_weight])
    like_a_weight = np.isin(shapes, of_weights) if len(of_weights) else np.ones(len(blocks), np.bool_)
    is_open = gradient & of_batch & ~of_weight & ~passes & like_a_weight & small
    return Flowing(of_batch & ((kind == _PASSING) | (gradient & ~of_weight & ~is_open)), is_open)


def _most_parameters(run: Run | None) -> int | None:
    """Return the most values that a weight can have; None where no model is recorded."""
    model = run.model if run else None
    counts = [layer.parameters for layer in model.layers if layer.parameters] if model else []
    return max(counts, default=None)


def _let_go_by(trace: Trace, blocks: Blocks, which: Bool) -> Int32:
    """Return of the blocks in `which` the row of the op that let go of each, else -1.

    Where a free does not state its op it is the last that the freeing thread ran: TensorFlow's executor frees
    an op's inputs once the op ran."""
    table = trace.allocations
    found = np.full(len(blocks), -1, np.int32)
    ended = np.flatnonzero(which & (blocks.died != NEVER))
    row = blocks.rows[blocks.died[ended]]
    found[ended] = table.op[row]
    if table.thread is None or not len(ended):
        return found
    op = _ops_of_host(trace)
    begun, allocating = np.flatnonzero(op >= 0), np.flatnonzero(table.op >= 0)
    for thread in (each for each in distinct(table.thread[row]).tolist() if each >= 0):
        asked = ended[(table.thread[row] == thread) & (table.op[row] < 0)]
        when = table.time_ns[blocks.rows[blocks.died[asked]]]
        mine = begun[trace.host.thread[begun] == thread]
        ran_ns, ran = _last(trace.host.start_ns[mine], op[mine], when)
        mine = allocating[table.thread[allocating] == thread]
        took_ns, took = _last(table.time_ns[mine], table.op[mine], when)
        found[asked] = np.where(took_ns > ran_ns, took, ran)
    return found


def _ops_of_host(trace: Trace) -> Int32:
    """Return the op of each host event, of a launch that of its kernel; -1: of none."""
    op, kernels = trace.host.op.copy(), trace.kernels
    launched = np.flatnonzero((kernels.launch >= 0) & (kernels.op >= 0))
    op[kernels.launch[launched]] = kernels.op[launched]
    return op


def _last(time_ns: Int64, op: Int32, when: Int64) -> tuple[Int64, Int32]:
    """Return the time and op of the last of these at or before each moment; -1 where there is none."""
    at = latest(time_ns, when)
    return np.append(time_ns, -1)[at], np.append(op, np.int32(-1))[at]
