"""The types of the JSON documents `mpprof.report/1` and `mpprof.compare/1`, and of the tables' rows.

`report.schema` generates both JSON Schemas from these types. A string in `Annotated` is a key's description
there, a pair a keyword of the schema. Keys that were added after version 0.1 are `NotRequired`. Only type
checkers and `report.schema` import this file, so it costs a report nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NotRequired, TypedDict

from mpprof.model.account import Class, ComputeEvidence, ComputeKind, LimitKind, Phase
from mpprof.model.finding import Confidence, Severity
from mpprof.model.kernels import Family, Placement, Precision, Strength
from mpprof.model.memory import Kind, StatesFrom
from mpprof.model.outcome import CauseAfter, LearningVerdict, RemedyStatus

Number = float
Reading = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number that need not be finite. In the schema every number is one: a stored document may hold them."""
Code = Annotated[str, ("pattern", "^MP[0-9]{3}$")]
Count = Annotated[int, ("minimum", 0)]
Interval = Annotated[list[Number], ("minItems", 2), ("maxItems", 2)]
Sentences = Annotated[list[str], ("maxItems", 3)]

# --- mpprof.report/1 ---------------------------------------------------------------------------------------


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


class Hosts(TypedDict):
    read: Annotated[list[Host], "Those whose trace was read, that of `time` first."]
    missing: Annotated[list[MissingHost], "Those of which no trace could be read: nothing here is of them."]


class Host(TypedDict):
    host: str
    worker: Annotated[int | None, "The number of its records; null: it has none."]
    trace: Annotated[str, "The name of its file."]
    step_ns: Annotated[Number, "The mean profiled step."]
    wall_ns: Annotated[Number | None, "The recorded step: the median of the steady ones."]
    window_steps: Annotated[list[int], "As in `time`."]
    clock_skew: Annotated[
        ClockSkew | None,
        "How far its clock is ahead of the first host's, as estimated; applied to nothing. Null: not known, "
        "see `absent`, and for the first host.",
    ]


class ClockSkew(TypedDict):
    skew_ns: Annotated[Number, "The median of the differences."]
    within_ns: Annotated[Number, "Half of the differences lie this close to the median."]
    by: Annotated[Literal["collectives", "steps"], "Whose ends on both clocks were compared."]
    count: Count


class MissingHost(TypedDict):
    host: str
    worker: int | None
    reason: str


class Communication(TypedDict):
    devices: Annotated[list[DeviceLoad], "Every device of all hosts, in profiled steps; the main one first."]
    by: Annotated[list[Collective], "Of the main device, the longest first."]
    stragglers: Annotated[list[DeviceName], "Devices that the others wait for, the slowest first."]


class DeviceName(TypedDict):
    host: Annotated[str | None, "Null: the run is on one host."]
    device: str


class DeviceLoad(DeviceName):
    step_ns: Number
    own_ns: Annotated[
        Number, "The step without exposed communication: a device that others wait for has most of it."
    ]
    busy_ns: Annotated[Number, "Without communication."]
    exposed_ns: Annotated[Number, "Communication while nothing else runs: transfers, and waiting."]
    hidden_ns: Annotated[Number, "Communication behind other work."]


class Collective(TypedDict):
    kind: Annotated[Literal["reduce", "gather", "other"], "reduce: sums, as of gradients."]
    precision: Annotated[Precision, "Of what is sent; unknown: neither name nor op states it."]
    exposed_ns: Number
    busy_ns: Annotated[Number, "With what is hidden."]
    calls: Annotated[Number, "Per step."]


class AccountOf(TypedDict):
    basis: Annotated[
        Literal["step", "window"] | None,
        "step: `time`. window: `time` is null and `window` is there; costs of findings are of the window. "
        "null: neither, see absent.time.",
    ]


class Window(TypedDict):
    """Times are of the whole window: none is per step."""

    basis: Annotated[Literal["device", "host"], "host: ops on the host's threads, no accelerator."]
    span_ns: Annotated[Number, "From the first to the last work on any device."]
    busy_ns: Annotated[Number, "Of it, the time in which the main device worked."]
    idle_ns: Annotated[Number, "span_ns - busy_ns."]
    kernel_ns: Annotated[
        Number, "Sum of the main device's kernels, which counts those that ran at once in full; no copies."
    ]
    kernels: Annotated[Count, "How many the main device ran."]
    device: Annotated[str, "The main device, as the trace names it: the one with the longest busy time."]
    slices: Annotated[list[WindowSlice], "Of the main device; they sum to span_ns."]
    devices: Annotated[list[WindowDevice], "All of them, the main device first, over the same span."]
    families: Annotated[list[FamilyTime], "Kernels of the main device by what they do, the longest first."]
    reason: Annotated[str, "Why no step can be told apart."]
    mark: Annotated[list[Remedy], "How to mark steps; empty where some are marked, but cut or damaged."]
    ranges: Annotated[list[RangeOfTrace], "Ranges of the trace that may be steps, most launches first."]
    notes: Annotated[list[str], "What was left out or shifted."]


