"""Two runs or more, `mpprof.compare/1`."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.account import Class
from mpprof.model.document.findings import Finding
from mpprof.model.document.report import Answer, Report
from mpprof.model.document.speedup import Compared
from mpprof.model.document.values import Code, Count, FromTo, Interval, Number, Sentences
from mpprof.model.finding import Severity
from mpprof.model.kernels import Family
from mpprof.model.outcome import CauseAfter, LearningVerdict, RemedyStatus


class Comparison(TypedDict):
    """Two runs, or a ladder of many in the order given. `runs` are reports of schema mpprof.report/1."""

    schema: Literal["mpprof.compare/1"]
    runs: Annotated[list[Report], ("minItems", 2)]
    steps: list[Rung]
    kernels: list[KernelChange]
    batches: NotRequired[
        Annotated[
            list[Batches],
            "Runs of one model and type at several batch sizes, smallest first, and what their step times "
            "show.",
        ]
    ]


_RungEnds = TypedDict(  # `from` cannot be an attribute's name
    "_RungEnds", {"from": Annotated[Count, "Row of `runs`."], "to": Annotated[Count, "Row of `runs`."]}
)


class Rung(_RungEnds, Compared):
    findings: list[Finding]
    labels: Annotated[list[str], "In which respects the two are unlike; empty: comparable."]
    refused: Annotated[str | None, "Why they cannot be compared."]
    absent: dict[str, str]
    examples_per_s: NotRequired[FromTo]
    cards: NotRequired[Annotated[str | None, "What two different cards can do at their peaks."]]
    answer: NotRequired[
        Annotated[Answer | None, "Of the later run against the earlier; null: they cannot be compared."]
    ]
    explanation: NotRequired[Annotated[Sentences, "The answer's `because`."]]
    remedies: NotRequired[
        Annotated[
            list[RemedyOutcome],
            "What the earlier run's report promised, in the order of its plan, against what the later run "
            "obtained; empty: it is not judged, with the reason in `absent.remedies`.",
        ]
    ]
    remedies_total: NotRequired[
        Annotated[RemediesTotal | None, "Of all remedies that are counted, against the two steps."]
    ]
    learning: NotRequired[
        Annotated[Learning | None, "The losses after as many applied updates; null: not compared."]
    ]
    notes: NotRequired[Annotated[list[str], "What makes the parts of the two runs hard to compare."]]
    windows: NotRequired[
        Annotated[
            WindowsOfTwo,
            "Where not both runs have steps: their whole windows. Left out where both have, or one has no "
            "trace.",
        ]
    ]
    matching: NotRequired[
        Annotated[
            Matching | None,
            "How much of two runs was aligned, as shares of the time of each run's ops, and the ops that "
            "only one has.",
        ]
    ]


class RemedyOutcome(TypedDict):
    code: Code
    slug: str
    status: Annotated[
        RemedyStatus,
        "applied: the records or the trace show it; gone: the cause is gone, and nothing shows what was "
        "done; less: the cause remains and costs clearly less; not seen: none of these.",
    ]
    cause_after: Annotated[CauseAfter, "Whether the later run's report finds the cause."]
    evidence: Annotated[list[str], "What shows that it was applied."]
    predicted_ns: Annotated[Interval, "Its gain per step at best: in the plan, and alone."]
    obtained_ns: Annotated[Number | None, "By how much less the parts that the cause claimed take per step."]
    interval_ns: Annotated[
        Interval | None,
        "95 % interval of obtained_ns, if all scatter of the profiled steps, and all time that the profiler "
        "adds, lies in these parts.",
    ]
    reason: Annotated[str | None, "Why something of it is not known."]
    counted: Annotated[
        bool, "In remedies_total: applied, or between runs of one precision also gone or less."
    ]


class RemediesTotal(TypedDict):
    predicted_ns: Interval
    obtained_ns: Annotated[Number | None, "The earlier step less the later one."]
    interval_ns: Annotated[Interval | None, "95 %, within this pair of runs."]


class WindowsOfTwo(TypedDict):
    """Two whole windows side by side: nothing is per step, and no speedup follows from their lengths."""

    span_ns: FromTo
    busy_ns: FromTo
    idle_ns: FromTo
    kernel_ns: Annotated[FromTo, "Sum of the kernels' durations, without copies."]
    kernels: FromTo
    parts: list[WindowPart]
    matrix_kernels: Annotated[list[MatrixKernels], "How many ran in each window, by family."]
    same_work: Annotated[
        bool | None,
        "Both ran equally many matrix kernels of each family, so they are assumed to be the same amount of "
        "work. null: neither ran any.",
    ]
    decides: Annotated[
        Literal["waiting", "device", "both"],
        "What most of both windows is; both: one window is mostly waiting, the other mostly work.",
    ]
    waits_for: Annotated[Class | None, "What most of the later one's idle time is; null: not shown, or none."]
    statements: Annotated[list[str], "For people: what changed, what decides, and what is assumed."]


class WindowPart(TypedDict):
    by: Annotated[
        Literal["idle", "placement", "family", "exposed"],
        "Idle time by class; matrix kernels by placement and precision, and kernels by family (sums of "
        "durations); exposed communication and copies.",
    ]
    name: str
    from_ns: Number
    to_ns: Number


_FromToCount = TypedDict("_FromToCount", {"from": Count, "to": Count})


class MatrixKernels(_FromToCount):
    family: Family


class Updates(TypedDict):
    steps: Count
    skipped: Annotated[Count, "Steps whose update was skipped."]
    applied: Annotated[Number, "(steps - skipped) / gradient accumulation."]


class LossPoint(TypedDict):
    updates: Annotated[Number, "Applied by then."]
    loss: Annotated[Number, "Mean of the steps since the point before."]


_LearningSides = TypedDict(  # `from` cannot be an attribute's name
    "_LearningSides", {"from": Updates | None, "to": Updates | None}
)
_LearningCurves = TypedDict("_LearningCurves", {"from": list[LossPoint], "to": list[LossPoint]})


class Learning(TypedDict):
    verdict: Annotated[
        LearningVerdict,
        "The later run's loss after as many applied updates; worse or better: by a tenth or more, with an "
        "interval that excludes 0; not finite: of one run alone.",
    ]
    severity: Annotated[Severity | None, "Null: nothing to flag."]
    text: str
    reason: Annotated[str | None, "Why it is not judged."]
    window: Annotated[Interval | None, "The applied updates that are compared: from, to."]
    stretches: Annotated[Count, "Equal parts of the window, paired."]
    loss: Annotated[FromTo, "The mean over the window."]
    difference_ratio: Annotated[Number | None, "Later less earlier, over the earlier."]
    interval: Annotated[
        Interval | None,
        "95 % of difference_ratio over the stretches: of these two runs alone.",
    ]
    updates: _LearningSides
    speedup_per_update: Annotated[
        Number | None, "Per applied update; null: the same as per step, or not known (see `absent`)."
    ]
    speedup_per_update_interval: Interval | None
    speedup_per_update_text: Annotated[str, "Empty: the same as per step, or not known."]
    curves: Annotated[_LearningCurves, "Mean losses over the whole of both runs; empty: none is known."]
    absent: dict[str, str]


class Matching(TypedDict):
    by_op_ratio: FromTo
    by_layer_ratio: FromTo
    only_from: list[OpTime]
    only_to: list[OpTime]
    unmatched_from: NotRequired[Annotated[list[UnmatchedLayer], "Layers of `from` without a counterpart."]]
    unmatched_to: NotRequired[Annotated[list[UnmatchedLayer], "Layers of `to` without a counterpart."]]


class UnmatchedLayer(TypedDict):
    layer: str
    reason: str


class OpTime(TypedDict):
    op: str
    ns_per_step: Number


class KernelChange(TypedDict):
    key: str
    by: Literal["name", "op"]
    from_ns: Annotated[Number | None, "Per step; null: not in that run."]
    to_ns: Number | None
    step: Annotated[Count, "Row of `steps`."]


class Batches(TypedDict):
    runs: list[int]
    batch_sizes: list[int]
    ns_per_example: list[Number]
    spread_ratio: Annotated[Number | None, "The largest time per example over the smallest, less 1."]
    fixed_ns: Annotated[Number | None, "What a step takes whatever its size."]
    utilization_ratio: Annotated[Number | None, "The highest median on record."]
    statements: list[str]
