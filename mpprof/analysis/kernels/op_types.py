"""What framework ops do, by their type: the family of TensorFlow, PyTorch, JAX and HLO ops.

Used where a kernel's name says nothing and for the op events of a CPU trace. Only types that are known are
listed; any other has no family.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from mpprof.model.kernels import Family

_LISTS: dict[Family, str] = {
    "gemm": """MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3 Einsum SparseMatMul SparseMatrixMatMul
        UniformQuantizedDot XlaDot XlaDotV2 XlaEinsum dot dot-general dot_general matvec
        aten::mm aten::bmm aten::addmm aten::matmul aten::linear aten::baddbmm aten::addmv aten::_scaled_mm
        aten::_int_mm aten::mv aten::dot aten::addbmm aten::einsum aten::_addmm_activation aten::mkldnn_linear ragged-dot ragged_dot
        onednn-matmul""",
    "conv_fprop": """Conv Conv2D Conv3D Conv1D FusedConv2DBiasActivation UniformQuantizedConvolution XlaConv
        XlaConvV2 convolution conv_general_dilated aten::conv2d aten::convolution aten::_convolution
        aten::cudnn_convolution aten::conv1d aten::conv3d aten::mkldnn_convolution aten::slow_conv2d_forward
        aten::thnn_conv2d aten::_slow_conv2d_forward aten::miopen_convolution aten::slow_conv3d_forward onednn-conv""",
    "conv_dgrad": """Conv2DBackpropInput Conv2DBackpropInputV2 Conv3DBackpropInput Conv3DBackpropInputV2
        Conv2DTranspose aten::cudnn_convolution_backward_input aten::convolution_backward""",
    "conv_wgrad": """Conv2DBackpropFilter Conv2DBackpropFilterV2 Conv3DBackpropFilter Conv3DBackpropFilterV2
        aten::cudnn_convolution_backward_weight""",
    "depthwise": """DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput
        DepthwiseConv2dNativeBackpropFilter DepthwiseConv2D aten::_conv_depthwise2d aten::conv_depthwise3d""",
    "attention": """Mha MhaV2 aten::_scaled_dot_product_flash_attention aten::_flash_attention_forward
        aten::_scaled_dot_product_efficient_attention aten::_efficient_attention_forward
        aten::_scaled_dot_product_cudnn_attention aten::_scaled_dot_product_flash_attention_for_cpu
        aten::_scaled_dot_product_flash_attention_for_cpu_backward
        aten::_scaled_dot_product_flash_attention_backward aten::_flash_attention_backward
        aten::_scaled_dot_product_efficient_attention_backward aten::_efficient_attention_backward
        aten::_scaled_dot_product_cudnn_attention_backward dot_product_attention""",
    "rnn": """CudnnRNN CudnnRNNV2 CudnnRNNV3 CudnnRNNBackprop CudnnRNNBackpropV2 CudnnRNNBackpropV3
        BlockLSTM BlockLSTMV2 BlockLSTMGrad BlockLSTMGradV2 LSTMBlockCell LSTMBlockCellGrad GRUBlockCell GRUBlockCellGrad aten::_cudnn_rnn
        aten::_cudnn_rnn_backward aten::mkldnn_rnn_layer aten::mkldnn_rnn_layer_backward""",
    "norm": """FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3 FusedBatchNormGrad FusedBatchNormGradV2
        FusedBatchNormGradV3 InstanceNorm LRN LRNGrad LayerNorm LayerNormGrad L2Normalize batch-norm-training batch-norm-inference batch-norm-grad aten::native_layer_norm
        aten::cudnn_batch_norm aten::native_batch_norm aten::native_group_norm aten::native_layer_norm_backward
        aten::native_batch_norm_backward aten::cudnn_batch_norm_backward aten::native_group_norm_backward
        aten::batch_norm_backward aten::_batch_norm_with_update aten::_fused_rms_norm""",
    "softmax": """Softmax LogSoftmax SoftmaxCrossEntropyWithLogits SparseSoftmaxCrossEntropyWithLogits
        aten::_softmax aten::_log_softmax aten::_softmax_backward_data aten::_log_softmax_backward_data""",
    "pool": """MaxPool MaxPoolV2 MaxPoolGrad MaxPoolGradV2 MaxPoolGradGrad MaxPoolWithArgmax MaxPoolGradWithArgmax AvgPool
        AvgPoolGrad MaxPool3D MaxPool3DGrad AvgPool3D AvgPool3DGrad reduce-window reduce_window
        select-and-scatter aten::max_pool2d_with_indices aten::avg_pool2d
        aten::_adaptive_avg_pool2d aten::max_pool2d_with_indices_backward aten::avg_pool2d_backward
        aten::_adaptive_avg_pool2d_backward aten::mkldnn_max_pool2d aten::mkldnn_max_pool2d_backward
        aten::max_pool3d_with_indices aten::avg_pool3d""",
    "elementwise": """Add AddV2 AddN Sub Mul Div RealDiv FloorDiv Maximum Minimum Neg Abs Sign Square Sqrt Rsqrt
        Exp Expm1 Log Log1p Pow Sin Cos Tan Tanh TanhGrad Sigmoid SigmoidGrad Relu ReluGrad Relu6 Relu6Grad
        LeakyRelu LeakyReluGrad Elu EluGrad Selu SeluGrad Gelu Softplus SoftplusGrad Softsign SoftsignGrad
        BiasAdd BiasAddV1 Select SelectV2 Where Greater GreaterEqual Less LessEqual Equal NotEqual LogicalAnd
        LogicalOr LogicalNot ClipByValue SquaredDifference MulNoNan DivNoNan Xdivy Xlogy Reciprocal Inv
        ReciprocalGrad RsqrtGrad SqrtGrad Erf Erfc Round Floor Ceil FloorMod BitwiseAnd BitwiseOr RightShift
        LeftShift ApproximateEqual OnesLike ZerosLike BroadcastTo Fill Range LinSpace Rint Sinh Cosh Asin Acos
        Atan Atan2 Digamma Lgamma Betainc Swish Mish _UnaryOpsComposition AssignAddVariableOp
        add subtract multiply divide maximum minimum negate abs sign sqrt rsqrt cbrt exponential
        exponential-minus-one log log-plus-one power sine cosine tan tanh logistic compare select and or xor
        not clamp floor ceil round-nearest-afz round-nearest-even remainder atan2 erf is-finite broadcast
        broadcast_in_dim iota map shift-left shift-right-logical shift-right-arithmetic population-count
        count-leading-zeros real imag complex
        aten::add aten::add_ aten::sub aten::mul aten::mul_ aten::div aten::relu aten::gelu aten::silu
        aten::sigmoid aten::tanh aten::exp aten::pow aten::sqrt aten::rsqrt aten::neg aten::where aten::fill_
        aten::zero_ aten::clamp_min aten::threshold_backward aten::gelu_backward aten::masked_fill_ aten::sub_
        aten::div_ aten::abs aten::abs_ aten::sign aten::sgn aten::square aten::reciprocal aten::log aten::log1p
        aten::expm1 aten::exp_ aten::sqrt_ aten::rsqrt_ aten::pow_ aten::neg_ aten::sin aten::cos aten::erf
        aten::floor aten::round aten::clamp aten::clamp_ aten::clamp_min_ aten::clamp_max aten::maximum
        aten::minimum aten::eq aten::ne aten::lt aten::le aten::gt aten::ge aten::isinf aten::isnan
        aten::logical_and aten::logical_or aten::logical_not aten::bitwise_and aten::bitwise_or aten::bitwise_not
        aten::relu_ aten::leaky_relu aten::leaky_relu_backward aten::elu aten::elu_backward aten::hardtanh
        aten::hardtanh_backward aten::hardsigmoid aten::silu_ aten::silu_backward aten::sigmoid_
        aten::sigmoid_backward aten::tanh_ aten::tanh_backward aten::softplus aten::softplus_backward
        aten::mish aten::addcmul aten::addcmul_ aten::addcdiv aten::addcdiv_ aten::lerp aten::lerp_
        aten::masked_fill aten::native_dropout_backward aten::binary_cross_entropy
        aten::binary_cross_entropy_backward aten::mse_loss aten::mse_loss_backward aten::arange aten::full
        aten::full_like aten::fill aten::zeros aten::zeros_like aten::ones aten::ones_like""",
    "reduce": """Sum Mean Max Min Prod All Any ArgMax ArgMin L2Loss BiasAddGrad Cumsum Cumprod SegmentSum
        EuclideanNorm Bincount InTopKV2 reduce reduce-precision variadic-reduce cumsum aten::sum aten::mean
        aten::max aten::argmax aten::norm aten::linalg_vector_norm aten::min aten::argmin aten::amax aten::amin
        aten::all aten::any aten::prod aten::cumsum aten::cumprod aten::var aten::std aten::var_mean
        aten::logsumexp aten::count_nonzero aten::nll_loss_forward aten::nll_loss2d_forward""",
    "gather_scatter": """Gather GatherV2 GatherNd ResourceGather ResourceGatherNd ScatterNd ScatterUpdate ScatterAdd
        ResourceScatterAdd ResourceScatterUpdate TensorScatterUpdate TensorScatterAdd UnsortedSegmentSum
        UnsortedSegmentMax SparseSegmentSum SparseSegmentMean DynamicStitch DynamicPartition OneHot TopKV2 Unique
        UniqueV2 Sort EmbeddingLookup StridedSliceGrad gather scatter dynamic-slice dynamic-update-slice sort top-k
        dynamic_slice dynamic_update_slice aten::index aten::index_select aten::gather aten::scatter_add_
        aten::embedding aten::embedding_dense_backward aten::index_put_ aten::topk aten::sort
        aten::_index_put_impl_ aten::index_add_ aten::index_copy_ aten::scatter aten::scatter_ aten::scatter_add
        aten::masked_select aten::nonzero aten::take aten::nll_loss_backward aten::nll_loss2d_backward""",
    "random": """RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal StatelessRandomUniform
        StatelessRandomUniformV2 StatelessRandomNormal StatelessRandomNormalV2 StatelessRandomUniformInt
        StatelessRandomUniformIntV2 StatelessTruncatedNormalV2 StatelessMultinomial StatelessRandomGetKeyCounter
        RandomShuffle Multinomial RngReadAndSkip RngSkip rng rng-bit-generator rng-get-and-update-state rng_bit_generator
        aten::native_dropout aten::bernoulli_ aten::uniform_ aten::normal_ aten::random_ aten::bernoulli aten::rand
        aten::randn aten::randint aten::randperm aten::multinomial aten::exponential_""",
    "cast": """Cast _HostCast Bitcast convert convert_element_type bitcast-convert QuantizeV2 Dequantize
        FakeQuantWithMinMaxVars stochastic-convert""",
    "layout": """Transpose ConjugateTranspose Concat ConcatV2 Split SplitV Slice StridedSlice Pad PadV2 MirrorPad
        Tile Reverse ReverseV2 Pack Unpack ExpandDims Squeeze Reshape SpaceToDepth DepthToSpace SpaceToBatchND
        BatchToSpaceND SpaceToBatch BatchToSpace LayoutOptimizer MatrixDiagV3 MatrixBandPart InvertPermutation
        transpose concatenate slice pad reverse reshape bitcast copy tuple get-tuple-element
        aten::cat aten::contiguous aten::clone aten::copy_ aten::transpose aten::permute aten::view aten::reshape
        aten::_unsafe_view aten::_reshape_alias aten::as_strided aten::t aten::expand aten::squeeze aten::unsqueeze
        aten::select aten::slice aten::narrow aten::split aten::unbind aten::stack aten::flatten aten::flip
        aten::roll aten::repeat aten::constant_pad_nd aten::unfold aten::detach detach aten::alias
        aten::slice_backward aten::select_backward aten::im2col aten::col2im aten::tril aten::triu""",
    "optimizer": """ApplyAdam ResourceApplyAdam ResourceApplyAdamWithAmsgrad ApplyMomentum ResourceApplyMomentum
        ResourceApplyKerasMomentum ApplyGradientDescent ResourceApplyGradientDescent ResourceApplyRMSProp
        ApplyRMSProp ResourceApplyAdagrad ResourceApplyAdagradV2 ResourceApplyFtrl ResourceApplyFtrlV2
        ResourceApplyAdaMax ResourceApplyAdadelta ResourceApplyCenteredRMSProp ResourceSparseApplyAdagradV2
        ResourceSparseApplyMomentum ResourceSparseApplyKerasMomentum ResourceSparseApplyFtrl
        ResourceApplyProximalAdagrad ResourceApplyAddSign ResourceApplyPowerSign aten::_fused_adam_
        aten::_fused_adamw_ aten::_fused_sgd_ aten::_foreach_add_ aten::_foreach_mul_ aten::_foreach_add
        aten::_foreach_mul aten::_foreach_sub aten::_foreach_sub_ aten::_foreach_div aten::_foreach_div_
        aten::_foreach_sqrt aten::_foreach_sqrt_ aten::_foreach_addcdiv_ aten::_foreach_addcmul_
        aten::_foreach_lerp_ aten::_foreach_maximum_ aten::_foreach_neg AssignSubVariableOp""",
    "loss_scale": """IsFinite IsInf IsNan CheckNumerics CheckNumericsV2 aten::_amp_foreach_non_finite_check_and_unscale_
        aten::_amp_update_scale_""",
    "comm": """CollectiveReduce CollectiveReduceV2 CollectiveReduceV3 CollectiveGather CollectiveBcastSend
        CollectiveBcastRecv NcclAllReduce _NcclBroadcastRecv _NcclReduceSend HorovodAllreduce all-reduce
        all-gather reduce-scatter all-to-all collective-permute collective-broadcast all-reduce-start
        all-reduce-done all-gather-start all-gather-done collective-permute-start collective-permute-done
        reduce-scatter-start reduce-scatter-done all-to-all-start all-to-all-done ragged-all-to-all
        send recv send-done recv-done psum c10d::allreduce_""",
    "copy": """Copy _HostSend _HostRecv _Send _Recv MemcpyD2H MemcpyH2D copy-start copy-done infeed outfeed
        slice-start slice-done dynamic-slice-start dynamic-slice-done""",
    "memset": "memset",
    "other": """Identity IdentityN NoOp Const Shape Size Rank ReadVariableOp AssignVariableOp VarHandleOp
        ResizeBilinear ResizeBilinearGrad ResizeNearestNeighbor ResizeNearestNeighborGrad ResizeBicubic
        CropAndResize CropAndResizeGradBoxes CropAndResizeGradImage NonMaxSuppressionV3 CTCLoss CTCLossV2 FFT IFFT
        RFFT IRFFT Svd Qr Cholesky LinearSolve MatrixInverse Assert Print StopGradient PreventGradient
        fft cholesky triangular-solve partition-id replica-id constant parameter after-all
        aten::as_strided_ aten::empty aten::empty_strided aten::empty_like aten::new_empty aten::new_empty_strided aten::resize_
        aten::resize_as_ aten::set_ aten::lift_fresh aten::resolve_conj aten::resolve_neg aten::result_type
        aten::scalar_tensor aten::_local_scalar_dense aten::item aten::is_nonzero aten::to aten::detach_
        aten::_nnpack_available AddBackward0 CloneBackward0 ViewBackward0 UnsafeViewBackward0 AliasBackward0""",
}

_FAMILIES: dict[str, Family] = {name: family for family, names in _LISTS.items() for name in names.split()}
_NUMBER = re.compile(r"(?:[._]\d+)+$")

OWN_SCOPE = re.compile(r"(?:^|/)mpprof[/_:]", re.IGNORECASE)
"""mpprof's own copies of loss scale and iteration."""