class RangeOfTrace(TypedDict):
    name: Annotated[str, "As --step-range takes it: a name, or a pattern between slashes."]
    count: Count
    launches_ratio: Annotated[Number, "Of the trace's launches, those that lie in these ranges."]


class WindowDevice(TypedDict):
    device: str
    busy_ns: Number
    slices: list[WindowSlice]


class FamilyTime(TypedDict):
    family: Family
    ns: Annotated[Number, "Sum of durations."]
    kernels: Count


class WindowShare(TypedDict):
    placement: Placement
    precision: Precision
    ns: Number
    transforms_ns: Annotated[Number, "Of it, transforms of convolutions, which multiply nothing."]


class WindowCause(TypedDict):
    cause: str
    ns: Number


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


class OutOfMemory(TypedDict):
    schema: Literal["mpprof.out_of_memory/1"]
    framework: Literal["tensorflow", "xla", "torch"]
    asked_bytes: int
    limit_bytes: int | None
    used_bytes: int | None
    loose_bytes: Annotated[int | None, "What the allocator held and did not use."]
    others_bytes: Annotated[int | None, "What other processes held of the device."]
    free_bytes: NotRequired[Annotated[int | None, "What the driver had free on the device."]]
    device: str | None
    op: str | None
    parts: Annotated[dict[str, int] | None, "Of a compiled program: arguments, outputs, temporaries ..."]
    filled: Annotated[list[Filled], "What the error lists, largest first."]
    advice: Annotated[list[Advice], "What to try, the likeliest first."]


class Filled(TypedDict):
    name: str
    dtype: str | None
    shape: str | None
    count: int
    bytes: int


class Advice(TypedDict):
    cause: str
    text: str
    snippet: str | None


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


class Steps(TypedDict):
    count: Count
    steady: Annotated[Count, "Neither warm-up, profiled, nor an epoch's edge."]
    median_ns: Annotated[Number | None, "Of the steady steps."]
    p95_ns: Number | None
    skipped: Annotated[int | None, "Optimizer updates skipped."]
    skipped_ratio: Number | None
    loss_scale: LossScale | None
    peak_memory_bytes: int | None
    interval_ns: Annotated[Interval | None, "95 % confidence interval of the median."]
    first_steady: Annotated[int | None, "Step at which warm-up has ended."]
    examples_per_s: NotRequired[Annotated[Number | None, "Of the steady steps."]]
    steps_per_epoch: NotRequired[Annotated[int | None, "Of the median epoch that has ended."]]
    gpu_hours_per_epoch: NotRequired[
        Annotated[Number | None, "Of an epoch's steps on all GPUs, without validation."]
    ]
    workers: NotRequired[
        Annotated[list[Worker], "Each worker's own step times, where several trained together; else empty."]
    ]
    memory: NotRequired[
        Annotated[RecordedMemory, "What the records say of memory; left out without readings."]
    ]


class RecordedMemory(TypedDict):
    peak_bytes: Annotated[int | None, "The allocator's, over the whole run."]
    steady_peak_bytes: Annotated[int | None, "After warm-up; peak_memory_bytes is the same."]
    first_live_bytes: Annotated[int | None, "What was live at the first reading."]
    last_live_bytes: int | None
    driver_bytes: Annotated[int | None, "In use by the driver's figure (median), taken in advance or not."]
    host_bytes: Annotated[int | None, "The process' largest resident size."]


class LossScale(TypedDict):
    first: Reading
    last: Reading
    min: Reading
    max: Reading


class Worker(TypedDict):
    worker: Count
    count: Count
    median_ns: Number | None
    p95_ns: Number | None


