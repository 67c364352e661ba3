"""Answers from torch, on the CPU as on CUDA and ROCm.

On a GPU the host runs ahead of the device. Keras' trainer keeps it so unless a callback has a batch end hook
(Keras 3.15, `backend/torch/trainer.py`); but a LossScaleOptimizer and gradient accumulation ask the device
for a truth value in every step (`backend/torch/core.py`, `cond`), which waits for all that was launched
before. On the CPU an operation has run when its call returns.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from mpprof.record.backends import torch_settings
from mpprof.record.backends.base import (
    ALONE,
    Absent,
    Counters,
    Facts,
    Reading,
    Snapshot,
    Taken,
    Unanswered,
    counters_of,
    loss_of,
)
from mpprof.record.backends.compiles import Compiles, Counted, Told
from mpprof.record.backends.torch_trace import TorchTrace
from mpprof.record.workers import Worker

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
        return torch_settings.framework()

    def settings(self) -> Facts:
        return torch_settings.settings()

    def devices(self) -> list[Facts]:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [torch_settings.gpu(torch.cuda.get_device_properties(k)) for k in range(count)]

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
