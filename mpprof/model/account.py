"""The account of a step, its cells, and the gap between two runs: numbers that add up."""

from __future__ import annotations

from typing import Literal, get_args

from mpprof.model.frozen import frozen
from mpprof.model.kernels import Family, Placement, Precision

Class = Literal[
    "matmul", "norm", "elementwise", "reduce", "gather_scatter", "cast", "layout",
    "optimizer", "loss_scale", "other", "unknown", "comm", "copy",
    "idle_input", "idle_launch", "idle_sync", "idle_compile", "idle_between_steps", "idle_other",
    "profiling",
]  # fmt: skip
Phase = Literal["forward", "backward", "optimizer", "loss_scale", "input", "other"]
Basis = Literal["wall", "window"]
TraceBasis = Literal["device", "host"]

CLASSES: tuple[Class, ...] = get_args(Class)
PHASES: tuple[Phase, ...] = get_args(Phase)
IDLE_CLASSES: tuple[Class, ...] = tuple(c for c in CLASSES if c.startswith("idle_"))


@frozen
class Cell:
    """The finest part of the account: one kernel name of one op, in one class.

    `ns_per_step` is the time that belongs to this cell alone (instants shared by streams are split), so
    the cells of a device sum to its step. Idle classes and `profiling` have one cell each, with no
    kernel. `busy_ns_per_step` is the plain sum of durations, hidden time included.
    """

    role: Class
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


@frozen
class MatmulShare:
    """Part of the matmul slice by where it ran and in what precision."""

    placement: Placement
    precision: Precision
    ns_per_step: float


@frozen
class Slice:
    """One class of the account. `by` only for matmul; its parts sum to the slice."""

    role: Class
    ns_per_step: float
    ratio: float  # of the step
    hidden_ns_per_step: float = 0.0
    by: tuple[MatmulShare, ...] = ()


@frozen
class DeviceAccount:
    """The step of one device. The slices (in the order of CLASSES, zero ones left out) sum to `step_ns`."""

    device: str
    step_ns: float
    busy_ns: float
    steps: int
    slices: tuple[Slice, ...]
    cells: tuple[Cell, ...]


@frozen
class Account:
    """The account of a run.

    `step_ns` is the wall time where steps were recorded (`basis` "wall"), else the window's ("window");
    `trace_basis` "host" for a run without an accelerator plane. `main` is the device with the longest
    busy time; its slices include `profiling`, the others' are of their window alone. `notes` say what was
    left out or shifted (cut steps, clock shift).
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
    step_source: str  # how steps were told apart: "mpprof", "keras", "group", "period", ...
    notes: tuple[str, ...] = ()
    host_ns: float | None = None  # what the host needs per step, hidden or not; None: the trace does not tell


@frozen
class TensorCoreShare:
    """How much of the matrix time ran on matrix units. `ratio` is None with a `reason` where there is no
    matrix work or no way to know; `unknown_ratio` is the unknown share of the device's kernel time.
    Where no step can be told apart, the whole window stands for one: `of` says so."""

    matmul_ns_per_step: float
    ratio: float | None
    reason: str | None
    by_precision: dict[str, float]  # ns per step on matrix units, by precision
    fallback_ns_per_step: float
    unknown_ratio: float
    verified_ratio: float | None = None  # of the matrix time, decided by hardware counters; None: none was
    of: Literal["step", "window"] = "step"
    unit: Placement = "tensor_core"  # the matrix unit it is a share of: never NVIDIA's name for another's


@frozen
class GapSlice:
    """Where the comparison's gap lies: `m_c - b_c / r_c - added_c` of one role (and layer, where matched).

    `added_ns` is work that 16 bits bring with them in every healthy run (casts of weights and round float32
    norms, loss-scale bookkeeping) and that the baseline does not have. The slices of a comparison sum to its
    gap."""

    role: Class
    layer: str | None
    ns_per_step: float
    baseline_ns: float
    mixed_ns: float
    ratio: float  # r_c, what this device could reach for that role
    ratio_source: str
    added_ns: float = 0.0


@frozen
class EstimatedSpeedup:
    """Without a measured baseline: the range of this run's speedup over what float32 would have taken."""

    low: float
    high: float
    assumptions: tuple[str, ...]


@frozen
class Speedup:
    """Expected and observed. Without a measured baseline `observed` is None and `slices` is empty.

    `gap_ns = step - reach_ns`, and `sum(slices) == gap_ns`; `unexplained_ns` is the part of the gap that
    no finding claims (set by the diagnosis). The gap is `lost_ns - gained_ns`: what parts take above their
    reach, less what others take below it."""

    baseline: Literal["measured", "estimated"]
    baseline_id: str | None
    baseline_step_ns: float | None
    observed: float | None
    interval: tuple[float, float] | None
    expected: float | None
    expected_with_host: float | None
    ceiling: float | None
    reach_ns: float | None
    gap_ns: float | None
    slices: tuple[GapSlice, ...]
    unexplained_ns: float | None
    estimated: EstimatedSpeedup | None = None
    absent: dict[str, str] | None = None  # field -> reason
    per_example: bool = False  # the batches differ: the baseline's times are scaled to this run's batch
    baseline_dtype: str | None = None  # what the baseline's records say it computes in; None: not recorded

    @property
    def lost_ns(self) -> float | None:
        """What parts of the step take above their reach; None where there are no slices to tell."""
        return None if self.gap_ns is None else sum(max(0.0, part.ns_per_step) for part in self.slices)

    @property
    def gained_ns(self) -> float | None:
        """What other parts take below it."""
        return None if self.gap_ns is None else sum(max(0.0, -part.ns_per_step) for part in self.slices)


@frozen
class MemoryItem:
    """Part of what was live at the peak."""

    by: Literal["dtype", "op", "layer", "kind"]
    name: str
    bytes: int


@frozen
class MemoryAccount:
    peak_bytes: int
    at_peak: tuple[MemoryItem, ...]
    saved_bytes: int | None = None
    reachable_bytes: int | None = None


@frozen
class Bound:
    """Something that records alone prove."""

    statement: str
    value: float
    unit: str
    assumptions: tuple[str, ...]
