"""What a device could do at best: peak rates by name, or inferred from its SMs, memory and clock.

The table is `device_peaks.csv`: one row per product, rates dense in TFLOP/s as the vendor's named document
states them, and so the memory (several sizes: variants of one product). `checked` names what a row was compared with: another published table, or what its SMs, its clock
and the rate of one SM give; a row without says so in its `source`.

NVIDIA states the 8- and 16-bit and TF32 rates of Hopper's Tensor Cores at a lower clock, `matrix_clock_mhz`, than
the largest, `sm_clock_mhz`, at which it states the others: 1,830 and 1,980 MHz of H100 SXM5, 1,620 and 1,755 of
H100 PCIe (H100 architecture whitepaper, table 3). For H100 NVL, H200 NVL and B200 that clock follows from the
rate, with 4,096 and 8,192 FLOP of 16 bits a clock and SM. Peaks are as stated; a card at its largest clock
can exceed them by that ratio, and `highest_rates` is what none exceeds.

GeForce cards accumulate fp16 products in float32 at half rate, so `fp16` is the rate with float32
accumulation, which is what mixed precision asks for, and `fp16_acc16` that with half. GTX 16, MX and T400 to
T1200 share compute capability 7.5 with the T4 and have no Tensor Cores.
"""

from __future__ import annotations

import csv
import re
from dataclasses import fields, replace
from functools import cache, lru_cache
from pathlib import Path

from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts, DevicePeaks, Vendor
from mpprof.model.frozen import frozen

UNCHECKED = "not compared with a second source"
_AT_MATRIX_CLOCK = ("tf32", "fp16", "fp16_acc16", "bf16", "fp8", "int8", "fp4")
_BOARDS = r"GeForce|RTX|TITAN|Quadro"
_HIGHEST_CLOCKS_KHZ = {
    (7, 0): 2_100_000, (7, 5): 2_100_000, (8, 6): 2_100_000, (8, 9): 3_105_000, (12, 0): 3_135_000,
}  # fmt: skip
"""Boards for desks boost beyond the clock that is stated for them: the largest that drivers report as theirs (RTX
A6000: 2,100 for 1,800 MHz, seen at 1,935; RTX 4090: 3,105 for 2,520; RTX 5090: 3,090 and 3,135 for 2,407)."""
_CUDA_RATES = ("fp32_cuda", "fp16_cuda", "fp64_cuda")
_MATRIX_RATES = ("fp64", "fp32", "tf32", "fp16", "fp16_acc16", "bf16", "fp8", "int8", "fp4")


