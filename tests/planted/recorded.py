"""Planted causes that cost no time of a steady step, or whose cost is a ceiling: found by what a run states.

`None` as a truth: the finding carries no cost.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.builders import workloads as tf
from tests.builders import xla_workloads as xla
from tests.builders.gpus import A100, GTX1080TI, H100, T4, V100, Gpu
from tests.builders.numerics import FLOAT8, FLOAT32, TF32, Numerics
from tests.builders.simulate import Host, Training
from tests.builders.workloads import Model
from tests.planted import generator
from tests.planted import generator as g
from tests.planted.cases import BF16, F16, NO_SCALING, card, convnet
from tests.planted.generator import Planted, single, small_input

JAX = {"facts": g.JAX, "fit": {"jit_compile": True}}
RTX3090 = replace(
    A100, name="NVIDIA GeForce RTX 3090", capability=(8, 6), cores=82, clock_khz=1_695_000, bandwidth_gb_s=936.0,
    memory_bytes=25_425_608_704, tflops={**A100.tflops, "fp32": 22.0, "tf32": 24.0, "fp16": 48.0, "bf16": 48.0},
)  # fmt: skip
STEPS, WINDOW = 120, (60, 64)
SCALED = {"class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True, "initial_scale": 2.0**15}


def run(name: str, gpu: Gpu, n: Numerics, model: Model, **facts: Any) -> Training:
    """A training of 120 steps: what these cases plant lies at certain steps."""
    return generator.run(name, gpu, n, model, **{"steps": STEPS, "profile": WINDOW, **facts})


def without_trace(name: str, **facts: object) -> Training:
    return run(name, V100, F16, convnet(V100, F16), **facts)  # type: ignore[arg-type]


def by_records() -> list[Planted]:
    healthy = without_trace("healthy")
    model = convnet(V100, F16)
    late = run("tf-v100-late-policy", V100, FLOAT32, convnet(V100, FLOAT32), global_policy="mixed_float16")
    cases = [
        single("MP101", late, healthy),
        Planted("tf-v100-no-scaling", run("tf-v100-no-scaling", V100, NO_SCALING, convnet(V100, NO_SCALING), optimizer={"class": "Adam", "dynamic": False}), {"MP102": None}),
        Planted("tf-v100-half-output", run("tf-v100-half-output", V100, F16, g.layer_changed(model, "softmax", compute_dtype="float16", output_dtype="float16")), {"MP106": None}),
    ]  # fmt: skip
    skipping = frozenset(range(20, 121, 3))
    thrash = run("tf-v100-skips", V100, F16, model, skip_steps=skipping)
    cases += [
        Planted("tf-v100-skips", thrash, {"MP201": None}),
        Planted("tf-v100-startup", run("tf-v100-startup", V100, F16, model, skip_steps=frozenset({2, 4, 5})), {"MP204": None}),
        Planted("tf-v100-runaway", run("tf-v100-runaway", V100, F16, model, scales={96: 2.0**30, 112: 2.0**40, 120: 2.0**60}), {"MP203": None}),
        Planted("tf-v100-nan", run("tf-v100-nan", V100, F16, model, losses=dict.fromkeys(range(70, 121), "NaN")), {"MP206": None}),
        Planted("tf-v100-hot", run("tf-v100-hot", V100, F16, model, slower={60: 1.05, 75: 1.12, 90: 1.2}, hardware={"throttle": ["sw_thermal_slowdown"]}), {"MP807": None}),
        Planted("tf-v100-retracing", run("tf-v100-retracing", V100, F16, model, spikes_ms=dict.fromkeys(range(21, 120, 7), 900.0)), {"MP902": None}),
        Planted("tf-v100-eager", run("tf-v100-eager", V100, F16, model, fit={"run_eagerly": True}, host=Host(eager=True, dispatch_us=30.0)), {"MP308": None}, also=frozenset({"MP302"})),
        Planted("tf-v100-deterministic", run("tf-v100-deterministic", V100, F16, model, facts={"deterministic_ops": True}), {"MP307": None}, also=frozenset({"MP309"})),
        Planted("gtx1080ti", run("gtx1080ti", GTX1080TI, replace(F16, matrix="fp16_cuda"), convnet(GTX1080TI, replace(F16, matrix="fp16_cuda"))), {"MP801": None}),
        Planted("tf-v100-dropped", run("tf-v100-dropped", V100, F16, model, trace_warnings=("CUPTI: 5,013 events were dropped: buffer overflow",)), {"MP909": None}),
    ]  # fmt: skip
    emulated = Numerics("bfloat16", "fp32", False)
    gtx = replace(T4, name="NVIDIA GeForce GTX 1660 Ti", cores=24)
    on_gtx = replace(F16, matrix="fp16_cuda")
    names = {("gemm", "fp16"): "fused_tile_program_17", ("logits", "fp16"): "fused_tile_program_18"}
    strange = g.respelled(V100, names)
    recurrent = {"class": "LSTM", "config": {"units": 128, "recurrent_dropout": 0.2}}
    blocked = g.layer_changed(model, "re_lu_1", supports_jit=False)
    graphs = replace(g.JAX_HOST, graphs=True)
    jax = {"facts": g.JAX, "fit": {"jit_compile": True}}
    small = {"batch": 64, "widths": (256, 128)}
    cases += [
        Planted("tf-v100-bf16", run("tf-v100-bf16", V100, emulated, convnet(V100, emulated)), {"MP804": None}),
        Planted("tf-gtx1660", run("tf-gtx1660", gtx, on_gtx, g.mlp(gtx, on_gtx)), {"MP802": None}),
        Planted("tf-v100-slow-profiler", run("tf-v100-slow-profiler", V100, F16, g.mlp(V100, F16, **small), host=Host(profiled=8.0)), {"MP905": None}, also=frozenset({"MP302", "MP304"})),
        Planted("tf-v100-strange-kernels", run("tf-v100-strange-kernels", strange, F16, g.mlp(strange, F16)), {"MP907": None}),
        Planted("tf-v100-no-window", run("tf-v100-no-window", V100, F16, model, profile=None), {"MP910": None}),
        Planted("tf-v100-too-short", run("tf-v100-too-short", V100, F16, model, steps=14, profile=None), {"MP911": None, "MP910": None}),
        Planted("tf-v100-recurrent", run("tf-v100-recurrent", V100, F16, g.layer_changed(model, "re_lu_1", **recurrent)), {"MP410": None}),
        Planted("tf-v100-no-xla", run("tf-v100-no-xla", V100, F16, blocked), {"MP309": None}),
        Planted("jax-a100-graphs", run("jax-a100-graphs", A100, F16, small_input(xla.convnet(A100, F16)), host=graphs, **jax), {"MP912": None}, also=frozenset({"MP907"})),
    ]  # fmt: skip
    wide = {"batch": 8192, "features": 1024, "widths": (4096, 4096, 4096), "classes": 1024}
    odd = {**wide, "widths": (4096, 4090, 4096)}
    thin = {**wide, "batch": 131_072, "widths": (256, 256, 256)}
    cases += [
        Planted("jax-a100-float8", run("jax-a100-float8", A100, BF16, g.in_float8(g.xla_mlp(A100, BF16, **wide)), **jax), {"MP808": None}),
        Planted("jax-h100-float8-odd", run("jax-h100-float8-odd", H100, FLOAT8, g.in_float8(g.xla_mlp(H100, FLOAT8, **odd)), **jax), {"MP413": None}),
        Planted("jax-h100-float8-thin", run("jax-h100-float8-thin", H100, FLOAT8, g.in_float8(g.xla_mlp(H100, FLOAT8, **thin)), **jax), {"MP414": None}),
    ]  # fmt: skip
    ended = {"reason": "error", "error": "ValueError", "text": "The labels do not fit the model's outputs"}
    cases.append(
        Planted(
            "tf-v100-ended", run("tf-v100-ended", V100, F16, model, facts={"ended": ended}), {"MP913": None}
        )
    )
    return cases


# --- stated by the records ---------------------------------------------------------------------------------


def of_training() -> list[Planted]:
    """Loss scaling and graph rewrites, as the records hold them."""
    model = convnet(V100, F16)
    every = 20
    grown = {step: 2.0 ** (15 + step // every) for step in range(1, 121)}
    loop = {"framework": {**_framework("tensorflow"), "loop": "custom"}}
    flat = dict.fromkeys(range(1, 121), 2.303)
    growing = {"scales": grown, "losses": flat, "optimizer": {**SCALED, "growth_steps": every}}
    single_skips = {"skip_steps": frozenset({41}), "optimizer": {**SCALED, "growth_steps": 40}}
    steps = {"steps": 240}
    text = xla.transformer(A100, F16, blocks=2, batch=16)
    jax_loop = {"framework": {**g.JAX["framework"], "loop": "custom"}}
    small = {
        "class": "LossScaleOptimizer",
        "inner": "Adam",
        "dynamic": False,
        "initial_scale": 8.0,
        "fixed_scale": 8.0,
    }
    rewritten = run("tf-v100-rewrite", V100, FLOAT32, convnet(V100, FLOAT32), facts={"graph_rewrite": True})
    return [
        Planted("tf-v100-unscaled-loop", run("tf-v100-unscaled-loop", V100, F16, model, facts=loop, **growing), {"MP103": None}),
        Planted("jax-a100-unscaled-loop", run("jax-a100-unscaled-loop", A100, F16, text, facts=jax_loop, fit={"jit_compile": True}, host=g.JAX_HOST, **growing), {"MP103": None}, unseen=True),
        Planted("tf-v100-rewrite", rewritten, {"MP105": None}),
        Planted("tf-v100-small-scale", run("tf-v100-small-scale", V100, F16, model, optimizer=small), {"MP202": None}),
        Planted("jax-a100-small-scale", run("jax-a100-small-scale", A100, F16, text, optimizer=small, **JAX, host=g.JAX_HOST), {"MP202": None}, unseen=True),
        Planted("tf-v100-periodic", run("tf-v100-periodic", V100, F16, model, **steps, **single_skips), {"MP205": None}),
    ]  # fmt: skip


def _framework(backend: str) -> dict[str, str]:
    return {
        "keras": "3.15.1", "backend": backend, "backend_version": "2.21.0", "python": "3.11.7", "xla_flags": "",
    }  # fmt: skip


# --- ceilings ----------------------------------------------------------------------------------------------


def ceilings() -> list[Planted]:
    """What bounds the gain and is nobody's fault: a mention, without a cost."""
    narrow = g.mlp(V100, F16, widths=(64, 64, 64), batch=1_048_576, features=64)
    other_narrow = {"widths": (24, 24, 40), "sizes": (224, 224, 112), "batch": 128, "classes": 40}
    jax_copied = replace(xla.mlp(A100, BF16, batch=8192), input_bytes=20_000_000)
    wide = g.mlp(V100, F16, widths=(512, 512, 512), batch=32_768)
    chain = g.followed(wide, lambda w: w.op.endswith("/BiasAdd"), g.activations(V100, F16, 32_768 * 512, 5))
    text = tf.transformer(V100, F16, blocks=2, vocabulary=8192)
    return [
        Planted("tf-v100-narrow", run("tf-v100-narrow", V100, F16, narrow), {"MP404": None}),
        Planted("jax-h100-narrow", run("jax-h100-narrow", H100, BF16, small_input(xla.convnet(H100, BF16, **other_narrow))), {"MP404": None}, unseen=True),
        Planted("tf-v100-pageable-copies", run("tf-v100-pageable-copies", V100, F16, replace(tf.convnet(V100, F16), input_bytes=50_000_000), host=Host(copy_gb_s=1.8)), {"MP310": None}, unseen=True),
        Planted("tf-v100-copies", run("tf-v100-copies", V100, F16, tf.convnet(V100, F16)), {"MP310": None}),
        Planted("jax-a100-copies", run("jax-a100-copies", A100, BF16, jax_copied), {"MP310": None}, unseen=True),
        Planted("tf-v100-attention", run("tf-v100-attention", V100, F16, g.with_attention(text, V100, F16, length=1024)), {"MP411": None}),
        Planted("tf-v100-elementwise", run("tf-v100-elementwise", V100, F16, chain), {"MP502": None}),
        *losses(),
    ]  # fmt: skip


