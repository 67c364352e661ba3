"""What the judgement says: findings, what it could not tell, and the whole diagnosis."""

from __future__ import annotations

from dataclasses import KW_ONLY, field
from typing import Annotated, Literal, NamedTuple

from mpprof.model.account import (
    IDLE_CLASSES,
    AboveAttainableNs,
    Account,
    Bound,
    BusyKernel,
    Ceiling,
    Class,
    ComputePrecision,
    Expected,
    FewBlocks,
    GainedNs,
    GapNs,
    GapSlice,
    LostNs,
    PairInterval,
    PerExample,
    Phase,
    ProfiledSpeedup,
    Speedup,
    TensorCoreShare,
    Told,
    UnexplainedNs,
    WithHost,
)
from mpprof.model.answer import Answer, Remedy
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.hosts import Collective, DeviceLoad, Hosts
from mpprof.model.kernels import Family
from mpprof.model.memory import MemoryAccount
from mpprof.model.outcome import Learning, Promises, RemediesTotal, RemedyOutcome
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary
from mpprof.model.trace import NamedRanges
from mpprof.model.written import (
    HIDDEN,
    LATER,
    LEFT_OUT,
    After,
    Code,
    Count,
    If,
    Key,
    Ns,
    Pair,
    PairNs,
    Sentences,
)

Severity = Literal["info", "warning", "error"]
SEVERITY_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
Confidence = Literal["low", "medium", "high"]


@frozen
class Evidence:
    """One measured value and the limit it was held against."""

    name: str
    value: Annotated[float | str | bool | None, "Measured."]
    unit: Annotated[str, "ns, bytes, ratio, count, speedup, text, ..."]
    limit: Annotated[float | str | None, "What the value was compared with."] = None


class ClaimedPart(NamedTuple):
    """A part of the step that a finding claims: a class with its phase, layer and (of idle time) cause, and
    the ns per step above what it could be."""

    category: Class
    phase: Phase
    layer: str | None
    cause: str | None
    excess_ns: float


@frozen
class FindingPart:
    """A class of the account, in one layer."""

    category: Annotated[Class, Key("class")]
    layer: str | None


@frozen
class Finding:
    """A cause that was found. Cost None: it has none in that unit, or it is not known."""

    _: KW_ONLY
    code: Annotated[Code, "Stable: `mpprof explain CODE`."]
    slug: str
    title: str
    severity: Severity
    confidence: Confidence
    cost_ns_per_step: Ns | None = None
    cost_bytes: int | None = None
    gap_ratio: Annotated[
        float | None,
        "What it explains, as a share of gap_ns; above 1 where other parts gained time.",
    ] = None
    evidence: tuple[Evidence, ...]
    remedy: str
    remedies: Annotated[tuple[Remedy, ...], LATER, "What `remedy` says, one by one."] = ()
    whatif_step_ns: Annotated[Ns | None, "The step once it is remedied."] = None
    summary: Annotated[str, "One sentence with the numbers in it; may be empty."] = ""
    layers: tuple[str, ...] = ()
    lost_ratio: Annotated[float | None, LATER, "What it explains, as a share of lost_ns: 0 to 1."] = None
    gain_ns_per_step: Annotated[
        Ns | None,
        LATER,
        "What its remedy gains of a step after those before it in whatif.order, by which findings are "
        "ordered; null: no part of that plan.",
    ] = None
    recovers_ns_per_step: Annotated[
        Ns | None,
        LATER,
        "Of the gain, what this run lost against the attainable step: the sum over all findings and "
        "speedup.unexplained_ns are the step less the attainable one.",
    ] = None
    added_ns_per_step: Annotated[float | None, HIDDEN] = (
        None  # of the gain, what the measured baseline's step does not lose
    )
    claimed: Annotated[tuple[ClaimedPart, ...], HIDDEN] = ()  # whose cost it is, as profiled
    spare_bytes: Annotated[
        int | None,
        LEFT_OUT,
        "Memory that is free, or taken in advance and not used. Left out where it is neither.",
    ] = None
    cost_ns_in_window: Annotated[
        Ns | None,
        LEFT_OUT,
        "What it costs of the whole window, where no step can be told apart (cost_ns_per_step null). "
        "Left out elsewhere.",
    ] = None
    cost_ns_of_run: Annotated[
        Ns | None,
        LEFT_OUT,
        "What it costs of run_time.wall_ns outside the steps that step_ns is the mean of: in work that comes "
        "with each epoch or `fit`. Left out where that is nothing, or not known.",
    ] = None
    said: Annotated[str, HIDDEN] = ""  # as the answer says it, with what it leaves open in braces
    proof: Annotated[str, HIDDEN] = ""  # a clause that shows it; "": the sentence says it all
    once: Annotated[str, HIDDEN] = (
        ""  # what follows the step time after its remedy: "once the input keeps up"
    )
    dismissed: Annotated[
        str | None,
        LEFT_OUT,
        "Why the project dismisses it, by its bounds file; left out of any other finding.",
    ] = None

    @property
    def parts(
        self,
    ) -> Annotated[
        tuple[FindingPart, ...],
        LEFT_OUT,
        After("recovers_ns_per_step"),
        "The work that its cost is taken from, the most costly first. Left out where it is of no work.",
    ]:
        """The work that it claims, by class and layer."""
        excess: dict[tuple[Class, str | None], float] = {}
        for part in self.claimed:
            if part.category not in IDLE_CLASSES:
                key = part.category, part.layer
                excess[key] = excess.get(key, 0.0) + part.excess_ns
        return tuple(FindingPart(*key) for key in sorted(excess, key=lambda key: -excess[key]))


