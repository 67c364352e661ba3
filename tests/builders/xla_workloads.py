"""What one compiled training step asks of the GPU: Keras on JAX, or on TensorFlow with `jit_compile=True`.

Library calls for matrix work, fusions for all else, each kernel named after its HLO instruction. Ops carry
JAX's transformations in their names (`jit(train_step)/transpose(jvp(model_1))/dense/dot_general`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

from tests.builders import layers
from tests.builders.gpus import Gpu, matrix_us, memory_us
from tests.builders.hlo import Instruction, Tensor
from tests.builders.numerics import Numerics
from tests.builders.workloads import Model, Work

FORWARD, BACKWARD = "jit(train_step)/jvp(model_1)", "jit(train_step)/transpose(jvp(model_1))"
_HLO = {"float": "f32", "half": "f16", "bfloat16": "bf16"}
_SIZE = {"f32": 4, "f16": 2, "bf16": 2, "pred": 1}
_CONV = {"conv_fprop": "Forward", "conv_dgrad": "BackwardInput", "conv_wgrad": "BackwardFilter"}

Both = tuple[list[Work], list[Work]]


@dataclass
class Program:
    """Numbers the instructions of a program as XLA does: `loop_add_fusion`, `loop_add_fusion.1`."""

    gpu: Gpu
    n: Numerics
    used: dict[str, int] = field(default_factory=dict)

    def name(self, base: str) -> str:
        number = self.used.get(base, 0)
        self.used[base] = number + 1
        return f"{base}.{number}" if number else base

    def fusion(
        self,
        base: str,
        op: str,
        opcode: str,
        result: Tensor,
        operands: tuple[Tensor, ...],
        us: float | None = None,
    ) -> Work:
        """A fused kernel that reads its operands and writes its result once."""
        name = self.name(base)
        inside = (Instruction(f"{name}.in", opcode, result, operands, op),)
        made = Instruction(name, "fusion", result, operands, op, inside=inside)
        moved = sum(prod(dims) * _SIZE[dtype] for dtype, dims in (result, *operands))
        return Work(name.replace(".", "_"), op, "", us or memory_us(self.gpu, moved), hlo=made)

    def gemm(
        self, op: str, left: Tensor, right: Tensor, contracting: int, n: Numerics, category: str = "gemm"
    ) -> Work:
        dtype = _HLO[n.storage]
        m = left[1][1 - contracting]
        columns = right[1][1] if right[1][0] == left[1][contracting] else right[1][0]
        result: Tensor = (dtype, (m, columns))
        flops = 2.0 * m * columns * left[1][contracting]
        moved = sum(prod(dims) for _, dims in (left, right, result)) * n.size
        made = Instruction(
            self.name("custom-call"),
            "custom-call",
            result,
            (left, right),
            op,
            "__cublas$gemm",
            contracting=contracting,
        )
        return Work(
            self.gpu.names[category, n.matrix], op, "", matrix_us(self.gpu, n.matrix, flops, moved), hlo=made
        )

    def convolution(
        self, category: str, op: str, result: Tensor, operands: tuple[Tensor, ...], flops: float, n: Numerics
    ) -> Work:
        moved = sum(prod(dims) for _, dims in (result, *operands)) * n.size
        made = Instruction(
            self.name("cudnn-conv"), "custom-call", result, operands, op, f"__cudnn$conv{_CONV[category]}"
        )
        return Work(
            self.gpu.names[category, n.matrix], op, "", matrix_us(self.gpu, n.matrix, flops, moved), hlo=made
        )


def _weights_cast(p: Program, layer: str, n: Numerics, weights: Tensor) -> list[Work]:
    if not n.mixed:
        return []
    op = f"{FORWARD}/{layer}/convert_element_type"
    return [p.fusion("wrapped_convert", op, "convert", weights, (("f32", weights[1]),))]


def dense(
    p: Program, layer: str, rows: int, cin: int, cout: int, n: Numerics, category: str = "gemm"
) -> Both:
    t = _HLO[n.storage]
    x, w, y = (t, (rows, cin)), (t, (cin, cout)), (t, (rows, cout))
    forward = [
        *_weights_cast(p, layer, n, w),
        p.gemm(f"{FORWARD}/{layer}/dot_general", x, w, 1, n, category),
        p.fusion("loop_add_fusion", f"{FORWARD}/{layer}/add", "add", y, (y,)),
    ]
    backward = [
        p.gemm(f"{BACKWARD}/{layer}/dot_general", y, w, 1, n, category),
        p.gemm(f"{BACKWARD}/{layer}/dot_general", x, y, 0, n, category),
    ]  # fmt: skip
    return forward, backward


def convolution(p: Program, layer: str, batch: int, size: int, cin: int, cout: int, n: Numerics) -> Both:
    t = _HLO[n.storage]
    image, filters, out = (
        (t, (batch, size, size, cin)),
        (t, (3, 3, cin, cout)),
        (t, (batch, size, size, cout)),
    )
    flops = 2.0 * batch * size * size * cin * cout * 9
    op = f"{layer}/conv_general_dilated"
    forward = [
        *_weights_cast(p, layer, n, filters),
        p.convolution("conv_fprop", f"{FORWARD}/{op}", out, (image, filters), flops, n),
    ]
    backward = [
        p.convolution("conv_dgrad", f"{BACKWARD}/{op}", image, (out, filters), flops, n),
        p.convolution("conv_wgrad", f"{BACKWARD}/{op}", filters, (image, out), flops, n),
    ]  # fmt: skip
    return forward, backward


def norm(p: Program, layer: str, shape: tuple[int, ...]) -> Both:
    """Statistics in one pass, scale and activation in another; casts are fused away."""
    t = _HLO[p.n.storage]
    full, stats = (t, shape), ("f32", shape[-1:])
    forward = [
        p.fusion("input_reduce_fusion", f"{FORWARD}/{layer}/reduce_sum", "reduce", stats, (full,)),
        p.fusion("loop_multiply_fusion", f"{FORWARD}/{layer}/mul", "multiply", full, (full, stats)),
    ]
    backward = [
        p.fusion("input_reduce_fusion", f"{BACKWARD}/{layer}/reduce_sum", "reduce", stats, (full, full)),
        p.fusion("loop_multiply_fusion", f"{BACKWARD}/{layer}/mul", "multiply", full, (full, full)),
    ]
    return forward, backward


def update(p: Program, parameters: float, variables: int) -> list[Work]:
    """One fused kernel a variable; with loss scaling a finite check over each gradient before it."""
    each = (int(parameters / variables),)
    works = []
    if p.n.loss_scaling:
        works += [
            p.fusion("input_reduce_fusion", "jit(train_step)/loss_scale_optimizer/is_finite", "reduce", ("pred", (1,)), (("f32", each),), memory_us(p.gpu, each[0] * 4.0))
            for _ in range(variables)
        ]  # fmt: skip
    full = ("f32", each)
    works += [
        p.fusion("loop_add_fusion", "jit(train_step)/adam/add", "add", full, (full,) * 6)
        for _ in range(variables)
    ]
    return works


def loss(p: Program, rows: int, classes: int) -> list[Work]:
    logits = ("f32", (rows, classes))
    op = "jit(train_step)/jvp(compile_loss)/sparse_categorical_crossentropy/reduce_sum"
    return [p.fusion("input_reduce_fusion", op, "reduce", ("f32", (rows,)), (logits, logits))]


def _cast_out(p: Program, layer: str, shape: tuple[int, ...]) -> list[Work]:
    if not p.n.mixed:
        return []
    op, t = f"{FORWARD}/{layer}/convert_element_type", _HLO[p.n.storage]
    return [p.fusion("loop_convert_fusion", op, "convert", ("f32", shape), ((t, shape),))]


def _model(
    p: Program,
    works: list[Work],
    described: tuple[dict, ...],
    batch: int,
    input_bytes: int,
    variables: int,
) -> Model:
    parameters = layers.parameters(described)
    works = [*works, *update(p, parameters, variables)]
    return Model(tuple(works), described, parameters, batch, input_bytes, module="jit_train_step")


def convnet(
    gpu: Gpu, n: Numerics, *, batch: int = 64, widths: tuple[int, ...] = (64, 128, 256, 512),
    sizes: tuple[int, ...] = (112, 56, 28, 14), classes: int = 1000, overrides: dict[str, Numerics] | None = None,
) -> Model:  # fmt: skip
    p = Program(gpu, n)
    forward: list[Work] = []
    backward: list[Work] = []
    cin = 3
    for i, (cout, size) in enumerate(zip(widths, sizes, strict=True)):
        name = layers.numbered("conv2d", i)
        f, b = convolution(p, name, batch, size, cin, cout, (overrides or {}).get(name, n))
        nf, nb = norm(p, layers.numbered("batch_normalization", i), (batch, size, size, cout))
        forward += [*f, *nf]
        backward = [*nb, *b, *backward]
        cin = cout
    f, b = dense(p, "dense", batch, cin, classes, (overrides or {}).get("dense", n))
    head = [*f, *_cast_out(p, "softmax", (batch, classes)), *loss(p, batch, classes), *b]
    described = layers.convnet(n, overrides, widths, sizes, classes, activations=False)
    works = [*forward, *head, *backward]
    return _model(p, works, described, batch, batch * sizes[0] ** 2 * 48, 4 * len(widths) + 2)


def transformer(
    gpu: Gpu, n: Numerics, *, batch: int = 32, length: int = 128, width: int = 512, blocks: int = 6,
    vocabulary: int = 32768, logits: Numerics | None = None, overrides: dict[str, Numerics] | None = None,
) -> Model:  # fmt: skip
    p = Program(gpu, n)
    rows = batch * length
    forward: list[Work] = []
    backward: list[Work] = []
    for i in range(blocks):
        for name, cin, cout in layers.block(i, width):
            f, b = dense(p, name, rows, cin, cout, (overrides or {}).get(name, n))
            forward += f
            backward = [*b, *backward]
        nf, nb = norm(p, f"block_{i}/layer_normalization", (rows, width))
        forward, backward = forward + nf, nb + backward
    own = logits or (overrides or {}).get("logits", n)
    f, b = dense(p, "logits", rows, width, vocabulary, own, "logits")
    head = [*f, *_cast_out(p, "logits_float", (rows, vocabulary)), *loss(p, rows, vocabulary), *b]
    described = layers.transformer(n, overrides, length, width, blocks, vocabulary)
    return _model(p, [*forward, *head, *backward], described, batch, rows * 4, 7 * blocks + 1)


def mlp(
    gpu: Gpu, n: Numerics, *, batch: int = 4096, widths: tuple[int, ...] = (2048, 2048, 1024), features: int = 784,
    classes: int = 16, overrides: dict[str, Numerics] | None = None,
) -> Model:  # fmt: skip
    p = Program(gpu, n)
    forward: list[Work] = []
    backward: list[Work] = []
    cin = features
    for i, cout in enumerate((*widths, classes)):
        name = layers.numbered("dense", i)
        f, b = dense(p, name, batch, cin, cout, (overrides or {}).get(name, n))
        forward, backward = forward + f, b + backward
        cin = cout
    head = [*_cast_out(p, "softmax", (batch, classes)), *loss(p, batch, classes)]
    described = layers.mlp(n, overrides, widths, features, classes)
    works = [*forward, *head, *backward]
    return _model(p, works, described, batch, batch * features * 4, 2 * len(described))


def changed(model: Model, change: Callable[[Work], Work]) -> Model:
    """The same step with every launch passed through `change`."""
    return replace(model, works=tuple(map(change, model.works)))
