"""The documents of one run, `mpprof.report/1`, and of several, `mpprof.compare/1`: what was judged, written
out.

Where a type of the model is written as it is, it stands here as it is. `Time` and `Window` are two views of
an account: of a step, and of a whole window, in which no time is per step.
"""

from __future__ import annotations

from dataclasses import KW_ONLY
from typing import Annotated, Literal

from mpprof.model.account import (
    Between,
    Bound,
    BusyKernel,
    Class,
    ComputePrecision,
    DeviceAccount,
    Slice,
    Speedup,
    Spread,
    TensorCoreShare,
)
from mpprof.model.answer import Answer, Remedy
from mpprof.model.finding import (
    Batches,
    Finding,
    KernelChange,
    NotApplicable,
    Rung,
    Unable,
    WhatIf,
)
from mpprof.model.frozen import frozen
from mpprof.model.hosts import Communication, Hosts
from mpprof.model.kernels import Family, Placement, Precision
from mpprof.model.memory import MemoryAccount, OutOfMemory
from mpprof.model.run_time import RunTime
from mpprof.model.steps import StepSummary
from mpprof.model.trace import NamedRanges
from mpprof.model.written import LATER, LEFT_OUT, After, Code, Count, Key, Ns, Sentences

# --- the run -----------------------------------------------------------------------------------------------


@frozen
class ReportedEnd:
    """How the training ended, with the first line of what its error says."""

    reason: Annotated[
        str, "out_of_memory, interrupted (by the keyboard), exit (sys.exit), error, or unknown."
    ]
    error: Annotated[str | None, "The first line of an out-of-memory error; the type of any other error."]
    text: Annotated[
        str | None,
        LEFT_OUT,
        "The first line of what any other error says; left out where it says nothing.",
    ] = None


@frozen
class ReportedRun:
    """What was measured, in short."""

    name: str
    policy: Annotated[str | None, "The process' global policy."]
    backend: str | None
    device: Annotated[str | None, "The main device's name."]
    jit_compile: bool | str | None
    batch_size: Annotated[int | None, "Global, over all devices."]
    id: str
    compute_dtype: Annotated[str | None, "The model's own, which may differ from the policy."]
    ended: Annotated[
        ReportedEnd | None, LEFT_OUT, "How the training was ended; left out where it ran to its end."
    ] = None
    model_parameters: Annotated[int | None, LEFT_OUT, "Of its model; left out where they are not known."] = (
        None
    )
    computes_in: Annotated[
        ComputePrecision | None, LEFT_OUT, "The type that the run computes in, and the evidence for it."
    ] = None


# --- where its time goes -----------------------------------------------------------------------------------


@frozen
class AccountOf:
    basis: Annotated[
        Literal["step", "window"] | None,
        "step: see `time`. window: `time` is null, see `window`; costs of findings are of the whole window. "
        "null: neither is known, see absent.time.",
    ]


@frozen
class Time:
    """The account of a step."""

    _: KW_ONLY
    basis: Annotated[
        Literal["wall", "window", "device", "host"],
        "What step_ns rests on: steady unprofiled steps (wall), the profiler window (window, device), or ops "
        "on the host's threads (host: no accelerator).",
    ]
    step_ns: Annotated[
        Ns,
        "The step: function_ns plus idle_between_steps_ns, where they are known, plus the slice idle_stall.",
    ]
    function_ns: Annotated[
        Ns | None,
        LATER,
        "The training function's work: a step without what lies between two steps.",
    ]
    wall_ns: Annotated[Ns | None, "The recorded step, unprofiled: `steps.mean_ns`."]
    window_ns: Annotated[Ns, "The mean profiled step."]
    device_ns: Annotated[Ns, "Busy time of the main device per step."]
    between_steps: Annotated[
        tuple[Between, ...] | None,
        LATER,
        "What the loop and its callbacks do between two steps, per step, longest on the host first.",
    ]
    slices: Annotated[tuple[Slice, ...], "Of the main device; classes without time are left out."]
    devices: Annotated[tuple[DeviceAccount, ...], "All of them, the main device first."]
    device: Annotated[str, "The main device, as the trace names it."]
    window_steps: Annotated[Count, "Whole steps in the profiler window."]
    spread: Annotated[
        Spread | None,
        LEFT_OUT,
        "Between what the profiled steps (passes, parts) lie whose mean window_ns is, where their standard "
        "deviation is a fifth of it or more; left out where they agree.",
    ] = None
    step_source: Annotated[str, "How steps were found."]
    notes: Annotated[tuple[str, ...], "What was left out or shifted."]
    idle_between_steps_ns: Annotated[
        Ns | None,
        LATER,
        "From a step's end to the next one's beginning; null: not known, see `absent`.",
    ]
    unit: Annotated[
        Literal["step", "pass", "part"],
        LEFT_OUT,
        "What every step of this account is: a step of a training; a pass of a module or program without "
        "backward or optimizer work; or a part that repeats, which may be a layer. Left out: a step.",
    ] = "step"
    ranges: Annotated[
        tuple[NamedRanges, ...] | None,
        LEFT_OUT,
        "Ranges that may be steps, most launches first, where `unit` is not step.",
    ] = None
    unit_name: Annotated[str, LEFT_OUT, "The module, program or range that one pass is of."] = ""
    step_range: Annotated[
        str | None,
        LEFT_OUT,
        "The ranges that the user named as steps; left out where none were named.",
    ] = None
    unlike: Annotated[
        str | None,
        LEFT_OUT,
        "Why the profiled steps are not representative; left out where they are. Shares are then of the "
        "profiled step: without `profiling` the slices sum to it.",
    ] = None
    call_ns: Annotated[
        Ns | None,
        LEFT_OUT,
        "How long the host was in the call of the training function; left out: not known.",
    ] = None
    launched_ns: Annotated[
        Ns | None,
        LEFT_OUT,
        "From its beginning to the return of its last launch, without waits for the device.",
    ] = None
    waited_ns: Annotated[
        Ns | None,
        LEFT_OUT,
        "How long the host then waited for the device, once that call had returned.",
    ] = None


