"""Causes for a training drawn at random, each with the strength that a share of its step asks for."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.builders.numerics import KERAS_DTYPE, MIXED_FLOAT16, Numerics
from tests.builders.workloads import GRADIENT, MODEL, Model
from tests.planted import cases, generator
from tests.planted.random_training import Cause, Kind, Spec, launches_of, model_of, training


def _on_host(**change: float) -> Callable[[Spec], Spec]:
    return lambda spec: replace(spec, host=replace(spec.host, **change))


def _changed(change: Callable[[Model, Spec], Model], **spec_facts: Any) -> Callable[[Spec], Spec]:
    return lambda spec: replace(spec, changes=(*spec.changes, change), **spec_facts)


def _overridden(layers: tuple[str, ...], numerics: Callable[[Spec], Numerics]) -> Callable[[Spec], Spec]:
    return lambda spec: replace(spec, overrides={**spec.overrides, **dict.fromkeys(layers, numerics(spec))})


def _cuda_cores(spec: Spec) -> Numerics:
    return replace(spec.numerics, matrix="fp16_cuda")


def _matrix_layers(spec: Spec) -> list[str]:
    """Layers that `overrides` can name, the first and the last of the model left out."""
    if spec.kind == "convnet":
        return [f"conv2d_{i}" for i in range(1, len(spec.sizes["widths"]))]
    if spec.kind == "mlp":
        return [f"dense_{i}" for i in range(1, len(spec.sizes["widths"]))]
    parts = ("query", "key", "value", "projection", "up", "down")
    return [f"block_{i}/{part}" for i in range(spec.sizes["blocks"]) for part in parts]


def _some(rng: random.Random, layers: list[str]) -> tuple[str, ...]:
    return tuple(rng.sample(layers, rng.randint(1, min(3, len(layers)))))


def _bytes_of(rng: random.Random, spec: Spec) -> float:
    """So many bytes as take a share of the step to move."""
    us = generator.step_ns(training(spec)) / 1e3 * rng.uniform(0.2, 1.2)
    return us * spec.gpu.bandwidth_gb_s * spec.gpu.streaming_ratio * 1e3


def waiting(rng: random.Random, spec: Spec) -> Cause | None:
    step = generator.step_ns(training(spec)) / 1e3
    return Cause("MP301", _on_host(input_us=step * rng.uniform(0.3, 2.0)))


def callbacks(rng: random.Random, spec: Spec) -> Cause | None:
    step = generator.step_ns(training(spec)) / 1e3
    return Cause("MP305", _on_host(between_us=step * rng.uniform(0.3, 1.5)))


def launches(rng: random.Random, spec: Spec) -> Cause | None:
    each = generator.step_ns(training(spec)) / 1e3 / launches_of(spec)
    return Cause("MP302", _on_host(dispatch_us=each * rng.uniform(1.0, 2.5) + 3.0))


def island(rng: random.Random, spec: Spec) -> Cause | None:
    return Cause("MP104", _overridden(_some(rng, _matrix_layers(spec)), lambda s: s.base))


def algorithm(rng: random.Random, spec: Spec) -> Cause | None:
    category = "conv_dgrad" if spec.kind == "convnet" else "gemm"
    if spec.numerics is not MIXED_FLOAT16 or (category, "fp16_cuda") not in spec.gpu.names:
        return None
    return Cause("MP409", _overridden(_some(rng, _matrix_layers(spec)), _cuda_cores))


def unaligned(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.kind != "mlp" or spec.numerics is not MIXED_FLOAT16 or "fp16_cuda" not in spec.gpu.tflops:
        return None
    widths = list(spec.sizes["widths"])
    at = rng.randrange(len(widths) - 1)
    widths[at] += rng.choice((-5, -3, -1, 1, 3))
    layers = tuple(f"dense_{i}" if i else "dense" for i in (at, at + 1))

    def odd(s: Spec) -> Spec:
        return replace(s, sizes={**s.sizes, "widths": tuple(widths)})

    return Cause("MP401", lambda s: _overridden(layers, _cuda_cores)(odd(s)), odd)


def vocabulary(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.kind != "transformer" or spec.numerics is not MIXED_FLOAT16 or "fp16_cuda" not in spec.gpu.tflops:
        return None
    size = spec.sizes["vocabulary"] + rng.choice((1, 3, 5, 7))

    def odd(s: Spec) -> Spec:
        return replace(s, sizes={**s.sizes, "vocabulary": size})

    return Cause("MP402", lambda s: _overridden(("logits",), _cuda_cores)(odd(s)), odd)


def first_convolution(rng: random.Random, spec: Spec) -> Cause | None:
    if (
        spec.kind != "convnet"
        or spec.numerics is not MIXED_FLOAT16
        or ("conv_fprop", "fp16_cuda") not in spec.gpu.names
    ):
        return None  # fmt: skip
    return Cause("MP403", _overridden(("conv2d",), _cuda_cores))


def layout(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled:
        return None
    made = training(spec).model
    elements = _bytes_of(rng, spec) / (sum(map(generator.is_matrix, made.works)) * 2 * spec.numerics.size)
    return Cause("MP405", _changed(
        lambda m, s: generator.followed(m, generator.is_matrix, generator.transposes(s.gpu, s.numerics, elements))
    ))  # fmt: skip


def casts(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled:
        return None
    op = "/down/BiasAdd" if spec.kind == "transformer" else "/Relu"
    followed = sum(work.op.endswith(op) for work in model_of(spec, spec.numerics, {}).works)
    elements = _bytes_of(rng, spec) / (followed * 12)
    return Cause("MP503", _changed(
        lambda m, s: generator.followed(m, lambda w: w.op.endswith(op), generator.casts_behind(s.gpu, s.numerics, elements))
    ))  # fmt: skip


def cpu_op(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled:
        return None
    us = rng.uniform(0.2, 0.8) * generator.step_ns(training(spec)) / 1e3
    op = {"convnet": f"{MODEL}/re_lu_1/Relu", "mlp": f"{MODEL}/dense_1/Relu", "transformer": f"{MODEL}/block_0/activation/Relu"}[spec.kind]  # fmt: skip
    size = rng.randint(1, 12) * 1_000_000

    def change(model: Model, s: Spec) -> Model:
        storage = s.numerics.storage
        return generator.followed(
            model, lambda w: w.op == op, lambda w: generator.cpu_op("noise", us, size, storage)
        )

    return Cause("MP306", _changed(change))


def finite_checks(rng: random.Random, spec: Spec) -> Cause | None:
    """The cure is a fixed scale: no check, no un-scaling."""
    if spec.compiled or not spec.numerics.loss_scaling:
        return None
    variables, values = rng.randint(100, 400), _bytes_of(rng, spec) / 5

    def change(model: Model, s: Spec) -> Model:
        return generator.appended(model, generator.finite_checks(s.gpu, values, variables))

    def unscaled(s: Spec) -> Spec:
        numerics = replace(s.numerics, loss_scaling=False)
        return replace(s, numerics=numerics, facts={**s.facts, "optimizer": cases.STATIC})

    return Cause("MP304", _changed(change), unscaled)


def clipping(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled or not spec.numerics.loss_scaling:
        return None
    variables, values = rng.randint(40, 200), _bytes_of(rng, spec) / 12
    optimizer = {
        "class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True, "initial_scale": 32768.0,
        "growth_steps": 2000, "clipping": {"global_clipnorm": 1.0},
    }  # fmt: skip

    def plant(s: Spec) -> Spec:
        change = _changed(lambda m, s: generator.appended(m, generator.clipping(s.gpu, values, variables)))
        return replace(change(s), facts={**s.facts, "optimizer": optimizer})

    return Cause("MP506", plant)


def embedding(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled or spec.kind == "transformer":
        return None
    width = rng.choice((32, 48, 64, 128))
    rows = int(_bytes_of(rng, spec) / (56 * width))

    def change(model: Model, s: Spec) -> Model:
        return generator.with_embedding(model, s.gpu, rows, width, KERAS_DTYPE[s.numerics.storage])

    change.of_the_model = True  # type: ignore[attr-defined]
    return Cause("MP505", _changed(change))


def depthwise(rng: random.Random, spec: Spec) -> Cause | None:
    """Kernels that are slower in 16 bits than in 32; the twin keeps the layer in float32."""
    if spec.compiled or spec.kind != "convnet" or spec.numerics is not MIXED_FLOAT16:
        return None
    slower = rng.uniform(8.0, 40.0)

    def change(model: Model, s: Spec) -> Model:
        return generator.with_depthwise(model, s.gpu, s.numerics, slower if s.numerics.mixed else 1.0)

    def kept(model: Model, s: Spec) -> Model:
        return generator.with_depthwise(model, s.gpu, s.base)

    change.of_the_model = True  # type: ignore[attr-defined]
    return Cause("MP406", _changed(change), _changed(kept))


def unfused_norms(rng: random.Random, spec: Spec) -> Cause | None:
    if not spec.compiled or spec.kind != "convnet":
        return None
    return Cause("MP501", _changed(lambda m, s: generator.norms_in_float32(m, s.gpu)))


def update_in_pieces(rng: random.Random, spec: Spec) -> Cause | None:
    if not spec.compiled:
        return None

    def change(model: Model, s: Spec) -> Model:
        return generator.update_in_pieces(model, s.gpu)

    change.of_the_model = True  # type: ignore[attr-defined]
    return Cause("MP504", _changed(change))


def fed_float32(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled or spec.kind != "mlp" or spec.numerics is not MIXED_FLOAT16:
        return None
    layer = f"dense_{rng.randint(1, len(spec.sizes['widths']) - 1)}"
    before = f"dense_{int(layer[-1]) - 1}" if layer != "dense_1" else "dense"
    values = spec.sizes["batch"] * spec.sizes["widths"][int(layer[-1]) - 1]
    ops = (f"{MODEL}/{before}/Relu", f"{GRADIENT}/{layer}/ReluGrad")
    return Cause("MP107", _changed(
        lambda m, s: generator.followed(m, lambda w: w.op in ops, generator.casts_into(s.gpu, layer, values))
    ))  # fmt: skip


def _recorded(code: str, **facts: Any) -> Kind:
    """A cause that is in the records and costs no time of a steady step."""

    def cause(rng: random.Random, spec: Spec) -> Cause | None:
        if not spec.numerics.loss_scaling:
            return None
        return Cause(code, lambda s: replace(s, facts={**s.facts, **facts}), costs=False)

    return cause


TIMED: tuple[Kind, ...] = (
    waiting, callbacks, launches, island, island, algorithm, unaligned, vocabulary, first_convolution, layout,
    casts, cpu_op, finite_checks, clipping, embedding, depthwise, unfused_norms, update_in_pieces, fed_float32,
)  # fmt: skip
RECORDED = (
    _recorded("MP201", skip_steps=frozenset(range(22, 81, 4))),
    _recorded("MP203", scales={48: 2.0**33, 64: 2.0**41, 80: 2.0**50}),
    _recorded("MP206", losses=dict.fromkeys(range(50, 81), "NaN")),
)
