"""What the judgement says: findings, what it could not tell, and the whole diagnosis."""

from __future__ import annotations

from dataclasses import field
from typing import Literal, NamedTuple

from mpprof.model.account import (
    Account,
    Bound,
    Class,
    ComputePrecision,
    GapSlice,
    Phase,
    Speedup,
    TensorCoreShare,
)
from mpprof.model.answer import Answer
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen
from mpprof.model.hosts import Collective, DeviceLoad, Hosts
from mpprof.model.memory import MemoryAccount
from mpprof.model.outcome import Learning, Promises
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary
from mpprof.model.trace import NamedRanges

Severity = Literal["info", "warning", "error"]
SEVERITY_RANK: dict[Severity, int] = {"error": 0, "warning": 1, "info": 2}
Confidence = Literal["low", "medium", "high"]


@frozen
class Evidence:
    """One measured value and the limit it was held against. `unit` in the field's short form: "ns",
    "bytes", "ratio", "count", "text", "speedup", "bytes/s"."""

    name: str
    value: float | int | str | bool | None
    unit: str
    limit: float | int | str | None = None


@frozen
class Remedy:
    """One thing to do about a cause. `snippet`: code to copy, Python or shell; "": there is none.
    `larger_batch`: it raises the batch, which gives more examples a second and makes no step shorter;
    `other_type`: it changes the type to compute in, and with it what all other remedies gain."""

    text: str
    snippet: str = ""
    larger_batch: bool = False
    other_type: bool = False


class ClaimedPart(NamedTuple):
    """A part of the step that a finding claims: a class with its phase, layer and (of idle time) cause, and
    the ns per step above what it could be."""

    category: Class
    phase: Phase
    layer: str | None
    cause: str | None
    excess_ns: float


@frozen
class Finding:
    """A cause that was found. Cost None: it has none in that unit, or it is not known."""

    code: str
    slug: str
    title: str
    severity: Severity
    confidence: Confidence
    evidence: tuple[Evidence, ...]
    remedy: str
    summary: str = ""  # one plain sentence with the numbers in it
    cost_ns_per_step: float | None = None
    cost_bytes: int | None = None
    spare_bytes: int | None = None  # memory that is free, or taken in advance and not used: it costs nothing
    gap_ratio: float | None = None  # what it explains over the gap: above 1 where other parts gained time
    whatif_step_ns: float | None = None
    layers: tuple[str, ...] = ()
    lost_ratio: float | None = None  # what it explains, as a share of lost_ns: 0 to 1
    remedies: tuple[Remedy, ...] = ()  # what `remedy` says, one by one
    gain_ns_per_step: float | None = None  # of its remedy, in the order of the plan; None: no part of it
    recovers_ns_per_step: float | None = None  # of that, what this run lost against the attainable step
    added_ns_per_step: float | None = None  # of that, what the measured baseline's step does not lose
    claimed: tuple[ClaimedPart, ...] = ()  # whose cost it is, as profiled
    cost_ns_in_window: float | None = None  # where there is no step: of the whole window
    said: str = ""  # as the answer says it, with what it leaves open in braces
    proof: str = ""  # a clause that shows it; "": the sentence says it all
    once: str = ""  # what follows the step time after its remedy: "once the input keeps up"


@frozen
class Unable:
    """A cause that could not be judged, and why: never shown as clear."""

    code: str
    reason: str


@frozen
class NotApplicable:
    """A cause that this run cannot have, and why: nothing was looked at, so that it is not clear either."""

    code: str
    reason: str


@frozen
class WhatIfStep:
    """One remedy in the order to apply them: the step after it, what it gains there, and what of its gain
    stays hidden behind the host."""

    code: str
    step_ns: float
    gain_ns: float
    hidden_ns: float


@frozen
class Surfacing:
    """A cause that is notable only once others are remedied, and what its remedy gains then."""

    code: str
    gain_ns: float


@frozen
class WhatIf:
    """All remedies in the order that pays first. `best_step_ns` is the step with all of them; `floor` says
    what limits it then: "host" or "device". `host_ns`: what the host needs per step now; None: not known.
    `subsets_ns`: the step with each subset of the first remedies of `order` (six at most), at the index whose
    bit k says that remedy k is in it; the first is the step as it is. `surfacing`: causes that are too small
    a part of the step to be found now, and notable in the best one; the remedies of `order` leave them."""

    order: tuple[WhatIfStep, ...]
    best_step_ns: float
    floor: Literal["host", "device"]
    host_ns: float | None
    subsets_ns: tuple[float, ...] = ()
    surfacing: tuple[Surfacing, ...] = ()


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


