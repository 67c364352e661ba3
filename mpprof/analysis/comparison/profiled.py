"""The speedup that the profiled steps of two runs show: a second measurement, beside the step records.

Few timings may leave it open whether a run is faster. A trace's steps are measured on the device itself, each
by itself, and agree to a few per cent where nothing disturbs them; but there are few, and a profiler was
running. So their ratio comes without an interval, and nothing is judged by it: it says what was seen.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.statistics import summarise
from mpprof.model.account import Account, ProfiledSpeedup
from mpprof.model.quantities import format_ns
from mpprof.model.run import Run

FEWEST = 3
"""Profiled steps that agree, a side: one of two that differ cannot be told to be the odd one."""
AGREE_RATIO = 0.05
"""Steps agree that are no further from their median: what a speedup has to exceed to matter at all."""
SAME_RATIO = 0.10
"""A profiled step that is further from the unprofiled ones was changed by the profiler. What it adds to both
runs alike moves their ratio by less than it adds."""


def profiled_speedup(
    baseline: tuple[Run, Account], mixed: tuple[Run, Account], *, scale: float, other_card: bool
) -> ProfiledSpeedup | str:
    """Return the ratio of the median profiled steps, or why there is none; `scale` as by `batch_ratio`."""
    if other_card:
        return "the cards differ"
    if why := _unusable(*baseline) or _unusable(*mixed):
        return why
    before, after = (np.array(account.lengths_ns) for _, account in (baseline, mixed))
    baseline_ns, mixed_ns = scale * median(before), median(after)
    return ProfiledSpeedup(baseline_ns / mixed_ns, baseline_ns, mixed_ns, len(before), len(after))


def _unusable(run: Run, account: Account) -> str:
    """Return why the profiled steps of a run tell nothing; empty: they do."""
    if account.trace_basis != "device" or account.of != "step":
        return f"{run.name} has no steps of a device in its trace"
    lengths = np.array(account.lengths_ns)
    if len(lengths) < FEWEST:
        return f"{run.name} has {len(lengths)} whole profiled steps; it needs {FEWEST}"
    middle = median(lengths)
    alike = int((np.abs(lengths - middle) <= AGREE_RATIO * middle).sum())
    if middle <= 0 or alike < FEWEST or 2 * alike <= len(lengths):
        low, high = format_ns(float(lengths.min())), format_ns(float(lengths.max()))
        return f"the profiled steps of {run.name} do not agree: they take {low} to {high}"
    summary = summarise(run.steps, run.facts)
    timed = summary.median_ns if summary else None
    if timed is not None and abs(middle - timed) > SAME_RATIO * timed:
        both = f"{format_ns(middle)}, and an unprofiled one {format_ns(timed)}"
        return f"a profiled step of {run.name} takes {both}"
    return ""
