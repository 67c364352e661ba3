"""The account of a step, its cells, and the gap between two runs: numbers that add up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, get_args

from mpprof.model.frozen import frozen
from mpprof.model.kernels import COMPUTE_DTYPES, MATMUL_FAMILIES, Family, Placement, Precision
from mpprof.model.quantities import format_ratio
from mpprof.model.trace import HloInstruction

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


@frozen
class MatmulShare:
    """Part of the matmul slice by where it ran and in what precision, and its transforms of convolutions."""

    placement: Placement
    precision: Precision
    ns_per_step: float
    transforms_ns_per_step: float = 0.0


@frozen
class Slice:
    """One class of the account. `ratio` is of the classes that take time: None for one that is negative, as
    `profiling` and `idle_stall` may be. `by` only for matmul; its parts sum to the slice. `causes` only for
    idle time: what is known of parts of it, and their ns per step; of `idle_other` nothing is known of the
    rest. `pooling_ns_per_step` only for elementwise work: its part that pools. `longest_hidden`: the op (else
    the kernel) of which most ran while the instants went to other work, and how long that was; None where
    nothing is named."""

    category: Class
    ns_per_step: float
    ratio: float | None
    hidden_ns_per_step: float = 0.0
    by: tuple[MatmulShare, ...] = ()
    causes: tuple[tuple[str, float], ...] = ()
    pooling_ns_per_step: float = 0.0
    longest_hidden: tuple[str, float] | None = None


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
    step_ns: float
    busy_ns: float
    steps: int
    slices: tuple[Slice, ...]
    cells: tuple[Cell, ...]
    calls: KernelCalls | None = None


@frozen
class Between:
    """What the loop and its callbacks do between two steps, per step, under a plain name: for how long on the
    host, and the device's work that they launch (also where it still runs in the step)."""

    name: str
    host_ns: float
    device_ns: float


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
    """How much of the matrix time ran on matrix units. `ratio` is None with a `reason` where there is no
    matrix work or no way to know; `unknown_ratio` is the unknown share of the device's kernel time.
    Where no step can be told apart, the whole window stands for one: `of` says so."""

    matmul_ns_per_step: float
    ratio: float | None
    reason: str | None
    by_precision: dict[Precision, float]  # ns per step on matrix units, by precision
    fallback_ns_per_step: float
    unknown_ratio: float
    verified_ratio: float | None = None  # of the matrix time, decided by hardware counters; None: none was
    of: Literal["step", "window"] = "step"
    unit: Placement = "tensor_core"  # the matrix unit it is a share of: never NVIDIA's name for another's

    @property
    def products_ns(self) -> float:
        """The time that `ratio` is of, without helpers; the matrix time where none of it ran on units."""
        return sum(self.by_precision.values()) / self.ratio if self.ratio else self.matmul_ns_per_step

    @property
    def has_helpers(self) -> bool:
        """Helpers of products (split-K reductions, transforms) are enough of it to be told apart."""
        return self.products_ns < 0.995 * self.matmul_ns_per_step


PRECISION_NOT_KNOWN = "precision not known"


@frozen
class ComputePrecision:
    """What a run computes in, and what tells it.

    `dtype` is the 16-bit type of a "16-bit" or "partly 16-bit" run, else the wide one; None: not known.
    `ratio` is the share of the matrix time in 16 bits or less, where that decided. `beside` is the 16-bit
    type of the other work, where no matrix work was seen that would tell.
    """

    kind: ComputeKind
    dtype: str | None
    by: ComputeEvidence
    reason: str
    ratio: float | None = None
    beside: str | None = None

    @property
    def precision(self) -> Precision | None:
        """The precision that `dtype` stands for; None where that is not known."""
        return COMPUTE_DTYPES.get(self.dtype or "")

    @property
    def narrow(self) -> bool:
        """All or part of the matrix work is in 16 bits or less."""
        return self.kind in ("16-bit", "partly 16-bit")

    @property
    def words(self) -> str:
        """What it computes in, for people: "float16", "partly in float16 (30.0 % of the matrix time)"."""
        if self.kind == "unknown":
            return f"no matrix work seen, other work in {self.beside}" if self.beside else PRECISION_NOT_KNOWN
        if self.kind != "partly 16-bit":
            return self.dtype or "16 bits or less"
        share = f" ({format_ratio(self.ratio)} of the matrix time)" if self.ratio is not None else ""
        return f"partly in {self.dtype or '16 bits or less'}{share}"


@frozen
class GapSlice:
    """Where the comparison's gap lies: `m_c - b_c / r_c - added_c` of one role (and layer, where matched).

    `added_ns` is work that 16 bits bring with them in every healthy run (casts of weights and round float32
    norms, loss-scale bookkeeping) and that the baseline does not have. The slices of a comparison sum to its
    gap."""

    category: Class
    layer: str | None
    ns_per_step: float
    baseline_ns: float
    mixed_ns: float
    ratio: float  # r_c, the attainable ratio for that class on this device
    ratio_source: str
    added_ns: float = 0.0


