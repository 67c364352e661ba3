"""Counters: Nsight Compute's CSV in both layouts becomes verdicts, and proves only what it can."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.kernels.counters import METRICS, of_devices, verdicts
from mpprof.analysis.kernels.name_parts import spelled
from mpprof.errors import UnreadableError
from mpprof.model.device import DeviceFacts
from mpprof.model.kernels import OTHER_CARD

HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
PIPE = "sm__inst_executed_pipe_tensor.sum"


def raw(metric: str, rows: list[tuple[str, str]], cc: str = "8.0") -> list[str]:
    """The raw page: a column per metric and a line of units."""
    lines = ["==PROF== Connected to process 1", f'"ID","Kernel Name","CC","{metric}"', '"","","","inst"']
    return lines + [f'"{i}","{name}","{cc}","{value}"' for i, (name, value) in enumerate(rows)]


def counted(cc: str, **values: str) -> list[str]:
    """The raw page of one launch of a kernel that nothing is known of, with several metrics."""
    names = list(values)
    return [
        ",".join(f'"{text}"' for text in ("ID", "Kernel Name", "CC", *names)),
        ",".join(f'"{text}"' for text in ("0", "my_gemm_mma_kernel", cc, *values.values())),
    ]


def details(metric: str, rows: list[tuple[str, str]]) -> list[str]:
    """The details page: a row per launch and metric."""
    lines = ['"ID","Kernel Name","CC","Section Name","Metric Name","Metric Unit","Metric Value"']
    return lines + [
        f'"{i}","{name}","8.0","Command line","{metric}","inst","{value}"'
        for i, (name, value) in enumerate(rows)
    ]


@pytest.mark.parametrize("page", [raw, details])
def test_both_pages_say_the_same(page) -> None:  # type: ignore[no-untyped-def]
    rows = [("my_product", "1,234"), ("my_product", "0"), ("ampere_sgemm_128x64_nn", "0")]
    found = verdicts(page(HMMA, rows), card="A100")
    assert found["my_product", "A100"].placement == "tensor_core"
    assert found["ampere_sgemm_128x64_nn", "A100"].placement == "cuda_core"
    assert {verdict.strength for verdict in found.values()} == {"counter"}
    assert "1234" in found["my_product", "A100"].reason.text


def test_a_table_per_process_is_read_as_one() -> None:
    once = raw(HMMA, [("my_product", "3")])
    (verdict,) = verdicts([*once, *once[1:]]).values()
    assert "= 6 over" in verdict.reason.text


def test_the_whole_pipe_above_zero_proves_nothing() -> None:
    rows = [("upsample", "67108864"), ("cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", "0")]
    found = verdicts(raw(PIPE, rows))
    assert ("upsample", "") not in found
    assert found["cudnn_ampere_scudnn_128x64_relu_medium_nn_v1", ""].placement == "cuda_core"


def test_no_tensor_instruction_does_not_make_a_matrix_kernel() -> None:
    found = verdicts(raw(HMMA, [("foo_kernel", "0"), ("void splitKreduce_kernel<float>()", "0")]))
    assert ("foo_kernel", "") not in found
    assert found["void splitKreduce_kernel<float>()", ""].placement == "not_matmul"


@pytest.mark.parametrize(
    ("metric", "precision"),
    [
        ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", "bf16"),
        ("sm__ops_path_tensor_src_tf32_dst_fp32.sum", "tf32"),
        ("sm__inst_executed_pipe_tensor_op_imma.sum", "int8"),
        ("sm__inst_executed_pipe_tensor_op_dmma.sum", "fp64"),
    ],
)
def test_a_counter_that_names_the_type_gives_the_precision(metric: str, precision: str) -> None:
    verdict = verdicts(raw(metric, [("my_product", "8")]))["my_product", ""]
    assert (verdict.placement, verdict.precision) == ("tensor_core", precision)


@pytest.mark.parametrize(
    "lines", [[], ["nothing here"], ['"ID","Kernel Name"', '"1","k"'], raw("launch__grid_size", [("k", "1")])]
)
def test_a_file_without_counters_is_refused_with_advice(lines: list[str]) -> None:
    with pytest.raises(UnreadableError, match="ncu"):
        verdicts(lines, where="x.csv")


@given(st.lists(st.text(max_size=80), max_size=20))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    try:
        found = verdicts(['"ID","Kernel Name","' + HMMA + '"', *lines])
    except UnreadableError:
        return
    assert all(verdict.strength == "counter" for verdict in found.values())


# What each card's counters prove ----------------------------------------------------------------------------


@pytest.mark.parametrize(("cc", "proven"), [("7.0", True), ("8.6", True), ("9.0", True), ("12.0", True),
                                            ("7.5", False), ("8.0", False), ("", False)])  # fmt: skip
def test_a_busy_pipe_proves_tensor_core_work_where_nothing_else_uses_it(cc: str, proven: bool) -> None:
    found = verdicts(raw(PIPE, [("void gemm_mma_t<1>()", "512")], cc))
    assert bool(found) is proven
    assert all(verdict.placement == "tensor_core" for verdict in found.values())


def test_on_a100_plain_half_arithmetic_is_not_taken_for_a_tensor_core() -> None:
    lines = counted("8.0", **{PIPE: "67108864", HMMA: "0"})
    assert [v.placement for v in verdicts(lines).values()] == ["cuda_core"]


def test_on_hopper_no_hmma_is_no_proof_since_wgmma_counts_apart() -> None:
    assert verdicts(counted("9.0", **{HMMA: "0"})) == {}
    both = counted("9.0", **{HMMA: "0", "sm__inst_executed_pipe_tensor_op_gmma.sum": "4096"})
    assert [v.placement for v in verdicts(both).values()] == ["tensor_core"]
    assert [v.placement for v in verdicts(counted("9.0", **{HMMA: "0", PIPE: "0"})).values()] == ["cuda_core"]


def test_counting_only_some_instructions_proves_no_absence() -> None:
    assert verdicts(counted("8.0", **{"sm__inst_executed_pipe_tensor_op_imma.sum": "0"})) == {}


@pytest.mark.parametrize(
    "metric",
    [
        "sm__inst_executed_pipe_hmma_sum",
        "smsp__inst_executed_pipe_tensor_op_hmma.sum",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor_subpipe_hmma.sum",
        "sm__ops_path_tensor_src_fp16_dst_fp32.sum.per_cycle_elapsed",
        "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum",
    ],
)
def test_older_and_newer_names_of_the_metrics(metric: str) -> None:
    assert [v.placement for v in verdicts(counted("8.0", **{metric: "3.5"})).values()] == ["tensor_core"]


def test_everything_that_is_asked_for_is_understood() -> None:
    for metric in METRICS:
        assert verdicts(counted("9.0", **{f"{metric}.sum": "1"})), metric


# One kernel, several spellings; one card, several names ------------------------------------------------------


def test_the_spellings_of_tools_meet() -> None:
    ncu = "void cudnn::cnn::conv2d_grouped_direct_kernel<(bool)0, (bool)1, (int)2, float>(const T1 *, int)"
    cupti = "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, 2, float>(float const*, int)"
    assert spelled(ncu) == spelled(cupti)
    assert spelled("void <unnamed>::k<8u>(T1)") == spelled("(anonymous namespace)::k<8>(int)")
    assert spelled("gemm<2>(int)") != spelled("gemm<3>(int)")


def test_a_verdict_is_used_on_its_own_card_only() -> None:
    stored = verdicts(raw(HMMA, [("my_product", "1")]), card="NVIDIA A100-SXM4-40GB")
    v100, a100 = DeviceFacts("gpu", "Tesla V100-SXM2-16GB"), DeviceFacts("gpu", "NVIDIA A100-SXM4-40GB")
    assert of_devices(stored, [v100]) == {}
    assert set(of_devices(stored, [v100, a100])) == {("my_product", "NVIDIA A100-SXM4-40GB")}
    nameless = [DeviceFacts("gpu", compute_capability=(8, 0)), DeviceFacts("gpu", compute_capability=(7, 0))]
    assert set(of_devices(stored, nameless[:1])) == {("my_product", "")}
    assert of_devices(stored, nameless[1:]) == {}


def test_a_table_without_a_capability_is_read_by_the_cards() -> None:
    lines = ['"ID","Kernel Name","Metric Name","Metric Value"', f'"0","volta_s884gemm_nn","{PIPE}","7"']
    assert verdicts(lines) == {}
    found = verdicts(lines, card="Tesla V100-SXM2-16GB")
    assert [verdict.placement for verdict in found.values()] == ["tensor_core"]


def test_a_table_of_another_card_is_called_a_contradiction() -> None:
    launches = raw(HMMA, [("some_gemm", "5")], cc="8.0")
    (doubted,) = verdicts(launches, card="V100").values()
    assert "contradiction: counted on compute capability 8.0, but V100 has 7.0" in doubted.reason.text
    assert doubted.reason.code == OTHER_CARD  # and so is not called verified
    (plain,) = verdicts(launches, card="A100").values()
    assert "contradiction" not in plain.reason.text


def test_float32_is_never_what_a_tensor_core_multiplied() -> None:
    (verdict,) = verdicts(raw(HMMA, [("ampere_sgemm_128x64_nn", "5")])).values()
    assert (verdict.placement, verdict.precision) == ("tensor_core", "unknown")


def test_a_capability_of_thousands_of_digits_is_none() -> None:
    (verdict,) = verdicts(raw(HMMA, [("ampere_sgemm_128x64_nn", "3")], cc="9" * 5_000 + ".0")).values()
    assert verdict.placement == "tensor_core"


def test_a_table_of_more_kernels_than_a_run_has_is_refused() -> None:
    with pytest.raises(UnreadableError, match="more than 20,000 kernels"):
        verdicts(raw(HMMA, [(f"k{i}", "0") for i in range(20_001)]))
