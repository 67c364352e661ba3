"""The driver's figure of used memory is what TensorFlow took at the start, not what training needs.

What it means
    TensorFlow takes nearly all GPU memory when it starts, and keeps it. `nvidia-smi` shows the same number
    for float32 and mixed precision: the number does not show what was saved.

How we know
    The driver's figure is close to the device's memory while the allocator's own peak is far below.

What it costs
    Nothing: only the figure misleads.

When to ignore
    Always, once known.

Sources
    TensorFlow GPU guide ("maps nearly all of the GPU memory"). pt#42996 (the same footprint by nvidia-smi).
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP602", "preallocation", "The driver's memory figure says nothing"
ABOUT = "preallocated memory"
OF_ACCELERATOR = True

TAKEN_RATIO = 0.85
"""TensorFlow leaves a few percent to the driver and the libraries."""
NEEDED_RATIO = 0.60
"""Where training needs nearly all of it, the two figures agree."""


def judge(signals: Signals) -> Outcome:
    samples, peak = signals.case.run.hardware, need(signals.summary).peak_memory_bytes
    used = samples.memory_used_bytes[np.isfinite(samples.memory_used_bytes)] if samples is not None else None
    total = need(signals.device).memory_bytes
    if used is None or not len(used) or peak is None or not total:
        return Unable(
            "the driver's figure, the allocator's peak or the device's memory is missing"
            f"{signals.hint('record run')}"
        )
    taken = median(used)
    if taken < TAKEN_RATIO * total or peak > NEEDED_RATIO * taken:
        return Clear("the driver's figure follows what training needs")
    return Found(
        summary=(
            f"the driver shows {format_bytes(taken)} in use, of which training needed "
            f"{format_bytes(peak)} at its peak"
        ),
        evidence=(
            evidence.size("used by the driver's figure", int(taken)),
            evidence.size("allocator's peak", peak),
            evidence.size("taken in advance and not needed", int(taken) - peak),
            evidence.size("device memory", total),
        ),
        severity="info",
        spare_bytes=int(taken) - peak,
    )
