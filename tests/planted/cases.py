"""The planted cases. `unseen`: names, sizes and noise that no rule's own test uses."""

from __future__ import annotations

from dataclasses import replace

from tests.builders import workloads as tf
from tests.builders import xla_workloads as xla
from tests.builders.gpus import A100, H100, T4, V100, Gpu
from tests.builders.numerics import FLOAT32, MIXED_BFLOAT16, MIXED_FLOAT16, TF32, Numerics
from tests.builders.simulate import Host
from tests.builders.workloads import GRADIENT, MODEL, Model
from tests.planted import generator as g
from tests.planted.generator import Planted, run, single, small_input

F16, BF16 = MIXED_FLOAT16, MIXED_BFLOAT16
ON_CUDA_CORES = replace(F16, matrix="fp16_cuda")
NO_SCALING = replace(F16, loss_scaling=False)
STATIC = {"class": "LossScaleOptimizer", "inner": "Adam", "dynamic": False, "initial_scale": 1024.0, "fixed_scale": 1024.0}  # fmt: skip
TEXT = {"blocks": 3, "length": 128, "batch": 32}
OTHER_TEXT = {"blocks": 5, "length": 192, "batch": 24, "width": 768}
OTHER_SIZES = {"widths": (48, 96, 192, 384), "sizes": (128, 64, 32, 16), "batch": 48, "classes": 200}
NOISY = {"noise": 0.03}

# Other kernels of the same libraries, seen in traces of these cards.
OTHER_V100 = g.respelled(V100, {
    ("conv_fprop", "fp16"): "volta_fp16_s884cudnn_fp16_256x64_ldg8_relu_f2f_exp_small_nhwc2nchw_tn_v1",
    ("conv_dgrad", "fp16"): "volta_s884cudnn_fp16_64x64_ldg8_dgrad_stride_f2f_exp_small_nhwc_tt_v1",
    ("conv_wgrad", "fp16"): "volta_s884cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1",
    ("gemm", "fp16"): "volta_h884gemm_64x128_ldg8_tn",
    ("logits", "fp16"): "volta_s884gemm_fp16_128x256_ldg8_f2f_nt",
    ("conv_fprop", "fp32"): "implicit_convolve_sgemm",
    ("gemm", "fp32"): "volta_sgemm_32x128_tn",
})  # fmt: skip
_CUTLASS = "void cutlass::Kernel<{0}>({0}::Params)"
OTHER_A100 = g.respelled(A100, {
    ("gemm", "fp16"): _CUTLASS.format("cutlass_80_tensorop_f16_s16816gemm_relu_f16_256x128_32x3_nn_align8"),
    ("logits", "fp16"): _CUTLASS.format("cutlass_80_tensorop_f16_s16816gemm_f16_128x64_64x4_tn_align8"),
    ("gemm", "bf16"): _CUTLASS.format("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x64_32x4_nn_align8"),
    ("gemm", "tf32"): _CUTLASS.format("cutlass_80_tensorop_s1688tf32gemm_256x128_16x3_tn_align4"),
    ("logits", "tf32"): "ampere_sgemm_tf32_128x64_tn" if False else "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32_stage6_warpsize2x2x1_tensor16x8x8_kernel",
})  # fmt: skip
OTHER_T4 = g.respelled(T4, {
    ("gemm", "fp16"): "turing_h1688gemm_256x64_ldg8_stages_32x1_tn",
    ("conv_fprop", "fp16"): "turing_fp16_s1688cudnn_fp16_256x64_ldg8_relu_f2f_exp_medium_nhwc_tn_v1",
})  # fmt: skip
OTHER_H100 = g.respelled(H100, {
    ("gemm", "fp16"): "nvjet_hsh_192x192_64x3_2x1_v_bz_coopB_NNT",
    ("gemm", "bf16"): "nvjet_tst_192x208_64x3_2x1_v_bz_coopB_TNN",
    ("logits", "bf16"): "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
})  # fmt: skip


def base_of(gpu: Gpu) -> Numerics:
    return TF32 if "tf32" in gpu.tflops else FLOAT32