@frozen
class Unable:
    """A cause that could not be judged, and why: never shown as clear."""

    code: Code
    reason: str


@frozen
class NotApplicable:
    """A cause that this run cannot have, and why: nothing was looked at, so that it is not clear either."""

    code: Code
    reason: str


@frozen
class WhatIfStep:
    """One remedy in the order to apply them."""

    code: Code
    step_ns: Annotated[Ns, "The step with this remedy and all before it."]
    gain_ns: Ns
    hidden_ns: Annotated[Ns, "What of its gain stays hidden behind the host."]


@frozen
class Surfacing:
    """A cause that is notable only once others are remedied."""

    code: Code
    gain_ns: Annotated[Ns, "What its remedy gains of a step, beyond `best_step_ns`."]


@frozen
class Floor:
    """What limits the step after all remedies. `host_ns`: what the host needs per step now; None: not
    known."""

    by: Literal["host", "device"]
    host_ns: Ns | None


@frozen
class WhatIf:
    """All remedies in the order that pays first. `best_step_ns` is the step with all of them. The first of
    `subsets_ns` is the step as it is; the remedies of `order` leave what is `surfacing`."""

    order: tuple[WhatIfStep, ...]
    best_step_ns: Ns
    floor: Floor
    subsets_ns: Annotated[
        tuple[Ns, ...],
        LATER,
        "The step with each subset of the first six remedies of `order`, at the index whose bit k says "
        "that remedy k is in it.",
    ] = ()
    surfacing: Annotated[
        tuple[Surfacing, ...],
        LEFT_OUT,
        "Causes that are too small a part of this step to be found, and notable in the best one, the "
        "largest first. Left out where there are none.",
    ] = ()


@frozen
class Diagnosis:
    """All that mpprof holds to be true of one run; the report is this, written out."""

    run: Run
    steps: StepSummary | None
    account: Account | None
    tensor_core: TensorCoreShare | None
    speedup: Speedup | None
    bounds: tuple[Bound, ...]
    memory: MemoryAccount | None
    findings: tuple[Finding, ...]  # in the order of the plan, and what must be settled first before it
    unable: tuple[Unable, ...]
    clear: tuple[str, ...]
    warnings: tuple[str, ...]
    absent: dict[str, str] = field(default_factory=dict)
    answer: Answer | None = None  # None: not yet composed
    verdict: str = ""
    whatif: WhatIf | None = None  # None: there is no account to take a remedy's gain from
    device: DeviceFacts | None = None  # the main device as the trace (or else run.json) states it
    cause: str | None = None  # the code of the answer
    explanation: tuple[str, ...] = ()  # the sentences behind the answer's
    computes: ComputePrecision | None = None  # what the run computes in; None: nobody asked
    window: Account | None = None  # of the whole window, where no step can be told apart
    unlike: str | None = None  # that profiled steps do not stand for the others, and why; None: they do
    how_to_mark: tuple[Remedy, ...] = ()  # how to mark steps, where none is marked
    how_to_switch: tuple[Remedy, ...] = ()  # mixed precision on: of a float32 run that it may make faster
    not_applicable: tuple[NotApplicable, ...] = ()
    ranges: tuple[NamedRanges, ...] = ()  # of a trace without steps: ranges that may be its steps
    hosts: Hosts | None = None  # None: the run is on one host
    devices: tuple[DeviceLoad, ...] = ()  # every device of all hosts in a profiled step, the main one first
    collectives: tuple[Collective, ...] = ()  # of the main device
    dismissed: frozenset[str] = frozenset()  # codes of findings that are not to be remedied
    kernels: tuple[BusyKernel, ...] = ()  # of the account, else of the window


