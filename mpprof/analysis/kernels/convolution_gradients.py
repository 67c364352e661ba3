"""Which gradient of a convolution a kernel computes, where one op computes both.

PyTorch has one op, `aten::convolution_backward`, for the gradients of the input and of the weights. Where a kernel's
name states no direction, the order tells: the gradient of the input is launched first
(aten/src/ATen/native/cudnn/ConvShared.cpp, aten/src/ATen/native/miopen/Conv_miopen.cpp).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.kernels.rule import direction
from mpprof.model.frozen import changed
from mpprof.model.kernels import CONVOLUTIONS, Family, Placements, Verdict
from mpprof.model.trace import Trace

BOTH = "aten::convolution_backward"


def told_apart(trace: Trace, placements: Placements) -> Placements:
    """Return the placements in which each product of such an op is of one gradient. Unchanged for a trace without
    such ops, and for kernels whose launch it does not hold."""
    both = np.array([*(op.type == BOTH for op in trace.ops), False])  # row -1: no op
    if not both.any():
        return placements
    table = trace.kernels
    product = np.array(
        [v.family in CONVOLUTIONS and v.placement != "not_matmul" for v in placements.verdicts], np.bool_
    )
    rows = np.flatnonzero(both[table.op] & (table.launch >= 0) & product[placements.index])
    verdicts: dict[Verdict, int] = {verdict: at for at, verdict in enumerate(placements.verdicts)}
    index = placements.index.copy()
    for members in _by_call(trace, rows):
        stated = [direction(trace.strings[at].lower()) for at in table.name[members].tolist()]
        for row, family in zip(members.tolist(), _families(stated), strict=True):
            verdict = changed(placements.verdicts[int(index[row])], family=family)
            index[row] = verdicts.setdefault(verdict, len(verdicts))
    return Placements(tuple(verdicts), index)


def _by_call(trace: Trace, rows: NDArray[np.intp]) -> Iterator[NDArray[np.intp]]:
    """Yield these kernels, those of one call of the op at a time, in the order of their launches."""
    host, launch = trace.host, trace.kernels.launch
    named = np.array([text == BOTH for text in trace.strings], np.bool_)[host.name]
    for thread in np.unique(host.thread[launch[rows]]).tolist():
        begins = np.sort(host.start_ns[named & (host.thread == thread)])
        own = rows[host.thread[launch[rows]] == thread]
        own = own[np.argsort(host.start_ns[launch[own]], kind="stable")]
        call = np.searchsorted(begins, host.start_ns[launch[own]], "right")
        yield from np.split(own, np.flatnonzero(np.diff(call)) + 1)


def _families(stated: list[Family | None]) -> list[Family]:
    """Return the gradient of each product of one call, in the order of their launches. A forward algorithm may
    compute a gradient, too: what such a name states is not which."""
    weights = [at for at, family in enumerate(stated) if family == "conv_wgrad"]
    turn = weights[0] if weights else len(stated) - 1
    return [
        family
        if family is not None and family != "conv_fprop"
        else ("conv_wgrad" if at >= turn else "conv_dgrad")
        for at, family in enumerate(stated)
    ]
