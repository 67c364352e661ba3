"""What one training step of a made-up model asks of the GPU, op by op, as Keras 3 on TensorFlow does it.

A workload is a list of `Work` in launch order. Op names follow what TensorFlow 2.21 writes for a Keras 3.15
`fit` without XLA (`StatefulPartitionedCall/sequential_1/dense_1/MatMul`), recorded on a CPU; durations come
from FLOPs, bytes and the rates in `gpus`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.builders import layers
from tests.builders.gpus import Gpu, matrix_us, memory_us
from tests.builders.hlo import Instruction
from tests.builders.numerics import Numerics

SCOPE = "StatefulPartitionedCall"
MODEL = f"{SCOPE}/model_1"
GRADIENT = f"{SCOPE}/gradient_tape/model_1"


@dataclass(frozen=True)
class Work:
    """One launch. `sync`: the host waits for the device after it. `stream`: "compute", "h2d", "d2h", or "host"
    for an op that the CPU runs. `hlo`: the instruction of an XLA program that it belongs to."""

    kernel: str
    op: str
    type: str
    us: float
    shapes: str = ""
    stream: str = "compute"
    bytes: int = -1
    sync: bool = False
    hlo: Instruction | None = None


_MLIR_DTYPE = {"float": "DT_FLOAT", "half": "DT_HALF", "bfloat16": "DT_BFLOAT16"}


def mlir(op: str, dtype_in: str, dtype_out: str) -> str:
    return f"{op}_GPU_{_MLIR_DTYPE[dtype_in]}_{_MLIR_DTYPE[dtype_out]}_kernel"


def _shape(dtype: str, *dims: int) -> str:
    return f"{dtype}[{','.join(map(str, dims))}]"


def elementwise(gpu: Gpu, scope: str, op: str, dtype: str, elements: float, reads: int = 1) -> Work:
    size = 4 if dtype == "float" else 2
    us = memory_us(gpu, elements * size * (reads + 1))
    return Work(mlir(op, dtype, dtype), f"{scope}/{op}", op, us, f"({_shape(dtype, int(elements))})")


def cast(gpu: Gpu, scope: str, dtype_in: str, dtype_out: str, elements: float, name: str = "Cast") -> Work:
    us = memory_us(gpu, elements * 6)
    return Work(
        mlir("Cast", dtype_in, dtype_out),
        f"{scope}/{name}",
        "Cast",
        us,
        f"({_shape(dtype_in, int(elements))})",
    )


def batch_norm(
    gpu: Gpu, layer: str, n: Numerics, elements: float, channels: int
) -> tuple[list[Work], list[Work]]:
    """Keras 3 computes it in float32 from separate ops; mixed precision adds a cast before and after."""
    scope, grad = f"{MODEL}/{layer}", f"{GRADIENT}/{layer}"
    reduce = "void tensorflow::functor::ColumnReduceKernel<float const*, float*, gpuprim::Sum>(float const*, float*, int, int, gpuprim::Sum, std::iterator_traits<float const*>::value_type)"
    moments = [
        Work(
            reduce,
            f"{scope}/moments/{op}",
            op,
            memory_us(gpu, elements * 4),
            f"({_shape('float', int(elements))})",
        )
        for op in ("Mean", "Mean_1")
    ]
    forward = [
        *([cast(gpu, scope, n.storage, "float", elements)] if n.mixed else []),
        moments[0],
        elementwise(gpu, f"{scope}/moments", "SquaredDifference", "float", elements),
        moments[1],
        elementwise(gpu, f"{scope}/batchnorm", "Mul", "float", elements),
        elementwise(gpu, f"{scope}/batchnorm", "AddV2", "float", elements),
        *([cast(gpu, scope, "float", n.storage, elements, "Cast_5")] if n.mixed else []),
    ]
    backward = [
        *([cast(gpu, f"{grad}/Cast_5", n.storage, "float", elements)] if n.mixed else []),
        elementwise(gpu, f"{grad}/batchnorm/mul_1", "Mul", "float", elements),
        Work(reduce, f"{grad}/batchnorm/mul_1/Sum", "Sum", memory_us(gpu, elements * 8), f"({_shape('float', int(elements))})"),
        elementwise(gpu, f"{grad}/moments", "Mul", "float", elements, reads=2),
        *([cast(gpu, f"{grad}/Cast", "float", n.storage, elements)] if n.mixed else []),
    ]  # fmt: skip
    return forward, backward


def convolution(
    gpu: Gpu, layer: str, n: Numerics, batch: int, size: int, cin: int, cout: int, kernel: int
) -> tuple[list[Work], list[Work]]:
    """Forward and backward of one convolution on a size x size output; the weights are cast each step."""
    flops = 2.0 * batch * size * size * cin * cout * kernel * kernel
    weights = cin * cout * kernel * kernel
    moved = (batch * size * size * (cin + cout) + weights) * n.size
    image = _shape(n.storage, batch, size, size, cin)
    filters = _shape(n.storage, kernel, kernel, cin, cout)
    out = _shape(n.storage, batch, size, size, cout)
    us = matrix_us(gpu, n.matrix, flops, moved)
    scope, grad = f"{MODEL}/{layer}/convolution", f"{GRADIENT}/{layer}/convolution"
    forward = [
        *([cast(gpu, f"{scope}", "float", n.storage, weights)] if n.mixed else []),
        Work(gpu.names["conv_fprop", n.matrix], scope, "Conv2D", us, f"({image};{filters})"),
    ]
    backward = [
        Work(gpu.names["conv_dgrad", n.matrix], f"{grad}/Conv2DBackpropInput", "Conv2DBackpropInput", us * 1.05, f"({filters};{out})"),
        Work(gpu.names["conv_wgrad", n.matrix], f"{grad}/Conv2DBackpropFilter", "Conv2DBackpropFilter", us * 1.1, f"({image};{out})"),
        *([cast(gpu, f"{grad}/Cast", n.storage, "float", weights)] if n.mixed else []),
    ]  # fmt: skip
    return forward, backward


def dense(
    gpu: Gpu, layer: str, n: Numerics, rows: int, cin: int, cout: int, category: str = "gemm"
) -> tuple[list[Work], list[Work]]:
    """Forward and backward of one dense layer: rows x cin times cin x cout."""
    flops, weights = 2.0 * rows * cin * cout, cin * cout
    moved = (rows * (cin + cout) + weights) * n.size
    a, b, c = (_shape(n.storage, *d) for d in ((rows, cin), (cin, cout), (rows, cout)))
    us = matrix_us(gpu, n.matrix, flops, moved)
    scope, grad = f"{MODEL}/{layer}", f"{GRADIENT}/{layer}"
    kernel = gpu.names[category, n.matrix]
    forward = [
        *([cast(gpu, scope, "float", n.storage, weights)] if n.mixed else []),
        Work(kernel, f"{scope}/MatMul", "MatMul", us, f"({a};{b})"),
        elementwise(gpu, scope, "BiasAdd", n.storage, rows * cout),
    ]
    backward = [
        Work(kernel, f"{grad}/MatMul/MatMul", "MatMul", us, f"({c};{b})"),
        Work(kernel, f"{grad}/MatMul/MatMul_1", "MatMul", us, f"({a};{c})"),
        *([cast(gpu, f"{grad}/Cast", n.storage, "float", weights)] if n.mixed else []),
    ]
    return forward, backward


def optimizer(gpu: Gpu, n: Numerics, parameters: float, variables: int) -> list[Work]:
    """Adam on float32 variables, one chain of small kernels a variable; with loss scaling a finite check
    and an un-scaling of every gradient, and a flag that the host waits for."""
    works: list[Work] = []
    each = parameters / variables
    guard = f"{SCOPE}/cond/then/_30/cond" if n.loss_scaling else SCOPE
    if n.loss_scaling:
        for v in range(variables):
            suffix = f"_{v}" if v else ""
            works.append(
                Work("IsFinite_GPU_DT_FLOAT_DT_BOOL_kernel", f"{SCOPE}/IsFinite{suffix}", "IsFinite", memory_us(gpu, each * 5))
            )  # fmt: skip
            works.append(
                Work("void cub::DeviceReduceSingleTileKernel<bool*, bool*, int, tensorflow::functor::And>(bool*, bool*, int, tensorflow::functor::And, bool)", f"{SCOPE}/All{suffix}", "All", 2.2)
            )  # fmt: skip
        works.append(Work("MemcpyD2H", f"{SCOPE}/cond", "If", 1.5, stream="d2h", bytes=1, sync=True))
        for v in range(variables):
            suffix = f"_{v}" if v else ""
            works.append(replace(elementwise(gpu, guard, "Mul", "float", each), op=f"{guard}/mul{suffix}"))
    for v in range(variables):
        suffix = f"_{v}" if v else ""
        for op in (
            "Sub",
            "Mul",
            "AssignAddVariableOp",
            "Square",
            "AssignAddVariableOp_1",
            "Sqrt",
            "AssignSubVariableOp",
        ):
            base = op.split("_")[0]
            work = elementwise(gpu, f"{guard}/adam", base, "float", each, reads=2)
            works.append(replace(work, op=f"{guard}/adam/{op}{suffix}"))
    return works


def loss(gpu: Gpu, rows: int, classes: int) -> list[Work]:
    scope = f"{SCOPE}/compile_loss/sparse_categorical_crossentropy"
    kernel = "void tensorflow::functor::(anonymous namespace)::SoftmaxXentKernel<float>(float const*, float*, int, int)"
    op = "SparseSoftmaxCrossEntropyWithLogits"
    return [
        Work(
            kernel,
            f"{scope}/{op}/{op}",
            op,
            memory_us(gpu, rows * classes * 12.0),
            f"({_shape('float', rows, classes)})",
        )
    ]


@dataclass(frozen=True)
class Model:
    """A step's work and what the records state of the model."""

    works: tuple[Work, ...]
    layers: tuple[dict, ...]
    parameters: int
    batch: int
    input_bytes: int
    module: str = ""  # the XLA program that the step is; "": op by op
    proto: bytes = b""  # its HloProto, where it was compiled; else one is made of the works' instructions


