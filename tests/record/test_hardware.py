"""Samples from psutil, and from an NVML that is made up: there is no GPU where tests usually run."""

from __future__ import annotations

import os
import sys
import threading
from types import SimpleNamespace
from typing import Any

import pytest

from mpprof.record.facts import machine
from mpprof.record.hardware import HardwareSampler, throttle_names


class Nvml(SimpleNamespace):
    """Two cards, of which the second does not state its power."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetUtilizationRates(self, handle: int) -> Any:
        return SimpleNamespace(gpu=87)

    def nvmlDeviceGetMemoryInfo(self, handle: int) -> Any:
        return SimpleNamespace(used=3 << 30, total=16 << 30)

    def nvmlDeviceGetPowerUsage(self, handle: int) -> int:
        if handle == 1:
            raise RuntimeError("Not Supported")
        return 251_500

    def nvmlDeviceGetClockInfo(self, handle: int, clock: int) -> int:
        return 1380

    def nvmlDeviceGetTemperature(self, handle: int, sensor: int) -> int:
        return 61

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: int) -> int:
        return 0x1 | 0x4 | 0x40

    def nvmlDeviceGetName(self, handle: int) -> bytes:
        return b"Tesla V100-SXM2-16GB"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:
        return 7, 0

    def nvmlDeviceGetMaxClockInfo(self, handle: int, clock: int) -> int:
        return 1530 if clock == self.NVML_CLOCK_SM else 877

    def nvmlDeviceGetMemoryBusWidth(self, handle: int) -> int:
        return 4096

    def nvmlSystemGetDriverVersion(self) -> str:
        return "550.54"


def samples(monkeypatch: pytest.MonkeyPatch, count: int) -> tuple[list[dict[str, Any]], dict[str, str]]:
    monkeypatch.setattr("mpprof.record.hardware.EVERY_SECONDS", 0.001)
    got: list[dict[str, Any]] = []
    absent: dict[str, str] = {}
    enough = threading.Event()

    def put(sample: dict[str, Any]) -> None:
        got.append(sample)
        if len(got) >= count:
            enough.set()

    sampler = HardwareSampler(put, lambda: 1500, 500, absent, set())
    sampler.start()
    assert enough.wait(30)
    sampler.stop()
    return got, absent


def test_each_gpu_has_a_line_and_what_a_card_does_not_state_is_absent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())  # type: ignore[arg-type]
    got, absent = samples(monkeypatch, 4)
    first, second = got[:2]
    assert (first["gpu"], second["gpu"], first["t_ns"]) == (0, 1, 1000)
    assert first["utilization_ratio"] == 0.87
    assert first["power_w"] == 251.5
    assert first["sm_clock_hz"] == 1_380_000_000
    assert first["throttle"] == ["sw_power_cap", "hw_thermal"]
    assert 0 <= first["cpu_ratio"] <= 1
    assert 0 <= first["process_cpu_ratio"] <= 1
    assert first["rss_bytes"] > 1 << 20
    assert "power_w" not in second
    assert "Not Supported" in absent["hardware.power_w"]


def test_without_nvml_the_host_is_still_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    got, absent = samples(monkeypatch, 2)
    assert set(got[0]) == {"t_ns", "cpu_ratio", "process_cpu_ratio", "rss_bytes"}
    assert "NVML" in absent["hardware.gpu"]


def test_idle_is_no_throttling() -> None:
    assert throttle_names(0x1 | 0x2) == []
    assert throttle_names(0x8 | 0x80) == ["hw_slowdown", "hw_power_brake"]


def test_nvml_completes_what_the_framework_says_and_never_contradicts_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", Nvml())  # type: ignore[arg-type]
    told = [{"kind": "gpu", "name": "Tesla V100-SXM2-16GB", "compute_capability": [7, 5]}]
    (device,) = machine.with_nvml(told)
    assert device["compute_capability"] == [7, 5]
    assert device["memory_bytes"] == 16 << 30
    assert device["driver"] == "550.54"
    # 877 MHz, 4096 bits, two words a clock: 898 GB/s, as NVIDIA's V100 data sheet says (900)
    assert device["memory_bandwidth_bytes_per_s"] == pytest.approx(898e9, rel=0.001)
    other = [{"kind": "gpu", "name": "Another"}]
    assert machine.with_nvml(other) == other


def test_the_processor_is_a_device() -> None:
    cpu = machine.cpu()
    assert cpu["kind"] == "cpu"
    assert cpu["cores"] == os.cpu_count()
    assert cpu["memory_bytes"] > 1 << 28