@frozen
class Product:
    """One row of the table. Rates in FLOP/s, bandwidth in bytes/s, clock in kHz; None: not stated."""

    name: str
    pattern: str  # of its name, in lower case
    vendor: Vendor
    kind: str
    compute_capability: tuple[int, int] | None
    sm_count: int | None
    sm_clock_khz: int | None
    matrix_clock_khz: (
        int | None
    )  # of the matrix units' rates of 16 bits and less and TF32; None: sm_clock_khz
    rates: dict[str, float]
    bandwidth_bytes_per_s: float | None
    memory_bytes: tuple[int, ...]  # of each variant; empty: shared with the host, or not stated
    l2_bytes: int | None  # as its maker states it; A10, GV100, T4, RTX 3090, B200: also printed by one
    source: str

    def named(self, spoken: str) -> bool:
        """Return whether a name, in lower case with single spaces, is this product's."""
        # A model number never continues: T4 is not T400, A10 is not A100 or A10G.
        return bool(_compiled(rf"(?<![a-z0-9])(?:{self.pattern})(?![a-z0-9])").search(spoken))

    @property
    def mobile(self) -> bool:
        return bool(re.search(_MOBILE, _spoken(self.name)))

    @property
    def has_matrix_units(self) -> bool:
        return any(rate in self.rates for rate in _MATRIX_RATES)

    @property
    def highest_clock_khz(self) -> int | None:
        """The clock that no board exceeds as it is sold; None: not known."""
        if self.sm_clock_khz is None or self.compute_capability is None:
            return None
        clocked = _HIGHEST_CLOCKS_KHZ.get(self.compute_capability, 0) if re.search(_BOARDS, self.name) else 0
        return max(self.sm_clock_khz, clocked)

    @property
    def highest_rates(self) -> dict[str, float]:
        """Rates at the highest clock, which are at least those that are stated."""
        highest, stated = self.highest_clock_khz, self.sm_clock_khz
        if not highest or not stated:
            return dict(self.rates)
        narrow = self.matrix_clock_khz or stated
        return {
            key: rate * highest / (narrow if key in _AT_MATRIX_CLOCK else stated)
            for key, rate in self.rates.items()
        }

    def peaks(
        self, *, scale: float = 1.0, bandwidth_scale: float = 1.0, name: str = "", inferred: bool = False
    ) -> DevicePeaks:
        bandwidth = self.bandwidth_bytes_per_s
        return DevicePeaks(
            name=name or self.name,
            has_matrix_units=self.has_matrix_units,
            flops_per_s={key: rate * scale for key, rate in self.rates.items()},
            bandwidth_bytes_per_s=bandwidth * bandwidth_scale if bandwidth else None,
            source=self.source,
            inferred=inferred,
        )


# Compiled when first used: a device without a name needs none of them.
_compiled = cache(re.compile)


@lru_cache(maxsize=1)
def products() -> tuple[Product, ...]:
    """Return the table, most specific name first."""
    text = Path(__file__).with_name("device_peaks.csv").read_text(encoding="utf-8")
    return tuple(_product(row) for row in csv.DictReader(text.splitlines()))


def _product(row: dict[str, str]) -> Product:
    capability = (
        tuple(int(part) for part in row["compute_capability"].split("."))
        if row["compute_capability"]
        else None
    )
    return Product(
        name=row["name"],
        pattern=row["pattern"],
        vendor=row["vendor"],  # type: ignore[arg-type]
        kind=row["kind"],
        compute_capability=capability,  # type: ignore[arg-type]
        sm_count=int(row["sm_count"]) if row["sm_count"] else None,
        sm_clock_khz=int(row["sm_clock_mhz"]) * 1000 if row["sm_clock_mhz"] else None,
        matrix_clock_khz=int(row["matrix_clock_mhz"]) * 1000 if row["matrix_clock_mhz"] else None,
        rates={key: float(row[key]) * 1e12 for key in (*_CUDA_RATES, *_MATRIX_RATES) if row[key]},
        bandwidth_bytes_per_s=float(row["bandwidth_gb_per_s"]) * 1e9 if row["bandwidth_gb_per_s"] else None,
        memory_bytes=tuple(int(size) << 30 for size in row["memory_gb"].split(";") if size),
        l2_bytes=int(row["l2_kib"]) << 10 if row["l2_kib"] else None,
        source=row["source"] if row["checked"] else f"{row['source']}; {UNCHECKED}",
    )


_SPACES = r"[\s_-]+"
_MOBILE = r"laptop|max ?q|mobile|notebook"
_MIG = r"\bmig\s+(\d)g\.(\d+)gb"
_PROFESSIONAL = r"quadro|rtx (?:pro|a\d{4}|\d{4} ada)|tesla|titan"


def by_name(name: str) -> Product | None:
    """Return the product that a device calls itself ("NVIDIA A100-SXM4-80GB", "T4"); None: not in the table.

    A laptop part shares the desktop's name and not its rates: only rows of laptop parts are its own.
    """
    spoken = _spoken(name)
    mobile = re.search(_MOBILE, spoken) and not re.search(r"\b(?:t\d{3,4}|mx\d{3}|gtx 1[06]\d0)", spoken)
    found = (product for product in products() if product.named(spoken))
    return next((product for product in found if product.mobile or not mobile), None)


