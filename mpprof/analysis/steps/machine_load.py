"""Whether other work kept the machine busy while the steps were timed."""

from __future__ import annotations

import numpy as np

from mpprof.analysis.steps.statistics import steady
from mpprof.model.quantities import format_ratio
from mpprof.model.run import Run

NOTABLE_RATIO = 0.2
"""A share of all cores, on average: from here on other work may have made the steps longer."""
FEWEST_SAMPLES = 3


def doubts(run: Run) -> tuple[str, ...]:
    """Return the share of the machine that other work took while the steady steps ran, where it is notable;
    nothing where too few samples were taken then, or the process' own share is not on record."""
    if run.steps is None or run.hardware is None or not (rows := steady(run.steps)).any():
        return ()
    first, last = run.steps.t_ns[rows][[0, -1]]
    samples = run.hardware
    others = (samples.cpu_ratio - samples.process_cpu_ratio)[(samples.t_ns >= first) & (samples.t_ns <= last)]
    others = others[np.isfinite(others)]
    ratio = float(others.mean()) if len(others) >= FEWEST_SAMPLES else 0.0
    if ratio < NOTABLE_RATIO:
        return ()
    said = f"other work kept {format_ratio(ratio)} of the machine busy while the steps were timed"
    return (f"{said}: alone on it, they may be shorter",)
