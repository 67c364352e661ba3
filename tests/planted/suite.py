"""All cases of the suite: planted ones, and healthy runs."""

from __future__ import annotations

from functools import cache

from tests.builders import workloads as tf
from tests.builders import xla_workloads as xla
from tests.builders.gpus import A100, H100, T4, V100
from tests.builders.simulate import Host, Training
from tests.planted import cases, recorded
from tests.planted.cases import BF16, F16, OTHER_A100, OTHER_SIZES, OTHER_TEXT, base_of, convnet
from tests.planted.generator import Planted, mlp, run, small_input, xla_mlp


@cache
def planted() -> tuple[Planted, ...]:
    """Every planted case."""
    return (
        *cases.islands(), *cases.vocabularies(), *cases.fallbacks(), *cases.host_causes(), *cases.rest_of_the_device(),
        *cases.compiled(), *cases.several(), *recorded.all_recorded(),
    )  # fmt: skip


@cache
def clean() -> tuple[tuple[Training, Training | None], ...]:
    """Healthy runs, each with its float32 twin."""
    found: list[tuple[Training, Training | None]] = []
    for gpu in (V100, T4, A100, H100, OTHER_A100):
        large = {"batch": 256} if gpu is H100 else {}
        rows = 32_768 if gpu is H100 else 8192  # or else its launches take longer than its work
        base = base_of(gpu)
        kinds = [F16] if gpu in (V100, T4) else [F16, BF16]
        for n in kinds:
            word = "bf16" if n is BF16 else "fp16"
            other = gpu is OTHER_A100
            sizes = OTHER_SIZES if other else large
            text = OTHER_TEXT if other else large
            host = Host(noise=0.03) if other else Host()
            tag = f"{cases.card(gpu)}-{word}{'-other' if other else ''}"
            found += [
                (run(f"tf-convnet-{tag}", gpu, n, convnet(gpu, n, **sizes), host=host), run("float32", gpu, base, convnet(gpu, base, **sizes), host=host)),
                (run(f"tf-transformer-{tag}", gpu, n, tf.transformer(gpu, n, **text), host=host), run("float32", gpu, base, tf.transformer(gpu, base, **text), host=host)),
                (run(f"tf-mlp-{tag}", gpu, n, mlp(gpu, n, batch=8192), host=host), run("float32", gpu, base, mlp(gpu, base, batch=8192), host=host)),
                (run(f"jax-convnet-{tag}", gpu, n, small_input(xla.convnet(gpu, n, **sizes))), run("float32", gpu, base, small_input(xla.convnet(gpu, base, **sizes)))),
                (run(f"jax-transformer-{tag}", gpu, n, xla.transformer(gpu, n, **text)), run("float32", gpu, base, xla.transformer(gpu, base, **text))),
                (run(f"jax-mlp-{tag}", gpu, n, xla_mlp(gpu, n, batch=rows)), run("float32", gpu, base, xla_mlp(gpu, base, batch=rows))),
            ]  # fmt: skip
    return tuple(found)
