"""The account of a step, its cells, and the gap between two runs: numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY
from typing import Annotated, Literal, get_args

from mpprof.model.answer import Remedy
from mpprof.model.frozen import frozen
from mpprof.model.kernels import COMPUTE_DTYPES, MATMUL_FAMILIES, Family, Placement, Precision
from mpprof.model.quantities import format_ratio
from mpprof.model.trace import HloInstruction
from mpprof.model.written import HIDDEN, LATER, LEFT_OUT, After, If, Interval, Key, Ns

Class = Literal[
    "matmul", "norm", "elementwise", "reduce", "gather_scatter", "cast", "layout",
    "optimizer", "loss_scale", "other", "unknown", "comm", "copy",
    "idle_input", "idle_launch", "idle_sync", "idle_compile", "idle_between_steps", "idle_stall",
    "idle_other", "profiling",
]  # fmt: skip
Phase = Literal["forward", "backward", "optimizer", "loss_scale", "input", "other"]
Basis = Literal["wall", "window"]
StepUnit = Literal["step", "pass", "part", "window"]
"""What a "step" of the account is: one of a training; a pass of a module or a program that does not train; a
part that repeats, which may be a layer as well as a pass; or the whole window."""
ComputeKind = Literal["16-bit", "partly 16-bit", "float32", "float64", "unknown"]
ComputeEvidence = Literal["policy", "inputs", "kernels", "nothing"]
TraceBasis = Literal["device", "host"]

CLASSES: tuple[Class, ...] = get_args(Class)
PHASES: tuple[Phase, ...] = get_args(Phase)
IDLE_CLASSES: tuple[Class, ...] = tuple(c for c in CLASSES if c.startswith("idle_"))
SHOWN_AS: dict[Class, str] = {
    "norm": "norm", "reduce": "reduce", "elementwise": "elementwise", "gather_scatter": "elementwise",
    "cast": "cast", "layout": "cast", "optimizer": "rest", "loss_scale": "rest", "other": "rest",
    "comm": "copy", "copy": "copy", "unknown": "unknown", "profiling": "unknown",
    **dict.fromkeys(IDLE_CLASSES, "wait"),
}  # fmt: skip
"""What a picture and its sentence show as one, of all classes but matrix work."""

_ROLES: dict[Family, Class] = {
    "norm": "norm", "softmax": "elementwise", "pool": "elementwise", "elementwise": "elementwise",
    "random": "elementwise", "fusion": "elementwise", "reduce": "reduce", "gather_scatter": "gather_scatter",
    "cast": "cast", "layout": "layout", "optimizer": "optimizer", "loss_scale": "loss_scale",
    "memset": "copy", "copy": "copy", "comm": "comm", "mpprof": "profiling", "other": "other",
}  # fmt: skip
_OF_PHASE: dict[Phase, Class] = {"optimizer": "optimizer", "loss_scale": "loss_scale"}
_ANYWHERE: frozenset[Class] = frozenset(("matmul", "comm", "copy", "profiling"))
"""Roles that the phase does not change: a matmul of the optimizer is matrix work."""


def class_of(family: Family, placement: Placement, phase: Phase) -> Class:
    """Return the class of a kernel: the role of its work in the step.

    By family, but work of the optimizer and of loss scaling by its phase. `unknown` is what neither name,
    op nor phase tells anything about. A fusion whose parts are not known counts as elementwise; clearing
    memory counts as a copy."""
    if family in MATMUL_FAMILIES:
        return "matmul"
    category = _ROLES[family]
    if category in _ANYWHERE:
        return category
    if phase in _OF_PHASE:
        return _OF_PHASE[phase]
    if family in ("other", "fusion") and placement == "unknown":
        return "unknown"
    return category


@frozen
class Cell:
    """The finest part of the account: one kernel name of one op with the same shapes, in one class.

    `ns_per_step` is the time that belongs to this cell alone (instants shared by streams are split), so the
    cells of a device sum to its step. Idle classes have one cell for each `cause` (None: the class says all,
    or of `idle_other` the trace does not show it) and `profiling` has one, with no kernel.
    `busy_ns_per_step` is the plain sum of durations, hidden time included. `layer` is one even
    where a fusion works for several: that of its matrix work, else of most of its work. `candidates`: where
    the layer is not known, all those of which it is one; () where they are not known either.
    `calls_per_step` are those that begin in the steps; `shares_per_step` counts each by the share of its time
    that lies in them (None: all of it), and so do operations and bytes. `held_ns_per_step` is the part of the
    cell's own time over communication that goes on after it: without the cell that ends no earlier.
    """

    category: Class
    ns_per_step: float
    busy_ns_per_step: float = 0.0
    calls_per_step: float = 0.0
    kernel: str | None = None
    op: str | None = None
    op_type: str | None = None
    layer: str | None = None
    phase: Phase = "other"
    family: Family | None = None
    placement: Placement | None = None
    precision: Precision | None = None
    reason_code: str | None = None
    shapes: str | None = None
    flops_per_step: float | None = None
    bytes_per_step: float | None = None
    cause: str | None = None
    inputs: Precision | None = None  # of matrix work: the type of its op's inputs; None: not stated
    hlo: HloInstruction | None = None  # its op's; None: not stated
    candidates: tuple[str, ...] = ()
    shares_per_step: float | None = None
    held_ns_per_step: float = 0.0

    @property
    def done_per_step(self) -> float:
        """What operations and bytes are of: whole calls, and the shares of those at the edge of the steps."""
        return self.calls_per_step if self.shares_per_step is None else self.shares_per_step


BUSY_RATIO = 0.03
"""Kernels above this share of a device's time are named with what they reach."""


