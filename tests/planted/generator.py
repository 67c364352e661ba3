"""Planted cases: a training with one cause or several, and its twins without them.

What a cause costs is known because the same training is played without it: planted step less twin's step.
Nothing here imports mpprof; kernel rates come from tests/builders/gpus.py.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from tests.builders import layers, workloads, xla_workloads
from tests.builders.gpus import Gpu, matrix_us, memory_us
from tests.builders.hlo import Instruction
from tests.builders.numerics import KERAS_DTYPE, Numerics
from tests.builders.simulate import Host, Training, train, write
from tests.builders.workloads import GRADIENT, MODEL, Model, Work, cast, elementwise

STEPS, WINDOW = 80, (40, 44)
JAX_HOST = Host(
    executor="PjRtStreamExecutorLoadedExecutable::Execute", dispatch_us=0.5, launch_us=3.0, begin_us=120.0
)
JAX = {
    "framework": {
        "keras": "3.15.1", "backend": "jax", "backend_version": "0.10.2", "python": "3.12.3",
        "xla_flags": "--xla_gpu_enable_command_buffer=",
    },
}  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """`twins`: for every planted code the training without it; None where it costs no time of the step.

    `truth_ns` overrides the difference for costs that are no part of the step (steps thrown away)."""

    name: str
    training: Training
    twins: Mapping[str, Training | None]
    baseline: Training | None = None
    unseen: bool = False
    truth_ns: Mapping[str, float] = field(default_factory=dict)
    also: frozenset[str] = frozenset()  # codes that follow from the planted ones and may be named too

    def costs(self, code: str) -> bool:
        """Whether there is a `cost_ns`, without playing the trainings."""
        return code in self.truth_ns or self.twins[code] is not None

    def cost_ns(self, code: str) -> float | None:
        if code in self.truth_ns:
            return self.truth_ns[code]
        twin = self.twins[code]
        return None if twin is None else step_ns(self.training) - step_ns(twin)

    def profiled_cost_ns(self, code: str) -> float | None:
        """The same of profiled steps, which is all that a trace without records can show."""
        twin = self.twins[code]
        if code in self.truth_ns or twin is None:
            return self.cost_ns(code)
        return profiled_step_ns(self.training) - profiled_step_ns(twin)


_KEPT: dict[int, tuple[Training, float]] = {}


def step_ns(training: Training) -> float:
    """The median step of the generator's own log, the first quarter and the window left out."""
    if id(training) not in _KEPT:
        _keep(training, train(replace(training, profile=None))[1])
    return _KEPT[id(training)][1]


def profiled_step_ns(training: Training) -> float:
    """The median profiled step of the generator's own log."""
    lines = train(training)[1]
    return statistics.median(
        line["interval_ns"] / line["covers"]
        for line in lines
        if line.get("kind") == "step" and line["profiled"] and "interval_ns" in line
    )


def _keep(training: Training, lines: list[dict[str, Any]]) -> None:
    times = [
        line["interval_ns"] / line["covers"]
        for line in lines
        if line.get("kind") == "step"
        and line["step"] > training.steps // 4
        and "interval_ns" in line
        and not line["profiled"]
    ]
    _KEPT[id(training)] = (training, statistics.median(times) if times else 0.0)


def written(training: Training, directory: Path) -> Path:
    """The training's log directory under `directory`."""
    played = train(training)
    _keep(training, played[1])
    return write(training, directory / training.name, played)


# --- trainings ---------------------------------------------------------------------------------------------


def run(name: str, gpu: Gpu, n: Numerics, model: Model, **facts: Any) -> Training:
    given: dict[str, Any] = {"steps": STEPS, "profile": WINDOW, "warmup_s": 0.3}
    given["peak_bytes"] = round(0.8 * gpu.memory_bytes)  # the batch fills the card
    if model.module and "facts" not in facts:
        given |= {"facts": JAX, "fit": {"jit_compile": True}, "host": JAX_HOST}
    return Training(name=name, gpu=gpu, numerics=n, model=model, **{**given, **facts})


def single(
    code: str, planted: Training, healthy: Training, baseline: Training | None = None, **more: Any
) -> Planted:
    """One cause."""
    return Planted(planted.name, planted, {code: healthy}, baseline, **more)