class Time(TypedDict):
    basis: Annotated[
        Literal["wall", "window", "device", "host"],
        "What step_ns rests on: steady unprofiled steps (wall), the profiler window (window, device), or ops "
        "on the host's threads (host: no accelerator).",
    ]
    step_ns: Annotated[Number, "The step: function_ns and idle_between_steps_ns, where they are known."]
    function_ns: NotRequired[
        Annotated[Number | None, "The training function's work: a step without what lies between two steps."]
    ]
    idle_between_steps_ns: NotRequired[
        Annotated[
            Number | None, "From a step's end to the next one's beginning; null: not known, see `absent`."
        ]
    ]
    between_steps: NotRequired[
        Annotated[
            list[BetweenSteps] | None,
            "What the loop and its callbacks do between two steps, per step, longest on the host first.",
        ]
    ]
    call_ns: NotRequired[
        Annotated[Number, "How long the host was in the call of the training function; left out: not known."]
    ]
    launched_ns: NotRequired[
        Annotated[Number, "When its last launch returned, waits for the device left out, from its beginning."]
    ]
    waited_ns: NotRequired[
        Annotated[Number, "How long the host then waited for the device, once that call had returned."]
    ]
    wall_ns: Annotated[Number | None, "The recorded step, unprofiled: the median of the steady ones."]
    window_ns: Annotated[Number, "The mean profiled step."]
    device_ns: Annotated[Number, "Busy time of the main device per step."]
    slices: Annotated[list[Slice], "Of the main device; classes without time are left out."]
    devices: Annotated[list[Device], "All of them, the main device first."]
    device: Annotated[str, "The main device, as the trace names it."]
    window_steps: Annotated[Count, "Whole steps in the profiler window."]
    step_source: Annotated[str, "How steps were found."]
    step_range: NotRequired[
        Annotated[str, "The ranges that the user named as steps; left out where none were named."]
    ]
    notes: Annotated[list[str], "What was left out or shifted."]
    unlike: NotRequired[
        Annotated[
            str,
            "Why the profiled steps do not stand for the others; left out where they do. Shares are then "
            "to be taken of the profiled step: without `profiling` the slices sum to it.",
        ]
    ]


class BetweenSteps(TypedDict):
    name: Annotated[str, "In plain words, with the names of the events behind it."]
    host_ns: Annotated[Number, "On the host between two steps."]
    device_ns: Annotated[Number, "Of the device's work launched there."]


class Device(TypedDict):
    device: str
    step_ns: Number
    slices: list[Slice]
    busy_ns: Number
    host: NotRequired[Annotated[str, "Of a run on several hosts."]]


_Classed = TypedDict("_Classed", {"class": Class})  # `class` cannot be an attribute's name


class WindowSlice(_Classed):
    ns: Annotated[Number, "Time of this class alone; of comm and copy the exposed."]
    ratio: Annotated[Number, "Of the window's span."]
    hidden_ns: Annotated[Number, "Time of this class behind work of a class that goes first; in no sum."]
    by: Annotated[list[WindowShare], "Only of matmul: parts that sum to the slice."]
    causes: Annotated[list[WindowCause], "Only of idle classes: what is known of parts of it."]
    pooling_ns: NotRequired[Annotated[Number, "Only of elementwise work: its part that pools."]]


class Slice(_Classed):
    ns_per_step: Annotated[
        Number,
        "Time that belongs to this class alone. The slices sum to the step within 1 ns; `profiling` may be "
        "negative.",
    ]
    ratio: Annotated[Number, "Of the step."]
    hidden_ns_per_step: Annotated[
        Number, "Time of this class behind work of a class that goes first; in no sum."
    ]
    by: Annotated[list[MatmulShare], "Only of matmul: parts that sum to the slice."]
    causes: NotRequired[
        Annotated[
            list[IdleCause],
            "Only of idle classes: what is known of parts of it; of the rest of idle_other nothing is known.",
        ]
    ]
    pooling_ns_per_step: NotRequired[Annotated[Number, "Only of elementwise work: its part that pools."]]
    longest_hidden: NotRequired[
        Annotated[HiddenWork, "Of what is hidden, the op (else the kernel) that most of it is."]
    ]


class HiddenWork(TypedDict):
    name: Annotated[str, "The op, else the kernel."]
    ns_per_step: Annotated[Number, "For how long it ran while the instants went to other work."]


class IdleCause(TypedDict):
    cause: Annotated[str, "What the device waited for."]
    ns_per_step: Number


class MatmulShare(TypedDict):
    placement: Placement
    precision: Precision
    ns_per_step: Number
    transforms_ns_per_step: NotRequired[
        Annotated[
            Number,
            "Of it, Winograd, FFT and im2col transforms of convolutions: helpers that multiply nothing.",
        ]
    ]


