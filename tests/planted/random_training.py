"""Trainings drawn at random: kind, sizes, card, efficiency of its kernels, host, noise, and names of layers."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.builders import workloads as tf
from tests.builders import xla_workloads as xla
from tests.builders.gpus import Gpu
from tests.builders.numerics import FLOAT32, MIXED_BFLOAT16, MIXED_FLOAT16, TF32, Numerics
from tests.builders.simulate import Host, Training
from tests.builders.workloads import Model
from tests.planted import cases, generator
from tests.planted.generator import run, small_input

TRIES = 60
HOST_RATIO, UPDATE_RATIO = 0.09, 0.25
"""In a healthy run the host takes no more of the step beside the device, nor the optimizer's update."""
CARDS = (cases.V100, cases.OTHER_V100, cases.T4, cases.OTHER_T4, cases.A100, cases.OTHER_A100, cases.H100,
         cases.OTHER_H100)  # fmt: skip
HALF_CUDA = {
    category: name.replace("volta", "turing")
    for category, name in cases.V100.names.items()
    if category[1] == "fp16_cuda"
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


Kind = Callable[[random.Random, Spec], Cause | None]


def training(spec: Spec, cured: str = "") -> Training:
    """The training of a spec with its causes in it, but for the one of the code `cured`."""
    for cause in spec.causes:
        spec = spec.cured_of(cause) if cause.code == cured else cause.plant(spec)
    model = model_of(spec, spec.numerics, spec.overrides)
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
    model = model_of(spec, spec.base, {})
    for change in spec.changes:
        model = change(model, replace(spec, numerics=spec.base))
    return _run("float32", spec, spec.base, model)


def _run(name: str, spec: Spec, n: Numerics, model: Model, **facts: Any) -> Training:
    jax = {"facts": generator.JAX, "fit": {"jit_compile": True}} if spec.compiled else {}
    merged = {**jax, **facts}
    return run(
        name, spec.gpu, n, generator.renamed(model, _names(spec.seed, model)), host=spec.host, seed=spec.seed, **merged
    )  # fmt: skip


def model_of(spec: Spec, n: Numerics, overrides: Mapping[str, Numerics]) -> Model:
    """The model in these numerics, with single layers in others."""
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


def launches_of(spec: Spec) -> int:
    """Launches of a step."""
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