@frozen
class BusyKernel:
    """A kernel of the main device, all its calls in a step, or in the window, together."""

    name: str
    ns_per_step: Annotated[Ns, "Sum of durations."]
    ratio: Annotated[float, "Of the durations of all the device's work, copies included."]
    calls_per_step: float
    flops_per_s: Annotated[
        float | None, "As the direct algorithm counts operations; null where shapes do not show it."
    ]
    bytes_per_s: Annotated[
        float | None, "Operands read once, results written once; null where shapes do not show it."
    ]
    peak_ratio: Annotated[
        float | None,
        "Of the device's peak by `bound`; null where the rate or the peak is not known, or the rate as "
        "counted is above the peak.",
    ]
    bound: Annotated[
        Literal["compute", "memory"],
        "Which of the two rates is the nearer to its peak; by what the kernel does where no peak is known.",
    ]
    reason: Annotated[
        str | None,
        LEFT_OUT,
        "Why there is no rate although the trace states shapes: they fit several products.",
    ] = None


@frozen
class MatmulShare:
    """Part of the matmul slice by where it ran and in what precision."""

    placement: Placement
    precision: Precision
    ns_per_step: Ns
    transforms_ns_per_step: Annotated[
        Ns,
        LATER,
        "Of it, Winograd, FFT and im2col transforms of convolutions: helpers that multiply nothing.",
    ] = 0.0


@frozen
class IdleCause:
    cause: Annotated[str, "What the device waited for."]
    ns_per_step: Ns


@frozen
class HiddenWork:
    name: Annotated[str, "The op, else the kernel."]
    ns_per_step: Annotated[Ns, "How long it ran behind other work."]


@frozen
class Slice:
    """One class of the account."""

    category: Annotated[Class, Key("class")]
    ns_per_step: Annotated[
        Ns,
        "Time that belongs to this class alone. The slices sum to the step within 1 ns; `profiling` and "
        "`idle_stall` may be negative.",
    ]
    ratio: Annotated[float, "Of the sum of the slices that take time; negative as its time is."]
    hidden_ns_per_step: Annotated[
        Ns, "Time of this class behind work of a class that goes first; in no sum."
    ] = 0.0
    by: Annotated[tuple[MatmulShare, ...], "Only of matmul: parts that sum to the slice."] = ()
    causes: Annotated[
        tuple[IdleCause, ...],
        LATER,
        "Only of idle classes: what is known of parts of it; of the rest of idle_other nothing is known.",
    ] = ()
    pooling_ns_per_step: Annotated[Ns, LEFT_OUT, "Only of elementwise work: its part that pools."] = 0.0
    longest_hidden: Annotated[
        HiddenWork | None, LEFT_OUT, "The op, else the kernel, with the most hidden time."
    ] = None


