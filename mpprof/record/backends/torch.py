"""Answers from torch, on the CPU as on CUDA and ROCm.

On a GPU the host runs ahead of the device. Keras' trainer keeps it so unless a callback has a batch end hook
(Keras 3.15, `backend/torch/trainer.py`); but a LossScaleOptimizer and gradient accumulation ask the device
for a truth value in every step (`backend/torch/core.py`, `cond`), which waits for all that was launched
before. On the CPU an operation has run when its call returns.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mpprof.record.backends.base import (
    ALONE,
    Absent,
    Counters,
    Facts,
    Reading,
    Snapshot,
    Taken,
    Unanswered,
    Worker,
    counters_of,
    loss_of,
)
from mpprof.record.backends.compiles import Compiles, Counted, Told
from mpprof.record.backends.torch_ranges import Ranges
from mpprof.record.run_with_timeout import with_timeout

# What torch says of itself: versions, the switches that decide how it computes, and its GPUs.


def framework() -> Facts:
    """Return run.json's `framework`. The switches of TF32 stand here one by one: torch has two."""
    return {
        "backend_version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn(),
        "matmul_precision": _ask(torch.get_float32_matmul_precision),
        "tf32_matmul": _tf32_in_products(),
        "tf32_cudnn": _tf32_in_cudnn(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "autocast": _autocast(),
    }


def settings() -> Facts:
    """Return `tf32_enabled`, `deterministic_ops`, `graph_rewrite`."""
    return {
        "tf32_enabled": _tf32(),
        "deterministic_ops": bool(torch.are_deterministic_algorithms_enabled()),
        "graph_rewrite": False,
    }


def gpu(properties: Any) -> Facts:
    """Return an entry of run.json's `devices`."""
    facts: Facts = {
        "kind": "gpu",
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
    }
    if torch.version.hip:  # `major` and `minor` are of a gfx number there, no compute capability
        return {**facts, "vendor": "amd"}
    return {**facts, "compute_capability": [properties.major, properties.minor]}


def _tf32() -> bool | Absent:
    products, cudnn = _tf32_in_products(), _tf32_in_cudnn()
    if products is None or cudnn is None:
        return Absent("this version of torch does not state it")
    if products == cudnn:
        return products
    allowed, other = ("matrix products", "cuDNN") if products else ("cuDNN's convolutions", "matrix products")
    return Absent(f"torch has two switches: TF32 is allowed for {allowed}, not for {other}")


def _tf32_in_products() -> bool | None:
    if _forbidden():
        return False
    backend = torch.backends.cuda.matmul
    if hasattr(backend, "fp32_precision"):  # since torch 2.9; the older switch raises where this one was used
        return bool(backend.fp32_precision == "tf32")
    allowed: bool | None = _ask(lambda: bool(backend.allow_tf32))
    return allowed


def _tf32_in_cudnn() -> bool | None:
    if _forbidden():
        return False
    convolutions: Any = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolutions, "fp32_precision"):
        return bool(convolutions.fp32_precision == "tf32")
    allowed: bool | None = _ask(lambda: bool(torch.backends.cudnn.allow_tf32))
    return allowed