LimitKind = Literal["float32", "memory", "tf32", "compute", "short", "wait", "same", "host"]


@frozen
class Limit:
    """Part of the attainable step: of one class, with why it becomes no shorter.

    `kind`: its tensors stay float32; it is bound by memory (twice as fast at best); it ran in TF32 on Tensor
    Cores already; matrix work at its best; kernels that are bound by launching; a wait; it stays the same; or
    the host needs as long. `ratio` is its share of the float32 step."""

    category: Class
    kind: LimitKind
    ns_per_step: float  # in the float32 step
    best_ns: float
    ratio: float


@frozen
class AttainableRange:
    """What mixed precision could make of a float32 run that has no 16-bit twin, or of a pair of which one
    step was profiled. `eligible_ratio`: the share of the device's time that matrix units could do in 16 bits;
    `tf32_ratio`: how much of the device's time they do in TF32 already. None of both where the device did
    nothing."""

    low: float
    high: float
    eligible_ratio: float | None
    assumptions: tuple[str, ...]
    limits: tuple[Limit, ...] = ()
    tf32_ratio: float | None = None


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
    """Kernels and copies of one class, per step, in both runs."""

    category: Class
    baseline: float
    mixed: float


@frozen
class Launches:
    """What the host launches per step and how long it needs for a step, in both runs, where it limits both:
    then its need is what makes one of them slower. Classes that differ, the largest difference first."""

    baseline: float
    mixed: float
    baseline_host_ns: float
    mixed_host_ns: float
    by_class: tuple[ClassLaunches, ...]


@frozen
class EstimatedSpeedup:
    """Without a measured baseline: the range of this run's speedup over what float32 would have taken."""

    low: float
    high: float
    assumptions: tuple[str, ...]


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
    """The median profiled step of the baseline over that of the mixed run, and how many of them there are. It
    has no interval: see `analysis.comparison.profiled`."""

    ratio: float
    baseline_ns: float
    mixed_ns: float
    baseline_steps: int
    mixed_steps: int


@frozen
class Speedup:
    """Expected and observed. Without a measured baseline `observed` is None and `slices` is empty.

    `gap_ns = step - reach_ns`, and `sum(slices) == gap_ns`. The gap is `lost_ns - gained_ns`: what parts take
    above their attainable time, less what others take below theirs. `unexplained_ns` (set by the diagnosis)
    is what no remedy recovers of this run's step less the attainable one; of the plain difference from the
    baseline, where nothing is known to be attainable."""

    baseline: Literal["measured", "estimated"]
    baseline_id: str | None
    baseline_step_ns: float | None
    observed: float | None
    interval: tuple[float, float] | None
    expected: float | None
    expected_with_host: float | None
    ceiling: float | None
    attainable_ns: float | None
    gap_ns: float | None
    slices: tuple[GapSlice, ...]
    unexplained_ns: float | None
    estimated: EstimatedSpeedup | None = None
    absent: dict[str, str] | None = None  # field -> reason
    per_example: bool = False  # the batches differ: the baseline's times are scaled to this run's batch
    baseline_dtype: str | None = None  # what the baseline's records say it computes in; None: not recorded
    above_attainable_ns: float | None = None  # this run's step less the attainable one (set by the diagnosis)
    limits: tuple[Limit, ...] = ()  # what keeps the attainable speedup low, the longest first
    potential: AttainableRange | None = None  # of a float32 run, or where a single step gives no expectation
    launches: Launches | None = None  # None: the host does not limit both runs, or that is not known
    profiled: ProfiledSpeedup | None = None  # None: the reason is in `absent`
    interval_wide: bool = False  # it rests on few timings of a run

    @property
    def difference(self) -> Difference | None:
        """What the timings tell of the two steps; None where they give no speedup."""
        return None if self.observed is None else difference(self.interval) or "not known"

    @property
    def attainable(self) -> float | None:
        """What this card allows with everything but precision as in the baseline: with the host as it is,
        where its need is known. None where nothing can be expected."""
        return self.expected if self.expected_with_host is None else self.expected_with_host

    @property
    def attainable_step_ns(self) -> float | None:
        """The step at the attainable speedup."""
        known = self.attainable and self.baseline_step_ns
        return self.baseline_step_ns / self.attainable if known else None  # type: ignore[operator]

    @property
    def lost_ns(self) -> float | None:
        """What parts of the step take above their attainable time; None where there are no slices to tell."""
        return None if self.gap_ns is None else sum(max(0.0, part.ns_per_step) for part in self.slices)

    @property
    def gained_ns(self) -> float | None:
        """What other parts take below it."""
        return None if self.gap_ns is None else sum(max(0.0, -part.ns_per_step) for part in self.slices)


@frozen
class Bound:
    """Something that records alone prove."""

    statement: str
    value: float
    unit: str
    assumptions: tuple[str, ...]