@frozen
class KernelCalls:
    """How many kernels a device runs per step, how long the median one of them takes, and how long all do
    together; how many copies and fills there are beside them."""

    per_step: float
    median_ns: float
    ns_per_step: float
    copies_per_step: float = 0.0


FEW_WORKS = 10
"""Fewer kernels and copies than any step of a training has: a window of so few shows none of one."""


@frozen
class DeviceAccount:
    """The step of one device. The slices (in the order of CLASSES, zero ones left out) sum to `step_ns`.
    `calls` is None where no kernel starts in it."""

    device: str
    step_ns: Ns
    busy_ns: Annotated[Ns, After("slices")]
    steps: Annotated[int, HIDDEN]
    slices: tuple[Slice, ...]
    cells: Annotated[tuple[Cell, ...], HIDDEN]
    calls: Annotated[KernelCalls | None, HIDDEN] = None
    host: Annotated[str | None, LEFT_OUT, "Of a run on several hosts."] = None


@frozen
class Between:
    """What the loop and its callbacks do between two steps, per step, under a plain name; the device's work
    also where it still runs in the step."""

    name: Annotated[str, "In plain words, with the names of the events behind it."]
    host_ns: Annotated[Ns, "On the host between two steps."]
    device_ns: Annotated[Ns, "Of the device's work launched there."]


@frozen
class HostPath:
    """What the host does in a step, per step: how long the call of the training function takes (`call_ns`),
    when its last launch returns, waits for the device left out (`launched_ns`), and the device's work from
    the last kernel on that waited for its launch (`queued_ns`): only that work's time is the step's.
    `ahead_ns`: how much longer the device works once the last launch has returned, in a step that began with
    an empty queue; 0 in others. `waited_ns`: how long the host waited for that work once the call had
    returned."""

    call_ns: float
    launched_ns: float
    queued_ns: float
    ahead_ns: float = 0.0
    waited_ns: float = 0.0


@frozen
class ProfiledStalls:
    """Steps of the window that stalled as others of the run did, and that the account leaves out: how many,
    and the share of what they take above the others in which the device waited for input."""

    count: int
    waits_ratio: float


@frozen
class Spread:
    """Steps of one window that differ so much that their mean says little of any of them."""

    shortest_ns: Ns
    median_ns: Ns
    longest_ns: Ns


@frozen
class Account:
    """The account of a run.

    `step_ns` is the wall time where steps were recorded (`basis` "wall"), else the window's ("window");
    `trace_basis` "host" for a run without an accelerator plane. `main` is the device with the longest
    busy time; its slices include `profiling`, the others' are of their window alone. `notes` say what was
    left out or shifted (cut steps, clock shift).

    `function_ns` is the usual step without what lies between two steps (`between_ns`): with `idle_stall`, by
    which steps take longer in the mean, `step_ns` is their sum. `grouped`: the records time several steps
    together, so that `idle_stall` holds what profiling adds, too.
    `absent` gives the reason where one of them, or what lies between (`between`), is None.

    `of` "window": no step can be told apart, and what stands for a step is all from the first to the last
    work on any device. Times "per step" are of that window, `steps` is empty, `absent["step_ns"]` says why.
    """

    basis: Basis
    trace_basis: TraceBasis
    step_ns: float
    wall_ns: float | None
    window_ns: float
    device_ns: float  # busy time of the main device per step
    main: DeviceAccount
    devices: tuple[DeviceAccount, ...]  # all of them, main first
    steps: tuple[int, ...]  # step numbers of the whole steps in the window, -1 where unnumbered
    step_source: str  # how steps were told apart: "function", "mpprof", "keras", "group", "period", ...
    notes: tuple[str, ...] = ()
    host_ns: float | None = None  # what the host needs per step, hidden or not; None: the trace does not tell
    function_ns: float | None = None
    between_ns: float | None = None
    between: tuple[Between, ...] | None = None
    absent: dict[str, str] | None = None  # field -> reason
    numbered: str = ""  # whose markers number the steps: "mpprof", "keras", ...; "" where none does
    lengths_ns: tuple[float, ...] = ()  # of each of `steps`, per optimizer step
    of: Literal["step", "window"] = "step"
    unit: StepUnit = "step"
    unit_name: str = ""  # whose pass it is; "" of others
    host_path: HostPath | None = None  # None: no calls and launches tell
    profiled: DeviceAccount | None = (
        None  # the main device in the window's own time, as the other devices are
    )
    tuned_steps: int = 0  # of the window, left out: a library tried out algorithms in them
    usual_ns: float | None = None  # the median unprofiled step; None: it is not told from the mean
    grouped: bool = False
    stalled: ProfiledStalls | None = None  # None: none, or it cannot be told whether they are like others

    @property
    def unprofiled_ns(self) -> float | None:
        """What a profiled step is compared with: the median unprofiled step, which no stall makes longer;
        None where none was recorded."""
        return self.wall_ns if self.usual_ns is None else self.usual_ns

    @property
    def too_little(self) -> bool:
        """A window, not a step, that holds too little work to tell anything of a training by."""
        calls = self.main.calls
        if self.of == "step" or self.trace_basis == "host" or calls is None:
            return False
        return calls.per_step + calls.copies_per_step < FEW_WORKS

    @property
    def one_step(self) -> bool:
        """The window holds a single step, which may not be representative: from it follow ranges alone."""
        return len(self.steps) == 1

    @property
    def added_by_profiling_ns(self) -> float:
        """By how much a step's function is longer in the window than without the profiler; 0 where it is not
        longer, or where no unprofiled step is known. What profiling adds between two steps is not in it."""
        signed = ("profiling", "idle_stall") if self.grouped else ("profiling",)
        return max(0.0, -sum(cell.ns_per_step for cell in self.main.cells if cell.category in signed))


