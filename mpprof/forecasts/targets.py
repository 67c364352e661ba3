"""A card that is not here, described so that XLA compiles for it.

XLA takes a description of the device in place of the device (`GpuTargetConfigProto`, openxla/xla). It checks
none of its fields: one that is missing ends the process, or gives another program without a warning. So every
field is filled here, from the table of products and from what NVIDIA's programming guide states for each
compute capability, and a card for which one is not known is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.device_peaks import Product
from mpprof.errors import NotFoundError, UsageError
from mpprof.model.device import DeviceFacts
from mpprof.model.frozen import frozen

CUDNN = "9.10.0"
CUDA = "12.9.0"
"""The libraries that the card is taken to have: those that the pinned compiler was built with."""


@frozen
class Architecture:
    """What one compute capability has (CUDA C++ programming guide, technical specifications per compute
    capability; the fp32 lanes from its table of arithmetic throughput)."""

    shared_bytes_per_sm: int
    shared_bytes_per_block: int  # at most, when a kernel asks for it
    threads_per_sm: int
    fp32_lanes_per_sm: int
    features: str = "NONE"  # architecture-specific instructions (sm_90a, sm_100a)


ARCHITECTURES: dict[tuple[int, int], Architecture] = {
    (7, 0): Architecture(96 << 10, 96 << 10, 2048, 64),
    (7, 5): Architecture(64 << 10, 64 << 10, 1024, 64),
    (8, 0): Architecture(164 << 10, 163 << 10, 2048, 64),
    (8, 6): Architecture(100 << 10, 99 << 10, 1536, 128),
    (8, 9): Architecture(100 << 10, 99 << 10, 1536, 128),
    (9, 0): Architecture(228 << 10, 227 << 10, 2048, 128, "ACCELERATED_FEATURES"),
    (10, 0): Architecture(228 << 10, 227 << 10, 2048, 128, "ACCELERATED_FEATURES"),
    (12, 0): Architecture(100 << 10, 99 << 10, 1536, 128, "ACCELERATED_FEATURES"),
}


@frozen
class Card:
    """One card to forecast for: a product of which every field of the description is known."""

    name: str
    compute_capability: tuple[int, int]
    sm_count: int
    sm_clock_khz: int
    highest_clock_khz: int  # that it may reach, where that is more than what is stated
    highest_rates: dict[str, float]  # at that clock
    bandwidth_bytes_per_s: float
    memory_bytes: int
    l2_bytes: int
    source: str

    @property
    def facts(self) -> DeviceFacts:
        """As a run would describe the card."""
        return DeviceFacts(
            kind="gpu",
            name=self.name,
            vendor="nvidia",
            compute_capability=self.compute_capability,
            memory_bytes=self.memory_bytes,
            sm_count=self.sm_count,
            sm_clock_khz=self.sm_clock_khz,
            memory_bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
        )


def cards() -> tuple[Card, ...]:
    """Return every card that can be forecast, in the table's order."""
    made = (_card(product) for product in device_peaks.products())
    return tuple(card for card in made if isinstance(card, Card))


def card(name: str) -> Card:
    """Return the card of that name ("h100", "NVIDIA A100-SXM4-40GB", "v100 32GB").

    Raises `NotFoundError` with the nearest names for one that is not in the table, and `UsageError` for one
    that the table does not describe well enough, or that no compiler here can compile for.
    """
    spoken = name.strip()
    size = re.search(r"\b(\d+)\s*gb\b", spoken, re.IGNORECASE)
    product = device_peaks.by_name(spoken)
    if product is None and size is not None:
        product = device_peaks.by_name(re.sub(r"\s*\b\d+\s*gb\b", "", spoken, flags=re.IGNORECASE))
    if product is None:
        raise NotFoundError(f"no card called {name!r} is known", next=_nearest(spoken))
    made = _card(product, int(size.group(1)) << 30 if size else None)
    if isinstance(made, str):
        raise UsageError(f"{product.name} cannot be forecast: {made}", next=_nearest(spoken))
    return made


def _card(product: Product, memory_bytes: int | None = None) -> Card | str:
    """Return the card of a product; or why there is none."""
    if product.vendor != "nvidia" or product.kind != "gpu":
        return "XLA's compiler for NVIDIA GPUs is what is installed"
    capability = product.compute_capability
    if capability not in ARCHITECTURES:
        stated = f"{capability[0]}.{capability[1]}" if capability else "unknown"
        return f"compute capability {stated} is not described here"
    missing = [
        field
        for field in ("sm_count", "sm_clock_khz", "bandwidth_bytes_per_s", "l2_bytes", "memory_bytes")
        if not getattr(product, field)
    ]
    if missing:
        return f"the table of devices does not state its {', '.join(missing)}"
    assert capability is not None
    assert product.sm_count is not None
    assert product.sm_clock_khz is not None
    assert product.bandwidth_bytes_per_s is not None
    assert product.l2_bytes is not None
    memory = min(product.memory_bytes)
    if memory_bytes is not None:
        if memory_bytes not in product.memory_bytes:
            return f"it has no variant of {memory_bytes >> 30} GB"
        memory = memory_bytes
    return Card(
        re.sub(r"\b\d+GB\b", f"{memory >> 30}GB", product.name),  # the table names one variant
        capability,
        product.sm_count,
        product.sm_clock_khz,
        product.highest_clock_khz or product.sm_clock_khz,
        product.highest_rates,
        product.bandwidth_bytes_per_s,
        memory,
        product.l2_bytes,
        product.source,
    )


def _nearest(name: str) -> str:
    known = [one.name for one in cards()]
    words = {part: full for full in known for part in (full.lower(), *re.split(r"[\s-]+", full.lower()))}
    near = difflib.get_close_matches(name.lower(), words, n=5, cutoff=0.5)
    found: Sequence[str] = list(dict.fromkeys(words[word] for word in near)) or known[:5]
    return f"Cards that can be forecast, nearest first: {', '.join(found)}"


def description(card: Card) -> str:
    """Return the card as XLA's target description, in protobuf's text form."""
    has = ARCHITECTURES[card.compute_capability]
    major, minor = card.compute_capability
    dnn_major, dnn_minor, dnn_patch = CUDNN.split(".")
    return f"""gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 shared_memory_per_block: {48 << 10}
  shared_memory_per_core: {has.shared_bytes_per_sm}
  shared_memory_per_block_optin: {has.shared_bytes_per_block}
  threads_per_core_limit: {has.threads_per_sm} core_count: {card.sm_count}
  fpus_per_core: {has.fp32_lanes_per_sm}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  memory_bandwidth: {round(card.bandwidth_bytes_per_s)} l2_cache_size: {card.l2_bytes}
  clock_rate_ghz: {card.sm_clock_khz / 1e6} device_memory_size: {card.memory_bytes}
  cuda_compute_capability {{ major: {major} minor: {minor} feature_extension: {has.features} }}
  device_vendor: "NVIDIA Corporation" name: "{card.name}"
  driver_version: "13.0.0" runtime_version: "{CUDA}" compile_time_toolkit_version: "{CUDA}"
  dnn_version: "{CUDNN}"
}}
platform_name: "CUDA"
dnn_version_info {{ major: {dnn_major} minor: {dnn_minor} patch: {dnn_patch} }}
device_description_str: "{card.name}"
"""
