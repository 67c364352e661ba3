"""Warm-up is part of the measurement.

What it means
    The first steps trace, compile and try out algorithms; they can take a thousand times a steady step. They
    belong neither in a step time nor in a profile window, and in a short training they are most of it.

How we know
    The step at which the recorded step times settle (a change point, not a fixed number). Found where they
    never settle, where the profiled steps lie before that point while steps were still longer, or where
    warm-up took more than half of all recorded time. Without recorded steps: where the driver allocates
    memory (`cudaMalloc`) for a tenth of the profiled step, as an allocator makes it do in its first steps.

What it costs
    Once per training: the time that the warm-up steps took above the median, in sum. Nothing per steady step.
    For the driver's allocations: the idle time in the window while they ran.

What to do
    Choose steps for the window that come after those that are named here, and train long enough (30 steady
    steps or more) before comparing:

        MPProfilerCallback("logs/run", profile_steps=(40, 44))

    "auto" opens its window once the last few steps took equally long. Only the whole run shows whether later
    steps were shorter still.

When to ignore
    When only the start-up itself is of interest.

Sources
    tf#39985 (warm-up in fp16 5125 ms against 0.16 ms in the mean). NVIDIA convolution guide: TensorFlow tries
    out algorithms by default.
"""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.steps.idle import ALLOCATING
from mpprof.analysis.steps.statistics import epochs_of_one_call
from mpprof.diagnosis import attainable, evidence
from mpprof.diagnosis.outcomes import GENERAL, Clear, Found, Outcome, Scale, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.quantities import format_count, format_ns, format_ratio
from mpprof.model.steps import StepSummary, StepTable

CODE, SLUG, TITLE = "MP901", "warm-up", "Warm-up is part of the measurement"
ABOUT = "warm-up"
SPECIFICITY = GENERAL
BOUND = "host"

FEWEST_STEPS = 20
"""With fewer steps nothing can be said about settling (MP911 says so)."""
NEAR_STEPS, STILL_LONGER = 5, 1.25
"""The window is in warm-up where the five steps before it take a quarter more than a steady one."""
FIRST_EPOCH_RATIO = 0.2
"""With a fifth of it start-up, the first epoch's time misleads: it is what most people look at first."""
MOSTLY_WARM_UP_RATIO = 0.5
"""Above half of the recorded time, totals per epoch say more about the start-up than about training."""


ALLOCATING_SCALE = Scale(info_ratio=0.10, warning_ratio=0.10, error_ratio=0.90)
"""A framework takes memory from the driver once and keeps it: a tenth of a step in that is none of a steady
one's (our judgement)."""


def judge(signals: Signals) -> Outcome:
    if known(signals.summary) is None and (found := _allocating(signals)):
        return found
    summary, table = need(signals.summary), need(signals.table)
    if summary.count < FEWEST_STEPS:
        return Unable(f"only {summary.count} steps were recorded; train for {FEWEST_STEPS} or more")
    if summary.first_steady is None and epochs_of_one_call(table) is not None:
        return Unable("each epoch is a single call, so that no step has a time (MP911)")
    if summary.first_steady is None:
        return Found(
            summary=f"the step times never settled in {format_count(summary.count)} steps",
            evidence=(evidence.count("steps", summary.count),),
            cases=("never settled",),
            confidence="medium",
            severity="warning",
        )
    before = table.step < summary.first_steady
    times = np.where(table.interval_ns >= 0, table.interval_ns, table.duration_ns)
    measured = times >= 0
    warm_ns = float(times[before & measured].sum())
    excess_ns = warm_ns - (summary.median_ns or 0.0) * float(table.covers[before & measured].sum())
    total_ns = float(times[measured].sum())
    shown = (
        evidence.count("first steady step", summary.first_steady),
        evidence.ns("warm-up above the steady step time", max(0.0, excess_ns)),
    )
    account = known(signals.account)
    window = [number for number in account.steps if number > 0] if account else []
    if window and account and account.numbered == "mpprof" and _unsettled(table, summary, window):
        return Found(
            summary=(
                f"the profiled steps {min(window)} to {max(window)} lie before step "
                f"{summary.first_steady}, where the "
                "step times settle"
            ),
            evidence=shown,
            cases=("early window",),
            values={"first": summary.first_steady, "last": summary.first_steady + 4},
            severity="warning",
        )
    if total_ns > 0 and warm_ns / total_ns >= MOSTLY_WARM_UP_RATIO:
        return Found(
            summary=(
                f"warm-up took {format_ns(warm_ns)}, {format_ratio(warm_ns / total_ns)} of the "
                "recorded time: compare "
                "steady steps, not epochs"
            ),
            evidence=(
                *shown,
                evidence.ratio("warm-up in all recorded time", warm_ns / total_ns, MOSTLY_WARM_UP_RATIO),
            ),
            cases=("mostly",),
            severity="info",
        )
    first_epoch = _of_first_epoch(table, max(0.0, excess_ns))
    if first_epoch >= FIRST_EPOCH_RATIO:
        return Found(
            summary=(
                f"start-up is {format_ratio(first_epoch)} of the first epoch, {format_ns(excess_ns)}: "
                "compare steady steps, or later epochs"
            ),
            evidence=(
                *shown,
                evidence.ratio("start-up in the first epoch", first_epoch, FIRST_EPOCH_RATIO),
            ),
            cases=("first epoch",),
            severity="info",
        )
    return Clear(f"warm-up ended at step {summary.first_steady} and is left out")


def _allocating(signals: Signals) -> Found | None:
    """Return, without records of the steps, the finding that the driver allocated memory in the steps of the
    window."""
    account = known(signals.gpu_account)
    rows = signals.select(lambda cell: cell.cause == ALLOCATING[1]) if account else ()
    claims = attainable.whole(rows)
    share = signals.cost_ratio(claims)
    if share < ALLOCATING_SCALE.info_ratio:
        return None
    return Found(
        summary=(
            "the device idles {cost} {each} ({share}) while the driver allocates memory, which an allocator "
            "does in its first steps, or once its cache was emptied"
        ),
        evidence=(
            evidence.ratio("{span} idle while the driver allocates", share, ALLOCATING_SCALE.info_ratio),
        ),
        cases=("allocating",),
        confidence="medium",
        scale=ALLOCATING_SCALE,
        claims=claims,
    )


def _of_first_epoch(table: StepTable, excess_ns: float) -> float:
    """Return the start-up's share of the first epoch, where there are others to compare it with; else 0."""
    first = table.epoch == table.epoch[0]
    if first.all():
        return 0.0
    times = np.where(table.interval_ns >= 0, table.interval_ns, table.duration_ns)[first]
    whole = float(times[times >= 0].sum())
    return min(1.0, excess_ns / whole) if whole > 0 else 0.0


def _unsettled(table: StepTable, summary: StepSummary, window: list[int]) -> bool:
    """Return whether the window lies before the steps settle, and the steps just before it were still
    longer."""
    first = min(window)
    if summary.first_steady is None or not summary.median_ns or max(window) >= summary.first_steady:
        return False
    near = (table.step < first) & (table.step >= first - NEAR_STEPS) & (table.interval_ns > 0)
    if not near.any():
        return True
    times = table.interval_ns[near] / table.covers[near]
    return median(times) > summary.median_ns * STILL_LONGER