def small_input(model: Model, input_bytes: int = 600_000) -> Model:
    """Images of a byte a channel, moved while the step before runs: a copy that costs next to nothing."""
    return replace(model, input_bytes=input_bytes)


def mlp(gpu: Gpu, n: Numerics, **facts: Any) -> Model:
    """Layers of a TensorFlow model whose batch travels while the step before runs."""
    return small_input(workloads.mlp(gpu, n, **facts))


def xla_mlp(gpu: Gpu, n: Numerics, **facts: Any) -> Model:
    """The same under XLA."""
    return small_input(xla_workloads.mlp(gpu, n, **facts))


# --- changing a model's work -------------------------------------------------------------------------------


def remade(model: Model, change: Callable[[Work], list[Work]]) -> Model:
    """Every launch replaced by what `change` makes of it."""
    return replace(model, works=tuple(new for work in model.works for new in change(work)))


def followed(model: Model, chosen: Callable[[Work], bool], extra: Callable[[Work], list[Work]]) -> Model:
    """More work behind the chosen launches."""
    return remade(model, lambda work: [work, *extra(work)] if chosen(work) else [work])


def appended(model: Model, works: list[Work], before: str = "/IsFinite") -> Model:
    """More work behind the backward pass."""
    at = next((i for i, w in enumerate(model.works) if before in w.op or "/adam/" in w.op), len(model.works))
    return replace(model, works=(*model.works[:at], *works, *model.works[at:]))


def layer_changed(model: Model, name: str, **facts: Any) -> Model:
    return replace(
        model, layers=tuple({**layer, **facts} if layer["name"] == name else layer for layer in model.layers)
    )


def in_float8(model: Model) -> Model:
    """The model's Dense layers as Keras records them once they are quantised."""
    policy = {"dtype_policy": "float8_from_mixed_bfloat16"}
    return replace(
        model,
        layers=tuple({**layer, **(policy if layer["class"] == "Dense" else {})} for layer in model.layers),
    )


def configured(model: Model, name: str, **config: Any) -> Model:
    own = next(layer for layer in model.layers if layer["name"] == name)
    return layer_changed(model, name, config={**own["config"], **config})


def renamed(model: Model, names: Mapping[str, str]) -> Model:
    """Layers under other names, in ops and records."""

    def other(op: str) -> str:
        parts = op.split("/")
        return "/".join(names.get(part, part) for part in parts)

    def work(w: Work) -> Work:
        made = w.hlo and replace(
            w.hlo,
            op_name=other(w.hlo.op_name),
            inside=tuple(replace(i, op_name=other(i.op_name)) for i in w.hlo.inside),
        )
        return replace(w, op=other(w.op), hlo=made)

    layers = tuple({**layer, "name": other(layer["name"])} for layer in model.layers)
    return replace(model, works=tuple(map(work, model.works)), layers=layers)


def respelled(gpu: Gpu, names: Mapping[tuple[str, str], str]) -> Gpu:
    """The same card with other kernels of the same rates."""
    return replace(gpu, names={**gpu.names, **names})


# --- single causes as changes of the work ------------------------------------------------------------------


def of_layer(name: str) -> Callable[[Work], bool]:
    return lambda work: f"/{name}/" in work.op or work.op.endswith(f"/{name}")


def is_matrix(work: Work) -> bool:
    return work.type.startswith(("Conv", "MatMul", "Depthwise"))


def transposes(gpu: Gpu, n: Numerics, elements: float) -> Callable[[Work], list[Work]]:
    """A change of layout behind each chosen op."""
    type_name = {"half": "__half", "float": "float", "bfloat16": "__nv_bfloat16"}[n.storage]
    kernel = f"void cudnn::ops::nchwToNhwcKernel<{type_name}, {type_name}, float, false, true, (cudnnKernelDataType_t)0>(cudnn::ops::nchw2nhwc_params_t<float>, {type_name} const*, {type_name}*)"
    return lambda work: [Work(kernel, work.op, work.type, memory_us(gpu, elements * n.size * 2), work.shapes)]