@lru_cache(maxsize=8192)
def family_of(op_type: str) -> Family | None:
    """Return the family of an op type ("MatMul", "dot", "dot.4", "aten::mm"); None: not a type that is
    known."""
    found = _FAMILIES.get(op_type) or _FAMILIES.get(_NUMBER.sub("", op_type))
    return found or next(filter(None, map(_FAMILIES.get, _origins(op_type))), None)


_REWRITTEN = re.compile(r"(?:_+(?:Mkl)?(?:Dummy)?(?:Native)?(?:PadWith)?|(?=Quantized))(?P<op>[A-Z]\w*)")
_AND_MORE = r"(?:(?:With|And)[A-Z]\w*|PerChannel|Ex)$"


def _origins(op_type: str) -> Iterator[str]:
    """Yield the types that TensorFlow's own rewrites may have made this one of: "_MklNativeFusedConv2D" and
    "QuantizedConv2DWithBiasAndRelu" are a "Conv2D" with what follows it."""
    if match := _REWRITTEN.fullmatch(op_type):
        op = re.sub(_AND_MORE, "", match["op"])
        yield op
        yield op.removeprefix("Quantized")
        yield op.removeprefix("Fused")
        yield op.removeprefix("Fused").removeprefix("Quantized")


@lru_cache(maxsize=65536)
def type_from_name(op_name: str) -> str:
    """Return the op type that the last part of a scoped name stands for ("model/dense/MatMul_1" -> "MatMul").

    TensorFlow and JAX name an op after its type unless the user names it; "" where the last part is no
    known type.
    """
    leaf = (
        op_name.rsplit("/", 1)[-1].split("(", 1)[0].split(":", 1)[0] if "aten::" not in op_name else op_name
    )
    leaf = _NUMBER.sub("", leaf.strip("%"))
    return leaf if leaf in _FAMILIES else ""