@frozen
class TensorCoreShare:
    """How much of the matrix time ran on matrix units: never by NVIDIA's name for another's `unit`. Where no
    step can be told apart, the whole window stands for one: `of` says so."""

    matmul_ns_per_step: Ns
    ratio: Annotated[float | None, "Of matrix time."]
    reason: Annotated[str | None, "Why there is no ratio."]
    by_precision: Annotated[dict[Precision, Ns], "Nanoseconds per step on matrix units."]
    fallback_ns_per_step: Annotated[Ns, "Matrix work on ordinary arithmetic."]
    unknown_ratio: Annotated[float, "Of the device's kernel time."]
    verified_ratio: Annotated[
        float | None,
        LEFT_OUT,
        "The share of matrix time whose placement hardware counters decided. Left out where none were read.",
    ] = None
    of: Annotated[Literal["step", "window"], HIDDEN] = "step"
    unit: Annotated[Placement, If("of_window"), "Beside `of`: which matrix unit it is a share of."] = (
        "tensor_core"
    )

    @property
    def of_window(
        self,
    ) -> Annotated[
        Literal["window"] | None,
        Key("of"),
        After("verified_ratio"),
        LEFT_OUT,
        "No step can be told apart: the times are of the whole profiler window. Left out where they are of a "
        "step.",
    ]:
        """Says that the times are of the whole window; None where they are of a step."""
        return "window" if self.of == "window" else None

    @property
    def products_ns(self) -> float:
        """The time that `ratio` is of, without helpers; the matrix time where none of it ran on units."""
        return sum(self.by_precision.values()) / self.ratio if self.ratio else self.matmul_ns_per_step


PRECISION_NOT_KNOWN = "precision not known"


@frozen
class ComputePrecision:
    """What a run computes in, and what tells it.

    `beside` is the 16-bit type of the other work, where no matrix work was seen that would tell.
    """

    kind: ComputeKind
    dtype: Annotated[str | None, "The 16-bit type, else the wide one; null: not known."]
    by: Annotated[
        ComputeEvidence,
        "The recorded policy, the input types of the matrix ops, or the share of matrix kernel time.",
    ]
    reason: Annotated[str, After("text")]
    ratio: Annotated[
        float | None,
        After("by"),
        "The share of matrix time in 16 bits or less; null: other evidence decided.",
    ] = None
    beside: Annotated[str | None, HIDDEN] = None
    in_float8: Annotated[str | None, HIDDEN] = None  # "float8 in 62.0 % of the matrix time"; None: nothing is

    @property
    def precision(self) -> Precision | None:
        """The precision that `dtype` stands for; None where that is not known."""
        return COMPUTE_DTYPES.get(self.dtype or "")

    @property
    def narrow(self) -> bool:
        """All or part of the matrix work is in 16 bits or less."""
        return self.kind in ("16-bit", "partly 16-bit")

    @property
    def words(self) -> Annotated[str, Key("text"), After("ratio"), "For people."]:
        """What it computes in, for people: "float16", "partly in float16 (30.0 % of the matrix time)"."""
        if self.kind == "unknown":
            return f"no matrix work seen, other work in {self.beside}" if self.beside else PRECISION_NOT_KNOWN
        narrower = f", {self.in_float8}" if self.in_float8 else ""
        if self.kind != "partly 16-bit":
            return f"{self.dtype or '16 bits or less'}{narrower}"
        share = f" ({format_ratio(self.ratio)} of the matrix time)" if self.ratio is not None else ""
        return f"partly in {self.dtype or '16 bits or less'}{share}{narrower}"


