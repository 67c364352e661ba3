"""Twins of traces in which no step can be told apart: a serving loop that PyTorch's profiler recorded without
`profiler.step()`, and whose sequence of kernels never repeats, because each request has one more of them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.traces.kineto import BACKWARD, Kineto

HALF = "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
WIDE = (
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4_alignc4_execute_"
    "kernel__5x_cublas"
)
NARROW_PAIR = (
    "bmm_Bfloat16_MxE2m1MxE4m3_Fp32_t128x16x256u2_s3_et128x16_m128x16x32_cga1x1x1_16dp256b_rM_TN_transOut_"
    "schedP2x1x2x3_biasM_bN_tmaOpt_clmp_dynBatch_sm100f"
)
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<c10::Half>, std::array<char*, 3ul>)"
NO_PRODUCT = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_mul<c10::Half>, std::array<char*, 3ul> >(int, at::native::CUDAFunctor_mul<c10::Half>, std::array<char*, 3ul>)"
REDUCE = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
BATCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


@dataclass(frozen=True)
class Request:
    """Microseconds from a request's beginning; the reduction begins `overlap` before the product ends."""

    every: float = 900.0
    product: float = 100.0
    reduction: float = 80.0
    overlap: float = 40.0
    copy: float = 50.0
    kernel: str = HALF
    dtype: str = "c10::Half"
    range: str = "decode"


def serving(requests: int = 6, each: Request = Request()) -> Kineto:
    """Requests one after the other, each in a range of its own: a product, a reduction over the cards that the
    product hides half of, some additions, a copy; then the wait for the next batch."""
    k = Kineto()
    for number in range(requests):
        at = number * each.every
        k.host("user_annotation", each.range, at + 100, each.product + each.copy + 150)
        square = {"Input Dims": [[4096, 4096]] * 2, "Input type": [each.dtype] * 2}
        k.op("aten::mm", at + 105, 10, **square)
        k.launch(each.kernel, at + 106, at + 120, each.product)
        done = at + 120 + each.product
        k.launch(REDUCE, at + 117, done - each.overlap, each.reduction, stream=20)
        after = done - each.overlap + each.reduction + 5
        for more in range(number + 1):
            k.launch(ADD, at + 120 + 2 * more, after + 4 * more, 3)
        after += 4 * (requests + 1)
        k.launch(
            "Memcpy HtoD (Pageable -> Device)", at + 150, after, each.copy, cat="gpu_memcpy", bytes=1 << 16
        )
        k.host("cpu_op", BATCH, after + each.copy, at + each.every + 100 - after - each.copy)
    return k


def offloaded_weights(layers: int = 6, *, memory: str = "Pinned") -> Kineto:
    """An inference whose weights lie in the host's memory: each layer's are copied anew before its product. Sizes
    differ widely, so that a mean says little of the largest; and a value of four bytes goes up from pageable
    memory."""
    k = Kineto()
    at = 0.0
    k.launch("Memcpy HtoD (Pageable -> Device)", at, at + 5, 2, cat="gpu_memcpy", bytes=4)
    for layer in range(layers):
        size = (1 << 22) * (10 if layer == 1 else 1)
        takes = size / 25e3
        at += 20
        k.op("aten::copy_", at, 10)
        k.launch(f"Memcpy HtoD ({memory} -> Device)", at + 1, at + 5, takes, cat="gpu_memcpy", bytes=size)
        k.launch("Memset (Device)", at + 2, at + 5 + takes, 1, cat="gpu_memset", bytes=64)
        at += takes + 10
        k.op("aten::addmm", at, 10, **{"Input Dims": [[64 + layer, 4096]], "Input type": ["float"]})
        for _ in range(layer + 1):
            k.launch(WIDE, at + 1, at + 5, 20 + layer)
            at += 30 + layer
    return k


