"""Traces with an oddity of real ones about what ran, each named after its oddity: three steps, no records.

Nothing here imports mpprof.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from tests.builders.gpus import GTX1080TI, V100, Gpu
from tests.builders.hlo import Instruction, Tensor
from tests.builders.simulate import Host, Play, to_space
from tests.builders.workloads import Model, Work

STEPS = 3
_ROUNDED = (
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<const Eigen::TensorAssignOp<Eigen::TensorMap<"
    "Eigen::Tensor<float, 1, 1, int>, 16, Eigen::MakePointer>, const Eigen::TensorCwiseUnaryOp<Eigen::internal::"
    "scalar_round_half_to_even_op<float>, const Eigen::TensorMap<Eigen::Tensor<const float, 1, 1, int>, 16, "
    "Eigen::MakePointer> > >, Eigen::GpuDevice>, int>(Eigen::TensorEvaluator, int)"
)
_POWER = (
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<const Eigen::TensorAssignOp<Eigen::TensorMap<"
    "Eigen::Tensor<double, 0, 1, int>, 16, Eigen::MakePointer>, const Eigen::TensorCwiseBinaryOp<Eigen::internal::"
    "scalar_pow_op<double, double>, const Eigen::TensorMap<Eigen::Tensor<const double, 0, 1, int>, 16> > >, "
    "Eigen::GpuDevice>, int>(Eigen::TensorEvaluator, int)"
)
_SGEMM, _HALF_GEMM = "volta_sgemm_128x64_nn", "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn"


def trace(works: Sequence[Work], directory: Path, gpu: Gpu | None = V100) -> Path:
    """Write the trace of three steps of these works; `gpu` None: a CPU runs them, on its executor's thread."""
    module = "jit_train_step" if any(work.hlo for work in works) else ""
    model = Model(tuple(works), (), 0, 32, 4096, module)
    play = Play(gpu or V100, model, Host(), random.Random(5))
    for number in range(1, STEPS + 1):
        play.step(number, record=True)
    space = to_space(play, 0.0)
    if gpu is None:
        space.planes = [plane for plane in space.planes if "/device:" not in plane.name]
    path = directory / "synthetic.xplane.pb"
    path.write_bytes(space.to_bytes())
    return path


def on_the_cpu(op: str, us: float, shapes: str = "") -> Work:
    """An op that a CPU runs, by its name and type as the trace has them: "scope/name:Type"."""
    name, _, type = op.rpartition(":")
    return Work("", name, type, us, shapes=shapes, stream="host")


# --- what a run computes in --------------------------------------------------------------------------------


def rounding_kernels_in_a_float32_run(directory: Path) -> Path:
    """Data augmentation rounds coordinates: `scalar_round_half_to_even_op<float>` holds the word "half"."""
    return trace(
        [
            Work(_SGEMM, "model/dense/MatMul", "MatMul", 80.0),
            Work(_ROUNDED, "model/random_rotation/Round", "Round", 40.0),
        ],
        directory,
    )


def double_in_a_scalar_op(directory: Path) -> Path:
    """Adam's bias correction is a scalar power in float64, beside float32 products."""
    return trace(
        [
            Work(_SGEMM, "model/dense/MatMul", "MatMul", 80.0),
            Work(_POWER, "Adam/Pow", "Pow", 3.0),
        ],
        directory,
    )


def few_16_bit_products(directory: Path) -> Path:
    """A tenth of the matrix time in fp16: neither a float32 run nor a 16-bit one."""
    return trace(
        [
            Work(_SGEMM, "model/dense/MatMul", "MatMul", 90.0),
            Work(_HALF_GEMM, "model/dense_1/MatMul", "MatMul", 10.0),
        ],
        directory,
    )


def fp32_kernels_for_16_bit_tensors(directory: Path) -> Path:
    """cuBLAS falls back: the ops' tensors are half, the kernels that ran multiply float32."""
    tensors = "(half[64,1000];half[1000,1001])"
    return trace([Work(_SGEMM, "model/dense/MatMul", "MatMul", 90.0, shapes=tensors)], directory)


