"""Steps in which a library tries out algorithms: the first of a training, and the first of each new shape.

TensorFlow and XLA run several algorithms for a convolution and check, with a kernel of their own, that none
wrote beyond its buffer (`redzone_checker`). Where the checker is not in the trace, an op that ran several
algorithms of cuDNN in one step, and one in another, shows the same. Such a step does not belong to the
training: it runs work that no later step does, in memory that no later step takes.
"""

from __future__ import annotations

import re

import numpy as np

from mpprof.model.arrays import Bool, Int64, distinct, groups
from mpprof.model.trace import Trace

_CHECKER = re.compile(r"redzone_?check", re.IGNORECASE)
_ALGORITHM = re.compile(
    r"xmma_\w*(?:fprop|dgrad|wgrad)|cudnn_(?:[a-z0-9]+_){0,2}\d+x\d+|implicit_(?:gemm|convolve)|conv2d_\w*kernel"
    r"|cutlass\w*(?:fprop|dgrad|wgrad)",
    re.IGNORECASE,
)
_FEWEST = 4
"""Algorithms of one op in one step, where it runs half as many in another: a convolution runs one of them,
but of all that a command buffer holds one op may be named."""


def tuned_steps(trace: Trace, rows: Int64, step: Int64, count: int) -> Bool:
    """Return which of `count` steps tried out algorithms. `rows`, `step`: the rows of the kernel table that
    belong to steps, and which step each belongs to."""
    tuned = np.zeros(count, np.bool_)
    tuned[step[_named(trace, _CHECKER, rows)]] = True
    if trace.source.format == "xspace":  # elsewhere one name of an op is many calls
        tried = _named(trace, _ALGORITHM, rows) & (trace.kernels.op[rows] >= 0)
        of, op, name = step[tried], trace.kernels.op[rows[tried]], trace.kernels.name[rows[tried]]
        _, first = groups([of, op, name], len(of))
        call, of_call = groups([of[first], op[first]], len(first))
        ran = np.bincount(call, minlength=len(of_call))
        of, op = of[first[of_call]], op[first[of_call]]
        usual = np.full(len(trace.ops), len(trace.kernels))
        np.minimum.at(usual, op, ran)
        tuned[of[(ran >= _FEWEST) & (ran >= 2 * usual[op])]] = True
    return tuned


def tuned_ops(trace: Trace) -> Int64:
    """Return the rows of `Trace.ops` for which algorithms were checked."""
    rows = np.arange(len(trace.kernels))
    found = distinct(trace.kernels.op[_named(trace, _CHECKER, rows)])
    return found[found >= 0].astype(np.int64)


def _named(trace: Trace, name: re.Pattern[str], rows: Int64) -> Bool:
    named = trace.kernels.name[rows]
    mine = [row for row in distinct(named).tolist() if name.search(trace.strings[row])]
    return np.isin(named, mine)
