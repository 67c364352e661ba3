"""One run's document, `mpprof.report/1`: its top, the run, and the facts that its verdict rests on."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.account import ComputeEvidence, ComputeKind
from mpprof.model.document.findings import Finding, NotApplicable, Unable
from mpprof.model.document.hosts import Communication, Hosts
from mpprof.model.document.memory import Memory, OutOfMemory
from mpprof.model.document.speedup import Bound, Speedup, WhatIf
from mpprof.model.document.steps import Steps
from mpprof.model.document.time import AccountOf, TensorCore, Time, Window
from mpprof.model.document.values import Code, Number, Sentences


class Report(TypedDict):
    """One run: where the time of a step goes, why, and what each remedy would give back. Null: not known,
    with the reason in `absent`. Keys may be added within a version; none is renamed or removed."""

    schema: Literal["mpprof.report/1"]
    run: Run
    steps: Annotated[Steps | None, "The step log; null where there is none."]
    time: Annotated[Time | None, "The account of a step."]
    tensor_core: TensorCore | None
    speedup: Speedup | None
    bounds: Annotated[list[Bound], "What records alone prove."]
    memory: Memory | None
    findings: Annotated[list[Finding], "Worst first."]
    unable: Annotated[list[Unable], "Causes that could not be judged: not the same as clear."]
    clear: Annotated[list[Code], "Causes that were looked for and are not there."]
    warnings: list[str]
    absent: Annotated[
        dict[str, str],
        "Field to reason, nested fields by their path; `trace.…`: what the trace's format or file does not "
        "hold.",
    ]
    verdict: Annotated[str, "One sentence."]
    cause: NotRequired[Annotated[Code | None, "The finding that the verdict names."]]
    explanation: NotRequired[
        Annotated[
            Sentences, "Up to three sentences for who must mend it: where the step goes, why, what to do."
        ]
    ]
    whatif: NotRequired[Annotated[WhatIf | None, "The remedies in the order that pays first."]]
    facts: NotRequired[
        Annotated[Facts, "What the verdict rests on: every rendering takes rank and target from here."]
    ]
    not_applicable: NotRequired[
        Annotated[
            list[NotApplicable],
            "Causes that this run cannot have: neither clear nor open. Every cause is in exactly one of "
            "`findings`, `unable`, `clear` and this.",
        ]
    ]
    account: NotRequired[Annotated[AccountOf, "What the trace's times are of: a step, or the whole window."]]
    out_of_memory: NotRequired[
        Annotated[OutOfMemory, "What the out-of-memory error states that ended the training; else left out."]
    ]
    window: NotRequired[
        Annotated[
            Window,
            "Where no step can be told apart: all from the first to the last work on any device. Left out "
            "where `time` gives a step.",
        ]
    ]
    hosts: NotRequired[Annotated[Hosts, "The hosts of a run on several; left out for a run on one."]]
    communication: NotRequired[
        Annotated[
            Communication,
            "Of a run on several devices, or with collectives; left out for others, and without steps.",
        ]
    ]


class Facts(TypedDict):
    step_ns: Annotated[Number | None, "This run's step, as in `time`, else as in `steps`."]
    baseline_step_ns: Annotated[Number | None, "The measured baseline's, for as many examples."]
    observed: Annotated[Number | None, "Speedup over the measured baseline."]
    attainable: Annotated[
        Number | None,
        "Speedup that this card allows with everything but precision as in the baseline: "
        "speedup.expected_with_host, where it is known, else speedup.expected.",
    ]
    attainable_step_ns: Annotated[Number | None, "The step at the attainable speedup."]
    unexplained_ns: Annotated[
        Number | None, "What no cause recovers of this run's step less the attainable one."
    ]
    after_remedies_ns: Annotated[
        Number | None,
        "The step after all remedies, which may be below the attainable one; null where the first remedy "
        "changes the type to compute in.",
    ]
    limited_by: Annotated[Literal["host", "device"] | None, "What limits the step after all remedies."]
    unlike: NotRequired[
        Annotated[
            list[str],
            "In which respects the measured baseline differs beside its precision: with any, the speedup is "
            "none of mixed precision.",
        ]
    ]
    observed_per_update: NotRequired[
        Annotated[
            Number | None,
            "The speedup per applied update, where this run skipped some; else as `observed`.",
        ]
    ]
    step_ns_per_update: NotRequired[
        Annotated[
            Number | None,
            "The time of one applied update: step_ns over the share of updates that were not skipped; null "
            "where skips are not known, or every update was skipped.",
        ]
    ]
    causes: Annotated[
        list[Cause],
        "The findings that cost time or come before all that do, in the order in which to mend them.",
    ]


class Cause(TypedDict):
    code: Code
    slug: str
    gain_ns_per_step: Annotated[
        Number | None, "Of the step, after the causes before it; null: to be settled first, costs no time."
    ]
    recovers_ns_per_step: Annotated[Number | None, "Of the gain, what lies above the attainable step."]
    step_ns: Annotated[Number | None, "The step once it and those before it are mended."]


class Run(TypedDict):
    name: str
    policy: Annotated[str | None, "The process' global policy."]
    backend: str | None
    device: Annotated[str | None, "The main device's name."]
    jit_compile: bool | str | None
    batch_size: Annotated[int | None, "Global, over all devices."]
    id: str
    compute_dtype: Annotated[str | None, "The model's own, which may differ from the policy."]
    computes_in: NotRequired[Annotated[ComputesIn, "What the run computes in, and what tells it."]]
    ended: NotRequired[Annotated[Ended, "How the training ended that did not end by itself; else left out."]]


class Ended(TypedDict):
    reason: Annotated[
        str, "out_of_memory, interrupted (by the keyboard), exit (sys.exit), error, or unknown."
    ]
    error: Annotated[str | None, "The error's first line; of others than out-of-memory errors its type."]


class ComputesIn(TypedDict):
    kind: ComputeKind
    dtype: Annotated[str | None, "The 16-bit type, else the wide one; null: not known."]
    by: Annotated[
        ComputeEvidence,
        "The recorded policy, the input types of the matrix ops, or the share of matrix kernel time.",
    ]
    ratio: Annotated[Number | None, "Of the matrix time in 16 bits or less, where that decided."]
    text: Annotated[str, "For people."]
    reason: str