def sgemm_on_a_card_without_tensor_cores(directory: Path) -> Path:
    """On a GTX 1080 Ti there is nothing that a product could fall back from."""
    return trace(
        [Work("maxwell_sgemm_128x64_nn", "model/dense/MatMul", "MatMul", 90.0)], directory, GTX1080TI
    )


def cpu_ops_without_types(directory: Path) -> Path:
    """A CPU trace of TensorFlow states no types: no shapes, no kernels."""
    return trace(
        [
            on_the_cpu("model/conv2d/Conv2D:Conv2D", 300.0),
            on_the_cpu("model/dense/MatMul:MatMul", 100.0),
        ],
        directory,
        None,
    )


def cpu_ops_without_steps(directory: Path) -> Path:
    """Executor events alone: no call of a function, no marker, nothing that repeats."""
    path = cpu_ops_without_types(directory)
    works = [on_the_cpu(f"model/dense_{n}/MatMul:MatMul", 50.0 + 30.0 * n) for n in range(7)]
    play = Play(V100, Model(tuple(works), (), 0, 32, 4096), Host(), random.Random(5))
    play.step(1, record=True)
    space = to_space(play, 0.0)
    space.planes = [plane for plane in space.planes if "/device:" not in plane.name]
    for plane in space.planes:
        plane.lines = [line for line in plane.lines if line.name.startswith("tf_Compute")]
    path.write_bytes(space.to_bytes())
    return path


# --- ops of a CPU ------------------------------------------------------------------------------------------


def fused_ops_of_a_cpu(directory: Path) -> Path:
    """oneDNN's fused ops and TensorFlow's own are named after the last that they do: the type is behind the
    colon. A CPU's ops have plain names elsewhere."""
    names = [
        "c1/Relu:_MklNativeFusedConv2D", "gradient_tape/c1/Conv2DBackpropFilter:_MklNativeConv2DBackpropFilterWithBias",
        "c2/Relu:_FusedConv2D", "d1/BiasAdd:_MklNativeFusedMatMul", "d2/Relu:_FusedMatMul",
        "attention/einsum/Einsum:_MklEinsum", "attention/Softmax/add:_MklFusedBatchMatMulV2",
        "attention/MatMul_1:_MklBatchMatMulV2", "dw/Relu:_MklNativeFusedDepthwiseConv2dNative",
        "bn/Relu:_MklNativeFusedBatchNormEx", "pool/MaxPool:_MklNativeMaxPool", "relu/Conv2D:Relu",
        "scope/MatMul:MyOwnOp",
    ]  # fmt: skip
    return trace([on_the_cpu(name, 100.0) for name in names], directory, None)


FUSED_FAMILIES = {
    "c1/Relu": "conv_fprop", "gradient_tape/c1/Conv2DBackpropFilter": "conv_wgrad", "c2/Relu": "conv_fprop",
    "d1/BiasAdd": "gemm", "d2/Relu": "gemm", "attention/einsum/Einsum": "gemm", "attention/Softmax/add": "gemm",
    "attention/MatMul_1": "gemm", "dw/Relu": "depthwise", "bn/Relu": "norm", "pool/MaxPool": "pool",
    "relu/Conv2D": "elementwise", "scope/MatMul": "other",
}  # fmt: skip
"""What the ops of `fused_ops_of_a_cpu` do, by name."""


# --- names that mislead ------------------------------------------------------------------------------------


def transpose_with_cast_in_its_scope(directory: Path) -> Path:
    """LayoutOptimizer's transposes keep the name of the op that they stand before, casts among them."""
    scope = "gradient_tape/model/dropout/ArithmeticOptimizer/ReorderCastLikeAndValuePreserving_bool_Mul"
    swap = (
        "void tensorflow::functor::SwapDimension1And2InTensor3UsingTiles<unsigned int, 1024, 1024, 2, false>("
        "unsigned int const*, tensorflow::functor::Dimension<3>, unsigned int*)"
    )
    return trace(
        [
            Work(_SGEMM, "model/dense/MatMul", "MatMul", 80.0),
            Work(swap, f"{scope}-1-TransposeNHWCToNCHW-LayoutOptimizer", "Transpose", 30.0),
        ],
        directory,
    )


