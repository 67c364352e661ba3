"""Traces, runs and accounts by hand, as small as a test of ownership or comparison needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mpprof.model.account import Account, Cell, DeviceAccount
from mpprof.model.device import DeviceFacts, DevicePeaks
from mpprof.model.kernels import Placements, Reason, Verdict
from mpprof.model.run import FitFacts, LayerFacts, ModelFacts, OptimizerFacts, PolicyFacts, Run, RunFacts
from mpprof.model.trace import (
    AllocationTable,
    HostTable,
    KernelTable,
    MarkerTable,
    Op,
    Stream,
    Trace,
    TraceDevice,
    TraceSource,
)

Kernel = tuple[int, int, str, int, int, int]  # device, stream, name, op, verdict, duration


def trace_of(
    ops: Sequence[Op], kernels: Sequence[Kernel] = (), kind: Sequence[int] = (), copy: Sequence[int] = ()
) -> Trace:
    """A trace with these ops and kernels, back to back; `kind` and `copy` default to plain kernels."""
    names = tuple(dict.fromkeys(kernel[2] for kernel in kernels))
    n = len(kernels)
    none = np.full(n, -1, np.int64)
    empty64, empty32 = np.empty(0, np.int64), np.empty(0, np.int32)
    duration = np.array([kernel[5] for kernel in kernels], np.int64)
    devices = max((kernel[0] for kernel in kernels), default=0) + 1
    streams = max((kernel[1] for kernel in kernels), default=0) + 1
    return Trace(
        source=TraceSource(Path("t.xplane.pb"), "xspace", 0),
        origin_unix_ns=None,
        strings=names,
        devices=tuple(TraceDevice(f"/device:GPU:{d}", d, DeviceFacts("gpu")) for d in range(devices)),
        streams=tuple(Stream(0, s, f"Stream #{s}") for s in range(streams)),
        threads=(),
        ops=tuple(ops),
        kernels=KernelTable(
            device=np.array([kernel[0] for kernel in kernels], np.int32),
            stream=np.array([kernel[1] for kernel in kernels], np.int32),
            start_ns=np.cumsum(duration) - duration,
            duration_ns=duration,
            kind=np.array(kind or [0] * n, np.int8),
            name=np.array([names.index(kernel[2]) for kernel in kernels], np.int32),
            op=np.array([kernel[3] for kernel in kernels], np.int32),
            correlation=none,
            launch=none.astype(np.int32),
            shapes=none.astype(np.int32),
            details=none.astype(np.int32),
            copy=np.array(copy or [-1] * n, np.int8),
            bytes=none,
            graph=none,
            group=none,
        ),
        host=HostTable(empty32, empty64, empty64, np.empty(0, np.int8), empty32, empty32, empty64),
        markers=MarkerTable(empty64, empty64, empty64, empty32, empty32),
        allocations=AllocationTable(
            empty64, np.empty(0, np.bool_), empty32, *[empty64] * 6, empty32, empty32, empty32, empty32
        ),
        basis="device",
    )


def placements_of(verdicts: Sequence[Verdict], kernels: Sequence[Kernel]) -> Placements:
    return Placements(tuple(verdicts), np.array([kernel[4] for kernel in kernels], np.int32))


REASON = Reason("test", "said so by the test")
TENSOR_CORE = Verdict("tensor_core", "fp16", "gemm", REASON)
FALLBACK = Verdict("cuda_core", "fp32", "gemm", REASON)
UNTOLD = Verdict("unknown", "unknown", "gemm", REASON)
ELEMENTWISE = Verdict("not_matmul", "fp32", "elementwise", REASON)
COPY = Verdict("not_matmul", "unknown", "copy", REASON)


def layer(name: str, kind: str = "Dense", dtype: str = "float16", **more: object) -> LayerFacts:
    return replace(LayerFacts(name, kind, dtype, "float32", dtype), **more)  # type: ignore[arg-type]


def model(*layers: LayerFacts | str, name: str | None = "functional") -> ModelFacts:
    facts = tuple(layer(one) if isinstance(one, str) else one for one in layers)
    return ModelFacts(name, 1000, facts)


def run_of(
    name: str, compute: str, facts_of_model: ModelFacts | None = None, *, batch: int = 32, **more: object
) -> Run:
    policy = PolicyFacts(f"mixed_{compute}" if compute != "float32" else compute, compute, "float32")
    fit = FitFacts(1, 1, 0, policy, OptimizerFacts("Adam"), batch, False, False, 1, None)
    facts = RunFacts(
        run_id=f"id-{name}",
        created_unix_ns=0,
        clock_monotonic_ns=0,
        clock_unix_ns=0,
        host=None,
        framework={"keras": "3.15.1", "backend": "tensorflow"},
        distribution=None,
        replicas=1,
        tf32_enabled=False,
        deterministic_ops=False,
        graph_rewrite=None,
        devices=(DeviceFacts("gpu", "Tesla V100-SXM2-16GB", "nvidia", (7, 0)),),
        model=facts_of_model,
        fits=(fit,),
        profile_windows=(),
        timing=None,
        absent={},
    )
    return Run(name, Path(name), replace(facts, **more), None, None, None, (), True)  # type: ignore[arg-type]


def account_of(cells: Sequence[Cell], *, host: bool = False, steps: int = 8) -> Account:
    """An account of so many equal steps that consists of these cells; a step is their sum."""
    step = sum(cell.ns_per_step for cell in cells)
    device = DeviceAccount("/device:GPU:0", step, step, steps, (), tuple(cells))
    basis = "host" if host else "device"
    numbers, lengths = tuple(range(1, steps + 1)), (step,) * steps
    return Account(
        "window", basis, step, None, step, step, device, (device,), numbers, "mpprof", lengths_ns=lengths
    )


V100 = DevicePeaks(
    "Tesla V100-SXM2-16GB",
    True,
    {"fp16": 125e12, "fp32_cuda": 15.7e12, "fp16_cuda": 31.4e12},
    900e9,
    "NVIDIA Tesla V100 datasheet",
)
A100 = DevicePeaks(
    "NVIDIA A100-SXM4-40GB",
    True,
    {"fp16": 312e12, "bf16": 312e12, "tf32": 156e12, "fp32_cuda": 19.5e12, "fp16_cuda": 78e12},
    1555e9,
    "NVIDIA A100 datasheet",
)
