"""What a run computes in: DESIGN's precedence, one sentence a test."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.analysis.breakdown.compute_precision import compute_precision
from mpprof.model.account import Cell, ComputePrecision
from mpprof.model.kernels import Placement, Precision
from mpprof.model.run import PolicyFacts, Run
from tests.analysis.pieces import layer, model, run_of

BARE = replace(run_of("bare", "float32"), facts=None)


def work(ns: float, precision: Precision, placement: Placement = "tensor_core", **more: object) -> Cell:
    return Cell("matmul", ns, family="gemm", placement=placement, precision=precision, **more)  # type: ignore[arg-type]


def answer(found: ComputePrecision) -> tuple[str, str | None, str]:
    return found.kind, found.dtype, found.by


def under(dtype: str | None, run: Run, process: str | None = None) -> Run:
    """The run with another recorded policy."""
    fit = replace(run.facts.fits[0], policy=PolicyFacts(process, dtype, None))
    return replace(run, facts=replace(run.facts, fits=(fit,)))


# --- the recorded policy -----------------------------------------------------------------------------------


def test_the_recorded_policy_comes_before_inputs_and_kernels() -> None:
    fell_back = [work(10, "fp32", "cuda_core", inputs="fp32")]
    assert answer(compute_precision(run_of("r", "float16"), fell_back)) == ("16-bit", "float16", "policy")
    scattered = [work(10, "fp16", inputs="fp16")]
    assert answer(compute_precision(run_of("r", "float32"), scattered)) == ("float32", "float32", "policy")


def test_a_policy_of_the_process_tells_where_the_models_own_was_not_recorded() -> None:
    run = under(None, run_of("r", "float32"), "mixed_bfloat16")
    assert answer(compute_precision(run)) == ("16-bit", "bfloat16", "policy")
    assert answer(compute_precision(under("float64", run))) == ("float64", "float64", "policy")


def test_layers_have_policies_of_their_own() -> None:
    def of(*dtypes: str) -> ComputePrecision:
        layers = [layer(f"dense_{at}", dtype=dtype, parameters=8) for at, dtype in enumerate(dtypes)]
        return compute_precision(run_of("r", "float32", model(*layers)))

    assert answer(of("float16", "float16", "float32")) == ("16-bit", "float16", "policy")
    assert answer(of("float32", "float32")) == ("float32", "float32", "policy")
    some = of("float16", "float32", "float32")
    assert answer(some) == ("partly 16-bit", "float16", "policy")
    assert "1 of its 3 layers" in some.reason
    assert some.ratio is None


def test_a_rewritten_graph_is_not_what_its_policy_says() -> None:
    """`auto_mixed_precision` leaves the policy at float32 and runs 16-bit kernels."""
    run = run_of("r", "float32", graph_rewrite="the optimizer option auto_mixed_precision")
    assert answer(compute_precision(run, [work(10, "fp16")])) == ("16-bit", "float16", "kernels")
    assert compute_precision(run).kind == "unknown"
    assert "graph rewrite" in compute_precision(run).reason
    nothing = run_of("r", "float32", graph_rewrite="asked", graph_rewrite_result={"variable_known": False})
    assert answer(compute_precision(nothing)) == ("float32", "float32", "policy")


# --- the inputs of matrix ops ------------------------------------------------------------------------------


def test_input_types_come_before_the_kernels_that_ran() -> None:
    """16-bit tensors that fp32 kernels multiplied: a 16-bit run that fell back."""
    fell_back = [work(90, "fp32", "cuda_core", inputs="bf16"), work(10, "fp32", "cuda_core", inputs="fp32")]
    found = compute_precision(BARE, fell_back)
    assert (answer(found), found.ratio) == (("16-bit", "bfloat16", "inputs"), 0.9)


def test_inputs_of_less_than_half_of_the_matrix_time_leave_it_to_the_kernels() -> None:
    cells = [work(40, "fp32", "cuda_core", inputs="fp32"), work(60, "fp16")]
    assert answer(compute_precision(BARE, cells)) == ("16-bit", "float16", "kernels")


# --- the share of matrix kernel time -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("narrow", "kind"),
    [(0.0, "float32"), (0.99, "float32"), (1.0, "partly 16-bit"), (49.9, "partly 16-bit"), (50.0, "16-bit")],
)
def test_at_least_half_is_16_bit_under_a_hundredth_float32_between_partly(narrow: float, kind: str) -> None:
    found = compute_precision(BARE, [work(narrow, "fp16"), work(100 - narrow, "fp32", "cuda_core")])
    assert (found.kind, found.by) == (kind, "kernels")
    assert found.ratio == pytest.approx(narrow / 100)
    assert found.dtype == ("float32" if kind == "float32" else "float16")


def test_tf32_is_not_in_16_bits_and_fp8_is_in_less() -> None:
    assert compute_precision(BARE, [work(10, "tf32")]).kind == "float32"
    fp8 = compute_precision(BARE, [work(70, "fp8"), work(30, "bf16")])
    assert answer(fp8) == ("16-bit", "bfloat16", "kernels")  # what the rest of such a model is in
    assert compute_precision(BARE, [work(70, "fp8")]).dtype == "float8"


def test_float8_is_told_by_kernels_only_where_most_of_them_tell() -> None:
    dense = layer("dense", dtype="bfloat16", parameters=8, dtype_policy="float8_from_mixed_bfloat16")
    run = run_of("r", "bfloat16", model(dense))
    assert (
        compute_precision(run, [work(60, "bf16"), work(40, "fp8")]).in_float8
        == "float8 in 40.0 % of the matrix time"
    )
    assert compute_precision(run, [work(60, "bf16"), work(40, "unknown")]).in_float8 == "no product in float8"
    told = compute_precision(run, [work(10, "bf16"), work(90, "unknown")]).in_float8
    assert told == "float8 in 1 of its 1 layers with weights"


def test_only_matrix_kernels_count() -> None:
    """`scalar_round_half_to_even_op<float>` and 16-bit helpers made float32 runs 16-bit ones."""
    others = [
        Cell("elementwise", 500, placement="not_matmul", precision="fp16"),
        Cell("matmul", 500, placement="not_matmul", precision="fp16"),
        Cell("elementwise", 500, placement="not_matmul", precision="fp64"),
    ]
    found = compute_precision(BARE, [*others, work(10, "fp32", "cuda_core")])
    assert answer(found) == ("float32", "float32", "kernels")
    assert compute_precision(BARE, others).kind == "unknown"


def test_float64_needs_float64_products() -> None:
    assert compute_precision(BARE, [work(10, "fp64", "cuda_core")]).kind == "float64"


def test_types_of_less_than_half_of_the_matrix_time_tell_nothing() -> None:
    assert compute_precision(BARE, [work(51, "unknown"), work(49, "fp32")]).kind == "unknown"
    found = compute_precision(BARE, [work(49, "unknown"), work(51, "fp32")])
    assert found.kind == "float32"
    assert "51.0 % of it" in found.reason


# --- nothing -----------------------------------------------------------------------------------------------


def test_without_matrix_kernels_it_is_not_known() -> None:
    found = compute_precision(BARE)
    assert answer(found) == ("unknown", None, "nothing")
    assert "precision not known" in found.reason


def test_ops_of_a_cpu_without_types_are_not_float32() -> None:
    """A trace of a CPU names no types; what a kernel of it ran in would be no evidence of the policy."""
    assert compute_precision(BARE, [work(10, "unknown", "cpu")]).kind == "unknown"
    assert compute_precision(BARE, [work(10, "fp32", "cpu")]).kind == "unknown"
    stated = [work(10, "bf16", "cpu", inputs="bf16")]
    assert answer(compute_precision(BARE, stated)) == ("16-bit", "bfloat16", "inputs")