def _between_casts(
    gpu: Gpu, layer: str, n: Numerics, own: Numerics, works: list[Work], taken: float, made: float
) -> list[Work]:
    """A layer that computes in another type than its neighbours has a cast before and one after it. `taken`,
    `made`: the elements that it reads and writes."""
    if own.storage == n.storage:
        return works
    scope = f"{MODEL}/{layer}"
    return [
        cast(gpu, scope, n.storage, "float", taken, "Cast_in"),
        *works,
        cast(gpu, scope, "float", n.storage, made, "Cast_out"),
    ]


def convnet(
    gpu: Gpu,
    n: Numerics,
    *,
    batch: int = 64,
    widths: tuple[int, ...] = (64, 128, 256, 512),
    sizes: tuple[int, ...] = (112, 56, 28, 14),
    classes: int = 1000,
    overrides: dict[str, Numerics] | None = None,
) -> Model:
    """Convolution, batch norm and relu blocks, pooling, a dense head. `overrides` gives single layers other
    numerics (a float32 island, a fallback)."""
    forward: list[Work] = []
    backward: list[Work] = []
    cin = 3
    for i, (cout, size) in enumerate(zip(widths, sizes, strict=True)):
        conv, norm, act = (layers.numbered(one, i) for one in ("conv2d", "batch_normalization", "re_lu"))
        own = (overrides or {}).get(conv, n)
        pixels = batch * size * size
        f, b = convolution(gpu, conv, own, batch, size, cin, cout, 3)
        nf, nb = batch_norm(gpu, norm, n, pixels * cout, cout)
        forward += [
            *_between_casts(gpu, conv, n, own, f, pixels * cin, pixels * cout),
            *nf,
            elementwise(gpu, f"{MODEL}/{act}", "Relu", n.storage, pixels * cout),
        ]
        backward = [
            elementwise(gpu, f"{GRADIENT}/{act}", "ReluGrad", n.storage, pixels * cout, reads=2),
            *nb,
            *b,
            *backward,
        ]
        cin = cout
    f, b = dense(gpu, "dense", (overrides or {}).get("dense", n), batch, cin, classes)
    forward += [
        *f,
        *([cast(gpu, f"{MODEL}/softmax", n.storage, "float", batch * classes)] if n.mixed else []),
    ]
    described = layers.convnet(n, overrides, widths, sizes, classes, activations=True)
    parameters = layers.parameters(described)
    works = [
        *forward,
        *loss(gpu, batch, classes),
        *b,
        *backward,
        *optimizer(gpu, n, parameters, 4 * len(widths) + 2),
    ]
    return Model(tuple(works), described, parameters, batch, batch * sizes[0] ** 2 * 4 * 3 * 4)


