"""The energy that the GPU of a training takes, by the card's own counter."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Mapping
from typing import Any

Joules = Callable[[], float]


class Energy:
    """Reads the counter of the one GPU that this process trains on at two of its steps. `told`: the joules
    between them and the number of steps; or why they are not known."""

    def __init__(self) -> None:
        self._read: Joules | None = None
        self._began: tuple[int, float] | None = None
        self.told: dict[str, Any] = {"absent": "no steady step was seen"}

    def open(self, nvml: Any = None, environment: Mapping[str, str] = os.environ) -> None:
        """Find the card, before any step is timed."""
        if self._read is not None:
            return
        try:
            self._read = _counter(nvml, environment)
        except Exception as error:  # noqa: BLE001 - no library, no driver, no such counter: NVML's own errors
            self.told = {"absent": str(error) or type(error).__name__}

    def begin(self, steady: int) -> None:
        self._began = self._at(steady)

    def end(self, steady: int) -> None:
        now, began = self._at(steady), self._began
        if now is not None and began is not None and now[0] > began[0]:
            self.told = {"joules": now[1] - began[1], "steps": now[0] - began[0]}

    def _at(self, steady: int) -> tuple[int, float] | None:
        if self._read is None:
            return None
        try:
            return steady, self._read()
        except Exception as error:  # noqa: BLE001 - as above
            self.told, self._read = {"absent": f"NVML: {error}"}, None
            return None


def _counter(nvml: Any, environment: Mapping[str, str]) -> Joules:
    """Return what reads the counter. Raises an error of NVML, or ValueError where one card is not all that
    this process may use: which one it trains on is then not known."""
    if nvml is None:
        nvml = importlib.import_module("pynvml")
    nvml.nvmlInit()
    count, visible = nvml.nvmlDeviceGetCount(), environment.get("CUDA_VISIBLE_DEVICES")
    if count == 0:
        raise ValueError("NVML sees no GPU")
    if visible is not None and visible.startswith("GPU-") and "," not in visible:
        handle = nvml.nvmlDeviceGetHandleByUUID(visible)
    elif count == 1 and visible in (None, "0"):
        handle = nvml.nvmlDeviceGetHandleByIndex(0)
    else:
        raise ValueError("it is not known which GPU of several the training runs on")
    nvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # fails before Volta
    return lambda: float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) / 1000  # from mJ
