"""What is known of a device, and what it could do at best."""

from __future__ import annotations

from typing import Literal

from mpprof.model.frozen import frozen

DeviceKind = Literal["gpu", "tpu", "cpu"]
Vendor = Literal["nvidia", "amd", "google", "intel", "apple", "unknown"]
MAYBE_NVIDIA: tuple[Vendor, ...] = ("nvidia", "unknown")
"""Vendors whose cards have a compute capability and Tensor Cores, as far as is known."""

_BRANDS = ("NVIDIA ", "GeForce ", "Tesla ")


def short_name(name: str) -> str:
    """Return a card's name without its brands: "GTX 1080 Ti"."""
    for brand in _BRANDS:
        name = name.replace(brand, "")
    return name


@frozen
class DeviceFacts:
    """One device as a run or a trace describes it. `None`: not stated there."""

    kind: DeviceKind
    name: str | None = None
    vendor: Vendor = "unknown"
    compute_capability: tuple[int, int] | None = None
    memory_bytes: int | None = None
    sm_count: int | None = None
    sm_clock_khz: int | None = None
    memory_bandwidth_bytes_per_s: float | None = None
    power_limit_w: float | None = None
    mig: bool | None = None
    driver: str | None = None

    @property
    def architecture(self) -> str | None:
        """What its number says: "compute capability 8.0", or of an AMD card "gfx94x"."""
        if self.compute_capability is None or self.vendor not in (*MAYBE_NVIDIA, "amd"):
            return None
        major, minor = self.compute_capability
        return f"gfx{major}{minor}x" if self.vendor == "amd" else f"compute capability {major}.{minor}"


@frozen
class DevicePeaks:
    """Peak rates of a device, dense (no sparsity).

    `flops_per_s` maps an arithmetic to its peak: `fp64 fp32 tf32 fp16 bf16 fp8 int8` on matrix units
    where the device has them for that type, and `fp32_cuda fp16_cuda` on ordinary arithmetic. A key that
    is absent is a type that the device has no unit for (or whose rate is not known).
    `source` names the document; `inferred` says that the device was recognised by its SM count and clock
    and not by its name.
    """

    name: str
    has_matrix_units: bool
    flops_per_s: dict[str, float]
    bandwidth_bytes_per_s: float | None
    source: str
    inferred: bool = False
