"""What work could take at best: one engine, each way of knowing by an example, and limits that always hold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.attainable.engine import halved, least
from mpprof.analysis.attainable.evidence import Evidence, Pair, well_fed
from mpprof.analysis.attainable.work import Work, roofline, work_of
from mpprof.model.account import CLASSES, Cell
from mpprof.model.device import DevicePeaks
from tests.analysis.pieces import A100, V100

MS = 1e6
UNLISTED = replace(V100, name="some card")
"""The rates of a V100, under a name that no calibration knows."""


def product(ms: float, *, gflop: float | None = None, mb: float | None = None, **more: object) -> Work:
    """One kernel in float32 on ordinary arithmetic, unless `more` says otherwise."""
    given = {"family": "gemm", "placement": "cuda_core", "precision": "fp32", **more}
    return Work("matmul", ms * MS, ms * MS, 1.0, flops=gflop and gflop * 1e9, bytes=mb and mb * 1e6, **given)  # type: ignore[arg-type]


def fed(ms: float, **more: object) -> Work:
    return product(ms, **{"placement": "tensor_core", "precision": "fp16", **more})  # type: ignore[arg-type]


# --- what stays --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "peaks", "why"),
    [
        (replace(product(0.4), calls=100.0), V100, "bound by launching"),
        (product(5, precision="fp64"), V100, "float64"),
        (replace(product(5), category="gather_scatter", op="SplitLookupFunction_Op"), V100, "FBGEMM"),
        (product(5), replace(V100, has_matrix_units=False), "no matrix units"),
        (Work("optimizer", 5 * MS, 5 * MS, 1.0), V100, "stays"),
        (replace(product(5), category="norm", precision="fp16"), V100, "stays"),
    ],
)
def test_what_no_policy_shortens_takes_as_long(work: Work, peaks: DevicePeaks, why: str) -> None:
    found = least(work, "fp16", Evidence(peaks))
    assert (found.low, found.likely, found.high) == (work.ns, work.ns, work.ns)
    assert why in found.source


def test_work_that_is_bound_by_memory_takes_half() -> None:
    found = least(replace(product(4), category="elementwise"), "fp16", Evidence(V100))
    assert (found.low, found.likely, found.high) == (2 * MS, 2 * MS, 4 * MS)


def test_a_depthwise_convolution_may_take_half_and_likely_does_not() -> None:
    found = least(product(4, family="depthwise"), "fp16", Evidence(V100))
    assert (found.low, found.likely, found.high) == (2 * MS, 4 * MS, 4 * MS)


def test_no_call_becomes_shorter_than_a_launch_takes() -> None:
    work = replace(product(0.6), calls=100.0)  # 6 µs each
    assert least(work, "fp16", Evidence(V100)).likely == pytest.approx(0.2 * MS)


# --- bounds ------------------------------------------------------------------------------------------------


def test_tf32_that_is_far_from_its_peak_is_bound_by_its_operations_alone() -> None:
    """317 GFLOP in 4.4 ms of TF32 are 46 % of an A100's peak; in 16 bits they took 0.8 on a card that could."""
    work = product(20, gflop=317, mb=320, family="conv_fprop", placement="tensor_core", precision="tf32")
    assert least(work, "fp16", Evidence(A100)).low == pytest.approx(317e9 / 312e12 * 1e9)
    unstated = replace(work, flops=None)
    assert least(unstated, "fp16", Evidence(A100)).low == pytest.approx(10 * MS)


def test_ordinary_arithmetic_gains_no_more_than_the_ratio_of_the_peaks() -> None:
    work = product(20, gflop=10, mb=10)
    assert least(work, "fp16", Evidence(V100)).low == pytest.approx(20 * MS * 15.7 / 125)


def test_what_moves_its_bytes_faster_than_memory_can_is_bound_by_half_its_time() -> None:
    """8 GB in a millisecond come from a cache: 4 GB at the peak bandwidth bound nothing."""
    assert least(product(1, gflop=1, mb=8000), "fp16", Evidence(UNLISTED)).low == pytest.approx(0.5 * MS)


