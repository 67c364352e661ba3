"""Matrix products by shape: M, N and K where the trace tells them, and no guess where it does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mpprof.analysis.breakdown import tables
from mpprof.analysis.breakdown.products import multiplied
from mpprof.analysis.kernels.names import classify
from mpprof.analysis.layers.attribution import attribute
from mpprof.api import workflows
from mpprof.model.trace import HloInstruction, Op
from tests.analysis.pieces import ELEMENTWISE, FALLBACK, TENSOR_CORE, placements_of, trace_of
from tests.paths import SAMPLES
from tests.traces.kineto import BACKWARD, Kineto

CONVOLUTION = replace(TENSOR_CORE, family="conv_fprop")


@pytest.mark.parametrize(
    ("op_type", "shapes", "shape", "sizes"),
    [
        ("MatMul", "(half[32,512];half[512,1001])", "32 x 1001 x 512", (1, 32, 1001, 512)),
        ("MatMul", "(half[4096,512];half[4096,256])", "512 x 256 x 4096", (1, 512, 256, 4096)),  # a gradient
        ("MatMul", "(half[64,64];half[64,64])", "64 x 64 x 64", (1, 64, 64, 64)),
        # Either may be transposed: the product of one is 16 times as large as that of the other.
        ("MatMul", "(half[4096,256];half[4096,256])", "4096x256 by 4096x256", (None,) * 4),
        ("BatchMatMulV2", "(half[8,4,32,16];half[8,4,16,64])", "32 of 32 x 64 x 16", (32, 32, 64, 16)),
        ("aten::addmm", "(half[8];half[4,6];half[6,8])", "4 x 8 x 6", (1, 4, 8, 6)),
        ("MatMul", "", None, (None,) * 4),
        ("MatMul", "(half[?,512];half[512,8])", None, (None,) * 4),
    ],
)
def test_sizes_of_a_product_are_stated_where_they_are_the_only_ones(op_type, shapes, shape, sizes) -> None:
    found = multiplied(Op("dense/MatMul", op_type), shapes, TENSOR_CORE)
    assert (found.shape, (found.batch, found.m, found.n, found.k)) == (shape, sizes)


def test_a_convolution_has_the_sizes_of_its_operands() -> None:
    found = multiplied(Op("c", "Conv2D"), "(half[8,56,56,64];half[3,3,64,128])", CONVOLUTION)
    assert (found.shape, found.m) == ("8x56x56x64 by 3x3x64x128", None)
    assert found.operands == "half[8,56,56,64]; half[3,3,64,128]"


def test_of_a_compiled_product_the_result_says_what_was_summed_over() -> None:
    """Its operands are alike, and may be transposed: M and N are those of the result."""
    dot = HloInstruction(
        "m", "dot.1", "dot", "", "f16", (256, 256), ("f16", "f16"), ((4096, 256), (4096, 256)),
        flops=2.0 * 256 * 256 * 4096,
    )  # fmt: skip
    fusion = replace(dot, name="fusion.1", opcode="fusion", called=(dot,))
    for hlo in (dot, fusion):
        assert multiplied(Op("d", "", hlo), "", TENSOR_CORE).shape == "256 x 256 x 4096"


def made() -> tuple:
    """Two layers with a product of one shape, another in float32 off the Tensor Cores, and work of no product."""
    ops = (Op("model/a/MatMul", "MatMul"), Op("model/b/MatMul", "MatMul"), Op("model/c/MatMul", "MatMul"))
    kernels = [
        (0, 0, "g", 0, 0, 100),
        (0, 0, "h", 1, 0, 300),
        (0, 0, "s", 2, 1, 600),
        (0, 0, "r", 2, 2, 1000),
    ]
    trace = trace_of(ops, kernels)
    shapes = ("(half[32,512];half[512,64])", "(half[64,32];half[32,512])")
    at = len(trace.strings)
    column = np.array([at, at, at + 1, at + 1], np.int32)
    trace = replace(trace, strings=(*trace.strings, *shapes), kernels=replace(trace.kernels, shapes=column))
    return trace, placements_of((TENSOR_CORE, FALLBACK, ELEMENTWISE), kernels), attribute(trace)


def test_products_of_one_shape_that_ran_alike_are_one_row() -> None:
    slow, fast = tables.products(*made())
    assert (slow["shape"], slow["placement"], slow["total_ns"], slow["ratio"]) == (
        "64 x 512 x 32", "cuda_core", 600, 0.3,
    )  # fmt: skip
    assert (fast["shape"], fast["calls"], fast["total_ns"], fast["placement"]) == (
        "32 x 64 x 512", 2, 400, "tensor_core",
    )  # fmt: skip
    operations = 2.0 * 32 * 64 * 512
    assert (fast["flops_per_call"], fast["flops_per_s"]) == (operations, 2 * operations / 400 * 1e9)
    assert (fast["calls_per_step"], fast["peak_ratio"]) == (None, None)  # neither steps nor a card are known


def test_of_the_recorded_transformer_the_head_is_the_largest_product() -> None:
    run = workflows.load(SAMPLES / "recorded-h100-transformer-mixed-float16")
    rows = workflows.table_rows(run, "products")
    first = rows[0]
    assert (first["shape"], first["calls"], first["calls_per_step"]) == ("4096 x 512 x 33709", 5, 1.0)
    # 2 x 4,096 x 512 x 33,709 operations in 1.017 ms are 139 TFLOP/s, of the card's 989.
    assert first["flops_per_s"] == pytest.approx(2 * 4096 * 512 * 33709 / (first["total_ns"] / 5) * 1e9)
    assert first["peak_ratio"] == pytest.approx(0.141, abs=0.001)


_PLAIN_GEMM = (
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(cutlass_80_tensorop::Params)"
)
_WRITTEN = {
    "Input Dims": [[8, 64, 28, 28], [8, 32, 28, 28], [64, 32, 3, 3]], "Input type": ["float", "float", "float"],
}  # fmt: skip


def backward(*kernels: str, calls: int = 3) -> Kineto:
    """Calls of PyTorch's op for both gradients of a convolution, on a thread of its own, that launch these."""
    k = Kineto()
    for call in range(calls):
        at = 1_000.0 * call
        k.op("aten::convolution_backward", at, 400, tid=BACKWARD, **_WRITTEN)
        for row, name in enumerate(kernels):
            k.launch(name, at + 10 + 50 * row, at + 20 + 50 * row, 40, tid=BACKWARD)
    return k


