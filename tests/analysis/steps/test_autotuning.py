"""First steps in which algorithms are tried out: *synthetic* twins of what TensorFlow launches then."""

from __future__ import annotations

import pytest

from mpprof.analysis.breakdown.accounting import account
from mpprof.analysis.memory.composition import at_peak
from mpprof.analysis.steps.boundaries import periods
from mpprof.model.trace import HostKind
from tests.builders.trace import TraceBuilder

MS, MIB = 1_000_000, 1 << 20
ALGORITHMS = (
    "volta_scudnn_128x64_relu_interior_nn_v1", "volta_fp16_s884cudnn_fp16_128x128_ldg8_wgrad_idx_exp_interior_nhwc_nt",
    "sm80_xmma_fprop_implicit_gemm_f16f16_f16f32_f32", "cutlass__5x_cudnn::Kernel<cutlass_tensorop_s16816fprop_optimized>",
    "void implicit_convolve_sgemm<float, float, 128, 5, 5>(int)",
)  # fmt: skip


def training(*tuned: bool, checker: str | None = "redzone_checker") -> TraceBuilder:
    """A step of 100 ms each: a convolution and its gradient; those that are `tuned` take 400 ms, and the gradient
    runs every algorithm, each followed by the checker."""
    b, at = TraceBuilder(), 0
    for n, tries in enumerate(tuned):
        end = at + (400 if tries else 100) * MS
        b.marker(n, at, end)
        b.kernel(ALGORITHMS[0], at + 10 * MS, at + 30 * MS, op="model/conv/Conv2D", phase="forward")
        b.event(HostKind.EXECUTOR, at + 40 * MS, end - 10 * MS, op="gradients/conv/Conv2DBackpropFilter")
        b.kernel(
            ALGORITHMS[1],
            at + 50 * MS,
            at + 80 * MS,
            op="gradients/conv/Conv2DBackpropFilter",
            phase="backward",
        )
        for each, name in enumerate(ALGORITHMS[2:] if tries else ()):
            begin = at + (100 + 80 * each) * MS
            b.kernel(name, begin, begin + 40 * MS, op="gradients/conv/Conv2DBackpropFilter", phase="backward")
            if checker:
                b.kernel(checker, begin + 50 * MS, begin + 60 * MS, op="gradients/conv/Conv2DBackpropFilter")
        at = end
    return b


@pytest.mark.parametrize("checker", ["redzone_checker", "RedzoneCheckerKernel", None])
def test_such_a_step_is_not_judged(checker: str | None) -> None:
    """Without the checker in the trace, the algorithms that one op ran in one step tell."""
    b = training(True, False, False, checker=checker)
    found = account(b.build(), b.placements(), b.ownership(), None)
    assert (found.steps, found.tuned_steps, found.step_ns) == ((1, 2), 1, 100 * MS)
    assert "1 of 3 steps tried out several algorithms" in " ".join(found.notes)


def test_where_there_is_no_other_there_is_no_step() -> None:
    found = periods(training(True).build(), 0)
    assert len(found) == 0
    assert "1 of 1 steps tried out several algorithms for a convolution (autotuning)" in found.notes[-1]


def test_an_op_that_stands_for_many_convolutions_in_every_step_tries_out_nothing() -> None:
    """Of a command buffer's kernels one op is named."""
    found = periods(training(True, True, checker=None).build(), 0)
    assert (len(found), found.tuned) == (2, 0)


def test_what_runs_one_algorithm_for_each_of_many_convolutions_is_a_step() -> None:
    b = TraceBuilder()
    for n in range(2):
        b.marker(n, n * 100 * MS, (n + 1) * 100 * MS)
        for each, name in enumerate(ALGORITHMS):
            at = (100 * n + 10 + 10 * each) * MS
            b.kernel(name, at, at + 5 * MS, op=f"model/conv_{each}/Conv2D")
    assert len(periods(b.build(), 0)) == 2


def test_what_an_algorithm_worked_in_is_no_gradient() -> None:
    """In the gradient's op: its result of 2 MiB, which an optimizer reads later, and 64 MiB of scratch."""
    b, name = training(True), "gradients/conv/Conv2DBackpropFilter"
    b.allocation(45 * MS, 2 * MIB, 2 * MIB, address=1, op=name, phase="backward", dtype="float32")
    b.allocation(100 * MS, 64 * MIB, 66 * MIB, address=2, op=name, phase="backward", dtype="uint8")
    b.allocation(170 * MS, 64 * MIB, 2 * MIB, address=2, free=True)
    b.allocation(395 * MS, 2 * MIB, 0, address=1, free=True)
    found = at_peak(b.build(), b.ownership())
    kinds = {item.name: item.bytes for item in found.at_peak if item.by == "kind"}
    assert kinds == {"workspaces": 64 * MIB, "gradients": 2 * MIB}
