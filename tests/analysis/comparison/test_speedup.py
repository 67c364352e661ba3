"""The comparison: sums that close, ratios from the right source, nothing expected where nothing is known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.comparison.comparability import Side, other_card, rates, refusal, unlike
from mpprof.analysis.comparison.matching import kernel_changes, matching
from mpprof.analysis.comparison.speedup import speedup
from mpprof.model.account import CLASSES, Account, Cell, Speedup
from mpprof.model.device import DeviceFacts, DevicePeaks
from mpprof.model.finding import OpTime
from mpprof.model.run import PolicyFacts, Run
from tests.analysis.pieces import A100, V100, account_of, layer, model, run_of
from tests.builders.cases import fusion

MODEL = model("dense", "dense_1", "dense_2", layer("head", dtype="float32"), name="model")
FLOAT32 = replace(MODEL, layers=tuple(replace(one, compute_dtype="float32") for one in MODEL.layers))
B_RUN, M_RUN = run_of("float32", "float32", FLOAT32), run_of("mixed", "float16", MODEL)


def matmul(name: str, ns: float, precision: str, placement: str, **more: object) -> Cell:
    return Cell(
        "matmul", ns, ns, 1.0, kernel=f"{precision}_gemm", op=f"model/{name}/MatMul", layer=name,
        phase="forward", family="gemm", placement=placement, precision=precision, **more,
    )  # type: ignore[arg-type]  # fmt: skip


def fp32(name: str, ns: float, **more: object) -> Cell:
    return matmul(name, ns, "fp32", "cuda_core", **more)


def fp16(name: str, ns: float, **more: object) -> Cell:
    return matmul(name, ns, "fp16", "tensor_core", **more)


def compared(
    baseline: list[Cell],
    mixed: list[Cell],
    peaks: DevicePeaks | None = V100,
    mixed_run: Run = M_RUN,
    *,
    host: bool = False,
) -> Speedup:
    before, after = account_of(baseline, host=host), account_of(mixed, host=host)
    return speedup(after, before, mixed_run=mixed_run, baseline_run=B_RUN, peaks=peaks)


def test_a_fallback_is_held_against_its_neighbours_on_tensor_cores() -> None:
    found = compared(
        [fp32("dense", 600e3), fp32("dense_1", 600e3)], [fp16("dense", 100e3), fp32("dense_1", 580e3)]
    )
    by_layer = {part.layer: part for part in found.slices}
    assert by_layer["dense"].ns_per_step == pytest.approx(0, abs=1e-6)
    assert by_layer["dense_1"].ns_per_step == pytest.approx(480e3)
    assert by_layer["dense_1"].ratio == pytest.approx(6)
    assert "in this trace" in by_layer["dense_1"].ratio_source
    assert (found.observed, found.expected) == (pytest.approx(1200 / 680), pytest.approx(6))
    assert found.attainable_ns == pytest.approx(200e3)
    assert found.gap_ns == pytest.approx(480e3)


def test_rates_decide_where_operations_are_known() -> None:
    """Twice the operations in the same baseline time: the neighbour's rate allows half its ratio."""
    found = compared(
        [fp32("dense", 600e3, flops_per_step=1e9), fp32("dense_1", 600e3, flops_per_step=2e9)],
        [fp16("dense", 100e3, flops_per_step=1e9), fp32("dense_1", 600e3, flops_per_step=2e9)],
    )
    assert {part.layer: part.ratio for part in found.slices}["dense_1"] == pytest.approx(3)


def test_kernels_of_another_size_are_no_evidence() -> None:
    found = compared(
        [fp32("dense", 600e3), fp32("dense_1", 20e3)], [fp16("dense", 100e3), fp32("dense_1", 20e3)], A100
    )
    assert found.expected is None
    assert "(most of it in dense_1)" in (found.absent or {})["expected"]


def test_calibration_serves_where_the_trace_has_no_evidence() -> None:
    found = compared([fp32("dense", 700e3)], [fp32("dense", 700e3)])
    assert found.expected == pytest.approx(7)
    assert "arXiv:1803.04014" in found.slices[0].ratio_source


