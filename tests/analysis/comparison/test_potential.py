"""What 16 bits could make of a float32 run, and what keeps an attainable speedup low."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mpprof.analysis.comparison.estimate import estimate
from mpprof.analysis.comparison.potential import potential
from mpprof.analysis.comparison.speedup import speedup
from mpprof.api import workflows
from mpprof.model.account import Account, Cell, HostPath, eligible_words
from tests.analysis.comparison.test_speedup import B_RUN, M_RUN, fp16, fp32, matmul
from tests.analysis.pieces import A100, V100, account_of
from tests.builders.windows import WIDE
from tests.traces.kineto import Kineto

MS = 1e6
PEAKS = 15.7 / 125
"""Of a V100: float32 on ordinary arithmetic against 16 bits on Tensor Cores."""


def idle(ms: float, category: str = "idle_launch") -> Cell:
    return Cell(category, ms * MS)  # type: ignore[arg-type]


def work(category: str, ms: float, calls: float = 1.0, layer: str | None = "dense") -> Cell:
    return Cell(
        category, ms * MS, ms * MS, calls, kernel="k", layer=layer, phase="forward", family="elementwise",
        placement="not_matmul", precision="fp32",
    )  # type: ignore[arg-type]  # fmt: skip


def test_a_float32_run_has_a_range_and_its_share_of_matrix_work() -> None:
    """40 ms of products (2 to 8 times by the card's peaks), 30 of elementwise work (1 to 2), 30 that stay."""
    account = account_of([fp32("dense", 40 * MS), work("elementwise", 30), work("optimizer", 30)])
    found = potential(account, V100)
    assert found.low == pytest.approx(100 / (20 + 30 + 30))
    assert found.high == pytest.approx(100 / (40 * PEAKS + 15 + 30))
    assert found.eligible_ratio == pytest.approx(0.4)
    assert [(limit.category, limit.kind) for limit in found.limits] == [
        ("optimizer", "float32"), ("elementwise", "memory"), ("matmul", "compute"),
    ]  # fmt: skip


@pytest.mark.parametrize(("op_type", "sums_ms"), [("BiasAddGrad", 42.0), ("Sum", 1.0)])
def test_sums_of_biases_by_an_op_of_their_own_may_take_far_longer(op_type: str, sums_ms: float) -> None:
    """33 times as long in the sample run, 42 for one layer, both recorded: 1 ms of 41 may become 42."""
    summed = replace(work("reduce", 1), op_type=op_type)
    found = potential(account_of([fp32("dense", 40 * MS), summed]), V100)
    assert found.low == pytest.approx(41 / (20 + sums_ms))
    assert found.high == pytest.approx(41 / (40 * PEAKS + 0.5))
    assert ("atomics" in " ".join(found.assumptions)) is (op_type == "BiasAddGrad")


def test_the_embedding_tables_of_fbgemm_stay_as_they_are() -> None:
    """Autocast reaches neither their lookups nor the update fused into them; another gather's bytes it halves."""
    update = "split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1"
    gather = work("gather_scatter", 30)
    table = replace(gather, kernel=update, op="SplitLookupFunction_rowwise_adagrad_Op")
    plain, kept = (potential(account_of([fp32("dense", 40 * MS), one]), V100) for one in (gather, table))
    assert plain.high == pytest.approx(70 / (40 * PEAKS + 15))
    assert kept.high == pytest.approx(70 / (40 * PEAKS + 30))
    assert "embedding lookups" in " ".join(kept.assumptions)
    assert "embedding lookups" not in " ".join(plain.assumptions)
    assert "bound by memory" not in " ".join(kept.assumptions)


def test_launch_overhead_leaves_next_to_nothing_to_gain() -> None:
    """Of 11.4 ms the device works 0.8, in kernels of 4 µs."""
    short = replace(fp32("dense", 0.3 * MS), calls_per_step=75.0)
    account = account_of([short, work("elementwise", 0.5, 125), idle(10.6)])
    found = potential(account, V100)
    assert (found.low, found.high) == (pytest.approx(1.0), pytest.approx(1.0))
    assert (found.limits[0].category, found.limits[0].kind) == ("idle_launch", "wait")
    assert found.eligible_ratio == pytest.approx(0.3 / 0.8)


def test_tf32_and_what_is_bound_by_memory_become_twice_as_fast_at_most() -> None:
    tf32 = matmul("dense", 60 * MS, "tf32", "tensor_core")
    found = potential(account_of([tf32, work("norm", 40)]), A100)
    assert (found.low, found.high) == (pytest.approx(1.0), pytest.approx(2.0))
    assert found.limits[0].kind == "tf32"
    assert found.eligible_ratio == pytest.approx(0.6)


def test_the_hosts_need_is_a_floor_and_then_the_one_limit() -> None:
    account = replace(account_of([fp32("dense", 90 * MS), idle(10)]), host_ns=80 * MS)
    found = potential(account, V100)
    assert found.high == pytest.approx(100 / 80)
    assert [(limit.kind, limit.best_ns) for limit in found.limits] == [("host", 80 * MS)]


def test_without_peaks_products_may_take_no_time_at_all_and_that_is_the_limit() -> None:
    found = potential(account_of([fp32("dense", 50 * MS), work("optimizer", 50)]), None)
    assert found.low == pytest.approx(100 / 75)
    assert found.high == pytest.approx(100 / (50 + 0.002), rel=1e-3)
    assert "its peaks are not known" in found.assumptions[0]


WINOGRAD = "volta_scudnn_winograd_128x128_ldg1_ldg4_relu_tile148t_nt_v1"
"""What cuDNN runs a float32 convolution of 3 x 3 as on Volta and Turing."""


def convolution(ms: float, kernel: str, op: str | None) -> Cell:
    return replace(
        fp32("conv", ms * MS), family="conv_dgrad", kernel=kernel, op=op, op_type="Conv2DBackpropInput"
    )  # type: ignore[arg-type]


def test_winograd_may_gain_nothing_in_16_bits() -> None:
    """It multiplies two to four times less, which an implicit GEMM in 16 bits gives back."""
    account = account_of([convolution(40, WINOGRAD, None), fp32("dense", 40 * MS), work("optimizer", 20)])
    found = potential(account, V100)
    assert found.low == pytest.approx(100 / (40 + 20 + 20))
    assert found.assumptions[0].endswith("but from 1x where it is Winograd or FFT")
    alone = potential(account_of([convolution(80, WINOGRAD, None), work("optimizer", 20)]), V100)
    assert alone.low == pytest.approx(1.0)
    assert "2x" not in alone.assumptions[0]


def test_the_plain_product_between_fft_transforms_is_of_the_same_convolution() -> None:
    """cuDNN multiplies transformed tiles with cuBLAS' kernels: only the op tells whose they are."""
    transform = replace(
        convolution(10, "void fft2d_r2c_32x32<float, false, 0u, false>(float2*, float const*)", "step/conv2"),
        placement="not_matmul", reason_code="conv-transform",
    )  # fmt: skip
    product = convolution(80, "volta_sgemm_128x64_nn", "step/conv2")
    other = convolution(10, "volta_sgemm_128x64_nn", "step/conv3")
    found = potential(account_of([transform, product, other]), V100)
    assert found.low == pytest.approx(100 / 95)
    assert any("transforms of convolutions" in text for text in found.assumptions)


def test_only_what_the_run_has_is_assumed() -> None:
    assert potential(account_of([fp32("dense", 100 * MS)]), V100).assumptions == (
        "matrix work in float32 2x (usual, not certain) to 8x (by the card's peak rates) as fast in 16 bits",
        "casts and loss scaling not counted",
    )


def test_tf32_is_told_from_what_does_not_use_tensor_cores() -> None:
    tf32 = matmul("dense", 60 * MS, "tf32", "tensor_core")
    found = potential(account_of([tf32, fp32("head", 20 * MS), work("norm", 20)]), A100)
    assert (found.eligible_ratio, found.tf32_ratio) == (pytest.approx(0.8), pytest.approx(0.6))
    said = eligible_words(found.eligible_ratio, found.tf32_ratio, units="Tensor Cores")
    assert said.endswith("(75.0 % of it runs on Tensor Cores in TF32 already)")


def test_one_step_is_said_to_be_one() -> None:
    account = account_of([fp32("dense", 50 * MS)], steps=1)
    assert any("one profiled step" in text for text in potential(account, V100).assumptions)


def one_step(path: HostPath, *cells: Cell) -> Account:
    account = account_of(cells, steps=1)
    busy = sum(cell.busy_ns_per_step for cell in cells)
    return replace(account, host_path=path, device_ns=busy)


def test_of_one_step_the_last_launch_comes_no_earlier() -> None:
    """Of 8 ms the host launches until 5.2: idle time that shrinks with the kernels ends there."""
    path = HostPath(call_ns=5.4 * MS, launched_ns=5.2 * MS, queued_ns=3 * MS)
    found = potential(one_step(path, fp32("dense", 6 * MS), idle(2)), V100)
    assert found.high == pytest.approx(8 / 5.2)
    assert found.low == pytest.approx(8 / (8 - 3 / 2))  # half of the six are behind no launch
    assert "the host launches no earlier than it did" in found.assumptions


def test_a_host_that_the_driver_holds_up_is_not_what_limits() -> None:
    """Of 36 ms, 30 are allocations: the last launch comes at 35, and the host needs 2 ms of its own."""
    account = one_step(
        HostPath(36 * MS, launched_ns=35 * MS, queued_ns=1 * MS), fp32("dense", 6 * MS), idle(30)
    )
    found = potential(replace(account, host_ns=2 * MS), V100)
    assert found.high == pytest.approx(36 / 35)
    assert (found.limits[0].kind, found.limits[0].best_ns) == ("wait", pytest.approx(30 * MS))


def test_where_every_kernel_waits_for_its_launch_shorter_ones_may_gain_nothing() -> None:
    path = HostPath(call_ns=11 * MS, launched_ns=10.3 * MS, queued_ns=0.004 * MS)
    found = potential(one_step(path, fp32("dense", 0.9 * MS), idle(10.1)), V100)
    assert found.low == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("run", "units", "said"),
    [
        (B_RUN, True, ""),
        (B_RUN, False, "this device has no matrix units"),
        (B_RUN, None, "it is not known whether this device has matrix units"),
        (M_RUN, True, "needs a measured baseline"),
    ],
)
def test_it_is_said_of_float32_runs_on_cards_that_could(run, units, said) -> None:  # type: ignore[no-untyped-def]
    found = estimate(account_of([fp32("dense", 50 * MS)]), run, V100, matrix_units=units)
    assert (found.potential is not None) is (said == "")
    assert (found.absent or {}).get("attainable", "") == said


