"""The memory peak does not come from activations, so smaller activations do not lower it.

What it means
    Memory is highest in the optimizer's update, in the loss-scale bookkeeping, or in the first steps, when
    kernels are tried out. Smaller activations do not change it.

How we know
    The phase of the op whose allocation made the peak, and the peak that would remain without the allocations
    of that phase. From records alone: the peak before warm-up against that after it.

What it costs
    The bytes by which the peak exceeds what would be live without those allocations.

When to ignore
    When memory is not what limits the batch.

Sources
    Inferred from the allocator's events; tf.config.experimental.reset_memory_stats.
"""

from __future__ import annotations

from mpprof.analysis.memory.remedies import lowered
from mpprof.diagnosis.prelude import *
from mpprof.model.memory import KEPT, UPDATE

CODE, SLUG, TITLE = "MP606", "peak-elsewhere", "The peak is not where activations are"
ABOUT = "where the peak is"


def judge(signals: Signals) -> Outcome:
    early = _early(signals)
    if isinstance(early, Found):
        return early
    account, parts = need(signals.at_peak)
    if parts.phase not in UPDATE or account.course is None:
        return Clear(f"the peak is in the {parts.phase} phase")
    if not any(account.course.parts["kind"].get(KEPT, ())):
        return Clear("the trace holds no forward pass")
    beyond = lowered(parts, CODE, lambda held: held)
    share = beyond / account.whole_bytes
    if share < NOTABLE_MEMORY:
        return Clear(f"the peak lies {format_ratio(share)} above that of the activations")
    without = account.peak_bytes - beyond
    return Found(
        summary=(
            f"the peak is in the {parts.phase} phase: {format_bytes(account.peak_bytes)}, at most "
            f"{format_bytes(without)} without what is allocated there"
        ),
        evidence=(
            evidence.ratio("share of the peak", share, NOTABLE_MEMORY),
            evidence.size("peak without that phase", without),
        ),
        severity="warning" if share >= LARGE_MEMORY else "info",
        cost_bytes=beyond,
    )


def _early(signals: Signals) -> Found | None:
    """Return the finding that the allocator needed more memory before training had settled, by the
    records."""
    summary = known(signals.summary)
    readings = summary.memory if summary else None
    if readings is None or signals.on_cpu or not signals.computes.narrow:
        return None
    first, steady = readings.peak_bytes, readings.steady_peak_bytes
    if first is None or steady is None or first - steady < NOTABLE_MEMORY * first:
        return None
    return Found(
        summary=(
            f"the peak of {format_bytes(first)} was before training had settled; a step needs "
            f"{format_bytes(steady)}"
        ),
        evidence=(evidence.size("peak after warm-up", steady), evidence.size("peak before", first)),
        severity="info",
        cost_bytes=first - steady,
    )