def losses() -> list[Planted]:
    """A loss that takes far longer than one pass over its logits in 16 bits, 4 of its 12 bytes a logit."""
    cases = []
    for gpu, n in ((V100, F16), (A100, BF16)):
        model = tf.transformer(gpu, n, vocabulary=49_152, blocks=2, length=128, batch=32)
        planted = run(f"tf-{card(gpu)}-loss", gpu, n, g.slower_loss(model, 6.0))
        healthy = run("healthy", gpu, n, g.slower_loss(model, 1 / 3))
        cases.append(single("MP507", planted, healthy, unseen=gpu is A100))
    return cases


# --- cards and validity ------------------------------------------------------------------------------------


def of_the_card() -> list[Planted]:
    model = g.mlp(A100, F16, batch=8192)
    untraced = {"profile": None}
    return [
        Planted("tf-a100-tf32", run("tf-a100-tf32", A100, F16, model), {"MP803": None}, run("float32", A100, TF32, g.mlp(A100, TF32, batch=8192))),
        Planted("tf-a100-tf32-stated", run("tf-a100-tf32-stated", A100, F16, model, tf32_enabled=True), {"MP803": None}),
        Planted("jax-h100-tf32", run("jax-h100-tf32", H100, BF16, g.xla_mlp(H100, BF16, batch=32_768)), {"MP803": None}, run("float32", H100, TF32, g.xla_mlp(H100, TF32, batch=32_768)), unseen=True),
        Planted("tf-3090", run("tf-3090", RTX3090, F16, g.mlp(RTX3090, F16)), {"MP805": None}),
        Planted("jax-3090", run("jax-3090", RTX3090, BF16, g.xla_mlp(RTX3090, BF16)), {"MP805": None}, unseen=True),
        Planted("tf-cpu", _elsewhere("tf-cpu", {"kind": "cpu", "name": "x86_64"}, BF16, **untraced), {"MP806": None, "MP910": None}),
        Planted("jax-tpu", _elsewhere("jax-tpu", {"kind": "tpu", "name": "TPU v4"}, F16, **untraced), {"MP806": None, "MP910": None}, unseen=True),
        Planted("tf-mi210", _elsewhere("tf-mi210", {"kind": "gpu", "name": "AMD Instinct MI210"}, F16, **untraced), {"MP806": None, "MP910": None}),
    ]  # fmt: skip