def convnet(gpu: Gpu, n: Numerics, **facts: object) -> Model:
    return small_input(tf.convnet(gpu, n, **facts))  # type: ignore[arg-type]


def card(gpu: Gpu) -> str:
    """The card's name in a case's."""
    return gpu.name.split()[1 if gpu.name.startswith("NVIDIA") else -1].split("-")[0].lower()


# --- one cause, TensorFlow ---------------------------------------------------------------------------------


def islands() -> list[Planted]:
    cases = []
    for gpu in (V100, T4, A100, H100):
        kept = {"conv2d_1": base_of(gpu), "conv2d_2": base_of(gpu)}
        cases.append(single(
            "MP104",
            run(f"tf-{card(gpu)}-island", gpu, F16, convnet(gpu, F16, overrides=kept)),
            run("healthy", gpu, F16, convnet(gpu, F16)),
            run("float32", gpu, base_of(gpu), convnet(gpu, base_of(gpu))),
        ))  # fmt: skip
    names = {"dense_1": "trunk_b", "dense_2": "trunk_c", "dense": "trunk_a"}
    for gpu, n in ((OTHER_V100, F16), (OTHER_A100, BF16)):
        shape = {"widths": (3072, 1536, 1536), "batch": 2048, "features": 512}
        kept = {"dense_1": base_of(gpu)}
        host = Host(**NOISY)
        cases.append(single(
            "MP104",
            run(f"tf-{card(gpu)}-island-mlp", gpu, n, g.renamed(g.mlp(gpu, n, overrides=kept, **shape), names), host=host, seed=11),
            run("healthy", gpu, n, g.renamed(g.mlp(gpu, n, **shape), names), host=host),
            run("float32", gpu, base_of(gpu), g.renamed(g.mlp(gpu, base_of(gpu), **shape), names), host=host),
            unseen=True,
        ))  # fmt: skip
    return cases


def vocabularies() -> list[Planted]:
    cases = []
    for gpu, vocabulary, text in ((V100, 33709, TEXT), (A100, 33709, TEXT), (OTHER_V100, 50257, OTHER_TEXT)):
        model = tf.transformer(gpu, F16, vocabulary=vocabulary, logits=ON_CUDA_CORES, **text)
        cases.append(single(
            "MP402",
            run(f"tf-{card(gpu)}-vocabulary-{vocabulary}", gpu, F16, model, seed=vocabulary),
            run("healthy", gpu, F16, tf.transformer(gpu, F16, vocabulary=vocabulary, **text)),
            run("float32", gpu, base_of(gpu), tf.transformer(gpu, base_of(gpu), vocabulary=vocabulary, **text)),
            unseen=gpu is OTHER_V100,
        ))  # fmt: skip
    return cases


