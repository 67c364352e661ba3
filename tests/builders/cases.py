"""Cases put together by hand for tests of the judgement: a step of 100 ms with what a test wants in it.

`case(account=account(cell("idle_input", 30)))` is a mixed_float16 run on a V100 whose device waits 30 ms of
100 for input; what the named cells leave of the step is healthy float16 matrix work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from mpprof.diagnosis.signals import Case
from mpprof.model.account import (
    CLASSES,
    Account,
    Cell,
    DeviceAccount,
    GapSlice,
    IdleCause,
    KernelCalls,
    MatmulShare,
    Slice,
    Speedup,
    TensorCoreShare,
)
from mpprof.model.device import DeviceFacts, DevicePeaks
from mpprof.model.kernels import ACCELERATED
from mpprof.model.run import (
    FitFacts,
    LayerFacts,
    ModelFacts,
    OptimizerFacts,
    PolicyFacts,
    ProfileWindow,
    Run,
    RunFacts,
    Timing,
)
from mpprof.model.steps import StepSummary, StepTable
from mpprof.model.trace import (
    AllocationTable,
    HloInstruction,
    HostTable,
    KernelTable,
    MarkerTable,
    Trace,
    TraceDevice,
    TraceSource,
)

MS = 1e6
V100 = DeviceFacts("gpu", "Tesla V100-SXM2-16GB", "nvidia", (7, 0), 16 << 30, 80, 1_530_000)
A100 = DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB", "nvidia", (8, 0), 40 << 30, 108, 1_410_000)
CPU = DeviceFacts("cpu", "x86")
V100_PEAKS = DevicePeaks(
    "a card of 125 TFLOP/s",
    True,
    {"fp32_cuda": 15.7e12, "fp16_cuda": 31.4e12, "fp16": 125e12},
    900e9,
    "the rates of a V100, under a name that no calibration knows",
)


# --- accounts ----------------------------------------------------------------------------------------------


def cell(category: str, ms: float, **facts: Any) -> Cell:
    """A cell of `ms` milliseconds per step; work is one call of one kernel unless stated."""
    if not category.startswith("idle_") and category != "profiling":
        facts.setdefault("calls_per_step", 1.0)
        facts.setdefault("busy_ns_per_step", ms * MS)
        facts.setdefault("kernel", f"{category}_kernel")
    return Cell(category=category, ns_per_step=ms * MS, **facts)


def healthy(ms: float, **facts: Any) -> Cell:
    """float16 matrix work on Tensor Cores."""
    given = {
        "kernel": "volta_fp16_s884gemm",
        "family": "gemm",
        "placement": "tensor_core",
        "precision": "fp16",
    }
    return cell("matmul", ms, **{**given, **facts})


def fallback(ms: float, **facts: Any) -> Cell:
    """float32 matrix work on ordinary arithmetic."""
    given = {"kernel": "volta_sgemm", "family": "gemm", "placement": "cuda_core", "precision": "fp32"}
    return cell("matmul", ms, **{**given, **facts})


def fusion(
    *opcodes: str,
    operands: Sequence[tuple[str, tuple[int, ...]]],
    results: Sequence[tuple[str, tuple[int, ...]]],
) -> HloInstruction:
    """A fusion of these instructions, which reads and writes tensors of these types and shapes."""
    types, shapes = (tuple(part) for part in zip(*operands, strict=True))
    made, sizes = (tuple(part) for part in zip(*results, strict=True))

    def one(opcode: str, of: tuple[str, ...] = (), dims: tuple[tuple[int, ...], ...] = ()) -> HloInstruction:
        return HloInstruction("m", opcode, opcode, "", made[0], sizes[0], of, dims)

    called = (*map(one, opcodes), *((one("tuple", made, sizes),) if len(made) > 1 else ()))
    return HloInstruction("m", "fusion.1", "fusion", "", made[0], sizes[0], types, shapes, called)


def account(
    *cells: Cell,
    step_ms: float = 100.0,
    wall_ms: float | None = None,
    trace_basis: str = "device",
    **facts: Any,
) -> Account:
    """An account of these cells, filled up to `step_ms` with healthy matrix work."""
    rest = step_ms - sum(c.ns_per_step for c in cells) / MS
    if rest > 1e-9:
        cells = (*cells, healthy(rest))
    step = float(sum(c.ns_per_step for c in cells))
    slices = []
    for category in CLASSES:
        mine = [c for c in cells if c.category == category]
        if mine:
            time = float(sum(c.ns_per_step for c in mine))
            by = (
                tuple(MatmulShare(c.placement, c.precision, c.ns_per_step) for c in mine)
                if category == "matmul"
                else ()
            )
            pooling = sum(c.ns_per_step for c in mine if c.family == "pool")
            causes = tuple(IdleCause(c.cause, c.ns_per_step) for c in mine if c.cause is not None)
            slices.append(
                Slice(category, time, time / step, by=by, causes=causes, pooling_ns_per_step=pooling)
            )
    busy = sum(c.ns_per_step for c in cells if not c.category.startswith("idle_"))
    main = DeviceAccount("/device:GPU:0", step, busy, 5, tuple(slices), tuple(cells), kernel_calls(cells))
    given = {
        "basis": "window" if wall_ms is None else "wall", "trace_basis": trace_basis, "step_ns": step,
        "wall_ns": None if wall_ms is None else wall_ms * MS, "window_ns": step, "device_ns": busy, "main": main,
        "devices": (main,), "steps": (101, 102, 103, 104, 105), "step_source": "mpprof",
        "numbered": "mpprof",
    }  # fmt: skip
    return Account(**{**given, **facts})


def kernel_calls(cells: Sequence[Cell]) -> KernelCalls | None:
    """What a trace of these cells would count: each call of a cell takes as long as the others."""
    kernels = [c for c in cells if c.kernel and c.calls_per_step and c.category not in ("copy", "profiling")]
    lengths = sorted(
        (c.busy_ns_per_step or c.ns_per_step) / c.calls_per_step
        for c in kernels
        for _ in range(max(1, round(c.calls_per_step)))
    )
    return (
        KernelCalls(sum(c.calls_per_step for c in kernels), median(lengths), sum(lengths))
        if kernels
        else None
    )


def share(of: Account, unknown_ratio: float = 0.0) -> TensorCoreShare:
    matmul = [c for c in of.main.cells if c.category == "matmul"]
    total = sum(c.ns_per_step for c in matmul)
    on = [c for c in matmul if c.placement in ACCELERATED]
    by: dict[str, float] = {}
    for c in on:
        by[str(c.precision)] = by.get(str(c.precision), 0.0) + c.ns_per_step
    accelerated = sum(c.ns_per_step for c in on)
    ratio = accelerated / total if total else None
    return TensorCoreShare(
        total, ratio, None if total else "no matrix work", by, total - accelerated, unknown_ratio
    )


def gap_slice(
    category: str, baseline_ms: float, mixed_ms: float, ratio: float = 1.0, layer: str | None = None
) -> GapSlice:
    gap = (mixed_ms - baseline_ms / ratio) * MS
    return GapSlice(category, layer, gap, baseline_ms * MS, mixed_ms * MS, ratio, "test")


def speedup(*slices: GapSlice, baseline_ms: float = 200.0, mixed_ms: float = 100.0, **facts: Any) -> Speedup:
    """A comparison with a measured baseline; its gap is the sum of the slices."""
    gap = float(sum(part.ns_per_step for part in slices))
    reach = mixed_ms * MS - gap
    given = {
        "baseline": "measured", "baseline_id": "b", "baseline_step_ns": baseline_ms * MS,
        "observed": baseline_ms / mixed_ms, "interval": None, "expected": baseline_ms * MS / reach,
        "expected_with_host": None, "ceiling": 8.0, "attainable_ns": reach, "gap_ns": gap, "slices": slices,
        "unexplained_ns": None, "baseline_dtype": "float32",
    }  # fmt: skip
    return Speedup(**{**given, **facts})


# --- records -----------------------------------------------------------------------------------------------


def layer(name: str, class_name: str = "Dense", dtype: str = "float16", **facts: Any) -> LayerFacts:
    given = {"variable_dtype": "float32", "output_dtype": dtype, "parameters": 1000, "supports_jit": True}
    return LayerFacts(name=name, class_name=class_name, compute_dtype=dtype, **{**given, **facts})


HEALTHY_LAYERS = (
    layer("dense"),
    layer("dense_1"),
    layer("softmax", "Activation", "float32", parameters=0),
)


def fit(policy: str = "mixed_float16", optimizer: OptimizerFacts | None = None, **facts: Any) -> FitFacts:
    compute = policy.removeprefix("mixed_")
    scaled = OptimizerFacts("LossScaleOptimizer", "Adam", True, 2.0**15, 2000)
    given = {
        "fit": 1, "first_step": 1, "initial_epoch": 0, "policy": PolicyFacts(policy, compute, "float32"),
        "optimizer": optimizer or (scaled if compute == "float16" else OptimizerFacts("Adam")), "batch_size": 64,
        "jit_compile": False, "run_eagerly": False, "steps_per_execution": 1, "gradient_accumulation_steps": None,
    }  # fmt: skip
    return FitFacts(**{**given, **facts})


def facts(
    policy: str = "mixed_float16",
    layers: Sequence[LayerFacts] | None = None,
    device: DeviceFacts = V100,
    **changed: Any,
) -> RunFacts:
    if layers is None:
        own = policy.removeprefix("mixed_")
        layers = (
            tuple(replace(f, compute_dtype=own, output_dtype=own) for f in HEALTHY_LAYERS[:-1])
            + HEALTHY_LAYERS[-1:]
        )
    fits = changed.pop("fits", None) or (fit(policy, **changed.pop("fit", {})),)
    given = {
        "run_id": "r", "created_unix_ns": 0, "clock_monotonic_ns": 0, "clock_unix_ns": 0, "host": "h",
        "framework": {"keras": "3.15.1", "backend": "tensorflow"}, "distribution": None, "replicas": 1,
        "tf32_enabled": False, "deterministic_ops": False, "graph_rewrite": None, "devices": (device,),
        "model": ModelFacts("model", 1_000_000, tuple(layers)), "fits": fits,
        "profile_windows": (ProfileWindow("plugins/profile/x", "h", 101, 105, 0, 0, 0, "done"),),
        "timing": Timing("synchronous", 16, ""), "absent": {},
    }  # fmt: skip
    return RunFacts(**{**given, **changed})


def steps(
    times_ms: Sequence[float] | int = 200,
    *,
    skipped: dict[int, int] | None = None,
    scales: dict[int, float] | None = None,
    **columns: Any,
) -> StepTable:
    """A step log: step times in ms (or so many steps of 100 ms); `skipped` and `scales` by step number, where
    they were read."""
    times = np.full(times_ms, 100.0) if isinstance(times_ms, int) else np.asarray(times_ms, dtype=float)
    n = len(times)
    number = np.arange(1, n + 1)
    ns = (times * MS).astype(np.int64)
    absent = np.full(n, -1, dtype=np.int64)
    skips, scale = absent.copy(), np.full(n, np.nan)
    for at, value in (skipped or {}).items():
        skips[at - 1] = value
    for at, value in (scales or {}).items():
        scale[at - 1] = value
    nothing = np.zeros(n, dtype=bool)
    given = {
        "step": number, "fit": np.ones(n, np.int64), "epoch": np.zeros(n, np.int64), "batch": number - 1,
        "covers": np.ones(n, np.int64), "t_ns": np.cumsum(ns), "interval_ns": ns, "duration_ns": ns,
        "gap_ns": absent, "input_wait_ns": absent, "dispatch_ns": absent, "synced": nothing, "profiled": nothing,
        "loss": np.full(n, np.nan), "loss_known": nothing, "loss_scale": scale,
        "loss_scale_known": np.array([s + 1 in (scales or {}) for s in range(n)]), "skipped": skips,
        "peak_bytes": absent, "live_bytes": absent,
    }  # fmt: skip
    return StepTable(**{**given, **columns})


def summary(table: StepTable | None = None, **facts: Any) -> StepSummary:
    """A step log in short, of steps of 100 ms; of `median_ns`, where that is given alone."""
    count = len(table) if table is not None else 200
    given = {
        "count": count, "steady": max(0, count - 20), "first_steady": 11,
        "mean_ns": facts.get("median_ns", 100 * MS), "median_ns": 100 * MS, "p95_ns": 105 * MS,
        "interval_ns": (99 * MS, 101 * MS), "skipped": 0, "skipped_ratio": 0.0, "loss_scale": None,
        "peak_memory_bytes": None,
    }  # fmt: skip
    return StepSummary(**{**given, **facts})


def run(records: RunFacts | None = None, table: StepTable | None = None, **changed: Any) -> Run:
    given = {
        "name": "run", "path": Path("run"), "facts": records, "steps": table, "validations": None, "hardware": None,
        "traces": (), "finished": True,
    }  # fmt: skip
    return Run(**{**given, **changed})


# --- traces and whole cases --------------------------------------------------------------------------------


def empty(table: type, **columns: Any) -> Any:
    """A table of these columns, in which of all others nothing is known."""
    n = len(next(iter(columns.values()))) if columns else 0
    names = table.__dataclass_fields__
    return table(**{name: columns.get(name, np.full(n, -1, dtype=np.int64)) for name in names})


def trace(
    device: DeviceFacts = V100,
    *,
    basis: str = "device",
    graphs: Sequence[int] = (-1, -1),
    warnings: tuple[str, ...] = (),
) -> Trace:
    """A trace of one device with one kernel of 1 ms per entry of `graphs`."""
    n = len(graphs)
    kernels = empty(
        KernelTable,
        graph=np.asarray(graphs, dtype=np.int64),
        duration_ns=np.full(n, 1_000_000, dtype=np.int64),
        kind=np.zeros(n, dtype=np.int8),
    )
    return Trace(
        source=TraceSource(Path("host.xplane.pb"), "xspace", 1), origin_unix_ns=None, strings=(),
        devices=(TraceDevice("/device:GPU:0", 0, device),), streams=(), threads=(), ops=(), kernels=kernels,
        host=empty(HostTable), markers=empty(MarkerTable), allocations=empty(AllocationTable), basis=basis,
        warnings=warnings,
    )  # fmt: skip


def case(
    *,
    account: Account | None = None,
    records: RunFacts | str | None = "default",
    table: StepTable | None = None,
    unknown_ratio: float = 0.0,
    **changed: Any,
) -> Case:
    """A case; without an account there is no trace either, unless one is given."""
    own = facts() if records == "default" else records
    given = {
        "run": run(own, table),
        "trace": trace(own.devices[0] if own else V100) if account else None,
        "account": account,
        "steps": summary(table) if table is not None else None,
        "tensor_core": share(account, unknown_ratio) if account else None,
        "peaks": V100_PEAKS,
    }
    return Case(**{**given, **changed})


def bare() -> Case:
    """Nothing is known but that there is a run."""
    return Case(run=run())