def test_a_pair_of_single_steps_has_a_range_and_no_expectation() -> None:
    before = account_of([fp32("dense", 60 * MS), work("optimizer", 40)], steps=1)
    after = account_of([fp16("dense", 10 * MS), work("optimizer", 40)], steps=1)
    found = speedup(after, before, mixed_run=M_RUN, baseline_run=B_RUN, peaks=V100)
    assert (found.observed, found.expected, found.attainable) == (None, None, None)
    assert (found.potential.low, found.potential.high) == pytest.approx((100 / 70, 100 / (60 * PEAKS + 40)))
    assert "single profiled step" in (found.absent or {})["expected"]
    assert found.gap_ns == pytest.approx(-50 * MS)  # the plain difference


def test_what_a_measured_expectation_consists_of() -> None:
    """61 % of the float32 step is the optimizer: no more than 1.5x, whatever the products do."""
    before = account_of([fp32("dense", 39 * MS), work("optimizer", 61, layer=None)])
    after = account_of([fp16("dense", 6 * MS), work("optimizer", 61, layer=None)])
    found = speedup(after, before, mixed_run=M_RUN, baseline_run=B_RUN, peaks=V100)
    assert found.expected == pytest.approx(100 / 67)
    first, second = found.limits
    assert (first.category, first.kind, first.ratio) == ("optimizer", "float32", pytest.approx(0.61))
    assert (second.kind, second.best_ns) == ("compute", pytest.approx(6 * MS))
    assert sum(limit.best_ns for limit in found.limits) == pytest.approx(found.attainable_ns)


