"""Random planted cases: the judge of the rules, because no rule was written against any one of them.

A seed gives a training of a random kind, size, card, flavour and noise, on kernels of random efficiency and
under random names of layers. One, two or three causes are planted in it, each of which takes a noticeable part
of the step. The truth of a cause is the step less that of the same training with only the others in it.
Nothing here imports mpprof.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.builders import workloads as tf
from tests.builders import xla_workloads as xla
from tests.builders.gpus import Gpu
from tests.builders.simulate import Host, Training
from tests.builders.workloads import (
    FLOAT32,
    GRADIENT,
    MIXED_BFLOAT16,
    MIXED_FLOAT16,
    MODEL,
    TF32,
    Model,
    Numerics,
)
from tests.planted import cases, generator
from tests.planted.generator import Planted, run, small_input

LEAST_RATIO, MOST_RATIO = 0.12, 0.75
"""A cause takes so much of the step: several rules are silent up to a tenth."""
LEAST_OF = {"MP302": 0.2, "MP304": 0.2, "MP503": 0.2, "MP504": 0.35, "MP505": 0.15}
"""Every healthy run has some launching, un-scaling, casting and updating: only more than that is planted."""
TRIES = 60
HOST_RATIO, UPDATE_RATIO = 0.09, 0.25
"""In a healthy run the host takes no more of the step beside the device, nor the optimizer's update."""
CARDS = (cases.V100, cases.OTHER_V100, cases.T4, cases.OTHER_T4, cases.A100, cases.OTHER_A100, cases.H100,
         cases.OTHER_H100)  # fmt: skip
HALF_CUDA = {
    role: name.replace("volta", "turing") for role, name in cases.V100.names.items() if role[1] == "fp16_cuda"
}
_WORDS = ("ka", "lo", "mi", "ru", "te", "vo", "zen", "qua", "fi", "bor", "dax", "yul", "stem", "neck", "unit")


@dataclass(frozen=True)
class Spec:
    """A training before its causes. `sizes` go to the builder of its `kind`; `causes` change it in turn."""

    seed: int
    kind: str
    gpu: Gpu
    numerics: Numerics
    compiled: bool
    sizes: Mapping[str, Any]
    host: Host
    causes: tuple[Cause, ...] = ()
    overrides: Mapping[str, Numerics] = field(default_factory=dict)
    changes: tuple[Callable[[Model, Spec], Model], ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)  # laid over the training

    @property
    def base(self) -> Numerics:
        return TF32 if "tf32" in self.gpu.tflops else FLOAT32

    def cured_of(self, cause: Cause) -> Spec:
        return cause.cure(self) if cause.cure else self


@dataclass(frozen=True)
class Cause:
    """`plant` gives the training with the cause in it, `cure` the one in which it is remedied (None: as it was
    before)."""

    code: str
    plant: Callable[[Spec], Spec]
    cure: Callable[[Spec], Spec] | None = None
    costs: bool = True


def training(spec: Spec, cured: str = "") -> Training:
    """The training of a spec with its causes in it, but for the one of the code `cured`."""
    for cause in spec.causes:
        spec = spec.cured_of(cause) if cause.code == cured else cause.plant(spec)
    model = _model(spec, spec.numerics, spec.overrides)
    for change in spec.changes:
        model = change(model, spec)
    name = "-".join(["random", str(spec.seed), *(cause.code for cause in spec.causes)])
    return _run(name, spec, spec.numerics, model, **spec.facts)


def baseline(spec: Spec) -> Training:
    """The float32 run of the same model on a host that is as fast, with nothing planted in it but what belongs
    to the model (an embedding, a depthwise convolution)."""
    for cause in spec.causes:
        planted = cause.plant(spec)
        kept = tuple(change for change in planted.changes if getattr(change, "of_the_model", False))
        spec = replace(spec, changes=kept, sizes=planted.sizes, causes=())
    model = _model(spec, spec.base, {})
    for change in spec.changes:
        model = change(model, replace(spec, numerics=spec.base))
    return _run("float32", spec, spec.base, model)


