"""Warm-up is part of the measurement.

What it means
    The first steps trace, compile and try out algorithms; they can take a thousand times a steady step. They
    belong neither in a step time nor in a profile window, and in a short training they are most of it.

How we know
    The step at which the recorded step times settle (a change point, not a fixed number). The cause is found
    if they never settle, if the profiled steps lie before that point while steps were still longer, or if
    warm-up took more than half of all recorded time. Without recorded steps it is found if the driver
    allocates memory (`cudaMalloc`) for a tenth of the profiled step, as it does while an allocator fills its
    pool.

What it costs
    Once per training: the total time that the warm-up steps took above a steady one. Nothing per steady
    step.
    For the driver's allocations: the idle time in the window while they ran.

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
from mpprof.analysis.steps.statistics import epochs_of_one_call, stands_for
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared.allocations import calls_per_step
from mpprof.model.arrays import Float64, Int64
from mpprof.model.frozen import frozen
from mpprof.model.steps import StepSummary, StepTable

CODE, SLUG, TITLE = "MP901", "warm-up", "Warm-up is part of the measurement"
ABOUT = "warm-up"
BOUND = "host"
LEADS = INVALID

FEWEST_STEPS = 20
"""With fewer steps nothing can be said about settling (MP911 says so)."""
NEAR_STEPS, STILL_LONGER = 5, 1.25
"""The window is in warm-up where the five steps before it take a quarter more than a steady one."""
FIRST_EPOCH_RATIO = 0.2
"""With a fifth of it start-up, the first epoch's time misleads: it is what most people look at first."""
MOSTLY_WARM_UP_RATIO = 0.5
"""Above half of the recorded time, totals per epoch say more about the start-up than about training."""


ALLOCATING_SCALE = Scale(info_ratio=0.10, warning_ratio=0.10, error_ratio=0.90)
"""A framework takes memory from the driver once and keeps it: a steady step does not spend a tenth of its
time on that (our judgement)."""


def judge(signals: Signals) -> Outcome:
    if known(signals.summary) is None and calls_per_step(signals) is None and (found := _allocating(signals)):
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
    warm = _warm_up(table, stands_for(table, known(signals.facts)), summary, summary.first_steady)
    return (
        _early_window(signals, table, summary, warm)
        or _much_warm_up(warm)
        or Clear(f"warm-up ended at step {summary.first_steady} and is left out")
    )


def was_chosen(facts: RunFacts | None) -> bool | None:
    """Return whether the user, and not mpprof, chose the steps of a profile window; None: it is not known. A
    trace beside no recorded window is the user's own."""
    windows = () if facts is None else facts.profile_windows
    automatic = [window.automatic for window in windows if window.status != "foreign"]
    if len(automatic) < len(windows) or not windows or False in automatic:
        return True
    return None if None in automatic else False


@frozen
class _WarmUp:
    """The steps before the first steady one."""

    first_steady: int
    ns: float
    excess_ns: float  # above steady steps
    total_ns: float  # of all recorded steps
    first_epoch_ratio: float  # the excess in the time of the first epoch

    @property
    def shown(self) -> tuple[Evidence, ...]:
        """What every finding of warm-up states."""
        return (
            evidence.count("first steady step", self.first_steady),
            evidence.ns("warm-up above the steady step time", max(0.0, self.excess_ns)),
        )


def _warm_up(table: StepTable, steps: Int64, summary: StepSummary, first_steady: int) -> _WarmUp:
    """Return the warm-up. `steps`: the steps that each row's time covers; for a group, more than its own
    call's."""
    times = _times(table, steps)
    warm = (table.step < first_steady) & (times >= 0)
    ns = float(times[warm].sum())
    excess_ns = ns - (summary.mean_ns or 0.0) * float(np.maximum(steps, table.covers)[warm].sum())
    first_epoch = _of_first_epoch(table, times, max(0.0, excess_ns))
    return _WarmUp(first_steady, ns, excess_ns, float(times[times >= 0].sum()), first_epoch)


def _times(table: StepTable, steps: Int64) -> Float64:
    """Return the time to the next step if recorded (for a group, of all its steps), else the step's own;
    below 0: neither was recorded."""
    of_all = table.interval_ns / np.maximum(table.covers, 1) * steps
    return np.where(table.interval_ns >= 0, of_all, table.duration_ns.astype(np.float64))


def _early_window(signals: Signals, table: StepTable, summary: StepSummary, warm: _WarmUp) -> Found | None:
    """Return the finding that the profiled steps lie in warm-up."""
    account = known(signals.account)
    numbered = account.steps if account and account.numbered == "mpprof" else ()
    window = [number for number in numbered if number > 0]
    if not window or not _unsettled(table, summary, window):
        return None
    return Found(
        summary=(
            f"the profiled steps {min(window)} to {max(window)} lie before step {warm.first_steady}, where "
            "the step times settle"
        ),
        evidence=warm.shown,
        cases=("early window",),
        values={"first": warm.first_steady, "last": warm.first_steady + 4},
        severity="warning",
    )


def _much_warm_up(warm: _WarmUp) -> Found | None:
    """Return the finding that warm-up is most of the recorded time, or much of the first epoch."""
    ratio = warm.ns / warm.total_ns if warm.total_ns > 0 else 0.0
    if ratio >= MOSTLY_WARM_UP_RATIO:
        return Found(
            summary=(
                f"warm-up took {format_ns(warm.ns)}, {format_ratio(ratio)} of the recorded time: compare "
                "steady steps, not epochs"
            ),
            evidence=(
                *warm.shown,
                evidence.ratio("warm-up in all recorded time", ratio, MOSTLY_WARM_UP_RATIO),
            ),
            cases=("mostly",),
            severity="info",
        )
    if warm.first_epoch_ratio >= FIRST_EPOCH_RATIO:
        return Found(
            summary=(
                f"start-up is {format_ratio(warm.first_epoch_ratio)} of the first epoch, "
                f"{format_ns(warm.excess_ns)}: compare steady steps, or later epochs"
            ),
            evidence=(
                *warm.shown,
                evidence.ratio("start-up in the first epoch", warm.first_epoch_ratio, FIRST_EPOCH_RATIO),
            ),
            cases=("first epoch",),
            severity="info",
        )
    return None


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


def _of_first_epoch(table: StepTable, times: Float64, excess_ns: float) -> float:
    """Return the start-up's share of the first epoch, where there are others to compare it with; else 0."""
    first = table.epoch == table.epoch[0]
    if first.all():
        return 0.0
    whole = float(times[first & (times >= 0)].sum())
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