def casts_behind(gpu: Gpu, n: Numerics, elements: float) -> Callable[[Work], list[Work]]:
    """An activation cast up and down again."""
    return lambda work: [
        cast(gpu, f"{MODEL}/mixing/{work.op.rsplit('/', 2)[-2]}", n.storage, "float", elements, "Cast"),
        cast(gpu, f"{MODEL}/mixing/{work.op.rsplit('/', 2)[-2]}", "float", n.storage, elements, "Cast_1"),
    ]


def casts_into(gpu: Gpu, layer: str, elements: float) -> Callable[[Work], list[Work]]:
    """A float32 tensor that a layer is fed and casts down, and the same for its gradient."""
    return lambda work: [
        cast(
            gpu,
            f"{GRADIENT if 'gradient' in work.op else MODEL}/{layer}",
            "float",
            "half",
            elements,
            "Cast_2",
        )
    ]


def cast_by_the_next(model: Model, island: str, following: str) -> Model:
    """Keras' way: a layer's float32 output is cast down in the scope of the layer that takes it."""

    def moved(work: Work) -> list[Work]:
        if work.op == f"{MODEL}/{island}/Cast_out":
            return [replace(work, op=f"{MODEL}/{following}/Cast_2")]
        return [work]

    return remade(model, moved)


def norms_in_float32(model: Model, gpu: Gpu) -> Model:
    """Norms that XLA could not fuse: float32 tensors in their kernels, and converts of their own around them."""

    def change(work: Work) -> list[Work]:
        if work.hlo is None or "batch_normalization" not in work.op:
            return [work]

        def wide(made: Instruction) -> Instruction:
            return replace(
                made, result=("f32", made.result[1]), operands=tuple(("f32", dims) for _, dims in made.operands),
                inside=tuple(map(wide, made.inside)),
            )  # fmt: skip

        full = max((dims for _, dims in work.hlo.operands), key=prod)
        scope = work.op.rsplit("/", 1)[0]
        small = work.hlo.operands[0][0]
        converts = []
        for source, target in ((small, "f32"), ("f32", small)):
            name = f"convert_{source}_{work.hlo.name}"
            inner = Instruction(
                f"{name}.in", "convert", (target, full), ((source, full),), f"{scope}/convert_element_type"
            )
            made = Instruction(
                name, "fusion", (target, full), ((source, full),), inner.op_name, inside=(inner,)
            )
            converts.append(
                Work(name.replace(".", "_"), inner.op_name, "", memory_us(gpu, prod(full) * 6.0), hlo=made)
            )
        down = [converts[1]] if "mul" in work.op else []
        return [converts[0], replace(work, us=work.us * 2 - 2.0, hlo=wide(work.hlo)), *down]

    return remade(model, change)


def update_in_pieces(model: Model, gpu: Gpu) -> Model:
    """The optimizer's update as seven kernels a variable, each of which reads two tensors and writes one."""

    def change(work: Work) -> list[Work]:
        if work.hlo is None or "/adam/" not in work.op:
            return [work]
        values = prod(work.hlo.result[1])
        return [
            replace(work, us=memory_us(gpu, values * 12.0), hlo=replace(work.hlo, name=f"{work.hlo.name}.piece{i}"), kernel=f"{work.kernel}_piece{i}")
            for i in range(7)
        ]  # fmt: skip

    return remade(model, change)


def clipping(gpu: Gpu, parameters: float, variables: int) -> list[Work]:
    each = parameters / variables
    scope = "StatefulPartitionedCall/global_norm"
    works = [
        Work("void tensorflow::functor::L2LossKernel<float>(float const*, float*, int)", f"{scope}/L2Loss_{v}", "L2Loss", memory_us(gpu, each * 4))
        for v in range(variables)
    ]  # fmt: skip
    scale = "StatefulPartitionedCall/clip_by_global_norm"
    works += [
        replace(elementwise(gpu, scale, "Mul", "float", each), op=f"{scale}/mul_{v}")
        for v in range(variables)
    ]
    return works