def fallbacks() -> list[Planted]:
    """Matrix kernels off the Tensor Cores: odd sizes, an algorithm, a first convolution, groups, 3-D."""
    base = run("float32", V100, FLOAT32, convnet(V100, FLOAT32))
    healthy = run("healthy", V100, F16, convnet(V100, F16))
    fallen = convnet(V100, F16, overrides={"conv2d_2": ON_CUDA_CORES})
    cases = [single("MP409", run("tf-v100-algorithm", V100, F16, fallen), healthy, base)]
    images = {"batch": 128, "widths": (96, 64), "sizes": (224, 56)}
    first = convnet(V100, F16, overrides={"conv2d": ON_CUDA_CORES}, **images)
    cases.append(single(
        "MP403", run("tf-v100-first-convolution", V100, F16, first),
        run("healthy", V100, F16, convnet(V100, F16, **images)),
        run("float32", V100, FLOAT32, convnet(V100, FLOAT32, **images)),
    ))  # fmt: skip
    cases.append(single(
        "MP407", run("tf-v100-grouped", V100, F16, g.configured(fallen, "conv2d_2", groups=32)),
        run("healthy", V100, F16, g.configured(convnet(V100, F16), "conv2d_2", groups=32)),
        run("float32", V100, FLOAT32, g.configured(convnet(V100, FLOAT32), "conv2d_2", groups=32)),
    ))  # fmt: skip
    cube = {"class": "Conv3D"}
    cases.append(single(
        "MP408", run("tf-v100-3d", V100, F16, g.layer_changed(fallen, "conv2d_2", **cube)),
        run("healthy", V100, F16, g.layer_changed(convnet(V100, F16), "conv2d_2", **cube)),
        run("float32", V100, FLOAT32, g.layer_changed(convnet(V100, FLOAT32), "conv2d_2", **cube)),
    ))  # fmt: skip
    for gpu, n, unseen in ((V100, F16, False), (OTHER_V100, F16, True)):
        shape = (
            {"widths": (2048, 2047, 2048), "batch": 4096}
            if not unseen
            else {"widths": (1530, 3001, 1024), "batch": 2000, "features": 1000}
        )
        odd = {"dense_1": ON_CUDA_CORES, "dense_2": ON_CUDA_CORES}
        cases.append(single(
            "MP401", run(f"tf-v100-unaligned{'-other' if unseen else ''}", gpu, n, g.mlp(gpu, n, overrides=odd, **shape)),
            run("healthy", gpu, n, g.mlp(gpu, n, **shape)),
            run("float32", gpu, FLOAT32, g.mlp(gpu, FLOAT32, **shape)),
            unseen=unseen,
        ))  # fmt: skip
    # on newer cards odd sizes stay on Tensor Cores, with narrow loads
    narrow = _CUTLASS.format("cutlass_80_tensorop_f16_s16816gemm_f16_64x64_32x6_nn_align1")
    slow = replace(A100, tflops={**A100.tflops, "fp16": 60.0}, names={**A100.names, ("gemm", "fp16"): narrow})
    shape = {"widths": (2048, 2047, 2048), "batch": 8192}
    good = g.mlp(A100, F16, **shape)
    bad = g.mlp(slow, F16, **shape)
    odd_layers = ("dense_1", "dense_2")
    mixed = replace(good, works=tuple(
        b if any(g.of_layer(name)(b) for name in odd_layers) else a for a, b in zip(good.works, bad.works, strict=True)
    ))  # fmt: skip
    cases.append(single(
        "MP401", run("tf-a100-narrow-loads", A100, F16, mixed), run("healthy", A100, F16, good),
        run("float32", A100, TF32, g.mlp(A100, TF32, **shape)), unseen=True,
    ))  # fmt: skip
    cases.append(single(
        "MP409", run("tf-t4-algorithm", OTHER_T4, F16, g.mlp(OTHER_T4, F16, overrides={"dense_1": ON_CUDA_CORES}), host=Host(**NOISY)),
        run("healthy", OTHER_T4, F16, g.mlp(OTHER_T4, F16), host=Host(**NOISY)),
        run("float32", OTHER_T4, FLOAT32, g.mlp(OTHER_T4, FLOAT32), host=Host(**NOISY)), unseen=True,
    ))  # fmt: skip
    return cases


