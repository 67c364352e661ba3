"""Rules for the kernels that frameworks write or generate: XLA, Triton, PyTorch, CUB, Thrust, FBGEMM.

Most of them multiply no matrices. XLA's and Inductor's fusions carry the kind of loop in their name; what a
`gemm_fusion` or a nameless `fusion` multiplies, and in what precision, only their HLO or shapes can say.
"""

from __future__ import annotations

import re

from mpprof.analysis.kernels.name_parts import Card, Name, operands, types_in, values
from mpprof.analysis.kernels.op_types import family_of
from mpprof.analysis.kernels.rule import Rule, Said, always, family_rule, floats, ordinary, plain
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Placement, Precision

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
    ("pool", """max_pool maxpool avg_pool avgpool average_pool averagepool max_unpool
        adaptivemax adaptiveaverage adaptive_average"""),
    ("other", "upsample grid_sampl interpolat"),
    ("cast", "bfloat16_copy float16_copy float8_copy half_copy _to_hfp8 hfp8_to"),
    ("elementwise", "masked_fill"),
    ("layout", """catarray transpose permute flip roll_cuda pad2d pad3d pad1d replication_pad _padding triu tril unfold
        split_with_sizes chunk_cat copy_device_to_device direct_copy copy_kernel"""),
    ("gather_scatter", """index gather scatter embedding searchsorted sort topk nonzero unique masked_select take_
        put_ krn_partial compute_grad_weight repeat_interleave compute_cuda_kernel bucketize kthvalue mode_kernel
        histogram bincount radix to_dense coalescevalues convert_indices reverse_indices computeblockwise
        compute_mode adjacent_difference flag_kernel compute_agg write_indices"""),
    ("reduce", """reduce nll_loss cumsum cumprod scan _sum norm_kernel argmax argmin cross_entropy logsumexp mean
        classnll renorm norm_cleanup marginloss margin_loss ctc_loss cdist pdist qparams quantizationparams
        movingaverageminmax lpmax transform_vals"""),
    ("memset", "fillfunctor fill_kernel write_fill"),
    ("elementwise", """elementwise elemwise op_dense pointwise vectorized unrolled arange linspace range eye glu functor where clamp
        bias activation rotary rope lerp addcmul addcdiv logit mse"""),
    ("gather_scatter", "op_intersection per_sample_weights num_of_segments num_of_partial_segments matrix_indices sparse"),
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
    if "2col" in name.head or "2im" in name.head:
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
        "at::cuda::(anonymous namespace)::spin_kernel(long)",
    ),
    Rule(
        "torch-native", r"^at::|^native::", _torch,
        "PyTorch's own kernel: its functor says what it does", _TORCH, "all",
        "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, at::detail::Array<char*, 3>>(int)",
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
        "NVIDIA/Fuser csrc/scheduler/scheduler_types.h", "Volta and later", "nvfuser_inner_persistent_f12_c1_r0_g3(Tensor<__half, 2, 2>, Tensor<__half, 2, 2>)",
    ),
    Rule(
        "triton-dot", r"^(?:triton_)?gemm_fusion\w*|^(?:triton_)?nested_gemm_fusion\w*|^dot_fusion\w*|^triton_(?:mm|bmm|dot|addmm|gemm)\w*|_dot_fusion\w*", _triton_dot,
        "a Triton product: whether it runs on the matrix units depends on its types, which are in the HLO",
        _XLA, "Ampere and later", "gemm_fusion_dot_5",
    ),
    Rule(
        "inductor", r"triton_(?P<kind>poi|red|per|tem|for)_fused\w*|triton_(?P<kind2>x)y", lambda n, m, c: _inductor(n, m, c) if m["kind"] else None,
        "Inductor states the kind of loop: pointwise, reduction, persistent reduction, or a template",
        "pytorch/pytorch torch/_inductor/codegen/triton.py", "Volta and later", "triton_poi_fused_add_mul_0",
    ),
    Rule(
        "triton-softmax", r"triton_softmax\w*", plain("softmax"), "XLA's softmax and norm fusion: reductions and pointwise",
        _XLA, "Ampere and later", "triton_softmax_computation_2",
    ),
    Rule(
        "xla-wrapped", r"^wrapped_(?P<opcode>[a-z_\-]+?)(?:[._]\d+)*$", _wrapped, "one HLO instruction as a kernel, named by its opcode",
        _XLA, "all", "wrapped_transpose_3",
    ),
    Rule(
        "xla-loop-fusion", r"^(?:loop|input)_(?:[a-z0-9_\-]*_)?fusion(?:[._]\d+)*$", _fusion,
        "XLA's loop and reduction emitters: they hold no matrix product", _XLA, "all", "loop_add_multiply_fusion_2",
    ),
    Rule(
        "xla-named-fusion", r"^(?:reduce|transpose|copy|convert|broadcast|select|concatenate|add|multiply|subtract|divide|scatter|gather|slice|pad|tanh|exponential|maximum|compare)(?:_[a-z0-9_]+)?_fusion(?:[._]\d+)*$",
        _fusion, "an XLA fusion named by its instructions, none of them a product", _XLA, "all", "transpose_copy_fusion.3",
    ),
    Rule(
        "xla-helper", r"^redzone_?check\w*|^repeatbuffer\w*|^(?:input_)?reduce-window\w*|^select_and_scatter\w*|^sort(?:[._]\d+)+$|^rng_bit_generator\w*|^make_?batch_?pointers\w*|^delay_?kernel\w*|^buffer_?compar\w*|xla_fp_comparison|^copy(?:[._]\d+)+$|^broadcast(?:[._]\d+)+$",
        plain("other"), "a helper of XLA's runtime or a single instruction", _XLA, "all", "RepeatBufferKernel",
    ),
    Rule(
        "cub", r"(?:\bcub::(?:\w+::)*\w*?|(?:^|::)device)(?P<what>reducebykey|radixsort|segmentedsort|mergesort|batchmemcpy|reduce|scan|select|histogram|runlength|compact|partition|uniquebykey|transform|for_?each|static_kernel|copy|merge|topk|adjacent|empty)\w*kernel\w*$|\bcub::(?:\w+::)*for_each::\w+$",
        lambda name, match, card: Said("not_matmul", operands(floats(name)), _cub_family(match["what"])),
        "named as CUB names its primitives (Device…Kernel): sorting, scanning, reducing, selecting", "NVIDIA/cccl cub", "all",
        "void cub::CUB_200400___CUDA_ARCH_LIST___NS::DeviceReduceKernel<cub::CUB_200400___CUDA_ARCH_LIST___NS::DeviceReducePolicy<float, int, cub::Sum>::Policy600, float const*, float*>(float const*)",
    ),
    Rule(
        "thrust", r"\bthrust::(?:\w+::)*_kernel_agent\s*<[^<]*?(?P<what>parallelfor|reducebykey|reduce|drain|scanbykey|scan|uniquebykey|unique|partition|copyif|setop|merge|blocksort|sort|init|extrema)\w*agent",
        lambda name, match, card: Said("not_matmul", operands(floats(name)), _thrust_family(match["what"], name.text)),
        "an algorithm of Thrust, named by its agent", "NVIDIA/cccl thrust/system/cuda/detail", "all",
        "void thrust::cuda_cub::core::_kernel_agent<thrust::cuda_cub::__parallel_for::ParallelForAgent<thrust::cuda_cub::__fill::functor<float>>>()", whole=True,
    ),
    Rule(
        "fbgemm-bmm", r"\b(?:jagged_(?:dense|jagged)_bmm|(?:outer_prod|dense_vec)_jagged_2d\w*)(?:_kernel)?", ordinary("gemm"), "a product with a jagged tensor: ordinary arithmetic",
        "pytorch/FBGEMM fbgemm_gpu/src/jagged_tensor_ops", "all", "void fbgemm_gpu::jagged_dense_bmm_kernel<32, 32, 8, 4, 4, int, float>(float const*)",
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
        "void vllm::rms_norm_kernel<c10::BFloat16, 8, 2>(c10::BFloat16*, c10::BFloat16 const*, long, float, int, int)",
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
        "void (anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out()>(int)",
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


# --- Rules for Google's matrix units, for communication and for copies.


def _mxu(name: Name, match: re.Match[str], card: Card) -> Said | None:
    if card.vendor != "google":
        return None
    return Said("matrix_core", operands(name.types()), "gemm" if "dot" in match.group() else "conv_fprop")


_COPY = always("not_matmul", "unknown", "copy")

_SENT: dict[str, Precision] = {
    "f32": "fp32", "float": "fp32", "f16": "fp16", "half": "fp16", "bf16": "bf16", "__nv_bfloat16": "bf16",
    "f64": "fp64", "double": "fp64", "f8e4m3": "fp8", "f8e5m2": "fp8",
}  # fmt: skip
_SUMS = r"_(?:sum|prod|min|max|minmax|premulsum|sumpostdiv)_(\w+?)(?=_ring|_tree|_nvls|_collnet|_ll|\b)"


def _collective(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what a collective's name says: one that computes states the type that it sends."""
    found = re.search(_SUMS, name.text)
    return Said("not_matmul", _SENT.get(found[1], "unknown") if found else "unknown", "comm")


_MEMSET = always("not_matmul", "unknown", "memset")

MATRIX_RULES: tuple[Rule, ...] = (
    Rule(
        "mxu", r"^%?(?:convolution|dot)(?:[._][\w.]*)?$", _mxu, "on a TPU convolutions and dots run on the matrix unit (MXU)",
        "openxla/xla, Google Cloud TPU system architecture", "TPU v2 and later", "",
    ),
)  # fmt: skip

_HLO = r"^%?(?:[\w.-]+ = .*? )?"
"""XLA on a TPU writes the whole instruction: `%copy-done.2 = f32[8]{0} copy-done((f32[8]{0}, u32[]) %copy-start.2)`."""
_ENDS = r"(?:\.\d+)*(?:\(|$)"

MOVE_RULES: tuple[Rule, ...] = (
    Rule(
        "hlo-collective",
        r"^(?!.*is_host_transfer=true)%?(?:[\w.-]+ = .*? )?(?:(?:ragged-)?all-(?:reduce|gather|to-all)|reduce-scatter|collective-(?:permute|broadcast)|send|recv)(?:-start|-done)?" + _ENDS
        + r"|^%?[\w.-]*(?:all-(?:reduce|gather|to-all)|reduce-scatter|collective-)[\w.-]* = .*? async-(?:start|update|done)\(",
        always("not_matmul", "unknown", "comm"), "communication between devices, or (-done) the wait for its start half", "openxla/xla HLO opcodes", "all",
        "%all-reduce-done.1 = f32[1024]{0} all-reduce-done(f32[1024]{0} %all-reduce-start.1)", whole=True,
    ),
    Rule(
        "hlo-copy", _HLO + r"(?:copy|(?:dynamic-)?(?:update-)?slice|async|send|recv)-(?:start|update|done)" + _ENDS,
        _COPY, "a copy beside other work, or (-done) the wait for its start half", "openxla/xla HLO opcodes", "all",
        "%copy-done.2 = f32[1024]{0:T(8,128)} copy-done((f32[1024]{0:T(8,128)}, f32[1024]{0:T(8,128)S(5)}, u32[]) %copy-start.2)", whole=True,
    ),
    Rule(
        "nccl", r"\b[nr]ccl(?:dev)?kernel\w*|\b[nr]ccl\w*(?:allreduce|allgather|reducescatter|broadcast|sendrecv|alltoall|reduce)\w*|\bmscclkernel\w*|oneccl\w*",
        _collective, "a collective of NCCL or RCCL: those that sum state the type", "NVIDIA/nccl src/device", "all",
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    ),
    Rule(
        "collective", r"multimem_\w*|\b(?:one|two)_?shot_all_?reduce\w*|cross_device_reduce\w*|\bnvshmem(?!\w*gemm)\w*|\buserbuffers_\w*|\bsymmetric_memory::(?:\w+::)*(?:barrier|put_signal|wait_signal)_kernel|(?:lamport|trtllm)_?\w*all_?reduce\w*|\ball_?reduce_\w*|all_?gather\w*kernel|reduce_?scatter\w*kernel|all_?to_?all\w*$|allreduce\w*kernel\w*",
        always("not_matmul", "unknown", "comm"), "communication between devices", "pytorch/pytorch symm_mem; deepseek-ai/DeepEP; vllm-project/vllm",
        "all", "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
    ),
    Rule(
        "expert-parallel", r"\b(?:cached_)?notify_(?:dispatch|combine)\b|\b(?:intranode|internode(?:_ll)?|low_latency|\w*_ep|ep|pplx)::(?:\w+::)*(?:hybrid_)?(?:cached_notify|dispatch|combine)\w*|\bdeep_ep::(?:\w+::)*(?:barrier|clean_\w+|pp_(?:send|recv)_impl|engram_fetch\w*)|(?<![a-z])ep(?:dispatch|combine)(?!quantize)\w*|\bmoea2a(?:prepare)?(?:dispatch|combine)kernel",
        always("not_matmul", "unknown", "comm"), "sends tokens to the devices of their experts, or their results back", "deepseek-ai/DeepEP csrc/kernels; ROCm/mori src/ops/dispatch_combine; flashinfer-ai/flashinfer moeAlltoAllKernels.cu",
        "Hopper and later; gfx942 and later", "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)",
    ),
    Rule(
        "memcpy", r"^\[?(?:cuda |hip )?memcpy|^memcpy\w*|^copy(?:devicetodevice|hosttodevice|devicetohost)|__amd_rocclr_copy\w*|^memcpy32_post|^hipmemcpy\w*|^infeed|^outfeed|^d2d|^h2d|^d2h",
        _COPY, "a copy", "CUPTI and ROCm activity names", "all", "Memcpy HtoD (Pinned -> Device)",
    ),
    Rule(
        "memset", r"^\[?(?:cuda |hip )?memset|__amd_rocclr_fill\w*|^memset\w*|^fillbuffer\w*", _MEMSET, "a memset",
        "CUPTI and ROCm activity names", "all", "Memset (Device)",
    ),
)  # fmt: skip


# --- Rules for the kernels of language models: DeepGEMM, Marlin, CuTe DSL, vLLM's attention, quantisation.
#
# Such libraries write for the Tensor Cores directly, so their sources tell what their names leave out.


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


LANGUAGE_RULES: tuple[Rule, ...] = (
    Rule(
        "triton-matmul", r"^_(?:p_)?matmul(?:_ogs)?_[nt]{3}_[a-z0-9]+?x(?P<x>(?:mx)?[a-wyz]+\d+\w*?)x(?P<w>(?:mx)?[a-wyz]+\d+\w*?)_\d+x\d+x\d+", _matmul_ogs,
        "a product of triton_kernels, which states the types of its result, activations and weights", "triton-lang/triton python/triton_kernels/triton_kernels/matmul_ogs_details/_common.py",
        "Hopper and later; gfx942 and later", "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x128x256x1_swiglu",
    ),
    Rule(
        "triton-matmul-helper", r"^_finalize_matmul\w*", plain("gather_scatter"), "adds up and scatters what a product of triton_kernels left",
        "triton-lang/triton python/triton_kernels/triton_kernels/matmul_ogs_details/_finalize_matmul.py", "Hopper and later; gfx942 and later", "_finalize_matmul_scatter_bf16",
    ),
    Rule(
        "triton-kernel", r"^_?attn_(?:fwd|bwd(?:_dq|_dkdv|_dk_dv)?)(?:_(?:inner|tma|ws|persistent))*$|^bwd_kernel_(?:dk_dv|dq|fuse)$|^kernel_unified_attention_[23]d$|^(?P<product>fused_moe_kernel(?:_gptq_awq)?|_w8a8_block_(?:fp8|int8)_matmul\w*)$", _triton_product,
        "a kernel in Triton whose products are tl.dot", "triton-lang/triton python/tutorials/06-fused-attention.py; ROCm/flash-attention flash_attn_triton_amd; ROCm/aotriton v2src/flash; vllm-project/vllm vllm/attention/ops/triton_unified_attention.py, model_executor/layers/fused_moe",
        "Ampere and later; gfx90a and later", "kernel_unified_attention_3d",
    ),
    Rule(
        "triton-attention-helper", r"^(?:_?attn_)?bwd_preprocess(?:_varlen)?$|^reduce_segments$", plain("attention"), "prepares or adds up parts around an attention kernel in Triton",
        "triton-lang/triton python/tutorials/06-fused-attention.py; vllm-project/vllm vllm/attention/ops/triton_unified_attention.py", "all", "reduce_segments",
    ),
    Rule(
        "deep-gemm-helper", r"deep_gemm::(?:\w{1,40}::)?(?:transpose|pack|smxx_|clean_logits|get_\w{0,40}layout)\w*",
        plain("layout"), "prepares operands or scales for DeepGEMM: no product", "deepseek-ai/DeepGEMM deep_gemm/include",
        "Hopper, Blackwell", "void deep_gemm::transpose_fp32<512u, 64u, 28u>(float const*, float*, unsigned int)",
    ),
    Rule(
        "deep-gemm", r"(?:sm\d+_|deep_gemm::)(?:m_grouped_|k_grouped_)?(?:fp8_fp4|fp8|bf16|fp4|tf32)_\w{0,40}?(?:gemm|bmm|bhr|einsum|mqa_logits|mega_moe)\w*|^(?:m_grouped_|k_grouped_)?(?:fp8|bf16)_(?:m_grouped_|k_grouped_)?gemm\w{0,80}(?:impl|kernel)",
        _deep_gemm, "DeepGEMM multiplies by wgmma or tcgen05 only", "deepseek-ai/DeepGEMM deep_gemm/include",
        "Hopper, Blackwell", "void deep_gemm::fp8_gemm_kernel<4096u, 7168u, 128u, 128u>(__nv_bfloat16*)",
    ),
    Rule(
        "marlin", r"^marlin$|\bmarlin\w{0,40}::marlin(?:_24|_qqq|moe)?$", _marlin,
        "Marlin unpacks narrow weights and multiplies them by mma.m16n8k16 (m16n8k8 on Turing)",
        "IST-DASLab/marlin; vllm-project/vllm csrc/quantization/marlin", "Turing and later",
        "void marlin_moe_wna16::Marlin<__nv_bfloat16, 1125899907892224l, 256, 1, 8, 8, false, 4, 8, false>(int4 const*)",
    ),
    Rule(
        "cute-dsl", r"^kernel_cutlass_\w{0,400}?mmaatom\w{0,60}?shapemnk(?P<shape>\d+)", _cute_dsl,
        "a kernel of CuTe DSL, which names its MMA atom", "NVIDIA/cutlass python/CuTeDSL", "Ampere to Blackwell",
        "kernel_cutlass_kernel___main__DenseGemmKernel_object_at__TiledMMA_ThrLayoutVMNK21111000_PermutationMNK____MMAAtom_ThrID21_ShapeMNK25612816_TVLayoutA",
    ),
    Rule(
        "cute-dsl-blackwell", r"^kernel_cutlass_\w{0,400}?sm1\d\dblockscaled\w*", always("tensor_core", "unknown", "gemm"),
        "CuTe DSL's block-scaled products exist as tcgen05 instructions only", "NVIDIA/cutlass examples/python/CuTeDSL/blackwell",
        "Blackwell", "kernel_cutlass_kernel_bs_gemm_exampleSm100BlockScaledPersistentDenseGemmKernel_object_at__0",
    ),
    Rule(
        "paged-attention", r"paged_attention_(?:v1|v2|ll4mi)\w*", _paged_attention,
        "vLLM's own decode attention takes dot products with ordinary arithmetic",
        "vllm-project/vllm csrc/attention/attention_kernels.cuh, csrc/rocm/attention.cu", "Volta and later",
        "void vllm::paged_attention_v2_kernel<__nv_bfloat16, __nv_bfloat16, 128, 16, 128, 0, false>(float*)",
    ),
    Rule(
        "awq", r"gemm_forward_4bit_cuda_m16n\w*", _half_mma, "AWQ unpacks 4-bit weights and multiplies them by mma.m16n8k16",
        "mit-han-lab/llm-awq awq/kernels/csrc", "Ampere and later",
        "gemm_forward_4bit_cuda_m16n128k32(int, __half*, int*, __half*, int*, int, int, int, __half*)",
    ),
    Rule(
        "half-fma-gemm", r"gemm_half_q_half\w*|kgemm_4bit_inference_naive\w*", ordinary("gemm"),
        "unpacks narrow weights and multiplies them with half2 arithmetic", "turboderp/exllama; bitsandbytes csrc/kernels.cu",
        "Pascal and later", "void vllm::gptq::gemm_half_q_half_gptq_4bit_kernel<true, 8>(__half const*)",
    ),
    Rule(
        "ggml-attention", r"\bflash_attn_(?P<how>vec_|tile_)?ext_f(?:16|32)", _ggml_attention,
        "llama.cpp's attention: wmma or mma, its vector and tile variants ordinary arithmetic",
        "ggml-org/llama.cpp ggml/src/ggml-cuda/fattn*.cu", "Volta and later", "void flash_attn_ext_f16<128, 128, 8, 8>(char const*)",
    ),
    Rule(
        "sage-attention", r"\bqk_int[48]_sv_f(?:8|16)\w*", always("tensor_core", "mixed", "attention"),
        "SageAttention multiplies Q and K as int8 or int4 and P and V as fp16 or fp8, all by mma", "thu-ml/SageAttention csrc/qattn",
        "Ampere and later", "void qk_int8_sv_f8_accum_f32_fuse_v_scale_attn_kernel<128, 64, 32, 64, 128>(signed char*)",
    ),
    Rule(
        "quantise-kernel", r"^(?!\S*(?:gemm|matmul|moe|dot))\S*per_(?:token|tensor|channel|block)\w*_quant\w*", plain("cast"),
        "converts to a narrow type with a scale per group", "sgl-project/sglang sgl-kernel; vllm-project/vllm csrc/quantization", "Ampere and later",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16, c10::Float8_e4m3fn>(void const*, void*, float*, int)",
    ),
    Rule(
        "fermi-gemm", r"\bfermi(?:plus)?(?P<letter>[cs])gemm\w*", lambda n, m, c: Said("cuda_core", "fp32", "conv_fprop" if m["letter"] == "c" else "gemm", "fp32"),
        "cuBLAS' kernels from Fermi's days, which cuDNN's FFT convolutions still use: ordinary arithmetic",
        "NVIDIA/apex PyProf pyprof/prof/conv.py", "all", "void fermiPlusCgemmLDS128_batched<true, false, false, false, 4, 4, 4, 3, 3, true, false>(float2**)",
    ),
    Rule(
        "upsample", r"^(?:nearest_neighbor|bilinear_interp|upsample)\w*", plain("other"), "resizes an image",
        "pytorch/pytorch aten/src/THCUNN", "all", "void nearest_neighbor_4d_kernel<float, float>(int, THCDeviceTensor<float, 4>)",
    ),
)  # fmt: skip
