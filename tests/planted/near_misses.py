"""Causes on the quiet side of their limits, and symptoms of one cause that another one has."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tests.builders import workloads as tf
from tests.builders.gpus import A100, V100
from tests.builders.simulate import Host, Training
from tests.builders.workloads import FLOAT32, MODEL
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
        near("MP401", "odd-but-on-tensor-cores", run("odd-sizes", V100, F16, tf.mlp(V100, F16, widths=(2048, 2047, 2048))), None),
        near("MP201", "start-up-skips-only", run("start-up", V100, F16, model, skip_steps=frozenset({1, 2, 4}))),
        near("MP807", "a-percent-of-drift", run("drift", V100, F16, model, slower={80: 1.02})),
        near("MP902", "one-retrace", run("retrace", V100, F16, model, spikes_ms={70: 400.0})),
        near("MP306", "slow-op-on-the-device", run("slow-op", V100, F16, g.followed(model, lambda w: w.op == f"{MODEL}/re_lu_1/Relu", lambda w: [replace(w, us=9_000.0)]))),
        near("MP104", "float32-softmax-only", healthy),
        near("MP302", "waiting-is-not-launching", run("waiting", V100, F16, model, host=Host(input_us=12_000.0))),
        near("MP301", "launching-is-not-waiting", run("launching", V100, F16, convnet(V100, F16, **thousand), host=Host(dispatch_us=25.0)), None),
        near("MP409", "float32-run-has-no-algorithm", run("floats", V100, FLOAT32, convnet(V100, FLOAT32)), None),
        near("MP304", "static-scale", run("static", V100, NO_SCALING, convnet(V100, NO_SCALING), optimizer=STATIC)),
        near("MP102", "bfloat16-needs-no-scale", run("bf16", A100, BF16, convnet(A100, BF16)), None),
    )  # fmt: skip