def _spoken(name: str) -> str:
    return re.sub(_SPACES, " ", name.lower())


_CAPABILITY = r"(?i)^(?:cc|sm|sm_|compute_)?\s*(\d{1,2})[._]?(\d)[a-z]?$"


def find(name_or_cc: str) -> DeviceFacts | None:
    """Return the facts of a product by name ("A100"), of a series ("GTX 780"), or of a capability ("8.0",
    "sm_90"); None: unknown, or several.

    A product's facts are those of the table, with its full name; of a series only the capability is known.
    """
    text = name_or_cc.strip()
    if "," in text:
        return None
    product = by_name(text)
    if product is not None:
        return DeviceFacts(
            kind="tpu" if product.kind == "tpu" else "gpu",
            name=product.name,
            vendor=product.vendor,
            compute_capability=product.compute_capability,
            sm_count=product.sm_count,
            sm_clock_khz=product.sm_clock_khz,
            memory_bandwidth_bytes_per_s=product.bandwidth_bytes_per_s,
        )
    capability = re.match(_CAPABILITY, text)
    if capability is None:
        family = family_of(text)
        return DeviceFacts("gpu", text, family.vendor, family.compute_capability) if family else None
    return DeviceFacts(
        kind="gpu", vendor="nvidia", compute_capability=(int(capability.group(1)), int(capability.group(2)))
    )


def product_of(facts: DeviceFacts) -> Product | None:
    """Return the product that a device's own name states; its memory tells variants of one name apart."""
    if not facts.name:
        return None
    if facts.memory_bytes and "gb" not in facts.name.lower() and facts.memory_bytes > 60e9:
        return by_name(f"{facts.name} 80GB")
    return by_name(facts.name)


def vendor(facts: DeviceFacts) -> Vendor:
    """Return the vendor as stated, else by name."""
    if facts.vendor != "unknown":
        return facts.vendor
    product = product_of(facts)
    if product is not None:
        return product.vendor
    if facts.name and (family := family_of(facts.name)):
        return family.vendor
    name = (facts.name or "").lower()
    if "nvidia" in name or "geforce" in name or "tesla" in name or "quadro" in name:
        return "nvidia"
    return "amd" if "amd" in name or "gfx" in name or "radeon" in name else "unknown"


# Rates of one SM in FLOP per clock, by compute capability (CUDA C++ programming guide, throughput of native
# arithmetic instructions; the architectures' whitepapers for Tensor Cores).
_PER_SM: dict[tuple[int, int], dict[str, int]] = {
    (6, 0): {"fp32_cuda": 128, "fp16_cuda": 256, "fp64_cuda": 64},
    (6, 1): {"fp32_cuda": 256, "fp16_cuda": 4, "fp64_cuda": 8},
    (6, 2): {"fp32_cuda": 256, "fp16_cuda": 512},
    (7, 0): {"fp32_cuda": 128, "fp16_cuda": 256, "fp64_cuda": 64, "fp16": 1024, "fp16_acc16": 1024},
    (7, 2): {"fp32_cuda": 128, "fp16_cuda": 256, "fp16": 1024, "fp16_acc16": 1024, "int8": 2048},
    (7, 5): {
        "fp32_cuda": 128, "fp16_cuda": 256, "fp64_cuda": 4, "fp16": 1024, "fp16_acc16": 1024, "int8": 2048,
    },
    (8, 0): {
        "fp32_cuda": 128, "fp16_cuda": 512, "fp64_cuda": 64, "fp64": 128, "tf32": 1024, "fp16": 2048,
        "fp16_acc16": 2048, "bf16": 2048, "int8": 4096,
    },
    (8, 6): {
        "fp32_cuda": 256, "fp16_cuda": 256, "fp64_cuda": 4, "tf32": 512, "fp16": 1024, "fp16_acc16": 1024,
        "bf16": 1024, "int8": 2048,
    },
    (8, 7): {
        "fp32_cuda": 256, "fp16_cuda": 512, "tf32": 1024, "fp16": 2048, "fp16_acc16": 2048, "bf16": 2048,
        "int8": 4096,
    },
    (8, 9): {
        "fp32_cuda": 256, "fp16_cuda": 256, "fp64_cuda": 4, "tf32": 512, "fp16": 1024, "fp16_acc16": 1024,
        "bf16": 1024, "fp8": 2048, "int8": 2048,
    },
    (9, 0): {
        "fp32_cuda": 256, "fp16_cuda": 512, "fp64_cuda": 128, "fp64": 256, "tf32": 2048, "fp16": 4096,
        "fp16_acc16": 4096, "bf16": 4096, "fp8": 8192, "int8": 8192,
    },
    (12, 0): {
        "fp32_cuda": 256, "fp16_cuda": 256, "fp64_cuda": 4, "tf32": 512, "fp16": 1024, "fp16_acc16": 1024,
        "bf16": 1024, "fp8": 2048, "int8": 2048, "fp4": 4096,
    },
}  # fmt: skip
_HALVED_ON_GEFORCE = ("tf32", "fp16", "bf16", "fp8")
_SMALLEST_TURING_WITH_TENSOR_CORES = 30
"""SMs of the smallest TU106 product (RTX 2060); TU116 and TU117, without Tensor Cores, have 24 at most."""