def test_evidence_of_the_trace_comes_before_the_ratio_of_the_peaks() -> None:
    """Float32 products far from their peak: others of this trace say 82 µs, the peaks 2.5 ms."""
    found = least(product(20, gflop=10, mb=10), "fp16", Evidence(V100, [fed(0.082, gflop=10, mb=10)]))
    assert found.low == found.likely == pytest.approx(82_000)


def test_without_operations_no_pair_gains_more_than_the_ratio_of_the_peaks() -> None:
    """Roles of unlike work may be aligned: 20 times is none that TF32 leaves."""
    tf32 = product(20, placement="tensor_core", precision="tf32")
    found = least(tf32, "fp16", Evidence(A100, pairs=[Pair(tf32, fed(1))]))
    assert (found.low, found.likely) == (10 * MS, 10 * MS)


def test_what_gains_less_than_usual_is_the_high_end_too() -> None:
    found = least(product(6), "fp16", Evidence(UNLISTED, pairs=[Pair(product(6), fed(5))]))
    assert found.high == found.likely == pytest.approx(5 * MS)


def test_nothing_bounds_products_on_a_card_that_is_not_known() -> None:
    found = least(product(20), "fp16", Evidence())
    assert (found.low, found.likely, found.high) == (None, None, 10 * MS)
    winograd = Evidence(saving=frozenset(["step/conv"]))
    assert least(product(20, op="step/conv"), "fp16", winograd).high == 20 * MS


# --- ways of knowing, the nearest first --------------------------------------------------------------------


def test_a_product_comes_as_near_to_its_roofline_as_others_in_the_trace() -> None:
    """The other one takes 0.8 ms at the peak and 1.6 without its launch, so this one takes twice its 0.4."""
    peer = fed(1.602, gflop=100, mb=10)
    found = least(product(9, gflop=50, mb=20), "fp16", Evidence(V100, [peer]))
    assert found.likely == pytest.approx(0.8 * MS + 2_000)
    assert (found.source, found.confidence) == ("16-bit kernels of the same kind in this trace", "high")


def test_the_same_work_takes_as_long_whichever_run_is_asked() -> None:
    """The baseline's product in float32 and its fallback in the mixed run: other tensors, the same answer."""
    evidence = Evidence(V100, [fed(1.6, gflop=100, mb=10)])
    before, mixed = product(9, gflop=50, mb=20), product(8, gflop=50, mb=10, precision="fp16")
    assert least(before, "fp16", evidence).likely == least(mixed, "fp16", evidence).likely


def test_similar_sizes_come_before_others_and_the_nearest_before_none() -> None:
    """The small one comes to a quarter of its roofline, the large one to half."""
    small, large = fed(0.034, gflop=1, mb=0.1), fed(1.602, gflop=100, mb=10)
    asked, whole = product(9, gflop=90, mb=20), 90e9 / 125e12 * 1e9
    both = least(asked, "fp16", Evidence(V100, [small, large]))
    assert both.likely == pytest.approx(whole / 0.5 + 2_000)
    alone = least(asked, "fp16", Evidence(V100, [small]))
    assert alone.likely == pytest.approx(whole / 0.25 + 2_000)


def test_without_a_like_product_memory_is_moved_as_streaming_kernels_do() -> None:
    compute = fed(1.6, gflop=100, mb=10)
    work = product(9, gflop=1, mb=900)  # 0.5 ms of its bytes in 16 bits
    found = least(work, "fp16", Evidence(V100, [compute]))
    assert found.likely == pytest.approx(0.5 * MS / 0.8 + 2_000)


def test_products_held_up_by_arithmetic_tell_of_memory_bound_work_only_of_their_size() -> None:
    """One that moves 90 MB in 0.5 ms where memory would take 0.1: 20 % of the memory's rate."""
    held = fed(0.502, gflop=1, mb=90)
    evidence = Evidence(V100, [held])
    alike = least(product(9, gflop=2, mb=180), "fp16", evidence)
    assert alike.likely == pytest.approx(0.1 * MS / 0.2 + 2_000)
    large = least(product(9, gflop=100, mb=1800), "fp16", evidence)
    assert large.likely == pytest.approx(1.0 * MS / 0.8 + 2_000)
    compute = least(product(9, gflop=4, mb=1), "fp16", evidence)  # 4 GFLOP at the 2 TFLOP/s that it reaches
    assert compute.likely == pytest.approx(2 * MS + 2_000)