@frozen
class KernelChange:
    """One kernel name (`by` "name") or op (`by` "op") in two runs."""

    key: str
    by: Literal["name", "op"]
    from_ns: Annotated[Ns | None, "Per step; null: not in that run."]
    to_ns: Ns | None
    step: Annotated[Count, "Row of `steps`."] = 0  # set by the report


@frozen
class OpTime:
    op: str
    ns_per_step: Ns


@frozen
class UnmatchedLayer:
    layer: str
    reason: str


@frozen
class Matching:
    """How much of two runs was aligned: by op in its layer and phase, and at least by its layer. What is in
    one run alone stands with the longest first, layers in the order of the model."""

    by_op_ratio: Pair
    by_layer_ratio: Pair
    only_from: tuple[OpTime, ...]
    only_to: tuple[OpTime, ...]
    unmatched_from: Annotated[
        tuple[UnmatchedLayer, ...], LATER, "Layers of `from` without a counterpart."
    ] = ()
    unmatched_to: Annotated[tuple[UnmatchedLayer, ...], LATER, "Layers of `to` without a counterpart."] = ()


@frozen
class Batches:
    """Runs of one model in one type and at several batch sizes, smallest first: what their step times tell.

    `runs`: rows of the comparison's runs. A step takes `fixed_ns` and so much for each example (the line
    through the two ends)."""

    runs: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    ns_per_example: tuple[Ns, ...]
    spread_ratio: Annotated[float | None, "The largest time per example over the smallest, less 1."]
    fixed_ns: Annotated[Ns | None, "What a step takes whatever its size."]
    utilization_ratio: Annotated[float | None, "The highest median on record."]
    statements: tuple[str, ...]


@frozen
class WindowPart:
    """A part of two windows, in ns of each."""

    by: Annotated[
        Literal["idle", "placement", "family", "exposed"],
        "Idle time by class; matrix kernels by placement and precision, and kernels by family (sums of "
        "durations); exposed communication and copies.",
    ]
    name: str
    from_ns: Ns
    to_ns: Ns


@frozen
class MatrixKernels:
    family: Family
    start: Annotated[Count, Key("from")]
    end: Annotated[Count, Key("to")]


@frozen
class WindowsOfTwo:
    """Two whole windows side by side: nothing is per step, and no speedup follows from their lengths."""

    span_ns: PairNs
    busy_ns: PairNs
    kernel_ns: Annotated[PairNs, After("idle_ns"), "Sum of the kernels' durations, without copies."]
    kernels: Annotated[PairNs, After("kernel_ns")]
    parts: Annotated[tuple[WindowPart, ...], After("kernels")]
    matrix_kernels: Annotated[
        tuple[MatrixKernels, ...], After("parts"), "How many ran in each window, by family."
    ]
    same_work: Annotated[
        bool | None,
        After("matrix_kernels"),
        "Both ran equally many matrix kernels of each family, so they are assumed to be the same amount of "
        "work. null: neither ran any.",
    ]
    decides: Annotated[
        Literal["waiting", "device", "both"],
        After("same_work"),
        "What most of both windows is; both: one window is mostly waiting, the other mostly work.",
    ]
    waits_for: Annotated[
        Class | None,
        After("decides"),
        "What most of the later one's idle time is; null: not shown, or none.",
    ]
    statements: Annotated[
        tuple[str, ...],
        After("waits_for"),
        "For people: what changed, what decides, and what is assumed.",
    ] = ()  # set by the report

    @property
    def idle_ns(self) -> Annotated[PairNs, After("busy_ns")]:
        """The rest of each window."""
        return self.span_ns[0] - self.busy_ns[0], self.span_ns[1] - self.busy_ns[1]


