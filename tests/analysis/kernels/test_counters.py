"""Counters: Nsight Compute's CSV in both layouts becomes verdicts, and proves only what it can."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.kernels.counters import METRICS, NOT_PROVEN, as_proven, of_devices, verdicts
from mpprof.analysis.kernels.name_parts import spelled
from mpprof.errors import UnreadableError
from mpprof.model.device import DeviceFacts
from mpprof.model.kernels import OTHER_CARD, Placement, Precision, Reason, Verdict

HMMA = "sm__inst_executed_pipe_tensor_op_hmma.sum"
PIPE = "sm__inst_executed_pipe_tensor.sum"


def raw(metric: str, rows: list[tuple[str, str]], cc: str = "7.5") -> list[str]:
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
        f'"{i}","{name}","7.5","Command line","{metric}","inst","{value}"'
        for i, (name, value) in enumerate(rows)
    ]


@pytest.mark.parametrize("page", [raw, details])
def test_both_pages_say_the_same(page) -> None:  # type: ignore[no-untyped-def]
    rows = [("my_product", "1,234"), ("my_product", "0"), ("ampere_sgemm_128x64_nn", "0")]
    found = verdicts(page(HMMA, rows), card="T4")
    assert found["my_product", "T4"].placement == "tensor_core"
    assert found["ampere_sgemm_128x64_nn", "T4"].placement == "cuda_core"
    assert {verdict.strength for verdict in found.values()} == {"counter"}
    assert "1234" in found["my_product", "T4"].reason.text


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


@pytest.mark.parametrize(
    ("cc", "proven"),
    [("7.0", True), *((cc, False) for cc in ("7.5", "8.0", "8.6", "9.0", "12.0", ""))],
)
def test_a_busy_pipe_proves_tensor_core_work_where_nothing_else_uses_it(cc: str, proven: bool) -> None:
    found = verdicts(raw(PIPE, [("void gemm_mma_t<1>()", "512")], cc))
    assert bool(found) is proven
    assert all(verdict.placement == "tensor_core" for verdict in found.values())


def test_on_a100_plain_half_arithmetic_is_not_taken_for_a_tensor_core() -> None:
    lines = counted("8.0", **{PIPE: "67108864", HMMA: "0"})
    assert [v.placement for v in verdicts(lines).values()] == ["cuda_core"]


# What Nsight Compute says of an H100; fp64 and integers by their instructions, fp8 by wgmma's.
OPS = {f"sm__ops_path_tensor_src_{kind}.sum": "0" for kind in ("fp16", "bf16_dst_fp32", "tf32_dst_fp32")}
H100 = OPS | {f"sm__inst_executed_pipe_tensor_op_{op}.sum": "0" for op in ("imma", "dmma", "gmma")}
H100 |= {"sm__ops_path_tensor_src_int8.sum": "0"}


def of_h100(name: str, **values: str) -> str | None:
    """The placement of a kernel of this name with these counters."""
    lines = [line.replace("my_gemm_mma_kernel", name) for line in counted("9.0", **values)]
    return next((verdict.placement for verdict in verdicts(lines).values()), None)


FFMA = "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_kernel__5x_cublas"
COPY = "void at::native::direct_copy_kernel<float>(int)"


@pytest.mark.parametrize("cc", ["8.0", "8.6", "8.9", "9.0", "10.0", "12.0"])
def test_from_ampere_on_hmma_alone_is_no_proof_by_being_above_zero(cc: str) -> None:
    for metric in (HMMA, "sm__pipe_tensor_op_hmma_cycles_active.avg", PIPE):
        assert verdicts(counted(cc, **{metric: "21632"})) == {}
    assert verdicts(counted(cc, **{HMMA: "21632", "sm__ops_path_tensor_src_bf16_dst_fp32.sum": "0"})) == {}


def test_on_hopper_the_operations_decide_against_hmma() -> None:
    busy = {HMMA: "21632", PIPE: "21632"}
    assert of_h100(FFMA, **H100, **busy) == "cuda_core"
    assert of_h100(COPY, **H100, **busy) == "not_matmul"
    assert of_h100(FFMA, **H100 | {"sm__ops_path_tensor_src_tf32_dst_fp32.sum": "8"}, **busy) == "tensor_core"
    (verdict,) = verdicts(
        [line.replace("my_gemm_mma_kernel", FFMA) for line in counted("9.0", **H100, **busy)]
    ).values()
    assert "every type that the card multiplies" in verdict.reason.text
    assert "counts other instructions too" in verdict.reason.text


@pytest.mark.parametrize("missing", H100)
def test_a_type_that_was_not_asked_for_stays_open(missing: str) -> None:
    asked = {metric: "0" for metric in H100 if metric != missing}
    assert of_h100(FFMA, **asked, **{HMMA: "1024"}) is None


def test_half_operands_count_as_asked_for_with_every_accumulator_and_sparsity() -> None:
    rest = {metric: "0" for metric in H100 if "fp16" not in metric}
    half = "sm__ops_path_tensor_src_fp16_dst_fp16.sum"
    assert of_h100(FFMA, **rest, **{half: "0"}) is None
    assert of_h100(FFMA, **rest, **{half: "0", half.replace("dst_fp16", "dst_fp32"): "0"}) == "cuda_core"
    dense, sparse = (f"sm__ops_path_tensor_src_fp16_sparsity_{state}.sum" for state in ("off", "on"))
    assert of_h100(FFMA, **rest, **{dense: "0"}) is None
    assert of_h100(FFMA, **rest, **{dense: "0", sparse: "0"}) == "cuda_core"
    assert of_h100(FFMA, **rest, **{"sm__ops_path_tensor_op_hmma_src_fp16.sum": "0"}) is None


@pytest.mark.parametrize(
    ("name", "own"), [("ampere_dgemm_64x64_nn", "dmma"), ("ampere_igemm_64x64_nn", "imma")]
)
def test_no_hmma_says_nothing_of_doubles_and_integers(name: str, own: str) -> None:
    counts = {HMMA: "0"}
    for expected in (0, 1):
        lines = [line.replace("my_gemm_mma_kernel", name) for line in counted("8.0", **counts)]
        assert len(verdicts(lines)) == expected
        counts[f"sm__inst_executed_pipe_tensor_op_{own}.sum"] = "0"


def test_the_least_of_all_processors_proves_nothing_and_the_sum_is_quoted() -> None:
    idle = "sm__inst_executed_pipe_tensor.min"
    assert verdicts(counted("9.0", **{idle: "0", HMMA: "8"})) == {}
    operations = "sm__ops_path_tensor_src_tf32_dst_fp32"
    (verdict,) = verdicts(counted("9.0", **{f"{operations}.max": "8", f"{operations}.sum": "8"})).values()
    assert f"{operations}.sum = 8" in verdict.reason.text
    # ncu rounds averages over 132 processors
    assert verdicts(counted("9.0", **{PIPE.replace("sum", "avg"): "0", PIPE: "1"})) == {}


@pytest.mark.parametrize(
    ("src", "precision"),
    [("fp4_dst_fp32", "fp4"), ("fp8", "fp8"), ("fp4_fp6_fp8_dst_fp32", "unknown"), ("int4", "unknown")],
)
def test_a_counter_of_several_types_does_not_say_which(src: str, precision: str) -> None:
    (verdict,) = verdicts(counted("10.0", **{f"sm__ops_path_tensor_src_{src}.sum": "8"})).values()
    assert (verdict.placement, verdict.precision) == ("tensor_core", precision)


# Names that a compiler made --------------------------------------------------------------------------------


def launches(*values: dict[str, str], name: str = "gemm_fusion_dot") -> list[str]:
    """Launches of one name, each with its own counters."""
    metrics = sorted({metric for row in values for metric in row})
    rows = [["ID", "Kernel Name", "CC", *metrics]]
    rows += [[str(at), name, "9.0", *(row.get(key, "0") for key in metrics)] for at, row in enumerate(values)]
    return [",".join(f'"{cell}"' for cell in row) for row in rows]


INT8, BF16 = "sm__ops_path_tensor_src_int8.sum", "sm__ops_path_tensor_src_bf16_dst_fp32.sum"


def test_launches_of_a_compilers_name_that_disagree_are_not_taken_for_one() -> None:
    (verdict,) = verdicts(launches({BF16: "8"}, {INT8: "16"})).values()
    assert (verdict.placement, verdict.precision) == ("tensor_core", "unknown")
    assert verdicts(launches({BF16: "8"}, {})) == {}
    (verdict,) = verdicts(launches({BF16: "8"}, {BF16: "16"})).values()
    assert (verdict.placement, verdict.precision) == ("tensor_core", "bf16")
    library = (
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_bf16_64x64_32x6_nn_align8>(T1::Params)"
    )
    (verdict,) = verdicts(launches({BF16: "8"}, {}, name=library)).values()
    assert verdict.placement == "tensor_core"


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
    assert [v.placement for v in verdicts(counted("7.0", **{metric: "3.5"})).values()] == ["tensor_core"]


def test_everything_that_is_asked_for_is_understood() -> None:
    for metric in METRICS:
        assert verdicts(counted("7.0", **{f"{metric}.sum": "1"})), metric


# One kernel, several spellings; one card, several names ------------------------------------------------------


def test_the_spellings_of_tools_meet() -> None:
    ncu = "void cudnn::cnn::conv2d_grouped_direct_kernel<(bool)0, (bool)1, (int)2, float>(const T1 *, int)"
    cupti = "void cudnn::cnn::conv2d_grouped_direct_kernel<false, true, 2, float>(float const*, int)"
    assert spelled(ncu) == spelled(cupti)
    assert spelled("void <unnamed>::k<8u>(T1)") == spelled("(anonymous namespace)::k<8>(int)")
    assert spelled("gemm<2>(int)") != spelled("gemm<3>(int)")


@pytest.mark.parametrize(
    ("ncu", "cupti"),
    [
        (
            "void native::vectorized_elementwise_kernel<4, native::CUDAFunctor_add<float>, std::array<char *, 3>>(int, T2, T3)",
            "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)",
        ),
        (
            "void at::vectorized_elementwise_kernel<8, at::FillFunctor<c10::BFloat16>, std::array<char *, 1>>(int, T2, T3)",
            "void at::native::vectorized_elementwise_kernel<8, at::native::FillFunctor<c10::BFloat16>, std::array<char*, 1ul> >(int)",
        ),
        (
            "void engines_precompiled::nchwToNhwcKernel<float, float, float, 0, 1, 2>(engines_precompiled::nchw2nhwc_params_t<T3>, const T1 *, T2 *)",
            "void cudnn::engines_precompiled::nchwToNhwcKernel<float, float, float, false, true, (cudnnKernelDataType_t)2>(cudnn::engines_precompiled::nchw2nhwc_params_t<float>, float const*, float*)",
        ),
        (
            "void native::<unnamed>::multi_tensor_apply_kernel<native::<unnamed>::TensorListMetadata<1>, const float *>(T1, T2, T3...)",
            "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::TensorListMetadata<1>, float const*>(int)",
        ),
    ],
    ids=["native", "at", "cudnn", "anonymous"],
)
def test_the_spellings_of_nsight_compute_2025_meet_those_of_cupti(ncu: str, cupti: str) -> None:
    assert spelled(ncu) == spelled(cupti)


def test_kernels_that_share_a_spelling_and_ran_in_different_places_have_none_under_it() -> None:
    rows = [("ours::gemm_kernel<1>(T1)", "8"), ("theirs::volta_sgemm_kernel<1>(T1)", "0")]
    rows += [("a::wmma_gemm<1>(T1)", "8"), ("b::wmma_gemm<1>(T1)", "0")]
    v100 = [DeviceFacts("gpu", "V100", "nvidia", (7, 0))]
    found = of_devices(verdicts(raw(HMMA, rows, cc="7.0")), v100)
    assert found["gemm_kernel<1>", "V100"].placement == "tensor_core"
    assert ("wmma_gemm<1>", "V100") not in found
    assert found["a::wmma_gemm<1>(T1)", "V100"].placement == "tensor_core"


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
    launches = raw(HMMA, [("some_gemm", "5")], cc="7.5")
    (doubted,) = verdicts(launches, card="V100").values()
    assert "contradiction: counted on compute capability 7.5, but V100 has 7.0" in doubted.reason.text
    assert doubted.reason.code == OTHER_CARD  # and so is not called verified
    (plain,) = verdicts(launches, card="T4").values()
    assert "contradiction" not in plain.reason.text


def test_float32_is_never_what_a_tensor_core_multiplied() -> None:
    (verdict,) = verdicts(raw(HMMA, [("ampere_sgemm_128x64_nn", "5")])).values()
    assert (verdict.placement, verdict.precision) == ("tensor_core", "unknown")


def test_a_capability_of_thousands_of_digits_is_none() -> None:
    assert verdicts(raw(HMMA, [("ampere_sgemm_128x64_nn", "3")], cc="9" * 5_000 + ".0")) == {}


def test_a_table_of_more_kernels_than_a_run_has_is_refused() -> None:
    with pytest.raises(UnreadableError, match="more than 20,000 kernels"):
        verdicts(raw(HMMA, [(f"k{i}", "0") for i in range(20_001)]))


HOPPER = DeviceFacts("gpu", "NVIDIA H100 80GB HBM3", "nvidia", (9, 0))
PATH = "sm__ops_path_tensor_src_bf16_dst_fp32.sum"
GMMA = "sm__inst_executed_pipe_tensor_op_gmma.sum"
IMMA = "sm__inst_executed_pipe_tensor_op_imma.sum"


def kept(metric: str, count: str, *, precision: Precision = "fp16", more: str = "") -> Verdict:
    """A verdict as it stands in a counters.json."""
    text = f"verified by hardware counters: {metric} = {count} over 4 launches{more}"
    code = "counter-none" if count == "0" else "counter-tensor"
    where: Placement = "cuda_core" if count == "0" else "tensor_core"
    return Verdict(where, precision, "gemm", Reason(code, text), "counter")


@pytest.mark.parametrize(
    ("verdict", "card", "proven"),
    [
        (kept(HMMA, "1.68215e+07"), "NVIDIA H100 80GB HBM3", False),
        (kept(HMMA, "1.68215e+07"), "", False),  # any card: the one of the trace decides
        (kept(HMMA, "512"), "NVIDIA A100-SXM4-40GB", False),
        (kept(HMMA, "512"), "Tesla V100-SXM2-16GB", True),
        (kept(PIPE, "512"), "Tesla T4", False),
        (kept(PATH, "1.6e+11"), "NVIDIA H100 80GB HBM3", True),
        (kept(GMMA, "7"), "NVIDIA H100 80GB HBM3", True),
        (kept(HMMA, "0"), "NVIDIA H100 80GB HBM3", False),  # wgmma counts apart
        (kept(HMMA, "0"), "NVIDIA A100-SXM4-40GB", True),
        (kept(HMMA, "0", precision="int8"), "NVIDIA A100-SXM4-40GB", False),
        (kept(IMMA, "0", precision="int8"), "NVIDIA A100-SXM4-40GB", True),
        (kept(PIPE, "0"), "NVIDIA H100 80GB HBM3", True),
        (kept(PATH, "0"), "NVIDIA H100 80GB HBM3", False),  # fp16, bf16 and tf32 were enough
        (kept(PATH, "0", more=", and so for every type that the card multiplies"), "NVIDIA H100 80GB HBM3", True),
    ],
)  # fmt: skip
def test_a_kept_verdict_holds_where_its_counter_proves_it_today(
    verdict: Verdict, card: str, proven: bool
) -> None:
    (found,) = as_proven({("k", card): verdict}, [HOPPER]).values()
    assert (found == verdict) is proven
    assert proven or (found.placement, found.precision, found.reason.code) == (
        "unknown",
        "unknown",
        NOT_PROVEN,
    )
    assert proven or "run `mpprof verify` again" in found.reason.text


def test_what_is_proven_now_stays_proven_when_it_is_kept() -> None:
    """For the verdicts that this version makes, of an HOPPER by every type."""
    every = {f"{m}.sum": "0" for m in METRICS if "ops_path" in m or m.endswith("op_gmma")}
    tables = [
        counted("9.0", **{PATH: "5"}),
        counted("9.0", **every),
        raw(HMMA, [("gemm_kernel", "5")], "7.0"),
    ]
    for lines, card in zip(tables, ["NVIDIA H100 80GB HBM3"] * 2 + ["Tesla V100-SXM2-16GB"], strict=True):
        made = verdicts(lines, card=card)
        assert made
        assert as_proven(made, [HOPPER]) == made


_OF_ONE = "sm__inst_executed_pipe_tensor_op_{}".format


@example("Tesla T4", "volta_dgemm_64x64_nn", {_OF_ONE("hmma"): "0", _OF_ONE("dmma"): "0"})
@example("Tesla T4", "ampere_igemm_int8_128x128", {_OF_ONE("hmma"): "0", _OF_ONE("imma"): "0"})
@given(
    st.sampled_from(["Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"]),
    st.sampled_from(["volta_dgemm_64x64_nn", "ampere_igemm_int8_128x128", "volta_sgemm_128x64_nn", "gemm_fusion_dot"]),
    st.dictionaries(st.sampled_from(METRICS), st.sampled_from(["0", "0", "2.5e+07"]), min_size=1),
)  # fmt: skip
def test_every_verdict_of_today_is_proven_when_it_is_read_back(
    card: str, kernel: str, values: dict[str, str]
) -> None:
    product = device_peaks.find(card)
    lines = [
        ",".join(["ID", "Kernel Name", *(f"{metric}.sum" for metric in values)]),
        ",".join(["0", kernel, *values.values()]),
    ]
    made = verdicts(lines, card=card)
    assert as_proven(made, [DeviceFacts("gpu", card, "nvidia", product.compute_capability)]) == made


@pytest.mark.parametrize("proven", ["", "NVIDIA H100 80GB HBM3"])
def test_a_kept_verdict_that_proves_nothing_gives_way_to_one_that_does(proven: str) -> None:
    """A file of two versions: one entry for any card, and one for the card that ran."""
    (other,) = {"", "NVIDIA H100 80GB HBM3"} - {proven}
    stored = {("my::product", proven): kept(PATH, "5"), ("my::product", other): kept(HMMA, "9")}
    found = of_devices(as_proven(stored, [HOPPER]), [HOPPER])
    assert {key[1] for key in found} == {HOPPER.name}
    assert {verdict.placement for verdict in found.values()} == {"tensor_core"}
