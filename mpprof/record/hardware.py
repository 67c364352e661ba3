"""Samples of the machine about once a second, from a thread of its own: NVML for NVIDIA GPUs, psutil.

NVML counts GPUs in PCI order and sees all of them; a sample's `gpu` is that index. What cannot be read is
left out of the sample, and what never could is in `absent`.
"""

from __future__ import annotations

import multiprocessing.process
import threading
import time
from collections.abc import Callable
from typing import Any

from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled

EVERY_SECONDS = 1.0

# NVML's nvmlClocksEventReasons bits, nvml.h. Bits 0 (idle) and 1 (applications' own clock setting) are no
# throttling and are left out.
THROTTLE = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}

Sample = dict[str, Any]


class HardwareSampler:
    """Hands samples to `put` until stopped. It fails quietly: into `absent` and what `stop` returns, never
    into the training."""

    def __init__(
        self,
        put: Callable[[Sample], None],
        clock: Callable[[], int],
        zero_ns: int,
        absent: dict[str, str],
        throttling: set[str],
    ) -> None:
        """Prepare a sampler that is not started yet; `throttling` gets the reasons that GPUs give for their
        lower clocks."""
        self._put, self._clock, self._zero_ns, self._absent = put, clock, zero_ns, absent
        self._throttling = throttling
        self._error: BaseException | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mpprof hardware", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> BaseException | None:
        """End the thread; one that hangs in a driver is left behind. Returns what has ended the samples
        before that, or keeps them from ending."""
        self._stop.set()
        self._thread.join(timeout_s)
        return TimeoutError("a driver does not answer") if self._thread.is_alive() else self._error

    def _run(self) -> None:
        try:
            machine = _process(self._absent)
            gpus = _gpus(self._absent)
            machine()  # psutil's first answer covers no time
            while not self._stop.wait(EVERY_SECONDS):
                now = self._clock() - self._zero_ns
                shared = machine()
                for sample in gpus() or [{}]:
                    self._throttling.update(sample.get("throttle", ()))
                    self._put({"t_ns": now, **sample, **shared})
        except FAILURES as error:  # drivers fail in their own ways; the samples end here
            self._error = error
            self._absent["hardware"] = f"sampling failed: {type(error).__name__}: {error}"[:500]


def _process(absent: dict[str, str]) -> Callable[[], Sample]:
    """Return a function that asks psutil for the CPU use of the machine, and of this process with its
    children, both as shares of all cores (0..1), and for this process' resident memory."""
    try:
        import psutil  # type: ignore[import-untyped]

        process, cores = psutil.Process(), psutil.cpu_count() or 1
    except Exception as error:  # noqa: BLE001 - psutil raises OSErrors and errors of its own
        absent["hardware.cpu"] = f"psutil: {type(error).__name__}: {error}"
        return dict

    before = time.monotonic(), _seconds_used(process)

    def sample() -> Sample:
        nonlocal before
        (at, used), now = before, (time.monotonic(), _seconds_used(process))
        before = now
        # The ticks of a process' clock are longer than those of the other.
        ratio = max(0.0, min((now[1] - used) / max(now[0] - at, 1e-9) / cores, 1.0))
        return {
            "cpu_ratio": round(psutil.cpu_percent() / 100, 4),
            "process_cpu_ratio": round(ratio, 4),
            "rss_bytes": process.memory_info().rss,
        }

    return sample


def _seconds_used(process: Any) -> float:
    """Return the CPU seconds of a process and its children: those that have ended, and the workers that
    Python's `multiprocessing` knows. To look for others means to read the state of every process of the
    machine."""
    used = _seconds(process)
    for child in tuple(getattr(multiprocessing.process, "_children", ())):
        try:
            used += _seconds(type(process)(child.pid))
        except Exception as error:  # noqa: BLE001 - it has ended meanwhile, or has not begun
            raise_if_signalled(error)
    return used


def _seconds(process: Any) -> float:
    times = process.cpu_times()
    children = getattr(times, "children_user", 0.0) + getattr(times, "children_system", 0.0)
    return float(times.user + times.system + children)


def _gpus(absent: dict[str, str]) -> Callable[[], list[Sample]]:
    """Return a function that asks NVML for every GPU it sees."""
    try:
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(k) for k in range(pynvml.nvmlDeviceGetCount())]
    except Exception as error:  # noqa: BLE001 - no library, no driver, no permission: NVML's own errors
        absent["hardware.gpu"] = f"NVML: {type(error).__name__}: {error}"
        return list

    return lambda: [_gpu(pynvml, k, handle, absent) for k, handle in enumerate(handles)]


def _gpu(nvml: Any, index: int, handle: Any, absent: dict[str, str]) -> Sample:
    questions: dict[str, Callable[[], Any]] = {
        "utilization_ratio": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
        "memory_used_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
        "power_w": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "sm_clock_hz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM) * 1_000_000,
        "temperature_c": lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU),
        "throttle": lambda: throttle_names(nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)),
    }
    sample: Sample = {"gpu": index}
    for name, ask in questions.items():
        try:
            sample[name] = ask()
        except Exception as error:  # noqa: BLE001 - one field that this card or driver does not state
            absent.setdefault(f"hardware.{name}", f"NVML: {type(error).__name__}: {error}")
    return sample


def throttle_names(bits: int) -> list[str]:
    """Return the names of NVML's throttle reasons that are set."""
    return [name for bit, name in THROTTLE.items() if bits & bit]