class TensorCore(TypedDict):
    matmul_ns_per_step: Number
    ratio: Annotated[Number | None, "Of matrix time."]
    reason: Annotated[str | None, "Why there is no ratio."]
    by_precision: Annotated[dict[Precision, Number], "Nanoseconds per step on matrix units."]
    fallback_ns_per_step: Annotated[Number, "Matrix work on ordinary arithmetic."]
    unknown_ratio: Annotated[Number, "Of the device's kernel time."]
    verified_ratio: NotRequired[
        Annotated[Number, "Of matrix time: what hardware counters decided. Left out where none were read."]
    ]
    of: NotRequired[
        Annotated[
            Literal["window"],
            "No step can be told apart: the times are of the whole profiler window. Left out where they are "
            "of a step.",
        ]
    ]
    unit: NotRequired[Annotated[Placement, "Beside `of`: which matrix unit it is a share of."]]


class Speedup(TypedDict):
    baseline: Literal["measured", "estimated"]
    baseline_id: str | None
    observed: Number | None
    interval: Annotated[Interval | None, "95 % confidence."]
    expected: Annotated[Number | None, "What this device could reach."]
    expected_with_host: Annotated[Number | None, "The same, with the host's need per step as the floor."]
    ceiling: Annotated[Number | None, "By peak rates."]
    estimated: Annotated[
        EstimatedSpeedup | None, "Never measured: a range over what float32 would have taken."
    ]
    slices: list[GapSlice]
    unexplained_ns: Annotated[
        Number | None,
        "What no remedy recovers of above_attainable_ns; without an expectation, of gap_ns.",
    ]
    baseline_step_ns: Number | None
    reach_ns: Annotated[Number | None, "The step that could be reached."]
    gap_ns: Annotated[Number | None, "step_ns - reach_ns."]
    per_example: NotRequired[
        Annotated[bool, "The batches differ: the baseline's times are scaled to this run's batch."]
    ]
    lost_ns: NotRequired[
        Annotated[
            Number | None,
            "What parts of the step take above their reach: gap_ns = lost_ns - gained_ns.",
        ]
    ]
    gained_ns: NotRequired[Annotated[Number | None, "What other parts take below it."]]
    baseline_dtype: NotRequired[Annotated[str | None, "What the baseline's records say it computes in."]]
    attainable: NotRequired[
        Annotated[
            AttainableRange | None,
            "What this card allows: of a measured pair (both ends alike, but from a single step a range), or "
            "of a float32 run in 16 bits (a range).",
        ]
    ]
    limits: NotRequired[
        Annotated[list[Limit], "What the attainable step consists of, and why it becomes no shorter."]
    ]
    above_attainable_ns: NotRequired[
        Annotated[Number | None, "This run's step less that at expected_with_host, else at expected."]
    ]
    how_to_switch: NotRequired[
        Annotated[list[Remedy], "Mixed precision on: of a float32 run that 16 bits may make faster."]
    ]


class AttainableRange(TypedDict):
    low: Number
    high: Number
    eligible_ratio: Annotated[
        Number | None,
        "Share of the float32 run's device time that could use matrix units in 16 bits; null where the trace "
        "shows no work of the device, and of a measured pair.",
    ]
    tf32_ratio: NotRequired[Annotated[Number, "Of it, what matrix units do in TF32 already."]]
    assumptions: list[str]


class Limit(_Classed):
    kind: Annotated[
        LimitKind,
        "Stays in float32; bound by memory; in TF32 already; matrix work at its best; bound by launching; a "
        "wait; stays the same; the host needs as long.",
    ]
    ns_per_step: Annotated[Number, "In the float32 step."]
    best_ns: Annotated[Number, "In the attainable one."]
    ratio: Annotated[Number, "Of the float32 step."]


class EstimatedSpeedup(TypedDict):
    low: Number
    high: Number
    assumptions: list[str]


class GapSlice(_Classed):
    layer: Annotated[
        str | None,
        "Of a kernel for several layers the one of its matrix work, else of most of its work.",
    ]
    ns_per_step: Annotated[Number, "now - baseline / ratio; the slices sum to the gap."]
    baseline_ns: Number
    mixed_ns: Number
    ratio: Annotated[Number, "What this device could reach for that role."]
    ratio_source: str
    added_ns: NotRequired[
        Annotated[Number, "Work that 16 bits bring in every healthy run; no part of the gap."]
    ]


