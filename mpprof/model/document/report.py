"""One run's document, `mpprof.report/1`: its top, the run, and the facts that its verdict rests on."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.account import ComputeEvidence, ComputeKind
from mpprof.model.answer import Kind, Leading
from mpprof.model.document.findings import Finding, NotApplicable, Unable
from mpprof.model.document.hosts import Communication, Hosts
from mpprof.model.document.memory import Memory, OutOfMemory
from mpprof.model.document.run_time import RunTime
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
        "Why a value is null or left out: its path, and the reason. `trace.…`: what the trace's format or "
        "file does not hold.",
    ]
    verdict: Annotated[str, "The sentence of the answer."]
    cause: NotRequired[Annotated[Code | None, "The finding that the verdict names."]]
    answer: NotRequired[Annotated[Answer, "What a report says first, printed as it is in every place."]]
    explanation: NotRequired[Annotated[Sentences, "The sentences behind the answer's: its `because`."]]
    whatif: NotRequired[Annotated[WhatIf | None, "The remedies in the order in which to apply them."]]
    facts: NotRequired[
        Annotated[
            Facts,
            "What the verdict rests on: text, markdown, HTML and page take the order of causes and the "
            "attainable step from here.",
        ]
    ]
    not_applicable: NotRequired[
        Annotated[
            list[NotApplicable],
            "Causes that this run cannot have. Every cause is in exactly one of `findings`, `unable`, "
            "`clear` and `not_applicable`.",
        ]
    ]
    account: NotRequired[
        Annotated[AccountOf, "Whether the trace's times are of a step or of the whole window."]
    ]
    run_time: NotRequired[
        Annotated[
            RunTime | None, "What the wall time of all `fit` calls was spent on; null without a step log."
        ]
    ]
    out_of_memory: NotRequired[
        Annotated[
            OutOfMemory,
            "What the out-of-memory error states with which the training ended; left out where there was "
            "none.",
        ]
    ]
    window: NotRequired[
        Annotated[
            Window,
            "The whole window, from the first to the last work on any device, where no step can be told "
            "apart. Left out where `time` is of a step.",
        ]
    ]
    hosts: NotRequired[Annotated[Hosts, "The hosts of a run on several; left out for a run on one."]]
    communication: NotRequired[
        Annotated[
            Communication,
            "Left out for a run on one device without collectives, and for one without steps.",
        ]
    ]


class Answer(TypedDict):
    kind: Annotated[
        Kind,
        "What there is to judge from: a measured baseline; a 16-bit run alone; a float32 run alone; a window "
        "without steps; a run on a CPU; records without a trace; a baseline it cannot be compared with.",
    ]
    leads: Annotated[
        Leading,
        "The first of: the training ended by an error; it does not learn; mixed precision is not in effect; "
        "the measurement is not valid, where that could change the first cause or its sign; the largest gain "
        "in time; the largest in memory; nothing.",
    ]
    figure: Annotated[
        str, "At most 12 characters; empty for the first four of `leads`, where no figure counts yet."
    ]
    label: Annotated[str, "What the figure is of, and what the first remedy makes of it."]
    sentence: Annotated[str, "At most 150 characters: what, and why."]
    because: Annotated[list[str], "At most two sentences: what proves it, and what limits it."]
    do: Annotated[str, "The first remedy, in one line; empty where there is nothing to do."]
    code: Annotated[Code | None, "Of the first cause; null where nothing leads."]


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
        Number | None, "Of this run's step above the attainable one, what no remedy recovers."
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
            "In which respects other than precision the measured baseline differs. If there is any, the "
            "speedup is not due to mixed precision alone.",
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
        "The findings that cost time, and those to settle before them, in the order in which to remedy them.",
    ]


class Cause(TypedDict):
    code: Code
    slug: str
    gain_ns_per_step: Annotated[
        Number | None,
        "What its remedy gains per step, after those of the causes before it; null: it costs no time, but "
        "comes first.",
    ]
    recovers_ns_per_step: Annotated[Number | None, "Of the gain, what lies above the attainable step."]
    added_ns_per_step: NotRequired[
        Annotated[
            Number | None,
            "Of the gain, what the measured baseline's step does not lose; null where there is no baseline "
            "that tells.",
        ]
    ]
    step_ns: Annotated[Number | None, "The step once it and those before it are remedied."]


class Run(TypedDict):
    name: str
    policy: Annotated[str | None, "The process' global policy."]
    backend: str | None
    device: Annotated[str | None, "The main device's name."]
    jit_compile: bool | str | None
    batch_size: Annotated[int | None, "Global, over all devices."]
    id: str
    compute_dtype: Annotated[str | None, "The model's own, which may differ from the policy."]
    computes_in: NotRequired[
        Annotated[ComputesIn, "The type that the run computes in, and the evidence for it."]
    ]
    ended: NotRequired[Annotated[Ended, "How the training was ended; left out where it ran to its end."]]
    model_parameters: NotRequired[Annotated[int, "Of its model; left out where they are not known."]]


class Ended(TypedDict):
    reason: Annotated[
        str, "out_of_memory, interrupted (by the keyboard), exit (sys.exit), error, or unknown."
    ]
    error: Annotated[str | None, "The first line of an out-of-memory error; the type of any other error."]
    text: NotRequired[
        Annotated[str, "The first line of what any other error says; left out where it says nothing."]
    ]


class ComputesIn(TypedDict):
    kind: ComputeKind
    dtype: Annotated[str | None, "The 16-bit type, else the wide one; null: not known."]
    by: Annotated[
        ComputeEvidence,
        "The recorded policy, the input types of the matrix ops, or the share of matrix kernel time.",
    ]
    ratio: Annotated[
        Number | None, "The share of matrix time in 16 bits or less; null: other evidence decided."
    ]
    text: Annotated[str, "For people."]
    reason: str