def test_rates_tell_where_bytes_are_not_known() -> None:
    evidence = Evidence(UNLISTED, [fed(1, gflop=50)])
    assert least(product(9, gflop=100), "fp16", evidence).likely == pytest.approx(2 * MS)
    assert least(product(9, gflop=500), "fp16", evidence).likely is None  # of another size


def test_aligned_work_of_a_baseline_tells_where_operations_are_not_known() -> None:
    pair = Pair(product(6), fed(1))
    found = least(product(9), "fp16", Evidence(UNLISTED, pairs=[pair]))
    assert found.likely == pytest.approx(1.5 * MS)
    assert least(product(90), "fp16", Evidence(UNLISTED, pairs=[pair])).likely is None
    tf32 = product(9, placement="tensor_core", precision="tf32")
    assert least(tf32, "fp16", Evidence(A100, pairs=[pair])).likely is None  # of another arithmetic


def test_own_share_of_the_peak_less_what_matrix_units_leave() -> None:
    """Half of the V100's peak in float32, so 37.5 % of that in 16 bits."""
    found = least(product(2, gflop=15.7, mb=1), "fp16", Evidence(UNLISTED))
    assert found.likely == pytest.approx(15.7e9 / 125e12 * 1e9 / 0.375 + 2_000)
    assert found.confidence == "medium"


def test_the_comparison_comes_before_the_table_and_the_table_before_nothing() -> None:
    asked = product(7)
    assert least(asked, "fp16", Evidence(V100), compared_ns=3 * MS).likely == 3 * MS
    table = least(asked, "fp16", Evidence(V100))
    assert table.likely == pytest.approx(1 * MS)
    assert "arXiv:1803.04014" in table.source
    none = least(asked, "fp16", Evidence(UNLISTED))
    assert (none.likely, none.source) == (
        None, "no kernel of this kind ran in 16 bits on matrix units here, and none was calibrated",
    )  # fmt: skip


def test_a_badly_fed_product_could_reach_what_large_ones_do() -> None:
    odd = fed(9, gflop=100, mb=10)
    assert least(odd, "fp16", Evidence(UNLISTED)).likely is None
    found = least(odd, "fp16", Evidence(UNLISTED), badly_fed=True)
    assert found.likely == pytest.approx(0.8 * MS / 0.68 + 2_000)


def test_rates_of_others_serve_what_is_in_16_bits_already() -> None:
    found = least(fed(30, gflop=100), "fp16", Evidence(UNLISTED, [fed(10, gflop=100)]))
    assert (found.low, found.likely) == (None, 10 * MS)


def cell(kernel: str, shapes: str = "", gflop: float = 100) -> Cell:
    return Cell(
        "matmul", MS, MS, 1.0, kernel=kernel, family="gemm", placement="tensor_core", precision="fp16",
        shapes=shapes, flops_per_step=gflop * 1e9,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("shapes", "left"),
    [("", 0.5), ("(float[1000];half[2000])", 0.75), ("(half[1000,1000];float[1000])", 0.999)],
)
def test_of_mixed_tensors_only_those_in_float32_become_half_as_long(shapes: str, left: float) -> None:
    norm = replace(cell("layer_norm", shapes), category="norm", placement="not_matmul", precision="mixed")
    assert halved(work_of(norm)) == pytest.approx(left * MS, rel=1e-3)


@pytest.mark.parametrize(
    ("one", "is_evidence"),
    [
        (cell("sm80_xmma_gemm_f16f16_align8"), True),
        (cell("sm80_xmma_gemm_f16f16_align1"), False),
        (cell("gemm_fusion_dot_34", "f16[2048,512];f16[512,33728]"), True),
        (cell("gemm_fusion_dot_34", "f16[2048,512];f16[512,33709]"), False),
        (cell("gemm_fusion_dot_34", "f16[2048,512];f16[512,33709]", gflop=1), True),  # others hold it up
        (replace(cell("volta_sgemm"), placement="cuda_core", precision="fp32"), False),
    ],
)
def test_only_well_fed_kernels_are_evidence(one: Cell, is_evidence: bool) -> None:
    assert (well_fed([one], lambda name: None, V100) != []) is is_evidence


