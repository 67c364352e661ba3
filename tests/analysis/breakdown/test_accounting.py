"""The account on timelines put together by hand, with every number known."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpprof.analysis.breakdown.accounting import account, category_of
from mpprof.analysis.breakdown.compute_precision import tensor_core_share
from mpprof.analysis.steps.boundaries import periods
from mpprof.analysis.steps.stalls import LOADER
from mpprof.errors import UnableError
from mpprof.model.account import CLASSES, PHASES, Account, Cell
from mpprof.model.kernels import FAMILIES, UNKNOWN, Family, Placement, Reason, Verdict
from mpprof.model.run import Run
from mpprof.model.trace import CopyKind, HostKind, WorkKind
from tests.analysis.breakdown.devices import two
from tests.analysis.steps.test_statistics import MS, noisy, table
from tests.builders import cases as c
from tests.builders.trace import TraceBuilder

GEMM: dict[str, Any] = {"family": "gemm", "placement": "tensor_core", "precision": "fp16"}


def steps(b: TraceBuilder, count: int = 2, length: int = 100, *, family: str = "mpprof") -> TraceBuilder:
    """`count` steps, each with a kernel of 10 ns, 20 ns after its beginning."""
    for n in range(count):
        b.marker(n + 1, n * length - 20, (n + 1) * length - 20, family=family)
        b.kernel(
            "first",
            n * length,
            n * length + 10,
            family="elementwise",
            launch=(n * length - 10, n * length - 8),
        )
    return b


def judged(b: TraceBuilder, run: Run | None = None) -> Account:
    found = account(b.build(), b.placements(), b.ownership(), run)
    closes(found)
    return found


def closes(found: Account) -> None:
    for device in found.devices:
        total = math.fsum(s.ns_per_step for s in device.slices)
        assert total == pytest.approx(device.step_ns, abs=1e-3)
        for part in device.slices:
            cells = [c.ns_per_step for c in device.cells if c.category == part.category]
            assert math.fsum(cells) == pytest.approx(part.ns_per_step, abs=1e-6)
            takes = math.fsum(max(0.0, s.ns_per_step) for s in device.slices)
            assert part.ratio == pytest.approx(part.ns_per_step / takes)
            if part.by:
                assert math.fsum(s.ns_per_step for s in part.by) == pytest.approx(part.ns_per_step, abs=1e-6)
        with_time = {c.category for c in device.cells if c.ns_per_step}
        assert with_time == {s.category for s in device.slices if s.ns_per_step}
        assert [s.category for s in device.slices] == [
            c for c in CLASSES if c in {s.category for s in device.slices}
        ]
    assert found.step_ns == found.main.step_ns


def run_of(interval_ms: list[float], **columns: Any) -> Run:
    return Run("run", Path("run"), None, table(interval_ms, **columns), None, None, (), True)


# --- whose instant it is -----------------------------------------------------------------------------------


def test_a_step_of_one_stream() -> None:
    b = steps(TraceBuilder(), 2)
    for n in (0, 100):
        b.kernel(
            "mm", n + 10, n + 50, **GEMM, op="dense/MatMul", op_type="MatMul", layer="dense", phase="forward"
        )
        b.kernel("add", n + 50, n + 70, op="dense/Add")
    found = judged(b)
    by_role = {s.category: s.ns_per_step for s in found.main.slices}
    assert by_role["matmul"] == 40
    assert by_role["elementwise"] == 30
    assert sum(v for k, v in by_role.items() if k.startswith("idle")) == 30
    assert (found.basis, found.trace_basis, found.step_ns, found.device_ns) == ("window", "device", 100, 70)
    assert (found.steps, found.step_source, found.wall_ns) == ((1, 2), "mpprof", None)
    cell = next(c for c in found.main.cells if c.kernel == "mm")
    assert (cell.op, cell.op_type, cell.layer, cell.phase) == ("dense/MatMul", "MatMul", "dense", "forward")
    assert (cell.calls_per_step, cell.busy_ns_per_step, cell.ns_per_step) == (1, 40, 40)
    assert (cell.family, cell.placement, cell.precision, cell.reason_code) == (
        "gemm",
        "tensor_core",
        "fp16",
        "test",
    )


def test_transforms_of_convolutions_are_told_apart_in_the_matrix_work() -> None:
    b = steps(TraceBuilder(), 2)
    helper: dict[str, Any] = {"family": "conv_fprop", "placement": "not_matmul", "precision": "fp32"}
    for n in (0, 100):
        b.kernel("fft2d_r2c_32x32", n + 10, n + 30, **helper, reason="conv-transform")
        b.kernel("splitKreduce_kernel", n + 30, n + 40, **helper, reason="splitk-reduction")
        b.kernel("cgemm", n + 40, n + 70, family="conv_fprop", placement="cuda_core", precision="fp32")
    found = judged(b)
    (matmul,) = [part for part in found.main.slices if part.category == "matmul"]
    told = {share.placement: (share.ns_per_step, share.transforms_ns_per_step) for share in matmul.by}
    assert told == {"not_matmul": (30, 20), "cuda_core": (30, 0)}


def test_matmul_comes_before_other_compute_which_shares_and_hides_communication_and_copies() -> None:
    b = steps(TraceBuilder(), 1)
    b.kernel("mm", 10, 40, **GEMM)
    b.kernel("norm", 30, 60, stream=1, family="norm")  # 30-40 under the matmul
    b.kernel("sum", 50, 70, stream=2, family="reduce")  # 50-60 shared with the norm
    b.kernel("ncclDevKernel_AllReduce", 35, 80, stream=3, family="comm")  # exposed from 70 on
    b.copy(60, 90, stream=4, bytes=45_000_000)  # exposed from 80 on
    found = judged(b)
    by_role = {s.category: (s.ns_per_step, s.hidden_ns_per_step) for s in found.main.slices}
    assert by_role["matmul"] == (30, 0)
    assert by_role["norm"] == (15, 15)  # 40-50 alone, half of 50-60; 30-40 and the other half are hidden
    assert by_role["reduce"] == (15, 5)
    assert by_role["comm"] == (10, 35)
    assert by_role["copy"] == (10, 20)
    (copied,) = [cell for cell in found.main.cells if cell.category == "copy"]
    assert (copied.bytes_per_step, copied.busy_ns_per_step) == (45e6, 30)
    assert found.main.busy_ns == 90
    assert next(c for c in found.main.cells if c.category == "comm").busy_ns_per_step == 45


def test_copies_and_fills_are_no_kernels_and_the_median_is_that_of_the_calls() -> None:
    """One name runs for 2 and for 30 ns; beside it a copy and a fill."""
    b = TraceBuilder()
    b.marker(1, -5, 100, thread=None)
    for start, end in ((0, 2), (10, 12), (20, 22), (30, 60)):
        b.kernel("add", start, end, op="add")
    b.copy(62, 70)
    b.kernel("Memset", 72, 73, kind=WorkKind.MEMSET, family="memset")
    calls = judged(b).main.calls
    assert (calls.per_step, calls.median_ns, calls.copies_per_step) == (4, 2, 2)
    assert calls.ns_per_step == 36


@pytest.mark.parametrize(("product", "whole"), [(False, False), (True, True)])
def test_a_marked_step_that_prepares_products_and_runs_none_is_no_step(product: bool, whole: bool) -> None:
    """Casts of weights need no input: a converter called all that ran in the window a step."""
    b = TraceBuilder()
    b.marker(0, 0, 100, family="steps_line", thread=None)
    b.kernel("cast", 10, 20, family="cast", op="encoder/layer_1/MatMul/Cast", op_type="Cast")
    b.kernel("mul", 30, 40, op="encoder/layer_1/dropout/Mul", op_type="Mul")
    if product:
        b.kernel("gemm", 50, 60, op="encoder/layer_1/MatMul", op_type="MatMul", **GEMM)
    if whole:
        assert judged(b).step_source == "steps_line"
        return
    with pytest.raises(UnableError, match="casts the inputs of matrix products, but runs no product"):
        judged(b)


def test_two_kernels_of_one_class_share_and_hide_nothing() -> None:
    b = steps(TraceBuilder(), 1)
    b.kernel("mm1", 10, 40, **GEMM)
    b.kernel("mm2", 20, 30, stream=1, family="conv_fprop", placement="cuda_core", precision="fp32")
    found = judged(b)
    matmul = found.main.slices[0]
    assert (matmul.category, matmul.ns_per_step, matmul.hidden_ns_per_step) == ("matmul", 30, 0)
    assert [(s.placement, s.precision, s.ns_per_step) for s in matmul.by] == [
        ("tensor_core", "fp16", 25), ("cuda_core", "fp32", 5),
    ]  # fmt: skip


def test_a_kernel_across_the_end_of_a_call_is_of_the_step_that_launched_it_and_counts_once() -> None:
    b = steps(TraceBuilder(), 2)
    b.kernel("long", 90, 130, stream=1, family="reduce", launch=(70, 72))
    found = judged(b)
    assert found.window_ns == (150 + 50) / 2  # the first step ends with its last kernel, at 130
    by_role = {s.category: s.ns_per_step for s in found.main.slices}
    assert by_role["reduce"] == pytest.approx((10 + 5 + 20) / 2)  # 100-110 is shared with `first`
    assert next(c for c in found.main.cells if c.kernel == "long").calls_per_step == 0.5


def test_what_is_launched_between_two_steps_is_in_no_share() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.marker(-1, 1000 * n, 1000 * n + 400, family="function")
        b.kernel("mm", 1000 * n + 100, 1000 * n + 300, launch=(1000 * n + 50, 1000 * n + 60), **GEMM)
        b.kernel("of a callback", 1000 * n + 600, 1000 * n + 700, launch=(1000 * n + 590, 1000 * n + 595),
                 family="gemm", placement="cuda_core", precision="fp32")  # fmt: skip
    found = judged(b)
    assert (found.step_ns, found.function_ns, found.between_ns) == (1000, 400, 600)
    share = tensor_core_share(found.main.cells, on_host=False)
    assert (share.ratio, share.matmul_ns_per_step, share.fallback_ns_per_step) == (1.0, 200, 0)
    assert {s.category: s.ns_per_step for s in found.main.slices}["idle_between_steps"] == 600
    assert found.device_ns == 200
    assert found.between is not None
    assert [(part.name, part.host_ns, part.device_ns) for part in found.between] == [
        ("other work of the host (Python)", 595, 0), ("launch", 5, 100),
    ]  # fmt: skip


def test_of_one_step_nothing_tells_the_time_to_the_next() -> None:
    b = TraceBuilder()
    b.marker(-1, 0, 400, family="function")
    b.kernel("mm", 100, 450, launch=(50, 60), **GEMM)
    b.kernel("of a callback", 900, 910, launch=(890, 895))
    found = judged(b)
    assert (found.step_ns, found.function_ns, found.between_ns) == (450, 450, None)
    assert "idle_between_steps" not in {s.category for s in found.main.slices}
    assert "the time between them is not known" in found.absent["idle_between_steps_ns"]
    assert found.between is not None
    assert [part.device_ns for part in found.between] == [0, 10]


def test_a_validation_after_a_lone_step_lies_outside_of_it_by_its_name() -> None:
    b = TraceBuilder()
    for at, function, op in ((0, 823, "gradient_tape/dense/MatMul"), (1000, 978, "dense/MatMul")):
        b.marker(-1, at, at + 400, family="function")
        name = f"EagerLocalExecute: __inference_one_step_on_iterator_{function}"
        b.event(HostKind.EXECUTOR, at + 10, at + 390, name=name)
        b.kernel("mm", at + 100, at + 300, launch=(at + 50, at + 60), op=op, **GEMM)
    found = judged(b)
    assert (found.step_ns, found.function_ns, found.between_ns) == (400, 400, None)
    assert found.between is not None
    assert ("validation", 380, 200) in [(part.name, part.host_ns, part.device_ns) for part in found.between]


def test_our_own_copies_are_profiling() -> None:
    b = steps(TraceBuilder(), 1)
    b.kernel("mpprof_copy", 20, 30, family="mpprof")
    assert {s.category: s.ns_per_step for s in judged(b).main.slices}["profiling"] == 10


# --- idle --------------------------------------------------------------------------------------------------


def idle_case(**more: Any) -> tuple[TraceBuilder, dict[str, Any]]:
    """One step of 1000 ns: work to 100, then nothing until a kernel at 900 that is launched at 880-890."""
    b = TraceBuilder()
    b.marker(1, 0, 1000)
    b.kernel("first", 0, 100, launch=(0, 0))
    b.kernel("second", 900, 1000, launch=(880, 890), **more)
    return b, more


def idle(b: TraceBuilder) -> dict[str, float]:
    return {s.category: s.ns_per_step for s in judged(b).main.slices if s.category.startswith("idle")}


def causes(b: TraceBuilder) -> dict[tuple[str, str | None], float]:
    """Idle time by class and cause."""
    cells = [cell for cell in judged(b).main.cells if cell.category.startswith("idle")]
    return {(cell.category, cell.cause): cell.ns_per_step for cell in cells}


@pytest.mark.parametrize(
    ("name", "launching"),
    [
        ("jit_f:XLA GPU module", True),
        ("PjRtStreamExecutorLoadedExecutable::EnqueueExecution", True),
        ("g", False),
    ],
)
def test_a_program_that_xla_enqueues_for_long_is_being_launched(name: str, launching: bool) -> None:
    """Seen on 8 MI300X: 65 % of an inference idled "for a cause not in the trace", all of it in this call."""
    b = TraceBuilder()
    b.marker(1, 0, 3000 * US)
    b.kernel("first", 0, 100 * US, launch=(0, 0))
    b.kernel("second", 2900 * US, 3000 * US, launch=(2880 * US, 2890 * US))
    b.event(HostKind.EXECUTOR, 200 * US, 2890 * US, name=name)
    found = idle(b)
    assert found["idle_launch"] == pytest.approx((2800 if launching else 20) * US, rel=0.1)
    assert found.get("idle_other", 0.0) == pytest.approx((0 if launching else 2780) * US, rel=0.1)


def test_idle_time_goes_to_what_the_launching_thread_did() -> None:
    b, _ = idle_case()
    b.event(HostKind.INPUT, 150, 350)
    b.event(HostKind.SYNC, 90, 130)
    b.event(HostKind.COMPILE, 400, 500)
    b.event(HostKind.EXECUTOR, 390, 880)
    assert idle(b) == {
        "idle_sync": 30,
        "idle_input": 200,
        "idle_compile": 100,
        "idle_launch": 20 + 40 + 390 + 10 + 10,  # the executor, the launch, its way to the device
    }


def test_the_host_is_asked_only_while_the_device_idles() -> None:
    """However much it did while the device worked: by far most events are left out early."""
    b, _ = idle_case()
    b.event(HostKind.COMPILE, 95, 120)
    b.event(HostKind.SYNC, 700, 800)
    for start in (*range(90), *range(910, 990)):
        b.event(HostKind.INPUT, start, start + 1)
    assert idle(b) == {"idle_compile": 20, "idle_sync": 100, "idle_launch": 580 + 90 + 10}


def test_a_thread_that_did_nothing_leaves_it_to_what_holds_any_launch_up() -> None:
    b, _ = idle_case(thread="worker")
    b.event(HostKind.INPUT, 200, 300, thread="get_next")
    b.event(HostKind.EXECUTOR, 700, 900, thread="worker")
    assert idle(b) == {"idle_input": 100, "idle_launch": 700}


def test_a_kernel_that_was_launched_long_ago_did_not_wait_for_the_host() -> None:
    b = TraceBuilder()
    b.marker(1, 0, 1000)
    b.kernel("a", 0, 400, launch=(0, 0))
    b.kernel("b", 450, 1000, launch=(10, 15))
    b.event(HostKind.SYNC, 0, 940)
    assert causes(b) == {("idle_other", "gaps in the queue"): 50}


def test_kernels_of_a_graph_wait_for_nothing_on_the_host_but_its_launch() -> None:
    b = TraceBuilder()
    b.marker(1, 0, 1000)
    b.kernel("a", 20, 400, launch=(0, 10), graph=1)
    b.kernel("b", 450, 900, launch=(0, 10), graph=1)
    b.event(HostKind.EXECUTOR, 300, 500)
    b.event(HostKind.INPUT, 910, 960)
    found = causes(b)
    assert found["idle_other", "gaps in the queue"] == 50
    assert found["idle_input", None] == 50


def test_without_host_events_idle_time_is_of_no_known_cause() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.kernel("a", n * 100, n * 100 + 60, launch=None, group=n)
    assert causes(b) == {("idle_other", None): 40}


def test_without_a_link_to_its_launch_only_what_blocks_any_launch_is_told() -> None:
    b = TraceBuilder()
    for n in range(2):
        b.marker(n, n * 100, n * 100 + 100)
        b.kernel("a", n * 100 + 10, n * 100 + 60, launch=None)
    b.event(HostKind.SYNC, 0, 75)
    b.event(HostKind.INPUT, 80, 100)
    found = idle(b)
    assert found["idle_input"] == 10  # of the first of two steps
    assert found["idle_other"] > 0


# --- launching, or not --------------------------------------------------------------------------------------

US, FRONT = 1_000, 900_000


def a_call(length_us: int, *, family: str = "function") -> TraceBuilder:
    """A call of the training function on the thread "python", its executor running after 100 µs."""
    b = TraceBuilder()
    b.marker(-1, 0, length_us * US, family=family, thread="python")
    b.event(HostKind.EXECUTOR, 100 * US, length_us * US, thread="executor", name="ExecutorState::Process")
    return b


def test_the_front_and_the_end_of_a_call_are_told_from_the_time_between_launches() -> None:
    b = a_call(1000)
    b.event(HostKind.EXECUTOR, 40 * US, 1000 * US, thread="python", name="EagerExecute")
    b.kernel("a", 150 * US, 300 * US, launch=(145 * US, 149 * US), thread="executor")
    b.kernel("b", 400 * US, 800 * US, launch=(390 * US, 395 * US), thread="executor")
    assert causes(b) == {
        ("idle_launch", "calling the function"): 100 * US,
        ("idle_launch", "between launches"): 150 * US,
        ("idle_launch", "leaving the function"): 200 * US,
    }


def test_blocking_first_driver_calls_are_neither_launching_nor_input_nor_copies() -> None:
    """Three threads call the driver at once, and no call returns for milliseconds; the iterator took 7.7 ms."""
    b = a_call(40_000)
    b.event(HostKind.INPUT, 200 * US, 7_900 * US, thread="get_next", name="IteratorGetNextOp::DoCompute")
    b.copy(20_000 * US, 20_031 * US, launch=(8_000 * US, 25_000 * US), thread="executor")
    b.kernel("adam", 8_100 * US, 8_103 * US, launch=(8_000 * US, 18_000 * US), thread="another executor")
    b.kernel("conv", 25_100 * US, 39_900 * US, launch=(25_050 * US, 25_090 * US), thread="executor")
    found = causes(b)
    assert found["idle_input", None] == 7_700 * US
    assert found["idle_other", "blocked driver calls"] == (100 + 11_897 + 4_969) * US
    assert found["idle_launch", "between launches"] == 200 * US + 100 * US  # before `adam`, before `conv`
    note = next(note for note in judged(b).notes if "did not return" in note)
    assert "2 calls of 10.0 ms to 17.0 ms" in note


def test_a_copy_that_blocks_as_long_as_it_runs_is_a_copy() -> None:
    b = a_call(20_000)
    b.copy(250 * US, 9_900 * US, launch=(200 * US, 10_000 * US), thread="executor")
    b.kernel("conv", 10_010 * US, 19_990 * US, launch=(10_000 * US, 10_005 * US), thread="executor")
    assert ("idle_other", "blocked driver calls") not in causes(b)


def test_a_stretch_longer_than_launching_that_no_event_explains_is_not_called_launching() -> None:
    b = a_call(10_000)
    b.kernel("a", 150 * US, 300 * US, launch=(145 * US, 149 * US), thread="executor")
    b.kernel("b", 5_300 * US, 9_990 * US, launch=(5_290 * US, 5_295 * US), thread="executor")
    found = causes(b)
    assert found["idle_other", None] == 4_990 * US
    assert found["idle_launch", "between launches"] == 50 * US + 10 * US


def test_a_thread_that_only_copies_from_the_host_waited_for_data_not_for_launches() -> None:
    """As the thread of an input pipeline does while the executor of the step has nothing to run."""
    b = a_call(10_000)
    b.kernel("a", 150 * US, 300 * US, launch=(145 * US, 149 * US), thread="executor")
    b.copy(
        1_150 * US, 1_170 * US, launch=(1_140 * US, 1_147 * US), thread="input", way=CopyKind.HOST_TO_DEVICE
    )
    b.copy(
        1_770 * US,
        1_790 * US,
        launch=(1_760 * US, 1_767 * US),
        thread="executor",
        way=CopyKind.HOST_TO_DEVICE,
    )
    b.kernel("b", 1_800 * US, 9_990 * US, launch=(1_795 * US, 1_799 * US), thread="executor")
    found = causes(b)
    assert found["idle_other", None] == (1_140 - 300) * US
    launches = (1_150 - 1_140) + (1_770 - 1_170) + 10  # the call of the copy, and of a thread with other work
    assert found["idle_launch", "between launches"] == (50 + launches) * US


def test_an_op_on_the_cpu_is_no_launching() -> None:
    b = a_call(10_000)
    b.kernel("a", 150 * US, 300 * US, launch=(145 * US, 149 * US), thread="executor", op="x/MatMul")
    b.event(HostKind.OP, 310 * US, 4_310 * US, thread="executor", name="where", op="x/Where")
    b.kernel("b", 4_400 * US, 9_990 * US, launch=(4_390 * US, 4_395 * US), thread="executor", op="x/Add")
    b.event(HostKind.OP, 4_320 * US, 4_398 * US, thread="executor", name="add", op="x/Add")  # it launches
    found = causes(b)
    assert found["idle_other", "ops busy on the host"] == 4_000 * US
    assert found["idle_launch", "between launches"] == 50 * US + 100 * US


# --- clocks ------------------------------------------------------------------------------------------------


def test_waits_for_the_launches_of_the_loss_scale_stand_apart() -> None:
    b = a_call(1000)
    b.kernel("a", 150 * US, 300 * US, launch=(145 * US, 149 * US), thread="executor", op="x/MatMul")
    b.kernel("b", 320 * US, 330 * US, launch=(310 * US, 315 * US), thread="executor", family="loss_scale")
    b.kernel("c", 370 * US, 990 * US, launch=(350 * US, 365 * US), thread="executor", op="x/Add")
    found = causes(b)
    assert found["idle_launch", "between launches of the loss scale"] == 20 * US
    assert found["idle_launch", "between launches"] == 50 * US + 40 * US  # before `a`, before `c`


def test_a_kernel_before_its_launch_shifts_the_host_and_is_said() -> None:
    b, _ = idle_case()
    b.kernel("early", 895, 898, launch=(900, 910), stream=1)  # 5 ns before its launch
    b.event(HostKind.INPUT, 205, 305)
    b.event(HostKind.SYNC, 400, 404)  # shorter than the error: not told apart
    b.event(HostKind.EXECUTOR, 100, 880)
    found = judged(b)
    assert "before their launch" in found.notes[-1]
    by_role = {s.category: s.ns_per_step for s in found.main.slices}
    assert by_role["idle_input"] == 100
    assert "idle_sync" not in by_role


def test_the_shift_moves_the_launch_too() -> None:
    b, _ = idle_case()
    b.kernel("early", 50, 60, launch=(55, 58), stream=1)
    b.event(HostKind.INPUT, 105, 880)
    assert idle(b)["idle_input"] == 775


def test_clocks_that_agree_are_not_shifted() -> None:
    b, _ = idle_case()
    assert judged(b).notes == ()


def test_a_launch_joined_with_the_wrong_kernel_shifts_nothing() -> None:
    b = TraceBuilder()
    at = 0
    for n in range(4):
        b.marker(n, at - 1, at - 1 + 500 * 20)
        for _ in range(500):
            b.kernel("a", at, at + 15)
            at += 20
    b.kernel("odd", 100, 101, stream=1, launch=(50_000_000, 50_000_001), thread="other")
    assert judged(b).notes == ()


# --- what is left out or refused ---------------------------------------------------------------------------


def test_a_cut_step_is_left_out_and_more_than_1_percent_missing_is_refused() -> None:
    b = steps(TraceBuilder(), 3)
    b.marker(4, 280, 380)
    b.event(HostKind.LAUNCH, 290, 292, correlation=9000)
    assert "step 4" in judged(b).notes[0]
    b.event(HostKind.LAUNCH, 50, 52, correlation=9001)
    with pytest.raises(UnableError, match=r"lost 25\.0 % of the kernels"):
        judged(b)


def test_no_whole_step_says_why() -> None:
    b = TraceBuilder()
    b.marker(1, 0, 100)
    b.kernel("a", 110, 120)
    with pytest.raises(UnableError, match="no call of the training function"):
        judged(b)
    with pytest.raises(UnableError, match="no kernel is in the trace"):
        judged(TraceBuilder())


def test_warm_up_and_the_end_of_an_epoch_are_left_out_of_the_window() -> None:
    b = steps(TraceBuilder(), 6)
    run = run_of([900.0, 900.0, *noisy(40)], epoch=[0] * 4 + [1] * 38)
    found = judged(b, run)
    assert found.steps == (3, 5, 6)  # 1 and 2 are warm-up, 4 is the last of its epoch
    assert found.notes == ("3 of 6 whole steps left out: warm-up or the end of an epoch",)


@pytest.mark.parametrize(("pause", "said"), [(0, False), (40, False), (5000, True)])
def test_a_step_that_holds_more_than_a_step_is_left_out_and_that_is_said(pause: int, said: bool) -> None:
    b = TraceBuilder()
    for n in range(8):
        at = 100 * n + (pause if n >= 5 else 0)
        b.marker(n + 1, at, at + 90)
        b.kernel("mm", at + 10, at + 50, **GEMM)
    found = judged(b)
    why = "1 of 8 whole steps left out as stalls: they took up to 5.10 µs, the median 100 ns"
    assert (why in found.notes) == said
    assert len(found.steps) == 8 - said
    assert found.step_ns == (100 if said else pytest.approx(100 + pause / 7, rel=0.1))


@pytest.mark.parametrize("every", [3, 16])
def test_steps_that_wait_for_a_loader_again_and_again_are_no_stalls(every: int) -> None:
    """Seen in a public trace: 12 of 29 steps took 280 to 829 ms, for the loader; 172 ms were said, not 333."""
    b = TraceBuilder()
    until = 0
    for n in range(24):
        at, waited = until + 10, 1000 if n % every == every - 1 else 0
        until = at + 90 + waited
        b.marker(n + 1, at, until)
        b.event(HostKind.INPUT, at + 1, until - 80)
        b.kernel("mm", until - 70, until - 30, **GEMM)
    found = judged(b)
    often = every == 3
    assert len(found.steps) == (24 if often else 23)
    assert any(
        ("too often to be left out" if often else "left out as stalls") in note for note in found.notes
    )
    waiting = sum(cell.ns_per_step for cell in found.main.cells if cell.category == "idle_input")
    assert (waiting > 300) == often


def test_work_at_the_edge_of_the_steps_counts_by_the_share_that_lies_in_them() -> None:
    """A quarter of a copy of 1.2 GB, and of a product, that begin before the step, and a half of those that end
    behind it: their rates are those of the whole."""
    b = TraceBuilder()
    b.marker(1, 1_000, 1_990, family="steps_line", thread=None)  # by time, not by what was launched
    sent = {"kind": WorkKind.MEMCPY, "copy": CopyKind.HOST_TO_DEVICE, "bytes": 1_200_000_000}
    for begin, end in ((910, 1_030), (1_930, 2_050)):
        b.kernel("MemcpyH2D", begin, end, stream=1, **sent)
        b.kernel("mm", begin, end, op="mm", op_type="MatMul", **GEMM)
    (copied,) = [cell for cell in judged(b).main.cells if cell.category == "copy"]
    assert (copied.busy_ns_per_step, copied.bytes_per_step) == (30 + 60, 0.75 * 1.2e9)
    assert (copied.calls_per_step, copied.done_per_step) == (1, 0.75)
    (product,) = [cell for cell in judged(b).main.cells if cell.category == "matmul"]
    assert (product.calls_per_step, product.done_per_step) == (1, 0.75)


def test_a_copy_of_labels_is_no_part_of_the_batch_s() -> None:
    b = TraceBuilder()
    for n in range(4):
        at = 1000 * n
        b.marker(n + 1, at, at + 990)
        for begin, moved in ((at + 10, 50_331_648), (at + 910, 1024)):
            b.kernel(
                "Memcpy HtoD (Pinned -> Device)",
                begin,
                begin + 50,
                kind=WorkKind.MEMCPY,
                copy=CopyKind.HOST_TO_DEVICE,
                bytes=moved,
            )
        b.kernel("mm", at + 100, at + 900, **GEMM)
    copies = [cell for cell in judged(b).main.cells if cell.category == "copy"]
    assert sorted(cell.bytes_per_step or 0.0 for cell in copies) == [1024.0, 50_331_648.0]


@pytest.mark.parametrize(
    ("waits", "pause", "workers", "cause"),
    [(True, 5000, 1, LOADER), (False, 5000, 8, None), (True, 1000, 1, None), (False, 1000, 8, LOADER)],
)
def test_stalls_wait_for_what_a_profiled_one_waited_for(
    waits: bool, pause: int, workers: int, cause: str | None
) -> None:
    """One that is far shorter than the others is no such stall: then how often they come may tell."""
    b = TraceBuilder()
    for n in range(8):
        at = 100 * n + (pause if n > 5 else 0)
        until = at + 90 + (pause if n == 5 else 0)
        b.marker(n + 1, at, until)
        if waits:
            b.event(HostKind.INPUT, at + 1, until - 80)
        b.kernel("mm", until - 70, until - 30, **GEMM)
    facts = c.facts(fit={"input": {"kind": "PyDataset", "workers": workers}})
    values = [1.0, *[(5.1e-3 if row % 8 == 0 else 1e-4) for row in range(240)]]
    took = np.round(np.array(values) * MS).astype(np.int64)
    run = replace(run_of(values, duration_ns=took - 10), facts=facts)
    found = judged(b, run)
    (stalls,) = [cell for cell in found.main.cells if cell.category == "idle_stall" and cell.ns_per_step > 1]
    assert (found.stalled is not None) == (pause == 5000)
    assert stalls.cause == cause
    assert stalls.ns_per_step == pytest.approx(625, rel=0.1)


# --- against the records -----------------------------------------------------------------------------------


def test_profiling_is_wall_minus_window_and_the_slices_sum_to_the_wall() -> None:
    run = run_of([1.0, *[100 / MS] * 40])
    b = steps(TraceBuilder(), 3, length=120)
    found = judged(b, run)
    assert (found.basis, found.wall_ns, found.step_ns, found.window_ns) == ("wall", 100, 100, 120)
    assert found.main.slices[-1].category == "profiling"
    assert found.main.slices[-1].ns_per_step == -20


def test_calls_of_several_steps_count_as_many() -> None:
    run = run_of([400.0] * 20, covers=[4] * 20, step=np.arange(1, 21) * 4)
    b = TraceBuilder()
    for n in range(4):
        b.marker((n + 5) * 4, n * 400 - 20, n * 400 + 380)
        for k in range(4):
            b.kernel("a", n * 400 + k * 100, n * 400 + k * 100 + 60, launch=(n * 400 - 10, n * 400 - 9))
    found = judged(b, run)
    assert found.window_ns == 100
    assert found.device_ns == 60
    assert found.main.steps == 16


# --- several devices, and none -----------------------------------------------------------------------------


def test_the_main_device_is_the_one_that_is_longest_busy() -> None:
    b = TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1", "/device:GPU:2"))
    for n in range(3):
        b.marker(n, n * 100 - 20, n * 100 + 80)
        b.kernel("a", n * 100, n * 100 + 30, device=0)
        b.kernel("a", n * 100, n * 100 + 60, device=1, stream=1)
    found = judged(b, run_of([1.0, *[130 / MS] * 40]))
    assert [d.device for d in found.devices] == ["/device:GPU:1", "/device:GPU:0"]
    assert found.main is found.devices[0]
    assert found.step_ns == 130
    assert found.devices[1].step_ns == 100
    assert "profiling" not in {s.category for s in found.devices[1].slices}


def test_one_reason_why_several_devices_have_no_step_is_said_once() -> None:
    b = two()
    trace = b.build()
    with pytest.raises(UnableError, match="no whole step") as refused:
        account(trace, b.placements(), b.ownership(), None)
    assert str(refused.value).count("no whole step") == 1  # one reason of two devices is said once


def test_a_device_without_a_whole_step_is_named_and_the_others_are_accounted_for() -> None:
    b = steps(TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1")), 2)
    b.kernel("lone", 310, 320, device=1, stream=9)
    found = judged(b)
    assert len(found.devices) == 1
    assert found.notes[-1].startswith("/device:GPU:1: no whole step")


def test_a_host_trace_shares_between_threads() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in (0, 100):
        b.marker(n // 100, n, n + 100)
        b.kernel("MatMul", n + 20, n + 60, family="gemm", placement="cuda_core", launch=None)
        b.kernel("MatMul2", n + 40, n + 60, stream=1, family="gemm", placement="cuda_core", launch=None)
        b.event(HostKind.INPUT, n + 5, n + 15)
        b.event(HostKind.EXECUTOR, n + 15, n + 70)
    found = judged(b)
    assert found.trace_basis == "host"
    by_role = {s.category: s.ns_per_step for s in found.main.slices}
    assert by_role == {"matmul": 40, "idle_input": 10, "idle_launch": 5 + 5 + 40}
    share = tensor_core_share(found.main.cells, on_host=True)
    assert share.ratio is None
    assert share.reason is not None
    assert "CPU" in share.reason


# --- roles -------------------------------------------------------------------------------------------------


def verdict(family: Family, placement: Placement = "not_matmul") -> Verdict:
    return Verdict(placement, "fp32", family, Reason("", ""))


def test_every_family_has_a_role_in_every_phase() -> None:
    for family in FAMILIES:
        for phase in PHASES:
            assert category_of(verdict(family), phase) in CLASSES


def test_roles_by_family_and_phase() -> None:
    assert category_of(verdict("attention", "tensor_core"), "forward") == "matmul"
    assert category_of(verdict("gemm", "cuda_core"), "optimizer") == "matmul"
    assert category_of(verdict("elementwise"), "optimizer") == "optimizer"
    assert category_of(verdict("reduce"), "loss_scale") == "loss_scale"
    assert category_of(verdict("copy"), "optimizer") == "copy"
    assert category_of(verdict("comm"), "backward") == "comm"
    assert category_of(verdict("softmax"), "forward") == "elementwise"
    assert category_of(UNKNOWN, "forward") == "unknown"
    assert category_of(UNKNOWN, "optimizer") == "optimizer"
    assert category_of(verdict("fusion", "unknown"), "forward") == "unknown"


# --- Tensor Cores ------------------------------------------------------------------------------------------


def matmuls(*parts: tuple[int, Placement, str]) -> tuple[Cell, ...]:
    b = steps(TraceBuilder(), 1, 1000)
    at = 10
    for length, placement, precision in parts:
        b.kernel(f"mm{at}", at, at + length, family="gemm", placement=placement, precision=precision)  # type: ignore[arg-type]
        at += length
    return judged(b).main.cells


def test_the_share_of_matrix_time_with_its_precision() -> None:
    share = tensor_core_share(
        matmuls(
            (300, "tensor_core", "fp16"),
            (60, "matrix_core", "tf32"),
            (40, "cuda_core", "fp32"),
            (50, "not_matmul", "fp32"),
        )
    )
    assert share.ratio == pytest.approx(0.9)  # the helper of 50 ns is no matrix time
    assert share.by_precision == {"fp16": 300, "tf32": 60}
    assert (share.fallback_ns_per_step, share.matmul_ns_per_step) == (40, 450)
    assert (share.reason, share.unknown_ratio) == (None, 0)


def test_unknown_is_never_shown_as_zero() -> None:
    none = tensor_core_share(judged(steps(TraceBuilder(), 1)).main.cells)
    assert none.ratio is None
    assert none.reason == "no matrix work was seen in the window"
    mostly = tensor_core_share(matmuls((100, "tensor_core", "fp16"), (300, "unknown", "unknown")))
    assert mostly.ratio is None
    assert mostly.reason is not None
    assert "75.0 %" in mostly.reason
    assert mostly.unknown_ratio == pytest.approx(300 / 410)
    partly = tensor_core_share(matmuls((100, "tensor_core", "fp16"), (50, "unknown", "unknown")))
    assert partly.ratio == 1
    assert partly.unknown_ratio == pytest.approx(50 / 160)


# --- whatever the timeline ---------------------------------------------------------------------------------

FAMILY_OF = ("gemm", "norm", "elementwise", "other", "comm", "copy")
KERNELS = st.lists(
    st.tuples(
        st.integers(-20, 330),
        st.integers(0, 60),
        st.integers(0, 3),
        st.sampled_from(FAMILY_OF),
        st.integers(0, 30),
    ),
    max_size=15,
)
EVENTS = st.lists(
    st.tuples(
        st.integers(-20, 330), st.integers(0, 80), st.sampled_from(list(HostKind)), st.sampled_from("mw")
    ),
    max_size=10,
)


@settings(max_examples=200)
@given(KERNELS, EVENTS, st.booleans())
def test_any_timeline_closes_and_agrees_with_an_oracle(kernels: Any, events: Any, with_records: bool) -> None:
    b = steps(TraceBuilder(), 3)
    for at, (start, length, stream, family, lead) in enumerate(kernels):
        placement = "tensor_core" if family == "gemm" else "unknown" if family == "other" else "not_matmul"
        b.kernel(
            f"k{at % 4}", start, start + length, stream=stream, family=family, placement=placement,
            launch=(start - lead, start - lead + 3), thread="mw"[at % 2], op=f"op{at % 3}",
        )  # fmt: skip
    for start, length, kind, thread in events:
        b.event(kind, start, start + length, thread=thread)
    run = run_of([1.0, *[90 / MS] * 40]) if with_records else None
    found = judged(b, run)
    assert found.step_ns == pytest.approx(90 if with_records else found.window_ns, rel=1e-9)
    expected = oracle(b, found)
    for part in found.main.slices:
        if not part.category.startswith("idle") and part.category != "profiling":
            assert part.ns_per_step == pytest.approx(expected.pop(part.category, 0.0), abs=1e-6)
    assert expected.pop("idle") == pytest.approx(
        sum(s.ns_per_step for s in found.main.slices if s.category.startswith("idle")), abs=1e-6
    )
    assert all(ns == pytest.approx(0, abs=1e-9) for ns in expected.values())


def oracle(b: TraceBuilder, found: Account) -> dict[str, float]:
    """Nanosecond by nanosecond over the steps that were accounted for (`steps` puts them at 100 each)."""
    trace, placements = b.build(), b.placements()
    ranks = {"matmul": 0, "unknown": 2, "comm": 3, "copy": 4}
    rows = []
    work = periods(trace, 0).work
    for row in work.row.tolist():  # what no call launched is of no step
        start = int(trace.kernels.start_ns[row])
        category = category_of(placements.verdicts[placements.index[row]], "other")
        rows.append((start, start + int(trace.kernels.duration_ns[row]), category))
    total: dict[str, float] = {"idle": 0.0}
    instants = [t for start, end in _periods(b, found) for t in range(start, end)]
    for t in instants:
        active = [(ranks.get(category, 1), category) for start, end, category in rows if start <= t < end]
        best = [category for rank, category in active if rank == min(active)[0]]
        for category in best:
            total[category] = total.get(category, 0.0) + 1 / len(best) / found.main.steps
        if not best:
            total["idle"] += 1 / found.main.steps
    return total


def _periods(b: TraceBuilder, found: Account) -> list[tuple[int, int]]:
    whole = periods(b.build(), 0)
    rows = np.isin(whole.number, found.steps)
    return list(zip(whole.start_ns[rows].tolist(), whole.end_ns[rows].tolist(), strict=True))
