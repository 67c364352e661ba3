"""Kernel names through `classify`: each rule by its example, counter truth, the rival list, hostile names."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpprof.analysis.kernels.name_parts import LONGEST, Card, is_cut, parse, readable
from mpprof.analysis.kernels.names import RULES, candidates, classify, is_generic
from mpprof.analysis.kernels.rule import Rule, literals
from mpprof.model.kernels import FAMILIES, PLACEMENTS, PRECISIONS
from tests.paths import NO_DATA, SHARED_DATA
from tools.benchmarks.tensor_core_truth import by_fragments

TRUTH = SHARED_DATA / "kernel_truth.csv"
SEEN = SHARED_DATA / "kernel_names.csv"

UNDECIDABLE = "gemm_lowprec_t<"  # a user's kernel: nothing in its name says how it multiplies


def _rows(path: Path) -> list[dict[str, str]]:
    if not path.exists():
        pytest.skip(NO_DATA)
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _capability(gpu: str) -> tuple[int, int] | None:
    known = {"A100": (8, 0), "V100": (7, 0), "H100": (9, 0), "B200": (10, 0), "12.0": (12, 0)}
    return next((capability for part, capability in known.items() if part in gpu), None)


# Rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", [rule for rule in RULES if rule.example], ids=lambda rule: rule.code)
def test_a_rule_is_the_first_to_decide_its_example(rule: Rule) -> None:
    name = parse(rule.example)
    assert next(found for found in candidates(name) if found.apply(name, Card())) is rule


def test_every_rule_says_where_it_is_from() -> None:
    for rule in RULES:
        assert rule.source, rule.code
        assert rule.generation, rule.code
        assert rule.example or rule.code == "mxu", rule.code
    assert len({rule.code for rule in RULES}) == len(RULES)


def test_a_tpu_product_runs_on_the_mxu_and_only_there() -> None:
    assert classify("dot.4", None, "google").placement == "matrix_core"
    assert classify("dot.4", (8, 0), "nvidia").placement == "unknown"


@pytest.mark.parametrize(
    ("pattern", "runs"),
    [
        (r"splitkreduce|reducesplitk\w*", ("splitkreduce", "reducesplitk")),
        (r"^(?:loop|input)_x?fusion$", ("fusion",)),
        (r"\bab(?:cdef)?gh_i{2}", ("gh_",)),
        (r"[a-z]+|xyz", ()),
        (r"(?:one|three)\d", ("one", "three")),
    ],
)
def test_literals_are_what_every_match_contains(pattern: str, runs: tuple[str, ...]) -> None:
    assert literals(pattern) == runs


def test_no_rule_is_skipped_that_would_apply() -> None:
    for row in _rows(SEEN):
        name = parse(row["kernel_name"])
        applying = [rule.code for rule in RULES if rule.apply(name, Card())]
        offered = [rule.code for rule in candidates(name) if rule.apply(name, Card())]
        assert applying == offered


# What is known to be true ------------------------------------------------------------------------------------


def test_every_decided_verdict_agrees_with_the_counters() -> None:
    rows = _rows(TRUTH)
    wrong, unknown = [], []
    for row in rows:
        name = row["kernel_name"]
        verdict = classify(name, _capability(row["gpu"]), "nvidia")
        if verdict.placement == "unknown":
            unknown.append(name)
        elif (verdict.placement == "tensor_core") != (row["uses_tensor_core"] == "yes"):
            wrong.append((name, verdict))
    assert wrong == []
    assert [name for name in unknown if UNDECIDABLE not in name] == []
    assert len(unknown) <= 0.03 * len(rows)


def test_the_fragment_list_of_the_field_is_beaten_on_the_same_rows() -> None:
    rows = _rows(TRUTH)

    def recalls(says: dict[str, bool]) -> tuple[float, float]:
        kinds = [(row["uses_tensor_core"] == "yes", says[row["kernel_name"]]) for row in rows]
        hits = Counter(kinds)
        yes = hits[True, True] + hits[True, False]
        return hits[True, True] / yes, hits[False, False] / (len(rows) - yes)

    ours = {
        row["kernel_name"]: classify(row["kernel_name"], _capability(row["gpu"])).placement == "tensor_core"
        for row in rows
    }
    rival = {row["kernel_name"]: by_fragments(row["kernel_name"]) for row in rows}
    our_yes, our_no = recalls(ours)  # `unknown` counts as a miss
    rival_yes, rival_no = recalls(rival)
    assert (round(our_yes, 3), round(our_no, 3)) == (0.909, 1.0)
    assert (round(rival_yes, 3), round(rival_no, 3)) == (0.364, 0.986)


def test_few_names_of_real_traces_stay_unknown() -> None:
    rows = _rows(SEEN)
    unknown = {
        row["kernel_name"]
        for row in rows
        if classify(row["kernel_name"], _capability(row["gpu"])).placement == "unknown"
    }
    # Triton and nameless XLA kernels (their HLO decides, not their name), users' own, and an odd cuBLAS name.
    expected = (
        "triton_",
        "fusion",
        "Kernel",
        "_copy_page_indices_kernel",
        "gemm_nn_128x128",
        "volta_h16gemm_",
    )
    assert [name for name in unknown if not any(part in name for part in expected)] == []


# What no evidence, and what too much, does -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "",
        "foo_kernel",
        "kernel0",
        "main_kernel",
        "Kernel2<Params>",
        "void gemm_lowprec_t<0, 2>(float*)",
        "matmul_v2",
        "MatMul_GPU_DT_HALF_DT_HALF_kernel",  # no kernel of TensorFlow: its generator makes elementwise ones
    ],
)
def test_without_evidence_there_is_no_verdict(name: str) -> None:
    verdict = classify(name)
    assert verdict.placement == "unknown"
    assert verdict.strength == "none"


@pytest.mark.parametrize(
    "name",
    [
        "sgemm_tf32_mma_kernel",
        "sgemm_ptx_64x64x16_nn_kernel",
        "hgemm_tc_128x128x32_kernel",
        "hgemm_t_8x8_sliced_k_f16x8_pack_kernel",
        "gemm_no_tensor_core_kernel",
    ],
)
def test_a_blas_letter_alone_decides_no_kernel_of_somebodys_own(name: str) -> None:
    assert classify(name, (8, 0), "nvidia").placement != "cuda_core"
    assert classify("gemm_no_tensor_core_kernel").placement == "unknown"


def test_words_decide_only_where_every_word_is_a_known_task() -> None:
    assert classify("fused_bias_gelu_kernel").family == "elementwise"
    assert classify("fused_bias_gelu_kernel").strength == "family"
    assert classify("fused_bias_gelu_mlp_kernel").placement == "unknown"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("void acme::ScatterWizardKernel<float>(float*)", "gather_scatter"),
        ("batched_transpose", "layout"),
        ("_copy_tensor_kernel", "layout"),
        ("void per_token_cast_to_fp8_frob<128, 8>(float*)", "cast"),
        ("swiglu_forward_and_per_token_cast_to_fp8_kernel", "elementwise"),
        ("_combined_routing_compute", "gather_scatter"),
        ("act_and_mul_kernel", "elementwise"),
        ("_ZN4acme17frob_softmax_rowsIfEEvPT_", "softmax"),
    ],
)
def test_a_word_that_states_its_task_is_evidence(name: str, family: str) -> None:
    verdict = classify(name, (9, 0), "nvidia")
    assert (verdict.placement, verdict.family, verdict.strength) == ("not_matmul", family, "family")


@pytest.mark.parametrize(
    "name",
    [
        "transpose_gemm_frob", "attn_softmax_frob", "frob_swiglu_mlp", "fused_moe_cast_frob", "conv_transpose_frob",
        "dequantize_and_dot_frob", "void gemm::detail::cast_frob<float>(float*)", "_chunk_scan_copy_fwd_frob",
        "fused_qkv_transpose_frob", "w4a16_dequantize_frob", "rmsnorm_linear_frob", "forecasting_kernel",
        "split_frob_kernel", "frob_bias_relu", "frob_max_kernel",
    ],
)  # fmt: skip
def test_beside_a_word_of_matrix_work_it_is_none(name: str) -> None:
    assert classify(name, (9, 0), "nvidia").placement == "unknown"


def test_a_kernel_in_triton_multiplies_on_the_matrix_units_of_its_card() -> None:
    for name in ("attn_fwd", "attn_fwd.kd", "_attn_bwd_dq", "kernel_unified_attention_2d"):
        for vendor, placement in (("amd", "matrix_core"), ("nvidia", "tensor_core")):
            verdict = classify(name, None, vendor)
            assert (verdict.placement, verdict.family) == (placement, "attention")
    assert classify("void attn_fwd<float>(float*)", (9, 0), "nvidia").placement == "unknown"
    assert classify("_attn_fwd", (6, 1), "nvidia").placement == "cuda_core"


@pytest.mark.parametrize(
    ("types", "precision"),
    [
        ("bf16xbf16xmxfp4", "bf16"), ("bf16xbf16xbf16", "bf16"), ("fp16xfp16xfp16", "fp16"), ("bf16xfp8xfp8", "fp8"),
        ("bf16xfp8xmxfp4", "mixed"), ("fp32xbf16xmxfp8", "bf16"),
    ],
)  # fmt: skip
def test_weights_of_fewer_bits_are_multiplied_in_the_type_of_the_activations(
    types: str, precision: str
) -> None:
    verdict = classify(f"_matmul_ogs_NNT_{types}_16x128x256x1_swiglu", None, "amd")
    assert (verdict.placement, verdict.precision, verdict.family) == ("matrix_core", precision, "gemm")


def test_the_generation_tells_what_1688_multiplies() -> None:
    name = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(T1::Params)"
    assert classify(name, (8, 0)).precision == "tf32"
    assert classify(name.replace("_80_", "_75_"), (7, 5)).precision == "fp16"


def test_a_card_without_tensor_cores_contradicts_the_name() -> None:
    verdict = classify("volta_h884gemm_128x64_ldg8_nn", (6, 1), "nvidia")
    assert verdict.placement == "cuda_core"
    assert verdict.reason.text.startswith("contradiction")


def test_a_type_that_the_card_does_not_multiply_is_said() -> None:
    name = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x4_nn"
    assert "capability 7.0 do not multiply bf16" in classify(name, (7, 0), "nvidia").reason.text
    assert "contradiction" not in classify(name, (8, 0), "nvidia").reason.text


@pytest.mark.parametrize(
    "name",
    ["gemm_without_tensor_cores", "no_mma_gemm", "tensor_core_fallback_simt", "layout_transform_for_mma"],
)
def test_a_word_that_denies_the_instruction_leaves_it_open(name: str) -> None:
    assert classify(name).placement == "unknown"
    assert classify("gemm_mma_no_bias_for_rows").placement == "tensor_core"


def test_a_foreign_card_contradicts_the_name() -> None:
    verdict = classify("volta_h884gemm_128x64_ldg8_nn", None, "amd")
    assert (verdict.placement, verdict.reason.code) == ("unknown", "contradiction")


# Structure, not namespaces --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "void tensorflow::functor::FrobnicateKernel<float>(float*)",
        "void tensorflow::(anonymous namespace)::BlorpKernel<Eigen::half>(int)",
        "void tensorflow::SegmentFrobKernel<float>(float const*)",
        "void cub::CUB_200400___CUDA_ARCH_LIST___NS::DeviceFrobnicateKernel<int>(int*)",
        "void cub::CUB_200400___CUDA_ARCH_LIST___NS::Frob<int>(int*)",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__frob::FrobAgent<int>>(int)",
        "void thrust::frobnicate<int>(int)",
        "void at::native::frobnicate_kernel<float>(float*)",
        "void fbgemm_gpu::frobnicate_kernel<float>(float*)",
        "void deep_ep::frob<8>(int*)",
        "void Eigen::internal::FrobKernel<float>(float*)",
        "void cudnn::ops::frobKernel<float>(float*)",
        "void vllm::quux<c10::Half>(c10::Half*)",
        "void tensorrt_llm::kernels::frob<half>(half*)",
        "void ck_tile::kentry<256, 2, ck_tile::FrobKernel<int>>(int)",
        "void ck::kernel_frob<ck::half_t>()",
        "aiter::frob_bf16_kernel",
        "void rocprim::detail::frob_kernel<int>()",
        "void cutlass::Kernel<acme::Frob>(int)",
        "void cutlass::device_kernel<acme::GemmKernel<cutlass::half_t>>(int)",
        "cudnn_generated_fort_native_frob_sm80_f16_x",
        "void acme::ScatterGemmWizardKernel<float>(float*)",
        "void acme::AddWizardKernel<float>(float*)",
        "void acme::MatrixWizardKernel<__half>(half*)",
        "void xyz::fp8_thing<float>(float*)",
        "void acme::matrix_whirl_m16n8k16_permuter<int>(int*)",
        "xyz_tensor_core_inspector_128x64",
        "void acme::hmma_counter_probe(unsigned int*)",
        "frobgemm_kernel",
        "DotProductKernel",
        "HTTPServer",
    ],
)
def test_an_invented_function_stays_unknown_in_any_namespace(name: str) -> None:
    assert classify(name, (9, 0), "nvidia").placement == "unknown"


@pytest.mark.parametrize("name", ["wmma_kernel", "simple_wmma_gemm", "mma_m16n8k16_f16_kernel", "void acme::tensor_core_kernel<float>(int)", "tcgen05_attn_fwd"])  # fmt: skip
def test_a_kernel_called_after_the_instruction_or_its_product_runs_it(name: str) -> None:
    assert classify(name, (10, 0), "nvidia").placement == "tensor_core"


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("void cub::CUB_200400___CUDA_ARCH_LIST___NS::DeviceReduceKernel<cub::X, float const*>(float const*)", "reduce"),
        ("void at_cuda_detail::cub::DeviceRadixSortOnesweepKernel<at_cuda_detail::cub::X, true>(int*)", "gather_scatter"),
        ("void cub::CUB_200800_SM_800::detail::reduce::DeviceReduceSingleTileKernel<int>(int)", "reduce"),
        ("void somebody::else_::DeviceScanKernel<int>(int)", "reduce"),
        ("void tensorflow::SegmentReduceVectorKernel<float, int>(float const*)", "reduce"),
        ("void other_project::SegmentReduceVectorKernel<float, int>(float const*)", "reduce"),
        ("void tensorflow::SegmentReduceEpilogueKernel<float, float, int, int>(int, int, float)", "reduce"),
        ("void tensorflow::SortedSegmentReductionCustomKernel<float, int, 8>(int)", "reduce"),
        ("void tensorflow::UnsortedSegmentCustomKernel<float, int>(int)", "gather_scatter"),
        ("tensorflow::SegmentOffsetsKernel(int, int, int const*, int*)", "elementwise"),
        ("void tensorflow::SegmentWeightsKernel<float, int, int>(int, int const*, float*)", "elementwise"),
        ("void tensorflow::SegmentMeanNormalizeKernel<int, float, float>(int, int const*)", "elementwise"),
        ("void tensorflow::functor::RowReduceKernel<cub::TransformInputIterator<float, tensorflow::(anonymous namespace)::SubtractAndExpFunctor<Eigen::half, float>, int>, float*, cub::Sum>(float*)", "softmax"),
        ("void cub::DeviceSegmentedReduceKernel<cub::X, cub::TransformInputIterator<float, tensorflow::(anonymous namespace)::SubtractAndExpFunctor<float, float>, int>>(float*)", "softmax"),
        ("void Eigen::internal::EigenMetaKernel<Eigen::TensorReductionOp<tensorflow::generator::SparseXentLossGenerator<Eigen::half, long>>>(int)", "softmax"),
        ("void softmax_fw_kernel_resident<2, float, float>(cudnnTensorStruct, float const*)", "softmax"),
        ("tensorflow::functor::ReluGradHalfKernelVector(Eigen::half const*, Eigen::half const*, Eigen::half*, int)", "elementwise"),
        ("void ShuffleInTensor3Simple<float, 2, 1, 0, false>(int, float const*)", "layout"),
        ("void at::native::matrix_to_m16n8k16_Bint4_layout<4>(int)", "layout"),
        ("void acme::FusedLayerNormKernel<float>(float*)", "norm"),
        ("void acme::TopKKernel<float>(float*)", "gather_scatter"),
        ("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<float, 2>>, Eigen::TensorContractionOp<int>>>>(int)", "gemm"),
    ],
)  # fmt: skip
def test_a_function_multiplies_nothing_whatever_encloses_it(name: str, family: str) -> None:
    verdict = classify(name, (8, 0), "nvidia")
    assert (verdict.placement, verdict.family) == ("not_matmul", family)


def test_a_sparse_product_by_index_is_ordinary_arithmetic() -> None:
    name = "void tensorflow::SparseTensorDenseMatMulKernel<float, float, long, false, false>(int, float*)"
    verdict = classify(name, (8, 0), "nvidia")
    assert (verdict.placement, verdict.precision, verdict.family) == ("cuda_core", "fp32", "gemm")


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<float, 1>>, Eigen::TensorCwiseUnaryOp<Eigen::internal::scalar_round_half_to_even_op<float>, int>>>>(int)", "fp32"),
        ("void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, unsigned char, (vllm::Fp8KVCacheDataType)1>(int)", "bf16"),
        ("void vllm::paged_attention_v1_kernel<uint16_t, uint8_t, 128, 16, 128, (vllm::Fp8KVCacheDataType)1, false>(float*)", "fp16"),
        ("void flashinfer::BatchPrefillWithPagedKVCacheKernel<flashinfer::X, __half, __nv_fp8_e4m3>()", "fp16"),
        ("fused_bias_gelu_fp16", "fp16"),
        ("void cutlass::Kernel2<cutlass::gemm::kernel::DefaultGemmUniversal<float, cutlass::layout::RowMajor, (cutlass::ComplexTransform)0, 1, cutlass::bfloat16_t, cutlass::layout::RowMajor, (cutlass::ComplexTransform)0, 1, float, cutlass::layout::RowMajor, float, cutlass::arch::OpClassSimt>>(int)", "mixed"),
        ("void cutlass::Kernel2<cutlass::gemm::kernel::DefaultGemmUniversal<cutlass::bfloat16_t, cutlass::layout::RowMajor, (cutlass::ComplexTransform)0, 1, cutlass::bfloat16_t, cutlass::layout::RowMajor, (cutlass::ComplexTransform)0, 1, float, cutlass::layout::RowMajor, float, cutlass::arch::OpClassSimt>>(int)", "bf16"),
        ("void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<float2, 32, 32, 4, false>(float2 const*, float2*)", "unknown"),
        ("void tensorflow::functor::ShuffleInTensor3Simple<double2, 2, 1, 0, false>(int, double2 const*, double2*)", "unknown"),
        ("void tensorflow::functor::ShuffleInTensor3Simple<float, 2, 1, 0, false>(int, float const*, float*)", "fp32"),
        ("void half::scale_kernel<float>(float*)", "fp32"),
    ],
)  # fmt: skip
def test_type_words_count_where_types_stand(name: str, precision: str) -> None:
    assert classify(name, (9, 0), "nvidia").precision == precision


@pytest.mark.parametrize(
    ("name", "placement"),
    [
        ("void cutlass::device_kernel<tensorrt_llm::kernels::fp8_blockscale_gemm::GemmKernel<128>>(int)", "tensor_core"),
        ("void cutlass::device_kernel<acme::fp8::rowwise::GemmKernel>(int)", "tensor_core"),
        ("void cutlass::device_kernel<X::GemmKernel<cutlass::float_e4m3_t, cutlass::float_e4m3_t, cutlass::bfloat16_t>>(int)", "tensor_core"),
        ("void cutlass::device_kernel<sglang::DeviceGemmFp8RowwiseSm90<int>::GemmKernel>()", "tensor_core"),
        ("void acme::fp8_gemm_kernel<4096u>(__nv_bfloat16*)", "tensor_core"),
        ("void tensorrt_llm::kernels::cuda_core_gemm::cudaCoreGemm<__nv_fp8_e4m3, __nv_bfloat16, 2, 4, 128>(int)", "cuda_core"),
        ("cudaCoreGemm<__nv_fp8_e4m3, __nv_bfloat16, 2, 4, 128>", "cuda_core"),
        ("void cutlass::device_kernel<vllm::Fp8KVCacheDataType::GemmKernel>(int)", "unknown"),
        ("void cutlass::device_kernel<X::GemmKernel<cutlass::half_t, cutlass::float_e4m3_t>>(int)", "unknown"),
        ("void acme::fp8_gemv_kernel<__nv_fp8_e4m3>(int)", "unknown"),
        ("void acme::quantize_fp8_gemm_kernel<float>(float*)", "unknown"),
        ("void acme::my_gemm<__nv_fp8_e4m3>(int)", "unknown"),
    ],
)  # fmt: skip
def test_fp8_operands_of_a_main_loop_run_on_tensor_cores(name: str, placement: str) -> None:
    verdict = classify(name, (9, 0), "nvidia")
    assert verdict.placement == placement
    assert verdict.precision == ("unknown" if placement == "unknown" else "fp8")


@pytest.mark.parametrize(
    "name",
    [
        "void deep_ep::internode_ll::combine<true, 7168, 8, 9>(void*)",
        "void deep_ep::intranode::notify_dispatch<8>(int*)",
        "void deep_ep::internode::cached_notify<true, 4>(int*)",
        "void primus_turbo::deep_ep::intranode::cached_notify_combine<8>(void**, int*, int)",
        "void uccl::intranode::dispatch<8>(int)",
        "void hybrid_ep::dispatch_kernel<4>(int)",
        "EpDispatchIntraNodeKernel_bf16_p2p",
        "void mori::moe::EpCombineInterNodeV1Kernel<hip_bfloat16>(int)",
        "void tensorrt_llm::kernels::moe_alltoall::moeA2ADispatchKernel<tensorrt_llm::X, 8>(int)",
    ],
)
def test_sending_tokens_to_experts_is_communication(name: str) -> None:
    assert classify(name, (9, 0), "nvidia").family == "comm"


def test_f16_in_cudnns_generated_names_is_no_type() -> None:
    half = "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x128_4x1x1_kernel0_0"
    verdict = classify(half, (9, 0), "nvidia")
    assert (verdict.placement, verdict.precision) == ("tensor_core", "unknown")
    assert "16 bits" in verdict.reason.text
    assert classify(half.replace("_f16_", "_bf16_"), (9, 0), "nvidia").precision == "bf16"


@pytest.mark.parametrize(
    "name",
    [
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, fal",
        "void cudnn::cnn::conv2d_grouped_direct_kernel<float, float, float, fl...",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x64_8x5_nn_align1>(cutlass_80_simt_sg…",
        "_ZN2at6native13conv_depthwise2d_forward_kernelILi3EfiEEvNS_27Generi",
        "Cijk_Ailk_Bljk_HHS_BH_Bias_HA",
        "Cijk_Ailk_Bljk_SB_MT128x64x8_M",
        "RNN_blockPersist_fp_L",
    ],
)
def test_a_cut_name_decides_for_no_fallback(name: str) -> None:
    verdict = classify(name, None, "unknown")
    assert verdict.placement == "unknown"
    assert verdict.strength == "none"


@pytest.mark.parametrize(
    "name",
    [
        "void gemv2T_kernel_val<int, int, float, 128, (bool)0, (2 > 1)>(int)",
        "volta_sgemm_128x64_nn",
        "void f<X::operator()(int) const::{lambda(float)#1}, (a->b)>(int)",
        "bool operator< <int>(int)",
        "_ZN2at6native3fooILi3EfiEEvPT_",
        "_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_256x256E.kd",
        "",
    ],
)
def test_a_whole_name_is_not_called_cut(name: str) -> None:
    assert not is_cut(name)


def test_a_name_longer_than_is_read_is_cut() -> None:
    assert is_cut("k<" + "a," * LONGEST + "b>")


@pytest.mark.parametrize(
    ("name", "kind", "family"),
    [
        ("void fft2d_r2c_32x32<float, false, 1u, false>(float2*, float const*)", "FFT", "conv_fprop"),
        ("void fft1d_r2c_32<float, float, float2, false, false>(float2*, float const*)", "FFT", "conv_fprop"),
        ("void flip_filter<float, float>(float*, float const*, int, int, int, int)", "FFT", "conv_fprop"),
        (
            "void cudnn::winograd_nonfused::winogradForwardFilter4x4<float, float>(int)",
            "Winograd",
            "conv_fprop",
        ),
        ("void cudnn::winograd_nonfused::winogradWgradDelta4x4<float, float>(int)", "Winograd", "conv_wgrad"),
        ("void cudnn::winograd::generateWinogradTilesKernel<0, float, float>(int)", "Winograd", "conv_fprop"),
    ],
)
def test_transforms_are_helpers_of_their_convolution(name: str, kind: str, family: str) -> None:
    verdict = classify(name, (7, 5), "nvidia")
    assert (verdict.placement, verdict.precision, verdict.family) == ("not_matmul", "fp32", family)
    assert kind in verdict.reason.text


def test_the_complex_product_of_an_fft_convolution_is_its_matrix_work() -> None:
    for name in (
        "volta_cgemm_32x32_tn",
        "volta_gcgemm_64x32_nt",
        "fermiPlusCgemmLDS128_batched<true>(float2**)",
    ):
        verdict = classify(name, (7, 5), "nvidia")
        assert (verdict.placement, verdict.precision, verdict.family) == ("cuda_core", "fp32", "conv_fprop")


def test_a_grouped_direct_kernel_is_no_proof_of_groups() -> None:
    name = "void cudnn::cnn::conv2d_grouped_direct_kernel<float, float, float, float, float, true>(int)"
    verdict = classify(name, (7, 5), "nvidia")
    assert (verdict.placement, verdict.family) == ("cuda_core", "conv_fprop")
    assert "plain convolutions" in verdict.reason.text


def test_the_generation_in_a_name_is_the_librarys_not_the_cards() -> None:
    for capability in ((7, 0), (7, 5), (8, 0), (9, 0)):
        verdict = classify("volta_sgemm_128x64_nn", capability, "nvidia")
        assert (verdict.placement, verdict.precision) == ("cuda_core", "fp32")
        assert "contradiction" not in verdict.reason.text


# Spellings -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mangled", "part"),
    [
        ("_Z9my_kernelIfEvPT_", "my_kernel<float"),
        ("_ZN2at6native10foo_kernelI6__halfEEvPT_", "at::native::foo_kernel< __half"),
        ("_ZN7cutlass6KernelINS_6half_tEEEvT_", "cutlass::Kernel<half_t"),
    ],
)
def test_mangled_names_become_readable(mangled: str, part: str) -> None:
    assert part.replace(" ", "") in readable(mangled).replace(" ", "")


def test_spellings_of_one_kernel_agree() -> None:
    spellings = (
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::Half, float, c10::Half>(c10::Half*)",
        "void at::native::<unnamed>::cunn_SoftMaxForward<(int)8, c10::Half, float, c10::Half>(T4 *)",
        "at::native::cunn_SoftMaxForward<8, c10::Half, float, c10::Half>",
        "_ZN2at6native19cunn_SoftMaxForwardILi8EN3c104HalfEfS3_EEvPT0_",
    )
    assert len({classify(name) for name in spellings}) == 1


# Hostile names ---------------------------------------------------------------------------------------------------


@settings(max_examples=300)
@given(st.text(max_size=300))
def test_any_text_gets_a_verdict_of_the_contract(name: str) -> None:
    verdict = classify(name, (8, 0), "nvidia")
    assert verdict.placement in PLACEMENTS
    assert verdict.precision in PRECISIONS
    assert verdict.family in FAMILIES
    assert verdict.reason.code
    assert verdict.reason.text


@settings(max_examples=300)
@given(st.lists(st.sampled_from([rule.example for rule in RULES if rule.example]), max_size=3), st.data())
def test_torn_and_joined_names_get_a_verdict(names: list[str], data: st.DataObject) -> None:
    joined = "".join(names)
    start = data.draw(st.integers(0, len(joined)))
    assert classify(joined[start:]).placement in PLACEMENTS
    assert classify("_Z" + joined[start:]).placement in PLACEMENTS


@pytest.mark.parametrize(
    "part",
    ["flash_fwd", "fp8_gemm_", "rocblas_", "eigen", "layernorm", "dot_a", "sm80_xmma_gemm_f16_", "_ZN1aILi3E", "E",
     "cijk_ailk_b", "fmha_cutlassf_f32_aligned_", "attentionkernel<", "(", "<", "wgrad", "nchw_to_", "N", "99999999"],
)  # fmt: skip
@pytest.mark.parametrize("prefix", ["", "_Z", "void "])
def test_long_repetitive_names_end(prefix: str, part: str) -> None:
    # A pattern with exponential or cubic backtracking would not return within the test run's limit.
    assert classify(prefix + part * (100_000 // len(part)) + "!").placement in PLACEMENTS


@pytest.mark.parametrize(
    ("name", "generic"),
    [
        *((name, True) for name in ("gemm_fusion_dot", "gemm_fusion_dot_general_1", "loop_fusion", "fusion_12", "dot.3",
            "input_reduce_fusion_3", "wrapped_convert", "triton_poi_fused_add_0", "triton_softmax_2", "reduce_window_7")),
        *((name, False) for name in ("ampere_sgemm_128x64_nn", "my_kernel", "void splitKreduce_kernel<float>()", "flip_filter",
            "nvjet_sm90_tst_8x64_64x16_4x1_v_bz_TNN", "conv2d_c1_k1_nhwc", "my_fusion_kernel", "", "kernel_1")),
    ],
)  # fmt: skip
def test_names_of_compilers_are_told_from_those_of_libraries(name: str, generic: bool) -> None:
    assert is_generic(name) is generic
