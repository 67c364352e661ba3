"""What a later run shows against an earlier one: whether both learned alike, what its remedies obtained."""

from __future__ import annotations

from typing import Literal

from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_speedup

LearningVerdict = Literal["alike", "worse", "better", "not finite", "not judged"]
LossPoint = tuple[float, float]
"""Optimizer updates applied by then, and the mean loss of the steps since the point before."""


@frozen
class Applied:
    """The optimizer updates of one run. `skipped`: micro-steps whose gradients were not finite."""

    steps: int
    skipped: int
    updates: float  # (steps - skipped) / gradient accumulation

    @property
    def per_step(self) -> float:
        return self.updates / self.steps if self.steps else 0.0


@frozen
class Learning:
    """The later run's loss against the earlier one's, over the second half of the updates that both applied.

    `loss`: of both, the mean over `window` (from, to). `difference_ratio`: later less earlier over the
    earlier; `interval`: its 95 % interval by t over `stretches` equal stretches, paired. Both say how sure
    the difference of these two runs is, not what chance (seeds, shuffling) would do between two others.
    `per_update` and its interval: the speedup per applied update, where that is not the speedup per step.
    """

    verdict: LearningVerdict
    text: str
    reason: str | None = None  # why it is not judged
    severity: Literal["info", "warning", "error"] | None = None  # None: nothing to flag
    window: tuple[float, float] | None = None
    stretches: int = 0
    loss: tuple[float | None, float | None] = (None, None)
    difference_ratio: float | None = None
    interval: tuple[float, float] | None = None
    applied: tuple[Applied | None, Applied | None] = (None, None)
    per_update: float | None = None
    per_update_interval: tuple[float, float] | None = None
    curves: tuple[tuple[LossPoint, ...], tuple[LossPoint, ...]] = ((), ())

    @property
    def per_update_text(self) -> str:
        """The speedup per applied update, for people; empty where it is the one per step, or not known."""
        if self.per_update is None:
            return ""
        ends = self.per_update_interval
        interval = f" (95 %: {format_speedup(ends[0])} to {format_speedup(ends[1])})" if ends else ""
        counts = [
            f"{format_count(one.updates)} in {format_count(one.steps)} steps" for one in self.applied if one
        ]
        return f"per applied update {format_speedup(self.per_update)}{interval}: {' against '.join(counts)}"


# --- what was promised -----------------------------------------------------------------------------------

RemedyStatus = Literal["applied", "gone", "less", "not seen"]
"""The records or the trace show that it was done; its cause is gone, and nothing shows what was done; its
cause remains and costs clearly less; none of these."""
CauseAfter = Literal["gone", "remains", "not judged"]


@frozen
class RemedyOutcome:
    """One cause of the earlier report. `predicted_ns`: the gain, at best, in the order of the plan and alone.

    `obtained_ns`: by how much less the parts of the step that the cause claimed take per step; `interval_ns`:
    95 %, as if all scatter between the profiled steps, and all that the profiler adds to idle time, were of
    these parts. None: not known, with `reason`."""

    code: str
    slug: str
    status: RemedyStatus
    after: CauseAfter
    evidence: tuple[str, ...]  # what shows that it was applied
    predicted_ns: tuple[float, float]
    obtained_ns: float | None
    interval_ns: tuple[float, float] | None = None
    reason: str | None = None
    counted: bool = False  # part of the total: applied, or between runs of one precision also gone or less


@frozen
class Promises:
    """All remedies of the earlier report, in the order of its plan, held against the later run.

    `predicted_ns`: of those that are `counted`, together. `obtained_ns`: the earlier
    step less the later one. `refused`: why nothing is judged; then the rest is empty."""

    outcomes: tuple[RemedyOutcome, ...] = ()
    predicted_ns: tuple[float, float] | None = None
    obtained_ns: float | None = None
    interval_ns: tuple[float, float] | None = None
    refused: str | None = None
    promised: bool = False  # the earlier report states gains
    same_precision: bool = False  # both compute in the same: a run before and after, not a pair of policies