def has_tensor_cores(facts: DeviceFacts) -> bool | None:
    """Return whether the card has NVIDIA Tensor Cores; None: the known facts do not decide it.

    By name where the table has it; else by compute capability, where 7.5 needs the number of SMs.
    """
    if vendor(facts) not in MAYBE_NVIDIA:
        return False
    if facts.kind != "gpu":
        return False
    product = product_of(facts)
    if product is not None:
        return product.has_matrix_units and product.vendor == "nvidia"
    family = family_of(facts.name) if facts.name else None
    if family is not None and family.matrix_types is not None:
        return bool(family.matrix_types)
    capability = facts.compute_capability or (family.compute_capability if family else None)
    if capability is None:
        return None
    if capability == (7, 5):
        name = (facts.name or "").lower()
        if re.search(r"gtx 16|mx ?\d{3}|\bt\d{3,4}\b", name):
            return False
        if "rtx" in name:
            return True
        return None if facts.sm_count is None else facts.sm_count >= _SMALLEST_TURING_WITH_TENSOR_CORES
    return capability >= (7, 0)


def completed(first: DeviceFacts, second: DeviceFacts | None) -> DeviceFacts:
    """Return `first` with what it does not state taken from `second`."""
    if second is None:
        return first
    gaps = {
        f.name: getattr(second, f.name)
        for f in fields(DeviceFacts)
        if getattr(first, f.name) in (None, "unknown") and getattr(second, f.name) is not None
    }
    return replace(first, **gaps)


def has_matrix_units(facts: DeviceFacts) -> bool | None:
    """Return whether the device has matrix units of any vendor; None: not known."""
    maker = vendor(facts)
    if maker == "google" or facts.kind == "tpu":
        return True
    if maker in ("amd", "intel") and facts.kind == "gpu":
        types = matrix_types(facts)
        if types is not None:
            return bool(types)
    if maker == "amd":
        # gfx908 and later; the collectors give gfx90a and gfx94x as 9.x, which gfx906 is too.
        return True if facts.compute_capability and facts.compute_capability >= (9, 4) else None
    return has_tensor_cores(facts)


def matrix_types(facts: DeviceFacts) -> frozenset[str] | None:
    """Return the types that the matrix units multiply, by the product or its series; empty: it has none. None:
    neither tells."""
    product = product_of(facts)
    if product is not None:
        return frozenset(product.rates).intersection(_MATRIX_RATES)
    family = family_of(facts.name) if facts.name else None
    return family.matrix_types if family else None


