"""Rules for AMD's and Google's matrix units, for communication and for copies."""

from __future__ import annotations

import re

from mpprof.analysis.kernel_names_parse import Card, Name, operands
from mpprof.analysis.kernel_names_rule import Rule, Said, always, convolution, helper, ordinary, plain
from mpprof.model.kernels import Family, Precision

_TENSILE: dict[str, Precision] = {
    "h": "fp16", "b": "bf16", "s": "fp32", "d": "fp64", "f8": "fp8", "b8": "fp8", "f8b8": "fp8", "b8f8": "fp8",
    "i": "int8", "i8": "int8", "c": "fp32", "z": "fp64", "x": "tf32", "f4": "fp4", "4xi8": "int8",
}  # fmt: skip
_TENSILE_TYPES = re.compile(r"f8b8|b8f8|f8n|b8n|f8|b8|4xi8|i8|f4|f6|[hbsdczi]")


def _tensile(name: Name, match: re.Match[str], card: Card) -> Said:
    """`Cijk_<A>_<B>_<types>_…_MT<tile>_[MI<m>x<n>x<k>…]…`: with MI the product runs on MFMA (or WMMA).

    The types stand as operand, result, accumulator (`HHS`, `BBS`), or one letter for all (`S`, `D`).
    """
    letters = match["types"]
    first = _TENSILE_TYPES.match(letters)
    precision: Precision = _TENSILE.get(first.group(), "unknown") if first else "unknown"
    if "_mx_" in name.text and precision == "fp32" and "_mi" in name.text and "xf32" in name.text:
        precision = "tf32"
    accumulate: Precision | None = (
        "fp32" if letters.endswith(("s", "sb")) else ("fp64" if letters == "d" else None)
    )
    if instruction := _MATRIX_INSTRUCTION.search(name.text):
        return Said(
            "matrix_core", precision, "gemm", accumulate, "tensile-mfma",
            f"Tensile states the matrix instruction {instruction.group().strip('_').upper()}",
        )  # fmt: skip
    return Said(
        "cuda_core", precision, "gemm", accumulate, "tensile-fma", "Tensile without a matrix instruction"
    )


_MATRIX_INSTRUCTION = re.compile(r"_mi\d+x\d+x\d+(?:x\d+)?")


def _ck(name: Name, match: re.Match[str], card: Card) -> Said:
    text = name.text
    family: Family = "gemm"
    if "fmha" in text or "attention" in text:
        family = "attention"
    elif "conv" in text:
        family = convolution(text)
    if "xdl" in text or "mfma" in text or "wmma" in text or "fmha" in text:
        return Said("matrix_core", operands(name.types()), family)
    if re.search(r"_dl\b|_dl_|dlops|_dl<", text):
        return Said("cuda_core", operands(name.types()), family)
    return Said("unknown", operands(name.types()), family)


def _igemm(name: Name, match: re.Match[str], card: Card) -> Said:
    types = _IGEMM_TYPE.search(name.head)
    precision: Precision = operands([_IGEMM[types.group()]]) if types else "unknown"
    return Said("matrix_core", precision, convolution(name.head))


_IGEMM_TYPE = re.compile(r"fp32|fp16|bf16|int8")
_IGEMM: dict[str, Precision] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8"}


