"""One weight has several 16-bit copies at the same time.

What it means
    A layer computes with a 16-bit copy of its float32 weight. Each use makes its own: in loops of recurrent
    cells and in layers that are used several times the copies add up.

How we know
    Casts to 16 bits whose shape does not grow with the batch, live at the peak, beyond one for each weight.

What it costs
    2 bytes for each parameter and each further use; at most what the peak would fall by.

When to ignore
    When memory is not what limits the batch.

Sources
    keras#15474 (several float16 copies, out of memory on a GTX 1050).
"""

from __future__ import annotations

from mpprof.analysis.memory.remedies import lowered
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP603", "weight-copies", "Weights have several 16-bit copies"
ABOUT = "copies of weights"


def judge(signals: Signals) -> Outcome:
    account, parts = need(signals.at_peak)
    extra = lowered(parts, CODE, lambda held: held - parts.copies_once_bytes)
    share = extra / account.whole_bytes
    if share < NOTABLE_MEMORY:
        return Clear(f"{format_bytes(extra)} of copies beyond one for each weight")
    return Found(
        summary=(
            f"{format_bytes(parts.copies_bytes)} of 16-bit weight copies are live at the peak; one copy "
            f"of each weight would take {format_bytes(parts.copies_once_bytes)}"
        ),
        evidence=(
            evidence.ratio("share of the peak", share, NOTABLE_MEMORY),
            evidence.size("the peak would fall by", extra),
        ),
        severity="warning" if share >= LARGE_MEMORY else "info",
        cost_bytes=extra,
    )