def transformer(
    gpu: Gpu,
    n: Numerics,
    *,
    batch: int = 32,
    length: int = 128,
    width: int = 512,
    blocks: int = 6,
    vocabulary: int = 32768,
    logits: Numerics | None = None,
    overrides: dict[str, Numerics] | None = None,
) -> Model:
    """Attention projections, feed-forward, layer norm and a vocabulary-sized head. `overrides` gives single layers
    other numerics, `logits` the head."""
    rows = batch * length
    forward: list[Work] = []
    backward: list[Work] = []
    for i in range(blocks):
        for name, cin, cout in layers.block(i, width):
            own = (overrides or {}).get(name, n)
            f, b = dense(gpu, name, own, rows, cin, cout)
            forward += _between_casts(gpu, name, n, own, f, rows * cin, rows * cout)
            backward = [*b, *backward]
        nf, nb = batch_norm(gpu, f"block_{i}/layer_normalization", n, rows * width, width)
        forward += [
            *nf,
            elementwise(gpu, f"{MODEL}/block_{i}/activation", "Relu", n.storage, rows * 4 * width),
        ]
        backward = [*nb, *backward]
    own = logits or (overrides or {}).get("logits", n)
    f, b = dense(gpu, "logits", own, rows, width, vocabulary, "logits")
    forward += [
        *f,
        *([cast(gpu, f"{MODEL}/logits_float", n.storage, "float", rows * vocabulary)] if n.mixed else []),
    ]
    described = layers.transformer(n, overrides, length, width, blocks, vocabulary)
    parameters = layers.parameters(described)
    works = [
        *forward,
        *loss(gpu, rows, vocabulary),
        *b,
        *backward,
        *optimizer(gpu, n, parameters, 7 * blocks + 1),
    ]
    return Model(tuple(works), described, parameters, batch, rows * 4)


