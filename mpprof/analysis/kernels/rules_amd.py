"""Rules for AMD's libraries: Tensile (rocBLAS, hipBLASLt), composable kernel, aiter, MIOpen, rocPRIM.

Matrix cores multiply by MFMA (CDNA) or WMMA (RDNA 3 and later). Tensile states the instruction; composable
kernel states xdl, wmma or dl; ck_tile and aiter's assembly exist as matrix instructions only.
"""

from __future__ import annotations

import re

from mpprof.analysis.kernels.name_parts import Card, Name, operands, types_in
from mpprof.analysis.kernels.rule import Rule, Said, convolution, direction, floats, helper, ordinary, plain
from mpprof.model.kernels import Family, Precision

_CK = "ROCm/composable_kernel"
_AITER = "ROCm/aiter hsa/*/*.csv"

_TENSILE: dict[str, Precision] = {
    "h": "fp16", "b": "bf16", "s": "fp32", "d": "fp64", "f8": "fp8", "b8": "fp8", "f8b8": "fp8", "b8f8": "fp8",
    "f8n": "fp8", "b8n": "fp8", "i": "int8", "i8": "int8", "c": "fp32", "z": "fp64", "f4": "fp4", "4xi8": "int8",
}  # fmt: skip
_TENSILE_TYPES = r"f8b8|b8f8|f8n|b8n|f8|b8|4xi8|i8|f4|f6|[hbsdczi]"