class Bound(TypedDict):
    statement: str
    value: Number
    unit: str
    assumptions: list[str]


class Memory(TypedDict):
    peak_bytes: int
    at_peak: Annotated[list[MemoryItem], "Each division sums to the peak as far as it is known."]
    saved_bytes: int | None
    reachable_bytes: int | None
    allocator: NotRequired[Annotated[str | None, "Whose memory it is; null: only the records tell."]]
    allocators: NotRequired[Annotated[list[Allocator], "Of the trace: devices first, then by peak."]]
    peak_ns: NotRequired[Annotated[int | None, "When the peak was, on the trace's clock."]]
    rounding_bytes: NotRequired[
        Annotated[int | None, "What the blocks live at the peak hold beyond what was asked for."]
    ]
    fragmentation_ratio: NotRequired[
        Annotated[Number | None, "Of the free memory at the peak, what lies outside its largest block."]
    ]
    tensors: NotRequired[Annotated[list[Tensor], "The largest blocks live at the peak, equal ones together."]]
    across_steps: NotRequired[
        Annotated[
            list[HeldAcross] | None,
            "What is allocated in one step and outlives the next; null: the trace does not hold two steps.",
        ]
    ]
    course: NotRequired[Annotated[Course | None, "Live bytes over the trace."]]
    expected_saving_bytes: NotRequired[
        Annotated[
            int | None,
            "What 16 bits could have saved at the baseline's peak: half of the float32 activations that are "
            "kept for backward and computed in 16 bits, less the 16-bit copies of the weights.",
        ]
    ]
    gap: NotRequired[
        Annotated[
            list[MemoryCause],
            "expected_saving_bytes - saved_bytes by cause; with unexplained_bytes they sum to it.",
        ]
    ]
    unexplained_bytes: NotRequired[int | None]
    beside_gap: NotRequired[
        Annotated[
            list[MemoryCause],
            "Findings about memory that the run does not use. They are no part of the gap, which is of the "
            "bytes that the allocator gave out: MP602 is what the driver's figure holds beyond the "
            "allocator's peak, MP303 what the card has left for a larger batch. Empty without a baseline.",
        ]
    ]
    driver: NotRequired[
        Annotated[DriverSaving | None, "The driver's figures beside the saving; null: not recorded of both."]
    ]
    states_from: NotRequired[
        Annotated[
            StatesFrom | None,
            "What the estimated items follow from: the recorded model, the gradients that the optimizer's "
            "updates free, or the 16-bit copies of the weights; null: nothing is estimated.",
        ]
    ]
    why_unassigned: NotRequired[
        Annotated[
            str,
            "Why it is not known what is in memory that XLA took for a program. Left out where it is known, "
            "or XLA took none.",
        ]
    ]


class MemoryComparison(TypedDict):
    """What `mpprof memory RUN --baseline BASE --format json` prints."""

    schema: Literal["mpprof.memory/1"]
    run: str
    baseline: str
    memory: Annotated[Memory | None, "As in the report; null: absent has the reason."]
    unlike: Annotated[list[str], "Differences other than precision, which leave the saving unknown."]
    absent: Annotated[dict[str, str], "By the name of a key: why it is not known."]


class MemoryItem(TypedDict):
    by: Literal["dtype", "op", "layer", "kind"]
    name: str
    bytes: int
    estimated: NotRequired[
        Annotated[bool, "True: no event tells, it follows from memory.states_from. Left out where measured."]
    ]
    assigned: NotRequired[
        Annotated[
            bool,
            "True: no event states it, but XLA's buffer assignment of the program that took the memory does. "
            "Left out otherwise.",
        ]
    ]


class Allocator(TypedDict):
    name: str
    where: Literal["device", "host"]
    peak_bytes: Annotated[int, "Within the trace."]
    lifetime_peak_bytes: Annotated[int | None, "By its own count, since it was made."]
    capacity_bytes: int | None
    events: Count


class Tensor(TypedDict):
    kind: Kind
    op: str
    layer: str
    dtype: str
    shape: str
    count: Count
    bytes: Annotated[int, "Of all of them."]
    born_ns: Annotated[int, "When the first was allocated, on the trace's clock."]
    life_ns: Annotated[int | None, "Until the last was freed; null: it outlives the trace."]
    assigned: NotRequired[Annotated[bool, "True: by XLA's buffer assignment. Left out otherwise."]]


class HeldAcross(TypedDict):
    op: str
    layer: str
    dtype: str
    count: Count
    bytes: int