def host_causes() -> list[Planted]:
    cases = []
    for gpu, wait in ((V100, 14_000.0), (T4, 30_000.0), (A100, 9_000.0)):
        base = run("float32", gpu, base_of(gpu), convnet(gpu, base_of(gpu)))
        cases.append(single(
            "MP301", run(f"tf-{card(gpu)}-input", gpu, F16, convnet(gpu, F16), host=Host(input_us=wait)),
            run("healthy", gpu, F16, convnet(gpu, F16)), base,
        ))  # fmt: skip
    model, floats = g.mlp(OTHER_V100, F16), g.mlp(OTHER_V100, FLOAT32)
    cases.append(single(
        "MP301", run("tf-v100-input-mlp", OTHER_V100, F16, model, host=Host(input_us=2_100.0, noise=0.05)),
        run("healthy", OTHER_V100, F16, model, host=Host(**NOISY)),
        run("float32", OTHER_V100, FLOAT32, floats, host=Host(**NOISY)), unseen=True,
    ))  # fmt: skip
    small = {"batch": 8, "widths": (16, 32, 32, 64), "sizes": (32, 16, 8, 4), "classes": 16}
    for gpu, unseen in ((V100, False), (OTHER_A100, True)):
        slow, fast = (
            Host(dispatch_us=22.0, launch_us=9.0),
            Host(dispatch_us=1.0, launch_us=1.8, begin_us=20.0, end_us=20.0, between_us=10.0),
        )
        big = {} if not unseen else OTHER_SIZES
        del big
        cases.append(single(
            "MP302", run(f"tf-{card(gpu)}-launches{'-other' if unseen else ''}", gpu, F16, convnet(gpu, F16, **small), host=slow),
            run("healthy", gpu, F16, convnet(gpu, F16, **small), host=fast),
            run("float32", gpu, base_of(gpu), convnet(gpu, base_of(gpu), **small), host=fast), unseen=unseen,
        ))  # fmt: skip
    for gpu, ms in ((V100, 9.0), (OTHER_T4, 21.0)):
        base = run("float32", gpu, base_of(gpu), convnet(gpu, base_of(gpu)))
        timed = {"callback": "TensorBoard"} if gpu is OTHER_T4 else {}  # an older recorder did not
        cases.append(single(
            "MP305", run(f"tf-{card(gpu)}-callbacks", gpu, F16, convnet(gpu, F16), host=Host(between_us=ms * 1e3), **timed),
            run("healthy", gpu, F16, convnet(gpu, F16), **timed), base, unseen=gpu is OTHER_T4,
        ))  # fmt: skip
    fallen = g.followed(
        convnet(A100, BF16),
        lambda w: w.op == f"{MODEL}/re_lu_1/Relu",
        lambda w: g.cpu_op("gelu_1", 9_000.0, 30_000_000),
    )
    cases.append(single(
        "MP306", run("tf-a100-cpu-op", A100, BF16, fallen), run("healthy", A100, BF16, convnet(A100, BF16)),
        run("float32", A100, TF32, convnet(A100, TF32)),
    ))  # fmt: skip
    other = g.followed(
        g.mlp(OTHER_V100, F16),
        lambda w: w.op == f"{MODEL}/dense_1/Relu",
        lambda w: g.cpu_op("noise", 4_000.0, 12_000_000, "half"),
    )
    cases.append(single(
        "MP306", run("tf-v100-cpu-op", OTHER_V100, F16, other), run("healthy", OTHER_V100, F16, g.mlp(OTHER_V100, F16)),
        run("float32", OTHER_V100, FLOAT32, g.mlp(OTHER_V100, FLOAT32)), unseen=True,
    ))  # fmt: skip
    return cases


