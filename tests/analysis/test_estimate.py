"""The estimate without a baseline: a range with its assumptions, and never shown as measured."""

from __future__ import annotations

import pytest

from mpprof.analysis.estimate import estimate
from mpprof.model.account import Cell
from tests.analysis.pieces import A100, V100, account_of, run_of

TENSOR = Cell("matmul", 100.0, 100.0, 1, family="gemm", placement="tensor_core", precision="fp16")
RELU = Cell("elementwise", 50.0, 50.0, 1, family="elementwise", placement="not_matmul", precision="fp16")
CAST = Cell("cast", 30.0, 30.0, 1)
IDLE = Cell("idle_launch", 20.0)
RUN = run_of("mixed", "float16")


def test_a_range_from_half_the_bytes_to_the_peaks() -> None:
    found = estimate(account_of([TENSOR, RELU, CAST, IDLE]), RUN, V100)
    assert found.estimated is not None
    assert found.estimated.low == pytest.approx((200 + 50) / 200)
    assert found.estimated.high == pytest.approx((100 * 125 / 15.7 + 100 + 20) / 200)
    assert (found.baseline, found.observed, found.slices) == ("estimated", None, ())
    assert "mpprof report mixed --baseline" in (found.absent or {})["observed"]
    assert "set_dtype_policy('float32')" in (found.absent or {})["observed"]


def test_tf32_makes_the_difference_on_ampere() -> None:
    highs = {}
    for state in (True, False, None):
        found = estimate(account_of([TENSOR]), run_of("mixed", "float16", tf32_enabled=state), A100).estimated
        assert found is not None
        highs[state] = found.high
        assert any("TF32" in text for text in found.assumptions)
    assert highs == {True: pytest.approx(2), False: pytest.approx(16), None: pytest.approx(16)}


def test_a_fallback_took_no_longer_in_float32() -> None:
    fallback = Cell("matmul", 100.0, 100.0, 1, family="gemm", placement="cuda_core", precision="fp32")
    found = estimate(account_of([fallback]), RUN, V100).estimated
    assert found is not None
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
    assert why in (found.absent or {})["estimated"]