# --- norms -------------------------------------------------------------------------------------------------


def _eigen(functor: str) -> str:
    return (
        "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<const Eigen::TensorAssignOp<Eigen::TensorMap<"
        "Eigen::Tensor<float, 1, 1, int>, 16, Eigen::MakePointer>, const Eigen::TensorCwiseBinaryOp<Eigen::internal::"
        f"{functor}<float, float>, const Eigen::TensorMap<Eigen::Tensor<const float, 1, 1, int>, 16> > >, "
        "Eigen::GpuDevice>, int>(Eigen::TensorEvaluator, int)"
    )


_PRODUCT = _eigen("scalar_product_op")
_COLUMNS = (
    "void tensorflow::functor::ColumnReduceKernel<float const*, float*, cub::Sum>(float const*, float*, int, int, "
    "cub::Sum, std::iterator_traits<float const*>::value_type)"
)
_CONVERT = (
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<const Eigen::TensorAssignOp<Eigen::TensorMap<"
    "Eigen::Tensor<Eigen::half, 1, 1, int>, 16, Eigen::MakePointer>, const Eigen::TensorConversionOp<Eigen::half, "
    "const Eigen::TensorMap<Eigen::Tensor<const float, 1, 1, int>, 16> > >, Eigen::GpuDevice>, int>(int)"
)
NORM_US, CAST_US = 20.0, 8.0


def norms_taken_apart(directory: Path) -> Path:
    """A norm is plain Eigen kernels: five scopes that are norms, and four that only look like some."""
    forward, backward = "model", "gradient_tape/model"
    norms = [
        (_COLUMNS, f"{forward}/batch_normalization_3/moments/mean", "Mean"),
        (_PRODUCT, f"{forward}/batch_normalization_3/batchnorm/mul_1", "Mul"),
        (_PRODUCT, f"{forward}/batch_normalization_3/AssignMovingAvg/mul", "Mul"),
        (_COLUMNS, f"{backward}/batch_normalization_3/batchnorm/mul_1/Sum", "Sum"),
        (_PRODUCT, f"{backward}/batch_normalization_3/moments/Tile", "Tile"),
        (_PRODUCT, f"{forward}/LayerNorm/mul_2", "Mul"),
        (_PRODUCT, f"{forward}/rms_normalization_1/Square", "Square"),
        (_PRODUCT, f"{forward}/stem_one/moments/SquaredDifference", "SquaredDifference"),
        (_PRODUCT, f"{forward}/stem_one/mul", "Mul"),
    ]
    others = [
        (_PRODUCT, f"{forward}/normalization/sub", "Sub"),
        (_PRODUCT, f"{forward}/re_lu/mul", "Mul"),
        (_PRODUCT, f"{forward}/dense/moments/mul", "Mul"),
        (_CONVERT, f"{forward}/batch_normalization_3/Cast", "Cast"),
    ]
    works = [Work(kernel, op, type, NORM_US) for kernel, op, type in norms]
    works += [Work(kernel, op, type, CAST_US) for kernel, op, type in others]
    product = Work(_HALF_GEMM, f"{forward}/dense/MatMul", "MatMul", 80.0)
    return trace([product, *works, Work(_HALF_GEMM, f"{backward}/dense/MatMul", "MatMul", 80.0)], directory)


_SCALED = _PRODUCT.replace("float", "Eigen::half")
_MASK = _CONVERT.replace("const float, 1", "const bool, 1")


