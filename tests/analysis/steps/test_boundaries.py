"""Whole steps of a device on timelines put together by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from mpprof.analysis.steps.boundaries import Periods, periods
from mpprof.model.trace import CopyKind, HostKind, Trace
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.launches import join_launches
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


MS = 1_000_000


def test_a_step_is_the_training_functions_work() -> None:
    """DESIGN.md's example: the call returns at 14.0 ms, its last kernel ends at 15.1 ms, and a callback's kernel
    runs seconds later, where the collector's own marker ends."""
    b = TraceBuilder()
    b.marker(-1, 0, 14 * MS, family="function", thread="python")
    b.marker(-1, 1 * MS, 13 * MS, family="function", thread="python")  # the executor's event within the call
    b.kernel("gemm", 2 * MS, 9 * MS, launch=(MS, MS + 9), thread="executor")
    b.kernel("adam", 9 * MS, 15_100_000, launch=(8 * MS, 8 * MS + 9), thread="another executor")
    b.kernel("LogicalAnd", 5960 * MS, 5960 * MS + 4000, launch=(5959 * MS, 5959 * MS + 9), thread="python")
    b.marker(0, 2 * MS, 5960 * MS + 4000, family="steps_line", thread=None)
    found = periods(b.build(), 0)
    assert (found.source, edges(found)) == ("function", [(-1, 0, 15_100_000)])
    assert found.pause_ns.tolist() == [-1]  # nothing tells how long it is to the next step
    assert found.work.row.tolist() == [0, 1]


def test_steps_that_overlap_on_the_device_share_no_time() -> None:
    """The host runs ahead: each step begins where the kernels of the one before it end."""
    found = periods(three_steps("function").build(), 0)
    assert edges(found) == [(7, 0, 340), (8, 340, 440), (9, 440, 540)]
    assert found.work.step.tolist() == [0, 0, 1, 1, 2, 2]
    assert (found.source, found.notes, found.missing_ratio) == ("function", (), 0.0)


def test_what_lies_between_two_calls_is_of_no_step() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.marker(n + 1, 1000 * n, 1000 * n + 990)
        b.marker(-1, 1000 * n + 10, 1000 * n + 400, family="function")
        b.kernel("gemm", 1000 * n + 100, 1000 * n + 450, launch=(1000 * n + 50, 1000 * n + 60))
        b.kernel("summary", 1000 * n + 700, 1000 * n + 720, launch=(1000 * n + 690, 1000 * n + 695))
    found = periods(b.build(), 0)
    assert edges(found) == [(1, 10, 450), (2, 1010, 1450), (3, 2010, 2450)]  # numbered by our marker
    assert found.pause_ns.tolist() == [560, 560, -1]
    assert found.marker_ns.tolist() == [0, 1000, 2000]
    assert found.numbered == "mpprof"


def test_work_of_a_callback_that_still_runs_is_before_the_step() -> None:
    b = TraceBuilder()
    for n in range(2):
        b.marker(-1, 1000 * n, 1000 * n + 400, family="function")
        b.kernel("gemm", 1000 * n + 150, 1000 * n + 450, launch=(1000 * n + 50, 1000 * n + 60))
    b.kernel("summary", 980, 1100, launch=(690, 695))
    assert edges(periods(b.build(), 0)) == [(-1, 0, 450), (-1, 1100, 1450)]


def test_a_copy_that_was_launched_between_two_calls_is_work_of_the_step_in_which_it_runs() -> None:
    """Seen on an H100: a thread of the input sends the batch between two calls, and one exposed copy of four was
    counted as idle time."""
    b = TraceBuilder()
    for n in range(2):
        b.marker(-1, 1000 * n, 1000 * n + 400, family="function")
        b.kernel("gemm", 1000 * n + 150, 1000 * n + 450, launch=(1000 * n + 50, 1000 * n + 60))
    b.copy(1010, 1110, launch=(500, 510), thread="input", way=CopyKind.HOST_TO_DEVICE)
    b.copy(600, 700, launch=(590, 595), thread="input", way=CopyKind.HOST_TO_DEVICE)
    trace = b.build()
    found = periods(trace, 0)
    assert edges(found) == [(-1, 0, 450), (-1, 1000, 1450)]
    ran = trace.kernels.start_ns[found.work.row].tolist()
    assert list(zip(ran, found.work.step.tolist(), strict=True)) == [(150, 0), (1010, 1), (1150, 1)]