@frozen
class GapSlice:
    """Where the comparison's gap lies: `m_c - b_c / r_c - added_c` of one role (and layer, where matched).

    `added_ns`: casts of weights and round float32 norms, and loss-scale bookkeeping, which the baseline does
    not have."""

    category: Annotated[Class, Key("class")]
    layer: Annotated[
        str | None,
        "Of a kernel for several layers the one of its matrix work, else of most of its work.",
    ]
    ns_per_step: Annotated[Ns, "now - baseline / ratio; the slices sum to the gap."]
    baseline_ns: Ns
    mixed_ns: Ns
    ratio: Annotated[float, "The attainable ratio for this class on this device."]
    ratio_source: str
    added_ns: Annotated[Ns, LATER, "Work that 16 bits add to every healthy run; not part of the gap."] = 0.0


LimitKind = Literal["float32", "memory", "tf32", "compute", "short", "wait", "same", "host"]


@frozen
class Limit:
    """Part of the attainable step: of one class, with why it becomes no shorter."""

    category: Annotated[Class, Key("class")]
    kind: Annotated[
        LimitKind,
        "Stays in float32; bound by memory; in TF32 already; matrix work at its best; bound by launching; a "
        "wait; stays the same; the host needs as long.",
    ]
    ns_per_step: Annotated[Ns, "In the float32 step."]
    best_ns: Annotated[Ns, "In the attainable one."]
    ratio: Annotated[float, "Of the float32 step."]
    places: Annotated[tuple[tuple[Placement, float], ...], HIDDEN] = ()
    """Of matrix work: where it runs at best, and for how many ns; empty: not known."""


@frozen
class AttainableRange:
    """What mixed precision could make of a float32 run that has no 16-bit twin, or of a pair of which one
    step was profiled."""

    low: float
    high: float
    eligible_ratio: Annotated[
        float | None,
        "Share of the float32 run's device time that could use matrix units in 16 bits; null where the trace "
        "shows no work of the device, and for a measured pair.",
    ]
    assumptions: tuple[str, ...]
    limits: Annotated[tuple[Limit, ...], HIDDEN] = ()
    tf32_ratio: Annotated[float | None, LEFT_OUT, "Of it, what matrix units do in TF32 already."] = None


NO_WORK_SEEN = "the trace shows no work of the device"


def eligible_words(ratio: float | None, tf32_ratio: float | None, *, units: str) -> str:
    """Return how much of the device's time is work that matrix units could do in 16 bits, and how much of
    that they do in TF32."""
    if ratio is None:
        return NO_WORK_SEEN
    if ratio <= 0.0:
        return f"nothing that the device does could use {units}"
    if not tf32_ratio:
        return f"{format_ratio(ratio)} of the device's time could use {units}"
    already = "all" if tf32_ratio >= ratio else format_ratio(tf32_ratio / ratio)
    return (
        f"{format_ratio(ratio)} of the device's time is matrix work that could be in 16 bits "
        f"({already} of it runs on {units} in TF32 already)"
    )


@frozen
class ClassLaunches:
    category: Annotated[Class, Key("class")]
    baseline: Annotated[Ns, "Kernels and copies per step."]
    mixed: Ns


@frozen
class Launches:
    """What the host launches per step and how long it needs for a step, in both runs, where it limits both:
    then its need is what makes one of them slower."""

    baseline: Annotated[Ns, "Kernels and copies per step of the baseline."]
    mixed: Annotated[Ns, "Kernels and copies per step of this run."]
    baseline_host_ns: Annotated[Ns, "What the host needs for a step of the baseline."]
    mixed_host_ns: Annotated[Ns, "What the host needs for a step of this run."]
    by_class: Annotated[tuple[ClassLaunches, ...], "Where the two differ, the largest difference first."]


