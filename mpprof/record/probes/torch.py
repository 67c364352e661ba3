"""Answers from torch: time, loss scale, skips and memory. Its profiler is not driven from here yet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from mpprof.record.probes.base import Absent, Facts, Snapshot, Taken, Unanswered, counters_of
from mpprof.record.reading import Reading


class TorchProbe(Unanswered):
    asynchronous = True

    def __init__(self) -> None:
        super().__init__("torch")
        self._read: Callable[[], Reading] | Absent | None = None

    def framework(self) -> Facts:
        cudnn = torch.backends.cudnn.version() if torch.cuda.is_available() else None
        return {
            "backend_version": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": None if cudnn is None else str(cudnn),
            "matmul_precision": torch.get_float32_matmul_precision(),
        }

    def settings(self) -> Facts:
        return {
            "tf32_enabled": torch.get_float32_matmul_precision() != "highest",
            "deterministic_ops": torch.are_deterministic_algorithms_enabled(),
            "graph_rewrite": False,
        }

    def devices(self) -> list[Facts]:
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        return [_gpu(torch.cuda.get_device_properties(k)) for k in range(count)]

    def distribution(self, model: Any) -> Facts:
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            return {"distribution": "torch.distributed", "replicas": torch.distributed.get_world_size()}
        return {"distribution": None, "replicas": 1}

    def counters(self, optimizer: Any, good_steps: bool = True) -> Callable[[], Reading] | Absent:
        found = counters_of(optimizer)
        if isinstance(found, Absent):
            return found
        return lambda: Reading(
            _number(found.iterations, int),
            _number(found.loss_scale, float),
            _number(found.good_steps, int),
        )

    def snapshot(self, model: Any) -> Snapshot | None:
        # Keras' variables are torch's own tensors here: reading them waits for the device.
        read = self.counters(model.optimizer)
        return None if isinstance(read, Absent) else Taken(read())

    def wait(self, model: Any) -> None:
        if torch.cuda.is_available():
            torch.cuda.synchronize()

    def reset_memory_peak(self) -> str | None:
        if torch.cuda.is_available():
            torch.cuda.reset_peak_memory_stats()
        return None

    def memory(self) -> list[Facts] | Absent:
        if not torch.cuda.is_available():
            return Absent("no GPU: torch does not count the host's memory")
        return [
            {
                "device": f"cuda:{k}",
                "peak_bytes": torch.cuda.max_memory_allocated(k),
                "live_bytes": torch.cuda.memory_allocated(k),
            }
            for k in range(torch.cuda.device_count())
        ]

    def start_trace(self, folder: Path) -> None:
        raise RuntimeError("no profile window on the torch backend yet: use torch.profiler beside it")


def _number(variable: Any, kind: type[Any]) -> Any:
    return None if variable is None else kind(variable.value.detach().item())


def _gpu(properties: Any) -> Facts:
    return {
        "kind": "gpu",
        "name": properties.name,
        "compute_capability": [properties.major, properties.minor],
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
    }