def test_what_was_launched_before_the_window_is_before_its_first_step() -> None:
    b = three_steps("function")
    b.kernel("of an earlier step", 0, 200, launch=None)
    assert edges(periods(b.build(), 0))[0] == (7, 200, 340)


def test_a_fetch_right_before_the_call_is_of_the_step() -> None:
    b = TraceBuilder()
    for n in range(2):
        b.event(HostKind.INPUT, 1000 * n + 20, 1000 * n + 90)
        b.event(HostKind.INPUT, 1000 * n + 30, 1000 * n + 80)
        b.marker(-1, 1000 * n + 100, 1000 * n + 400, family="function")
        b.kernel("gemm", 1000 * n + 150, 1000 * n + 450, launch=(1000 * n + 110, 1000 * n + 120))
    b.event(HostKind.INPUT, 500, 600)  # a validation's
    assert edges(periods(b.build(), 0)) == [(-1, 20, 450), (-1, 1020, 1450)]


def test_the_training_function_is_believed_before_any_marker_and_our_marker_before_others() -> None:
    b = three_steps()
    for n in range(3):
        b.marker(n, 100 * n + 40, 100 * n + 60, family="keras")
        b.marker(99, 100 * n + 5, 100 * n + 20)  # within another of ours
    found = periods(b.build(), 0)
    assert (found.source, edges(found)) == ("mpprof", [(7, 0, 340), (8, 340, 440), (9, 440, 540)])
    for n in range(3):
        b.marker(-1, 100 * n + 1, 100 * n + 90, family="function")
    found = periods(b.build(), 0)
    assert (found.source, edges(found)) == ("function", [(7, 1, 340), (8, 340, 440), (9, 440, 540)])