def rest_of_the_device() -> list[Planted]:
    cases = []
    base, healthy = (
        run("float32", V100, FLOAT32, convnet(V100, FLOAT32)),
        run("healthy", V100, F16, convnet(V100, F16)),
    )
    turned = g.followed(convnet(V100, F16), g.is_matrix, g.transposes(V100, F16, 2.4e7))
    cases.append(single("MP405", run("tf-v100-layout", V100, F16, turned), healthy, base))
    other = convnet(OTHER_A100, BF16, **OTHER_SIZES)
    turned = g.followed(other, g.is_matrix, g.transposes(OTHER_A100, BF16, 3.1e7))
    cases.append(single(
        "MP405", run("tf-a100-layout", OTHER_A100, BF16, turned), run("healthy", OTHER_A100, BF16, other),
        run("float32", OTHER_A100, TF32, convnet(OTHER_A100, TF32, **OTHER_SIZES)), unseen=True,
    ))  # fmt: skip
    for gpu, slower in ((V100, 30.0), (OTHER_T4, 12.0)):
        cases.append(single(
            "MP406", run(f"tf-{card(gpu)}-depthwise", gpu, F16, g.with_depthwise(convnet(gpu, F16), gpu, F16, slower)),
            run("healthy", gpu, F16, g.with_depthwise(convnet(gpu, F16), gpu, FLOAT32)),
            run("float32", gpu, FLOAT32, g.with_depthwise(convnet(gpu, FLOAT32), gpu, FLOAT32)), unseen=gpu is OTHER_T4,
        ))  # fmt: skip
    text = tf.transformer(V100, F16, **TEXT)
    floats = tf.transformer(V100, FLOAT32, **TEXT)
    cast = g.followed(text, lambda w: w.op.endswith("/BiasAdd"), g.casts_behind(V100, F16, 2.0e7))
    cases.append(single(
        "MP503", run("tf-v100-casts", V100, F16, cast), run("healthy", V100, F16, text), run("float32", V100, FLOAT32, floats),
    ))  # fmt: skip
    shape = {"batch": 8192}
    fed = g.followed(
        g.mlp(V100, F16, **shape),
        lambda w: w.op in (f"{MODEL}/dense_1/Relu", f"{GRADIENT}/dense_2/ReluGrad"),
        g.casts_into(V100, "dense_2", 8192 * 2048),
    )
    cases.append(single(
        "MP107", run("tf-v100-fed-float32", V100, F16, fed), run("healthy", V100, F16, g.mlp(V100, F16, **shape)),
        run("float32", V100, FLOAT32, g.mlp(V100, FLOAT32, **shape)),
    ))  # fmt: skip
    kept = {"dense_1": FLOAT32}
    cases.append(single(
        "MP104", run("tf-v100-island-cast-by-the-next", V100, F16, g.cast_by_the_next(g.mlp(V100, F16, overrides=kept, **shape), "dense_1", "dense_2")),
        run("healthy", V100, F16, g.mlp(V100, F16, **shape)), run("float32", V100, FLOAT32, g.mlp(V100, FLOAT32, **shape)), unseen=True,
    ))  # fmt: skip
    clipped = g.appended(g.mlp(V100, F16, batch=512), g.clipping(V100, 4.2e7, 160))
    cases.append(single(
        "MP506", run("tf-v100-clipping", V100, F16, clipped, optimizer={"class": "LossScaleOptimizer", "inner": "Adam", "dynamic": True, "initial_scale": 32768.0, "growth_steps": 2000, "clipping": {"global_clipnorm": 1.0}}),
        run("healthy", V100, F16, g.mlp(V100, F16, batch=512)), run("float32", V100, FLOAT32, g.mlp(V100, FLOAT32, batch=512)),
    ))  # fmt: skip
    many = g.appended(g.mlp(V100, F16, batch=2048), g.finite_checks(V100, 4.0e7, 300))
    cases.append(single(
        "MP304", run("tf-v100-loss-scale", V100, F16, many), run("healthy", V100, NO_SCALING, g.mlp(V100, NO_SCALING, batch=2048), optimizer=STATIC),
        run("float32", V100, FLOAT32, g.mlp(V100, FLOAT32, batch=2048)),
    ))  # fmt: skip
    rows = 400_000
    cases.append(single(
        "MP505", run("tf-v100-embedding", V100, F16, g.with_embedding(g.mlp(V100, F16, batch=2048), V100, rows, 64, "float16")),
        run("healthy", V100, F16, g.mlp(V100, F16, batch=2048)),
        run("float32", V100, FLOAT32, g.with_embedding(g.mlp(V100, FLOAT32, batch=2048), V100, rows, 64, "float32")),
    ))  # fmt: skip
    summed = {n: g.mlp(V100, n, batch=2048) for n in (F16, FLOAT32)}
    cases.append(single(
        "MP508", run("tf-v100-bias-gradient", V100, F16, g.appended(summed[F16], g.bias_gradient(F16, 8000.0))),
        run("healthy", V100, F16, g.appended(summed[F16], g.bias_gradient(F16, 190.0))),
        run("float32", V100, FLOAT32, g.appended(summed[FLOAT32], g.bias_gradient(FLOAT32, 190.0))),
    ))  # fmt: skip
    return cases


# --- JAX ---------------------------------------------------------------------------------------------------


