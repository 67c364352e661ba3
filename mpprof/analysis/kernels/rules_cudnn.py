"""Rules for cuDNN's own kernels and for attention libraries (Flash Attention, fmha, xformers, cuDNN)."""

from __future__ import annotations

import re
from dataclasses import replace

from mpprof.analysis.kernels.name_parts import Card, Name, operands, types_in
from mpprof.analysis.kernels.rule import Rule, Said, convolution, floats, helper, ordinary, plain

_CUDNN = "NVIDIA traces of cuDNN 7 to 9 (pytorch/kineto, HolisticTraceAnalysis)"
_FLASH = "Dao-AILab/flash-attention csrc and hopper"


def _around(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name of a convolution's helper says: the direction comes from its name, the precision
    from its types."""
    return Said("not_matmul", operands(name.types()), convolution(name.text))


def _direct(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name of an older cuDNN convolution says. `grouped_direct` is chosen for plain
    convolutions too, of few channels."""
    said = Said("cuda_core", operands(name.types()), convolution(name.head))
    if "grouped_direct" not in match.group():
        return said
    text = "cuDNN's direct kernel, for plain convolutions as for grouped ones: ordinary arithmetic by its counters on A100"
    return replace(said, text=text)


def _transform(name: Name, match: re.Match[str], card: Card) -> Said:
    kind = "a Winograd" if "winograd" in match.group() else "an FFT"
    text = f"a transform of {kind} convolution: a helper, the product is another kernel"
    return Said("not_matmul", operands(name.types()), convolution(name.text), None, "", text)


def _converts(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return a cast, unless both types are one: cuDNN then rounds float32 to TF32, in float32's bytes, for the
    convolution that it belongs to."""
    types = re.search(r"converttensor_kernel<(\w+), (\w+)", name.text)
    if types is None or types[1] != types[2]:
        return Said("not_matmul", operands(name.types()), "cast")
    text = "rounds the operand of a convolution to TF32: a helper, the product is another kernel"
    return Said("not_matmul", operands(name.types()), convolution(name.text), None, "", text)


def _attention(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name of an attention kernel says whose sources multiply by MMA only; on AMD the same
    library runs on MFMA."""
    if re.search(_AROUND_ATTENTION, name.text[match.start() : match.end() + 60]):
        text = "prepares or combines around an attention kernel: no product of its own"
        return Said("not_matmul", operands(floats(name)), "attention", None, "attention-helper", text)
    types = tuple(
        t
        for t in types_in(name.text.replace("qkve4m3", " e4m3 ").replace("qkvbfloat16", " bf16 "))
        if t != "fp32"
    )
    if "qkve4m3" in name.text:
        types = ("fp8",)
    elif "kvcache" in name.text and not {"fp16", "bf16"}.isdisjoint(types):
        types = tuple(t for t in types if t != "fp8")  # what the cache stores, not what is multiplied
    precision = operands(types)
    if card.vendor == "amd":
        return Said("matrix_core", precision, "attention")
    return Said("tensor_core", precision, "attention", "fp32")


_AROUND_ATTENTION = r"combine|preprocess|postprocess|convert"


def _attention_helper(name: Name, match: re.Match[str], card: Card) -> Said | None:
    if not any(
        word in name.head for word in ("flash", "attn", "attention", "fmha", "mla_", "cudnn::fusion::co")
    ):
        return None
    return Said("not_matmul", operands(floats(name)), "attention")


def _mem_efficient(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what `fmha_cutlass[FB]_<type>_(aligned|notaligned)_…_sm<cc>` of PyTorch and xformers says.

    Their default gemm types: simt below sm70; Tensor Cores for 16-bit from sm70; for float32 only from
    sm80 (three TF32 products).
    """
    precision = operands(types_in(match["type"]))
    cc = int(match["cc"])
    text = f"memory-efficient attention built for sm{cc} with {match['type']}"
    if cc >= 80 or (cc >= 70 and precision in ("fp16", "bf16")):
        return Said(
            "tensor_core", "tf32" if precision == "fp32" else precision, "attention", "fp32", "", text
        )
    return Said("cuda_core", precision, "attention", None, "", text)


def _xformers(name: Name, match: re.Match[str], card: Card) -> Said:
    types = tuple(t for t in name.types())
    narrow = tuple(t for t in types if t != "fp32")
    cc = int(match["cc"])
    if narrow and cc >= 70:
        return Said("tensor_core", operands(narrow), "attention", "fp32")
    if not narrow and cc >= 80:
        return Said("tensor_core", "tf32", "attention", "fp32")
    return Said("cuda_core", operands(types), "attention")


_SIXTEEN_BITS = r"(?<![a-z0-9])f16(?![a-z0-9])"


def _generated(name: Name, match: re.Match[str], card: Card) -> Said | None:
    """Return what `cudnn_generated_fort_native_<op>_sm<cc>_…` says: the name of an engine that cuDNN 8.9 and
    9 compile at run time.

    `f16` in these names stands beside bfloat16 operands too: it means 16 bits and no type.
    """
    text = name.head
    said = _engine(text)
    if said is None:
        return None
    if re.search(_SIXTEEN_BITS, text):
        return replace(said, text=f"{said.text}; its f16 means 16 bits, half or bfloat16")
    matrix = said.placement == "tensor_core"
    return replace(said, precision=operands(t for t in types_in(text) if not (matrix and t == "fp32")))


def _engine(text: str) -> Said | None:
    """Return what a generated engine does, by the words of its name, apart from its types."""
    if "sdpa" in text or "flash" in text or "attention" in text or "mha" in text:
        reason = "cuDNN's generated attention kernel"
        return Said("tensor_core", "unknown", "attention", "fp32", "cudnn-sdpa", reason)
    if "norm" in text or "bn_" in text:
        return Said("not_matmul", "unknown", "norm", None, "cudnn-norm", "cuDNN's generated norm kernel")
    if re.search("conv|gemm|matmul|grad|fprop", text):
        family = convolution(text) if re.search("conv|grad|fprop", text) else "gemm"
        if "mma" in text or "tensor" in text:
            reason = "a generated engine that states mma"
            return Said("tensor_core", "unknown", family, None, "cudnn-mma", reason)
        runtime = "cuDNN's run-time fusion engines for products use Tensor Cores only (cuDNN developer guide)"
        return Said("tensor_core", "unknown", family, None, "cudnn-runtime-fusion", runtime)
    if "reduc" in text:
        return Said("not_matmul", "unknown", "reduce", None, "cudnn-pointwise", "a generated reduction")
    if "pointwise" in text or "elementwise" in text:
        return Said("not_matmul", "unknown", "elementwise", None, "cudnn-pointwise", "generated, pointwise")
    return None


def _rnn(name: Name, match: re.Match[str], card: Card) -> Said:
    if "hmma" in match.group():
        return Said("tensor_core", operands(name.types()), "rnn", None, "cudnn-mma", "the name states HMMA")
    if not re.search(r"(?:lstm|gru|relu|tanh)$", match.group()):
        reason = "a persistent recurrent kernel; its name ends before the place where HMMA would stand"
        return Said("unknown", operands(name.types()), "rnn", None, "rnn-unstated", reason)
    text = "a persistent recurrent kernel without HMMA, which those on Tensor Cores state"
    return Said("cuda_core", operands(name.types()), "rnn", None, "cudnn-fma", text)


def _listed(name: Name, match: re.Match[str], card: Card) -> Said:
    """Return what the name of a kernel says that NVIDIA's own PyProf lists as a Tensor Core kernel, though
    its name states no instruction.

    The list is from Volta and Turing, which multiply half only: it tells nothing of float32, which these
    kernels multiplied with ordinary arithmetic.
    """
    precision = operands(name.types())
    family = convolution(name.head)
    if precision in ("fp32", "fp64"):
        return Said("cuda_core", precision, family, None, "cudnn-fma", "a float32 kernel from before TF32")
    if precision in ("fp16", "bf16", "int8"):
        return Said("tensor_core", precision, family)
    return Said("unknown", precision, family)


ATTENTION_RULES: tuple[Rule, ...] = (
    Rule(
        "attention-helper", r"combine|preprocess|postprocess|dot_do_o|convert_dq|convert_dkv|convertqgrad|ograddoto|compute_delta|prepare_varlen|scheduler_metadata|mla_metadata|reduction|rng_state",
        _attention_helper, "prepares, converts or combines partial results of an attention kernel",
        _FLASH, "Ampere and later", "void flash::flash_bwd_dot_do_o_kernel<true, Flash_bwd_kernel_traits<64, 128, 128, 8, cutlass::half_t>>()",
    ),
    Rule(
        "cudnn-generated", r"cudnn_generated_\w+", _generated, "", "NVIDIA cuDNN 8.9 and 9 release notes; traces",
        "Ampere to Blackwell", "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3_64x64x128_4x1x1_cga1x1x1_kernel0_0",
    ),
    Rule(
        "flash-attention", r"flash_(?:fwd|bwd)\w{0,80}kernel|flash_(?:fwd|bwd)_(?:hdim|splitkv)|flashattn(?:fwd|bwd)\w*|flash::compute_(?:attn|dq_dk_dv)\w*|flash_attn\w{0,60}_(?:fwd|bwd)\w*|flash_attention_(?:fwd|bwd|fprop|bprop)\w*|fmha_v2_flash_attention\w*|flashattention(?:forward|backward)\w*|batchprefillwith\w*kernel|singleprefillwith\w*kernel|flash_(?:fprop|bprop)_\w*|flashattention\w{0,80}wgmma",
        _attention, "Flash Attention multiplies 16-bit or fp8 tiles by mma or wgmma only",
        _FLASH, "Ampere, Hopper, Blackwell",
        "void flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128, 128, 4, false, false, cutlass::bfloat16_t>>(flash::Flash_fwd_params)", whole=True,
    ),
    Rule(
        "memory-efficient-attention", r"fmha_cutlass[fb]_(?P<type>f32|f16|bf16)_(?:aligned|notaligned)_.{0,200}?sm(?P<cc>\d+)", _mem_efficient, "",
        "pytorch/pytorch aten/src/ATen/native/transformers/cuda/mem_eff_attention", "Maxwell to Hopper",
        "fmha_cutlassF_f16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::half_t>::Params)",
    ),
    Rule(
        "xformers-attention", r"attention(?:backward)?kernel<.{0,400}?arch::sm(?P<cc>\d+)", _xformers,
        "a CUTLASS attention kernel: its operands and the generation it was built for",
        "facebookresearch/xformers csrc", "Volta to Hopper",
        "void attention_kernel_batched_impl<AttentionKernel<cutlass::half_t, cutlass::arch::Sm80, true, 64, 64, 64, true, true>>(T1::Params)", whole=True,
    ),
    Rule(
        "fmha", r"fmha_(?:fwd|bwd|fprop|dgrad|block_dgrad|v2)\w*|fmha_kernel_traits|fmhasm\d+\w*kernel|fmha(?:fwd|bwd)(?!convert|ograd)\w*|sm\d+fmha\w*",
        _attention, "fused multi-head attention written in mma instructions",
        "NVIDIA/apex contrib/fmha; NVIDIA/TensorRT-LLM trtllm-gen fmha", "Ampere to Blackwell",
        "void fmha_fwd_loop_kernel<FMHA_kernel_traits<128, 64, 16, 1, 4, 8u, __half>, false, false, false>(FMHA_fprop_params)", whole=True,
    ),
)  # fmt: skip

RULES: tuple[Rule, ...] = (
    Rule(
        "xmma-prepare", r"strided_dgrad_indexed::kernel_helper_\w+|\binit_device_workspace_kernel", _around,
        "prepares the work of an xmma convolution: no product", "traces of cuDNN 9 (JAX on H100)", "Ampere, Hopper",
        "void xmma__5x_cudnn::implicit_gemm::strided_dgrad_indexed::kernel_helper_stage_1<xmma__5x_cudnn::implicit_gemm::strided_dgrad_indexed::Params_pre_hopper>(int)",
    ),
    Rule(
        "cudnn-convert", r"\bconverttensor_kernel", _converts, "converts a tensor", "traces of cuDNN 9 (JAX on H100)", "all",
        "void cudnn::engines_precompiled::convertTensor_kernel<float, float, float, (cudnnKernelDataType_t)2>(float, float const*, float, float*, unsigned long)",
    ),
    Rule(
        "region-transform", r"\bregion_transform_abc_val", plain("layout"), "moves the tiles of two matrices between the parts of an FFT convolution",
        "kernels counted on H100 (cuDNN 9)", "all",
        "void internal::region_transform_ABC_val<int, 32, 32, 0, internal::TransformParamsABC<float2, internal::TiledMatrixStridedBatch<internal::RawData<const float2, int>>>>(T5)",
    ),
    Rule(
        "conv-offsets", r"compute\w*offsets?kernel\w*|kern_precompute_indices|computewgrad\w*offset\w*|splitkoffsets|init_device_mask_mapper\w*|cudnn\w*::gemm::computeoffsets",
        _around, "precomputes indices for a convolution: no product", _CUDNN, "all",
        "void cask_cudnn::computeOffsetsKernel<false, false>(cask_cudnn::ComputeOffsetsParams)",
    ),
    Rule(
        "conv-transform", r"generatewinogradtiles\w*|winograd(?:forward|wgrad|backward)?(?:data|filter|output|delta|wgradoutput)\w*|winograd_nonfused|fft[12]d_[rc]2[rc]_\d+|fft[123]d_\w*kernel\w*|flip_filter|pointwise_mult_and_sum_complex|compute_gemm_pointers|rotate\w*filter",
        _transform, "",
        _CUDNN, "all", "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataParams<float, float>)",
    ),
    Rule(
        "cufft", r"(?:vector|regular|composite|multi_bluestein|bluestein)_fft\w*|_fft_(?:factor|kernel)\w*", helper("other"), "a Fourier transform of cuFFT",
        "NVIDIA traces of cuFFT", "all", "void vector_fft<256u, EPT<16u>, 16u, 4u, (padding_t)1, float>(kernel_arguments_t<unsigned int>)",
    ),
    Rule(
        "im2col", r"im[0-9d]*2col\w*|col2im\w*|im2d2col\w*|im3d2col\w*|vol2col\w*|vol2im\w*|col2vol\w*|im2col4d_kernel", _around,
        "copies patches into columns for an explicit-GEMM convolution", _CUDNN + "; ROCm/MIOpen", "all",
        "void cudnn::cnn::im2col4d_kernel<float, long>(cudnn::cnn::im2col4d_params)",
    ),
    Rule(
        "wgrad-reduction", r"reduce_wgrad\w*|wgrad\w*reduc\w*", _around,
        "adds up partial weight gradients: no product", _CUDNN, "all",
        "void cudnn::cnn::reduce_wgrad_nchw_helper<float, float>(void*, void const*, float, int, int)",
    ),
    Rule(
        "cudnn-depthwise", r"(?:conv|dgrad|wgrad)2d_c1_k1\w*", ordinary("depthwise"),
        "one channel per group: cuDNN's depthwise kernels multiply with ordinary arithmetic (0 by counters on A100)",
        "leleucas/Actual-Parameter-Collection-for-Machine-Learning-Operators (A100 counters)", "all",
        "void conv2d_c1_k1_nchw_hw_packed_kernel<float, float, 3>(cudnnTensorStruct)",
    ),
    Rule(
        "cudnn-listed", r"first_layer_(?:fwd|wgrad)\w*|dgrad_1x1_stride_2x2\w*", _listed,
        "NVIDIA's PyProf lists it among the Tensor Core kernels, and its operands are narrow; the name states no instruction", "NVIDIA/PyProf pyprof/prof/tc.py", "Volta, Turing",
        "void cudnn::detail::first_layer_fwd_kernel<__half, 7, 7, 3>(__half const*)",
    ),
    Rule(
        "flashinfer-decode", r"(?:batch|single)decodewith\w*kernel", ordinary("attention"),
        "FlashInfer's decode kernels take dot products with ordinary arithmetic; its prefill kernels use mma",
        "flashinfer-ai/flashinfer include/flashinfer/attention/decode.cuh", "Ampere and later",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<flashinfer::PosEncodingMode, 2, 8, __half>()",
    ),
    Rule(
        "cudnn-direct", r"conv2d_grouped_direct_kernel|implicit_convolve_[a-z]{1,2}gemm|explicit_convolve_[a-z]{1,2}gemm|precomputed_convolve_[a-z]{1,2}gemm|convolvend_\w*(?:engine|gemm)\w*|winograd3x3kernel|(?:dgrad|wgrad)(?:2d|3d)?_(?:alg\d\w*|engine\w*|grouped\w*)|spatial_convolution_2d|\bconvolve_common_engine\w*|convolve_winograd\w*|cudnn::cnn::conv\w*_kernel|conv1d_\w*kernel",
        _direct, "a cuDNN kernel from before Tensor Cores: ordinary arithmetic by its counters on A100",
        "leleucas/Actual-Parameter-Collection-for-Machine-Learning-Operators (A100 counters)", "all",
        "void implicit_convolve_sgemm<float, float, 128, 5, 5, 3, 3, 3, 1, false, false, true>(int, int, int, float const*)",
    ),
    Rule(
        "layout-helper", r"(?:nchw|nhwc|nc(?:d)?hw\w*|n(?:d)?hwc|chwn)_?to_?(?:folded)?(?:n|c)\w*|nhwcaddpadding\w*|nchwaddpadding\w*|addpaddingkernel|cudnn\w*transpose\w*|tensortransformgeneric|transformtensor\w*|foldednhwc\w*|generictranspose\w*",
        plain("layout"), "moves values to another layout", _CUDNN, "all",
        "void cudnn::ops::nchwToNhwcKernel<__half, __half, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<float>)",
    ),
    Rule(
        "cudnn-norm", r"cudnn::\w*(?:bn_|batch_?norm|norm)\w*|\bbn_(?:fw|bw)_\w*|batchnorm_(?:fwtr|bwtr|fw|bw)\w*|nhwc_batch_norm\w*|cudnn\w*norm\w*kernel|\bbatch_norm_\w*",
        plain("norm"), "a batch or layer normalisation of cuDNN", _CUDNN, "all",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<__half, float, int, 512, true, 1, true>(cudnnTensorStruct)",
    ),
    Rule(
        "cudnn-pool", r"pooling_[fb]w\w*|xmma_pooling\w*|cudnn\w*::\w*pool\w*|max_pool\w*|avg_?pool\w*|avepool\w*|maxpool\w*|adaptive_\w*pool\w*|pool\w*(?:forward|backward)\w*", plain("pool"),
        "pooling", _CUDNN + "; pytorch/pytorch; tensorflow/tensorflow", "all",
        "void cudnn::pooling_fw_4d_kernel<__half, float, cudnn::maxpooling_func<__half>, 0, false>(cudnnTensorStruct)",
    ),
    Rule(
        "cudnn-softmax", r"softmax_[fb]w\w*", plain("softmax"), "cuDNN's softmax", _CUDNN, "all",
        "void softmax_fw_kernel_resident<2, float, float>(cudnnTensorStruct, float const*)",
    ),
    Rule(
        "cudnn-pointwise", r"op_generic_tensor_kernel|op_tensor\w*|scalepackedtensor_kernel|add_tensor_kernel\w*|cudnn::ops::\w*(?:scale|add|bias|activation|settensor|op_tensor)\w*|activation_(?:fw|bw)\w*|cudnn::reduced?\w*kernel|settensor\w*|cudnn::ops::\w*reduce\w*",
        plain("elementwise"), "a pointwise helper of cuDNN", _CUDNN, "all",
        "void cudnn::ops::scalePackedTensor_kernel<float, float>(cudnnTensor4dStruct, float*, float)",
    ),
    Rule(
        "rnn-pointwise", r"elemwisernncell\w*|(?:lstm|gru)_elementwise\w*|lstm_gates\w*|gru_cell_\w*|lstm_cell_\w*|lstmgates\w*|(?:lstm|gru)blockcell\w*", plain("rnn"),
        "the pointwise part of a recurrent cell: no product", _CUDNN, "all",
        "void LSTM_elementWise_fp<__half, __half, float, (cudnnRNNBiasMode_t)2>(int, int, int, int)",
    ),
    Rule(
        "rnn-persistent", r"rnn_blockpersist\w*|persistrnn\w*|lstm_persist\w*|rnn_persist\w*", _rnn,
        "a persistent recurrent kernel", _CUDNN, "Pascal and later",
        "void RNN_blockPersist_fp_LSTM<__half, __half, float, 1, 256>(PersistentParams)",
    ),
)  # fmt: skip