# --- back to float32 ---------------------------------------------------------------------------------------


def test_the_float32_twin_of_eight_bits_took_up_to_the_ratio_of_the_peaks() -> None:
    """Seen: a ceiling of 3.20x of an fp8 run, about 18x right."""
    rates = Evidence(
        DevicePeaks("some card", True, {"fp8": 2000e12, "fp16": 1000e12, "fp32_cuda": 60e12}, 3e12, "")
    )
    found = least(fed(3, precision="fp8"), "fp32", rates)
    assert (found.low, found.high) == (pytest.approx(6 * MS), pytest.approx(100 * MS))
    stored = replace(fed(3, precision="fp8"), category="elementwise", placement="not_matmul")
    assert least(stored, "fp32", rates).high == pytest.approx(3 * MS)


def test_the_float32_twin_took_twice_as_long_or_what_its_roofline_takes() -> None:
    work = fed(1, gflop=5, mb=10)
    found = least(work, "fp32", Evidence(V100))
    assert (found.low, found.likely) == (2 * MS, None)
    assert found.high == pytest.approx(125 / 15.7 * MS)
    assert least(replace(work, flops=100e9), "fp32", Evidence(V100)).low == pytest.approx(100e9 / 15.7e3)
    assert least(fed(1), "tf32", Evidence(A100)).low == 1 * MS
    assert least(Work("cast", MS, MS, 1.0), "fp32", Evidence(V100)).high == 0.0


# --- always ------------------------------------------------------------------------------------------------

PRECISIONS = ["fp16", "bf16", "fp32", "tf32", "fp64", "mixed", "unknown", None]
WORK = st.builds(
    Work,
    category=st.sampled_from(CLASSES), ns=st.floats(1, 1e9), busy_ns=st.floats(0, 1e9), calls=st.floats(0, 1e4),
    family=st.sampled_from(["gemm", "conv_fprop", "conv_wgrad", "depthwise", "attention", None]),
    placement=st.sampled_from(["tensor_core", "cuda_core", "not_matmul", "unknown", None]),
    precision=st.sampled_from(PRECISIONS), flops=st.none() | st.floats(1, 1e13), bytes=st.none() | st.floats(1, 1e12),
)  # fmt: skip
FED = st.builds(
    fed, st.floats(1e-4, 1e3), gflop=st.floats(1e-3, 1e4), mb=st.none() | st.floats(1e-3, 1e5),
    family=st.sampled_from(["gemm", "conv_dgrad"]),
)  # fmt: skip


@given(
    WORK, st.sampled_from([V100, A100, None]), st.lists(FED, max_size=4), st.sampled_from(["fp16", "bf16"])
)
def test_no_gain_is_below_the_floor_of_operations_and_bytes(work, peaks, peers, precision) -> None:  # type: ignore[no-untyped-def]
    evidence = Evidence(peaks, peers, [Pair(product(6), fed(1))])
    found = least(work, precision, evidence)
    low, likely = found.low or 0.0, found.high if found.likely is None else found.likely
    assert 0 <= low <= likely <= found.high <= work.ns
    if peaks is not None and work.category == "matmul" and found.likely is not None:
        rate = peaks.flops_per_s.get(precision)
        roof = roofline(work.flops, None, rate, None)
        if roof is not None and work.bytes and rate:
            assert found.likely >= min(work.ns, roof[0])


@given(WORK, st.sampled_from([V100, A100]), st.sampled_from(["fp32", "tf32"]))
def test_the_ends_of_the_twin_are_in_order(work, peaks, precision) -> None:  # type: ignore[no-untyped-def]
    found = least(work, precision, Evidence(peaks))
    assert found.low is not None
    assert 0 <= found.low <= found.high