@frozen
class EstimatedSpeedup:
    """Without a measured baseline: the range of this run's speedup over what float32 would have taken."""

    low: float
    high: float
    assumptions: tuple[str, ...]


WIDEST_RATIO = 2.0
"""The upper end of an estimate over its lower end from which on it says too little to be shown."""
TOO_WIDE = "the estimate is wider than 2 to 1: the same run in the other precision measures it (--baseline)"


def tells(estimate: AttainableRange | EstimatedSpeedup) -> bool:
    """Return whether an estimated range is narrow enough to be shown; the JSON holds each."""
    return estimate.high <= WIDEST_RATIO * estimate.low


WITHIN_PAIR = "95 % within this pair of runs"
"""What a speedup's interval covers: how much two runs of one script differ is known from repeats alone."""


def covered(*, wide: bool) -> str:
    """Return what the interval of a speedup covers, and that few timings make it wide."""
    return f"{WITHIN_PAIR}{', of few timings' if wide else ''}"


Difference = Literal["faster", "slower", "none", "not known"]

NO_DIFFERENCE_RATIO = 0.05
"""An interval within 5 % of 1 excludes a difference that matters: nobody keeps a second type of numbers, its
loss scale and its risks for less. A wider one that holds 1 excludes nothing."""


def difference(interval: Sequence[float] | None) -> Difference | None:
    """Return what the interval of an observed speedup tells; None without one."""
    if interval is None:
        return None
    low, high = interval
    if low > 1.0:
        return "faster"
    if high < 1.0:
        return "slower"
    return "none" if low >= 1.0 - NO_DIFFERENCE_RATIO and high <= 1.0 + NO_DIFFERENCE_RATIO else "not known"


@frozen
class ProfiledSpeedup:
    """The median profiled step of the baseline over this run's: a second measurement, made under the
    profiler, and without an interval. Only where three steps a side or more agree, on cards that are not
    known to differ, and are as long as the unprofiled ones."""

    ratio: float
    baseline_ns: Ns
    mixed_ns: Ns
    baseline_steps: int
    mixed_steps: int


# What a run reached against another: in a report's `speedup`, and in each step of a comparison.
PairInterval = Annotated[
    Interval | None,
    "95 % confidence, within this pair of runs: how much another run of the same script would differ is "
    "not in it, and known from repeats alone (`mpprof check --repeat`).",
]
FewBlocks = Annotated[
    bool, LATER, "The interval rests on fewer than ten blocks of steps, or timed groups, of a run."
]
Expected = Annotated[float | None, "The attainable speedup on this device."]
WithHost = Annotated[float | None, "The same, with the host's need per step as the floor."]
Ceiling = Annotated[float | None, "By peak rates."]
UnexplainedNs = Annotated[
    Ns | None,
    "What no remedy recovers of above_attainable_ns; without an expectation, of gap_ns.",
]
GapNs = Annotated[Ns | None, "This run's step less the attainable one by the device alone."]
PerExample = Annotated[
    bool, LATER, "The batches differ: the baseline's times are scaled to this run's batch."
]
LostNs = Annotated[
    Ns | None,
    LATER,
    "What parts of the step take above their attainable time: gap_ns = lost_ns - gained_ns.",
]
GainedNs = Annotated[Ns | None, LATER, "What other parts take below their attainable time."]
AboveAttainableNs = Annotated[
    Ns | None, LATER, "This run's step less that at expected_with_host, else at expected."
]
Told = Annotated[
    Difference | None,
    LEFT_OUT,
    "What the interval says of the two steps: `none` where it lies within 5 % of 1, `not known` "
    "where it is wider and holds 1, and without one, unless a few stalls alone leave none, and any "
    "number of them that these allow would not change the sign. Left out where no speedup was observed.",
]