def test_without_any_work_of_the_device_no_share_is_stated() -> None:
    """Missing is not 0: nothing ran whose share could be told."""
    found = potential(account_of([idle(10)]), V100)
    assert (found.eligible_ratio, found.tf32_ratio) == (None, None)
    said = eligible_words(found.eligible_ratio, found.tf32_ratio, units="Tensor Cores")
    assert said == "the trace shows no work of the device"


@pytest.mark.parametrize(("every", "paced"), [(50.0, True), (20.5, False)])
def test_where_launches_set_the_pace_shorter_kernels_may_gain_nothing(
    every: float, paced: bool, tmp_path: Path
) -> None:
    """Seen: "1.13x to 1.32x by precision alone" of a step that idles 38 % for launches. With launches where they are,
    and each product half as long, its length is the same."""
    k, products, length = Kineto(), 40, 30.0
    whole = products * max(every, length) + 120.0
    ends = []
    for step in range(4):
        at, free = step * whole, step * whole
        k.host("user_annotation", f"ProfilerStep#{step}", at, whole)
        for number in range(products):
            launched = at + 20 + number * every
            start = max(launched + 6, free)
            k.launch(WIDE, launched, start, length)
            free = start + length
        ends.append(free - at)
        k.host(
            "cuda_runtime",
            "cudaDeviceSynchronize",
            at + 30 + products * every,
            max(1.0, free - (at + 30 + products * every)),
        )
    found = workflows.diagnose(k.write(tmp_path / "w.pt.trace.json")).speedup.potential
    halved = at + 20 + (products - 1) * every + 6 + length / 2
    assert (halved - at > 0.98 * ends[-1]) is paced  # by the same launches
    assert (found.low == pytest.approx(1.0, abs=0.02)) is paced
