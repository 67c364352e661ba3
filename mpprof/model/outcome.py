"""What a later run shows against an earlier one: whether both learned alike, what its remedies obtained."""

from __future__ import annotations

from typing import Annotated, Literal

from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_speedup
from mpprof.model.written import HIDDEN, After, Code, Count, Interval, IntervalNs, Key, Ns, Pair

LearningVerdict = Literal["alike", "worse", "better", "not finite", "not judged"]


@frozen
class LossPoint:
    updates: Annotated[Ns, "Applied by then."]
    loss: Annotated[float, "Mean of the steps since the point before."]


@frozen
class Applied:
    """The optimizer updates of one run. `skipped`: micro-steps whose gradients were not finite."""

    steps: Count
    skipped: Annotated[Count, "Steps whose update was skipped."]
    updates: Annotated[float, Key("applied"), "(steps - skipped) / gradient accumulation."]

    @property
    def per_step(self) -> float:
        return self.updates / self.steps if self.steps else 0.0


@frozen
class LearningSides:
    start: Annotated[Applied | None, Key("from")]
    end: Annotated[Applied | None, Key("to")]


@frozen
class LearningCurves:
    start: Annotated[tuple[LossPoint, ...], Key("from")]
    end: Annotated[tuple[LossPoint, ...], Key("to")]


@frozen
class Learning:
    """The later run's loss against the earlier one's, over the second half of the updates that both applied.

    The interval says how sure the difference of these two runs is, not what chance (seeds, shuffling) would
    do between two others. `per_update` and its interval: the speedup per applied update, where that is not
    the speedup per step.
    """

    verdict: Annotated[
        LearningVerdict,
        "The later run's loss after as many applied updates; worse or better: by a tenth or more, with an "
        "interval that excludes 0; not finite: of one run alone.",
    ]
    text: Annotated[str, After("severity")]
    reason: Annotated[str | None, After("text"), "Why it is not judged."] = None
    severity: Annotated[Literal["info", "warning", "error"] | None, "Null: nothing to flag."] = None
    window: Annotated[Interval | None, "The applied updates that are compared: from, to."] = None
    stretches: Annotated[Count, "Equal parts of the window, paired."] = 0
    loss: Annotated[Pair, "The mean over the window."] = (None, None)
    difference_ratio: Annotated[float | None, "Later less earlier, over the earlier."] = None
    interval: Annotated[
        Interval | None,
        "95 % of difference_ratio over the stretches: of these two runs alone.",
    ] = None
    applied: Annotated[tuple[Applied | None, Applied | None], HIDDEN] = (None, None)
    per_update: Annotated[
        float | None,
        Key("speedup_per_update"),
        After("updates"),
        "Per applied update; null: the same as per step, or not known (see `absent`).",
    ] = None
    per_update_interval: Annotated[Interval | None, Key("speedup_per_update_interval")] = None
    curves: Annotated[
        LearningCurves,
        After("speedup_per_update_text"),
        "Mean losses over the whole of both runs; empty: none is known.",
    ] = LearningCurves((), ())

    @property
    def updates(self) -> Annotated[LearningSides, After("interval")]:
        """The optimizer updates of both runs."""
        return LearningSides(*self.applied)

    @property
    def absent(self) -> Annotated[dict[str, str], After("curves")]:
        """By key, why part of it is not known."""
        reason = self.reason or "the losses are not compared"
        if self.verdict == "not finite":
            reason = "one run's loss is not finite"
        values = {
            "window": self.window,
            "loss": self.loss[0],
            "difference_ratio": self.difference_ratio,
            "interval": self.interval,
        }
        absent = {name: reason for name, value in values.items() if value is None}
        for side, one in zip(("from", "to"), self.applied, strict=True):
            if one is None:
                absent[f"updates.{side}"] = _SKIPS_UNKNOWN
        if self.per_update is None:
            absent["speedup_per_update"] = _SKIPS_UNKNOWN if None in self.applied else _AS_PER_STEP
        return absent

    @property
    def per_update_text(
        self,
    ) -> Annotated[
        str,
        Key("speedup_per_update_text"),
        After("speedup_per_update_interval"),
        "Empty: the same as per step, or not known.",
    ]:
        """The speedup per applied update, for people."""
        if self.per_update is None:
            return ""
        ends = self.per_update_interval
        interval = f" (95 %: {format_speedup(ends[0])} to {format_speedup(ends[1])})" if ends else ""
        counts = [
            f"{format_count(one.updates)} in {format_count(one.steps)} steps" for one in self.applied if one
        ]
        return f"per applied update {format_speedup(self.per_update)}{interval}: {' against '.join(counts)}"


_SKIPS_UNKNOWN = "which updates were skipped is not on record"
_AS_PER_STEP = (
    "both runs have as many updates as steps, or there is no observed speedup: the value per step holds"
)


# --- what was promised -----------------------------------------------------------------------------------

RemedyStatus = Literal["applied", "gone", "less", "not seen"]
"""The records or the trace show that it was done; its cause is gone, and nothing shows what was done; its
cause remains and costs clearly less; none of these."""
CauseAfter = Literal["gone", "remains", "not judged"]


@frozen
class RemedyOutcome:
    """One cause of the earlier report. What is None is not known, with `reason`."""

    code: Code
    slug: str
    status: Annotated[
        RemedyStatus,
        "applied: the records or the trace show it; gone: the cause is gone, and nothing shows what was "
        "done; less: the cause remains and costs clearly less; not seen: none of these.",
    ]
    after: Annotated[CauseAfter, Key("cause_after"), "Whether the later run's report finds the cause."]
    evidence: Annotated[tuple[str, ...], "What shows that it was applied."]
    predicted_ns: Annotated[IntervalNs, "Its gain per step as estimated: in the plan, and alone."]
    obtained_ns: Annotated[Ns | None, "By how much less the parts that the cause claimed take per step."]
    interval_ns: Annotated[
        IntervalNs | None,
        "95 % interval of obtained_ns, if all scatter of the profiled steps, and all time that the profiler "
        "adds, lies in these parts.",
    ] = None
    reason: Annotated[str | None, "Why something of it is not known."] = None
    counted: Annotated[
        bool, "In remedies_total: applied, or between runs of one precision also gone or less."
    ] = False


@frozen
class RemediesTotal:
    predicted_ns: IntervalNs
    obtained_ns: Annotated[Ns | None, "The earlier step less the later one."]
    interval_ns: Annotated[IntervalNs | None, "95 %, within this pair of runs."]


@frozen
class Promises:
    """All remedies of the earlier report, in the order of its plan, held against the later run.

    `total`: of those that are `counted`, together. `refused`: why nothing is judged; then the rest is
    empty."""

    outcomes: tuple[RemedyOutcome, ...] = ()
    total: RemediesTotal | None = None
    refused: str | None = None
    promised: bool = False  # the earlier report states gains
    same_precision: bool = False  # both compute in the same: a run before and after, not a pair of policies