def finite_checks(gpu: Gpu, parameters: float, variables: int) -> list[Work]:
    """A finite check and an un-scaling for each of many variables."""
    scope, each = "StatefulPartitionedCall", parameters / variables
    works = []
    for v in range(1000, 1000 + variables):
        works += [
            Work("IsFinite_GPU_DT_FLOAT_DT_BOOL_kernel", f"{scope}/IsFinite_{v}", "IsFinite", memory_us(gpu, each * 5)),
            Work("void cub::DeviceReduceSingleTileKernel<bool*, bool*, int, tensorflow::functor::And>(bool*, bool*, int, tensorflow::functor::And, bool)", f"{scope}/All_{v}", "All", 2.2),
        ]  # fmt: skip
    return works


def embedding_update(gpu: Gpu, vocabulary: int, width: int) -> list[Work]:
    """A sparse gradient made dense, and Adam over the whole table."""
    elements = float(vocabulary * width)
    scope = f"{GRADIENT}/embedding"
    dense = Work(
        "void tensorflow::functor::UnsortedSegmentCustomKernel<float, int, tensorflow::functor::SumOpGpu>(long, long, long, int const*, float const*, float*)",
        f"{scope}/UnsortedSegmentSum", "UnsortedSegmentSum", memory_us(gpu, elements * 8),
        f"(float[{vocabulary},{width}])",
    )  # fmt: skip
    table = [
        replace(elementwise(gpu, "StatefulPartitionedCall/adam", op, "float", elements, reads=2), op=f"StatefulPartitionedCall/adam/embedding_{op}")
        for op in ("Sub", "Mul", "Square", "Sqrt")
    ]  # fmt: skip
    return [dense, *table]


def with_embedding(model: Model, gpu: Gpu, vocabulary: int, width: int, dtype: str) -> Model:
    """An embedding before the model, whose table is updated as a whole."""
    values = vocabulary * width
    layer = {
        "name": "embedding", "class": "Embedding", "compute_dtype": dtype, "variable_dtype": "float32",
        "output_dtype": dtype, "config": {"input_dim": vocabulary, "output_dim": width},
        "output_shape": [None, 16, width], "parameters": values, "supports_jit": True,
    }  # fmt: skip
    made = appended(model, embedding_update(gpu, vocabulary, width))
    return replace(made, layers=(layer, *made.layers), parameters=made.parameters + values)


def bias_gradient(n: Numerics, us: float, layer: str = "dense_1") -> list[Work]:
    """The sum of a bias' gradient, as TensorFlow launches it without XLA; an H200 took 42 times as long in 16 bits."""
    of = {"half": "Eigen::half", "float": "float", "bfloat16": "Eigen::bfloat16"}[n.storage]
    kernel = f"void tensorflow::BiasGradNHWC_Naive<{of}>(int, {of} const*, {of}*, int)"
    return [Work(kernel, f"{GRADIENT}/{layer}/BiasAdd/BiasAddGrad", "BiasAddGrad", us)]


def cpu_op(name: str, us: float, bytes: int, storage: str = "bfloat16") -> list[Work]:
    """An op without a kernel for this type: its tensor goes to the host and back."""
    scope = f"{MODEL}/{name}"
    return [
        Work("MemcpyD2H", f"{scope}/Erfinv", "_Send", bytes / 11e3, stream="d2h", bytes=bytes, sync=True),
        Work("", f"{scope}/Erfinv", "Erfinv", us, f"({storage}[{bytes // 2}])", stream="host"),
        Work("MemcpyH2D", f"{scope}/Erfinv", "_Recv", bytes / 11e3, stream="h2d", bytes=bytes),
    ]


