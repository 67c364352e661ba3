"""What one compiled training step asks of the GPU: Keras on JAX, or on TensorFlow with `jit_compile=True`.

Library calls for matrix work, fusions for all else, each kernel named after its HLO instruction. Ops carry
JAX's transformations in their names (`jit(train_step)/transpose(jvp(model_1))/dense/dot_general`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod

from tests.builders.gpus import Gpu, matrix_us, memory_us
from tests.builders.hlo import Instruction, Tensor
from tests.builders.workloads import KERAS_DTYPE, Model, Numerics, Work, _layer

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


def dense(
    p: Program, layer: str, rows: int, cin: int, cout: int, n: Numerics, category: str = "gemm"
) -> Both:
    t = _HLO[n.storage]
    x, w, y = (t, (rows, cin)), (t, (cin, cout)), (t, (rows, cout))
    forward = [
        *(
            [
                p.fusion(
                    "wrapped_convert",
                    f"{FORWARD}/{layer}/convert_element_type",
                    "convert",
                    w,
                    (("f32", w[1]),),
                )
            ]
            if n.mixed
            else []
        ),
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
        *(
            [
                p.fusion(
                    "wrapped_convert",
                    f"{FORWARD}/{layer}/convert_element_type",
                    "convert",
                    filters,
                    (("f32", filters[1]),),
                )
            ]
            if n.mixed
            else []
        ),
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
    t = _HLO[p.n.storage]
    return [
        p.fusion(
            "loop_convert_fusion",
            f"{FORWARD}/{layer}/convert_element_type",
            "convert",
            ("f32", shape),
            ((t, shape),),
        )
    ]


def _model(
    p: Program,
    forward: list[Work],
    head: list[Work],
    backward: list[Work],
    layers: list[dict],
    parameters: float,
    batch: int,
    input_bytes: int,
    variables: int,
) -> Model:
    works = (*forward, *head, *backward, *update(p, parameters, variables))
    return Model(works, tuple(layers), int(parameters), batch, input_bytes, module="jit_train_step")


def convnet(
    gpu: Gpu, n: Numerics, *, batch: int = 64, widths: tuple[int, ...] = (64, 128, 256, 512),
    sizes: tuple[int, ...] = (112, 56, 28, 14), classes: int = 1000, overrides: dict[str, Numerics] | None = None,
) -> Model:  # fmt: skip
    p = Program(gpu, n)
    forward: list[Work] = []
    backward: list[Work] = []
    layers: list[dict] = []
    cin, parameters = 3, 0
    dtype = KERAS_DTYPE[n.storage]
    for i, (cout, size) in enumerate(zip(widths, sizes, strict=True)):
        name, bn = (f"conv2d_{i}", f"batch_normalization_{i}") if i else ("conv2d", "batch_normalization")
        own = (overrides or {}).get(name, n)
        f, b = convolution(p, name, batch, size, cin, cout, own)
        nf, nb = norm(p, bn, (batch, size, size, cout))
        forward += [*f, *nf]
        backward = [*nb, *b, *backward]
        layers += [
            _layer(name, "Conv2D", own, KERAS_DTYPE[own.storage], [None, size, size, cout], cin * cout * 9 + cout,
                   reads=cin, filters=cout, kernel_size=[3, 3], groups=1, strides=[1, 1]),
            _layer(bn, "BatchNormalization", n, dtype, [None, size, size, cout], 4 * cout),
        ]  # fmt: skip
        parameters += cin * cout * 9 + 5 * cout
        cin = cout
    f, b = dense(p, "dense", batch, cin, classes, (overrides or {}).get("dense", n))
    layers += [
        _layer(
            "dense", "Dense", n, dtype, [None, classes], cin * classes + classes, reads=cin, units=classes
        ),
        _layer("softmax", "Activation", n, "float32", [None, classes], 0, activation="softmax"),
    ]
    head = [*f, *_cast_out(p, "softmax", (batch, classes)), *loss(p, batch, classes), *b]
    parameters += cin * classes + classes
    return _model(
        p, forward, head, backward, layers, parameters, batch, batch * sizes[0] ** 2 * 48, 4 * len(widths) + 2
    )


def transformer(
    gpu: Gpu, n: Numerics, *, batch: int = 32, length: int = 128, width: int = 512, blocks: int = 6,
    vocabulary: int = 32768, logits: Numerics | None = None, overrides: dict[str, Numerics] | None = None,
) -> Model:  # fmt: skip
    p = Program(gpu, n)
    rows, dtype = batch * length, KERAS_DTYPE[n.storage]
    forward: list[Work] = []
    backward: list[Work] = []
    layers: list[dict] = []
    parameters = 0
    for i in range(blocks):
        for part, cin, cout in (
            ("query", width, width), ("key", width, width), ("value", width, width),
            ("projection", width, width), ("up", width, 4 * width), ("down", 4 * width, width),
        ):  # fmt: skip
            name = f"block_{i}/{part}"
            own = (overrides or {}).get(name, n)
            f, b = dense(p, name, rows, cin, cout, own)
            forward += f
            backward = [*b, *backward]
            layers.append(
                _layer(
                    name,
                    "Dense",
                    own,
                    KERAS_DTYPE[own.storage],
                    [None, length, cout],
                    cin * cout + cout,
                    reads=cin,
                    units=cout,
                )
            )
            parameters += cin * cout + cout
        ln = f"block_{i}/layer_normalization"
        nf, nb = norm(p, ln, (rows, width))
        forward, backward = forward + nf, nb + backward
        layers.append(_layer(ln, "LayerNormalization", n, dtype, [None, length, width], 2 * width))
        parameters += 2 * width
    own = logits or (overrides or {}).get("logits", n)
    f, b = dense(p, "logits", rows, width, vocabulary, own, "logits")
    layers += [
        _layer(
            "logits",
            "Dense",
            n,
            dtype,
            [None, length, vocabulary],
            width * vocabulary,
            reads=width,
            units=vocabulary,
        ),
        _layer(
            "logits_float", "Activation", n, "float32", [None, length, vocabulary], 0, activation="linear"
        ),
    ]
    head = [*f, *_cast_out(p, "logits_float", (rows, vocabulary)), *loss(p, rows, vocabulary), *b]
    parameters += width * vocabulary
    return _model(p, forward, head, backward, layers, parameters, batch, rows * 4, 7 * blocks + 1)


def mlp(
    gpu: Gpu, n: Numerics, *, batch: int = 4096, widths: tuple[int, ...] = (2048, 2048, 1024), features: int = 784,
    classes: int = 16, overrides: dict[str, Numerics] | None = None,
) -> Model:  # fmt: skip
    p = Program(gpu, n)
    forward: list[Work] = []
    backward: list[Work] = []
    layers: list[dict] = []
    cin, parameters = features, 0
    for i, cout in enumerate((*widths, classes)):
        name = f"dense_{i}" if i else "dense"
        own = (overrides or {}).get(name, n)
        f, b = dense(p, name, batch, cin, cout, own)
        forward, backward = forward + f, b + backward
        layers.append(
            _layer(
                name,
                "Dense",
                own,
                KERAS_DTYPE[own.storage],
                [None, cout],
                cin * cout + cout,
                reads=cin,
                units=cout,
            )
        )
        parameters += cin * cout + cout
        cin = cout
    layers.append(_layer("softmax", "Activation", n, "float32", [None, classes], 0, activation="softmax"))
    head = [*_cast_out(p, "softmax", (batch, classes)), *loss(p, batch, classes)]
    return _model(
        p, forward, head, backward, layers, parameters, batch, batch * features * 4, 2 * len(layers)
    )


def changed(model: Model, change: Callable[[Work], Work]) -> Model:
    """The same step with every launch passed through `change`."""
    return replace(model, works=tuple(map(change, model.works)))
