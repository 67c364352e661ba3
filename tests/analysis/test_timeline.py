"""Whole device steps on timelines put together by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mpprof.analysis.timeline import Periods, periods
from mpprof.model.trace import HostKind
from tests.builders.trace import TraceBuilder


def edges(found: Periods) -> list[tuple[int, int, int]]:
    return list(zip(found.number.tolist(), found.start_ns.tolist(), found.end_ns.tolist(), strict=True))


def three_steps(family: str = "mpprof") -> TraceBuilder:
    """Markers every 100 ns; the device runs 250 ns behind."""
    b = TraceBuilder()
    for n in range(3):
        b.marker(n + 7, 100 * n, 100 * n + 100, family=family)
        b.kernel("a", 100 * n + 260, 100 * n + 290, launch=(100 * n + 10, 100 * n + 12))
        b.kernel("b", 100 * n + 300, 100 * n + 340, launch=(100 * n + 50, 100 * n + 52))
    return b


def test_n_markers_give_n_minus_1_periods_joined_through_launches() -> None:
    found = periods(three_steps().build(), 0)
    assert edges(found) == [(7, 260, 360), (8, 360, 460)]
    assert (found.source, found.notes, found.missing_ratio) == ("mpprof", (), 0.0)


def test_our_marker_is_believed_before_that_of_keras_and_the_outermost_of_nested_ones() -> None:
    b = three_steps()
    for n in range(3):
        b.marker(n, 100 * n + 40, 100 * n + 60, family="keras")
        b.marker(99, 100 * n + 5, 100 * n + 20)
    assert edges(periods(b.build(), 0)) == [(7, 260, 360), (8, 360, 460)]


def test_without_launch_links_kernels_are_joined_by_time_and_that_is_said() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("a", 100 * n + 20, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert edges(found) == [(0, 20, 120), (1, 120, 220)]
    assert "no kernel names its launch" in found.notes[0]


def test_a_step_with_launches_but_no_kernels_is_cut() -> None:
    b = three_steps()
    b.marker(10, 300, 400)
    b.event(HostKind.LAUNCH, 310, 312, correlation=900)
    found = periods(b.build(), 0)
    assert edges(found) == [(7, 260, 360), (8, 360, 460)]
    assert found.notes == ("cut by the collector (launches but no kernels) and left out: step 10",)
    assert found.missing_ratio == 0


def test_a_step_cut_in_the_middle_takes_the_one_before_it_along() -> None:
    b = TraceBuilder()
    for n in range(5):
        b.marker(n, 100 * n, 100 * n + 100)
        if n == 2:
            b.event(HostKind.LAUNCH, 210, 212, correlation=900)
        else:
            b.kernel("a", 100 * n + 20, 100 * n + 70, launch=(100 * n + 5, 100 * n + 6))
    assert edges(periods(b.build(), 0)) == [(0, 20, 120), (3, 320, 420)]


def test_steps_that_launches_of_the_wrong_kernel_mix_up_do_not_overlap() -> None:
    b = TraceBuilder()
    for n, start in enumerate((270, 1260, 260, 3260, 4260)):
        b.marker(n, 1000 * n, 1000 * n + 1000)
        b.kernel("a", start, start + 30, launch=(1000 * n + 10, 1000 * n + 12))
    assert edges(periods(b.build(), 0)) == [(0, 270, 1260), (3, 3260, 4260)]


def test_launches_without_a_kernel_are_counted() -> None:
    b = three_steps()
    b.event(HostKind.LAUNCH, 60, 62, correlation=900)
    found = periods(b.build(), 0)
    assert found.missing_ratio == pytest.approx(1 / 5)
    assert "1 of 5 launches" in found.notes[0]


def test_a_driver_call_within_a_runtime_call_is_no_lost_kernel() -> None:
    b = three_steps()
    b.event(HostKind.LAUNCH, 10, 11, correlation=1)  # the same correlation as the first kernel's launch
    assert periods(b.build(), 0).missing_ratio == 0


def test_one_marker_is_no_whole_step_and_says_so() -> None:
    b = TraceBuilder()
    b.marker(1, 0, 100)
    b.kernel("a", 10, 20)
    found = periods(b.build(), 0)
    assert len(found) == 0
    assert "1 step marker (mpprof)" in found.notes[0]


def test_no_kernel_on_the_device_says_so() -> None:
    found = periods(TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1")).build(), 1)
    assert len(found) == 0
    assert found.notes == ("no kernel ran on this device",)


def test_markers_that_do_not_follow_one_another_give_no_period() -> None:
    b = TraceBuilder()
    for at, number in enumerate((10, 11, 14, 15, 0, 1)):  # steps 12 and 13 are not there; then a new epoch
        b.marker(number, 100 * at, 100 * at + 100, family="keras")
        b.kernel("a", 100 * at + 20, 100 * at + 70)
    assert edges(periods(b.build(), 0)) == [(10, 20, 120), (14, 220, 320), (0, 420, 520)]


def test_calls_of_several_steps_follow_by_their_stride() -> None:
    b = TraceBuilder()
    for at, number in enumerate((16, 24, 32, 40)):
        b.marker(number, 100 * at, 100 * at + 100)
        b.kernel("a", 100 * at + 20, 100 * at + 70)
    assert periods(b.build(), 0).number.tolist() == [16, 24, 32]


def test_each_device_has_periods_of_its_own() -> None:
    b = TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1"))
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("a", 100 * n + 20, 100 * n + 70, device=0)
        b.kernel("a", 100 * n + 30, 100 * n + 90, device=1, stream=1)
    trace = b.build()
    assert edges(periods(trace, 0)) == [(0, 20, 120), (1, 120, 220)]
    assert edges(periods(trace, 1)) == [(0, 30, 130), (1, 130, 230)]


def test_a_host_trace_takes_the_markers_times() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 90)
        b.kernel("MatMul", 100 * n + 20, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert edges(found) == [(0, 0, 100), (1, 100, 200)]


def test_ops_under_somebody_elses_markers_are_not_late() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(5):
        b.marker(n, 100 * n, 100 * n + 100, family="keras")
        if n in (1, 2, 3):
            b.marker(n + 20, 100 * n + 2, 100 * n + 99)
        b.kernel("MatMul", 100 * n + 20, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert (found.source, edges(found)) == ("mpprof", [(21, 102, 202), (22, 202, 302)])
    assert found.marker_ns is not None
    assert found.marker_ns.tolist() == [102, 202]


def test_a_step_begins_on_the_busiest_stream() -> None:
    """A collective's stream is idle and runs what is launched at once, long before the device is that far."""
    b = TraceBuilder()
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("nccl", 100 * n + 4, 100 * n + 9, launch=(100 * n + 2, 100 * n + 3), stream=1)
        for at in range(3):
            b.kernel("gemm", 100 * n + 260 + 30 * at, 100 * n + 280 + 30 * at,
                     launch=(100 * n + 10 + at, 100 * n + 11 + at))  # fmt: skip
    assert edges(periods(b.build(), 0)) == [(0, 260, 360), (1, 360, 460)]