def quantised_weights(layers: int = 6) -> Kineto:
    """Layers whose op takes bfloat16 and whose kernel multiplies weights of 4 bits with inputs of 8; a small
    product in bfloat16 beside it."""
    k = Kineto()
    for layer in range(layers):
        at = layer * 300.0
        inputs = {"Input Dims": [[64, 4096], [4096, 4096]], "Input type": ["c10::BFloat16"] * 2}
        k.op("aten::mm", at, 8, **inputs)
        k.launch(NARROW_PAIR, at + 1, at + 10, 150.0)
        k.op("aten::mm", at + 20, 8, **inputs)
        k.launch(HALF.replace("f16f16_f16f32", "bf16bf16_bf16f32"), at + 21, at + 170, 30.0)
    return k


def one_kernel() -> Kineto:
    """A window that closed after a single kernel."""
    k = Kineto()
    k.op("aten::add", 0, 10)
    k.launch(ADD, 2, 12, 2)
    k.launch("Memcpy DtoH (Device -> Pageable)", 13, 16, 1, cat="gpu_memcpy", bytes=4)
    return k


def memory_from_the_driver(held_us: float = 60_000.0) -> Kineto:
    """An op that waits for cudaMalloc for longer than all the work together, and then launches."""
    k = Kineto()
    for request in range(12):
        k.launch(ADD, 20.0 * request, 20.0 * request + 5, 6)
    k.op("aten::conv2d", 260, held_us + 30)
    k.host("cuda_runtime", "cudaMalloc", 265, held_us)
    k.launch(HALF, 270 + held_us, 280 + held_us, 100)
    return k


def memory_from_the_driver_in_steps(steps: int = 6, calls: int = 4, *, until: int | None = None) -> Kineto:
    """Steps of 2 ms, each with so many calls of hipMalloc that hold up the next launch for 0.3 ms; `until`: only
    in the steps before this one."""
    k = Kineto()
    for number in range(steps):
        at = 2000.0 * number
        k.host("user_annotation", f"ProfilerStep#{number}", at, 1990)
        for call in range(calls):
            begin = at + 10 + 400 * call
            if until is None or number < until:
                k.host("cuda_runtime", "hipMalloc", begin, 300)
            k.launch(HALF, begin + 310, begin + 315, 60)
    return k


def begins_with_an_empty_queue(
    steps: int = 6,
    *,
    trains: bool,
    marked: bool = True,
    ops: bool = True,
    product: float = 1300.0,
    early: float = 0.0,
) -> Kineto:
    """Steps that each read their result: short kernels as fast as they are launched, then a long product that
    hides the launches after it. `trains`: the product is of a gradient. Without marks they are parts that repeat,
    and without `ops` the driver's calls alone are recorded, as Nsight Systems does. `early`: so long before the
    product ends the host no longer waits."""
    k = Kineto()
    for number in range(steps):
        at = (700.0 + product) * number
        if marked:
            k.host("user_annotation", f"ProfilerStep#{number}", at, 690 + product)
        for short in range(20):
            k.launch(ADD, at + 10 + 30 * short, at + 16 + 30 * short, 5)
        square = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::Half"] * 2}
        if ops:
            k.op("AddmmBackward0" if trains else "aten::linear", at + 608, 20)
            k.op("aten::mm", at + 610, 10, **square)
        k.launch(HALF, at + 612, at + 620, product)
        k.host("cuda_runtime", "cudaDeviceSynchronize", at + 640, product - 10 - early)
    return k


def waits_in_mid_step(
    steps: int = 5, *, call: str = "cudaStreamSynchronize", small: int = 60, leading: bool = True
) -> Kineto:
    """Steps of 10 ms: a product of 4 ms, whose result the host reads and waits for 3.98 ms, in `call`; then `small`
    kernels of 2 us, launched every 30 us, so that the device idles 28 of each 30; then products of 3.8 ms. Without
    the `leading` product nothing of the step is launched before the wait."""
    k = Kineto()
    square = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["c10::Half"] * 2}
    for number in range(steps):
        at = 10_000.0 * number
        k.host("user_annotation", f"ProfilerStep#{number}", at, 9_990)
        if leading:
            k.op("aten::mm", at + 10, 20, **square)
            k.launch(HALF, at + 15, at + 25, 4_000)
        read = "Memcpy DtoH (Device -> Pageable)", {"cat": "gpu_memcpy", "bytes": 4}
        if call == "cudaStreamSynchronize":
            k.op("aten::item", at + 40, 4_000)
            k.op("aten::_local_scalar_dense", at + 42, 3_996)
            k.launch(read[0], at + 45, at + 4_028, 2, **read[1])
            k.host("cuda_runtime", call, at + 50, 3_980)
        else:
            k.op("aten::to", at + 40, 4_000)
            k.op("aten::copy_", at + 42, 3_996)
            k.host("cuda_runtime", call, at + 50, 3_980, correlation=9_000 + number)
            k.work(read[0], at + 4_028, 2, correlation=9_000 + number, **read[1])
        then = at + 4_045
        for which in range(small):
            k.launch(ADD, then + 30 * which, then + 30 * which + 8, 2)
        then += 30 * small
        k.op("aten::mm", then, 20, **square)
        k.launch(HALF, then + 5, then + 15, 3_000)
        k.op("aten::mm", then + 35, 20, **square)
        k.launch(HALF, then + 40, then + 3_020, 800)
    return k