def _run(name: str, spec: Spec, n: Numerics, model: Model, **facts: Any) -> Training:
    jax = {"facts": generator.JAX, "fit": {"jit_compile": True}} if spec.compiled else {}
    merged = {**jax, **facts}
    return run(
        name, spec.gpu, n, generator.renamed(model, _names(spec.seed, model)), host=spec.host, seed=spec.seed, **merged
    )  # fmt: skip


def _model(spec: Spec, n: Numerics, overrides: Mapping[str, Numerics]) -> Model:
    build = getattr(xla if spec.compiled else tf, spec.kind)
    return small_input(build(spec.gpu, n, overrides=dict(overrides), **spec.sizes), spec.sizes["batch"] * 300)


def _names(seed: int, model: Model) -> dict[str, str]:
    """A random name for every part of every layer's name."""
    rng = random.Random(f"names {seed}")
    parts = dict.fromkeys(part for layer in model.layers for part in layer["name"].split("/"))
    return {part: f"{rng.choice(_WORDS)}{rng.choice(_WORDS)}_{number}" for number, part in enumerate(parts)}


# --- the healthy training ----------------------------------------------------------------------------------


def healthy(rng: random.Random, seed: int) -> Spec:
    """A training with nothing wrong with it: kernels long enough for its host."""
    for _ in range(TRIES):
        spec = _drawn(rng, seed)
        made = training(spec)
        step, free = generator.step_ns(made), generator.step_ns(training(_unhindered(spec)))
        calm = step - free < HOST_RATIO * step and _update_us(made) * 1e3 < UPDATE_RATIO * step
        if calm and step < 150e6 and len(made.model.works) < 900:
            return spec
    raise AssertionError(f"seed {seed}: no healthy training in {TRIES} tries")


def _launches(spec: Spec) -> int:
    return len(training(spec).model.works)


def _update_us(made: Training) -> float:
    """What the optimizer's kernels take in a step."""
    return sum(work.us for work in made.model.works if "/adam/" in work.op)


def _unhindered(spec: Spec) -> Spec:
    """The same on a host that needs no time."""
    free = {"launch_us": 0.0, "dispatch_us": 0.0, "begin_us": 0.0, "end_us": 0.0, "between_us": 0.0}
    return replace(spec, host=replace(spec.host, **free))


def _drawn(rng: random.Random, seed: int) -> Spec:
    gpu = _card(rng)
    half = MIXED_BFLOAT16 if "bf16" in gpu.tflops and rng.random() < 0.5 else MIXED_FLOAT16
    kind = rng.choice(("convnet", "transformer", "mlp"))
    compiled = rng.random() < 0.45
    return Spec(seed, kind, gpu, half, compiled, _SIZES[kind](rng), _host(rng, compiled))


def _card(rng: random.Random) -> Gpu:
    """A card whose kernels reach more or less of its peaks than the cases' do."""
    gpu = rng.choice(CARDS)
    names = {key: name for key, name in HALF_CUDA.items() if gpu.capability == (7, 5)}
    efficiency = rng.uniform(0.75, 1.15)
    return replace(
        gpu,
        tflops={kind: rate * efficiency * rng.uniform(0.9, 1.1) for kind, rate in gpu.tflops.items()},
        names={**names, **gpu.names},
        streaming_ratio=rng.uniform(0.68, 0.9),
        ramp_us=rng.uniform(1.4, 2.8),
    )


def _convnet(rng: random.Random) -> dict[str, Any]:
    depth, width = rng.randint(3, 5), rng.choice((16, 24, 32, 40, 48, 64))
    size = rng.choice((64, 96, 112, 128, 160))
    return {
        "widths": tuple(width * 2**i for i in range(depth)), "sizes": tuple(size >> i for i in range(depth)),
        "batch": rng.choice((16, 24, 32, 48, 64, 96, 128)), "classes": rng.choice((10, 40, 104, 200, 1000)),
    }  # fmt: skip