def window_before_the_model_runs(directory: Path) -> Path:
    """Weights are cast and dropout's masks made, as they need no input; the products that wait for it, and the
    norms between them, are named and never run. All of it is one layer by its scopes."""
    scope = "span_labeler/encoder"
    works = [
        Work(_CONVERT, f"{scope}/layer_1/MatMul/Cast", "Cast", CAST_US, "(float[1024,1024])"),
        Work(_MASK, f"{scope}/layer_1/dropout/Cast", "Cast", 2 * CAST_US, "(bool[4,384,1024])"),
        Work(_SCALED, f"{scope}/layer_1/dropout/Mul", "Mul", NORM_US, "(half[4,384,1024];half[])"),
        Work(_PRODUCT, f"{scope}/layer_1/layer_norm/moments/scalar", "Mul", 1.0, "(half[];half[])"),
    ]
    return trace(works, directory)


# --- XLA: one kernel for several layers --------------------------------------------------------------------

_FORWARD = "jit(train_step)/jvp({})/{}"  # layer, op
_ROWS: Tensor = ("f16", (1024, 128))
MERGED_US, FUSED_US, ALONE_US = 60.0, 25.0, 10.0


def _fusion(name: str, result: Tensor, inside: Sequence[Instruction], us: float, *reads: str) -> Work:
    """A fused kernel, named as XLA does after its root, the last instruction inside."""
    operands = inside[0].operands
    root = inside[-1].op_name
    made = Instruction(name, "fusion", result, operands, root, inside=tuple(inside), reads=reads)
    return Work(name, root, "", us, hlo=made)


def merged_query_key_and_value(directory: Path) -> Path:
    """XLA multiplies once for query, key and value and calls the product `query`; each is a slice of it."""
    dot = "dot_general"
    weights: Tensor = ("f16", (128, 384))
    whole: Tensor = ("f16", (1024, 384))
    converts = [
        Instruction(f"convert.{layer}", "convert", ("f16", (128, 128)), (("f32", (128, 128)),), _FORWARD.format(layer, "convert_element_type"))
        for layer in ("query", "key", "value")
    ]  # fmt: skip
    concatenated = _fusion("input_concatenate_fusion", weights, converts, ALONE_US)
    product = Instruction(
        "custom-call.24", "custom-call", whole, (weights, _ROWS), _FORWARD.format("query", dot), "__cublas$lt$matmul",
        contracting=1, reads=("input_concatenate_fusion",),
    )  # fmt: skip
    biases = [
        _fusion(
            f"loop_add_fusion.{at}", _ROWS,
            [
                Instruction(f"slice.{at}", "slice", _ROWS, (whole,), _FORWARD.format(layer, dot)),
                Instruction(f"add.{at}", "add", _ROWS, (_ROWS, _ROWS), _FORWARD.format(layer, "add")),
            ],
            ALONE_US, "custom-call.24",
        )
        for at, layer in enumerate(("query", "key", "value"), 1)
    ]  # fmt: skip
    called = Work(_HALF_GEMM, _FORWARD.format("query", dot), "", MERGED_US, hlo=product)
    return trace([concatenated, called, *biases], directory)


def fusions_over_several_layers(directory: Path) -> Path:
    """A fusion has the name of its root: here `relu`, of a norm, an addition and an activation."""

    def part(layer: str, opcode: str) -> Instruction:
        return Instruction(f"{opcode}.{layer}", opcode, _ROWS, (_ROWS, _ROWS), _FORWARD.format(layer, opcode))

    product = Instruction(
        "custom-call.1", "custom-call", _ROWS, (_ROWS, ("f16", (128, 128))), _FORWARD.format("dense", "dot_general"),
        "__cublas$lt$matmul", contracting=1,
    )  # fmt: skip
    three = [part("batch_normalization", "multiply"), part("add", "add"), part("re_lu", "maximum")]
    two = [part("dense", "add"), part("re_lu", "maximum")]
    return trace(
        [
            Work(_HALF_GEMM, _FORWARD.format("dense", "dot_general"), "", MERGED_US, hlo=product),
            _fusion("loop_maximum_fusion", _ROWS, two, FUSED_US),
            _fusion("loop_maximum_fusion.1", _ROWS, three, FUSED_US),
            _fusion("loop_add_fusion", _ROWS, [part("add", "add")], ALONE_US),
        ],
        directory,
    )