def _tensile(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `Cijk_<A>_<B>_<types>_…_MT<tile>_[MI<m>x<n>x<k>…_]…` says: with MI the product runs on MFMA
    or WMMA.

    The types stand as operand, result, accumulator (`HHS`, `BBS`), or one letter for all (`S`, `D`); where A
    and B are stored in other types than they are multiplied in, those stand before (`F8H_HHS`). `MX` is XF32
    (Tensile's ProblemType). The tile is followed by the matrix instruction: a name that ends before tells
    nothing of it, and custom kernels may state neither (`…_shortname0_gfx942`).
    """
    text, letters = name.text, match["computed"] or match["types"]
    first = re.match(_TENSILE_TYPES, letters)
    precision: Precision = _TENSILE.get(first.group(), "unknown") if first else "unknown"
    if precision == "fp32" and "_mx_" in text[match.start() : match.end() + 20]:
        precision = "tf32"
    accumulate: Precision | None = (
        "fp32" if letters.endswith(("s", "sb")) else ("fp64" if letters == "d" else None)
    )
    if instruction := re.search(_MATRIX_INSTRUCTION, text):
        return Said(
            "matrix_core", precision, "gemm", accumulate, "tensile-mfma",
            f"Tensile states the matrix instruction {instruction.group().strip('_').upper()}",
        )  # fmt: skip
    if re.search(_AFTER_TILE, text):
        reason = "Tensile without a matrix instruction"
        return Said("cuda_core", precision, "gemm", accumulate, "tensile-fma", reason)
    reason = "the name ends before the place where Tensile states the matrix instruction"
    return Said("unknown", precision, "gemm", accumulate, "tensile-unstated", reason)


_MATRIX_INSTRUCTION = r"_mi\d+x\d+x\d+(?:x\d+)?"
_AFTER_TILE = r"_mt\d+x\d+x\d+_(?!m(?:i?$|\.\.\.))[a-z]"

_CK_PRODUCT = r"gemm|flatmm|conv(?!ert)|contraction|attention|fmha"
_CK_AROUND = r"combine|appendkv|ograddoto|convertqgrad"
_CK_WORDS: tuple[tuple[str, Family], ...] = (
    ("sorting", "gather_scatter"), ("topk", "gather_scatter"), ("norm", "norm"), ("welford", "norm"), ("smoothquant", "cast"), ("quant", "cast"),
    ("softmax", "softmax"), ("pool", "pool"), ("transpose", "layout"), ("permute", "layout"), ("rearrange", "layout"), ("imagetocolumn", "layout"),
    ("column", "layout"), ("elementwise", "elementwise"), ("reduce", "reduce"), ("buffer_set", "memset"), ("embedding", "gather_scatter"),
)  # fmt: skip


def _ck(name: Name, match: re.Match[str], card: Card) -> Said | None:
    """Return what `ck::kernel_<task>_(xdl|wmma|dl)…<…>`, or `ck_tile::kentry<…, ck_tile::<Task>Kernel<…>>`,
    says.

    ck_tile multiplies by its WarpGemm alone, which is MFMA, SMFMAC or WMMA. In ck's names `xdl` and `wmma`
    are matrix instructions, `dl` and `dpp` are not; its MoE products derive from
    GridwiseGemm_xdl_cshuffle_base. Its `bhalf_t` is an unsigned short (ck/utility/data_type.hpp), and no
    product of it reads integers of 16 bits.
    """
    task = match["tile"] or match["task"] or match["bare"]
    types = name.types()
    if re.search(r"\bunsigned short\b", name.text):
        types = (*types, "bf16")
    if not re.search(_CK_PRODUCT, task):
        around = next((family for word, family in _CK_WORDS if word in task), None)
        return Said("not_matmul", operands(floats(name)), around) if around else None
    family: Family = "gemm"
    if "fmha" in task or "attention" in task or "softmax" in task:
        family = "attention"
    elif "conv" in task or direction(task) is not None:  # kernel_batched_gemm_xdlops_bwd_weight
        family = convolution(task)
    if re.search(_CK_AROUND, task):
        reason = "converts or combines around a composable-kernel product: no product of its own"
        return Said("not_matmul", operands(floats(name)), family, None, "ck-helper", reason)
    if match["tile"] or re.search(r"xdl|wmma|mfma|moe_\w*gemm", task):
        return Said("matrix_core", operands(types), family)
    if re.search(r"_(?:dl|dpp|dlops)(?:_|$)", task):
        return Said("cuda_core", operands(types), family)
    return Said("unknown", operands(types), family)


_AITER_OPERAND = (
    r"(?:pertoken|perblock|blockscale|noquant|per1x32|per1x128)_?(?:mx)?(?P<type>fp8|fp4|fp16|bf16|int8)"
)
_AITER_TYPES: dict[str, Precision] = {
    "bf16": "bf16", "fp16": "fp16", "fp8": "fp8", "f8": "fp8", "a8w8": "fp8", "i8": "int8", "int8": "int8", "f4": "fp4", "fp4": "fp4", "mxfp4": "fp4", "mxfp8": "fp8",
}  # fmt: skip


def _aiter(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the names of aiter's assembly say: `<type>gemm_<result>_…`, `fmoe_<type>_<scaling><operand
    type>_…`, `mla_a<bits>w<bits>_…`, `pa_<query>_<scaling><cache type>_…`,
    `fmha_(fwd|bwd)_hd<size>_<type>_…`.

    Two types that a product reads are `mixed`; where only bits are stated (`a16w16`) the type is open.
    """
    what = match["what"] or match["bare"]
    task = name.head[match.start("what" if match["what"] else "bare") :]
    family: Family = "attention" if what.startswith(("mla", "pa_", "fmha")) else "gemm"
    if "_odo" in task or "dq_convert" in task or "dq_shuffle" in task or "_reduce" in task:
        reason = "prepares or combines around an attention kernel: no product of its own"
        return Said("not_matmul", operands(types_in(task)), family, None, "aiter-helper", reason)
    scaled = re.search(_AITER_OPERAND, task)
    stated = [_AITER_TYPES[word] for word in re.split(r"_|gemm", task)[:4] if word in _AITER_TYPES]
    precision: Precision = "unknown"
    if family == "attention":
        found = {*stated, *([_AITER_TYPES[scaled["type"]]] if scaled else [])}
        precision = found.pop() if len(found) == 1 else ("mixed" if found else "unknown")
    elif what.startswith("fmoe"):
        precision = _AITER_TYPES[scaled["type"]] if scaled else (stated[0] if stated else "unknown")
    elif types := re.findall(r"bf16|fp8|i8|f4|f6|a\d+w\d+", what):
        precision = _AITER_TYPES.get(types[0], "unknown") if len(set(types)) == 1 else "mixed"
    return Said("matrix_core", precision, family)


def _skinny(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name of a product with a few rows says: fp8 runs by MFMA, fp16 by dot2, and bfloat16 by
    one or the other."""
    types = operands(name.types())
    if match["fp8"]:
        return Said("matrix_core", "fp8", "gemm", "fp32")
    if types == "bf16" and "wvsplitk_hf" in name.head:
        reason = "vLLM multiplies bfloat16 here by MFMA, aiter with ordinary arithmetic"
        return Said("unknown", types, "gemm", None, "skinny-gemm-open", reason)
    return Said("cuda_core", types, "gemm")


def _igemm(name: Name, match: re.Match[str], card: Card) -> Said:
    types = re.search(_IGEMM_TYPE, name.head)
    precision: Precision = operands([_IGEMM[types.group()]]) if types else "unknown"
    return Said("matrix_core", precision, convolution(name.head))


_IGEMM_TYPE = r"fp32|fp16|bf16|int8"
_IGEMM: dict[str, Precision] = {"fp32": "fp32", "fp16": "fp16", "bf16": "bf16", "int8": "int8"}


def _miopen_direct(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said("cuda_core", operands(name.types()), convolution(name.head))


def _primitive(name: Name, match: re.Match[str], card: Card) -> Said:
    what = match["what"]
    family: Family = "gather_scatter"
    if what in ("reduce", "scan", "lookback", "histogram"):
        family = "reduce"
    elif what == "transform":
        family = "elementwise"
    return Said("not_matmul", operands(floats(name)), family)


def _by_width(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name says of a kernel that moves values of 2, 4 or 1 bytes: `half` is no type here."""
    return Said("not_matmul", "unknown", "layout")


_SUBTENSOR: dict[str, Family] = {
    "scalar": "elementwise", "subtensor": "layout", "cast": "cast", "transform": "elementwise",
}  # fmt: skip


RULES: tuple[Rule, ...] = (
    Rule(
        "tensile-reduction", r"\bcijk_\w*_postgsu\d*", helper("gemm"), "adds up the partial products of Tensile's GlobalSplitU: no product of its own",
        "ROCm/hipBLASLt tensilelite/Tensile/KernelWriterConversion.py", "gfx9 and later", "Cijk_SS_BiasS_HAS_ScaleAlphaVec_PostGSU16_VW1",
    ),
    Rule(
        "tensile", r"(?:\b|_)cijk_a\w+?_b[a-z]+_(?P<types>(?:f8|b8|i8|i4|4x|f4|f6|n|[hbsdczi])+?)_(?:(?P<computed>(?:h|b|f8|b8|i8)(?:h|b|f8|b8|i8|s|i)[sih])_)?", _tensile, "",
        "ROCm/Tensile kernel naming (Contraction names)", "gfx900 and later",
        "Cijk_Ailk_Bljk_HHS_BH_MT128x128x32_MI32x32x8x1_SN_K1",
    ),
    Rule(
        "composable-kernel", r"^ck_tile::kentry\s*<[^<>]*?(?P<tile>[a-z]\w*(?:kernel|fwd|bwd|quant)\w*)|^ck::(?:\w+::)*kernel_(?P<task>\w+)|^kernel_(?P<bare>\w*(?:gemm|conv|contraction)\w*_(?:xdl|wmma|dl|dpp)\w*)", _ck,
        "composable kernel: xdl, wmma and ck_tile's products are matrix instructions", _CK + " include/ck, include/ck_tile/ops", "gfx9 and later",
        "void ck::kernel_gemm_xdl_cshuffle_v3<ck::GridwiseGemm_xdl_cshuffle_v3<ck::half_t>>()", whole=True,
    ),
    Rule(
        "aiter-asm", r"\baiter::(?P<what>(?:bf16|fp8|i8|f4|f6|f4f4|f4f6|f6f4|a\d+w\d+|mxfp\w{0,12}?)gemm|fmoe_|flatmm_|mla_(?:a\d+w\d+|dec|pfl)|pa_(?!ragged)|fmha_(?:fwd|bwd|[bf]p?\d+_pertoken))\w*|\b(?P<bare>fmoe_(?:fp8|fp16|bf16|int8|mxfp\d)_\w*?g1u[01]_|flatmm_uk_gfx9_)\w*", _aiter,
        "aiter's assembly: its code objects hold MFMA or WMMA instructions", _AITER, "gfx942 and later",
        "aiter::bf16gemm_fp32bf16_tn_32x64_pf3_splitk",
    ),
    Rule(
        "skinny-gemm", r"\bwvsplitk(?P<fp8>q)?_hf\w*|\bwv_splitk_small_fp16_bf16_kernel|\bllgemm(?:1|_silu)_kernel|\bhgemv_wfperrow", _skinny,
        "a product with a few rows: dot2 or fused multiply-add on the vector units, fp8 by MFMA", "ROCm/aiter csrc/kernels/custom_kernels.cu; vllm-project/vllm csrc/rocm/skinny_gemms.cu", "gfx90a and later",
        "void wvSplitKQ_hf_<__hip_bfloat16, c10::Float8_e4m3fnuz, 64, 1, 16, 16, 2, 1>(int, int)",
    ),
    Rule(
        "miopen-igemm", r"igemm_(?:fwd|bwd|wrw)_gtc\w*", _igemm,
        "MIOpen's assembly implicit GEMM for matrix instructions (gtc: generic tensor contraction)",
        "ROCm/MIOpen src/kernels/gpu_reference and ROCm/iGEMMgen", "gfx908 and later",
        "igemm_fwd_gtcx3_nhwc_fp16_bx0_ex1_bt256x256x32_wt32x32x8_ws2x2_wr2x2_ta1x8x4x1_1x4x1x64_tb1x8x4x1_1x4x1x64_gkgs.kd",
    ),
    Rule(
        "miopen-xdlops", r"^gridwise_(?:conv|gemm)\w*_xdlops\w*", lambda name, match, card: Said("matrix_core", operands(name.types()), convolution(name.head)),
        "MIOpen's implicit GEMM of composable kernels: xdlops are matrix instructions", "ROCm/MIOpen src/composable_kernel", "gfx908 and later",
        "gridwise_convolution_implicit_gemm_v4r4_xdlops_nchw_kcyx_nkhw.kd",
    ),
    Rule(
        "miopen-transpose", r"^batched_transpose_\d+x\d+_(?:pack_\w+_)?(?:half|dword|byte)", _by_width, "MIOpen's transposes between NCHW and NHWC, of values of a width",
        "ROCm/MIOpen src/kernels/gpu_batched_transpose_kernel", "all", "batched_transpose_32x32_pack_2x2_ediv_2x2_half.kd",
    ),
    Rule(
        "miopen-tensor", r"^subtensorop(?:with)?(?P<what>scalar|subtensor|cast|transform)\w*", lambda name, match, card: Said("not_matmul", operands(floats(name)), _SUBTENSOR[match["what"]]),
        "MIOpen's kernels on parts of tensors: set, scale, copy, cast", "ROCm/MIOpen src/kernels/MIOpenSubTensorOpWith*.cl", "all", "SubTensorOpWithCastTensor1d.kd",
    ),
    Rule(
        "miopen-transform", r"miopen\w*winograd\w*xform\w*", lambda name, match, card: Said("not_matmul", operands(name.types()), convolution(name.head)),
        "transforms tiles for a Winograd convolution: a helper, not the product", "ROCm/MIOpen src/kernels/Conv_Winograd_*", "gfx9",
        "miopenGcnAsmWinogradXformData_3_3_2_2.kd",
    ),
    Rule(
        "miopen-direct", r"miopensp3asmconv\w*|miopengcnasmconv\w*|miopenconv\w*|miopenasmconv\w*", _miopen_direct,
        "MIOpen's assembly convolutions on the vector units (Winograd, direct)", "ROCm/MIOpen src/kernels", "gfx8, gfx9",
        "miopenSp3AsmConv_v30_3_1_gfx9_fp32_f2x3_stride1.kd",
    ),
    Rule(
        "rocblas-gemv", r"rocblas_\w{0,60}(?:gemv|ger|gemm_batched_general|gemmt)\w*", ordinary("gemm"),
        "a matrix-vector product of rocBLAS: vector units", "ROCm/rocBLAS library/src/blas2", "all",
        "void rocblas_gemvt_kernel<false, 256, int, float, float, float>(int, int, float)",
    ),
    Rule(
        "rocblas-helper", r"rocblas_\w{0,60}(?:dot|scal|axpy|copy|asum|nrm2|reduction|set_|transpose)\w*", helper("gemm"),
        "a vector helper of rocBLAS", "ROCm/rocBLAS library/src/blas1", "all",
        "void rocblas_dot_kernel_inc1<int, 1024, 32, false, float, float const*, float>(int, float const*)",
    ),
    Rule(
        "hipblaslt-softmax", r"^softmax_dt_[a-z0-9]+_mt_\d+", plain("softmax"), "hipBLASLt's softmax", "ROCm/hipBLASLt tensilelite/Tensile/Ops/SoftmaxGenerator.py", "gfx90a and later",
        "Softmax_DT_S_MT_16_16",
    ),
    Rule(
        "miopen-norm", r"miopenbatchnorm\w*|miopenlayernorm\w*", plain("norm"),
        "normalisation of MIOpen", "ROCm/MIOpen src/kernels", "all", "MIOpenBatchNormFwdTrainSpatial.kd",
    ),
    Rule(
        "rocprim-trampoline", r"^rocprim::(?:\w+::)*trampoline_kernel\s*<.{0,200}?wrapped_(?P<what>reduce|scan|lookback|histogram|radix_sort|merge_sort|sort|partition|select|transform)\w*_config", _primitive,
        "a primitive of rocPRIM, named by its configuration", "ROCm/rocPRIM rocprim/include/rocprim/device/detail", "all",
        "void rocprim::ROCPRIM_400200_NS::detail::trampoline_kernel<rocprim::ROCPRIM_400200_NS::detail::wrapped_scan_config<rocprim::ROCPRIM_400200_NS::default_config, long>>(long const*)", whole=True,
    ),
    Rule(
        "rocprim", r"\brocprim::(?:\w+::)*(?:\w*?_)??(?P<what>reduce|scan|lookback|histogram|radix_sort|onesweep|merge_sort|block_sort|sort|partition|select|transform|unique|run_length)\w*kernel", _primitive,
        "a primitive of rocPRIM: sorting, scanning, reducing, selecting", "ROCm/rocPRIM rocprim/include/rocprim/device", "all",
        "void rocprim::ROCPRIM_300200_NS::detail::radix_sort_block_sort_kernel<rocprim::default_config>(long const*)",
    ),
)  # fmt: skip