def _transformer(rng: random.Random) -> dict[str, Any]:
    return {
        "blocks": rng.randint(2, 5), "width": rng.choice((256, 384, 512, 640, 768, 1024)), "batch": rng.choice((8, 12, 16, 24, 32)),
        "length": rng.choice((64, 96, 128, 192, 256)), "vocabulary": 8 * rng.randint(1300, 6000),
    }  # fmt: skip


def _mlp(rng: random.Random) -> dict[str, Any]:
    return {
        "widths": tuple(8 * rng.randint(48, 512) for _ in range(rng.randint(3, 6))), "batch": rng.choice((512, 1000, 2048, 3000, 4096, 8192)),
        "features": 8 * rng.randint(16, 200), "classes": 8 * rng.randint(1, 60),
    }  # fmt: skip


_SIZES: Mapping[str, Callable[[random.Random], dict[str, Any]]] = {
    "convnet": _convnet, "transformer": _transformer, "mlp": _mlp,
}  # fmt: skip


def _host(rng: random.Random, compiled: bool) -> Host:
    own = {"noise": rng.choice((0.005, 0.01, 0.02, 0.04)), "profiled": rng.uniform(1.02, 1.2)}
    if compiled:
        return replace(
            generator.JAX_HOST, begin_us=rng.uniform(20, 120), end_us=rng.uniform(10, 40), between_us=rng.uniform(5, 25),
            dispatch_us=rng.uniform(0.2, 0.8), launch_us=rng.uniform(1.5, 3.0), **own,
        )  # fmt: skip
    return Host(
        begin_us=rng.uniform(60, 200), end_us=rng.uniform(20, 90), between_us=rng.uniform(10, 40),
        dispatch_us=rng.uniform(0.8, 2.5), launch_us=rng.uniform(1.8, 4.0), **own,
    )  # fmt: skip


# --- causes ------------------------------------------------------------------------------------------------


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


def waiting(rng: random.Random, spec: Spec) -> Cause | None:
    step = generator.step_ns(training(spec)) / 1e3
    return Cause("MP301", _on_host(input_us=step * rng.uniform(0.3, 2.0)))


def callbacks(rng: random.Random, spec: Spec) -> Cause | None:
    step = generator.step_ns(training(spec)) / 1e3
    return Cause("MP305", _on_host(between_us=step * rng.uniform(0.3, 1.5)))


def launches(rng: random.Random, spec: Spec) -> Cause | None:
    each = generator.step_ns(training(spec)) / 1e3 / _launches(spec)
    return Cause("MP302", _on_host(dispatch_us=each * rng.uniform(1.0, 2.5) + 3.0))


def island(rng: random.Random, spec: Spec) -> Cause | None:
    return Cause("MP104", _overridden(_some(rng, _matrix_layers(spec)), lambda s: s.base))


def algorithm(rng: random.Random, spec: Spec) -> Cause | None:
    role = "conv_dgrad" if spec.kind == "convnet" else "gemm"
    if spec.numerics is not MIXED_FLOAT16 or (role, "fp16_cuda") not in spec.gpu.names:
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
    elements = rng.uniform(5e6, 5e7)
    return Cause("MP405", _changed(
        lambda m, s: generator.followed(m, generator.is_matrix, generator.transposes(s.gpu, s.numerics, elements))
    ))  # fmt: skip