class Course(TypedDict):
    time_ns: Annotated[list[int], "On the trace's clock: the fullest moment of each of up to 240 stretches."]
    total_bytes: list[int]
    parts: Annotated[
        dict[str, dict[str, list[int]]],
        'By "kind" and "dtype": the parts of one division sum to total_bytes at every moment.',
    ]


class DriverSaving(TypedDict):
    bytes: int
    baseline_bytes: int
    saved_bytes: Annotated[int, "baseline_bytes - bytes."]
    peak_saved_bytes: Annotated[int, "What the allocator's recorded peak fell by."]
    hidden_bytes: Annotated[int, "Of peak_saved_bytes, what the driver's figure does not show."]
    unused_bytes: Annotated[int, "In use by the driver's figure beyond the allocator's recorded peak."]
    code: NotRequired[Annotated[Code, "Why the driver's figure hardly fell. Left out where it fell too."]]


class MemoryCause(TypedDict):
    code: Code
    bytes: int


class Finding(TypedDict):
    code: Annotated[Code, "Stable: `mpprof explain CODE`."]
    slug: str
    title: str
    severity: Severity
    confidence: Confidence
    cost_ns_per_step: Number | None
    cost_bytes: int | None
    spare_bytes: NotRequired[
        Annotated[int, "Memory that is free, or taken in advance and not used. Left out where it is neither."]
    ]
    gap_ratio: Annotated[
        Number | None, "What it explains over gap_ns; above 1 where other parts gained time."
    ]
    evidence: list[Evidence]
    remedy: str
    remedies: NotRequired[Annotated[list[Remedy], "What `remedy` says, one by one."]]
    dismissed: NotRequired[
        Annotated[str, "Why the project dismisses it, by its bounds file; left out of any other finding."]
    ]
    whatif_step_ns: Annotated[Number | None, "The step once it is remedied."]
    summary: Annotated[str, "One sentence with the numbers in it; may be empty."]
    layers: list[str]
    lost_ratio: NotRequired[
        Annotated[Number | None, "What it explains of the time lost against the reach: 0 to 1."]
    ]
    gain_ns_per_step: NotRequired[
        Annotated[
            Number | None,
            "What its remedy gains of a step after those before it in whatif.order, by which findings are "
            "ordered; null: no part of that plan.",
        ]
    ]
    recovers_ns_per_step: NotRequired[
        Annotated[
            Number | None,
            "Of the gain, what this run lost against the attainable step: the sum over all findings and "
            "speedup.unexplained_ns are the step less the attainable one.",
        ]
    ]

    cost_ns_in_window: NotRequired[
        Annotated[
            Number,
            "What it costs of the whole window, where no step can be told apart (cost_ns_per_step null). "
            "Left out elsewhere.",
        ]
    ]


class Evidence(TypedDict):
    name: str
    value: Annotated[Reading | str | bool | None, "Measured."]
    unit: Annotated[str, "ns, bytes, ratio, count, speedup, text, ..."]
    limit: Annotated[Reading | str | None, "What the value was held against."]


class Remedy(TypedDict):
    text: str
    snippet: Annotated[str | None, "Code to copy, Python or shell."]
    other_type: NotRequired[
        Annotated[
            bool,
            "It changes the type to compute in: what other remedies gain, they gain in this run's type.",
        ]
    ]


class Unable(TypedDict):
    code: Code
    reason: str


class NotApplicable(TypedDict):
    code: Code
    reason: str


class WhatIf(TypedDict):
    order: list[WhatIfStep]
    best_step_ns: Number
    floor: Floor
    subsets_ns: NotRequired[
        Annotated[
            list[Number],
            "The step with each subset of the first six remedies of `order`, at the index whose bit k says "
            "that remedy k is in it.",
        ]
    ]


class WhatIfStep(TypedDict):
    code: Code
    step_ns: Annotated[Number, "The step with this remedy and all before it."]
    gain_ns: Number
    hidden_ns: Annotated[Number, "What of its gain stays hidden behind the host."]


class Floor(TypedDict):
    by: Literal["host", "device"]
    host_ns: Number | None


# --- mpprof.compare/1 --------------------------------------------------------------------------------------


class Comparison(TypedDict):
    """Two runs, or a ladder of many in the order given. `runs` are reports of schema mpprof.report/1."""

    schema: Literal["mpprof.compare/1"]
    runs: Annotated[list[Report], ("minItems", 2)]
    steps: list[Rung]
    kernels: list[KernelChange]
    batches: NotRequired[
        Annotated[
            list[Batches],
            "Runs of one model and type at several batch sizes, smallest first: what their step times tell.",
        ]
    ]


