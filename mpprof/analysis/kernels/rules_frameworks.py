"""Rules for the kernels that frameworks write or generate: XLA, Triton, PyTorch, CUB, Thrust, FBGEMM.

Most of them multiply no matrices. XLA's and Inductor's fusions carry the kind of loop in their name; what a
`gemm_fusion` or a nameless `fusion` multiplies, and in what precision, only their HLO or shapes can say.
"""

from __future__ import annotations

import re

from mpprof.analysis.kernels.name_parts import Card, Name, operands, types_in, values
from mpprof.analysis.kernels.op_types import family_of
from mpprof.analysis.kernels.rule import Rule, Said, always, family_rule, floats, ordinary, plain
from mpprof.model.kernels import MATMUL_FAMILIES, Family

_XLA = "openxla/xla xla/service/gpu (fusion and kernel names)"
_TORCH = "pytorch/pytorch aten/src/ATen/native/cuda"
_TF = "tensorflow/tensorflow tensorflow/core/kernels"

_WORDS: tuple[tuple[Family, tuple[str, ...]], ...] = (
    (
        "gather_scatter",
        ("scatter", "gather", "sort", "dynamic_update_slice", "dynamic-update-slice", "dynamic_slice"),
    ),
    ("reduce", ("reduce", "cumsum", "scan")),
    ("random", ("rng", "threefry", "philox")),
)
_LAYOUT_WORDS = frozenset(
    ("transpose", "concatenate", "copy", "slice", "pad", "reverse", "bitcast", "reshape")
)
_ARITHMETIC_FREE = _LAYOUT_WORDS | {
    "fusion",
    "loop",
    "input",
    "wrapped",
    "select",
    "broadcast",
    "convert",
    "constant",
}


def _fusion_family(text: str) -> Family:
    """Return the family of an XLA fusion by the instructions in its name (`loop_add_multiply_fusion`)."""
    for family, words in _WORDS:
        if any(word in text for word in words):
            return family
    parts = frozenset(re.split(r"[_.\d]+", text)) - {""}
    if parts & _LAYOUT_WORDS and not parts - _ARITHMETIC_FREE:
        return "layout"
    named = parts - {"loop", "input", "wrapped", "fusion", "kernel"}
    return "elementwise" if named else "fusion"