@frozen
class Rung:
    """One step of a ladder: run `start` to run `end`. What `speedup` holds is written as the step's own."""

    _: KW_ONLY
    start: Annotated[Count, Key("from"), "Row of `runs`."]
    end: Annotated[Count, Key("to"), "Row of `runs`."]
    speedup: Annotated[Speedup | None, HIDDEN]
    slices: tuple[GapSlice, ...]
    kernels: Annotated[tuple[KernelChange, ...], HIDDEN]  # largest difference first
    findings: tuple[Finding, ...]
    labels: Annotated[
        tuple[str, ...],
        After("unexplained_ns"),
        "In which respects the two are unlike; empty: comparable.",
    ] = ()
    refused: Annotated[str | None, After("labels"), "Why they cannot be compared."] = None
    examples_per_s: Annotated[Pair, LATER, After("per_example")] = (
        None,
        None,
    )  # of both runs; None: no batch on record
    cards: Annotated[
        str | None,
        LATER,
        After("above_attainable_ns"),
        "What two different cards can do at their peaks.",
    ] = None  # one card, or not known
    answer: Annotated[
        Answer | None,
        LATER,
        After("cards"),
        "Of the later run against the earlier; null: they cannot be compared.",
    ] = None
    notes: Annotated[
        tuple[str, ...],
        LATER,
        After("explanation"),
        "What makes the parts of the two runs hard to compare.",
    ] = ()
    matching: Annotated[
        Matching | None,
        LATER,
        After("notes"),
        "How much of two runs was aligned, as shares of the time of each run's ops, and the ops that "
        "only one has.",
    ] = None  # one of the runs has no account
    learning: Annotated[
        Learning | None,
        LATER,
        After("matching"),
        "The losses after as many applied updates; null: not compared.",
    ] = None
    promises: Annotated[Promises | None, HIDDEN] = None  # None: no comparison at all
    windows: Annotated[
        WindowsOfTwo | None,
        LEFT_OUT,
        After("profiled"),
        "Where not both runs have steps: their whole windows. Left out where both have, or one has no trace.",
    ] = None

    @property
    def explanation(self) -> Annotated[Sentences, LATER, After("answer"), "The answer's `because`."]:
        return self.answer.because if self.answer else ()

    @property
    def observed(self) -> Annotated[float | None, After("to")]:
        return self.speedup.observed if self.speedup else None

    @property
    def interval(self) -> Annotated[PairInterval, After("expected")]:
        return self.speedup.interval if self.speedup else None

    @property
    def expected(self) -> Annotated[Expected, After("observed")]:
        return self.speedup.expected if self.speedup else None

    @property
    def interval_wide(self) -> Annotated[FewBlocks, After("interval")]:
        return self.speedup is not None and self.speedup.interval_wide

    @property
    def expected_with_host(self) -> Annotated[WithHost, After("findings")]:
        return self.speedup.expected_with_host if self.speedup else None

    @property
    def ceiling(self) -> Annotated[Ceiling, After("expected_with_host")]:
        return self.speedup.ceiling if self.speedup else None

    @property
    def gap_ns(self) -> Annotated[GapNs, After("ceiling")]:
        return self.speedup.gap_ns if self.speedup else None

    @property
    def unexplained_ns(self) -> Annotated[UnexplainedNs, After("gap_ns")]:
        return self.speedup.unexplained_ns if self.speedup else None

    @property
    def per_example(self) -> Annotated[PerExample, After("absent")]:
        return self.speedup is not None and self.speedup.per_example

    @property
    def lost_ns(self) -> Annotated[LostNs, After("examples_per_s")]:
        return self.speedup.lost_ns if self.speedup else None

    @property
    def gained_ns(self) -> Annotated[GainedNs, After("lost_ns")]:
        return self.speedup.gained_ns if self.speedup else None

    @property
    def above_attainable_ns(self) -> Annotated[AboveAttainableNs, After("gained_ns")]:
        return self.speedup.above_attainable_ns if self.speedup else None

    @property
    def difference(self) -> Annotated[Told, After("remedies_total")]:
        return self.speedup.difference if self.speedup else None

    @property
    def profiled(
        self,
    ) -> Annotated[ProfiledSpeedup | None, If("speedup"), After("difference"), "Of a measured pair."]:
        return self.speedup.profiled if self.speedup else None

    @property
    def remedies(
        self,
    ) -> Annotated[
        tuple[RemedyOutcome, ...],
        LATER,
        After("learning"),
        "What the earlier run's report promised, in the order of its plan, against what the later run "
        "obtained; empty: it is not judged, with the reason in `absent.remedies`.",
    ]:
        return self.promises.outcomes if self.promises else ()

    @property
    def remedies_total(
        self,
    ) -> Annotated[
        RemediesTotal | None,
        LATER,
        After("remedies"),
        "Of all remedies that are counted, against the two steps.",
    ]:
        return self.promises.total if self.promises else None

    @property
    def absent(self) -> Annotated[dict[str, str], After("refused")]:
        """By key, why a value is not known."""
        known = dict(self.speedup.absent or {}) if self.speedup else {}
        found = self.promises
        if found is None or found.refused:
            why = (found.refused if found else self.refused) or "not compared"
            return known | {"remedies": why, "remedies_total": why}
        return known if found.total else known | {"remedies_total": "no remedy is seen in the later run"}


Compared = Speedup | Rung
"""What a run reached against another: both have the fields of a speedup."""


@frozen
class Comparison:
    """Two runs or a ladder of many, in the order given."""

    runs: tuple[Diagnosis, ...]
    rungs: tuple[Rung, ...]
    batches: tuple[Batches, ...] = field(default=(), kw_only=True)
