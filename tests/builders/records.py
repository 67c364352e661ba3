"""Log directories of runs that recorded steps and a model, and no trace. Nothing here imports mpprof."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.builders.gpus import Gpu

UNIX_NS = 1_760_000_000_000_000_000
POLICIES = {"float32": "float32", "float16": "mixed_float16", "bfloat16": "mixed_bfloat16"}


@dataclass(frozen=True)
class Recorded:
    """A run as its records hold it. `step_ms` is the steady step; `epoch_starts_ms` what the first step of each
    epoch takes more. `fit` and `facts` are laid over run.json."""

    name: str
    gpu: Gpu | None
    dtype: str
    layers: tuple[dict[str, Any], ...]
    batch: int
    step_ms: float
    steps: int = 120
    steps_per_epoch: int | None = None
    first_step_s: float = 0.0
    utilization: float | None = None
    peak_bytes: int | None = None
    noise: float = 0.004
    skipped: dict[int, int] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    seed: int = 3
    factor: Callable[[int], float] = lambda number: 1.0  # of the step with this number, above `step_ms`
    dispatch_ms: float | None = None  # a backend that runs ahead: what the host takes; waits every 16 steps


def write(run: Recorded, directory: Path) -> Path:
    """Writes the log directory `directory/<name>` and returns it."""
    folder = directory / run.name / "mpprof"
    folder.mkdir(parents=True)
    lines, end_ns = _steps(run)
    (folder / "run.json").write_text(json.dumps(_run(run)))
    (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if run.utilization is not None:
        samples: list[dict[str, Any]] = [{"schema": "mpprof.hardware/1"}]
        samples += [
            {"t_ns": at * 10**9, "gpu": 0, "utilization_ratio": run.utilization}
            for at in range(1, 2 + end_ns // 10**9)
        ]
        (folder / "hardware.jsonl").write_text("".join(json.dumps(line) + "\n" for line in samples))
    return directory / run.name


def _steps(run: Recorded) -> tuple[list[dict[str, Any]], int]:
    rng, now, scale = random.Random(run.seed), 0, 32768.0
    lines: list[dict[str, Any]] = [{"schema": "mpprof.steps/1"}, {"kind": "fit", "fit": 1, "t_ns": 0}]
    per_epoch = run.steps_per_epoch or run.steps
    for number in range(1, run.steps + 1):
        took = run.step_ms * 1e6 * rng.gauss(1.0, run.noise) * run.factor(number)
        took += run.first_step_s * 1e9 if number == 1 else 0.0
        now += int(took)
        line: dict[str, Any] = {
            "kind": "step", "step": number, "fit": 1, "epoch": (number - 1) // per_epoch,
            "batch": (number - 1) % per_epoch, "covers": 1, "t_ns": now, "duration_ns": int(took) - 40_000,
            "synced": False, "profiled": False, "loss": round(2.3 / (1 + 0.01 * number), 5),
        }  # fmt: skip
        if run.dispatch_ms is not None:
            line |= {"dispatch_ns": int(run.dispatch_ms * 1e6), "synced": number % 16 == 0}
        if number % per_epoch and (run.dispatch_ms is None or number % 16 == 0):
            line["interval_ns"] = int(took)
        if number % per_epoch != 1:
            line["gap_ns"] = 40_000
        if run.dtype == "float16" and (number <= 32 or number % 16 == 0 or number == run.steps):
            scale /= 2 ** run.skipped.get(number, 0)
            line |= {"loss_scale": scale, "skipped": run.skipped.get(number, 0)}
        if run.peak_bytes and (number <= 32 or number % 16 == 0):
            line["memory"] = [
                {"device": "GPU:0", "peak_bytes": run.peak_bytes, "live_bytes": run.peak_bytes // 2}
            ]
        lines.append(line)
    return [*lines, {"kind": "fit_end", "reason": "finished"}], now


def _run(run: Recorded) -> dict[str, Any]:
    half = run.dtype == "float16"
    optimizer: dict[str, Any] = {"class": "Adam", "dynamic": False}
    if half:
        optimizer = {
            "class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True, "initial_scale": 32768.0,
            "growth_steps": 2000,
        }  # fmt: skip
    fit = {
        "fit": 1, "first_step": 1, "initial_epoch": 0,
        "policy": {"global": POLICIES[run.dtype], "compute_dtype": run.dtype, "variable_dtype": "float32"},
        "optimizer": optimizer, "batch_size": run.batch, "jit_compile": False, "run_eagerly": False,
        "steps_per_execution": 1,
    }  # fmt: skip
    return {
        "schema": "mpprof.run/1", "run_id": run.name, "created_unix_ns": UNIX_NS,
        "clock": {"monotonic_ns": 0, "unix_ns": UNIX_NS}, "host": "h",
        "framework": {"keras": "3.15.1", "backend": "tensorflow", "backend_version": "2.21.0", "python": "3.11.7"},
        "replicas": 1, "tf32_enabled": False, "deterministic_ops": False,
        "devices": [_device(run.gpu)],
        "model": {
            "name": "model", "parameters": sum(layer["parameters"] for layer in run.layers),
            "layers": list(run.layers),
        },
        "fits": [fit | run.fit], "profile_windows": [],
        "timing": {
            "basis": "synchronous" if run.dispatch_ms is None else "asynchronous", "read_every": 16,
            "note": "published figures",
        },
        "absent": {"profile_windows": "no profiler window was asked for"},
    } | run.facts  # fmt: skip


def _device(gpu: Gpu | None) -> dict[str, Any]:
    if gpu is None:
        return {"kind": "cpu", "name": "x86_64"}
    return {
        "kind": "gpu", "name": gpu.name, "compute_capability": list(gpu.capability),
        "memory_bytes": gpu.memory_bytes, "sm_count": gpu.cores, "sm_clock_khz": gpu.clock_khz,
        "memory_bandwidth_bytes_per_s": gpu.bandwidth_gb_s * 1e9,
    }  # fmt: skip


def layer(
    name: str, kind: str, dtype: str, out: list[int | None], parameters: int = 0, **config: Any
) -> dict[str, Any]:
    return {
        "name": name, "class": kind, "compute_dtype": dtype, "variable_dtype": "float32", "output_dtype": dtype,
        "config": config, "output_shape": out, "parameters": parameters, "supports_jit": True,
    }  # fmt: skip


def imagenette_convnet(dtype: str, softmax: str = "float32") -> tuple[dict[str, Any], ...]:
    """The convnet of the article: 256x256x3 images, three strided convolutions with relu and batch norm."""
    layers: list[dict[str, Any]] = []
    channels, size = 3, 256
    for i, (filters, kernel) in enumerate(((32, 5), (64, 7), (128, 11))):
        tail, read = (f"_{i}" if i else ""), [None, size, size, channels]
        size //= 2
        shape = [None, size, size, filters]
        conv = layer(
            f"conv2d{tail}", "Conv2D", dtype, shape, kernel * kernel * channels * filters + filters,
            filters=filters, kernel_size=[kernel, kernel], strides=[2, 2], groups=1,
        )  # fmt: skip
        layers += [
            conv | {"input_shape": read},
            layer(f"batch_normalization{tail}", "BatchNormalization", dtype, shape, 4 * filters),
        ]
        channels = filters
    return (
        *layers,
        layer("global_average_pooling2d", "GlobalAveragePooling2D", dtype, [None, 128]),
        layer("dense", "Dense", dtype, [None, 10], 1290, units=10),
        layer("softmax", "Activation", softmax, [None, 10], 0, activation="softmax"),
    )