def _miopen_direct(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said("cuda_core", operands(name.types()), convolution(name.head))


def _mxu(name: Name, match: re.Match[str], card: Card) -> Said | None:
    if card.vendor != "google":
        return None
    return Said("matrix_core", operands(name.types()), "gemm" if "dot" in match.group() else "conv_fprop")


_COPY = always("not_matmul", "unknown", "copy")
_MEMSET = always("not_matmul", "unknown", "memset")

MATRIX_RULES: tuple[Rule, ...] = (
    Rule(
        "tensile", r"\bcijk_a\w+?_b[a-z]+_(?P<types>(?:f8|b8|i8|4x|f4|n|[hbsdczi])+?)_", _tensile, "",
        "ROCm/Tensile kernel naming (Contraction names)", "gfx900 and later",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_K1", whole=False,
    ),
    Rule(
        "ck-helper", r"fmhabwd(?:convertqgrad|ograddoto)\w*|\bck\w*::\w*(?:reduce|elementwise|permute|im2col|combine)\w*",
        helper("attention"), "converts or reduces around a composable-kernel product: no product of its own",
        "ROCm/composable_kernel include/ck_tile/ops", "gfx9",
        "void ck_tile::kentry<ck_tile::gfx950_t, 2, ck_tile::FmhaBwdOGradDotOKernel<ck_tile::BlockFmhaBwdOGradDotO<std::bfloat16_t>>>()",
    ),
    Rule(
        "composable-kernel", r"\bck(?:_tile)?::|\bkernel_(?:gemm|batched_gemm|grouped_\w+|conv\w*)_\w*(?:xdl|dl|wmma)\w*", _ck,
        "composable kernel: xdl, mfma and its fmha are matrix instructions", "ROCm/composable_kernel", "gfx9",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::half_t>>()",
    ),
    Rule(
        "miopen-igemm", r"igemm_(?:fwd|bwd|wrw)_gtc\w*", _igemm,
        "MIOpen's assembly implicit GEMM for matrix instructions (gtc: generic tensor contraction)",
        "ROCm/MIOpen src/kernels/gpu_reference and ROCm/iGEMMgen", "gfx908 and later",
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32_wt32x32x8_ws2x2_wr2x2_ta1x8x4x1_1x4x1x64_tb1x8x4x1_1x4x1x64_gkgs.kd", whole=False,
    ),
    Rule(
        "miopen-direct", r"miopensp3asmconv\w*|miopengcnasmconv\w*|miopenconv\w*|miopenasmconv\w*", _miopen_direct,
        "MIOpen's assembly convolutions on the vector units (Winograd, direct)", "ROCm/MIOpen src/kernels", "gfx8, gfx9",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1.kd", whole=False,
    ),
    Rule(
        "rocblas-gemv", r"rocblas_\w{0,60}(?:gemv|ger|gemm_batched_general|gemmt)\w*", ordinary("gemm"),
        "a matrix-vector product of rocBLAS: vector units", "ROCm/rocBLAS library/src/blas2", "all",
        "void rocblas_gemvt_kernel<false, 256, int, float, float, float>(int, int, float)", whole=False,
    ),
    Rule(
        "rocblas-helper", r"rocblas_\w{0,60}(?:dot|scal|axpy|copy|asum|nrm2|reduction|set_|transpose)\w*", helper("gemm"),
        "a vector helper of rocBLAS", "ROCm/rocBLAS library/src/blas1", "all",
        "void rocblas_dot_kernel_inc1<int, 1024, 32, false, float, float const*, float>(int, float const*)", whole=False,
    ),
    Rule(
        "miopen-norm", r"miopenbatchnorm\w*|miopenlayernorm\w*", plain("norm"),
        "normalisation of MIOpen", "ROCm/MIOpen src/kernels", "all", "MIOpenBatchNormFwdTrainSpatial.kd", whole=False,
    ),
    Rule(
        "mxu", r"^%?(?:convolution|dot)(?:[._][\w.]*)?$", _mxu, "on a TPU convolutions and dots run on the matrix unit (MXU)",
        "openxla/xla, Google Cloud TPU system architecture", "TPU v2 and later", "", whole=False,
    ),
)  # fmt: skip

MOVE_RULES: tuple[Rule, ...] = (
    Rule(
        "nccl", r"\b[nr]ccl(?:dev)?kernel\w*|\b[nr]ccl\w*(?:allreduce|allgather|reducescatter|broadcast|sendrecv|alltoall|reduce)\w*|\bmscclkernel\w*|oneccl\w*",
        always("not_matmul", "unknown", "comm"), "a collective of NCCL or RCCL", "NVIDIA/nccl src/device", "all",
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        whole=False,
    ),
    Rule(
        "collective", r"multimem_\w*|\b(?:one|two)_?shot_all_?reduce\w*|cross_device_reduce\w*|nvshmem\w*|\buserbuffers_\w*|\bdeep_ep::\w*|(?:lamport|trtllm)_?\w*all_?reduce\w*|\ball_?reduce_\w*|all_?gather\w*kernel|reduce_?scatter\w*kernel|all_?to_?all\w*|allreduce\w*kernel\w*",
        always("not_matmul", "unknown", "comm"), "communication between devices", "pytorch/pytorch symm_mem; deepseek-ai/DeepEP; vllm-project/vllm",
        "all", "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        whole=False,
    ),
    Rule(
        "memcpy", r"^\[?(?:cuda |hip )?memcpy|^memcpy\w*|^copy(?:devicetodevice|hosttodevice|devicetohost)|__amd_rocclr_copy\w*|^memcpy32_post|^hipmemcpy\w*|^infeed|^outfeed|^d2d|^h2d|^d2h",
        _COPY, "a copy", "CUPTI and ROCm activity names", "all", "Memcpy HtoD (Pinned -> Device)", whole=False,
    ),
    Rule(
        "memset", r"^\[?(?:cuda |hip )?memset|__amd_rocclr_fill\w*|^memset\w*|^fillbuffer\w*", _MEMSET, "a memset",
        "CUPTI and ROCm activity names", "all", "Memset (Device)", whole=False,
    ),
)  # fmt: skip
