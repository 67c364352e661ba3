"""The kernels that take most of a device's time: the rate of each, and its share of the card's peak."""

from __future__ import annotations

import pytest

from mpprof.analysis.breakdown.rates import busiest
from mpprof.api import workflows
from mpprof.model.account import BusyKernel
from mpprof.report import json as documents
from mpprof.report import markdown, text
from tests.builders.cases import V100_PEAKS, account, cell, healthy
from tests.paths import SAMPLES


def found(*cells, **how) -> dict[str, BusyKernel]:  # type: ignore[no-untyped-def]
    return {each.name: each for each in busiest(account(*cells, **how), V100_PEAKS)}


def test_each_kernel_has_the_rate_that_is_the_nearer_to_its_peak() -> None:
    product = healthy(60, op="dense/MatMul", calls_per_step=2.0, flops_per_step=3e12, bytes_per_step=9e9)
    streams = {"kernel": "Relu", "family": "elementwise", "placement": "not_matmul", "precision": "fp32"}
    rows = found(product, cell("elementwise", 40, op="relu", bytes_per_step=18e9, **streams))
    assert list(rows) == ["volta_fp16_s884gemm", "Relu"], "the longest first"
    gemm, relu = rows.values()
    assert (gemm.bound, gemm.ratio, gemm.calls_per_step) == ("compute", 0.6, 2.0)
    assert gemm.flops_per_s == pytest.approx(50e12), "3 TFLOP in 60 ms"
    assert gemm.peak_ratio == pytest.approx(0.4), "of 125 TFLOP/s; its 9 GB alone take 10 of 60 ms"
    assert relu.bound == "memory"
    assert relu.bytes_per_s == pytest.approx(450e9), "18 GB in 40 ms"
    assert relu.peak_ratio == pytest.approx(0.5), "of 900 GB/s"
    assert relu.flops_per_s is None


def test_what_shapes_do_not_tell_has_no_rate() -> None:
    product = healthy(50, op="dense/MatMul", flops_per_step=3e12)
    helper = cell(
        "layout", 20, op="dense/MatMul", kernel="nchwToNhwc", family="layout", placement="not_matmul",
        precision="fp16", bytes_per_step=9e9,
    )  # fmt: skip
    cast = cell(
        "cast", 20, op="cast", kernel="Cast", family="cast", placement="not_matmul", precision="mixed",
        bytes_per_step=9e9,
    )  # fmt: skip
    rows = found(product, helper, cast, cell("reduce", 7, op="sum"), cell("elementwise", 3, op="small"))
    assert rows["volta_fp16_s884gemm"].flops_per_s
    for name, why in (
        ("nchwToNhwc", "the product's bytes are not those of the helper beside it"),
        ("Cast", "its input's shape does not tell how wide its output is"),
        ("reduce_kernel", "no shapes"),
    ):
        rates = (rows[name].flops_per_s, rows[name].bytes_per_s, rows[name].peak_ratio)
        assert rates == (None, None, None), why
    assert "elementwise_kernel" not in rows, "3 % are not above 3 %"
    assert not found(product, trace_basis="host"), "no device ran"


def test_a_product_of_which_several_fit_has_a_reason_for_its_missing_rate() -> None:
    shapes = {"op": "dense/MatMul", "op_type": "MatMul", "shapes": "(half[4096,64];half[4096,64])"}
    [row] = found(healthy(50, **shapes)).values()
    assert (row.flops_per_s, row.bytes_per_s, row.peak_ratio) == (None, None, None)
    assert "several products" in (row.reason or "")
    [told] = found(healthy(50, **shapes, flops_per_step=3e12)).values()
    assert told.reason is None


def test_a_recorded_run_names_its_kernels_with_their_rates() -> None:
    """In the sample, gemm_fusion_dot_127 multiplies (512 x 4096) by (4096 x 33709) in 971,758 ns a step: 2 *
    512 * 4096 * 33709 operations are 145.5 TFLOP/s, of an H100's 494.7 in TF32."""
    document = documents.report(workflows.diagnose(SAMPLES / "recorded-h100-transformer-float32"))
    one = next(each for each in document.kernels if each.name == "gemm_fusion_dot_127")
    assert one.flops_per_s == pytest.approx(2 * 512 * 4096 * 33709 / 971_758e-9)
    assert one.peak_ratio == pytest.approx(145.5 / 494.7, abs=1e-4)
    said = text.render(document, width=100)
    listed = said.partition("Kernels above 3 %")[2].partition("\n\n")[0].splitlines()
    assert len(listed) == 8
    assert listed[4].split() == ["9.1", "%", "0.972", "ms", "145", "TFLOP/s", "29.4", "%", one.name]
    assert "| 9.1 % | 0.972 ms | 145 TFLOP/s | 29.4 % |" in markdown.render(document)


def test_without_any_rate_there_is_no_list() -> None:
    diagnosis = workflows.diagnose(SAMPLES / "recorded-cpu-float32")
    assert "Kernels above" not in text.render(documents.report(diagnosis), width=100)