def _elsewhere(name: str, device: dict[str, str], n: Numerics, **facts: object) -> Training:
    """A run whose records name another device; it has no trace."""
    made = run(name, A100, n, g.mlp(A100, n), **facts)
    return replace(made, facts={**made.facts, "devices": [device]})


def of_the_measurement() -> list[Planted]:
    model = convnet(V100, F16)
    base = run("float32", V100, FLOAT32, convnet(V100, FLOAT32, batch=32))
    jax = g.xla_mlp(A100, BF16, batch=32_768)
    early = {"profile": (3, 7), "slower": {1: 4.0, 12: 1.0}}
    async_loop = {
        "facts": {**g.JAX, "timing": {"basis": "asynchronous", "read_every": 16, "note": "synthetic"}}
    }
    return [
        Planted("tf-v100-long-start", run("tf-v100-long-start", V100, F16, model, warmup_s=40.0), {"MP901": None}),
        Planted("jax-a100-early-window", run("jax-a100-early-window", A100, BF16, jax, **early), {"MP901": None}, unseen=True),
        Planted("jax-a100-async", run("jax-a100-async", A100, BF16, jax, clock_ratio=0.1, **async_loop, host=g.JAX_HOST, fit={"jit_compile": True}), {"MP903": None}),
        Planted("tf-v100-calls", run("tf-v100-calls", V100, F16, model, covers=4, fit={"steps_per_execution": 4}), {"MP904": None}),
        Planted("tf-v100-other-batch", run("tf-v100-other-batch", V100, F16, model), {"MP906": None}, base),
        Planted("jax-a100-mixed-baseline", run("jax-a100-mixed-baseline", A100, BF16, jax), {"MP906": None}, run("mixed", A100, F16, g.xla_mlp(A100, F16, batch=32_768)), unseen=True),
        Planted("tf-v100-no-cupti", run("tf-v100-no-cupti", V100, F16, model, device_events=False), {"MP908": None}),
        Planted("jax-a100-no-cupti", run("jax-a100-no-cupti", A100, BF16, jax, device_events=False), {"MP908": None}, unseen=True),
    ]  # fmt: skip


def all_recorded() -> list[Planted]:
    return [*by_records(), *of_training(), *ceilings(), *of_the_card(), *of_the_measurement()]