@frozen
class KernelChange:
    """One kernel name (`by` "name") or op (`by` "op") in two runs; None: not in that run."""

    key: str
    by: Literal["name", "op"]
    from_ns: float | None  # per step
    to_ns: float | None


@frozen
class Matching:
    """How much of two runs was aligned, as shares of the time of the first's and the second's ops: by op in
    its layer and phase, and at least by its layer. `only_*`: (op, ns per step) of what is in one run alone,
    the longest first. `unmatched_*`: (layer, why it has no counterpart), in the order of the model."""

    by_op_ratio: tuple[float | None, float | None]
    by_layer_ratio: tuple[float | None, float | None]
    only_from: tuple[tuple[str, float], ...]
    only_to: tuple[tuple[str, float], ...]
    unmatched_from: tuple[tuple[str, str], ...] = ()
    unmatched_to: tuple[tuple[str, str], ...] = ()


@frozen
class Batches:
    """Runs of one model in one type and at several batch sizes, smallest first: what their step times tell.

    `runs`: rows of Comparison.runs. A step takes `fixed_ns` and so much for each example (the line through
    the two ends); `spread_ratio`: the largest time per example over the smallest, less 1.
    `utilization_ratio`: the highest median on record; None: none is."""

    runs: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    ns_per_example: tuple[float, ...]
    spread_ratio: float
    fixed_ns: float
    utilization_ratio: float | None
    statements: tuple[str, ...]


@frozen
class WindowPart:
    """A part of two windows, in ns of each: idle time by class, matrix kernels by placement and precision,
    kernels by family (both sums of durations), exposed communication and copies."""

    by: Literal["idle", "placement", "family", "exposed"]
    name: str
    from_ns: float
    to_ns: float


@frozen
class Windows:
    """Two whole windows side by side, (first, second), of the main devices; nothing is per step.

    `same_work`: both ran as many matrix kernels of each family (`matrix_kernels`); None: neither ran any.
    `decides`: what most of both windows is, waiting or the device's work; "both": of one this, of one that.
    `waits_for`: what most of the second's idle time is; None: the trace does not show it, or there is none.
    """

    span_ns: tuple[float, float]
    busy_ns: tuple[float, float]
    kernel_ns: tuple[float, float]
    kernels: tuple[int, int]
    parts: tuple[WindowPart, ...]
    matrix_kernels: tuple[dict[str, int], dict[str, int]]
    same_work: bool | None
    decides: Literal["waiting", "device", "both"]
    waits_for: Class | None


@frozen
class Rung:
    """One step of a ladder: run `start` to run `end` (rows in Comparison.runs).

    `labels` say in which respects the two are unlike (batch size, card, XLA ...); empty: comparable.
    `refused` says why they cannot be compared at all."""

    start: int
    end: int
    speedup: Speedup | None
    slices: tuple[GapSlice, ...]
    kernels: tuple[KernelChange, ...]  # largest difference first
    findings: tuple[Finding, ...]
    labels: tuple[str, ...] = ()
    refused: str | None = None
    examples_per_s: tuple[float | None, float | None] = (None, None)  # of both runs; None: no batch on record
    cards: str | None = None  # what two different cards can do at their peaks; None: one card, or not known
    matching: Matching | None = None  # None: one of the runs has no account
    answer: Answer | None = None  # of the later run against the earlier; None: they are no comparison at all
    notes: tuple[str, ...] = ()  # what makes their parts hard to compare
    promises: Promises | None = None  # what the earlier report's remedies gave; None: no comparison at all
    windows: Windows | None = None  # side by side where not both have steps; None: both have, or one no trace
    learning: Learning | None = None  # None: they are no comparison at all


@frozen
class Comparison:
    """Two runs or a ladder of many, in the order given."""

    runs: tuple[Diagnosis, ...]
    rungs: tuple[Rung, ...]
    batches: tuple[Batches, ...] = field(default=(), kw_only=True)