def test_no_evidence_is_a_ceiling_and_plain_differences() -> None:
    peaks = replace(V100, name="some card")
    found = compared([fp32("dense", 700e3), Cell("idle_sync", 100e3)], [fp32("dense", 750e3)], peaks)
    assert (found.expected, found.attainable_ns) == (None, None)
    assert found.ceiling == pytest.approx(800e3 / (700e3 / (125 / 15.7) + 100e3))
    assert found.gap_ns == pytest.approx(-50e3) == pytest.approx(sum(p.ns_per_step for p in found.slices))
    assert all("plain difference" in part.ratio_source for part in found.slices)
    assert "none was calibrated" in (found.absent or {})["expected"]


def test_a_tf32_baseline_leaves_a_ceiling_of_two() -> None:
    baseline = [matmul("dense", 500e3, "tf32", "tensor_core")]
    found = compared(baseline, [fp16("dense", 250e3)], A100)
    assert found.ceiling == pytest.approx(2)
    assert compared([fp32("dense", 500e3)], [fp16("dense", 250e3)], A100).ceiling == pytest.approx(16)


def test_memory_bound_work_halves_only_where_its_tensors_become_16_bits() -> None:
    def relu(name: str | None, ns: float, precision: str, calls: float = 1.0) -> Cell:
        return Cell(
            "elementwise", ns, ns, calls, kernel="relu", layer=name, phase="forward", precision=precision
        )  # type: ignore[arg-type]

    found = compared(
        [relu("dense", 80e3, "fp32"), relu("head", 80e3, "fp32"), relu("dense_1", 80e3, "fp32", 20)],
        [relu("dense", 40e3, "fp16"), relu("head", 80e3, "fp32"), relu("dense_1", 80e3, "fp32", 20)],
    )
    ratios = {part.layer: part.ratio for part in found.slices}
    assert ratios == {"dense": 2.0, "head": 1.0, "dense_1": 1.0}  # float32 by policy; 4 µs kernels


def test_what_stays_and_what_only_the_mixed_run_has() -> None:
    baseline = [Cell("optimizer", 50e3, 50e3, 1), Cell("idle_launch", 20e3), Cell("profiling", -5e3)]
    mixed = [
        Cell("optimizer", 50e3, 50e3, 1), Cell("cast", 30e3, 30e3, 1, layer="dense"), Cell("idle_launch", 60e3),
    ]  # fmt: skip
    slices = {(part.category, part.layer): part.ns_per_step for part in compared(baseline, mixed).slices}
    assert slices == {
        ("optimizer", None): 0.0, ("cast", "dense"): 30e3, ("idle_launch", None): 40e3, ("profiling", None): 5e3,
    }  # fmt: skip


def test_a_card_without_matrix_units_promises_nothing_for_products() -> None:
    peaks = DevicePeaks("GTX 1080 Ti", False, {"fp32_cuda": 11e12, "fp16_cuda": 0.18e12}, 484e9, "datasheet")
    found = compared([fp32("dense", 500e3)], [matmul("dense", 520e3, "fp16", "cuda_core")], peaks)
    assert (found.expected, found.ceiling) == (1.0, 1.0)


def test_precision_explains_nothing_between_two_runs_of_one_type() -> None:
    found = compared([fp32("dense", 500e3)], [fp32("dense", 400e3)], mixed_run=B_RUN)
    assert (found.expected, found.ceiling, found.observed) == (None, None, 1.25)
    assert found.gap_ns == pytest.approx(-100e3)
    assert "both runs compute in fp32" in (found.absent or {})["expected"]


def test_nothing_is_expected_of_another_card() -> None:
    before, after = account_of([fp32("dense", 600e3)]), account_of([fp16("dense", 100e3)])
    known = {"mixed_run": M_RUN, "baseline_run": B_RUN, "peaks": V100}
    assert speedup(after, before, **known).expected is not None
    other = speedup(after, before, **known, other_card=True)
    assert (other.expected, other.ceiling, other.expected_with_host) == (None, None, None)
    assert other.observed == pytest.approx(6.0)
    assert "cards differ" in (other.absent or {})["expected"]