def casts(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled:
        return None
    elements, op = rng.uniform(5e6, 5e7), "/down/BiasAdd" if spec.kind == "transformer" else "/Relu"
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
    variables, values = rng.randint(100, 400), rng.uniform(1e7, 8e7)

    def change(model: Model, s: Spec) -> Model:
        return generator.appended(model, generator.finite_checks(s.gpu, values, variables))

    def unscaled(s: Spec) -> Spec:
        numerics = replace(s.numerics, loss_scaling=False)
        return replace(s, numerics=numerics, facts={**s.facts, "optimizer": cases.STATIC})

    return Cause("MP304", _changed(change), unscaled)


def clipping(rng: random.Random, spec: Spec) -> Cause | None:
    if spec.compiled or not spec.numerics.loss_scaling:
        return None
    variables, values = rng.randint(40, 200), rng.uniform(1e7, 8e7)
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
    rows, width = rng.randint(50_000, 600_000), rng.choice((32, 48, 64, 128))

    def change(model: Model, s: Spec) -> Model:
        return generator.with_embedding(model, s.gpu, rows, width, tf.KERAS_DTYPE[s.numerics.storage])

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


def _recorded(code: str, **facts: Any) -> Callable[[random.Random, Spec], Cause | None]:
    """A cause that is in the records and costs no time of a steady step."""

    def cause(rng: random.Random, spec: Spec) -> Cause | None:
        if not spec.numerics.loss_scaling:
            return None
        return Cause(code, lambda s: replace(s, facts={**s.facts, **facts}), costs=False)

    return cause


TIMED: tuple[Callable[[random.Random, Spec], Cause | None], ...] = (
    waiting, callbacks, launches, island, island, algorithm, algorithm, unaligned, vocabulary, vocabulary,
    first_convolution, layout, casts, cpu_op, finite_checks, clipping, embedding, depthwise, unfused_norms,
    update_in_pieces, fed_float32,
)  # fmt: skip
RECORDED = (
    _recorded("MP201", skip_steps=frozenset(range(22, 81, 4))),
    _recorded("MP203", scales={48: 2.0**33, 64: 2.0**41, 80: 2.0**50}),
    _recorded("MP206", losses=dict.fromkeys(range(50, 81), "NaN")),
)
_AROUND_THE_STEP = {"MP301", "MP305"}


def case(seed: int) -> Planted:
    """The random case of this seed."""
    rng = random.Random(f"held out {seed}")
    for _ in range(TRIES):
        found = _attempt(rng, seed)
        if found is not None:
            return found
    raise AssertionError(f"seed {seed}: no case in {TRIES} tries")


def _attempt(rng: random.Random, seed: int) -> Planted | None:
    spec = healthy(rng, seed)
    chosen: list[Cause] = []
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        untimed = rng.random() < 0.1 and all(other.costs for other in chosen)
        cause = rng.choice(RECORDED if untimed else TIMED)(rng, spec)
        if cause is not None and not any(_collide(cause, other, spec) for other in chosen):
            chosen.append(cause)
    if not chosen:
        return None
    full = replace(spec, causes=tuple(chosen))
    planted = training(full)
    twins = {cause.code: training(full, cured=cause.code) if cause.costs else None for cause in chosen}
    step = generator.step_ns(planted)
    costs = {code: step - generator.step_ns(twin) for code, twin in twins.items() if twin is not None}
    if any(not _least(code) * step < cost < MOST_RATIO * step for code, cost in costs.items()):
        return None
    compared = baseline(full) if rng.random() < 0.8 else None
    return Planted(planted.name, planted, twins, compared, unseen=True)


def _least(code: str) -> float:
    return LEAST_OF.get(code, LEAST_RATIO)


def _collide(one: Cause, other: Cause, spec: Spec) -> bool:
    """There would be no one truth for both: the same cause twice or in the same layer, or launches that hide
    behind the longer kernels of the other."""
    if one.code == other.code:
        return True
    for first, second in ((one, other), (other, one)):
        if first.code == "MP302" and second.costs and second.code not in _AROUND_THE_STEP:
            return True
    return bool(set(one.plant(spec).overrides) & set(other.plant(spec).overrides))


def clean(seed: int) -> tuple[Training, Training | None]:
    """A healthy training of this seed, and its float32 run for most seeds."""
    rng = random.Random(f"clean {seed}")
    spec = healthy(rng, seed)
    return training(spec), baseline(spec) if rng.random() < 0.8 else None
