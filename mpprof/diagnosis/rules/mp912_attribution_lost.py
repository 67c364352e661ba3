"""CUDA graphs or XLA command buffers hide which op a kernel belongs to.

What it means
    A graph is launched as a whole: its kernels run as before, but carry no op, so their layers and phases are
    not known, and idle time within the graph cannot be attributed to a launch.

How we know
    Kernels that ran in a graph or command buffer and have neither op nor layer, as a share of the device's
    kernel time.

What it costs
    Knowledge, not time: graphs usually make a step faster.

When to ignore
    When only the Tensor Core share is of interest: kernel names still show it.

Sources
    Observed with JAX 0.10 on GPU traces: command buffers are on by default. XLA flags documentation.
"""

from __future__ import annotations

import re

import numpy as np

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP912", "attribution-lost", "Graphs hide which op a kernel belongs to"
ABOUT = "ops hidden by graphs"
OF_ACCELERATOR = True

_BUFFER = r"(?:command_buffer|CommandBuffer)[._]?\d*"
INFO_RATIO, WARNING_RATIO = 0.02, 0.50
"""With half of the time without an owner the causes that name layers are not seen (our judgement)."""


def judge(signals: Signals) -> Outcome:
    trace = need(signals.trace)
    need(signals.gpu_activity)
    kernels = trace.kernels
    total = int(kernels.duration_ns.sum())
    in_graph = int(kernels.duration_ns[np.flatnonzero(kernels.graph >= 0)].sum())
    if not total or not in_graph:
        return Clear("no kernel ran in a graph or command buffer")
    work = signals.work
    worked = signals.time(work)
    nameless = tuple(r for r in work if _is_nameless(signals.cells[r]))
    lost = signals.time(nameless) / worked if worked else 0.0
    if lost < INFO_RATIO:
        return Clear(f"{format_ratio(lost)} of the device's work has no op")
    return Found(
        summary=(
            f"{format_ratio(lost)} of the device's work has no op, because "
            f"{format_ratio(in_graph / total)} of the kernel "
            "time ran in graphs or command buffers"
        ),
        evidence=(
            evidence.ratio("work without an op", lost, INFO_RATIO),
            evidence.ratio("kernel time in graphs", in_graph / total),
        ),
        confidence="medium",
        severity="warning" if lost >= WARNING_RATIO else "info",
    )


def _is_nameless(cell: Cell) -> bool:
    """Return whether a cell has neither a layer nor an op of its own: XLA's profiler gives the kernels of a
    library the name of the buffer that they ran in."""
    return cell.layer is None and (cell.op is None or re.fullmatch(_BUFFER, cell.op) is not None)