@frozen
class Speedup:
    """Expected and observed. Without a measured baseline `observed` is None and `slices` is empty.

    `gap_ns = step - reach_ns`, and `sum(slices) == gap_ns`. `unexplained_ns` and `above_attainable_ns` are
    set by the diagnosis; without an expectation the former is of the plain difference from the baseline."""

    _: KW_ONLY
    baseline: Literal["measured", "estimated"]
    baseline_id: str | None
    observed: float | None
    interval: PairInterval
    expected: Expected
    expected_with_host: WithHost
    ceiling: Ceiling
    estimated: Annotated[
        EstimatedSpeedup | None, "Estimated, not measured: a range of the speedup over float32."
    ] = None
    slices: tuple[GapSlice, ...]
    unexplained_ns: UnexplainedNs
    baseline_step_ns: Ns | None
    attainable_ns: Annotated[Ns | None, Key("reach_ns"), "The attainable step by the device alone."]
    gap_ns: GapNs
    per_example: PerExample = False
    baseline_dtype: Annotated[str | None, LATER, "What the baseline's records say it computes in."] = None
    limits: Annotated[tuple[Limit, ...], HIDDEN] = ()  # what keeps the attainable speedup low
    above_attainable_ns: AboveAttainableNs = None
    interval_wide: FewBlocks = False
    sure: Annotated[tuple[float, float] | None, HIDDEN] = None  # where few stalls leave no interval
    potential: Annotated[AttainableRange | None, HIDDEN] = (
        None  # of a float32 run, or where a single step gives no expectation
    )
    profiled: Annotated[
        ProfiledSpeedup | None, If("measured"), After("difference"), "Of a measured pair."
    ] = None  # None: the reason is in `absent`
    launches: Annotated[
        Launches | None,
        LEFT_OUT,
        "Of a pair whose steps are both as long as the host needs to launch them: what it launches in "
        "each. Left out of others.",
    ] = None
    how_to_switch: Annotated[
        tuple[Remedy, ...],
        LEFT_OUT,
        "Mixed precision on: of a float32 run that 16 bits may make faster.",
    ] = ()  # set by the report
    absent: Annotated[dict[str, str] | None, HIDDEN] = None  # field -> reason

    @property
    def measured(self) -> bool:
        """Whether there is a measured baseline."""
        return self.baseline == "measured"

    @property
    def difference(self) -> Annotated[Told, After("interval_wide")]:
        """What the timings tell of the two steps; None where they give no speedup."""
        if self.observed is None:
            return None
        if self.interval is not None:
            return difference(self.interval)
        sure = difference(self.sure)
        return sure if sure in ("faster", "slower") else "not known"

    @property
    def attainable(self) -> float | None:
        """What this card allows with everything but precision as in the baseline: with the host as it is,
        where its need is known. None where nothing can be expected."""
        return self.expected if self.expected_with_host is None else self.expected_with_host

    @property
    def attainable_range(
        self,
    ) -> Annotated[
        AttainableRange | None,
        Key("attainable"),
        LATER,
        After("baseline_dtype"),
        "What this card allows. For a measured pair both ends are equal, unless it rests on a single "
        "step; for a float32 run in 16 bits it is a range.",
    ]:
        """The attainable speedup as a range."""
        if self.potential is not None or self.attainable is None:
            return self.potential
        return AttainableRange(self.attainable, self.attainable, None, ())

    @property
    def attainable_limits(
        self,
    ) -> Annotated[
        tuple[Limit, ...],
        Key("limits"),
        LATER,
        After("attainable"),
        "What the attainable step consists of, and why it becomes no shorter.",
    ]:
        """The parts of that step, the longest first."""
        return self.potential.limits if self.potential else self.limits

    @property
    def attainable_step_ns(self) -> float | None:
        """The step at the attainable speedup."""
        known = self.attainable and self.baseline_step_ns
        return self.baseline_step_ns / self.attainable if known else None  # type: ignore[operator]

    @property
    def lost_ns(self) -> Annotated[LostNs, After("per_example")]:
        """What parts of the step take above their attainable time; None where there are no slices to tell."""
        return None if self.gap_ns is None else sum(max(0.0, part.ns_per_step) for part in self.slices)

    @property
    def gained_ns(self) -> Annotated[GainedNs, After("lost_ns")]:
        """What other parts take below it."""
        return None if self.gap_ns is None else sum(max(0.0, -part.ns_per_step) for part in self.slices)


@frozen
class Bound:
    """Something that records alone prove."""

    statement: str
    value: float
    unit: str
    assumptions: tuple[str, ...]