def test_a_policy_that_the_model_was_built_before_still_promised_its_speed() -> None:
    """The model computes in float32, and what was expected of the run is what mixed_float16 would have given."""
    layers = model(*(layer(name, dtype="float32") for name in ("dense", "dense_1")))
    late = run_of("late", "float32", layers)
    fit = replace(late.facts.fits[0], policy=PolicyFacts("mixed_float16", "float32", "float32"))
    late = replace(late, facts=replace(late.facts, fits=(fit,)))
    found = compared([fp32("dense", 700e3)], [fp32("dense", 700e3)], mixed_run=late)
    assert found.observed == 1.0
    assert found.expected == pytest.approx(7.0)  # the calibrated ratio of products on this card


def test_a_run_on_the_cpu_has_no_expectation() -> None:
    found = compared([fp32("dense", 500e3)], [fp32("dense", 900e3)], None, host=True)
    assert (found.expected, found.ceiling, found.observed) == (None, None, pytest.approx(5 / 9))
    assert found.gap_ns == pytest.approx(400e3)
    assert "CPU" in (found.absent or {})["expected"]


def test_the_host_is_a_floor_where_the_device_waits_for_it() -> None:
    baseline = [fp32("dense", 600e3), Cell("idle_input", 100e3)]
    mixed = [fp16("dense", 100e3), Cell("idle_input", 500e3)]
    before, after = account_of(baseline), account_of(mixed)
    from mpprof.model.account import Slice

    main = replace(after.main, slices=(Slice("idle_input", 500e3, 5 / 6),))
    found = speedup(replace(after, main=main), before, mixed_run=M_RUN, baseline_run=B_RUN, peaks=V100)
    assert found.expected_with_host == pytest.approx(700 / 600)
    assert found.expected is not None
    idle_host = replace(after, main=main, host_ns=1e3)  # a host that needs nothing makes no run faster
    found = speedup(idle_host, before, mixed_run=M_RUN, baseline_run=B_RUN, peaks=V100)
    assert found.expected_with_host == found.expected
    quiet = speedup(after, before, mixed_run=M_RUN, baseline_run=B_RUN, peaks=V100)
    assert quiet.expected_with_host is None
    assert "expected_with_host" in (quiet.absent or {})


def test_layers_are_matched_by_place_where_their_numbers_differ() -> None:
    baseline_run = run_of("float32", "float32", model("dense_7", "dense_8", name="model_3"))
    mixed_run = run_of("mixed", "float16", model("dense", "dense_1", name="model"))
    found = speedup(
        account_of([fp16("dense", 90e3), fp16("dense_1", 60e3)]),
        account_of([fp32("dense_7", 600e3), fp32("dense_8", 420e3)]),
        mixed_run=mixed_run,
        baseline_run=baseline_run,
        peaks=V100,
    )
    assert {part.layer for part in found.slices} == {"dense", "dense_1"}


def test_runs_without_accounts_compare_by_their_records() -> None:
    found = speedup(None, None, mixed_run=M_RUN, baseline_run=B_RUN, peaks=V100)
    assert (found.observed, found.expected, found.slices) == (None, None, ())
    assert {"observed", "expected", "slices"} <= set(found.absent or {})


CELL = st.builds(
    lambda category, layer, ns, precision, placement, calls: Cell(
        category, ns, ns, calls, kernel="k", op=f"model/{layer}/x", layer=layer, phase="forward",
        family="gemm" if category == "matmul" else "elementwise", placement=placement, precision=precision,
    ),
    st.sampled_from([category for category in CLASSES if not category.startswith("idle")]),
    st.sampled_from(["dense", "dense_1", "head", None]),
    st.floats(0, 1e9),
    st.sampled_from(["fp16", "fp32", "tf32", "unknown"]),
    st.sampled_from(["tensor_core", "cuda_core", "not_matmul"]),
    st.floats(0.25, 1e4),
)  # fmt: skip


