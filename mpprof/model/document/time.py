"""The account of a step, or of a whole window, and the share of Tensor Cores."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.document.findings import Remedy
from mpprof.model.document.values import Classed, Count, Number
from mpprof.model.kernels import Family, Placement, Precision


class AccountOf(TypedDict):
    basis: Annotated[
        Literal["step", "window"] | None,
        "step: see `time`. window: `time` is null, see `window`; costs of findings are of the whole window. "
        "null: neither is known, see absent.time.",
    ]


class Window(TypedDict):
    """Times are of the whole window: none is per step."""

    basis: Annotated[Literal["device", "host"], "host: ops on the host's threads, no accelerator."]
    span_ns: Annotated[Number, "From the first to the last work on any device."]
    busy_ns: Annotated[Number, "Of it, the time in which the main device worked."]
    idle_ns: Annotated[Number, "span_ns - busy_ns."]
    kernel_ns: Annotated[
        Number,
        "Sum of the durations of the main device's kernels, also of those that ran at once; without copies.",
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


class Time(TypedDict):
    basis: Annotated[
        Literal["wall", "window", "device", "host"],
        "What step_ns rests on: steady unprofiled steps (wall), the profiler window (window, device), or ops "
        "on the host's threads (host: no accelerator).",
    ]
    step_ns: Annotated[
        Number,
        "The step: function_ns plus idle_between_steps_ns, where they are known, plus the slice idle_stall.",
    ]
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
        Annotated[
            Number, "From its beginning to the return of its last launch, without waits for the device."
        ]
    ]
    waited_ns: NotRequired[
        Annotated[Number, "How long the host then waited for the device, once that call had returned."]
    ]
    wall_ns: Annotated[Number | None, "The recorded step, unprofiled: `steps.mean_ns`."]
    window_ns: Annotated[Number, "The mean profiled step."]
    device_ns: Annotated[Number, "Busy time of the main device per step."]
    slices: Annotated[list[Slice], "Of the main device; classes without time are left out."]
    devices: Annotated[list[Device], "All of them, the main device first."]
    device: Annotated[str, "The main device, as the trace names it."]
    unit: NotRequired[
        Annotated[
            Literal["step", "pass", "part"],
            "What every step of this account is: a step of a training; a pass of a module or program without "
            "backward or optimizer work; or a part that repeats, which may be a layer. Left out: a step.",
        ]
    ]
    unit_name: NotRequired[Annotated[str, "The module, program or range that one pass is of."]]
    ranges: NotRequired[
        Annotated[
            list[RangeOfTrace], "Ranges that may be steps, most launches first, where `unit` is no step."
        ]
    ]
    window_steps: Annotated[Count, "Whole steps in the profiler window."]
    step_source: Annotated[str, "How steps were found."]
    step_range: NotRequired[
        Annotated[str, "The ranges that the user named as steps; left out where none were named."]
    ]
    notes: Annotated[list[str], "What was left out or shifted."]
    unlike: NotRequired[
        Annotated[
            str,
            "Why the profiled steps are not representative; left out where they are. Shares are then of the "
            "profiled step: without `profiling` the slices sum to it.",
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


class WindowSlice(Classed):
    ns: Annotated[Number, "Time of this class alone; of comm and copy the exposed."]
    ratio: Annotated[Number, "Of the window's span."]
    hidden_ns: Annotated[Number, "Time of this class behind work of a class that goes first; in no sum."]
    by: Annotated[list[WindowShare], "Only of matmul: parts that sum to the slice."]
    causes: Annotated[list[WindowCause], "Only of idle classes: what is known of parts of it."]
    pooling_ns: NotRequired[Annotated[Number, "Only of elementwise work: its part that pools."]]


class Slice(Classed):
    ns_per_step: Annotated[
        Number,
        "Time that belongs to this class alone. The slices sum to the step within 1 ns; `profiling` and "
        "`idle_stall` may be negative.",
    ]
    ratio: Annotated[Number | None, "Of the sum of the slices that take time; null for one that is negative."]
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
    longest_hidden: NotRequired[Annotated[HiddenWork, "The op, else the kernel, with the most hidden time."]]


class HiddenWork(TypedDict):
    name: Annotated[str, "The op, else the kernel."]
    ns_per_step: Annotated[Number, "How long it ran behind other work."]


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
        Annotated[
            Number,
            "The share of matrix time whose placement hardware counters decided. Left out where none were "
            "read.",
        ]
    ]
    of: NotRequired[
        Annotated[
            Literal["window"],
            "No step can be told apart: the times are of the whole profiler window. Left out where they are "
            "of a step.",
        ]
    ]
    unit: NotRequired[Annotated[Placement, "Beside `of`: which matrix unit it is a share of."]]
