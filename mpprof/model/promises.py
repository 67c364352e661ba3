"""What a report promised of its remedies, and what a later run obtained of it."""

from __future__ import annotations

from typing import Literal

from mpprof.model.frozen import frozen

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