@given(
    st.lists(CELL, max_size=30),
    st.lists(CELL, max_size=30),
    st.sampled_from([V100, A100, None]),
    st.none() | st.floats(0, 1e9),
)
def test_the_slices_sum_to_the_gap(
    baseline: list[Cell], mixed: list[Cell], peaks: DevicePeaks | None, host_ns: float | None
) -> None:
    baseline, mixed = [Cell("idle_other", 1e3), *baseline], [Cell("idle_other", 2e3), *mixed]
    found = speedup(
        replace(account_of(mixed), host_ns=host_ns),
        account_of(baseline),
        mixed_run=M_RUN,
        baseline_run=B_RUN,
        peaks=peaks,
    )
    t_b, t_m = (sum(cell.ns_per_step for cell in cells) for cells in (baseline, mixed))
    scale = 1e-6 * max(t_b, t_m)
    assert found.gap_ns is not None
    assert abs(sum(part.ns_per_step for part in found.slices) - found.gap_ns) <= scale
    assert abs(sum(part.baseline_ns for part in found.slices) - t_b) <= scale
    assert abs(sum(part.mixed_ns for part in found.slices) - t_m) <= scale
    if found.expected is None:
        assert abs(found.gap_ns - (t_m - t_b)) <= scale
    else:
        assert found.attainable_ns is not None
        assert abs(t_m - found.attainable_ns - found.gap_ns) <= scale
        assert found.expected == pytest.approx(t_b / found.attainable_ns)
        assert found.ceiling is None or found.ceiling >= found.expected * (1 - 1e-9)
        assert found.expected_with_host is None or found.expected_with_host <= found.expected
        assert (found.expected_with_host is None) == ("expected_with_host" in (found.absent or {}))
    assert all(part.ratio >= 1 - 1e-9 for part in found.slices)


def accounts() -> tuple[Account, Account]:
    return account_of([fp32("dense", 600e3)]), account_of([fp16("dense", 100e3), fp16("dense_1", 10e3)])


def test_kernel_changes_put_the_largest_difference_first() -> None:
    changes = kernel_changes(*accounts(), B_RUN, M_RUN)
    assert [(c.key, c.by, c.from_ns, c.to_ns) for c in changes][:2] == [
        ("fp32_gemm", "name", 600e3, None),
        ("model/dense/MatMul", "op", 600e3, 100e3),
    ]
    assert len(changes) == 4


def compiled(name: str, ns: float, op: str, *opcodes: str, size: int = 512) -> Cell:
    """A fusion of XLA's by its number in one program."""
    operands, results = [("f32", (8, size, size))], [("f32", (size, size))]
    hlo = fusion(*opcodes, operands=operands, results=results)
    return Cell("reduce", ns, ns, 1.0, kernel=name, op=op, op_type="fusion", family="reduce", hlo=hlo)


def test_what_xla_compiled_is_paired_by_op_body_and_sizes_and_not_by_its_number() -> None:
    """Two compiles number their fusions anew: `input_reduce_fusion_65` of one was `_66` of the other."""
    like = ("like input_reduce_fusion.65", "like input_reduce_fusion.66")
    before = account_of([
        compiled("input_reduce_fusion_65", 400e3, like[0], "reduce", "is-finite"),
        compiled("input_reduce_fusion_3", 90e3, "jit(f)/jvp(dense)/reduce_sum", "reduce"),
    ])  # fmt: skip
    after = account_of([
        compiled("input_reduce_fusion_65", 20e3, "like input_reduce_fusion.65", "reduce", size=64),
        compiled("input_reduce_fusion_66", 300e3, like[1], "reduce", "convert", "is-finite"),
        compiled("input_reduce_fusion_7", 80e3, "jit(f)/jvp(dense)/reduce_sum", "reduce"),
    ])  # fmt: skip
    changes = kernel_changes(before, after, B_RUN, M_RUN)
    assert [(c.key, c.from_ns, c.to_ns) for c in changes if c.by == "name"] == [
        ("input_reduce_fusion_66", 400e3, 300e3),
        ("input_reduce_fusion_65", None, 20e3),
        ("input_reduce_fusion_7", 90e3, 80e3),
    ]
    assert [(c.key, c.from_ns, c.to_ns) for c in changes if c.by == "op"] == [
        (like[1], 400e3, 300e3),
        (like[0], None, 20e3),
        ("jit(f)/jvp(dense)/reduce_sum", 90e3, 80e3),
    ]
    of_sums = matching(before, after, B_RUN, M_RUN).by_op_ratio
    assert of_sums == (pytest.approx(1.0), pytest.approx(380 / 400))