_RungEnds = TypedDict(  # `from` cannot be an attribute's name
    "_RungEnds", {"from": Annotated[Count, "Row of `runs`."], "to": Annotated[Count, "Row of `runs`."]}
)
FromTo = TypedDict("FromTo", {"from": Number | None, "to": Number | None})


class Rung(_RungEnds):
    observed: Number | None
    expected: Number | None
    interval: Interval | None
    slices: list[GapSlice]
    findings: list[Finding]
    expected_with_host: Number | None
    ceiling: Number | None
    gap_ns: Number | None
    unexplained_ns: Number | None
    labels: Annotated[list[str], "In which respects the two are unlike; empty: comparable."]
    refused: Annotated[str | None, "Why they cannot be compared."]
    absent: dict[str, str]
    per_example: NotRequired[Annotated[bool, "The batches differ: times are compared per example."]]
    examples_per_s: NotRequired[FromTo]
    lost_ns: NotRequired[
        Annotated[
            Number | None,
            "What parts of the step take above their reach: gap_ns = lost_ns - gained_ns.",
        ]
    ]
    gained_ns: NotRequired[Annotated[Number | None, "What other parts take below it."]]
    above_attainable_ns: NotRequired[
        Annotated[Number | None, "This run's step less that at expected_with_host, else at expected."]
    ]
    how_to_switch: NotRequired[
        Annotated[list[Remedy], "Mixed precision on: of a float32 run that 16 bits may make faster."]
    ]
    cards: NotRequired[Annotated[str | None, "What two different cards can do at their peaks."]]
    explanation: NotRequired[
        Annotated[Sentences, "Up to three sentences on the later run against the earlier."]
    ]
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
        "Applied: the records or the trace show it; gone: the cause is, and nothing shows what was done; "
        "less: the cause remains and costs clearly less; not seen: none of these.",
    ]
    cause_after: Annotated[CauseAfter, "Whether the later run's report finds the cause."]
    evidence: Annotated[list[str], "What shows that it was applied."]
    predicted_ns: Annotated[Interval, "Its gain per step at best: in the plan, and alone."]
    obtained_ns: Annotated[Number | None, "By how much less the parts that the cause claimed take per step."]
    interval_ns: Annotated[
        Interval | None,
        "95 % of obtained_ns, as if all scatter of the profiled steps and all that the profiler adds were of "
        "these parts.",
    ]
    reason: Annotated[str | None, "Why something of it is not known."]
    counted: Annotated[
        bool, "In remedies_total: applied, or between runs of one precision also gone or less."
    ]


