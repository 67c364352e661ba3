"""Cards and kernel rates for made-up runs: the simulator's own facts, shared with no part of mpprof.

Rates are what a well-filled kernel reaches, not peaks: roughly 55 to 70 % of the vendor's dense peak for
matrix kernels, 80 % of the bandwidth for the rest. Names follow the libraries' spelling on that card.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """A card. Rates in TFLOP/s by precision that really runs; `names` gives kernel names by (role, precision).

    `streaming_ratio` is the share of the bandwidth that kernels bound by memory reach; `ramp_us` what any kernel
    takes to start and drain."""

    name: str
    capability: tuple[int, int]
    cores: int
    clock_khz: int
    memory_bytes: int
    bandwidth_gb_s: float
    tflops: dict[str, float]
    names: dict[tuple[str, str], str]
    streaming_ratio: float = 0.8
    ramp_us: float = 2.0


def _cudnn_volta(prefix: str, suffix: str) -> dict[str, str]:
    return {
        "conv_fprop": f"{prefix}_128x128_ldg8_relu_f2f_exp_small_nhwc_tn_v1{suffix}",
        "conv_dgrad": f"{prefix}_128x128_ldg8_dgrad_f2f_exp_small_nhwc2nchw_tt_v1{suffix}",
        "conv_wgrad": f"{prefix}_256x128_ldg8_wgrad_idx_exp_interior_nhwc_nt_v1{suffix}",
    }


def _named(precision: str, names: dict[str, str]) -> dict[tuple[str, str], str]:
    return {(category, precision): name for category, name in names.items()}


_SCUDNN = {
    "conv_fprop": "volta_scudnn_128x64_relu_interior_nn_v1",
    "conv_dgrad": "volta_scudnn_128x64_stridedB_splitK_interior_nn_v1",
    "conv_wgrad": "volta_scudnn_128x64_stridedB_interior_nn_v1",
    "gemm": "volta_sgemm_128x64_nn",
    "logits": "volta_sgemm_128x128_tn",
}

V100 = Gpu(
    "Tesla V100-SXM2-16GB", (7, 0), 80, 1_530_000, 16_945_512_448, 898.0,
    {"fp32": 10.5, "fp16": 62.0, "fp16_cuda": 11.0},
    {
        **_named("fp32", _SCUDNN),
        **_named("fp16", _cudnn_volta("volta_fp16_s884cudnn_fp16", "")),
        ("gemm", "fp16"): "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn",
        ("logits", "fp16"): "volta_fp16_s884gemm_fp16_256x128_ldg8_f2f_tn",
        ("gemm", "fp16_cuda"): "volta_fp16_sgemm_fp16_128x64_nn",
        ("logits", "fp16_cuda"): "volta_fp16_sgemm_fp16_128x128_tn",
        ("conv_fprop", "fp16_cuda"): "volta_fp16_scudnn_fp16_128x64_relu_interior_nn_v1",
        ("conv_dgrad", "fp16_cuda"): "volta_fp16_scudnn_fp16_128x64_stridedB_interior_nn_v1",
        ("conv_wgrad", "fp16_cuda"): "volta_fp16_scudnn_fp16_128x64_stridedB_splitK_interior_nn_v1",
    },
)  # fmt: skip

T4 = Gpu(
    "Tesla T4", (7, 5), 40, 1_590_000, 15_843_721_216, 320.0,
    {"fp32": 4.6, "fp16": 27.0, "fp16_cuda": 5.0},
    {
        **_named("fp32", _SCUDNN),
        **_named("fp16", _cudnn_volta("turing_fp16_s1688cudnn_fp16", "")),
        ("gemm", "fp16"): "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn",
        ("logits", "fp16"): "turing_fp16_s1688gemm_fp16_256x128_ldg8_f2f_tn",
        ("gemm", "fp16_cuda"): "turing_fp16_sgemm_fp16_128x64_nn",
        ("logits", "fp16_cuda"): "turing_fp16_sgemm_fp16_128x128_tn",
    },
)  # fmt: skip


def _xmma(generation: str, kind: str, types: str, layout: str, tile: str) -> str:
    return f"{generation}_xmma_{kind}_implicit_gemm_{types}_{layout}_{tile}_execute_kernel__5x_cudnn"


def _ampere(types: str, mma: str) -> dict[str, str]:
    tile = f"tilesize128x128x32_stage4_warpsize2x2x1_g1_{mma}"
    return {
        "conv_fprop": _xmma("sm80", "fprop", types, "nhwckrsc_nhwc", tile),
        "conv_dgrad": _xmma("sm80", "dgrad", types, "nhwckrsc_nhwc", tile),
        "conv_wgrad": _xmma("sm80", "wgrad_indexed", types, "nhwckrsc_nhwc", tile),
    }


A100 = Gpu(
    "NVIDIA A100-SXM4-40GB", (8, 0), 108, 1_410_000, 42_505_273_344, 1555.0,
    {"fp32": 13.5, "tf32": 92.0, "fp16": 190.0, "bf16": 190.0, "fp16_cuda": 14.0},
    {
        **_named("tf32", _ampere("tf32f32_tf32f32_f32", "tensor16x8x8")),
        **_named("fp16", _ampere("f16f16_f16f32_f32", "tensor16x8x16")),
        **_named("bf16", _ampere("bf16bf16_bf16f32_f32", "tensor16x8x16")),
        **_named("fp32", {
            "conv_fprop": "cudnn_ampere_scudnn_128x64_relu_medium_nn_v1",
            "conv_dgrad": "cudnn_ampere_scudnn_128x64_stridedB_splitK_medium_nn_v1",
            "conv_wgrad": "cudnn_ampere_scudnn_128x64_stridedB_interior_nn_v1",
            "gemm": "ampere_sgemm_128x64_nn",
            "logits": "ampere_sgemm_128x128_tn",
        }),
        ("gemm", "tf32"): "cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4",
        ("logits", "tf32"): "cutlass_80_tensorop_s1688gemm_256x128_16x3_tn_align4",
        ("gemm", "fp16"): "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_64x3_nn",
        ("logits", "fp16"): "ampere_fp16_s16816gemm_fp16_256x128_ldg8_f2f_stages_64x3_tn",
        ("gemm", "bf16"): "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn",
        ("logits", "bf16"): "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn",
        ("logits", "fp16_cuda"): "ampere_fp16_sgemm_fp16_128x64_tn",
        ("gemm", "fp16_cuda"): "ampere_fp16_sgemm_fp16_128x64_nn",
    },
)  # fmt: skip

_HOPPER_TILE = "tilesize128x128x64_warpgroupsize1x1x1_g1"
H100 = Gpu(
    "NVIDIA H100 80GB HBM3", (9, 0), 132, 1_980_000, 85_031_714_816, 3352.0,
    {"fp32": 38.0, "tf32": 260.0, "fp16": 560.0, "bf16": 560.0, "fp8": 1050.0},
    {
        **_named("tf32", _ampere("tf32f32_tf32f32_f32", "tensor16x8x8")),
        **{(f"conv_{k}", p): _xmma("sm90", k, t, "nhwckrsc_nhwc", _HOPPER_TILE)
           for p, t in (("fp16", "f16f16_f16f32_f32"), ("bf16", "bf16bf16_bf16f32_f32"))
           for k in ("fprop", "dgrad", "wgrad")},
        ("gemm", "tf32"): "sm80_xmma_gemm_f32f32_tf32f32_f32_nn_n_tilesize128x128x32_stage3_warpsize2x2x1_tensor16x8x8_execute_kernel__51_cublas",
        ("logits", "tf32"): "sm80_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize256x128x32_stage3_warpsize4x2x1_tensor16x8x8_execute_kernel__51_cublas",
        ("gemm", "fp16"): "nvjet_hsh_128x128_64x4_1x2_h_bz_coopA_NNT",
        ("logits", "fp16"): "nvjet_hsh_256x128_64x4_2x1_v_bz_coopB_TNT",
        ("gemm", "bf16"): "nvjet_tst_128x128_64x4_1x2_h_bz_coopA_NNT",
        ("logits", "bf16"): "nvjet_tst_256x128_64x4_2x1_v_bz_coopB_TNT",
        ("gemm", "fp8"): "nvjet_qqtst_128x256_128x4_2x1_v_bz_TNT",
    },
)  # fmt: skip

GTX1080TI = Gpu(
    "NVIDIA GeForce GTX 1080 Ti", (6, 1), 28, 1_582_000, 11_707_547_648, 484.0,
    {"fp32": 7.6, "fp16_cuda": 7.4},
    {
        **{k: v.replace("volta_", "maxwell_") for k, v in _named("fp32", _SCUDNN).items()},
        **{(category, "fp16_cuda"): name.replace("volta_scudnn", "maxwell_fp16_scudnn_fp16").replace("volta_sgemm", "maxwell_fp16_sgemm_fp16")
           for category, name in _SCUDNN.items()},
    },
)  # fmt: skip


def matrix_us(gpu: Gpu, precision: str, flops: float, bytes: float) -> float:
    """How long a matrix kernel takes: the slower of arithmetic and memory, and the time to start and drain."""
    return max(flops / (gpu.tflops[precision] * 1e6), memory_us(gpu, bytes) - gpu.ramp_us) + gpu.ramp_us


def memory_us(gpu: Gpu, bytes: float) -> float:
    """How long a memory-bound kernel takes."""
    return bytes / (gpu.bandwidth_gb_s * gpu.streaming_ratio * 1e3) + gpu.ramp_us