def test_unlike_says_in_which_respects() -> None:
    assert unlike(Side(B_RUN), Side(M_RUN)) == ()
    other = run_of("other", "float16", model("dense"), batch=64, tf32_enabled=True)
    labels = unlike(Side(B_RUN), Side(other))
    assert "batch size: 32 against 64" in labels
    assert "TF32: False against True" in labels
    assert any(label.startswith("model") for label in labels)
    bare = replace(M_RUN, facts=None)
    (said,) = unlike(Side(B_RUN), Side(bare))
    assert said.startswith("not known to have the same batch, model")
    assert said.endswith("no records of mixed")


def test_cards_are_told_apart_by_name_or_by_what_they_can_do() -> None:
    """Records say nothing here: the devices are those that two bare traces name."""
    bare = replace(B_RUN, facts=None)
    a100 = Side(bare, DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB", "nvidia", (8, 0)), A100)
    v100 = Side(bare, DeviceFacts("gpu", "Tesla V100-SXM2-16GB", "nvidia", (7, 0)), V100)
    assert other_card(a100, v100) == "device: NVIDIA A100-SXM4-40GB against Tesla V100-SXM2-16GB"
    assert unlike(a100, v100)[0] == other_card(a100, v100)
    assert "1,555 -> 900 GB/s" in (rates(a100, v100) or "")
    assert "TF32 on matrix units 156 TFLOP/s -> none" in (rates(a100, v100) or "")
    nameless = Side(bare, DeviceFacts("gpu", None, "nvidia", (7, 0)))
    assert other_card(v100, nameless) is None
    assert other_card(a100, nameless) is not None
    assert other_card(a100, Side(bare)) is None
    assert rates(v100, v100) is None


def test_another_model_is_no_comparison() -> None:
    wide = replace(model("dense"), parameters=9_000)
    assert refusal(Side(B_RUN), Side(M_RUN)) is None
    why = refusal(Side(B_RUN), Side(run_of("wide", "float16", wide)))
    assert why is not None
    assert "4 layers with 1,000 parameters, and 1 with 9,000" in why
    assert refusal(Side(B_RUN), Side(replace(M_RUN, facts=None))) is None  # nobody knows


def test_work_whose_layers_one_run_does_not_know_is_compared_as_a_whole() -> None:
    """Another backend, or fusions: conv2d's time has not gone, it is only not called so."""
    before, after = [fp32("dense", 600e3), fp32("dense_1", 400e3)], [fp16("dense", 250e3)]
    nameless = [replace(cell, layer=None, op="fusion.3") for cell in after]
    (part,) = compared(before, nameless, None).slices
    assert (part.category, part.layer, part.baseline_ns, part.mixed_ns) == ("matmul", None, 1000e3, 250e3)
    known = compared(before, [*after, fp16("dense_1", 10e3)], None).slices
    assert {part.layer for part in known} == {"dense", "dense_1"}


def test_matching_tells_what_has_its_like_and_what_is_alone() -> None:
    before = account_of([fp32("dense", 600e3), fp32("dense_1", 200e3)])
    after = account_of([fp16("dense", 100e3), Cell("cast", 50e3, op="model/dense/Cast", layer="dense")])
    found = matching(before, after, B_RUN, M_RUN)
    assert found.by_op_ratio == (pytest.approx(0.75), pytest.approx(2 / 3))
    assert found.only_from == (OpTime("model/dense_1/MatMul", 200e3),)
    assert found.only_to == (OpTime("model/dense/Cast", 50e3),)
    renamed = [replace(cell, op=f"jit/{i}") for i, cell in enumerate(after.main.cells)]
    other = matching(before, account_of(renamed), B_RUN, M_RUN)
    assert other.by_op_ratio == (0.0, 0.0)
    assert other.by_layer_ratio == (pytest.approx(0.75), pytest.approx(2 / 3))  # the same layer, another op
