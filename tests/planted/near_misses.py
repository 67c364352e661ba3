"""Causes on the quiet side of their limits, and symptoms of one cause that another one has."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

from tests.builders import workloads as tf
from tests.builders.gpus import A100, H100, T4, V100, Gpu
from tests.builders.numerics import FLOAT8, FLOAT32, Numerics
from tests.builders.simulate import Host, Training
from tests.builders.workloads import MODEL, Model
from tests.planted import generator as g
from tests.planted.cases import BF16, F16, NO_SCALING, STATIC, TEXT, convnet
from tests.planted.generator import Planted, run


@cache
def quiet() -> tuple[Planted, ...]:
    """Causes on the quiet side of their limits, and symptoms of one cause that another one has."""
    base, model = run("float32", V100, FLOAT32, convnet(V100, FLOAT32)), convnet(V100, F16)
    healthy = run("healthy", V100, F16, model)

    def near(code: str, name: str, training: Training, baseline: Training | None = base) -> Planted:
        return Planted(name, training, {code: healthy}, baseline)

    text = {"vocabulary": 33709, **TEXT}
    lightly = g.followed(model, lambda w: w.type == "Conv2D", g.transposes(V100, F16, 4.0e6))
    cast = g.followed(model, lambda w: w.op.endswith("/Relu"), g.casts_behind(V100, F16, 1.0e6))
    waiting = run("slow-input-hidden", V100, F16, model, host=Host(input_us=500.0))
    odd_but_fast = run("odd-vocabulary-on-tensor-cores", V100, F16, tf.transformer(V100, F16, **text))
    thousand = {"widths": (64, 32), "sizes": (16, 8), "batch": 16, "classes": 16}
    return (
        near("MP301", "short-wait", waiting),
        near("MP305", "short-callbacks", run("short-callbacks", V100, F16, model, host=Host(between_us=600.0))),
        near("MP405", "few-transposes", run("few-transposes", V100, F16, lightly)),
        near("MP503", "few-casts", run("few-casts", V100, F16, cast)),
        near("MP402", "odd-but-fast", odd_but_fast, run("float32", V100, FLOAT32, tf.transformer(V100, FLOAT32, **text))),
        near("MP401", "odd-but-on-tensor-cores", run("odd-sizes", V100, F16, g.mlp(V100, F16, widths=(2048, 2047, 2048))), None),
        near("MP201", "start-up-skips-only", run("start-up", V100, F16, model, skip_steps=frozenset({1, 2, 4}))),
        near("MP807", "a-percent-of-drift", run("drift", V100, F16, model, steps=160, slower={100: 1.02})),
        near("MP902", "one-retrace", run("retrace", V100, F16, model, spikes_ms={70: 400.0})),
        near("MP306", "slow-op-on-the-device", run("slow-op", V100, F16, g.followed(model, lambda w: w.op == f"{MODEL}/re_lu_1/Relu", lambda w: [replace(w, us=9_000.0)]))),
        near("MP104", "float32-softmax-only", healthy),
        near("MP302", "waiting-is-not-launching", run("waiting", V100, F16, model, host=Host(input_us=12_000.0))),
        near("MP301", "launching-is-not-waiting", run("launching", V100, F16, convnet(V100, F16, **thousand), host=Host(dispatch_us=25.0)), None),
        near("MP409", "float32-run-has-no-algorithm", run("floats", V100, FLOAT32, convnet(V100, FLOAT32)), None),
        near("MP304", "static-scale", run("static", V100, NO_SCALING, convnet(V100, NO_SCALING), optimizer=STATIC)),
        near("MP102", "bfloat16-needs-no-scale", run("bf16", A100, BF16, convnet(A100, BF16)), None),
        *_of_records(healthy), *_of_kernels(healthy), *_of_the_measurement(healthy),
    )  # fmt: skip


def _of_records(healthy: Training) -> list[Planted]:
    """Without a trace: what the records alone must not be taken for."""

    def near(
        code: str, name: str, gpu: Gpu = V100, n: Numerics = F16, model: Model | None = None, **facts: Any
    ) -> Planted:
        made = run(name, gpu, n, model or convnet(gpu, n), profile=None, **facts)
        return Planted(name, made, {code: healthy})

    half = g.layer_changed(convnet(V100, FLOAT32), "conv2d", compute_dtype="float16", output_dtype="float16")
    scaled = {
        "class": "LossScaleOptimizer",
        "inner": "Adam",
        "dynamic": True,
        "initial_scale": 2.0**15,
        "growth_steps": 16,
    }
    loop = {"framework": {"keras": "3.15.1", "backend": "tensorflow", "python": "3.11.7", "loop": "custom"}}
    grown = {step: 2.0 ** (15 + step // 16) for step in range(1, 81)}
    flat = dict.fromkeys(range(1, 81), 2.303)
    lstm = {
        "class": "LSTM",
        "config": {"units": 128, "activation": "tanh", "recurrent_activation": "sigmoid"},
    }
    sizes = {"batch": 8192, "features": 1024, "widths": (4096, 4096), "classes": 1024}
    large = g.in_float8(g.xla_mlp(H100, FLOAT8, **sizes))
    return [
        near("MP101", "one-layer-in-16-bits", n=FLOAT32, model=half, global_policy="mixed_float16"),
        near("MP103", "a-loop-that-overflowed-once", facts=loop, scales=grown, losses=flat, optimizer=scaled, skip_steps=frozenset({30})),
        near("MP103", "a-loop-that-learns", facts=loop, scales=grown, optimizer=scaled),
        near("MP105", "no-rewrite-asked-for", n=FLOAT32, facts={"graph_rewrite": False}),
        near("MP106", "a-float32-output"),
        near("MP202", "a-fixed-scale-of-128", optimizer={**STATIC, "fixed_scale": 128.0}),
        near("MP203", "a-scale-of-2-to-the-24", scales={64: 2.0**24, 80: 2.0**24}),
        near("MP206", "a-loss-that-is-only-large", losses=dict.fromkeys(range(50, 81), 1e30)),
        near("MP307", "deterministic-is-off", facts={"deterministic_ops": False}),
        near("MP410", "an-lstm-that-cudnn-takes", model=g.layer_changed(convnet(V100, F16), "re_lu_1", **lstm)),
        near("MP801", "capability-7.0"),
        near("MP802", "a-t4-of-capability-7.5", gpu=T4),
        near("MP804", "bfloat16-where-it-is", gpu=A100, n=BF16),
        near("MP413", "float8-of-multiples-of-16", gpu=H100, n=FLOAT8, model=large, facts=g.JAX),
        near("MP414", "float8-of-large-products", gpu=H100, n=FLOAT8, model=large, facts=g.JAX),
        near("MP808", "float8-where-it-is", gpu=H100, n=FLOAT8, model=large, facts=g.JAX),
        near("MP901", "a-short-warm-up", warmup_s=0.1),
    ]  # fmt: skip


def _of_kernels(healthy: Training) -> list[Planted]:
    """Work of the device that looks like a cause and is none, or costs too little to be one."""

    def near(code: str, name: str, model: Model, **facts: Any) -> Planted:
        return Planted(name, run(name, V100, F16, model, **facts), {code: healthy})

    model, dense = convnet(V100, F16), g.mlp(V100, F16, batch=8192)
    cast = g.followed(dense, lambda w: w.op.endswith("/Relu"), g.casts_behind(V100, F16, 3.0e7))
    clipped = {
        "class": "LossScaleOptimizer",
        "inner": "Adam",
        "dynamic": True,
        "initial_scale": 32768.0,
        "growth_steps": 2000,
        "clipping": {"global_clipnorm": 1.0},
    }
    return [
        near("MP107", "casts-within-a-layer", cast),
        near("MP306", "launches-that-take-long", model, host=Host(dispatch_us=130.0)),
        near("MP403", "a-first-convolution-on-tensor-cores", convnet(V100, F16, widths=(96, 64), sizes=(224, 56))),
        near("MP406", "a-depthwise-convolution-as-fast-as-its-bytes", g.with_depthwise(model, V100, F16)),
        near("MP407", "groups-on-tensor-cores", g.configured(model, "conv2d_2", groups=32)),
        near("MP408", "three-dimensions-on-tensor-cores", g.layer_changed(model, "conv2d_2", **{"class": "Conv3D"})),
        near("MP505", "a-small-embedding", g.with_embedding(dense, V100, 4_000, 64, "float16")),
        near("MP506", "clipping-of-little", g.appended(dense, g.clipping(V100, 1.0e6, 10)), optimizer=clipped),
        near("MP507", "a-loss-of-a-few-classes", tf.transformer(V100, F16, vocabulary=8192, blocks=3)),
    ]  # fmt: skip


def _of_the_measurement(healthy: Training) -> list[Planted]:
    """Runs whose measurement is as it should be, if only just."""

    def near(code: str, name: str, **facts: Any) -> Planted:
        return Planted(
            name, run(name, A100, BF16, g.xla_mlp(A100, BF16, batch=8192), **facts), {code: healthy}
        )

    jax = {"facts": g.JAX, "fit": {"jit_compile": True}}
    return [
        near("MP903", "a-clock-that-lacks-a-third", clock_ratio=0.66, **jax, host=g.JAX_HOST),
        near("MP905", "a-profiler-of-a-third", host=replace(g.JAX_HOST, profiled=1.3), **jax),
        near("MP911", "forty-steps", steps=40, profile=(20, 24)),
        near("MP908", "events-of-the-device"),
        near("MP912", "no-graphs"),
    ]  # fmt: skip
