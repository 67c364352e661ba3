"""What the machine says of itself: the host's CPU, and what NVML adds to the framework's GPUs."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

Facts = dict[str, Any]


def cpu() -> Facts:
    """Return the host's processor as an entry of run.json's `devices`."""
    facts: Facts = {"kind": "cpu", "name": _cpu_name(), "cores": os.cpu_count()}
    try:
        import psutil  # type: ignore[import-untyped]

        facts["memory_bytes"] = psutil.virtual_memory().total
    except Exception:  # noqa: BLE001 - psutil raises errors of its own; the size is then not stated
        facts.pop("memory_bytes", None)
    return {key: value for key, value in facts.items() if value is not None}


def _cpu_name() -> str | None:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or None


def with_nvml(devices: list[Facts]) -> list[Facts]:
    """Return the devices, each NVIDIA GPU completed by what NVML states of the card of that name.

    NVML sees all cards of a machine and a framework those made visible to it, so cards are joined by
    name: cards of one name do not differ in what is taken here, except for limits an administrator set.
    """
    if not any(device["kind"] == "gpu" for device in devices):
        return devices
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
        cards = [_card(pynvml, handle) for handle in handles]
    except Exception:  # noqa: BLE001 - no NVML here: what the framework says remains
        return devices
    return [{**_named(cards, device.get("name")), **device} for device in devices]


def _named(cards: list[Facts], name: str | None) -> Facts:
    return next((card for card in cards if card.get("name") == name), {})


def _card(nvml: Any, handle: Any) -> Facts:
    questions: dict[str, Callable[[], Any]] = {
        "name": lambda: _text(nvml.nvmlDeviceGetName(handle)),
        "compute_capability": lambda: list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).total,
        "sm_clock_khz": lambda: nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_SM) * 1000,
        "sm_count": lambda: nvml.nvmlDeviceGetAttributes(handle).multiprocessorCount,
        "memory_bandwidth_bytes_per_s": lambda: _bandwidth(nvml, handle),
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "mig": lambda: bool(nvml.nvmlDeviceGetMigMode(handle)[0]),
        "driver": lambda: _text(nvml.nvmlSystemGetDriverVersion()),
    }
    facts: Facts = {}
    for key, ask in questions.items():
        try:
            facts[key] = ask()
        except Exception:  # noqa: BLE001 - this card or driver does not state it
            continue
    return facts


def _bandwidth(nvml: Any, handle: Any) -> float:
    """Return the bytes per second at the highest memory clock. HBM and GDDR move two words a clock; NVML
    states GDDR5X and GDDR6 at a clock that already counts their faster transfers as double rate."""
    megahertz = nvml.nvmlDeviceGetMaxClockInfo(handle, nvml.NVML_CLOCK_MEM)
    return float(2 * megahertz * 1e6 * nvml.nvmlDeviceGetMemoryBusWidth(handle) / 8)


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
