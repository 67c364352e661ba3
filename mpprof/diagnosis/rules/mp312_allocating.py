"""The driver allocates memory in every step.

What it means
    A framework takes memory from the driver once, and hands it out from its own pool. Where the pool is
    emptied in the loop, is off, or never fits because sizes change, every step goes to the driver
    (cudaMalloc, hipMalloc), which waits for the device and delays launches.

How we know
    Idle time of the device while the host is in such a call, if the calls go on in the second half of the
    window. Calls in the first steps alone are warm-up (MP901).

What it costs
    That idle time.

When to ignore
    Never: no training needs it.

Sources
    A public trace of an AMD card with 292 calls of hipMalloc in each step; PyTorch's notes on CUDA memory
    management.
"""

from __future__ import annotations

from mpprof.analysis.steps.idle import ALLOCATING
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import allocations

CODE, SLUG, TITLE = "MP312", "allocating", "The driver allocates memory in every step"
ABOUT = "memory allocated in every step"
SAYS = "the driver allocates memory in every step[: the {device} idles {time}]"
ONCE = "once memory is kept"
SPECIFICITY = NAMED
BOUND = "host"
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.03, warning_ratio=0.03, error_ratio=0.30)


def judge(signals: Signals) -> Outcome:
    account = need(signals.gpu_activity)
    rows = signals.select(lambda cell: cell.cause == ALLOCATING[1])
    claims = attainable.whole(rows)
    share = signals.cost_ratio(claims)
    if share < SCALE.info_ratio:
        return Clear(f"the driver's allocations leave the device idle {format_ratio(share)} of the step")
    calls = allocations.calls_per_step(signals)
    if calls is None:
        return Clear("the driver allocates at the window's beginning alone: MP901")
    return Found(
        summary=(
            f"the driver allocates memory {format_count(round(calls))} times in every step: the device idles "
            "{cost} {each} ({share})"
        ),
        evidence=(
            evidence.ratio("{span} idle while the driver allocates", share, SCALE.info_ratio),
            evidence.count("calls of the driver {per}", calls),
            evidence.ratio("device busy", account.device_ns / signals.whole_ns),
        ),
        scale=SCALE,
        claims=claims,
    )