def test_without_launch_links_kernels_are_joined_by_time_and_that_is_said() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("a", 100 * n + 20, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert edges(found) == [(0, 0, 100), (1, 100, 200), (2, 200, 300)]
    assert "no kernel names its launch" in found.notes[0]


def test_a_step_with_launches_but_no_kernels_is_cut() -> None:
    b = three_steps()
    b.marker(10, 300, 400)
    b.event(HostKind.LAUNCH, 310, 312, correlation=900)
    found = periods(b.build(), 0)
    assert edges(found) == [(7, 0, 340), (8, 340, 440), (9, 440, 540)]
    assert found.notes == ("cut by the collector (launches but no kernels) and left out: step 10",)
    assert found.missing_ratio == 0


def test_a_step_cut_in_the_middle_leaves_the_others() -> None:
    b = TraceBuilder()
    for n in range(5):
        b.marker(n, 100 * n, 100 * n + 100)
        if n == 2:
            b.event(HostKind.LAUNCH, 210, 212, correlation=900)
        else:
            b.kernel("a", 100 * n + 20, 100 * n + 70, launch=(100 * n + 5, 100 * n + 6))
    found = periods(b.build(), 0)
    assert found.number.tolist() == [0, 1, 3, 4]
    assert found.pause_ns.tolist() == [0, -1, 0, -1]


def test_steps_that_launches_of_the_wrong_kernel_mix_up_do_not_overlap() -> None:
    b = TraceBuilder()
    for n, start in enumerate((270, 1260, 260, 3260, 4260)):
        b.marker(n, 1000 * n, 1000 * n + 1000)
        b.kernel("a", start, start + 30, launch=(1000 * n + 10, 1000 * n + 12))
    found = periods(b.build(), 0)
    assert found.number.tolist() == [0, 1, 3, 4]
    assert (found.start_ns[1:] >= found.end_ns[:-1]).all()


def test_launches_without_a_kernel_are_counted() -> None:
    b = three_steps()
    b.event(HostKind.LAUNCH, 60, 62, correlation=900)
    found = periods(b.build(), 0)
    assert found.missing_ratio == pytest.approx(1 / 7)
    assert "1 of 7 launches" in found.notes[0]


def test_a_driver_call_within_a_runtime_call_is_no_lost_kernel() -> None:
    b = three_steps()
    b.event(HostKind.LAUNCH, 10, 11, correlation=1)  # the same correlation as the first kernel's launch
    assert periods(b.build(), 0).missing_ratio == 0


def test_one_marker_is_one_step() -> None:
    b = TraceBuilder()
    b.marker(1, 0, 100)
    b.kernel("a", 10, 20)
    assert edges(periods(b.build(), 0)) == [(1, 0, 100)]


def test_markers_without_work_say_so() -> None:
    b = TraceBuilder()
    b.marker(1, 0, 100)
    b.kernel("a", 210, 220)
    found = periods(b.build(), 0)
    assert len(found) == 0
    assert "no call of the training function (mpprof) launched kernels" in found.notes[0]


def test_no_kernel_on_the_device_says_so() -> None:
    found = periods(TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1")).build(), 1)
    assert len(found) == 0
    assert found.notes == ("the trace holds no kernel of this device",)


def test_between_markers_that_do_not_follow_one_another_nothing_is_known() -> None:
    b = TraceBuilder()
    for at, number in enumerate((10, 11, 14, 15, 0, 1)):  # steps 12 and 13 are not there; then a new epoch
        b.marker(number, 100 * at, 100 * at + 90, family="keras")
        b.kernel("a", 100 * at + 20, 100 * at + 70)
    found = periods(b.build(), 0)
    assert found.number.tolist() == [10, 11, 14, 15, 0, 1]
    assert found.pause_ns.tolist() == [10, -1, 10, -1, 10, -1]


def test_calls_of_several_steps_follow_by_their_stride() -> None:
    b = TraceBuilder()
    for at, number in enumerate((16, 24, 32, 40)):
        b.marker(number, 100 * at, 100 * at + 90)
        b.kernel("a", 100 * at + 20, 100 * at + 70)
    found = periods(b.build(), 0)
    assert found.number.tolist() == [16, 24, 32, 40]
    assert found.pause_ns.tolist() == [10, 10, 10, -1]


def test_each_device_has_periods_of_its_own() -> None:
    b = TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1"))
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("a", 100 * n + 20, 100 * n + 70, device=0)
        b.kernel("a", 100 * n + 30, 100 * n + 110, device=1, stream=1)
    trace = b.build()
    assert edges(periods(trace, 0)) == [(0, 0, 100), (1, 100, 200), (2, 200, 300)]
    assert edges(periods(trace, 1)) == [(0, 0, 110), (1, 110, 210), (2, 210, 310)]


def test_a_host_trace_takes_the_markers_times() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 90)
        b.kernel("MatMul", 100 * n + 20, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert edges(found) == [(0, 0, 90), (1, 100, 190), (2, 200, 290)]


def test_ops_under_somebody_elses_markers_are_not_late() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(5):
        b.marker(n, 100 * n, 100 * n + 100, family="keras")
        if n in (1, 2, 3):
            b.marker(n + 20, 100 * n + 2, 100 * n + 99)
        b.kernel("MatMul", 100 * n + 20, 100 * n + 70, launch=None)
    found = periods(b.build(), 0)
    assert (found.source, edges(found)) == ("mpprof", [(21, 102, 199), (22, 202, 299), (23, 302, 399)])
    assert found.marker_ns.tolist() == [102, 202, 302]


def test_what_a_stream_beside_runs_early_makes_no_step_begin_early() -> None:
    """A collective's stream is idle and runs what is launched at once, long before the device is that far."""
    b = TraceBuilder()
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("nccl", 100 * n + 4, 100 * n + 9, launch=(100 * n + 2, 100 * n + 3), stream=1)
        for at in range(3):
            b.kernel("gemm", 100 * n + 260 + 30 * at, 100 * n + 280 + 30 * at,
                     launch=(100 * n + 10 + at, 100 * n + 11 + at))  # fmt: skip
    assert edges(periods(b.build(), 0)) == [(0, 0, 340), (1, 340, 440), (2, 440, 540)]


def test_a_host_that_runs_ahead_of_its_ops_takes_the_op_that_begins_the_program() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(4):
        b.marker(n + 1, 10 * n, 10 * n + 10)  # only dispatch
        for name, at in (("convert", 25), ("dot", 30), ("dot", 40), ("dot", 50), ("add", 60)):
            start = 100 * n + at
            b.kernel(name, start, start + 10, launch=(start, start + 10), thread="executor")
    found = periods(b.build(), 0)
    assert edges(found) == [(1, 0, 70), (2, 70, 170), (3, 170, 270), (4, 270, 370)]
    assert "begins with the program's first" in found.notes[0]


def test_ops_of_a_host_that_a_call_started_belong_to_the_marker_of_the_call() -> None:
    b = TraceBuilder(basis="host", planes=("/host:CPU",))
    for n in range(4):
        b.marker(n + 1, 10 * n, 10 * n + 10)
        # Two of the ops of each program: no op runs once per step, so only the calls tell the steps apart.
        for at in range(2):
            b.kernel("dot", 100 * n + 30 + 10 * at, 100 * n + 40 + 10 * at, launch=(10 * n + 2, 10 * n + 9))
    found = periods(b.build(), 0)
    assert edges(found) == [(1, 0, 50), (2, 50, 150), (3, 150, 250), (4, 250, 350)]
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
    assert edges(found) == [(1, 0, 70), (2, 70, 200), (3, 200, 330), (4, 330, 460)]
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
            late.kernel(name, start, start + (30 if name == "a" else 40), launch=launch, thread="launcher")
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
    assert "the time to the next step is not included" in lone.notes[0]
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


TRAINS, VALIDATES = "multi_step_on_iterator_823", "multi_step_on_iterator_978"


def epochs_with_validation(*, gradients: bool = True, marked: bool = False) -> TraceBuilder:
    """Keras 3, two epochs of two steps, each followed by two calls of the validation, which bear the training's
    name but for the number. Another thread launches the kernels, as on a CPU."""
    b = TraceBuilder()
    for call in range(8):
        trains, at = call % 4 < 2, 1000 * call
        name = TRAINS if trains else VALIDATES
        b.marker(-1, at, at + 900, family="function")
        if marked and trains:
            b.marker(call, at, at + 950)
        b.event(HostKind.EXECUTOR, at + 10, at + 890, name=f"EagerLocalExecute: __inference_{name}")
        launched = {"launch": (at + 100, at + 110), "thread": "executor"}
        b.kernel("gemm", at + 120, at + 300, op="StatefulPartitionedCall/dense/MatMul", **launched)
        if trains:
            op = "StatefulPartitionedCall/gradient_tape/dense/MatMul" if gradients else "cluster_1"
            launched = {"launch": (at + 310, at + 320), "thread": "executor"}
            b.kernel("gemm", at + 330, at + 800, op=op, **launched)
    return b


TRAINED = [(-1, 0, 900), (-1, 1000, 1900), (-1, 4000, 4900), (-1, 5000, 5900)]


def test_calls_of_keras_3_that_only_validate_are_no_steps() -> None:
    found = periods(epochs_with_validation().build(), 0)
    assert edges(found) == TRAINED
    assert found.notes == (f"4 of 8 calls left out: validation ({VALIDATES})",)
    assert np.bincount(found.work.step).tolist() == [2, 2, 2, 2]
    assert found.pause_ns.tolist() == [100, -1, 100, -1]  # the edge of an epoch lies between no two steps


def test_markers_of_a_training_tell_which_function_trains_where_no_op_does() -> None:
    found = periods(epochs_with_validation(gradients=False, marked=True).build(), 0)
    assert [each[1:] for each in edges(found)] == [each[1:] for each in TRAINED]
    assert found.number.tolist() == [0, 1, 4, 5]


def test_where_nothing_tells_which_function_trains_that_is_said() -> None:
    found = periods(epochs_with_validation(gradients=False).build(), 0)
    assert len(found) == 8
    assert found.notes == (
        "nothing shows whether calls of these functions train or validate, and all were taken as steps: "
        f"{TRAINS}, {VALIDATES}",
    )


def test_two_functions_that_both_compute_gradients_both_train() -> None:
    """A function that is traced anew for a shorter last batch is another one, and trains as well."""
    b = epochs_with_validation()
    for call in (2, 3, 6, 7):
        at = 1000 * call
        b.kernel("adam", at + 400, at + 500, op="adam/update", launch=(at + 310, at + 320), thread="executor")
    found = periods(b.build(), 0)
    assert (len(found), found.notes) == (8, ())


def _shared(b: TraceBuilder, ids: dict[int, int]) -> Trace:
    """Return the trace with launches joined anew, after ids were changed on both sides."""
    trace = b.build()
    strings = Interner()
    for text in trace.strings:
        strings(text)

    def changed(column: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([ids.get(id, id) for id in column.tolist()], np.int64)

    kernels = replace(trace.kernels, correlation=changed(trace.kernels.correlation))
    host = replace(trace.host, correlation=changed(trace.host.correlation))
    joined = join_launches(kernels, host, strings)
    return replace(trace, kernels=joined.kernels, host=host)


def test_launches_that_share_an_id_are_told_by_their_neighbours_on_the_stream() -> None:
    """By when they ran, they would be of the next steps but one."""
    found = periods(_shared(three_steps(), {1: 9, 3: 9, 5: 9}), 0)
    assert (found.source, found.work.step.tolist()) == ("mpprof", [0, 0, 1, 1, 2, 2])
    assert edges(found) == edges(periods(three_steps().build(), 0))


def test_where_launches_of_whole_steps_share_ids_no_call_is_credited_with_them() -> None:
    """Ids that began anew: the neighbours with a launch are two steps away."""
    found = periods(_shared(three_steps(), {3: 1, 4: 2}), 0)
    assert found.source == "period"


def test_where_all_launches_share_an_id_and_the_host_runs_ahead_time_gives_no_steps() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel(f"of step {n}", 100 * n + 260, 100 * n + 350, launch=(100 * n + 10, 100 * n + 12))
    found = periods(_shared(b, {1: 9, 2: 9, 3: 9}), 0)
    assert len(found) == 0
    assert "the host ran ahead of the device, and which call the work is of is not known" in found.notes[0]


def test_where_all_launches_share_an_id_and_the_host_runs_ahead_the_sequence_may_give_steps() -> None:
    b = TraceBuilder()
    for n in range(20):
        b.marker(n, 10 * n, 10 * n + 10)
        for k, name in enumerate("abcd"):
            at = 1000 * n + 100 * k + 500
            b.kernel(name, at, at + 90, launch=(10 * n + k, 10 * n + k + 1))
    found = periods(_shared(b, dict.fromkeys(range(1, 81), 9)), 0)
    assert found.source == "period"
    assert set((found.end_ns - found.start_ns).tolist()) == {1000}


def test_where_all_launches_share_an_id_steps_are_told_by_time() -> None:
    b = TraceBuilder()
    for n in range(3):
        b.marker(n, 100 * n, 100 * n + 100)
        b.kernel("a", 100 * n + 20, 100 * n + 90)
    found = periods(_shared(b, {1: 9, 2: 9, 3: 9}), 0)
    assert edges(found) == [(0, 0, 100), (1, 100, 200), (2, 200, 300)]
    assert "joined with the calls of the step by time" in found.notes[0]