def test_a_host_that_runs_ahead_of_its_ops_takes_the_op_that_begins_the_program() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(4):
        b.marker(n + 1, 10 * n, 10 * n + 10)  # only dispatch
        b.kernel("convert", 100 * n + 25, 100 * n + 30, launch=None)
        for at in range(3):
            b.kernel("dot", 100 * n + 30 + 10 * at, 100 * n + 40 + 10 * at, launch=None)
        b.kernel("add", 100 * n + 60, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert edges(found) == [(1, 25, 125), (2, 125, 225), (3, 225, 325)]
    assert "runs ahead" in found.notes[0]


def test_ops_of_a_host_that_a_call_started_belong_to_the_marker_of_the_call() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(4):
        b.marker(n + 1, 10 * n, 10 * n + 10)
        # Two of the ops of each program: no op runs once per step, so only the calls tell the steps apart.
        for at in range(2):
            b.kernel("dot", 100 * n + 30 + 10 * at, 100 * n + 40 + 10 * at, launch=(10 * n + 2, 10 * n + 9))
        b.kernel("host op", 100 * n + 90, 100 * n + 95, launch=None)
    found = periods(b.build(), 0)
    assert edges(found) == [(1, 30, 130), (2, 130, 230), (3, 230, 330)]
    assert not found.notes


def lagging(count: int = 4, per_step: int = 1) -> TraceBuilder:
    """A thread of its own launches each step's kernels long after the marker has passed."""
    b = TraceBuilder()
    for n in range(count):
        b.marker(n + 1, 20 * n, 20 * n + 20)
        begin = 20 + 130 * n
        for at in range(per_step):
            launch = (begin + at, begin + at + 1)
            b.kernel("begin", begin + 10 + at, begin + 11 + at, launch=launch, thread="launcher")
        for at in range(20):
            launch = (begin + 20 + at, begin + 21 + at)
            b.kernel("gemm", begin + 30 + at, begin + 31 + at, launch=launch, thread="launcher")
    return b


def test_launches_that_lag_behind_the_markers_are_anchored_at_the_kernel_that_begins_the_program() -> None:
    found = periods(lagging().build(), 0)
    assert edges(found) == [(1, 30, 160), (2, 160, 290), (3, 290, 420)]
    assert "begins with the program's first" in found.notes[0]


def test_lagging_launches_without_a_kernel_that_runs_once_per_step_are_said_to_be_unsure() -> None:
    found = periods(lagging(per_step=3).build(), 0)
    assert any("not sure" in note for note in found.notes)


def test_a_thread_of_its_own_that_keeps_up_is_joined_through_launches() -> None:
    b = three_steps()
    late = TraceBuilder()
    for n in range(3):
        late.marker(n + 7, 100 * n, 100 * n + 100)
        for name, at in (("a", 10), ("b", 50)):
            start = 100 * n + 250 + at
            launch = (100 * n + at, 100 * n + at + 2)
            late.kernel(name, start, start + 30, launch=launch, thread="launcher")
    assert edges(periods(late.build(), 0)) == edges(periods(b.build(), 0))


def test_groups_of_the_file_without_markers() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.kernel("a", 100 * n + 20, 100 * n + 40, group=n + 5, launch=None)
        b.kernel("b", 100 * n + 50, 100 * n + 80, group=n + 5, launch=None)
    found = periods(b.build(), 0)
    assert found.source == "group"
    assert edges(found) == [(-1, 20, 120), (-1, 120, 220)]


def test_steps_line_without_markers() -> None:
    b = TraceBuilder()
    b.kernel("a", 20, 40)
    b.marker(0, 10, 90, family="steps_line", thread=None)
    lone = periods(b.build(), 0)
    assert (lone.source, edges(lone)) == ("steps_line", [(0, 10, 90)])
    assert "taken as it stands" in lone.notes[0]
    b.marker(1, 110, 190, family="steps_line", thread=None)
    assert edges(periods(b.build(), 0)) == [(0, 10, 110)]


def repeated(times: int, names: str, pause_after: int = 4) -> TraceBuilder:
    b, now = TraceBuilder(), 0
    for _ in range(times):
        for at, name in enumerate(names):
            b.kernel(name, now, now + 10, launch=None)
            now += 10 + (50 if at == pause_after else 1)
    return b


def test_without_any_marker_the_kernel_sequence_tells_steps_apart() -> None:
    b = repeated(6, "abcabxyz")  # the pause comes after the fifth: steps begin with x
    found = periods(b.build(), 0)
    assert found.source == "period"
    assert np.diff(found.start_ns).tolist() == [137] * 4
    assert found.start_ns[0] == 104
    assert found.number.tolist() == [-1] * len(found)
    assert "8 kernels" in found.notes[0]


def test_a_sequence_that_does_not_repeat_gives_no_step() -> None:
    found = periods(repeated(1, "abcdefgh").build(), 0)
    assert len(found) == 0
    assert "does not repeat" in found.notes[0]