@frozen
class WindowShare:
    placement: Placement
    precision: Precision
    ns: Ns
    transforms_ns: Annotated[Ns, "Of it, transforms of convolutions, which multiply nothing."]


@frozen
class WindowCause:
    cause: str
    ns: Ns


@frozen
class WindowSlice:
    category: Annotated[Class, Key("class")]
    ns: Annotated[Ns, "Time of this class alone; of comm and copy the exposed."]
    ratio: Annotated[float, "Of the window's span."]
    hidden_ns: Annotated[Ns, "Time of this class behind work of a class that goes first; in no sum."]
    by: Annotated[tuple[WindowShare, ...], "Only of matmul: parts that sum to the slice."]
    causes: Annotated[tuple[WindowCause, ...], "Only of idle classes: what is known of parts of it."]
    pooling_ns: Annotated[Ns, LATER, "Only of elementwise work: its part that pools."] = 0.0


@frozen
class WindowDevice:
    device: str
    busy_ns: Ns
    slices: tuple[WindowSlice, ...]


@frozen
class FamilyTime:
    family: Family
    ns: Annotated[Ns, "Sum of durations."]
    kernels: Count


@frozen
class Window:
    """Times are of the whole window: none is per step."""

    basis: Annotated[Literal["device", "host"], "host: ops on the host's threads, no accelerator."]
    span_ns: Annotated[Ns, "From the first to the last work on any device."]
    busy_ns: Annotated[Ns, "Of it, the time in which the main device worked."]
    idle_ns: Annotated[Ns, "span_ns - busy_ns."]
    kernel_ns: Annotated[
        Ns,
        "Sum of the durations of the main device's kernels, also of those that ran at once; without copies.",
    ]
    kernels: Annotated[Count, "How many the main device ran."]
    device: Annotated[str, "The main device, as the trace names it: the one with the longest busy time."]
    slices: Annotated[tuple[WindowSlice, ...], "Of the main device; they sum to span_ns."]
    devices: Annotated[tuple[WindowDevice, ...], "All of them, the main device first, over the same span."]
    families: Annotated[
        tuple[FamilyTime, ...], "Kernels of the main device by what they do, the longest first."
    ]
    reason: Annotated[str, "Why no step can be told apart."]
    mark: Annotated[
        tuple[Remedy, ...],
        "How to mark steps; empty where some are marked, but cut or damaged.",
    ]
    ranges: Annotated[tuple[NamedRanges, ...], "Ranges of the trace that may be steps, most launches first."]
    notes: Annotated[tuple[str, ...], "What was left out or shifted."]


# --- what its verdict rests on -----------------------------------------------------------------------------


@frozen
class Cause:
    code: Code
    slug: str
    gain_ns_per_step: Annotated[
        Ns | None,
        "What its remedy gains per step, after those of the causes before it; null: it costs no time, but "
        "comes first.",
    ]
    recovers_ns_per_step: Annotated[Ns | None, "The part of the gain that lies above the attainable step."]
    added_ns_per_step: Annotated[
        Ns | None,
        LATER,
        "Of the gain, what the measured baseline's step does not lose; null where there is no baseline "
        "that tells.",
    ]
    step_ns: Annotated[Ns | None, "The step once it and those before it are remedied."]