def compiled() -> list[Planted]:
    cases = []
    for gpu, n in ((A100, F16), (H100, BF16), (V100, F16)):
        base = base_of(gpu)
        kept = {"conv2d_1": base, "conv2d_2": base}
        cases.append(single(
            "MP104", run(f"jax-{card(gpu)}-island", gpu, n, small_input(xla.convnet(gpu, n, overrides=kept))),
            run("healthy", gpu, n, small_input(xla.convnet(gpu, n))), run("float32", gpu, base, small_input(xla.convnet(gpu, base))),
        ))  # fmt: skip
    shape = {"widths": (4096, 4096, 1024), "batch": 8192}
    for gpu, n in ((OTHER_A100, F16), (OTHER_H100, BF16)):
        base = base_of(gpu)
        host = replace(g.JAX_HOST, noise=0.03)
        names = {"dense_1": "encoder", "dense_2": "decoder"}
        cases.append(single(
            "MP104", run(f"jax-{card(gpu)}-island-mlp", gpu, n, g.renamed(g.xla_mlp(gpu, n, overrides={"dense_1": base}, **shape), names), host=host, facts=g.JAX, fit={"jit_compile": True}),
            run("healthy", gpu, n, g.xla_mlp(gpu, n, **shape)), run("float32", gpu, base, g.renamed(g.xla_mlp(gpu, base, **shape), names)),
            unseen=True,
        ))  # fmt: skip
    odd = {"vocabulary": 50257, **OTHER_TEXT}
    cases.append(single(
        "MP402", run("jax-v100-vocabulary", OTHER_V100, F16, xla.transformer(OTHER_V100, F16, logits=ON_CUDA_CORES, **odd)),
        run("healthy", OTHER_V100, F16, xla.transformer(OTHER_V100, F16, **odd)),
        run("float32", OTHER_V100, FLOAT32, xla.transformer(OTHER_V100, FLOAT32, **odd)), unseen=True,
    ))  # fmt: skip
    model, floats = small_input(xla.convnet(A100, F16)), small_input(xla.convnet(A100, TF32))
    cases.append(single(
        "MP301", run("jax-a100-input", A100, F16, model, host=replace(g.JAX_HOST, input_us=4_000.0), facts=g.JAX, fit={"jit_compile": True}),
        run("healthy", A100, F16, model), run("float32", A100, TF32, floats),
    ))  # fmt: skip
    cases.append(single(
        "MP305", run("jax-a100-callbacks", A100, F16, model, host=replace(g.JAX_HOST, between_us=3_000.0), facts=g.JAX, fit={"jit_compile": True}),
        run("healthy", A100, F16, model), run("float32", A100, TF32, floats), unseen=True,
    ))  # fmt: skip
    for gpu, n in ((A100, F16), (OTHER_A100, BF16)):
        sizes = OTHER_SIZES if gpu is OTHER_A100 else {}
        unfused = small_input(g.norms_in_float32(xla.convnet(gpu, n, **sizes), gpu))
        cases.append(single(
            "MP501", run(f"jax-a100-norms{'-other' if sizes else ''}", gpu, n, unfused), run("healthy", gpu, n, small_input(xla.convnet(gpu, n, **sizes))),
            run("float32", gpu, TF32, small_input(xla.convnet(gpu, TF32, **sizes))), unseen=bool(sizes),
        ))  # fmt: skip
    nameless = small_input(xla.convnet(OTHER_H100, BF16, **OTHER_SIZES))
    cases.append(single(
        "MP501", run("jax-h100-norms-by-scope", OTHER_H100, BF16, replace(g.norms_in_float32(nameless, OTHER_H100), layers=())),
        run("healthy", OTHER_H100, BF16, nameless), unseen=True,
    ))  # fmt: skip
    large = {"batch": 512, "widths": (4096, 4096, 4096)}
    cases.append(single(
        "MP504", run("jax-v100-optimizer", V100, F16, g.update_in_pieces(g.xla_mlp(V100, F16, **large), V100)),
        run("healthy", V100, F16, g.xla_mlp(V100, F16, **large)),
        run("float32", V100, FLOAT32, g.update_in_pieces(g.xla_mlp(V100, FLOAT32, **large), V100)), unseen=True,
    ))  # fmt: skip
    tiny = {"batch": 16, "widths": (256, 256), "features": 64}
    slow = replace(g.JAX_HOST, dispatch_us=14.0, launch_us=8.0)
    quick = replace(
        g.JAX_HOST, begin_us=15.0, end_us=10.0, between_us=5.0, dispatch_us=0.2, launch_us=1.5, latency_us=0.5
    )
    jax = {"facts": g.JAX, "fit": {"jit_compile": True}}
    cases.append(single(
        "MP302", run("jax-a100-launches", A100, F16, replace(g.xla_mlp(A100, F16, **tiny), input_bytes=2000), host=slow, **jax),
        run("healthy", A100, F16, replace(g.xla_mlp(A100, F16, **tiny), input_bytes=2000), host=quick, **jax),
        run("float32", A100, TF32, replace(g.xla_mlp(A100, TF32, **tiny), input_bytes=2000), host=quick, **jax), unseen=True,
    ))  # fmt: skip
    fallen = small_input(xla.convnet(V100, F16, overrides={"conv2d_2": ON_CUDA_CORES}))
    cases.append(single(
        "MP409", run("jax-v100-algorithm", V100, F16, fallen), run("healthy", V100, F16, small_input(xla.convnet(V100, F16))),
        run("float32", V100, FLOAT32, small_input(xla.convnet(V100, FLOAT32))),
    ))  # fmt: skip
    return cases


