"""Devices: what a name, or SMs and a clock, say of peaks and matrix units."""

from __future__ import annotations

import pytest

from mpprof.analysis.kernels import device_peaks
from mpprof.model.device import DeviceFacts


def gpu(name: str | None = None, **facts: object) -> DeviceFacts:
    return DeviceFacts("gpu", name, **facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "fp16", "bandwidth"),
    [
        ("Tesla V100-SXM2-16GB", 125e12, 900e9),
        ("Tesla V100-PCIE-32GB", 112e12, 900e9),
        ("Tesla T4", 65e12, 320e9),
        ("NVIDIA A100-SXM4-40GB", 312e12, 1555e9),
        ("NVIDIA A100-SXM4-80GB", 312e12, 2039e9),
        ("NVIDIA A100 80GB PCIe", 312e12, 1935e9),
        ("NVIDIA A30", 165e12, 933e9),
        ("NVIDIA L4", 121e12, 300e9),
        ("NVIDIA H100 80GB HBM3", 989.4e12, 3352e9),
        ("NVIDIA H100 PCIe", 756e12, 2039e9),
        ("NVIDIA H200", 989.4e12, 4800e9),
        ("NVIDIA H800", 989.4e12, 3352e9),
        ("NVIDIA B200", 2250e12, 8000e9),
        ("AMD Instinct MI300X", 1307.4e12, 5325e9),
    ],
)
def test_a_product_has_the_peaks_of_its_datasheet(name: str, fp16: float, bandwidth: float) -> None:
    peaks = device_peaks.peaks(gpu(name))
    assert peaks.flops_per_s["fp16"] == pytest.approx(fp16)
    assert peaks.bandwidth_bytes_per_s == pytest.approx(bandwidth)
    assert not peaks.inferred
    assert peaks.source


def test_geforce_accumulates_in_float32_at_half_rate() -> None:
    geforce, workstation = (
        device_peaks.peaks(gpu("NVIDIA GeForce RTX 3090")),
        device_peaks.peaks(gpu("NVIDIA RTX A6000")),
    )
    assert geforce.flops_per_s["fp16"] == pytest.approx(geforce.flops_per_s["fp16_acc16"] / 2, rel=0.01)
    assert workstation.flops_per_s["fp16"] == workstation.flops_per_s["fp16_acc16"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Tesla T4", True),
        ("NVIDIA T400 4GB", False),
        ("NVIDIA T1000 8GB", False),
        ("NVIDIA T600 Laptop GPU", False),
        ("NVIDIA GeForce GTX 1650", False),
        ("GeForce GTX 1660 Ti", False),
        ("NVIDIA GeForce MX450", False),
        ("NVIDIA GeForce MX550", False),
        ("NVIDIA GeForce RTX 2060", True),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", True),
        ("GeForce GTX 1080 Ti", False),
        ("Tesla P100-PCIE-16GB", False),
        ("Quadro GP100", False),
        ("Tesla V100-SXM2-32GB", True),
        ("Jetson AGX Xavier", True),
        ("Jetson TX2", False),
        ("AMD Instinct MI250X", False),
        ("TPU v4", False),
    ],
)
def test_which_cards_have_tensor_cores(name: str, expected: bool) -> None:
    capability = {"Max-Q": (7, 5)}.get("Max-Q" if "Max-Q" in name else "")
    assert device_peaks.has_tensor_cores(gpu(name, compute_capability=capability)) is expected


@pytest.mark.parametrize(
    ("capability", "sm_count", "expected"),
    [
        ((6, 1), 28, False),
        ((7, 0), 80, True),
        ((7, 5), 14, False),
        ((7, 5), 24, False),
        ((7, 5), 40, True),
        ((7, 5), None, None),
        ((8, 6), None, True),
        (None, None, None),
    ],
)
def test_without_a_name_capability_and_sms_tell(
    capability: tuple[int, int] | None, sm_count: int | None, expected: bool | None
) -> None:
    facts = gpu(vendor="nvidia", compute_capability=capability, sm_count=sm_count)
    assert device_peaks.has_tensor_cores(facts) is expected


def test_other_vendors_have_matrix_units_and_no_tensor_cores() -> None:
    amd = gpu(vendor="amd", compute_capability=(9, 4))
    assert device_peaks.has_tensor_cores(amd) is False
    assert device_peaks.has_matrix_units(amd) is True
    assert device_peaks.has_matrix_units(DeviceFacts("tpu", "TPU v5e", vendor="google")) is True


