"""Whether a trace shows a training: backward or optimizer work on a device."""

from __future__ import annotations

import numpy as np

from mpprof.model.trace import Trace

WORDS = (
    "ackward", "gradient", "transpose(jvp", "ptimizer", "ResourceApply", "dgrad", "wgrad", "bprop", "Adam",
    "SGD", "multi_tensor_apply",
)  # fmt: skip
"""What the names of a training's kernels and their ops hold at least one of: of its backward pass or of its
optimizer."""


def trains(trace: Trace) -> bool:
    """Return whether a kernel, or the op that launched it, has a name of backward or optimizer work. Names of
    the host alone say less: compilers have passes called so, and a forward pass may prepare for a backward
    one."""
    names = (trace.strings[row] for row in np.unique(trace.kernels.name).tolist())
    ops = (trace.ops[row].name for row in np.unique(trace.kernels.op).tolist() if row >= 0)
    return any(word in text for text in (*names, *ops) for word in WORDS)
