"""Devices: what a name, or SMs and a clock, say of peaks and matrix units."""

from __future__ import annotations

import pytest

from mpprof.analysis import devices
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
    peaks = devices.peaks(gpu(name))
    assert peaks is not None
    assert peaks.flops_per_s["fp16"] == pytest.approx(fp16)
    assert peaks.bandwidth_bytes_per_s == pytest.approx(bandwidth)
    assert not peaks.inferred
    assert peaks.source


def test_geforce_accumulates_in_float32_at_half_rate() -> None:
    geforce, workstation = (
        devices.peaks(gpu("NVIDIA GeForce RTX 3090")),
        devices.peaks(gpu("NVIDIA RTX A6000")),
    )
    assert geforce is not None
    assert workstation is not None
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
    assert devices.has_tensor_cores(gpu(name, compute_capability=capability)) is expected


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
    assert devices.has_tensor_cores(facts) is expected


def test_other_vendors_have_matrix_units_and_no_tensor_cores() -> None:
    amd = gpu(vendor="amd", compute_capability=(9, 4))
    assert devices.has_tensor_cores(amd) is False
    assert devices.has_matrix_units(amd) is True
    assert devices.has_matrix_units(DeviceFacts("tpu", "TPU v5e", vendor="google")) is True


def test_a_product_is_inferred_from_sms_and_clock_and_says_so() -> None:
    peaks = devices.peaks(
        gpu(vendor="nvidia", compute_capability=(7, 0), sm_count=80, sm_clock_khz=1_530_000)
    )
    assert peaks is not None
    assert peaks.inferred
    assert peaks.flops_per_s["fp16"] == pytest.approx(125e12, rel=0.01)


def test_an_unknown_product_gets_the_rates_of_its_sms() -> None:
    facts = gpu(vendor="nvidia", compute_capability=(7, 0), sm_count=84, sm_clock_khz=1_300_000)
    peaks = devices.peaks(facts)
    assert peaks is not None
    assert peaks.inferred
    assert peaks.flops_per_s["fp16"] == pytest.approx(84 * 1.3e9 * 1024)


def test_a_card_that_may_lack_tensor_cores_is_promised_none() -> None:
    facts = gpu(vendor="nvidia", compute_capability=(7, 5), sm_count=20, sm_clock_khz=1_600_000)
    peaks = devices.peaks(facts)
    assert peaks is not None
    assert not peaks.has_matrix_units
    assert set(peaks.flops_per_s) <= {"fp32_cuda", "fp16_cuda", "fp64_cuda"}


def test_a_mig_slice_has_its_share() -> None:
    whole = devices.peaks(gpu("NVIDIA A100-SXM4-40GB"))
    part = devices.peaks(gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb"))
    counted = devices.peaks(gpu("NVIDIA A100-SXM4-40GB MIG 3g.20gb", sm_count=42))
    assert whole is not None
    assert part is not None
    assert counted is not None
    assert part.flops_per_s["fp16"] == pytest.approx(whole.flops_per_s["fp16"] * 3 / 7)
    assert counted.flops_per_s["fp16"] == pytest.approx(whole.flops_per_s["fp16"] * 42 / 108)
    assert part.bandwidth_bytes_per_s == pytest.approx((whole.bandwidth_bytes_per_s or 0) / 2)


def test_memory_tells_variants_of_one_name_apart() -> None:
    small = devices.peaks(gpu("NVIDIA A100-PG509-200", memory_bytes=42_505_273_344))
    large = devices.peaks(gpu("NVIDIA A100-PG509-200", memory_bytes=85_031_714_816))
    assert small is not None
    assert large is not None
    assert small.bandwidth_bytes_per_s == pytest.approx(1555e9)
    assert large.bandwidth_bytes_per_s == pytest.approx(2039e9)


@pytest.mark.parametrize("facts", [gpu(), gpu("Foo 3000"), gpu(vendor="amd"), gpu(compute_capability=(7, 0))])
def test_what_cannot_be_recognised_has_no_peaks(facts: DeviceFacts) -> None:
    assert devices.peaks(facts) is None


def test_find_takes_names_and_capabilities() -> None:
    a100 = devices.find("A100")
    assert a100 is not None
    assert a100.compute_capability == (8, 0)
    for text in ("8.0", "sm_80", "cc 8.0", "80"):
        found = devices.find(text)
        assert found is not None, text
        assert found.compute_capability == (8, 0)
    assert devices.find("12.0") == devices.find("sm_120")
    assert devices.find("no such card") is None


def test_a_laptop_part_is_not_its_desktop_namesake() -> None:
    assert devices.find("NVIDIA GeForce RTX 3080 Laptop GPU") is None


@pytest.mark.parametrize("product", devices.products(), ids=lambda product: product.name)
def test_a_product_is_found_by_its_own_name(product: devices.Product) -> None:
    name = product.name.removesuffix(" (one die)")
    assert devices.by_name(name) is product or "Laptop" in name


@pytest.mark.parametrize("product", devices.products(), ids=lambda product: product.name)
def test_rates_are_in_a_sensible_order(product: devices.Product) -> None:
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
    product = next(product for product in devices.products() if product.name == name)
    assert devices.UNCHECKED not in product.source


def test_a_row_that_was_not_compared_says_so_wherever_it_is_used() -> None:
    peaks = devices.peaks(DeviceFacts("gpu", "Tesla K80"))
    assert peaks is not None
    assert peaks.source.endswith(devices.UNCHECKED)


CLOCKED = [
    product
    for product in devices.products()
    if product.vendor == "nvidia"
    and product.compute_capability in devices._PER_SM
    and product.sm_clock_khz
    # NVIDIA states the rates of Hopper's Tensor Cores at a lower clock than its largest, and the H20's apart.
    and product.compute_capability != (9, 0)
]


@pytest.mark.parametrize("product", CLOCKED, ids=lambda product: product.name)
def test_rates_follow_from_sms_clock_and_generation(product: devices.Product) -> None:
    per_sm = devices._PER_SM[product.compute_capability]  # type: ignore[index]
    for arithmetic, rate in per_sm.items():
        if arithmetic in product.rates:
            of_clock = rate * product.sm_count * product.sm_clock_khz * 1e3  # type: ignore[operator]
            # Half where float32 accumulation, or the whole product, is held to half the rate.
            ratios = (product.rates[arithmetic] / of_clock, 2 * product.rates[arithmetic] / of_clock)
            assert min(abs(ratio - 1) for ratio in ratios) < 0.035, arithmetic
