"""Weights and optimizer slots are most of the memory, and stay in float32.

What it means
    Mixed precision halves activations. Weights, their gradients and the optimizer's slots stay in float32:
    16 bytes for each parameter with Adam. Where they are most of the peak, little can be saved.

How we know
    What was live at the peak by kind: parameters, slots, and what was there before the profiler started.

What it costs
    Nothing that mixed precision could save; the bytes stated are those that it leaves as they are.

When to ignore
    When memory is not what limits the batch.

Sources
    hf#9742 ("saving only for the forward activations"); tf#34406 ("no stark difference in memory").
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.model.memory import STATES

CODE, SLUG, TITLE = "MP601", "states-dominate", "Weights and optimizer slots are most of the memory"
ABOUT = "weights and optimizer slots"

DOMINANT_RATIO = 0.5
"""Half of the peak: then the peak could not be halved even without any activations."""


def judge(signals: Signals) -> Outcome:
    account, parts = need(signals.at_peak)
    states = sum(parts.asked.get(kind, 0) for kind in STATES)
    share = states / max(1, account.peak_bytes)
    if share < DOMINANT_RATIO:
        return Clear(f"{format_ratio(share)} of the peak are weights, slots and what was held before")
    of = f"{format_bytes(states)} of {format_bytes(account.peak_bytes)} at the peak are"
    return Found(
        summary=(
            f"{of} weights and what else was held before the window"
            if signals.only_infers
            else f"{of} weights, slots and what else was held before the window, which mixed precision "
            "does not halve"
        ),
        evidence=(
            evidence.ratio("share of the peak in weights and what was held before", share, DOMINANT_RATIO),
            evidence.size("peak", account.peak_bytes),
        ),
        confidence="medium",
        severity="info",
        cost_bytes=states,
    )