def _fusion(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said("not_matmul", "unknown", _fusion_family(match.group()))


def _wrapped(name: Name, match: re.Match[str], card: Card) -> Said | None:
    opcode = match["opcode"].rstrip("_")
    family = family_of(opcode) or family_of(opcode.replace("_", "-"))
    if family is None or family in MATMUL_FAMILIES:
        return Said("unknown", "unknown", family) if family else None
    return Said("not_matmul", "unknown", family)


def _inductor(name: Name, match: re.Match[str], card: Card) -> Said:
    kind = match["kind"]
    if kind == "tem":
        return Said("unknown", "unknown", "attention" if "attention" in name.head else "gemm")
    family: Family = "reduce" if kind in ("red", "per") else "elementwise"
    if "norm" in name.head:
        family = "norm"
    elif "softmax" in name.head:
        family = "softmax"
    elif "foreach" in name.head or "adam" in name.head:
        family = "optimizer"
    return Said("not_matmul", "unknown", family)


_TORCH_WORDS: tuple[tuple[Family, str], ...] = (
    ("loss_scale", "amp_update_scale non_finite_check unscale"),
    ("depthwise", "conv_depthwise2d conv_depthwise3d"),
    ("optimizer", "fusedadam fused_adam fusedsgd fused_sgd fusedoptimizer multi_tensor_apply adagrad foreach lambstage"),
    ("softmax", "softmax"),
    ("norm", """layer_norm layernorm batch_norm batchnorm rms_norm rmsnorm group_norm groupnorm instance_norm
        rowwisemoments gammabeta welford norm_forward norm_backward computefusedparams backwardfusedparams
        internalgradients weight_norm"""),
    ("random", "dropout distribution philox random bernoulli multinomial poisson binomial dirichlet curand uniform normal_kernel"),
    ("pool", "max_pool maxpool avg_pool avgpool average_pool averagepool max_unpool"),
    ("other", "upsample grid_sampl interpolat"),
    ("cast", "bfloat16_copy float16_copy float8_copy half_copy _to_hfp8 hfp8_to"),
    ("elementwise", "masked_fill"),
    ("layout", """catarray transpose permute flip roll_cuda pad2d pad3d pad1d replication_pad _padding triu tril unfold
        split_with_sizes chunk_cat copy_device_to_device direct_copy copy_kernel"""),
    ("gather_scatter", """index gather scatter embedding searchsorted sort topk nonzero unique masked_select take_
        put_ krn_partial compute_grad_weight repeat_interleave compute_cuda_kernel bucketize kthvalue mode_kernel
        histogram bincount radix to_dense coalescevalues convert_indices reverse_indices computeblockwise
        compute_mode adjacent_difference"""),
    ("reduce", """reduce nll_loss cumsum cumprod scan _sum norm_kernel argmax argmin cross_entropy logsumexp mean
        classnll renorm norm_cleanup marginloss margin_loss ctc_loss cdist pdist qparams quantizationparams
        movingaverageminmax"""),
    ("memset", "fillfunctor fill_kernel"),
    ("elementwise", """elementwise pointwise vectorized unrolled arange linspace range eye glu functor where clamp
        bias activation rotary rope lerp addcmul addcdiv logit mse"""),
    ("gather_scatter", "per_sample_weights num_of_segments num_of_partial_segments matrix_indices sparse"),
    ("layout", "parallel_cat nested_cat channel_shuffle"),
    ("cast", "dequant"),
    ("elementwise", """relu elu_ gelu silu sigmoid tanh hardswish softplus softshrink erf bessel polygamma digamma
        lgamma chebyshev hermite laguerre legendre airy cross_kernel"""),
    ("other", "fft_fill conjugate_symmetry assert_async"),
)  # fmt: skip
"""Words of PyTorch's kernels and functors by what they do; the first that occurs decides."""

_TORCH_FAMILIES = tuple((family, tuple(words.split())) for family, words in _TORCH_WORDS)
_TORCH_READ = 400
"""Characters from the function's name on in which the functor stands; host signatures follow."""


def _torch(name: Name, match: re.Match[str], card: Card) -> Said | None:
    if "2col" in name.head:
        return None  # a convolution's helper: another rule
    text = name.text
    start = max(name.head.rfind("::"), 0)
    task = text[start : start + _TORCH_READ]
    family = next((family for family, words in _TORCH_FAMILIES if any(word in task for word in words)), None)
    if family is None:
        return None
    types = types_in(text)
    if family == "depthwise":
        own = "PyTorch's own depthwise kernel: ordinary arithmetic"
        return Said("cuda_core", operands(types), family, None, "torch-depthwise", own)
    if family == "cast" or ("direct_copy" in task and "withcast" in text):
        # One of the two types is stated; that they differ is what makes it a cast.
        return Said(
            "not_matmul",
            "mixed" if types or family == "cast" else "unknown",
            "cast",
            None,
            "torch-cast",
            "a copy to another type",
        )
    return Said("not_matmul", operands(t for t in types if t != "int8"), family)


def _triton_dot(name: Name, match: re.Match[str], card: Card) -> Said:
    return Said("unknown", operands(t for t in name.types() if t != "fp32"), "gemm")


TORCH_RULES: tuple[Rule, ...] = (
    Rule(
        "cuda-spin", r"spin_kernel", always("not_matmul", "unknown", "other"), "waits on the device", _TORCH, "all",
        "at::cuda::(anonymous namespace)::spin_kernel(long)", whole=False,
    ),
    Rule(
        "torch-native", r"^at::|^native::", _torch,
        "PyTorch's own kernel: its functor says what it does", _TORCH, "all",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3>>(int)",
        whole=False,
    ),
)  # fmt: skip
"""Tried first of all: their names quote other functions."""

_NVFUSER: dict[str, Family] = {
    "pointwise": "elementwise", "reduction": "reduce", "persistent": "reduce", "transpose": "layout", "resize": "layout", "no_op": "other",
}  # fmt: skip


def _nvfuser(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `nvfuser_<scheduler>_f<fusion>_c…_r…_g…` says; the schedulers of products are matmul's."""
    types = operands(floats(name))
    if match["product"]:
        return Said("tensor_core", operands(t for t in name.types() if t != "fp32"), "gemm", None, "nvfuser-matmul",
                    "nvFuser's matmul scheduler makes kernels of mma and wgmma only")  # fmt: skip
    return Said("not_matmul", types, _NVFUSER[match["kind"]])


RULES: tuple[Rule, ...] = (
    Rule(
        "nvfuser", r"^nvfuser_(?:(?:inner_outer_|inner_|outer_)?(?P<kind>pointwise|reduction|persistent|transpose|resize|no_op)|(?P<product>matmul))(?=_|$)",
        _nvfuser, "nvFuser names its kernels after their scheduler: a loop over elements, rows or tiles, no product",
        "NVIDIA/Fuser csrc/scheduler/scheduler_types.h", "Volta and later", "nvfuser_inner_persistent_f12_c1_r0_g3(Tensor<__half, 2, 2>, Tensor<__half, 2, 2>)", whole=False,
    ),
    Rule(
        "triton-dot", r"^(?:triton_)?gemm_fusion\w*|^(?:triton_)?nested_gemm_fusion\w*|^dot_fusion\w*|^triton_(?:mm|bmm|dot|addmm|gemm)\w*|_dot_fusion\w*", _triton_dot,
        "a Triton product: whether it runs on the matrix units depends on its types, which are in the HLO",
        _XLA, "Ampere and later", "gemm_fusion_dot_5", whole=False,
    ),
    Rule(
        "inductor", r"triton_(?P<kind>poi|red|per|tem|for)_fused\w*|triton_(?P<kind2>x)y", lambda n, m, c: _inductor(n, m, c) if m["kind"] else None,
        "Inductor states the kind of loop: pointwise, reduction, persistent reduction, or a template",
        "pytorch/pytorch torch/_inductor/codegen/triton.py", "Volta and later", "triton_poi_fused_add_mul_0", whole=False,
    ),
    Rule(
        "triton-softmax", r"triton_softmax\w*", plain("softmax"), "XLA's softmax and norm fusion: reductions and pointwise",
        _XLA, "Ampere and later", "triton_softmax_computation_2", whole=False,
    ),
    Rule(
        "xla-wrapped", r"^wrapped_(?P<opcode>[a-z_\-]+?)(?:[._]\d+)*$", _wrapped, "one HLO instruction as a kernel, named by its opcode",
        _XLA, "all", "wrapped_transpose_3", whole=False,
    ),
    Rule(
        "xla-loop-fusion", r"^(?:loop|input)_(?:[a-z0-9_\-]*_)?fusion(?:[._]\d+)*$", _fusion,
        "XLA's loop and reduction emitters: they hold no matrix product", _XLA, "all", "loop_add_multiply_fusion_2", whole=False,
    ),
    Rule(
        "xla-named-fusion", r"^(?:reduce|transpose|copy|convert|broadcast|select|concatenate|add|multiply|subtract|divide|scatter|gather|slice|pad|tanh|exponential|maximum|compare)(?:_[a-z0-9_]+)?_fusion(?:[._]\d+)*$",
        _fusion, "an XLA fusion named by its instructions, none of them a product", _XLA, "all", "transpose_copy_fusion.3", whole=False,
    ),
    Rule(
        "xla-helper", r"^redzone_?check\w*|^repeatbuffer\w*|^(?:input_)?reduce-window\w*|^select_and_scatter\w*|^sort(?:[._]\d+)+$|^rng_bit_generator\w*|^make_?batch_?pointers\w*|^delay_?kernel\w*|^buffer_?compar\w*|xla_fp_comparison|^copy(?:[._]\d+)+$|^broadcast(?:[._]\d+)+$",
        plain("other"), "a helper of XLA's runtime or a single instruction", _XLA, "all", "RepeatBufferKernel", whole=False,
    ),
    Rule(
        "cub", r"(?:\bcub::(?:\w+::)*\w*?|(?:^|::)device)(?P<what>reducebykey|radixsort|segmentedsort|mergesort|batchmemcpy|reduce|scan|select|histogram|runlength|compact|partition|uniquebykey|transform|for_?each|static_kernel|copy|merge|topk|adjacent|empty)\w*kernel\w*$|\bcub::(?:\w+::)*for_each::\w+$",
        lambda name, match, card: Said("not_matmul", operands(floats(name)), _cub_family(match["what"])),
        "named as CUB names its primitives (Device…Kernel): sorting, scanning, reducing, selecting", "NVIDIA/cccl cub", "all",
        "void cub::CUB_200400___CUDA_ARCH_LIST___NS::DeviceReduceKernel<cub::CUB_200400___CUDA_ARCH_LIST___NS::DeviceReducePolicy<float, int, cub::Sum>::Policy600, float const*, float*>(float const*)", whole=False,
    ),
    Rule(
        "thrust", r"\bthrust::(?:\w+::)*_kernel_agent\s*<[^<]*?(?P<what>parallelfor|reducebykey|reduce|drain|scanbykey|scan|uniquebykey|unique|partition|copyif|setop|merge|blocksort|sort|init|extrema)\w*agent",
        lambda name, match, card: Said("not_matmul", operands(floats(name)), _thrust_family(match["what"], name.text)),
        "an algorithm of Thrust, named by its agent", "NVIDIA/cccl thrust/system/cuda/detail", "all",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<thrust::cuda_cub::__fill::functor<float>>>()",
    ),
    Rule(
        "fbgemm-bmm", r"\b(?:jagged_(?:dense|jagged)_bmm|(?:outer_prod|dense_vec)_jagged_2d\w*)(?:_kernel)?", ordinary("gemm"), "a product with a jagged tensor: ordinary arithmetic",
        "pytorch/FBGEMM fbgemm_gpu/src/jagged_tensor_ops", "all", "void fbgemm_gpu::jagged_dense_bmm_kernel<32, 32, 8, 4, 4, int, float>(float const*)", whole=False,
    ),
    family_rule("fbgemm-quantise", r"\bfbgemm_gpu::(?:\w+::)*(?!\w*(?:gemm|gemv|attn))\w*(?:quantiz|qparam|fp8rowwise|_to_float|float_to|bfloat16)\w*$", "cast",
                 "converts to or from a narrow storage type", "pytorch/FBGEMM fbgemm_gpu", "void fbgemm_gpu::_compute_FP8_quantize_cuda_kernel<float>(float const*, unsigned char*)"),
    family_rule("fbgemm", r"\bfbgemm_gpu::(?:\w+::)*\w*(?:embedding|jagged|permut|bucketiz|cache|linearize|lengths|segment|recat|reorder|cumsum|offsets|index|indices|gather|scatter|prun|lookup|sequence|histogram|vbe|zch)\w*$|split_embedding\w*|dense_embedding\w*|\bssd_embedding\w*|bounds_check_indices\w*|linearize_(?:cache_)?ind\w*|permute_pooled_embs\w*|permute_(?:1d|2d)\w*|recat_\w*|jagged_\w*|\w*lxu_cache\w*|asynchronous_\w*cumsum\w*|block_bucketize\w*|compute_cuda_kernel|to_dense_representation\w*|segment_sum_csr\w*|grad_mean_kernel|_block_bucketize\w*|delinearize\w*|reorder_batched\w*", "gather_scatter",
                 "embedding tables: reads and writes by index", "pytorch/FBGEMM fbgemm_gpu", "void split_embedding_codegen_forward_unweighted_kernel<float, float, float, false, long, 2ul, 32ul>()"),
    family_rule("multi-tensor", r"multi_tensor_apply_kernel\w*", "optimizer",
                 "one launch over many parameters: an optimizer's update or a check of its gradients", "NVIDIA/apex csrc/multi_tensor_apply.cuh", "void multi_tensor_apply_kernel<TensorListMetadata<4>, AdamFunctor<float>, float, float>(int)"),
    Rule(
        "serving-library", r"\b(?:vllm|sglang|sgl_kernel|tensorrt_llm|flashinfer|moe|sgl_hip|transformer_engine|apex|fastertransformer|llama|aiter)::(?:\w+::)*(?!kn_entry|\w*(?:gemm|gemv|matmul|attention|attn|mma))\w*(?P<what>norm|softmax|rotary|rope|cache|quant|silu|gelu|act_and_mul|activation|routing|finalize|permute|topk|moe_align|moe_sorting|sampl|cast|transpose|rng_state|allreduce|all_reduce|gated_act|dbias|swizzle|multi_tensor|amax|padding|dropout)\w*$|\bkn_entry_[12]c_\w+",
        lambda name, match, card: _serving(name, match["what"] or "rope"),
        "a helper of an inference library, named by its task", "vllm-project/vllm csrc; NVIDIA/TensorRT-LLM kernels; flashinfer-ai/flashinfer; ROCm/aiter csrc/kernels", "Ampere and later; gfx9",
        "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*, c10::BFloat16 const*, long, float, int, int)", whole=False,
    ),
    family_rule("dispatch-layout", r"\bget_dispatch_layout$", "gather_scatter", "counts the tokens that go to each rank, and sends none",
                 "deepseek-ai/DeepEP csrc/kernels/legacy/layout.cu", "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*, int*)"),
    family_rule("softmax-kernel", r"\bsoftmax_warp_(?:forward|backward)\w*|cunn_softmax\w*|\bsoftmax_\w*kernel\w*|softmaxforward\w*|softmaxbackward\w*|masked_softmax\w*|scaled_\w*softmax_warp\w*", "softmax",
                 "softmax over rows", _TORCH + "/PersistentSoftmax.cuh; NVIDIA/apex", "void (anonymous namespace)::softmax_warp_forward<c10::Half, c10::Half, float, 10, false, false>(c10::Half*)"),
    family_rule("norm-kernel", r"\b\w*(?:layer_?norm|rms_?norm|batch_?norm|group_?norm)\w*(?:kernel|fwd|bwd|forward|backward)\w*|\bln_(?:fwd|bwd)\w*kernel|\bcuapplylayernorm\w*|\bcucomputegradinput|\bcucompute\w*gammabeta", "norm",
                 "a normalisation", "NVIDIA/apex csrc/layer_norm_cuda_kernel.cu; Dao-AILab/flash-attention csrc/layer_norm", "void cuApplyLayerNorm<float, float, c10::Half>(c10::Half*, float*)"),
    family_rule("loss-kernel", r"cunn_classnll\w*|nll_loss\w*|cross_entropy\w*|softmaxxent\w*|xentkernel\w*|sparsexent\w*", "reduce",
                 "a loss over rows", _TORCH + "; " + _TF, "void cunn_ClassNLLCriterion_updateOutput_kernel<float, float>(float*, float*)"),
    Rule(
        "elementwise-kernel", r"^\w*elementwise_kernel\w*|^kernelpointwiseapply\w*", plain("elementwise"), "a pointwise kernel of PyTorch", _TORCH, "all",
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out()>(int)", whole=False,
    ),
)  # fmt: skip

_SERVING: dict[str, Family] = {
    "norm": "norm", "softmax": "softmax", "rotary": "elementwise", "rope": "elementwise", "cache": "layout",
    "quant": "cast", "silu": "elementwise", "gelu": "elementwise", "act_and_mul": "elementwise",
    "activation": "elementwise", "routing": "gather_scatter", "finalize": "gather_scatter",
    "permute": "gather_scatter", "topk": "gather_scatter", "moe_align": "gather_scatter", "moe_sorting": "gather_scatter", "sampl": "random",
    "cast": "cast", "transpose": "layout", "rng_state": "random", "allreduce": "comm", "all_reduce": "comm",
    "gated_act": "elementwise", "dbias": "reduce", "swizzle": "layout", "multi_tensor": "optimizer",
    "amax": "reduce", "padding": "layout", "dropout": "random",
}  # fmt: skip


def _serving(name: Name, what: str) -> Said:
    family = _SERVING[what]
    return Said("not_matmul", (values if family == "cast" else operands)(floats(name)), family)


def _cub_family(what: str | None) -> Family:
    if what in ("reduce", "reducebykey", "scan", "histogram", "runlength"):
        return "reduce"
    if what in ("copy", "batchmemcpy"):
        return "layout"
    if what == "empty":
        return "other"
    loop = what is None or what.startswith(("for", "transform", "static"))
    return "elementwise" if loop else "gather_scatter"


def _thrust_family(what: str, text: str) -> Family:
    if what in ("reduce", "reducebykey", "drain", "scan", "scanbykey", "extrema"):
        return "reduce"
    if what not in ("parallelfor", "init"):
        return "gather_scatter"
    return "gather_scatter" if "gather" in text or "scatter" in text else "elementwise"
