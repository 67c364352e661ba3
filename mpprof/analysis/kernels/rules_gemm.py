"""Rules for matrix products: cuBLAS, CUTLASS, cuDNN's xmma engines, nvjet, TensorRT-LLM, DeepGEMM.

These libraries state the instruction in the name, so the rules parse their grammar: an MMA shape
(`884`, `1688`, `16816`, `tensor16x8x16`, `warpgroupsize`, `s64x128x16`) is a Tensor Core; `ffma`, `simt` or
no shape at all is ordinary arithmetic.
"""

from __future__ import annotations

import re

from mpprof.analysis.kernels.name_parts import Card, Name, operands, types_in
from mpprof.analysis.kernels.rule import Rule, Said, always, convolution, helper, ordinary, plain
from mpprof.model.kernels import Family, Precision

_LETTER: dict[str, Precision] = {
    "s": "fp32", "d": "fp64", "h": "fp16", "i": "int8", "c": "fp32", "z": "fp64", "gc": "fp32", "b": "bf16",
}  # fmt: skip
"""BLAS letters: the type that is accumulated (and multiplied, where no other type is named)."""

_FP16_SHAPES = ("884", "161616", "16816", "32816", "83216")
_CUBLAS = "NVIDIA nsight and nvprof traces; tensorflow/profiler and NVIDIA/PyProf list such names"
_CUTLASS = "NVIDIA/cutlass python/cutlass_library/gemm_operation.py (procedural names)"


def _shape_precision(
    shape: str, letter: str, types: tuple[Precision, ...], card: Card, older: bool
) -> Precision:
    """Return the operand type of an MMA instruction from its shape, the letter before it and the types around
    it.

    If several types share a shape, the types decide; alone, `1688` is fp16 on Turing, which has no TF32, and
    TF32 from Ampere on (PTX ISA, mma.m16n8k8).
    """
    narrow = tuple(t for t in types if t != "fp32")
    if letter in ("d", "z"):
        return "fp64"
    if letter == "i":
        return "int8"
    if narrow:
        return operands(narrow)
    if shape == "1688":
        return "fp16" if letter == "h" or older or not card.at_least(8) else "tf32"
    if shape in _FP16_SHAPES:
        return "fp16"
    return "unknown"


def _family(kind: str, text: str) -> Family:
    return "gemm" if kind == "gemm" else convolution(text)