def mlp(
    gpu: Gpu,
    n: Numerics,
    *,
    batch: int = 4096,
    widths: tuple[int, ...] = (2048, 2048, 1024),
    features: int = 784,
    classes: int = 16,
    overrides: dict[str, Numerics] | None = None,
) -> Model:
    """Dense layers with relu between them. `overrides` gives single layers other numerics."""
    forward: list[Work] = []
    backward: list[Work] = []
    cin = features
    for i, cout in enumerate((*widths, classes)):
        name = layers.numbered("dense", i)
        own = (overrides or {}).get(name, n)
        f, b = dense(gpu, name, own, batch, cin, cout)
        forward += _between_casts(gpu, name, n, own, f, batch * cin, batch * cout)
        backward = [*b, *backward]
        if i < len(widths):
            forward.append(elementwise(gpu, f"{MODEL}/{name}", "Relu", n.storage, batch * cout))
            backward = [
                elementwise(gpu, f"{GRADIENT}/{name}", "ReluGrad", n.storage, batch * cout, reads=2),
                *backward,
            ]
        cin = cout
    if n.mixed:
        forward.append(cast(gpu, f"{MODEL}/softmax", n.storage, "float", batch * classes))
    described = layers.mlp(n, overrides, widths, features, classes)
    parameters = layers.parameters(described)
    works = [
        *forward,
        *loss(gpu, batch, classes),
        *backward,
        *optimizer(gpu, n, parameters, 2 * len(widths) + 2),
    ]
    return Model(tuple(works), described, parameters, batch, batch * features * 4)