def peaks(facts: DeviceFacts) -> DevicePeaks | None:
    """Return the peak rates of a device; None: it can neither be recognised nor computed.

    By name where it has one that the table knows; a MIG slice has its share. Else the product that its figures
    fit, at nearly its clock, or the rates of that many SMs at that clock: both marked `inferred`.
    """
    product = product_of(facts)
    if product is not None:
        return _slice(product, facts)
    capability, sm_count, clock = facts.compute_capability, facts.sm_count, facts.sm_clock_khz
    if vendor(facts) not in MAYBE_NVIDIA or capability is None or not sm_count or not clock:
        return None
    alike = recognised(facts)
    if alike and all(_at_clock(product, clock) for product in alike):
        names = _either(alike)
        return alike[0].peaks(name=names, inferred=True)
    return _from_sms(facts, capability, sm_count, clock, alike)


_MEMORY_RATIO = (0.85, 1.02)
"""Of the nominal memory, what a driver states: a T4 with ECC has 0.92 of it."""
_BANDWIDTH_RATIO = 0.05
_CLOCK_RATIO = 0.01
_MOST_NAMED = 3


def recognised(facts: DeviceFacts) -> tuple[Product, ...]:
    """Return the products that an NVIDIA GPU without a name can be: of its capability and number of SMs, with
    its memory and bandwidth as far as they are stated; of these the ones at its clock, where there are any.
    The highest clock of a card is its maker's choice, so another clock alone rules none out."""
    if facts.name or vendor(facts) not in MAYBE_NVIDIA or not facts.sm_count:
        return ()
    found = [
        product
        for product in products()
        if product.vendor == "nvidia"
        and product.compute_capability == facts.compute_capability
        and product.sm_count == facts.sm_count
        and _has_memory(product, facts.memory_bytes)
        and _has_bandwidth(product, facts.memory_bandwidth_bytes_per_s)
    ]
    return tuple(product for product in found if _at_clock(product, facts.sm_clock_khz)) or tuple(found)


def recognised_name(facts: DeviceFacts) -> str | None:
    """Return what a device without a name is by its figures: "Tesla T4", or "one or another"."""
    found = recognised(facts)
    return _either(found) if found else None


def _either(found: tuple[Product, ...]) -> str:
    named = [product.name for product in found[:_MOST_NAMED]]
    if len(found) > len(named):
        named.append(f"{len(found) - len(named)} more")
    return " or ".join(named)


def _has_memory(product: Product, memory_bytes: int | None) -> bool:
    low, high = _MEMORY_RATIO
    sizes = product.memory_bytes
    return not memory_bytes or not sizes or any(low * size <= memory_bytes <= high * size for size in sizes)


def _has_bandwidth(product: Product, stated: float | None) -> bool:
    own = product.bandwidth_bytes_per_s
    return not stated or not own or abs(own - stated) <= _BANDWIDTH_RATIO * own


def _at_clock(product: Product, clock_khz: int | None) -> bool:
    own = product.sm_clock_khz
    return bool(own and clock_khz) and abs((own or 0) - (clock_khz or 0)) <= _CLOCK_RATIO * (own or 0)


def _slice(product: Product, facts: DeviceFacts) -> DevicePeaks:
    """Return the peaks of the whole product, or the share of them that a MIG instance has.

    Compute by SMs where they are known, else in sevenths; bandwidth in eighths of the memory (NVIDIA MIG
    user guide: 1g has one memory slice, 2g two, 3g and 4g four, 7g all).
    """
    slices = re.search(_MIG, (facts.name or "").lower())
    if slices is None and not facts.mig:
        return product.peaks()
    whole = product.sm_count or 0
    if facts.sm_count and whole and facts.sm_count < whole:
        scale = facts.sm_count / whole
    elif slices:
        scale = int(slices.group(1)) / 7
    else:
        return product.peaks()
    parts = int(slices.group(1)) if slices else max(1, round(scale * 7))
    memory = {1: 1, 2: 2, 3: 4, 4: 4}.get(parts, 8) / 8
    return product.peaks(
        scale=scale, bandwidth_scale=memory, name=facts.name or f"{product.name} (MIG slice)"
    )


