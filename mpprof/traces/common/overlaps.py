"""Kernels of one stream at the same time, which no card does: the file's times are wrong."""

from __future__ import annotations

import numpy as np

from mpprof.model.trace import KernelTable, WorkKind

_ROUNDING_NS = 2_000
"""Old versions of Kineto write whole microseconds, so that two kernels may seem to meet by that much."""
_USUAL_RATIO = 0.01
"""A kernel may be launched to begin while the one before it ends (CUDA's programmatic dependent launch)."""


def warnings(kernels: KernelTable) -> list[str]:
    """Return a warning where more than 1 % of the kernels overlap the one before them on their stream by more
    than half of the shorter of the two, and an empty list otherwise. Graphs are not counted, because their
    branches run side by side."""
    rows = np.flatnonzero((kernels.kind == WorkKind.KERNEL) & (kernels.graph < 0))
    order = rows[np.lexsort((kernels.start_ns[rows], kernels.stream[rows]))]
    stream, start, duration = kernels.stream[order], kernels.start_ns[order], kernels.duration_ns[order]
    common = np.minimum(start[:-1] + duration[:-1] - start[1:], duration[1:])
    shorter = np.minimum(duration[:-1], duration[1:])
    beside = (stream[1:] == stream[:-1]) & (common > _ROUNDING_NS) & (2 * common > shorter)
    count = int(np.count_nonzero(beside))
    if count <= _USUAL_RATIO * len(rows):
        return []
    return [
        f"{count} of {len(rows)} kernels overlap the kernel before them on the same stream, which runs one "
        "at a time: their times cannot be right, and the time of overlapping kernels is shared among them"
    ]
