"""Twins of traces that nobody marked the steps of: what PyTorch and XLA mark by themselves is all that tells a step
from a layer. Each has the oddity of a public trace; times in microseconds."""

from __future__ import annotations

from collections.abc import Sequence

from tests.builders.windows import ADD, HALF, WIDE
from tests.builders.xspace import Space
from tests.traces.kineto import Kineto

BACKWARD = "void at::native::layer_norm_grad_input_kernel<float, float>(float const*)"
UPDATE = "void at::native::multi_tensor_apply_kernel<SGD>(int)"
BLOCK_US, BLOCKS = 400.0, 10
STEP_US = 900.0


def layers(calls: int = 1, *, modules: bool = True, kernels: int = 4) -> Kineto:
    """Forward passes of a model of ten equal blocks, one kernel before the first and one after the last."""
    k = Kineto()
    for call in range(calls):
        at = 10_000.0 * call
        if modules:
            k.module("Net_0", at, 4_200)
        k.launch(WIDE, at + 10, at + 20, 50)
        for block in range(BLOCKS):
            begin = at + 100 + BLOCK_US * block
            if modules:
                k.module(f"Block_{block}", begin - 10, BLOCK_US - 20)
            for row in range(kernels):
                apart = min(90.0, BLOCK_US / kernels)
                k.launch(f"{ADD} f{row}", begin + apart * row, begin + apart * row + 10, apart * 2 / 3)
        k.launch(HALF, at + 4_100, at + 4_110, 50)
    return k


def trained(
    updates: int = 12,
    *,
    optimizers: int = 1,
    micro_batches: int = 1,
    whole_first: bool = False,
    marked: bool = True,
) -> Kineto:
    """A training of which PyTorch marks only the optimizer's updates: the backward runs on a thread of its own. The
    window opens in the middle of the first step. `optimizers`: a GAN's networks in turn, each with its own work;
    `micro_batches`: batches to an update."""
    k = Kineto()
    at = 0.0
    for update in range(updates):
        network = update % optimizers
        for batch in range(micro_batches):
            for row in range(6):
                if update or whole_first or row > 2 or batch:
                    name = f"{WIDE} of {network}"
                    k.op("aten::mm", at + 50 * row, 20)
                    k.launch(name, at + 50 * row + 5, at + 50 * row + 20, 30)
            k.op("AddmmBackward0", at + 320, 300, tid=101, **{"Sequence number": update})
            for row in range(4 + 4 * network):
                k.launch(BACKWARD, at + 330 + 30 * row, at + 345 + 30 * row, 20, tid=101)
            at += 700
        if marked:
            k.host("user_annotation", "Optimizer.step#SGD.step", at, 60)
        k.launch(UPDATE, at + 10, at + 20, 30)
        at += 200
    return k


def old_markers(steps: int = 5) -> Kineto:
    """PyTorch 1.8: the step markers are in the category of the operators."""
    k = Kineto()
    for step in range(steps):
        k.host("Operator", f"ProfilerStep#{step + 5}", 1000.0 * step, 990)
        k.launch(ADD, 1000.0 * step + 20, 1000.0 * step + 30, 100, cat="kernel")
        k.launch(HALF, 1000.0 * step + 200, 1000.0 * step + 210, 300, cat="kernel")
    return k


def on_the_cpu(*, runtime: bool = True, op: str = "aten::addmm") -> Kineto:
    """A GPU in the machine, ops, and not one call that launches. `runtime`: other calls of CUDA's are recorded."""
    k = Kineto()
    if runtime:
        k.host("cuda_runtime", "cudaGetDeviceCount", 0, 3, correlation=1)
    for number in range(20):
        shapes = {"Input Dims": [[64, 64], [64, 64]], "Input type": ["float", "float"]}
        k.op(op, 10.0 + 1000 * number, 900, **shapes)
    return k


