"""What ops do, by their type: TensorFlow's own rewrites of them, too."""

from __future__ import annotations

import pytest

from mpprof.analysis.kernels.op_types import family_of


@pytest.mark.parametrize(
    ("family", "types"),
    [
        ("conv_fprop", "Conv2D _FusedConv2D _MklNativeFusedConv2D _MklConv2DWithBias _MklNativePadWithFusedConv2D"),
        ("conv_fprop", "_MklNativeFusedConv3D _MklQuantizedConv2DWithBiasAndReluAndRequantize"),
        ("conv_fprop", "QuantizedConv2DPerChannel _FusedQuantizedConv2D __MklDummyConv2DWithBias"),
        ("conv_dgrad", "_MklNativeConv2DBackpropInput _MklConv3DBackpropInputV2"),
        ("conv_wgrad", "_MklNativeConv2DBackpropFilterWithBias _MklConv3DBackpropFilterV2"),
        ("depthwise", "_MklNativeFusedDepthwiseConv2dNative _MklNativeDepthwiseConv2dNativeBackpropFilter"),
        ("depthwise", "_FusedDepthwiseConv2dNative _MklQuantizedDepthwiseConv2DWithBias"),
        ("gemm", "MatMul _FusedMatMul _MklMatMul _MklNativeFusedMatMul _MklBatchMatMulV2 _MklFusedBatchMatMulV2"),
        ("gemm", "_MklEinsum _MklQuantizedMatMulWithBiasAndDequantize _QuantizedMatMul"),
        ("norm", "_MklNativeFusedBatchNormV3 _MklNativeFusedBatchNormEx _FusedBatchNormGradEx _MklLayerNorm"),
        ("norm", "_MklFusedInstanceNorm _MklNativeFusedBatchNormGradV3"),
        ("pool", "_MklNativeMaxPool _MklNativeMaxPoolGrad _MklNativeAvgPool3DGrad"),
        ("softmax", "_MklSoftmax SparseSoftmaxCrossEntropyWithLogits"),
        ("elementwise", "_MklRelu _MklLeakyReluGrad _MklFusedMish _MklSwish"),
        ("layout", "_MklTranspose _MklConcatV2 Transpose"),
        ("cast", "_MklQuantizeV2 _MklDequantize _HostCast"),
    ],
)  # fmt: skip
def test_a_rewritten_op_is_what_it_was_made_of(family: str, types: str) -> None:
    assert {family_of(op_type) for op_type in types.split()} == {family}


@pytest.mark.parametrize(
    "op_type", ["_Arg", "_Retval", "MyOwnOp", "MatMulWithStyle", "FusedThing", "_If", "Ex", ""]
)
def test_other_types_have_no_family(op_type: str) -> None:
    assert family_of(op_type) is None