# --- two or three at once ----------------------------------------------------------------------------------


def several() -> list[Planted]:
    kept = {"conv2d_3": FLOAT32}
    host = Host(input_us=14_000.0)
    base = run("float32", V100, FLOAT32, convnet(V100, FLOAT32))
    both = run("tf-v100-input-island", V100, F16, convnet(V100, F16, overrides=kept), host=host)
    cases = [Planted(both.name, both, {
        "MP301": run("no-wait", V100, F16, convnet(V100, F16, overrides=kept)),
        "MP104": run("no-island", V100, F16, convnet(V100, F16), host=host),
    }, base)]  # fmt: skip
    turned = g.followed(
        convnet(V100, F16, overrides={"conv2d_2": ON_CUDA_CORES}), g.is_matrix, g.transposes(V100, F16, 2.4e7)
    )
    host = Host(between_us=7_000.0)
    three = run("tf-v100-algorithm-layout-callbacks", V100, F16, turned, host=host)
    plain = g.followed(convnet(V100, F16), g.is_matrix, g.transposes(V100, F16, 2.4e7))
    straight = convnet(V100, F16, overrides={"conv2d_2": ON_CUDA_CORES})
    cases.append(Planted(three.name, three, {
        "MP409": run("no-fallback", V100, F16, plain, host=host),
        "MP405": run("no-layout", V100, F16, straight, host=host),
        "MP305": run("no-callbacks", V100, F16, turned),
    }, base, unseen=True))  # fmt: skip
    model = tf.transformer(OTHER_V100, F16, vocabulary=40_001, logits=ON_CUDA_CORES, **OTHER_TEXT)
    fine = tf.transformer(OTHER_V100, F16, vocabulary=40_001, **OTHER_TEXT)
    wait = Host(input_us=12_000.0, noise=0.02)
    two = run("tf-v100-vocabulary-input", OTHER_V100, F16, model, host=wait)
    cases.append(Planted(two.name, two, {
        "MP402": run("no-vocabulary", OTHER_V100, F16, fine, host=wait),
        "MP301": run("no-wait", OTHER_V100, F16, model, host=Host(noise=0.02)),
    }, run("float32", OTHER_V100, FLOAT32, tf.transformer(OTHER_V100, FLOAT32, vocabulary=40_001, **OTHER_TEXT)), unseen=True))  # fmt: skip
    wait = replace(g.JAX_HOST, input_us=3_000.0)
    jax = {"facts": g.JAX, "fit": {"jit_compile": True}}
    kept = {"conv2d_1": TF32}
    islands = small_input(xla.convnet(OTHER_A100, BF16, overrides=kept, **OTHER_SIZES))
    pair = run("jax-a100-input-island", OTHER_A100, BF16, islands, host=wait, **jax)
    cases.append(Planted(pair.name, pair, {
        "MP301": run("no-wait", OTHER_A100, BF16, islands),
        "MP104": run("no-island", OTHER_A100, BF16, small_input(xla.convnet(OTHER_A100, BF16, **OTHER_SIZES)), host=wait, **jax),
    }, run("float32", OTHER_A100, TF32, small_input(xla.convnet(OTHER_A100, TF32, **OTHER_SIZES))), unseen=True))  # fmt: skip
    return cases