def _legacy(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `<generation>[_<storage type>]_<letter>[<mma shape>](gemm|cudnn)[_<type>]_<tile>…` says."""
    letter, shape, kind = match["letter"], match["shape"], match["kind"]
    family = _family(kind, name.head)
    head = name.head[: match.end() + 40]
    types = types_in(head.replace("_", " "))
    if shape:
        precision = _shape_precision(shape, letter, types, card, match["arch"] in ("volta", "turing"))
        accumulate: Precision | None = None if letter == "i" else _LETTER.get(letter)
        return Said(
            "tensor_core", precision, family, accumulate, f"{_library(kind)}-mma",
            f"the name states the Tensor Core instruction {letter}{shape}",
        )  # fmt: skip
    precision = operands(types) if types else _LETTER.get(letter, "unknown")
    if letter in ("c", "gc") and kind == "gemm":
        return Said(
            "cuda_core", precision, "conv_fprop", "fp32", "cublas-fma",
            "a product of complex float32 numbers, as between the transforms of an FFT convolution: ordinary arithmetic",
        )  # fmt: skip
    return Said(
        "cuda_core", precision, family, _LETTER.get(letter), f"{_library(kind)}-fma",
        f"{letter}{kind} without a Tensor Core instruction shape: ordinary arithmetic",
    )  # fmt: skip


def _library(kind: str) -> str:
    return "cublas" if kind == "gemm" else "cudnn"


def _odd_legacy(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said("unknown", operands(name.types()), "gemm")


def _xmma(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `sm<cc>_xmma_<op>_<A B types>_<C
    types>_<accumulator>_…_(tensor<m>x<n>x<k>|ffma|warpgroupsize…)` says."""
    text = name.head
    family: Family = "gemm" if match["op"].endswith("gemm") else convolution(match["op"])
    if "depthwise" in text:
        family = "depthwise"
    groups = [types_in(" ".join(re.findall(_PAIR, part))) for part in match["types"].split("_") if part]
    precision = operands(groups[0]) if groups and groups[0] else "unknown"
    accumulate = groups[-1][-1] if groups and groups[-1] else None
    if re.search(_XMMA_HELPER, text):
        return Said("not_matmul", precision, family, None, "xmma-helper", "adds up what an xmma engine left")
    if match["op"] == "gemm" and "cf" in match["types"]:
        family = "conv_fprop"  # complex numbers, as between the transforms of an FFT convolution
    if "ffma" in text or "simt" in text or "hfma" in text:
        return Said(
            "cuda_core", precision, family, accumulate, "xmma-ffma",
            "an xmma engine that states ffma: fused multiply-add on the CUDA cores",
        )  # fmt: skip
    if instruction := re.search(_TENSOR_SHAPE, text):
        if precision == "fp32":
            precision = "tf32"  # no Tensor Core multiplies float32
        return Said(
            "tensor_core", precision, family, accumulate, "xmma-tensor",
            f"an xmma engine that states the Tensor Core instruction {instruction.group()}",
        )  # fmt: skip
    if "warpgroup" in text or "hmma" in text or "imma" in text or "gmma" in text:
        return Said(
            "tensor_core", "tf32" if precision == "fp32" else precision, family, accumulate, "xmma-wgmma",
            "an xmma engine of warp groups: they multiply by wgmma",
        )  # fmt: skip
    if family == "depthwise":
        text = "a depthwise xmma engine without a Tensor Core instruction, which such engines state"
        return Said("cuda_core", precision, family, accumulate, "xmma-depthwise", text)
    return Said(
        "unknown", precision, family, accumulate, "xmma-unstated", "an xmma engine without its instruction"
    )


def _xmma_traits(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `<Generation>_<unit>_<accumulator or type>_traits` says: the name of xmma's templates in
    cuDNN 8.0 to 8.2.

    hmma with fp32 or fp16 says what is accumulated, the operands being half; tf32 and bf16 are operands.
    """
    unit, kind = match["unit"], match["type"] or match["type2"]
    family: Family = convolution(name.text) if "implicit_gemm" in name.text else "gemm"
    if unit in ("ffma", "sgemm", "hfma2", "fma"):
        precision: Precision = "fp16" if unit == "hfma2" else "fp32"
        return Said(
            "cuda_core", precision, family, None, "xmma-ffma", f"xmma's {unit} traits: ordinary arithmetic"
        )
    named: dict[str, Precision] = {"tf32": "tf32", "bf16": "bf16", "int8": "int8", "fp64": "fp64"}
    precision = "int8" if unit == "imma" else named.get(kind, "fp16")
    accumulate: Precision | None = "fp16" if kind == "fp16" else ("fp32" if unit == "hmma" else None)
    text = f"xmma's {unit} traits: Tensor Core instructions"
    return Said("tensor_core", precision, family, accumulate, "xmma-tensor", text)


_XMMA_HELPER = r"post_execute_kernel__5x_cudnn$|_reduction_kernel$|_execute_split_k_kernel"
"""The kernel called split_k comes after the product's (`…_execute_kernel`, `…_execute_segment_k_on_kernel`), takes a
tenth of its time and multiplies nothing (by counters on H100)."""

_PAIR = r"tf32|bf16|f16|f32|f64|e4m3|e5m2|e2m1|i8|u8|s8|i32|s32"
_TENSOR_SHAPE = r"(?:sp)?tensor\d+(?:x\d+x\d+)?"

_NVJET_LETTER: dict[str, Precision] = {
    "h": "fp16", "t": "bf16", "s": "fp32", "d": "fp64", "q": "fp8", "r": "fp8", "o": "fp4", "i": "int8", "j": "int8",
}  # fmt: skip


def _nvjet(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `nvjet_[sm<cc>_]<types>_<tile>_<k tile>x<stages>_<cluster>_…_<layouts>` says: the types of
    a product.

    Three letters are (both operands, compute, result): `hsh` half, `tst` bfloat16, `hss` and `tss` with a
    float32 result. Five are (A, B, C, compute, result): `qqtst` fp8, `ootst` and `oosss` fp4. NVIDIA does not
    document them. What is known: `t` and `h` agree with the operand types that PyTorch records beside the
    launches; `qq` stands under `_scaled_mm` of fp8, with `Avec32UE8M0` for MXFP8; `oo` carries
    `Avec16UE4M3`, the scales of NVFP4; `sss` occurs as `sss_tf32`. No example of `d`, `i`, `j`, `r` was seen:
    they are read as cuBLAS writes them elsewhere. `mma` on sm120 is mma.sync where others are wgmma or
    tcgen05.
    """
    letters = match["letters"]
    inputs = {
        _NVJET_LETTER.get(letter, "unknown") for letter in (letters[:1] if len(letters) < 4 else letters[:2])
    }
    precision: Precision = inputs.pop() if len(inputs) == 1 else "mixed"
    compute = _NVJET_LETTER.get(letters[1] if len(letters) == 3 else letters[-2])
    text = "nvjet kernels multiply by wgmma (Hopper) or tcgen05 (Blackwell); the letters are the types"
    if precision == "fp32":
        precision = "tf32"
        text = "an nvjet kernel on float32 operands: wgmma and tcgen05 multiply them as TF32, none as float32"
    return Said("tensor_core", precision, "gemm", compute, "nvjet", text)


_ROLE = r"(?P<letter>[a-z])(?P<shape>\d{3,6})(?P<fast>tf32|bf16|f16|fastaccum|)?(?P<kind>gemm|fprop|dgrad|wgrad|symm|syrk|trmm|dw)"


def _cutlass2(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `cutlass_[<cc>_][wmma_](tensorop|simt)_[<type>_]<letter>[<mma
    shape>][<math>]<op>_[<type>_]<tile>…` says."""
    body = name.text[match.start() : match.start() + 160]
    words = body.replace("_", " ")
    family = _cutlass_family(body)
    types = types_in(words)
    if match["op"] == "simt":
        letter = re.match(r"[a-z]", body[match.end() - match.start() :])
        precision = operands(types) if types else _LETTER.get(letter.group() if letter else "", "unknown")
        return Said("cuda_core", precision, family, None, "cutlass-simt", "CUTLASS simt: ordinary arithmetic")
    category = re.search(_ROLE, body)
    letter_name, shape = (category["letter"], category["shape"]) if category else ("", "")
    fast = category["fast"] if category else ""
    if fast in ("tf32", "bf16", "f16"):
        types = types_in(fast)
    older = bool(match["cc"]) and match["cc"] < "80" and shape == "1688" and not card.at_least(8)
    precision = _shape_precision(shape, letter_name, types, card, older)
    if precision == "fp32":
        precision = "tf32"
    return Said(
        "tensor_core", precision, family, _LETTER.get(letter_name) if letter_name != "i" else None, "cutlass-tensorop",
        "CUTLASS tensorop: the kernel is built from Tensor Core instructions",
    )  # fmt: skip


def _cutlass_family(text: str) -> Family:
    if "dwfprop" in text or "depthwise" in text:
        return "depthwise"
    return convolution(text) if re.search(r"fprop|dgrad|wgrad", text) else "gemm"


_V3 = (
    r"_(?P<letter>[a-z])?(?P<shape>\d+(?:x\d+x\d+)?)?(?P<fast>tf32|bf16|f16)?[a-z]*?(?:gemm|fprop|dgrad|wgrad)[a-z]*"
    r"(?:_block_scaled)?_(?P<types>[a-z0-9_]*)"
)
_SCALED = r"ue\d+m\d+x"  # the type of the scales of a block-scaled operand


def _cutlass3(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `cutlass3x_sm<cc>_(tensorop|simt)_<letter><m>x<n>x<k><op>_<A>_<B>_<accumulator>_<C>_<D>_…`
    says."""
    body = name.text[match.start() : match.start() + 200]
    family = _cutlass_family(body)
    shaped = re.search(_V3, body)
    types = types_in(" ".join(re.sub(_SCALED, "", shaped["types"]).split("_")[:2])) if shaped else ()
    if shaped and shaped["fast"]:
        types = types_in(shaped["fast"])
    if "_simt_" in body[:40]:
        return Said(
            "cuda_core", operands(types), family, None, "cutlass-simt", "CUTLASS simt: ordinary arithmetic"
        )
    precision = operands(types)
    if precision in ("unknown", "fp32"):
        letter = (shaped["letter"] or "") if shaped else ""
        precision = "tf32" if precision == "fp32" else ("int8" if letter == "i" else "unknown")
    return Said(
        "tensor_core", precision, family, _LETTER.get(shaped["letter"] or "") if shaped else None, "cutlass3-tensorop",
        "CUTLASS 3 tensorop: wgmma or tcgen05 instructions",
    )  # fmt: skip


_ATOM_TYPES = r"tf32|bf16|f16|f32|f64|e4m3|e5m2|e2m1|e3m2|e2m3|s32|s8|u8"


def _atom(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what CuTe's names of MMA instructions say: `SM80_16x8x16_F32F16F16F32_TN`,
    `SM90_64x128x16_F32BF16BF16_SS`.

    The types stand as result, A, B (and the accumulator): the second and third are the operands.
    """
    types = re.findall(_ATOM_TYPES, match["types"])
    precision = operands(types_in(" ".join(types[1:3])))
    accumulate = types_in(types[0]) if types else ()
    return Said(
        "tensor_core", precision, _template_family(name.text), accumulate[0] if accumulate else None, "cute-mma-atom",
        f"the name holds the MMA instruction {match.group()[:60]}",
    )  # fmt: skip


_CONVOLUTION = r"convolution|::conv::|conv2d|[fw]prop|dgrad|wgrad|first_layer"


def _template_family(text: str) -> Family:
    if "flash" in text or "attention" in text or "fmha" in text or "sdpa" in text:
        return "attention"
    if "depthwise" in text:
        return "depthwise"
    return convolution(text) if re.search(_CONVOLUTION, text) else "gemm"


def _tensorop_class(name: Name, match: re.Match[str], card: Card) -> Said:
    types = name.types()
    narrow = tuple(t for t in types if t != "fp32")
    precision: Precision = operands(narrow) if narrow else ("tf32" if "fp32" in types else "unknown")
    return Said("tensor_core", precision, _template_family(name.text), "fp32" if "fp32" in types else None)


def _simt_class(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return the precision of a kernel with ordinary arithmetic. `DefaultGemmUniversal<A, layout, complex,
    alignment, B, …>` says which type is whose; elsewhere it is the narrowest type."""
    sides = re.search(_DEFAULT_GEMM, name.text)
    types = {found for side in sides.groups() for found in types_in(side)} if sides else set()
    precision: Precision = "mixed" if len(types) > 1 else operands(types or name.types())
    return Said("cuda_core", precision, _template_family(name.text))


_DEFAULT_GEMM = r"\bdefaultgemmuniversal<([\w:]+), ?[\w:]+, ?(?:\([\w:]+\))?\w+, ?\d+, ?([\w:]+), ?[\w:]+,"


def _gmma(name: Name, match: re.Match[str], card: Card) -> Said:
    types = tuple(t for t in name.types() if t != "fp32")
    precision: Precision = operands(types) if types else ("tf32" if "fp32" in name.types() else "unknown")
    return Said(
        "tensor_core", precision, _template_family(name.text), "fp32" if "fp32" in name.types() else None
    )


def _trtllm(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `(bmm|gemm)_<result>_<A><B>_<accumulator>_…_m<m>x<n>x<k>_…_sm<cc>` says."""
    sides = re.findall(_TRT_TYPE, match["ab"])
    found = {_TRT_PRECISION[side] for side in sides}
    precision: Precision = found.pop() if len(found) == 1 else ("mixed" if found else "unknown")
    accumulate: Precision | None = "fp32" if match["acc"] == "fp32" else None
    return Said("tensor_core", precision, "gemm", accumulate)


_TRT_TYPE = r"bfloat16|fp16|e4m3|e5m2|e2m1"
_TRT_PRECISION: dict[str, Precision] = {
    "bfloat16": "bf16", "fp16": "fp16", "e4m3": "fp8", "e5m2": "fp8", "e2m1": "fp4",
}  # fmt: skip


_DENIED = r"(?<![a-z])(?:no|non|not|without|for|to|from)_(?:[a-z]{0,4}mma|m\d+n\d+k\d+|tensor_?core)|(?<![a-z])(?:simt|fallback|layout|prepack|repack)(?![a-z])"


def _named_mma(name: Name, match: re.Match[str], card: Card) -> Said | None:
    """Return the verdict on a name that contains the instruction itself as a word (`wmma`, `hmma`, `wgmma`,
    `imma`, `mma`).

    None where another word denies it (`no_mma`, `without`, `simt`) or says that operands are only prepared
    for it (`pack_for_mma`, `to_m16n8k16_layout`), and where no word is a product (`hmma_counter_probe`): the
    name leaves it open.
    """
    if re.search(_DENIED, name.head) or not (re.search(_PRODUCT, name.head) or _is_bare(name)):
        return None
    types = tuple(t for t in name.types() if t != "fp32")
    precision: Precision = operands(types)
    if precision == "unknown":
        precision = {"imma": "int8", "dmma": "fp64", "qgmma": "fp8"}.get(match["word"] or "", "unknown")  # type: ignore[assignment]
    return Said("tensor_core", precision, _template_family(name.text))


_PRODUCT = (
    r"gemm|gemv|(?<![a-z])b?mm(?![a-z])|mat_?mul|mul_?mat|matvec|mult|multiply|product|conv|wgrad|dgrad|fprop|bprop|attn"
    r"|attention|mha|mqa|gqa|mla|flash|rnn|lstm|gru|moe|mlp|linear|dense|dot|einsum|fwd|bwd|forward|backward|syrk|trsm|wino"
)
"""Words for a matrix product, or for a layer or pass that is made of them."""

_BARE = (
    r"simple|naive|basic|base|test|example|compute|run|device|global|kernel|sync|op|tensor|cores?|[a-z]{0,3}mma|tcgen05|tensor(?:op|cores?)"
    r"|half|float|double|[a-z]{0,3}\d[a-z0-9]*|[nt]{1,2}|"
)
"""Words of a function that is called after the instruction alone: the instruction, numbers, types, `kernel`."""


def _is_bare(name: Name) -> bool:
    return all(re.fullmatch(_BARE, word) for word in name.function.lower().split("_"))


def _tile_gemm(name: Name, match: re.Match[str], card: Card) -> Said | None:
    letter = match["letter"]
    if re.search(_HINT, name.head) or (letter == "h" and not re.search(r"magma|lds|largek", name.head)):
        return None  # a kernel of somebody's own; half products are what Tensor Cores are for
    types = name.types()
    return Said(
        "cuda_core", operands(types) if types else _LETTER.get(letter, "unknown"), "gemm", _LETTER.get(letter)
    )


_HINT = r"mma|tensor|tf32|(?<![a-z0-9])tc(?![a-z0-9])|ptx|tcgen"


def _fp8_main_loop(name: Name, match: re.Match[str], card: Card) -> Said | None:
    """Return what the name says of a CUTLASS kernel, or a function named `fp8_…gemm_kernel`, whose operands
    are fp8.

    There is no fp8 arithmetic but the Tensor Cores', so a product that does not convert its operands first
    runs there. Words that say so (CUDA core, GEMV, simt), and a KV cache that only stores fp8, leave it open.
    """
    text = name.text
    if "gemm" not in text or re.search(_CONVERTS_FP8, text) or re.search(_PREPARES, name.head):
        return None
    narrow = [t for t in types_in(text) if t not in ("fp32", "int8")]
    if not (narrow and narrow[0] == "fp8") and not re.search(_NAMES_FP8, text):
        return None
    return Said("tensor_core", "mixed" if "fp4" in narrow else "fp8", "gemm", "fp32")


_NAMES_FP8 = r"fp8_?\w*gemm|gemm\w*fp8|(?<![a-z0-9])(?:\w*_)?fp8\w*::"
_CONVERTS_FP8 = r"cuda_?core|gemv|simt|kv_?cache|dequant"
_PREPARES = r"quantiz|quant_|transpose|(?<![a-z])(?:pad|pack|convert|cast|reduce|reduction)(?![a-z])"


REDUCTION_RULES: tuple[Rule, ...] = (
    Rule(
        "splitk-reduction", r"splitkreduce|splitk_reduce|reducesplitk|splitkreduction|batched_splitk_reduc",
        helper("gemm"),
        "adds up the partial products of a split-K matrix product: no product of its own",
        "NVIDIA/nsys traces of cuBLAS and cuBLASLt", "all",
        "void cublasLt::splitKreduce_kernel<32, 16, int, __half, __half, float, __half, true, true, false>()", whole=True,
    ),
)  # fmt: skip
"""Before all others: their template arguments quote the product that they belong to."""

RULES: tuple[Rule, ...] = (
    Rule(
        "nvjet", r"nvjet_(?:sm\d+_)?(?P<letters>[a-z]{3,6})(?=_)", _nvjet, "",
        "GindaChen/nsys-ai and AMD-AGI/TraceLens tests; traces of cuBLAS 12.4 and later", "Hopper, Blackwell",
        "nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT",
    ),
    Rule(
        "xmma", r"sm\d+_xmma_(?P<op>(?:sparse_)?(?:gemm|fprop|dgrad|wgrad|conv|depthwise))[a-z_]*?_(?P<types>(?:(?:(?:tf32|bf16|c?f16|c?f32|c?f64|e4m3|e5m2|e2m1|i8|u8|s8|i32|s32)+|fp\d+)_)+)",
        _xmma, "", "NVIDIA traces of cuBLAS 11 and cuDNN 8 (pytorch/kineto, HolisticTraceAnalysis)",
        "Volta to Hopper", "sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x32_stage4_warpsize2x2x1_tensor16x8x16_kernel",
    ),
    Rule(
        "xmma-traits", r"(?:kepler|maxwell|pascal|volta|turing|ampere|ada|hopper)_(?P<unit>hmma|imma|dmma|ffma|hfma2|sgemm)_(?:implicit_gemm_[a-z_]{1,40}_(?P<type>fp16|fp32|tf32|bf16|int8|fp64)|(?:[a-z0-9]+_){0,2}?(?P<type2>fp16|fp32|tf32|bf16|int8|fp64)_traits)",
        _xmma_traits, "", "XProf kernel statistics of a Keras mixed_float16 training on A100 (cuDNN 8)", "Volta, Turing, Ampere",
        "void xmma_cudnn::gemm::kernel<xmma_cudnn::implicit_gemm::dgrad::Kernel_traits<xmma_cudnn::Ampere_hmma_fp32_traits, xmma_cudnn::Cta_tile<xmma_cudnn::Ampere, 256, 64, 32, 4, 1, 1, 1>>>()", whole=True,
    ),
    Rule(
        "cutlass3", r"cutlass3x_sm(?P<cc>\d+)[a-z]?_", _cutlass3, "",
        _CUTLASS, "Hopper, Blackwell",
        "void cutlass::device_kernel<cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_1x2x1_0_tnn_align8_warpspecialized_cooperative_epi_tma>(T1::Params)", whole=True,
    ),
    Rule(
        "cutlass2", r"cutlass_(?:sm)?(?P<cc>\d\d\d?)?_?(?:wmma_)?(?:sparse_)?(?P<op>tensorop|simt)_", _cutlass2, "",
        _CUTLASS, "Volta to Blackwell",
        "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>(T1::Params)", whole=True,
    ),
    Rule(
        "odd-legacy-name", r"\b[a-z]+_h16gemm_", _odd_legacy,
        "h16gemm names a type but no instruction: neither Tensor Core nor ordinary arithmetic is stated",
        "AMD-AGI/TraceLens H100 traces", "Hopper", "volta_h16gemm_<BF16,BF16,float>_nt_v1",
    ),
    Rule(
        "legacy", r"\b(?:trt_|(?:_5x_)?cudnn_(?:infer_|train_)?)?(?P<arch>kepler|maxwell|pascal|volta|turing|ampere|ada|hopper|blackwell)_(?:(?:fp16|bf16|fp32|int8|tf32|f16|fp16x2|int8x4|int8x32)_)?(?P<letter>gc|[a-z])(?P<shape>884|1688|16816|8816|16832|161616|32816|83216|16864|168128|168256)?(?P<kind>gemm|cudnn)",
        _legacy, "", _CUBLAS, "Maxwell to Hopper", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
    ),
    Rule(
        "trtllm-gemm", r"^(?:bmm|gemm|gemmr?elu|batchedgemm)_(?P<d>[a-z0-9]+)_(?P<ab>(?:m?x?(?:bfloat16|fp16|e4m3|e5m2|e2m1))+)_(?P<acc>fp32|fp16)_.*_m\d+x\d+x\d+",
        _trtllm, "a TensorRT-LLM generated kernel that states its tcgen05 instruction shape and operand types",
        "flashinfer-ai/flashinfer and NVIDIA/TensorRT-LLM (trtllm-gen cubins)", "Blackwell",
        "bmm_Bfloat16_E4m3E4m3_Fp32_t128x16x256_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_TN_sm100f",
    ),
    Rule(
        "cute-mma-atom", r"sm(?:70|75|80|89|90|100|103|120)(?:::gmma::mma|::)?_(?:mma_)?\d+x\d+x\d+_(?P<types>(?:(?:tf32|bf16|f16|f32|f64|e4m3|e5m2|e2m1|e3m2|e2m3|s32|s8|u8)+))_",
        _atom, "", "NVIDIA/cutlass include/cute/arch/mma_sm*.hpp", "Volta to Blackwell",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::SM90_64x128x16_F32BF16BF16_SS<1>>>(T1::Params)", whole=True,
    ),
    Rule(
        "cutlass-gmma", r"gmmawarpspecialized|sm\d+tmagmma|gmma::(?:ss|rs)_op|tmawarpspecializedcooperative|kerneltmawarpspecialized|mainloopsm(?:90|100|103|120)\w*|umma\w{0,60}warpspecialized|warpspecialized1smsm100|warpspecialized2smsm100|sm100_mma|tcgen05|sm100_mma_",
        _gmma, "a CUTLASS 3 main loop of warp-specialised wgmma or tcgen05 instructions",
        "NVIDIA/cutlass include/cutlass/gemm/dispatch_policy.hpp", "Hopper, Blackwell",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<cute::tuple<int>, cutlass::gemm::collective::CollectiveMma<cutlass::gemm::MainloopSm90TmaGmmaWarpSpecialized<7>, cutlass::half_t>>>(T1::Params)", whole=True,
    ),
    Rule(
        "cutlass-simt-class", r"opclasssimt|mmasimt|defaultmmasimt|\bsimt_\w*gemm|universalfma|warp::mmasimt",
        _simt_class, "CUTLASS templates of the simt class: ordinary arithmetic",
        "NVIDIA/cutlass include/cutlass/arch/mma.h", "all",
        "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::threadblock::MmaPipelined<cutlass::gemm::warp::MmaSimt<float>>>>(T1::Params)", whole=True,
    ),
    Rule(
        "cutlass-tensorop-class", r"opclasstensorop|opclasswmmatensorop|mmatensorop|mmatensoropmultiplicand|tensoropmultiplicand|warp::mmacomplextensorop",
        _tensorop_class, "CUTLASS templates of the tensorop class: Tensor Core instructions",
        "NVIDIA/cutlass include/cutlass/arch/mma.h", "Volta and later",
        "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<cutlass::gemm::warp::MmaTensorOp<cutlass::half_t>>>(T1::Params)", whole=True,
    ),
    Rule(
        "fp8-main-loop", r"^cutlass::(?:device_kernel|kernel2?)$|(?:^|::)\w{0,60}?fp8_\w{0,60}?gemm\w{0,60}?_(?:kernel|impl)$", _fp8_main_loop,
        "the operands of its main loop are fp8, which only Tensor Cores multiply", "NVIDIA/cutlass include/cutlass/device_kernel.h; deepseek-ai/DeepGEMM; pytorch/FBGEMM", "Ada, Hopper, Blackwell",
        "void cutlass::device_kernel<vllm::fp8_blockwise::GemmKernel>(vllm::fp8_blockwise::GemmKernel::Params)",
    ),
    Rule(
        "blas-helper", r"^(?:cublas\w*::)?(?:dot_kernel|reduce_1block_kernel|scal_kernel\w*|axpy_kernel\w*|copy_kernel\w*|nrm2_kernel|asum_kernel|iamax_kernel|swap_kernel|rot_kernel|transpose_readwrite_alignment_kernel|cublas_transpose\w*|kernel_transpose\w*|beta_kernel|scale_kernel|setzero_kernel|gemm_beta\w*|cublasgemmbeta\w*|epilogue::impl::globalkernel)\b",
        helper("gemm"), "a vector helper of cuBLAS (dot, scale, copy, transpose): no matrix product",
        "NVIDIA traces of cuBLAS; leleucas counters on A100", "all",
        "void dot_kernel<float, 128, 0, cublasDotParams<cublasGemvTensorStridedBatched<float const>>>(float)",
    ),
    Rule(
        "scalar-gemm", r"cuda_?core_?gemm\w*$", ordinary("gemm"),
        "says CUDA core itself: it converts its operands to float32 and multiplies them by fma",
        "pytorch/FBGEMM fbgemm_gpu/experimental/gen_ai f8f8bf16_lite.cu; NVIDIA/TensorRT-LLM cudaCoreGemm", "Ada and later",
        "void tensorrt_llm::kernels::cuda_core_gemm::cudaCoreGemm<__nv_fp8_e4m3, __nv_bfloat16, 2, 4, 128>(__nv_fp8_e4m3 const*)",
    ),
    Rule(
        "gemv", r"\bgemv\w*kernel|gemv[0-9ntx]+\w*|gemvx::kernel|gemvnsp_kernel|\bgemv2[nt]\w*|\bmul_mat_vec\w*|\bgemv_kernel|\bgemv_(?:bf16|fp16|fp32|quantized)\w*|sbgemv|gemk1_kernel|gemmk1_kernel|\bgemv\b|\bger_kernel",
        ordinary("gemm"), "a matrix-vector product: cuBLAS has no Tensor Core kernels of this kind",
        "NVIDIA traces of cuBLAS; leleucas counters on A100", "all",
        "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false, false>(float)",
    ),
    Rule(
        "small-n-gemm", r"gemmsn_[nt]{2}_kernel", ordinary("gemm"),
        "cuBLAS' kernel for small N: ordinary arithmetic by its counters on A100",
        "leleucas/Actual-Parameter-Collection-for-Machine-Learning-Operators (A100 counters)", "all",
        "void gemmSN_TN_kernel<float, 128, 16, 2, 4, 8, 9, false>(float)",
    ),
    Rule(
        "grouped-gemm-helper", r"\bprepare_grouped_gemm_data\w*", helper("gemm"), "writes the pointers and shapes of a grouped product: no product",
        "pytorch/pytorch aten/src/ATen/native/cuda/GroupMMCommon.cuh", "Hopper, Blackwell", "void at::cuda::detail::prepare_grouped_gemm_data<cutlass::bfloat16_t>(int)",
    ),
    Rule(
        "magma-wmma", r"\bhgemm_template_(?:v?batched_)?[nt]{2}_kernel", always("tensor_core", "fp16", "gemm", "fp16"), "MAGMA's product of halves, written in wmma fragments",
        "icl-utk-edu/magma magmablas/hgemm_template_device.cuh", "Volta and later", "void hgemm_template_batched_nn_kernel<__half, 32, 4, 64, 64, 32, 16, 16, 16>(int, int, int)",
    ),
    Rule(
        "magma-blas", r"\b(?:magma(?:blas)?_)?[sdcz]?(?:trsm|trmm|herk|her2k|syrk|syr2k|symm|hemm|trtri|trsv|trmv|symv|hemv)_?(?:template|kernel|diag|batched|vbatched)\w*", ordinary("gemm"),
        "MAGMA's products with triangular and symmetric matrices: ordinary arithmetic", "icl-utk-edu/magma magmablas", "all",
        "void herk_template_batched_nn_kernel<float, 8, 8, 16, 16, 8, 0, 0>(int, int)",
    ),
    Rule(
        "magma-lapack", r"\b(?:magma(?:blas)?_)?[sdcz](?:laswp|lacpy|laset|lascl2?|larfb?g?x?t?|geadd|geqr[2f]|getf[2f]|getr[fs]|potf2|potr[fs]|gbtf2|symmetrize|hegst|swap|transpose(?:_conj)?)(?=_|\b)\w*", helper("other"),
        "copies, swaps or factorises a panel of a matrix (named after LAPACK's routine): no matrix instruction", "icl-utk-edu/magma magmablas", "all",
        "zlaswp_columnserial_kernel(int, double2*, int, int, int, int const*)",
    ),
    Rule(
        "magma-gemm", r"\bgemm_template_(?:v?batched_)?[nt]{2}_kernel", ordinary("gemm"), "MAGMA's template multiplies by fma",
        "icl-utk-edu/magma magmablas/gemm_template_device.cuh", "all", "void gemm_template_batched_nn_kernel<float, 16, 16, 64, 64, 16, 0, 0>(int, int, int)",
    ),
    Rule(
        "tiled-gemm", r"\b(?:magma_)?(?:lds\d+_)?(?P<letter>[sdhcz])gemm(?:_|ex_|_largek|ex|nn|nt|tn|tt)?\w*(?:lds\d*|kernel|_\d+x\d+x\d+_\w+|_ldg\w*|largek\w*|kernel_val)\b|gemm_kernel2x2\w*|\bgemm_kernel1x1\w*",
        lambda name, match, card: _tile_gemm(name, match, card) if match["letter"] else ordinary("gemm")(name, match, card),
        "a cuBLAS or MAGMA tile kernel named by its BLAS letter alone: ordinary arithmetic",
        "pytorch/kineto traces; MAGMA sources", "all",
        "void sgemm_largek_lds64<true, false, 6, 3, 4, 5, 2, 66>(float*, float const*, float const*, int)",
    ),
)  # fmt: skip

WORD_RULES: tuple[Rule, ...] = (
    Rule(
        "instruction-layout", r"(?<![a-z0-9])to_m\d+n\d+k\d+\w*_layout$", plain("layout"), "packs a matrix in the order in which an instruction reads it: no product",
        "pytorch/pytorch aten/src/ATen/native/cuda/int4mm.cu", "Ampere and later",
        "void at::native::matrix_to_m16n8k16_Bint4_layout<4>(at::GenericPackedTensorAccessor<int, 2ul>)",
    ),
    Rule(
        "named-instruction", r"(?<![a-z0-9])(?P<word>wmma|hmma|wgmma|gmma|imma|dmma|qgmma|utcmma|umma|mma_sync|mma|tcgen05|tensorop|m16n8k(?:4|8|16|32|64)|m16n16k16|(?<!no_)(?<!non_)tensor_?cores?)(?![a-z])|(?P<glued>tensorcore)(?:gemm|matmul|conv)",
        _named_mma, "a word of the function's name is a Tensor Core instruction, or says Tensor Core itself",
        "PTX ISA: wmma, mma, wgmma, tcgen05", "Volta and later",
        "void gemm_wmma_t<128, 128, 3>(const __half *, const __half *, float *, int, int, int)",
    ),
)  # fmt: skip
"""After all libraries: for kernels of no known library that name the instruction."""