@pytest.mark.parametrize(
    ("kernels", "families"),
    [
        ((_PLAIN_GEMM, _PLAIN_GEMM), ["conv_dgrad", "conv_wgrad"]),
        ((_PLAIN_GEMM, "sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nhwc"),
         ["conv_dgrad", "conv_wgrad"]),
        (("sm80_xmma_dgrad_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc", _PLAIN_GEMM), ["conv_dgrad", "conv_wgrad"]),
        ((_PLAIN_GEMM,), ["conv_wgrad"]),  # of the first layer: no gradient of its input is asked for
        (("igemm_bwd_gtcx3_nhwc_bf16_bx0", "igemm_wrw_gtcx3_nhwc_bf16_bx0"), ["conv_dgrad", "conv_wgrad"]),
    ],
)  # fmt: skip
def test_of_an_op_for_both_gradients_each_product_is_one_of_them(
    tmp_path: Path, kernels: tuple[str, ...], families: list[str]
) -> None:
    run = workflows.load(backward(*kernels).write(tmp_path / "a.pt.trace.json"))
    rows = {row["family"]: row for row in workflows.table_rows(run, "products")}
    assert {family: row["calls"] for family, row in rows.items()} == dict.fromkeys(families, 3)
    # The output's gradient is multiplied by the weights, or by the input.
    shapes = {"conv_dgrad": "8x64x28x28 by 64x32x3x3", "conv_wgrad": "8x64x28x28 by 8x32x28x28"}
    assert {family: row["shape"] for family, row in rows.items()} == {name: shapes[name] for name in families}


def test_a_library_that_calls_a_gradient_a_product_states_which() -> None:
    name = "_ZN2ck16tensor_operation6device37kernel_batched_gemm_xdlops_bwd_weightINS_4GridE"
    assert classify(name, (9, 4), "amd").family == "conv_wgrad"


def test_where_the_trace_states_no_tensors_a_dense_layer_tells() -> None:
    """TensorFlow's GPU traces state no inputs: the recorded layer has the sizes, and the bytes of all three products."""
    rows = workflows.table_rows(
        workflows.load(SAMPLES / "recorded-h200-transformer-mixed-float16"), "products"
    )
    found = {row["shape"]: row for row in rows if row["layer"] == "dense_8"}
    forward, gradients = found["8192 x 33709 x 512"], found["a gradient of 8192 x 33709 x 512"]
    assert (forward["m"], forward["n"], forward["k"], forward["calls_per_step"]) == (8192, 33709, 512, 1)
    assert (gradients["m"], gradients["calls_per_step"]) == (None, 2)
    # 2 x 8,192 x 33,709 x 512 operations in 2.335 ms.
    assert forward["flops_per_s"] == pytest.approx(121.1e12, rel=1e-3)
    assert gradients["flops_per_s"] == pytest.approx(136.2e12, rel=1e-3)
    assert forward["bound"] == "compute"