def clones_in_each_step(steps: int = 6, *, within: str | None = None) -> Kineto:
    """Steps of a product and of tensors cloned on the device, in an op of this name."""
    k = Kineto()
    for number in range(steps):
        at = 2000.0 * number
        k.host("user_annotation", f"ProfilerStep#{number}", at, 1990)
        if within is not None:
            k.op(within, at + 5, 300)
        square = {"Input Dims": [[4096, 4096]] * 2, "Input type": ["float"] * 2}
        k.op("aten::mm", at + 10, 10, **square)
        k.launch(WIDE, at + 12, at + 20, 1500)
        for clone in range(20):
            k.op("aten::copy_", at + 30 + 10 * clone, 8)
            moved = {"cat": "gpu_memcpy", "bytes": 1 << 24}
            k.launch(
                "Memcpy DtoD (Device -> Device)", at + 32 + 10 * clone, at + 1525 + 20 * clone, 18, **moved
            )
    return k


def evaluates_outside_autocast(
    steps: int = 4, *, dtype: str = "float", modules: bool = True, gradient: bool = False
) -> Kineto:
    """Steps of 10 ms that train a product of 4096 x 4096 in 16 bits, 0.5 ms forward and twice that backward, and then
    evaluate it on as many rows in `dtype`: 5 ms in float32, 0.5 ms in 16 bits. `gradient`: that pass has one,
    as that of an island has; `modules`: the trace names the layer."""
    k = Kineto()
    for number in range(steps):
        at = 10_000.0 * number
        k.host("user_annotation", f"ProfilerStep#{number}", at, 9_990)
        _linear(k, at + 5, "c10::Half", 2 * number, modules=modules)
        _linear(k, at + 2_000, dtype, 2 * number + 1, modules=modules, gradient=gradient)
        k.launch("multi_tensor_apply_kernel", at + 9_000, at + 9_010, 100)
    return k


def _linear(k: Kineto, at: float, dtype: str, sequence: int, *, modules: bool, gradient: bool = True) -> None:
    kernel, takes = (HALF, 500.0) if "Half" in dtype else (WIDE, 5_000.0)
    if modules:
        k.module("Net_0", at, 300)
        k.module("Linear_0", at + 5, 200)
    square = [4096, 4096]
    numbers = {"Sequence number": sequence, "Fwd thread id": 0} if gradient else {}
    inputs = {"Input Dims": [[4096], square, square], "Input type": [dtype] * 3}
    k.op("aten::addmm", at + 10, 60, **inputs, **numbers)
    k.launch(kernel, at + 20, at + 40, takes)
    if gradient:
        back = numbers | {"Fwd thread id": 1}
        k.op("autograd::engine::evaluate_function: AddmmBackward0", at + 295, 90, BACKWARD, **back)
        k.op("AddmmBackward0", at + 300, 80, BACKWARD, **back)
        for which in range(2):
            called, begins = at + 310 + 30 * which, at + 50 + takes + 505 * which
            k.op("aten::mm", called, 25, BACKWARD, **{"Input Dims": [square] * 2, "Input type": [dtype] * 2})
            k.launch(kernel, called + 5, begins, 500, BACKWARD)
