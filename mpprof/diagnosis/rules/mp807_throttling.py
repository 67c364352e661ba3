"""The step grew slower during the run.

What it means
    Heat or a power cap brings the clocks down, and dense Tensor Core work draws the most power. One step time
    does not describe a run that slows down.

How we know
    The mean of the last quarter of steady steps against that of the first, and their medians, which have to
    agree. Where stalls take much of either quarter, it is not judged. Hardware samples in which the
    clock falls, or the driver names a reason, make the confidence high. Without them the data or another
    process may be the reason, and the confidence is low.

What it costs
    The mean of all steady steps above that of the first quarter.

When to ignore
    When batches grow by design (sequence length by bucket).

Sources
    tf#40042 (a laptop's GPU, mended by a cooling pad), flashinfer-ai/flashinfer#2899 (1965 -> 1580 MHz within
    100 iterations).
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.stalls import NOTABLE_RATIO
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP807", "throttling", "The step grew slower during the run"
ABOUT = "throttling"

FEWEST_STEPS = 80
"""Twenty steps in each quarter make a mean worth comparing."""
INFO_RATIO, WARNING_RATIO = 0.05, 0.10
"""Two means of one steady run differ by less than 5 %."""
CLOCK_FALL_RATIO = 0.03
"""Boost clocks move by a percent or two by themselves."""


def judge(signals: Signals) -> Outcome:
    table, summary = need(signals.table), need(signals.summary)
    steady = (
        (table.interval_ns > 0)
        & (table.step >= (summary.first_steady or 1))
        & ~table.profiled
        & ~table.synced
    )
    times = table.interval_ns[steady] / table.covers[steady]
    if summary.first_steady is None or len(times) < FEWEST_STEPS:
        return Unable(
            f"fewer than {FEWEST_STEPS} steady steps: drift cannot be told from noise; train longer"
        )
    quarter = len(times) // 4
    first, last = times[:quarter], times[-quarter:]
    early, late = float(first.mean()), float(last.mean())
    for mean, each in ((early, first), (late, last)):
        if not 1 / NOTABLE_RATIO < mean / median(each) < NOTABLE_RATIO:
            return Unable("the steps are uneven, with stalls among them: drift cannot be told from these")
    drift = min(late / early, median(last) / median(first)) - 1
    cost_ns = float(times.mean()) - early
    if drift < INFO_RATIO:
        return Clear(f"the last quarter's steps took {format_ratio(drift)} longer than the first's")
    if signals.on_cpu:
        return _on_a_cpu(drift, early, late, cost_ns)
    cause = _in_hardware(signals)
    return Found(
        summary=f"steps took {format_ratio(drift)} longer at the end than at the beginning"
        + (f": {cause[0]}" if cause else ""),
        said=f"the step grew from {format_ns(early)} to {format_ns(late)} during the run"
        + (f": {cause[0]}" if cause else ""),
        evidence=(
            evidence.ratio("last quarter above the first", drift, INFO_RATIO),
            evidence.ns("mean at first", early),
            evidence.ns("mean at last", late),
            *((cause[1],) if cause else ()),
        ),
        confidence="high" if cause else "low",
        severity="warning" if drift >= WARNING_RATIO else "info",
        cost_ns=cost_ns if cost_ns > 0 else None,
    )


def _in_hardware(signals: Signals) -> tuple[str, Evidence] | None:
    """Return what the samples say of the clocks: a throttle reason, or a fall from the first to the last
    quarter."""
    samples = signals.case.run.hardware
    if samples is None or not len(samples):
        return None
    named = sorted(
        {reason for reasons in samples.throttle for reason in reasons if "idle" not in reason.lower()}
    )
    if named:
        words = evidence.listed(named)
        return f"the driver reports {words}", evidence.text("throttle reasons", words)
    clocks = samples.sm_clock_hz[np.isfinite(samples.sm_clock_hz) & (samples.gpu >= 0)]
    quarter = len(clocks) // 4
    if not quarter:
        return None
    fall = 1 - median(clocks[-quarter:]) / median(clocks[:quarter])
    if not fall >= CLOCK_FALL_RATIO:
        return None
    return f"the clock fell by {format_ratio(fall)}", evidence.ratio(
        "fall of the clock", fall, CLOCK_FALL_RATIO
    )


def _on_a_cpu(drift: float, early: float, late: float, cost_ns: float) -> Outcome:
    """Return the finding for a run without a GPU whose clock could fall: the usual reason is what else the
    machine does."""
    return Found(
        summary=f"steps took {format_ratio(drift)} longer at the end than at the beginning",
        evidence=(
            evidence.ratio("last quarter above the first", drift, INFO_RATIO),
            evidence.ns("mean at first", early),
            evidence.ns("mean at last", late),
        ),
        cases=("cpu",),
        confidence="low",
        severity="info",
        cost_ns=cost_ns if cost_ns > 0 else None,
    )