def waits_in_a_copy(
    steps: int = 5,
    *,
    copy: str = "DtoH (Device -> Pageable)",
    op: str = "aten::to",
    in_calls_us: float = 1.0,
    last: bool = True,
) -> Kineto:
    """Steps whose `aten::to` waits 4 ms in a copy before anything else is launched; the markers overlap by a rounding.
    `copy`: of which memory; one from pinned memory waits for nothing, and the driver held it up. `op`: what sends a
    tensor up again, and how long of its 500 µs it is in the driver's call. `last`: False for a product behind it."""
    k = Kineto()
    for step in range(steps):
        at = 9_000.0 * step
        k.host("user_annotation", f"ProfilerStep#{step}", at, 9_004)
        for row in range(30):
            k.op("aten::mm", at + 100 * row, 40)
            k.launch(WIDE, at + 100 * row + 10, at + 100 * row + 20, 95)
        k.op("aten::to", at + 3_100, 4_100)
        k.op("aten::copy_", at + 3_105, 4_090)
        k.launch(f"Memcpy {copy}", at + 3_110, at + 7_100, 60, cat="gpu_memcpy", bytes=1000)
        k.events[-2]["dur"] = 4_060  # the call returns when the copy is done
        k.op(op, at + 7_300, 500)
        k.launch(
            "Memcpy HtoD (Pinned -> Device)", at + 7_310, at + 7_340, 800, cat="gpu_memcpy", bytes=1 << 23
        )
        k.events[-2]["dur"] = in_calls_us
        if not last:
            k.op("aten::mm", at + 8_200, 40)
            k.launch(WIDE, at + 8_210, at + 8_220, 95)
    return k


def tpu_programs(runs: int = 20, *, name: str = "jit_f") -> Space:
    """A TPU whose `XLA Modules` line holds one program many times and a collective's now and then. The op line waits
    for copies to the host's memory; those run on the asynchronous line."""
    space = Space()
    plane = space.plane("/device:TPU:0")
    plane.stats |= {"device_type_string": "TPU v6 Lite"}
    modules, ops, beside = (
        plane.line(1, "XLA Modules"),
        plane.line(2, "XLA Ops"),
        plane.line(3, "Async XLA Ops"),
    )
    at = 1_000.0
    for run in range(runs):
        modules.event(f"{name}(12190760917235803885)", at, 780_000)
        ops.event("%copy-start.1 = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(f32[8]{0:S(5)} %p)", at, 10)
        beside.event(
            "%copy-start.1 = (f32[8]{0}, f32[8]{0:S(5)}, u32[]) copy-start(f32[8]{0:S(5)} %p)", at, 750_000
        )
        ops.event("%broadcast_add_fusion = f32[8]{0} fusion(f32[8]{0} %q), kind=kLoop", at + 10, 29_990)
        ops.event(
            "%copy-done.1 = f32[8]{0} copy-done((f32[8]{0}, f32[8]{0:S(5)}, u32[]) %copy-start.1)",
            at + 30_000,
            720_000,
        )
        ops.event(
            "%all-reduce-done = f32[8]{0} all-reduce-done(f32[8]{0} %all-reduce-start)", at + 750_000, 30_000
        )
        at += 780_000 + 20_000
        if run % 7 == 6:
            modules.event("jit__psum(9646411105960254074)", at, 5_000)
            ops.event("%all-reduce = f32[8]{0} all-reduce(f32[8]{0} %p)", at, 5_000)
            at += 6_000
    return space


def lasting(lengths_us: Sequence[float], unit: str = "step") -> Kineto:
    """Steps that last so long, in the middle of each a product for half of it: marked by the profiler, calls of
    one module without backward or optimizer ("pass"), or the same kernels over and over ("part")."""
    k = Kineto()
    at = 0.0
    for row, length in enumerate(lengths_us):
        if unit == "step":
            k.host("user_annotation", f"ProfilerStep#{row + 4}", at, length)
        elif unit == "pass":
            k.module("Net_0", at, length)
        for part in range(4):
            begin = at + length * part / 4
            k.launch(f"{ADD} f{part}", begin + 10, begin + 20, length / 8)
        k.launch(WIDE, at + length - 30, at + length - 20, 15)
        at += length
    return k
