"""Traces, runs and accounts by hand, as small as a test of ownership or comparison needs them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from mpprof.model.account import Account, Cell, DeviceAccount
from mpprof.model.device import DeviceFacts, DevicePeaks
from mpprof.model.kernels import Placements, Reason, Verdict
from mpprof.model.run import LayerFacts, ModelFacts, OptimizerFacts, Run
from mpprof.model.trace import KernelTable, Op, Stream, Trace, TraceDevice
from tests.builders import cases

Kernel = tuple[int, int, str, int, int, int]  # device, stream, name, op, verdict, duration


def trace_of(
    ops: Sequence[Op], kernels: Sequence[Kernel] = (), kind: Sequence[int] = (), copy: Sequence[int] = ()
) -> Trace:
    """A trace with these ops and kernels, back to back; `kind` and `copy` default to plain kernels."""
    names = tuple(dict.fromkeys(kernel[2] for kernel in kernels))
    n = len(kernels)
    duration = np.array([kernel[5] for kernel in kernels], np.int64)
    devices = max((kernel[0] for kernel in kernels), default=0) + 1
    streams = max((kernel[1] for kernel in kernels), default=0) + 1
    return replace(
        cases.trace(),
        strings=names,
        devices=tuple(TraceDevice(f"/device:GPU:{d}", d, DeviceFacts("gpu")) for d in range(devices)),
        streams=tuple(Stream(0, s, f"Stream #{s}") for s in range(streams)),
        ops=tuple(ops),
        kernels=cases.empty(
            KernelTable,
            start_ns=np.cumsum(duration) - duration,
            duration_ns=duration,
            **{
                field: np.array([kernel[at] for kernel in kernels], np.int32)
                for field, at in (("device", 0), ("stream", 1), ("op", 3))
            },
            name=np.array([names.index(kernel[2]) for kernel in kernels], np.int32),
            kind=np.array(kind or [0] * n, np.int8),
            copy=np.array(copy or [-1] * n, np.int8),
        ),
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
    return cases.layer(name, kind, dtype, **{"parameters": None, "supports_jit": None, **more})


def model(*layers: LayerFacts | str, name: str | None = "functional") -> ModelFacts:
    facts = tuple(layer(one) if isinstance(one, str) else one for one in layers)
    return ModelFacts(name, 1000, facts)


def run_of(
    name: str, compute: str, facts_of_model: ModelFacts | None = None, *, batch: int = 32, **more: object
) -> Run:
    policy = f"mixed_{compute}" if compute != "float32" else compute
    fit = cases.fit(policy, OptimizerFacts("Adam"), batch_size=batch)
    given = {
        "run_id": f"id-{name}",
        "model": facts_of_model,
        "profile_windows": (),
        "timing": None,
        "host": None,
    }
    return cases.run(cases.facts(policy, fits=(fit,), **{**given, **more}), name=name, path=Path(name))


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