def depthwise(
    gpu: Gpu, n: Numerics, slower: float = 1.0, batch: int = 64, size: int = 56, channels: int = 128
) -> tuple[list[Work], list[Work], dict]:
    """A depthwise convolution; old TensorFlow kernels are slower in 16 bits, most of all the filter's gradient."""
    elements = float(batch * size * size * channels)
    storage = n.storage
    c_type = {"half": "Eigen::half", "float": "float", "bfloat16": "Eigen::bfloat16"}[storage]
    us = memory_us(gpu, elements * n.size * 4)
    image, filters = f"{storage}[{batch},{size},{size},{channels}]", f"{storage}[3,3,{channels},1]"
    scope, grad = f"{MODEL}/depthwise_conv2d/depthwise", f"{GRADIENT}/depthwise_conv2d/depthwise"
    kernel = "void tensorflow::DepthwiseConv2d{}GPUKernelNHWC<{}, 3, 3, 1, false>(tensorflow::DepthwiseArgs, {} const*, {} const*, {}*, int)"

    def named(direction: str) -> str:
        return kernel.format(direction, c_type, c_type, c_type, c_type)

    forward = [Work(named(""), scope, "DepthwiseConv2dNative", us, f"({image};{filters})")]
    backward = [
        Work(named("BackpropInput"), f"{grad}/DepthwiseConv2dNativeBackpropInput", "DepthwiseConv2dNativeBackpropInput", us, f"({filters};{image})"),
        Work(named("BackpropFilter"), f"{grad}/DepthwiseConv2dNativeBackpropFilter", "DepthwiseConv2dNativeBackpropFilter", us * slower, f"({image};{image})"),
    ]  # fmt: skip
    dtype = KERAS_DTYPE[storage]
    layer = layers.layer(
        "depthwise_conv2d",
        "DepthwiseConv2D",
        dtype,
        [None, size, size, channels],
        9 * channels,
        kernel_size=[3, 3],
    )
    return forward, backward, layer


def with_depthwise(model: Model, gpu: Gpu, n: Numerics, slower: float = 1.0) -> Model:
    forward, backward, layer = depthwise(gpu, n, slower)
    at = next(i for i, w in enumerate(model.works) if w.op.startswith(f"{MODEL}/dense"))
    until = next(
        i
        for i, w in enumerate(model.works)
        if w.op.startswith(f"{GRADIENT}/conv2d_") or w.op.startswith(f"{GRADIENT}/re_lu")
    )
    works = (*model.works[:at], *forward, *model.works[at:until], *backward, *model.works[until:])
    return replace(model, works=works, layers=(*model.layers[:-2], layer, *model.layers[-2:]))


def slower_loss(model: Model, ratio: float) -> Model:
    """The loss' kernels take so many times as long."""

    def change(work: Work) -> list[Work]:
        return [replace(work, us=work.us * ratio) if "compile_loss" in work.op else work]

    return remade(model, change)


def activations(gpu: Gpu, n: Numerics, elements: float, count: int) -> Callable[[Work], list[Work]]:
    """So many activations, one after the other, in scopes of their own."""

    def extra(work: Work) -> list[Work]:
        layer = work.op.rsplit("/", 2)[-2]
        return [
            elementwise(gpu, f"{MODEL}/{layer}/chain_{i}", op, n.storage, elements)
            for i, op in zip(range(count), ("Tanh", "Mul", "AddV2", "Sigmoid", "Maximum"), strict=False)
        ]

    return extra


def with_attention(
    model: Model, gpu: Gpu, n: Numerics, batch: int = 32, heads: int = 8, length: int = 512
) -> Model:
    """Attention that writes its scores: two products, and masks and a softmax over batch x heads x length^2."""
    scope, scores = f"{MODEL}/multi_head_attention", float(batch * heads * length * length)
    shape = f"({n.storage}[{batch * heads},{length},64];{n.storage}[{batch * heads},64,{length}])"
    flops = 2.0 * scores * 64
    product = Work(
        gpu.names["gemm", n.matrix],
        f"{scope}/einsum/Einsum",
        "Einsum",
        matrix_us(gpu, n.matrix, flops, scores * n.size),
        shape,
    )
    works = [
        product,
        *(elementwise(gpu, f"{scope}/softmax", op, n.storage, scores) for op in ("Mul", "AddV2", "Softmax")),
        replace(product, op=f"{scope}/einsum_1/Einsum"),
    ]  # fmt: skip
    layer = layers.layer(
        "multi_head_attention", "MultiHeadAttention", KERAS_DTYPE[n.storage], [None, length, 512], 1_050_624,
        num_heads=heads, key_dim=64,
    )  # fmt: skip
    at = next(i for i, w in enumerate(model.works) if w.op.startswith(f"{MODEL}/logits"))
    inserted = (*model.works[:at], *works, *model.works[at:])
    return replace(model, works=inserted, layers=(*model.layers[:-2], layer, *model.layers[-2:]))
