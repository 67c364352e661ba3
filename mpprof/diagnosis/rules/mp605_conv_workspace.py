"""Scratch space of kernels takes what 16 bits save.

What it means
    Tensor Core algorithms of cuDNN may ask for more scratch space than those of float32. It is used for one
    kernel, but counts at the peak: mixed precision may then run out of memory where float32 did not.

How we know
    What ops allocated as temporary and is live at the peak. With a baseline, the bytes beyond the baseline's
    count; without one, it is reported only where it is most of the peak.

What it costs
    The bytes of the workspace beyond the baseline's; at most what the peak would fall by.

When to ignore
    When memory is not what limits the batch: large workspaces make convolutions fast.

Sources
    keras#15678, tf#53116 (a workspace of 4.7 GB on an A10G); tf#50200.
"""

from __future__ import annotations

from mpprof.analysis.memory.remedies import lowered
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP605", "conv-workspace", "Workspaces take the memory that was saved"
ABOUT = "workspaces"

LARGE_RATIO = 0.5
"""Without a baseline: scratch space that is more than all else together."""


def judge(signals: Signals) -> Outcome:
    account, parts = need(signals.at_peak)
    scratch = parts.asked.get("workspaces", 0)
    of_gap = account.of_gap(CODE)
    beyond = lowered(parts, CODE, lambda held: held) if of_gap is None else of_gap
    share, limit = beyond / account.whole_bytes, LARGE_RATIO if of_gap is None else NOTABLE_MEMORY
    if share < limit:
        return Clear(f"{format_ratio(share)} of the peak")
    than = (
        ""
        if of_gap is None
        else f"; with the baseline's workspaces the peak would be {format_bytes(beyond)} lower"
    )
    return Found(
        summary=f"{format_bytes(scratch)} of workspaces are live at the peak{than}",
        evidence=(
            evidence.ratio("share of the peak", share, limit),
            evidence.size("workspaces at the peak", scratch),
        ),
        confidence="high" if of_gap is not None else "medium",
        severity="warning" if of_gap is not None and share >= LARGE_MEMORY else "info",
        cost_bytes=beyond,
    )