def _forbidden() -> bool:
    """Return whether NVIDIA's variable forbids TF32: NVIDIA's libraries obey it above all that a framework
    asks for."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


def _cudnn() -> str | None:
    version = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return None if version is None else str(version)


def _autocast() -> str | None:
    """Return which types `torch.autocast` casts to on which device, where the training runs within it."""
    devices = ("cuda", "cpu")
    on = [device for device in devices if _ask(lambda device=device: torch.is_autocast_enabled(device))]
    types = [f"{device} {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}" for device in on]
    return ", ".join(types) or None


def _ask(question: Any) -> Any:
    """Return the answer; None where this torch has none, or refuses it because two generations of its
    switches were used side by side."""
    try:
        return question()
    except (AttributeError, RuntimeError, TypeError):
        return None


# The profile window on torch: its own profiler (Kineto), and the scopes that it does not record by itself.
#
# Kineto writes every op with its shapes and types, every CUDA call and every kernel, but not which layer an
# op belongs to: it knows modules only from a tracer of Python frames, which makes a step several times
# longer. So ranges are set round each forward call (`torch_ranges`); an op of the backward pass belongs where
# the op does that it is the gradient of. Compiled code runs without them: its layers stay unknown.

OWN_STEP = "ProfilerStep#"
"""What torch's tools take for a step. In another tool's trace its own steps may have this name."""
FOREIGN_STEP = "mpprof_step#"
WRITING_SECONDS = 60.0


class TorchTrace:
    """One profiler session after the other."""

    def __init__(self) -> None:
        self._profiler: Any = None
        self._folder = Path()
        self._ranges = Ranges()

    def start(self, folder: Path) -> None:
        """Start the profiler. Raises RuntimeError where a profiler runs already: torch would end that one
        without a message."""
        if profiler_runs():
            raise RuntimeError("torch's profiler runs already: only step markers are set, in that trace")
        profiler = torch.profiler.profile(
            activities=_activities(),
            record_shapes=True,
            profile_memory=torch.cuda.is_available(),  # of the host's memory nothing is judged
        )
        self._folder = folder
        profiler.start()
        self._profiler = profiler
        self._ranges.attach()

    def stop(self) -> None:
        """Stop, and write `<folder>/plugins/profile/<time>/<host>.pt.trace.json.gz`."""
        self._ranges.detach()
        profiler, self._profiler = self._profiler, None
        if profiler is None:
            raise RuntimeError("mpprof's profiler is not running")
        profiler.stop()
        with_timeout(_write, profiler, self._folder, deadline_s=WRITING_SECONDS)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        if not profiler_runs():
            return contextlib.nullcontext()
        name = FOREIGN_STEP if self._profiler is None else OWN_STEP
        marker: contextlib.AbstractContextManager[Any] = torch.profiler.record_function(f"{name}{step}")
        return marker


def profiler_runs() -> bool:
    """Return whether any profiler of torch is on, whoever started it, in any thread."""
    from torch.autograd import profiler

    return bool(torch.autograd._profiler_enabled() or getattr(profiler, "_is_profiler_enabled", False))


def _activities() -> list[Any]:
    activity = torch.profiler.ProfilerActivity
    return [activity.CPU, *([activity.CUDA] if torch.cuda.is_available() else [])]


def _write(profiler: Any, folder: Path) -> None:
    session = folder / "plugins" / "profile" / time.strftime("%Y_%m_%d_%H_%M_%S")
    session.mkdir(parents=True)
    trace = session / f"{_file_name(platform.node())}.pt.trace.json"
    # torch would compress by way of the system's temporary directory, which may be smaller than this one.
    profiler.export_chrome_trace(str(trace))
    with trace.open("rb") as plain, gzip.open(f"{trace}.gz", "wb", compresslevel=3) as packed:
        shutil.copyfileobj(plain, packed, 1 << 20)
    trace.unlink()


def _file_name(host: str) -> str:
    return host.replace(os.sep, "_") or "host"


ON_THE_HOST = (
    "torch computes on the CPU within its calls: interval_ns is batch begin to batch begin on the host. "
    "Keras hands over a batch's end in a thread of its own, so duration_ns is not known. "
    "Lines that were read carry loss, Keras' running mean over the epoch."
)
BEHIND_THE_HOST = (
    "The device runs behind the host: dispatch_ns is what the host took. Only lines marked synced carry "
    "interval_ns: the mean per call between two waits for the device, over interval_calls calls. Keras "
    "itself waits for the gradients of each step where the loss scale is dynamic or they are accumulated. "
    "Lines that were read carry loss, Keras' running mean over the epoch."
)


class TorchProbe(Unanswered):
    asynchronous = True

    def __init__(self) -> None:
        super().__init__("torch")
        self.runs_behind = _on_accelerator()
        self.timing_note = BEHIND_THE_HOST if self.runs_behind else ON_THE_HOST
        self._trace = TorchTrace()

    def framework(self) -> Facts:
        return framework()

    def settings(self) -> Facts:
        return settings()

    def devices(self) -> list[Facts]:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [gpu(torch.cuda.get_device_properties(k)) for k in range(count)]

    def distribution(self, model: Any) -> Facts:
        if not _distributed():
            return {"distribution": Absent(ALONE), "replicas": 1}
        return {"distribution": "torch.distributed", "replicas": torch.distributed.get_world_size()}

    def worker(self, model: Any) -> Worker | None:
        if not _distributed() or torch.distributed.get_world_size() < 2:
            return None
        # What every process of a torchrun shares, and two of them at a time on one machine do not.
        names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE")
        text = repr([os.environ.get(name) for name in names])
        return Worker(torch.distributed.get_rank(), hashlib.sha256(text.encode()).hexdigest()[:16])

    def counters(self, optimizer: Any, good_steps: bool = True) -> Callable[[], Reading] | Absent:
        found = counters_of(optimizer)
        if isinstance(found, Absent):
            return found
        return lambda: _reading([None if value is None else value.item() for value in _tensors(found)])

    def snapshot(self, model: Any) -> Snapshot | None:
        found = counters_of(model.optimizer)
        if isinstance(found, Absent):
            return None
        values = [*_tensors(found), *_tensors_of_loss(model)]
        if any(value is not None and value.is_cuda for value in values):
            return _queued(values)
        return Taken(_reading([None if value is None else value.item() for value in values]))

    def wait(self, model: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        elif self.runs_behind:
            torch.accelerator.synchronize()

    def reset_memory_peak(self) -> str | None:
        for k in range(torch.cuda.device_count()):
            torch.cuda.reset_peak_memory_stats(k)
        return None

    def memory(self) -> list[Facts] | Absent:
        if not torch.cuda.is_available():
            return Absent("no CUDA or ROCm GPU: torch has no statistics of the host's memory")
        return [
            {
                "device": f"cuda:{k}",
                "peak_bytes": torch.cuda.max_memory_allocated(k),
                "live_bytes": torch.cuda.memory_allocated(k),
            }
            for k in range(torch.cuda.device_count())
        ]

    def start_trace(self, folder: Path) -> None:
        self._trace.start(folder)

    def stop_trace(self) -> None:
        self._trace.stop()

    def compiles(self, model: Any, told: Told) -> Compiles | Absent:
        return Counted("torch dynamo", _compiled, told)

    def marker(self, step: int) -> contextlib.AbstractContextManager[Any]:
        return self._trace.marker(step)


@dataclass(frozen=True, slots=True)
class _Queued:
    """A copy of the counters on its way to the host."""

    host: Any  # float64[n], of those that are known
    event: Any
    known: list[bool]

    def ready(self) -> bool:
        return bool(self.event.query())

    def reading(self) -> Reading:
        self.event.synchronize()
        numbers = iter(self.host.tolist())
        return _reading([next(numbers) if known else None for known in self.known])


def _queued(values: list[Any]) -> _Queued:
    """Ask for the values behind all that was launched so far, without a wait. A double holds a counter below
    2^53 and a float32 exactly."""
    with torch.no_grad():
        packed = torch.stack([value.double() for value in values if value is not None])
        host = torch.empty(packed.shape, dtype=packed.dtype, pin_memory=True)
        host.copy_(packed, non_blocking=True)
        event = torch.cuda.Event()
        event.record()
    return _Queued(host, event, [value is not None for value in values])


def _reading(values: list[Any]) -> Reading:
    """Return the reading of the counters, and of the sum and the count of the loss where they were asked
    for."""
    iterations, scale, good, *loss = values
    return Reading(
        None if iterations is None else int(iterations),
        None if scale is None else float(scale),
        None if good is None else int(good),
        float(loss[0]) / float(loss[1]) if loss and loss[1] else None,
    )


def _tensors(found: Counters) -> list[Any]:
    """Return scalar tensors of the counters, cut off from autograd; None for what the optimizer does not
    have."""
    variables = (found.iterations, found.loss_scale, found.good_steps)
    return [None if variable is None else variable.value.detach() for variable in variables]


def _tensors_of_loss(model: Any) -> list[Any]:
    """Return the sum and the count of the loss' running mean; empty where Keras keeps none."""
    return [variable.value.detach() for variable in loss_of(model) or ()]


def _on_accelerator() -> bool:
    """Return whether Keras computes on something else than the CPU, by what decides that for Keras, too."""
    wanted = os.environ.get("KERAS_TORCH_DEVICE")
    if wanted:
        return not wanted.startswith("cpu")
    if hasattr(torch, "accelerator"):
        return bool(torch.accelerator.is_available())
    return bool(torch.cuda.is_available())


def _compiled() -> tuple[int, int | None]:
    """Return how many graphs dynamo has compiled in this process, and how long that took: none where it is
    not even imported (read in torch 2.13, `_dynamo/utils.py`)."""
    dynamo = sys.modules.get("torch._dynamo.utils")
    seconds = getattr(dynamo, "compilation_time_metrics", {}).get("_compile.compile_inner", [])
    return len(seconds), round(sum(seconds) * 1e9)


def _distributed() -> bool:
    return bool(torch.distributed.is_available() and torch.distributed.is_initialized())