@frozen
class Facts:
    step_ns: Annotated[Ns | None, "This run's step, as in `time`, else as in `steps`."]
    baseline_step_ns: Annotated[Ns | None, "The measured baseline's, for as many examples."]
    observed: Annotated[float | None, "Speedup over the measured baseline."]
    attainable: Annotated[
        float | None,
        "Speedup that this card allows with everything but precision as in the baseline: "
        "speedup.expected_with_host, where it is known, else speedup.expected.",
    ]
    attainable_step_ns: Annotated[Ns | None, "The step at the attainable speedup."]
    unexplained_ns: Annotated[
        Ns | None, "Of this run's step above the attainable one, what no remedy recovers."
    ]
    after_remedies_ns: Annotated[
        Ns | None,
        "The step after all remedies, which may be below the attainable one; null where the first remedy "
        "changes the type to compute in.",
    ]
    limited_by: Annotated[Literal["host", "device"] | None, "What limits the step after all remedies."]
    unlike: Annotated[
        tuple[str, ...],
        LATER,
        "In which respects other than precision the measured baseline differs. If there is any, the "
        "speedup is not due to mixed precision alone.",
    ]
    observed_per_update: Annotated[
        float | None,
        LATER,
        "The speedup per applied update, where this run skipped some; else as `observed`.",
    ]
    step_ns_per_update: Annotated[
        Ns | None,
        LATER,
        "The time of one applied update: step_ns over the share of updates that were not skipped; null "
        "where skips are not known, or every update was skipped.",
    ]
    causes: Annotated[
        tuple[Cause, ...],
        "The findings that cost time, and those to settle before them, in the order in which to remedy them.",
    ]


@frozen
class Report:
    """One run: where the time of a step goes, why, and what each remedy would give back. Null: not known,
    with the reason in `absent`. Keys may be added within a version; none is renamed or removed."""

    _: KW_ONLY
    run: ReportedRun
    steps: Annotated[StepSummary | None, "The step log; null where there is none."]
    time: Annotated[Time | None, "The account of a step."]
    tensor_core: TensorCoreShare | None
    speedup: Speedup | None
    bounds: Annotated[tuple[Bound, ...], "What records alone prove."]
    memory: MemoryAccount | None
    findings: Annotated[tuple[Finding, ...], "Worst first."]
    unable: Annotated[tuple[Unable, ...], "Causes that could not be judged: not the same as clear."]
    clear: Annotated[tuple[Code, ...], "Causes that were looked for and are not there."]
    warnings: tuple[str, ...]
    absent: Annotated[
        dict[str, str],
        "Why a value is null or left out: its path, and the reason. `trace.…`: what the trace's format or "
        "file does not hold.",
    ]
    verdict: Annotated[str, "The sentence of the answer."]
    answer: Annotated[Answer, LATER, "What a report says first, printed as it is in every place."]
    cause: Annotated[Code | None, LATER, "The finding that the verdict names."]
    explanation: Annotated[Sentences, LATER, "The sentences behind the answer's: its `because`."]
    whatif: Annotated[WhatIf | None, LATER, "The remedies in the order in which to apply them."]
    facts: Annotated[
        Facts,
        LATER,
        "What the verdict rests on: text, markdown, HTML and page take the order of causes and the "
        "attainable step from here.",
    ]
    not_applicable: Annotated[
        tuple[NotApplicable, ...],
        LATER,
        "Causes that this run cannot have. Every cause is in exactly one of `findings`, `unable`, "
        "`clear` and `not_applicable`.",
    ]
    account: Annotated[AccountOf, LATER, "Whether the trace's times are of a step or of the whole window."]
    run_time: Annotated[
        RunTime | None,
        LATER,
        "What the wall time of all `fit` calls was spent on; null without a step log.",
    ]
    out_of_memory: Annotated[
        OutOfMemory | None,
        LEFT_OUT,
        "What the out-of-memory error states with which the training ended; left out where there was none.",
    ] = None
    window: Annotated[
        Window | None,
        LEFT_OUT,
        "The whole window, from the first to the last work on any device, where no step can be told "
        "apart. Left out where `time` is of a step.",
    ] = None
    hosts: Annotated[Hosts | None, LEFT_OUT, "The hosts of a run on several; left out for a run on one."] = (
        None
    )
    kernels: Annotated[
        tuple[BusyKernel, ...],
        LATER,
        "Kernels of the main device above 3 % of its time, the longest first; empty without a trace.",
    ] = ()
    communication: Annotated[
        Communication | None,
        LEFT_OUT,
        "Left out for a run on one device without collectives, and for one without steps.",
    ] = None

    @property
    def schema(self) -> Annotated[Literal["mpprof.report/1"], After("")]:
        """The name of its document."""
        return "mpprof.report/1"


# --- two runs or more --------------------------------------------------------------------------------------


@frozen
class ComparedRuns:
    """Two runs, or a ladder of many in the order given. `runs` are reports of schema mpprof.report/1."""

    runs: Annotated[tuple[Report, ...], ("minItems", 2)]
    steps: tuple[Rung, ...]
    kernels: tuple[KernelChange, ...]
    batches: Annotated[
        tuple[Batches, ...],
        LATER,
        "Runs of one model and type at several batch sizes, smallest first, and what their step times show.",
    ]

    @property
    def schema(self) -> Annotated[Literal["mpprof.compare/1"], After("")]:
        """The name of its document."""
        return "mpprof.compare/1"