def _from_sms(
    facts: DeviceFacts,
    capability: tuple[int, int],
    sm_count: int,
    clock_khz: int,
    alike: tuple[Product, ...],
) -> DevicePeaks | None:
    """Return the peaks as SMs x clock x FLOP per clock; None for a capability whose rates are not known.
    `alike`: the products that a device without a name can be."""
    per_sm = _PER_SM.get(capability)
    if per_sm is None:
        return None
    rates: dict[str, float] = dict(per_sm)
    matrix = has_tensor_cores(facts)
    if matrix is not True:
        # Where it is not known whether there are Tensor Cores, no rate of theirs is claimed.
        rates = {key: rate for key, rate in rates.items() if key in _CUDA_RATES}
    names = [facts.name] if facts.name else [product.name for product in alike]
    if names and all(
        "geforce" in name.lower() and not re.search(_PROFESSIONAL, name.lower()) for name in names
    ):
        rates = {key: rate / 2 if key in _HALVED_ON_GEFORCE else rate for key, rate in rates.items()}
    return DevicePeaks(
        name=facts.name
        or (
            _either(alike) if alike else f"compute capability {capability[0]}.{capability[1]}, {sm_count} SMs"
        ),
        has_matrix_units=matrix is True,
        flops_per_s={key: rate * sm_count * clock_khz * 1e3 for key, rate in rates.items()},
        bandwidth_bytes_per_s=facts.memory_bandwidth_bytes_per_s,
        source=f"{sm_count} SMs at {clock_khz / 1e6:.2f} GHz times the FLOP per clock of one SM",
        inferred=True,
    )


# --- cards by their series, where their rates are not in the table of products -----------------------------

# The table is `card_families.csv`. NVIDIA's capabilities are those of its lists "CUDA GPU Compute Capability" and
# "Legacy CUDA GPU Compute Capability"; what matrix units of other vendors take is from their instruction sets.

_BY_CAPABILITY = "by capability"
_SUFFIX = r"(?:nvidia |amd |tesla )?(?:{}) ?(?:\d+ ?gb)?(?: with)? ?(?:laptop|mobile|notebook|max ?q)?(?: gpu| design)*"


@frozen
class Family:
    """One row of the table. `matrix_types`: what its matrix units multiply; empty: it has none; None: what its
    compute capability says."""

    pattern: str  # of its names, in lower case
    vendor: Vendor
    compute_capability: tuple[int, int] | None
    matrix_types: frozenset[str] | None
    source: str


@lru_cache(maxsize=1)
def families() -> tuple[Family, ...]:
    """Return the table in its own order."""
    text = Path(__file__).with_name("card_families.csv").read_text(encoding="utf-8")
    return tuple(_family(row) for row in csv.DictReader(text.splitlines()))


def _family(row: dict[str, str]) -> Family:
    major, _, minor = row["compute_capability"].partition(".")
    types = row["matrix_types"]
    return Family(
        pattern=row["pattern"],
        vendor=row["vendor"],  # type: ignore[arg-type]
        compute_capability=(int(major), int(minor)) if major else None,
        matrix_types=None if types == _BY_CAPABILITY else frozenset(types.split()),
        source=row["source"],
    )


@lru_cache(maxsize=64)
def family_of(name: str) -> Family | None:
    """Return the series of a card by the name that it calls itself, or that people give it; None: not known."""
    spoken = re.sub(r"[\s_-]+", " ", name.lower()).strip()
    return next((each for each in families() if re.fullmatch(_SUFFIX.format(each.pattern), spoken)), None)
