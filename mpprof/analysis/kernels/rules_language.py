"""Rules for the kernels of language models: DeepGEMM, Marlin, CuTe DSL, vLLM's attention, quantisation.

Such libraries write for the Tensor Cores directly, so their sources tell what their names leave out.
"""

from __future__ import annotations

import re

from mpprof.analysis.kernels.name_parts import Card, Name, operands, types_in
from mpprof.analysis.kernels.rule import Rule, Said, always, floats, ordinary, plain
from mpprof.model.kernels import Placement, Precision


def _deep_gemm(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name says of a product whose types stand before the task, activations first: `fp8_fp4`
    multiplies two types."""
    found = {word for word in ("fp8", "fp4", "bf16", "tf32") if word in match.group()}
    precision: Precision = found.pop() if len(found) == 1 else "mixed"  # type: ignore[assignment]
    return Said("tensor_core", precision, "gemm", "fp32")


def _marlin(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said(
        "tensor_core", operands(t for t in name.types() if t in ("fp16", "bf16", "int8")), "gemm", "fp32"
    )


def _cute_dsl(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name says of a kernel that states the shape of its MMA atom, with the sizes written
    together; 1 x 1 x 1 is a plain FMA."""
    types = re.findall(r"ptr(f16|bf16|f8e4m3fn|f8e5m2|f32|tf32|i8)", name.text)
    known: dict[str, Precision] = {
        "f16": "fp16", "bf16": "bf16", "f8e4m3fn": "fp8", "f8e5m2": "fp8", "f32": "fp32", "tf32": "tf32", "i8": "int8",
    }  # fmt: skip
    precision = operands(known[kind] for kind in types)
    if match["shape"].startswith("111"):
        return Said("cuda_core", precision, "gemm", None, "", "a CuTe kernel whose atom multiplies 1 x 1 x 1")
    return Said("tensor_core", "tf32" if precision == "fp32" else precision, "gemm")


def _paged_attention(name: Name, match: re.Match[str], card: Card) -> Said:
    types = operands(floats(name))
    if "reduce" in match.group():
        return Said("not_matmul", types, "attention", None, "attention-helper", "adds up partial attention")
    if "mfma" in match.group():
        text = "vLLM's attention for AMD, written in MFMA instructions"
        return Said("matrix_core", types, "attention", None, "", text)
    if "<uint16_t" in name.text:  # vLLM's word for half
        types = "fp16"
    return Said("cuda_core", types, "attention")


def _half_mma(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said("tensor_core", "fp16", "gemm", "fp32")


def _ggml_attention(name: Name, match: re.Match[str], card: Card) -> Said:
    if match["how"]:
        return Said("cuda_core", "fp16" if "f16" in match.group() else "fp32", "attention")
    return Said("tensor_core", "fp16", "attention")


def _triton_product(name: Name, match: re.Match[str], card: Card) -> Said | None:
    """Return what the name of a kernel in Triton says whose source multiplies by `tl.dot`, which is compiled
    to matrix instructions. The names are functions without parameters: a kernel in C++ has some."""
    if name.text != name.head:
        return None
    return Said(_matrix_units(card), operands(name.types()), "gemm" if match["product"] else "attention")


def _matmul_ogs(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `_matmul_ogs_<layouts>_<result>x<activations>x<weights>_<tile>` says. Weights of fewer bits
    than 16-bit activations are unpacked to their type."""
    read, weights = (operands(types_in(match[side])) for side in ("x", "w"))
    precision: Precision = read if read == weights or read in ("fp16", "bf16") else "mixed"
    return Said(_matrix_units(card), precision, "gemm", "fp32")


def _matrix_units(card: Card) -> Placement:
    return "matrix_core" if card.vendor == "amd" else "tensor_core"


RULES: tuple[Rule, ...] = (
    Rule(
        "triton-matmul", r"^_(?:p_)?matmul(?:_ogs)?_[nt]{3}_[a-z0-9]+?x(?P<x>(?:mx)?[a-wyz]+\d+\w*?)x(?P<w>(?:mx)?[a-wyz]+\d+\w*?)_\d+x\d+x\d+", _matmul_ogs,
        "a product of triton_kernels, which states the types of its result, activations and weights", "triton-lang/triton python/triton_kernels/triton_kernels/matmul_ogs_details/_common.py",
        "Hopper and later; gfx942 and later", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu", whole=False,
    ),
    Rule(
        "triton-matmul-helper", r"^_finalize_matmul\w*", plain("gather_scatter"), "adds up and scatters what a product of triton_kernels left",
        "triton-lang/triton python/triton_kernels/triton_kernels/matmul_ogs_details/_finalize_matmul.py", "Hopper and later; gfx942 and later", "_finalize_matmul_scatter_bf16", whole=False,
    ),
    Rule(
        "triton-kernel", r"^_?attn_(?:fwd|bwd(?:_dq|_dkdv|_dk_dv)?)(?:_(?:inner|tma|ws|persistent))*$|^bwd_kernel_(?:dk_dv|dq|fuse)$|^kernel_unified_attention_[23]d$|^(?P<product>fused_moe_kernel(?:_gptq_awq)?|_w8a8_block_(?:fp8|int8)_matmul\w*)$", _triton_product,
        "a kernel in Triton whose products are tl.dot", "triton-lang/triton python/tutorials/06-fused-attention.py; ROCm/flash-attention flash_attn_triton_amd; ROCm/aotriton v2src/flash; vllm-project/vllm vllm/attention/ops/triton_unified_attention.py, model_executor/layers/fused_moe",
        "Ampere and later; gfx90a and later", "kernel_unified_attention_3d", whole=False,
    ),
    Rule(
        "triton-attention-helper", r"^(?:_?attn_)?bwd_preprocess(?:_varlen)?$|^reduce_segments$", plain("attention"), "prepares or adds up parts around an attention kernel in Triton",
        "triton-lang/triton python/tutorials/06-fused-attention.py; vllm-project/vllm vllm/attention/ops/triton_unified_attention.py", "all", "reduce_segments", whole=False,
    ),
    Rule(
        "deep-gemm-helper", r"deep_gemm::(?:\w{1,40}::)?(?:transpose|pack|smxx_|clean_logits|get_\w{0,40}layout)\w*",
        plain("layout"), "prepares operands or scales for DeepGEMM: no product", "deepseek-ai/DeepGEMM deep_gemm/include",
        "Hopper, Blackwell", "void deep_gemm::transpose_fp32<512u, 64u, 28u>(float const*, float*, unsigned int)", whole=False,
    ),
    Rule(
        "deep-gemm", r"(?:sm\d+_|deep_gemm::)(?:m_grouped_|k_grouped_)?(?:fp8_fp4|fp8|bf16|fp4|tf32)_\w{0,40}?(?:gemm|bmm|bhr|einsum|mqa_logits|mega_moe)\w*|^(?:m_grouped_|k_grouped_)?(?:fp8|bf16)_(?:m_grouped_|k_grouped_)?gemm\w{0,80}(?:impl|kernel)",
        _deep_gemm, "DeepGEMM multiplies by wgmma or tcgen05 only", "deepseek-ai/DeepGEMM deep_gemm/include",
        "Hopper, Blackwell", "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u>(__nv_bfloat16*)", whole=False,
    ),
    Rule(
        "marlin", r"^marlin$|\bmarlin\w{0,40}::marlin(?:_24|_qqq|moe)?$", _marlin,
        "Marlin unpacks narrow weights and multiplies them by mma.m16n8k16 (m16n8k8 on Turing)",
        "IST-DASLab/marlin; vllm-project/vllm csrc/quantization/marlin", "Turing and later",
        "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899907892224l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)", whole=False,
    ),
    Rule(
        "cute-dsl", r"^kernel_cutlass_\w{0,400}?mmaatom\w{0,60}?shapemnk(?P<shape>\d+)", _cute_dsl,
        "a kernel of CuTe DSL, which names its MMA atom", "NVIDIA/cutlass python/CuTeDSL", "Ampere to Blackwell",
        "kernel_cutlass_kernel___main__DenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK21111000_PermutationMNK____MMAAtom_ThrID21_ShapeMNK25612816_TVLayoutA",
        whole=False,
    ),
    Rule(
        "cute-dsl-blackwell", r"^kernel_cutlass_\w{0,400}?sm1\d\dblockscaled\w*", always("tensor_core", "unknown", "gemm"),
        "CuTe DSL's block-scaled products exist as tcgen05 instructions only", "NVIDIA/cutlass examples/python/CuTeDSL/blackwell",
        "Blackwell", "kernel_cutlass_kernel_bs_gemm_exampleSm100BlockScaledPersistentDenseGemmKernel_object_at__0", whole=False,
    ),
    Rule(
        "paged-attention", r"paged_attention_(?:v1|v2|ll4mi)\w*", _paged_attention,
        "vLLM's own decode attention takes dot products with ordinary arithmetic",
        "vllm-project/vllm csrc/attention/attention_kernels.cuh, csrc/rocm/attention.cu", "Volta and later",
        "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, 0, false>(float*)", whole=False,
    ),
    Rule(
        "awq", r"gemm_forward_4bit_cuda_m16n\w*", _half_mma, "AWQ unpacks 4-bit weights and multiplies them by mma.m16n8k16",
        "mit-han-lab/llm-awq awq/kernels/csrc", "Ampere and later",
        "gemm_forward_4bit_cuda_m16n128k32(int, __half*, int*, __half*, int*, int, int, int, __half*)", whole=False,
    ),
    Rule(
        "half-fma-gemm", r"gemm_half_q_half\w*|kgemm_4bit_inference_naive\w*", ordinary("gemm"),
        "unpacks narrow weights and multiplies them with half2 arithmetic", "turboderp/exllama; bitsandbytes csrc/kernels.cu",
        "Pascal and later", "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 8>(__half const*)", whole=False,
    ),
    Rule(
        "ggml-attention", r"\bflash_attn_(?P<how>vec_|tile_)?ext_f(?:16|32)", _ggml_attention,
        "llama.cpp's attention: wmma or mma, its vector and tile variants ordinary arithmetic",
        "ggml-org/llama.cpp ggml/src/ggml-cuda/fattn*.cu", "Volta and later", "void flash_attn_ext_f16<128, 128, 8, 8>(char const*)", whole=False,
    ),
    Rule(
        "sage-attention", r"\bqk_int[48]_sv_f(?:8|16)\w*", always("tensor_core", "mixed", "attention"),
        "SageAttention multiplies Q and K as int8 or int4 and P and V as fp16 or fp8, all by mma", "thu-ml/SageAttention csrc/qattn",
        "Ampere and later", "void qk_int8_sv_f8_accum_f32_fuse_v_scale_attn_kernel<128, 64, 32, 64, 128>(signed char*)", whole=False,
    ),
    Rule(
        "quantise-kernel", r"^(?!\S*(?:gemm|matmul|moe|dot))\S*per_(?:token|tensor|channel|block)\w*_quant\w*", plain("cast"),
        "converts to a narrow type with a scale per group", "sgl-project/sglang sgl-kernel; vllm-project/vllm csrc/quantization", "Ampere and later",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>(void const*, void*, float*, int)", whole=False,
    ),
    Rule(
        "fermi-gemm", r"\bfermi(?:plus)?(?P<letter>[cs])gemm\w*", lambda n, m, c: Said("cuda_core", "fp32", "conv_fprop" if m["letter"] == "c" else "gemm", "fp32"),
        "cuBLAS' kernels from Fermi's days, which cuDNN's FFT convolutions still use: ordinary arithmetic",
        "NVIDIA/apex PyProf pyprof/prof/conv.py", "all", "void fermiPlusCgemmLDS128_batched<true, false, false, false, 4, 4, 4, 3, 3, true, false>(float2**)", whole=False,
    ),
    Rule(
        "upsample", r"^(?:nearest_neighbor|bilinear_interp|upsample)\w*", plain("other"), "resizes an image",
        "pytorch/pytorch aten/src/THCUNN", "all", "void nearest_neighbor_4d_kernel<float, float>(int, THCDeviceTensor<float, 4>)", whole=False,
    ),
)  # fmt: skip