class RemediesTotal(TypedDict):
    predicted_ns: Interval
    obtained_ns: Annotated[Number | None, "The earlier step less the later one."]
    interval_ns: Annotated[Interval | None, "95 %, from the intervals of both medians."]


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
        "Both ran as many matrix kernels of each family, and are taken for the same amount of work. null: "
        "neither ran any.",
    ]
    decides: Annotated[
        Literal["waiting", "device", "both"],
        "What most of both windows is; both: the one is mostly waiting, the other mostly work.",
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


# --- the timeline, for the page ---------------------------------------------------------------------------


class Roofs(TypedDict):
    """What a card can do at its peaks, for the roofline. Rates by precision; "fp32_cuda" and the like are of
    ordinary arithmetic."""

    card: str
    flops_per_s: dict[str, Number]
    bandwidth_bytes_per_s: Number | None
    source: str


class Timeline(TypedDict):
    """A window of what ran when, merged to the width of a drawing. Times are from the first step's start."""

    steps: list[TimelineStep]
    step: Annotated[int, "Row of `steps` that is shown; the window may be wider or narrower."]
    median: int
    slowest: int
    from_ns: int
    to_ns: int
    keys: Annotated[list[str], "What an instant was spent on."]
    names: Annotated[list[str], "Names of kernels."]
    lanes: list[TimelineLane]
    colour: NotRequired[Annotated[str, "placement, precision, layer or class"]]
    found: NotRequired[Annotated[int, "Events of the device in all steps that were searched for."]]
    waits: NotRequired[Annotated[list[TimelineWait], "What the device waited for in the window, most first."]]


class TimelineWait(TypedDict):
    key: str
    total_ns: Annotated[int, "Within the window."]
    start_ns: Annotated[int, "Of the longest wait, which may begin before the window."]
    end_ns: int


class TimelineStep(TypedDict):
    number: Annotated[int | None, "The step's number, where the trace gives one."]
    start_ns: int
    end_ns: int


class TimelineLane(TypedDict):
    """Columns of intervals. A merged one begins at its pixel."""

    name: str
    kind: Literal["device", "host", "stream", "thread"]
    start_ns: list[int]
    length_ns: list[int]
    key: Annotated[list[int], "Row of `keys`."]
    label: Annotated[list[int], "Row of `names`; -1: no kernel."]
    row: Annotated[list[int], "Of the kernel, for `kernel`; -1: no kernel."]
    count: Annotated[list[int], "How many events it stands for."]
    found: NotRequired[Annotated[list[int], "How many of them were searched for."]]


class KernelDetails(TypedDict):
    """One kernel as it ran once."""

    row: NotRequired[Annotated[int, "Of the trace's kernel table."]]
    name: str
    start_ns: Annotated[int, "From the first step's start."]
    duration_ns: int
    stream: str | None
    op: str | None
    layer: str | None
    phase: Phase
    shapes: str | None
    details: Annotated[str | None, "Grid, block, registers, as the trace states them."]
    placement: Placement
    precision: Precision
    reason: Reason
    launched_by: str | None
    launch_to_start_ns: Annotated[int | None, "From the launch's begin to the kernel's start."]
    matrix: Annotated[bool, "Whether it is matrix work."]


# --- rows of the tables ------------------------------------------------------------------------------------

Row = Mapping[str, Any]
"""A row of any table, for what goes by the names of its columns (`report.tables.KEYS`)."""


class Reason(TypedDict):
    code: str
    text: str


class KernelRow(TypedDict):
    """A row of `mpprof kernels`: a kernel name of one op, with one verdict on where it ran."""

    device: str
    name: str
    op: str | None
    layer: str | None
    placement: Placement
    precision: Precision
    family: Family | None
    reason: Reason
    calls: int
    total_ns: int
    ratio: float
    strength: Strength
    flops_per_s: float | None
    stream: NotRequired[str]


class Eligibility(TypedDict):
    """Whether the matrix work of an op could use Tensor Cores, and why not; None for an op without any."""

    eligible: Literal["did", "could", "could_never", "unknown"] | None
    eligible_reason: Reason | None


class Rates(TypedDict):
    """How fast an op was; None for what shapes or the card's peaks do not tell."""

    flops_per_call: float | None
    bytes_per_call: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    roofline_ratio: float | None
    bound: Literal["compute", "memory"] | None


class OpRow(Eligibility, Rates):
    """A row of `mpprof ops`."""

    device: str
    op: str | None
    type: str | None
    layer: str | None
    phase: Phase
    calls: int
    total_ns: int
    ratio: float
    matmul_ns: int
    tensor_core_ratio: float | None
    placement: Placement
    precision: Precision
    placement_ns: dict[Placement, int]
    precision_ns: dict[Precision, int]
    spans: NotRequired[list[Span]]
    stream: NotRequired[str]


class Span(TypedDict):
    layer: str | None
    ratio: float


_LayerClass = TypedDict("_LayerClass", {"class": str | None})


class LayerRow(_LayerClass):
    """A row of `mpprof layers`."""

    device: str
    layer: str | None
    compute_dtype: str | None
    calls: int
    total_ns: int
    ratio: float
    forward_ns: int
    backward_ns: int
    other_ns: int
    matmul_ns: int
    tensor_core_ratio: float | None
    fused_ns: int
    shared_ns: NotRequired[int]
    layers: NotRequired[list[str]]
    stream: NotRequired[str]


class SurveyRow(TypedDict):
    """One run. Null: not known, or there is none; `problem` says why a run could not be analysed."""

    run: str
    path: str
    id: str | None
    baseline: str | None
    policy: str | None
    card: str | None
    gpus: int | None
    batch_size: int | None
    step_ns: float | None
    examples_per_s: float | None
    speedup: float | None
    attainable_low: float | None
    attainable_high: float | None
    estimated: bool
    tensor_core_ratio: float | None
    unknown_ratio: float | None
    skipped_ratio: float | None
    peak_memory_bytes: int | None
    cause: str | None
    cause_slug: str | None
    cause_gain_ns: float | None
    lost_ratio: float | None
    lost_by: str | None
    lost_gpu_hours_per_day: float | None
    one_step: bool
    warnings: int
    problem: str | None
