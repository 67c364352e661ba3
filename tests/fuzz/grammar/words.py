"""Names and values as collectors of any version and users of any taste write them."""

from __future__ import annotations

import random

from tests.fuzz.grammar.xplane_tree import BYTES, DOUBLE, INT, TEXT, UINT

KERNELS = (
    "volta_fp16_s884gemm_fp16_128x128_ldg8_f2f_nn", "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_64x3_nn",
    "volta_sgemm_128x64_nt", "turing_h1688gemm_128x128_nn", "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4",
    "void tensorflow::functor::ApplyAdamKernel<float>(int, float*, float*)", "loop_add_fusion_3", "input_reduce_fusion",
    "void Eigen::internal::EigenMetaKernel<Eigen::TensorEvaluator<const Eigen::TensorAssignOp<Eigen::TensorMap<Eigen::Tensor<Eigen::half, 1>>>>>",
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true>(cudnnTensorStruct)", "ncclDevKernel_AllReduce_Sum_f16_RING_LL",
    "Cijk_Ailk_Bljk_HHS_BH_MT128x128x16_MI16x16x16x1", "void ck::kernel_gemm_xdl<f16>", "__amd_rocclr_copyBuffer",
    "MemcpyH2D", "Memset", "wmma_kernel", "kernel_0", "0", "dot.3", "convolution.17", "fusion.1", "all-reduce.5",
)  # fmt: skip
OPS = (
    "model/dense/MatMul:MatMul", "model/conv2d/Conv2D:Conv2D", "gradient_tape/model/conv2d/Conv2D/Conv2DBackpropFilter:Conv2DBackpropFilter",
    "Adam/Adam/update/ResourceApplyAdam:ResourceApplyAdam", "model/batch_normalization/FusedBatchNormV3:FusedBatchNormV3",
    "model/dense/BiasAdd:BiasAdd", "IteratorGetNext:IteratorGetNext", "Cast:Cast", "model/softmax/Softmax:Softmax",
    "jit(step)/jit(main)/dense/dot_general", "sequential/dense_1/MatMul:_FusedMatMul", "LossScale/IsFinite:IsFinite", "x", "a:b:C", ":", "XlaModule:",
)  # fmt: skip
HOST = (
    "EagerExecute: __inference_multi_step_on_iterator_17", "EagerLocalExecute: __inference_train_function_9", "train_function",
    "ExecutorState::Process", "IteratorGetNextOp::DoCompute", "Iterator::Prefetch", "cuLaunchKernel", "cuMemcpyHtoDAsync_v2",
    "cuStreamSynchronize", "PjitFunction(step)", "TfrtCpuExecutable::Execute", "ThreadpoolListener::Record", "end: dot.3",
    "MemoryAllocation", "MemoryDeallocation", "FlushSummaryWriter", "WriteSummary", "LogicalAnd:LogicalAnd", "$train.py:3 f",
    "XlaCompile", "PjRtCpuExecutable::Compile", "BlockHostUntilReady", "Profiled batch 3", "TraceContext", "mpprof_step",
)  # fmt: skip
INSTANTS = ("PythonRefManager::CollectGarbage", "some instant", "ThreadpoolListener::Record", "x")
THREADS = (
    "python",
    "tf_Compute/-1912837",
    "tf_XLAEigen/1",
    "tf_data_iterator_get_next/7",
    "Host Threads/4117",
    "main",
    "",
    "0",
)
ODD = (
    "",
    " ",
    "\u202e\u0000\n\x1b[31m",
    "<b>&amp;</b>",
    "名前",
    "é" * 40,
    "\U0001f600",
    "a/" * 200,
    "x" * 20_000,
    "%s{}",
    "../../etc",
    "NaN",
)
UNKNOWN_PLANES = (
    "/device:CUSTOM:Timeline", "/device:CUSTOM:Megascale Trace", "#Chip0 Misc", "/host:tfstreamz", "Syscalls", "Host CPUs", "/device:TPU:0 SparseCore 1",
    "/device:NEURONCORE:0", "/device:GPU", "/device:XPU:0", "Something new", "/host:__ScopeRangeCallStack__", "/host:CPU-counters", "/host:CUPTI 2", "",
)  # fmt: skip
NUMBERS = (0, 1, 2, 127, 128, 2**31 - 1, 2**31, 2**32, 2**53, 2**62, 2**63 - 1)


def name(dice: random.Random) -> str:
    """Any name, now and then one that a user or a broken tool makes."""
    return (
        dice.choice(ODD) if dice.random() < 0.1 else dice.choice(dice.choice((KERNELS, OPS, HOST, THREADS)))
    )


def unknown_plane(dice: random.Random) -> str:
    return dice.choice(UNKNOWN_PLANES)


def value(dice: random.Random) -> tuple[int, int | float | bytes]:
    """Kind and value of a stat that is no reference."""
    match dice.randrange(5):
        case 0:
            return UINT, dice.choice(NUMBERS)
        case 1:
            return INT, -dice.choice(NUMBERS)
        case 2:
            return DOUBLE, dice.choice((0.0, -0.0, 1.5, 1e308, -1e-320, float("inf"), float("nan")))
        case 3:
            return TEXT, name(dice).encode()
        case _:
            return BYTES, bytes(dice.randrange(256) for _ in range(dice.randrange(9)))