def test_a_product_is_inferred_from_sms_and_clock_and_says_so() -> None:
    peaks = device_peaks.peaks(
        gpu(vendor="nvidia", compute_capability=(7, 0), sm_count=80, sm_clock_khz=1_530_000)
    )
    assert peaks.inferred
    assert peaks.flops_per_s["fp16"] == pytest.approx(125e12, rel=0.01)


def test_an_unknown_product_gets_the_rates_of_its_sms() -> None:
    facts = gpu(vendor="nvidia", compute_capability=(7, 0), sm_count=84, sm_clock_khz=1_300_000)
    peaks = device_peaks.peaks(facts)
    assert peaks.inferred
    assert peaks.flops_per_s["fp16"] == pytest.approx(84 * 1.3e9 * 1024)


def test_a_card_that_may_lack_tensor_cores_is_promised_none() -> None:
    facts = gpu(vendor="nvidia", compute_capability=(7, 5), sm_count=20, sm_clock_khz=1_600_000)
    peaks = device_peaks.peaks(facts)
    assert not peaks.has_matrix_units
    assert set(peaks.flops_per_s) <= {"fp32_cuda", "fp16_cuda", "fp64_cuda"}


def test_a_mig_slice_has_its_share() -> None:
    whole = device_peaks.peaks(gpu("NVIDIA A100-SXM4-40GB"))
    part = device_peaks.peaks(gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb"))
    counted = device_peaks.peaks(gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb", sm_count=42))
    assert part.flops_per_s["fp16"] == pytest.approx(whole.flops_per_s["fp16"] * 3 / 7)
    assert counted.flops_per_s["fp16"] == pytest.approx(whole.flops_per_s["fp16"] * 42 / 108)
    assert part.bandwidth_bytes_per_s == pytest.approx((whole.bandwidth_bytes_per_s or 0) / 2)


def test_memory_tells_variants_of_one_name_apart() -> None:
    small = device_peaks.peaks(gpu("NVIDIA A100-PG509-200", memory_bytes=42_505_273_344))
    large = device_peaks.peaks(gpu("NVIDIA A100-PG509-200", memory_bytes=85_031_714_816))
    assert small.bandwidth_bytes_per_s == pytest.approx(1555e9)
    assert large.bandwidth_bytes_per_s == pytest.approx(2039e9)


@pytest.mark.parametrize("facts", [gpu(), gpu("Foo 3000"), gpu(vendor="amd"), gpu(compute_capability=(7, 0))])
def test_what_cannot_be_recognised_has_no_peaks(facts: DeviceFacts) -> None:
    assert device_peaks.peaks(facts) is None


def test_find_takes_names_and_capabilities() -> None:
    a100 = device_peaks.find("A100")
    assert a100.compute_capability == (8, 0)
    for text in ("8.0", "sm_80", "cc 8.0", "80"):
        found = device_peaks.find(text)
        assert found is not None, text
        assert found.compute_capability == (8, 0)
    assert device_peaks.find("12.0") == device_peaks.find("sm_120")
    assert device_peaks.find("no such card") is None


def test_a_laptop_part_is_not_its_desktop_namesake() -> None:
    laptop = device_peaks.find("NVIDIA GeForce RTX 3080 Laptop GPU")
    assert laptop is not None
    assert laptop.compute_capability == (8, 6)
    assert device_peaks.product_of(laptop) is None
    assert device_peaks.peaks(laptop) is None


@pytest.mark.parametrize(
    ("name", "vendor", "capability", "units"),
    [
        ("GTX 680", "nvidia", (3, 0), False),
        ("GeForce GTX 780 Ti", "nvidia", (3, 5), False),
        ("GTX 750 Ti", "nvidia", (5, 0), False),
        ("GeForce GTX TITAN X", "nvidia", (5, 2), False),
        ("NVIDIA TITAN X (Pascal)", "nvidia", (6, 1), False),
        ("GeForce MX150", "nvidia", (6, 1), False),
        ("Quadro P2200", "nvidia", (6, 1), False),
        ("Quadro T2000", "nvidia", (7, 5), False),
        ("Quadro RTX 3000", "nvidia", (7, 5), True),
        ("RTX 3050 Ti Laptop GPU", "nvidia", (8, 6), True),
        ("NVIDIA RTX A1000", "nvidia", (8, 6), True),
        ("RTX 2000 Ada", "nvidia", (8, 9), True),
        ("GeForce RTX 5050", "nvidia", (12, 0), True),
        ("MI25", "amd", (9, 0), False),
        ("Radeon RX 6800 XT", "amd", (10, 3), False),
        ("Radeon RX 7800 XT", "amd", (11, 0), True),
        ("RX 9070 XT", "amd", (12, 0), True),
        ("Arc A770", "intel", None, True),
    ],
)
def test_a_card_without_rates_is_known_by_its_series(
    name: str, vendor: str, capability: tuple[int, int] | None, units: bool
) -> None:
    facts = device_peaks.find(name)
    assert facts is not None
    assert (device_peaks.vendor(facts), facts.compute_capability) == (vendor, capability)
    assert device_peaks.has_matrix_units(facts) is units
    assert device_peaks.has_tensor_cores(facts) is (units and vendor == "nvidia")


@pytest.mark.parametrize("name", ["MX", "M1", "RTX", "RTX 6000", "GTX 9999", "A", "no such card"])
def test_a_name_of_no_series_or_of_several_is_unknown(name: str) -> None:
    assert device_peaks.find(name) is None


@pytest.mark.parametrize("product", device_peaks.products(), ids=lambda product: product.name)
def test_a_product_is_found_by_its_own_name(product: device_peaks.Product) -> None:
    name = product.name.removesuffix(" (one die)")
    assert device_peaks.by_name(name) is product or "Laptop" in name


@pytest.mark.parametrize("product", device_peaks.products(), ids=lambda product: product.name)
def test_rates_are_in_a_sensible_order(product: device_peaks.Product) -> None:
    rates = product.rates
    for wide, narrow in (("tf32", "fp16"), ("fp16", "fp8"), ("fp8", "fp4"), ("fp32_cuda", "tf32")):
        if wide in rates and narrow in rates:
            assert rates[narrow] >= rates[wide], (wide, narrow)
    assert product.source


# What the table was compared with --------------------------------------------------------------------------

MOST_USED = (
    "Tesla P100-SXM2-16GB", "Tesla V100-SXM2-16GB", "Tesla V100-PCIE-16GB", "Tesla T4", "NVIDIA A10", "NVIDIA A30",
    "NVIDIA A40", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-SXM4-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA L4", "NVIDIA L40S",
    "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe", "NVIDIA H200", "NVIDIA H800", "NVIDIA B200", "NVIDIA GeForce RTX 4090",
    "NVIDIA GeForce RTX 3090", "NVIDIA GeForce RTX 2080 Ti", "NVIDIA GeForce RTX 5090", "AMD Instinct MI300X",
    "AMD Instinct MI325X", "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e",
)  # fmt: skip


@pytest.mark.parametrize("name", MOST_USED)
def test_the_most_used_rows_were_compared_with_a_second_source(name: str) -> None:
    product = next(product for product in device_peaks.products() if product.name == name)
    assert device_peaks.UNCHECKED not in product.source


def test_a_row_that_was_not_compared_says_so_wherever_it_is_used() -> None:
    peaks = device_peaks.peaks(DeviceFacts("gpu", "Tesla K80"))
    assert peaks.source.endswith(device_peaks.UNCHECKED)


CLOCKED = [
    product
    for product in device_peaks.products()
    if product.vendor == "nvidia"
    and product.compute_capability in device_peaks._PER_SM
    and product.sm_clock_khz
    and product.name != "NVIDIA H20"  # its rates are held below what its SMs and clock give
]


@pytest.mark.parametrize("product", CLOCKED, ids=lambda product: product.name)
def test_rates_follow_from_sms_clock_and_generation(product: device_peaks.Product) -> None:
    per_sm = device_peaks._PER_SM[product.compute_capability]  # type: ignore[index]
    for arithmetic, rate in per_sm.items():
        if arithmetic in product.rates and not ("H800" in product.name and "fp64" in arithmetic):
            clock = product.sm_clock_khz
            if arithmetic in device_peaks._AT_MATRIX_CLOCK:
                clock = product.matrix_clock_khz or clock
            of_clock = rate * product.sm_count * clock * 1e3  # type: ignore[operator]
            # Half where float32 accumulation, or the whole product, is held to half the rate.
            ratios = (product.rates[arithmetic] / of_clock, 2 * product.rates[arithmetic] / of_clock)
            assert min(abs(ratio - 1) for ratio in ratios) < 0.035, arithmetic


@pytest.mark.parametrize("product", device_peaks.products(), ids=lambda product: product.name)
def test_no_stated_rate_is_above_the_highest(product: device_peaks.Product) -> None:
    for arithmetic, rate in product.rates.items():
        assert product.highest_rates[arithmetic] >= rate * 0.999999, arithmetic


@pytest.mark.parametrize(
    ("name", "arithmetic", "tflops"),
    [("H100", "fp16", 1070.5), ("H100", "fp32_cuda", 66.9), ("H200", "bf16", 1070.5),
     ("H100 PCIe", "fp16", 819.0), ("A100", "fp16", 312.0), ("V100", "fp16", 125.0),
     ("GeForce RTX 4090", "fp16", 203.5)],
)  # fmt: skip
def test_the_highest_rate_is_that_of_the_highest_clock(name: str, arithmetic: str, tflops: float) -> None:
    product = device_peaks.by_name(name)
    assert product.highest_rates[arithmetic] / 1e12 == pytest.approx(tflops, rel=2e-3)


# Devices without a name -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sm_count", "memory_gb", "bandwidth", "clock_mhz", "names"),
    [
        # As drivers state them: the memory a little less, the clock the maker's own.
        (40, 14.8, 320.1e9, 1590, "Tesla T4"),
        (30, 5.8, 264e9, 1185, "NVIDIA GeForce RTX 2060 with Max-Q Design"),
        (30, 5.8, 336e9, 1680, "NVIDIA GeForce RTX 2060"),
        (30, 5.8, 336e9, 1755, "NVIDIA GeForce RTX 2060"),
        (40, 7.8, 448e9, 1815, "Quadro RTX 4000 (Laptop) or NVIDIA GeForce RTX 2070 SUPER"),
        (72, 23.6, 672e9, 1770, "Quadro RTX 6000 or NVIDIA TITAN RTX"),
        (
            40,
            None,
            None,
            None,
            "Tesla T4 or Quadro RTX 4000 with Max-Q Design or Quadro RTX 4000 (Laptop) or 1 more",
        ),
        (30, 15.0, 264e9, 1185, None),
        (33, None, None, None, None),
    ],
)
def test_the_cards_that_figures_leave_are_named(
    sm_count: int, memory_gb: float | None, bandwidth: float | None, clock_mhz: int | None, names: str | None
) -> None:
    facts = gpu(
        vendor="nvidia", compute_capability=(7, 5), sm_count=sm_count, memory_bandwidth_bytes_per_s=bandwidth,
        memory_bytes=int(memory_gb * 2**30) if memory_gb else None,
        sm_clock_khz=clock_mhz * 1000 if clock_mhz else None,
    )  # fmt: skip
    assert device_peaks.recognised_name(facts) == names
    peaks = device_peaks.peaks(facts)
    if clock_mhz is None:
        assert peaks is None
        return
    assert peaks.inferred
    assert peaks.name == (names or f"compute capability 7.5, {sm_count} SMs")


def test_a_geforce_without_a_name_accumulates_at_half_rate_too() -> None:
    """Its clock is its maker's own, so that its rates are those of its SMs."""
    facts = gpu(
        vendor="nvidia", compute_capability=(7, 5), sm_count=30, sm_clock_khz=1_755_000, memory_bytes=6222839808,
        memory_bandwidth_bytes_per_s=336e9,
    )  # fmt: skip
    peaks = device_peaks.peaks(facts)
    assert peaks.flops_per_s["fp16"] == pytest.approx(30 * 1.755e9 * 512)
    assert peaks.flops_per_s["fp16_acc16"] == pytest.approx(30 * 1.755e9 * 1024)


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("NVIDIA GeForce RTX 2060 with Max-Q Design", "NVIDIA GeForce RTX 2060 with Max-Q Design"),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", None),
        ("Quadro RTX 4000 with Max-Q Design", "Quadro RTX 4000 with Max-Q Design"),
        ("NVIDIA GeForce GTX 1650 with Max-Q Design", "NVIDIA GeForce GTX 1650"),
    ],
)
def test_a_laptop_part_has_a_row_of_its_own_or_none(name: str, found: str | None) -> None:
    product = device_peaks.by_name(name)
    assert (product.name if product else None) == found


@pytest.mark.parametrize("product", device_peaks.products(), ids=lambda product: product.name)
def test_every_discrete_nvidia_card_states_its_memory(product: device_peaks.Product) -> None:
    shared = ("Jetson", "GB10")
    assert bool(product.memory_bytes) == (
        product.vendor == "nvidia" and not any(w in product.name for w in shared)
    )
