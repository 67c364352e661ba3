"""The estimate without a baseline: a range with its assumptions, and never shown as measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.analysis.comparison.estimate import estimate
from mpprof.model.account import Cell
from mpprof.model.device import DevicePeaks
from tests.analysis.pieces import A100, V100, account_of, run_of

US = 1000.0
TENSOR = Cell("matmul", 100 * US, 100 * US, 1, "k", family="gemm", placement="tensor_core", precision="fp16")
RELU = Cell(
    "elementwise", 50 * US, 50 * US, 1, "k", family="elementwise", placement="not_matmul", precision="fp16"
)
CAST = Cell("cast", 30 * US, 30 * US, 1, "k")
IDLE = Cell("idle_launch", 20 * US)
RUN = run_of("mixed", "float16")


def test_a_range_from_half_the_bytes_to_the_peaks() -> None:
    found = estimate(account_of([TENSOR, RELU, CAST, IDLE]), RUN, V100)
    assert found.estimated.low == pytest.approx((200 + 50) / 200)
    assert found.estimated.high == pytest.approx((100 * 125 / 15.7 + 100 + 20) / 200)
    assert (found.baseline, found.observed, found.slices) == ("estimated", None, ())


def low(cell: Cell, peaks: DevicePeaks = V100, *, tf32: bool = False, **of_account: float) -> float:
    """In multiples of this one cell's time."""
    account = replace(account_of([cell]), **of_account)
    found = estimate(account, run_of("mixed", "float16", tf32_enabled=tf32), peaks).estimated
    assert found.low <= found.high
    return found.low


def test_the_low_end_is_no_less_than_the_roofline_in_float32() -> None:
    """100 µs of 5 TFLOP/s on matrix units take 0.5 GFLOP: at 15.7 TFLOP/s they are nothing; of 100 TFLOP/s, more
    than half a millisecond."""
    assert low(replace(TENSOR, flops_per_step=0.5e9)) == pytest.approx(2)
    assert low(replace(TENSOR, flops_per_step=10e9)) == pytest.approx(10e9 / 15.7e12 * 1e9 / 1e5)
    winograd = replace(TENSOR, flops_per_step=10e9, family="conv_fprop")
    assert low(winograd) == pytest.approx(2)  # a quarter of the operations
    streaming = replace(TENSOR, flops_per_step=1e9, bytes_per_step=150e6)
    assert low(streaming) == pytest.approx(2 * 150e6 / 900e9 * 1e9 / 1e5)


def test_the_low_end_in_tf32_is_as_long_and_of_short_kernels_too() -> None:
    assert low(TENSOR, A100, tf32=True) == pytest.approx(1)
    assert low(TENSOR, A100) == pytest.approx(2)
    assert low(replace(TENSOR, calls_per_step=50)) == pytest.approx(1)  # 2 µs each: bound by launching


def test_no_float32_step_is_shorter_than_what_the_host_needs_for_it() -> None:
    cells = [
        replace(TENSOR, calls_per_step=30),
        replace(CAST, calls_per_step=10),
        replace(IDLE, ns_per_step=1e6),
    ]
    account = replace(account_of(cells), host_ns=1.0e6)
    found = estimate(account, RUN, V100).estimated
    assert found.low == pytest.approx(0.75 * 1.0e6 / account.step_ns)  # a quarter of the launches were casts
    assert any("what the host needs" in said for said in found.assumptions)


def test_tf32_makes_the_difference_on_ampere() -> None:
    highs = {}
    for state in (True, False, None):
        found = estimate(account_of([TENSOR]), run_of("mixed", "float16", tf32_enabled=state), A100).estimated
        highs[state] = found.high
        assert any("TF32" in text for text in found.assumptions)
    assert highs == {True: pytest.approx(2), False: pytest.approx(16), None: pytest.approx(16)}


def test_a_fallback_took_no_longer_in_float32() -> None:
    fallback = Cell("matmul", 1e5, 1e5, 1, family="gemm", placement="cuda_core", precision="fp32")
    found = estimate(account_of([fallback]), RUN, V100).estimated
    assert (found.low, found.high) == (1.0, 1.0)


@pytest.mark.parametrize(
    ("host", "compute", "peaks", "why"),
    [
        (True, "float16", V100, "CPU"),
        (False, "float16", None, "peak rates"),
        (False, "float32", V100, "baseline itself"),
    ],
)
def test_no_estimate_says_why(host: bool, compute: str, peaks, why: str) -> None:  # type: ignore[no-untyped-def]
    found = estimate(account_of([TENSOR], host=host), run_of("r", compute), peaks)
    assert (found.estimated, found.ceiling) == (None, None)
    absent = found.absent or {}
    assert why in absent["estimated"]
