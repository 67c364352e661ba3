"""Chrome traces of PyTorch and TensorFlow: what is written is what is read, whole or damaged."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.kernels import eligibility, placement
from mpprof.analysis.layers import attribution
from mpprof.analysis.steps import boundaries
from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.trace import CopyKind, HostKind, Trace, WorkKind
from tests.paths import NO_TRACES, SHARED
from tests.traces.kineto import Kineto, small

RECORDED = sorted(
    path
    for folder in ("h100-torch", "b200-torch", "a100-v100-torch")
    for path in (SHARED / folder).glob("*.gz")
)
recorded = pytest.mark.parametrize(
    "path",
    RECORDED or [pytest.param(None, marks=pytest.mark.skip(reason=NO_TRACES))],
    ids=lambda path: path.name.removesuffix(".json.gz") if path else "none",
)


def read(tmp_path: Path, kineto: Kineto, name: str = "w.pt.trace.json", *, strict: bool = False) -> Trace:
    return traces.read(kineto.write(tmp_path / name), strict=strict)


def name_of(trace: Trace, row: int) -> str:
    return trace.strings[trace.kernels.name[row]]


def op_of(trace: Trace, row: int) -> str:
    return trace.ops[trace.kernels.op[row]].name


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read(tmp_path, small())


# --- Kineto ------------------------------------------------------------------------------------------------


def test_kernels_have_times_exact_to_the_nanosecond(trace: Trace) -> None:
    """Given times with three decimals, counted from a base; then they are whole nanoseconds from the first."""
    assert len(trace.kernels) == 12
    assert trace.kernels.start_ns[0] == 40_500
    assert trace.kernels.duration_ns[0] == 10_125
    assert trace.origin_unix_ns == 1_700_000_000_000_000_000


def test_late_times_lose_no_digit(tmp_path: Path) -> None:
    """A float has 0.25 µs at today's epoch; the file has nanoseconds."""
    path = tmp_path / "w.pt.trace.json"
    event = (
        '{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":%s,"dur":%s,"args":{"device":0,"stream":7}}'
    )
    events = [event % ("1761000000000000.001", "1.999"), event % ("1761000000000005.123", "0.5")]
    path.write_text(f'{{"traceEvents":[{",".join(events)}]}}')
    trace = traces.read(path)
    assert trace.origin_unix_ns == 1_761_000_000_000_000_001
    assert trace.kernels.start_ns.tolist() == [0, 5_122]
    assert trace.kernels.duration_ns.tolist() == [1_999, 500]


@pytest.mark.parametrize("time", ["1.²", "²", "1.x", "", "-", "nan", "1e999"])
def test_a_time_that_is_no_number_leaves_its_event_out(tmp_path: Path, time: str) -> None:
    kineto = small()
    kineto.work("odd", 50, 1)
    kineto.events[-1]["ts"] = time
    whole = len(read(tmp_path, small()).kernels)
    assert len(read(tmp_path, kineto).kernels) == whole


def test_a_kernel_belongs_to_the_innermost_op_around_its_launch_and_to_its_modules(trace: Trace) -> None:
    assert op_of(trace, 0) == "Net_0/Linear_0/aten::addmm"
    assert trace.ops[trace.kernels.op[0]].type == "aten::addmm"
    assert trace.strings[trace.kernels.shapes[0]] == "(half[32,64];half[64,16])"
    assert [t.dims for t in eligibility.parse_shapes("(half[32,64];half[64,16])")] == [(32, 64), (64, 16)]


def test_a_backward_op_gets_the_modules_of_its_forward_op_and_the_phase(trace: Trace) -> None:
    assert op_of(trace, 1) == "Net_0/Linear_0/AddmmBackward0 aten::mm"
    owner = attribution.attribute(trace, None)
    assert owner.phase_of(int(trace.kernels.op[1])) == "backward"
    assert op_of(trace, 2) == "Optimizer.step#Adam.step aten::_foreach_add_"
    assert owner.phase_of(int(trace.kernels.op[2])) == "optimizer"


def test_steps_come_from_profiler_steps(trace: Trace) -> None:
    found = boundaries.periods(trace, 0)
    assert found.source == "torch"
    assert found.number.tolist() == [4, 5, 6]
    assert found.pause_ns is not None
    assert (found.start_ns[1:] - found.start_ns[:-1]).tolist() == [1_000_000, 1_000_000]


def test_copies_have_a_direction_and_a_size(trace: Trace) -> None:
    row = int(np.flatnonzero(trace.kernels.kind == WorkKind.MEMCPY)[0])
    assert trace.kernels.copy[row] == CopyKind.HOST_TO_DEVICE
    assert trace.kernels.bytes[row] == 4096
    assert trace.host.kind[trace.kernels.launch[row]] == HostKind.COPY


def test_the_card_and_what_the_launch_needed_are_kept(trace: Trace) -> None:
    facts = trace.devices[0].facts
    assert (facts.name, facts.vendor, facts.compute_capability) == ("NVIDIA H100 80GB HBM3", "nvidia", (9, 0))
    assert (facts.memory_bytes, facts.sm_count) == (85018279936, 132)
    assert trace.strings[trace.kernels.details[0]] == "regs:90 shared:49152 grid:4,1,1 block:128,1,1"


def test_memory_events_become_allocations_with_their_op(trace: Trace) -> None:
    assert trace.allocations.bytes.tolist() == [2048] * 3
    assert trace.allocations.live_bytes.tolist() == [12_048] * 3
    assert trace.ops[trace.allocations.op[0]].name == "Net_0/Linear_0/aten::addmm"
    assert "allocations" not in trace.missing


def test_python_frames_are_no_ops_and_no_host_events(tmp_path: Path) -> None:
    kineto = small()
    kineto.host("python_function", "threading.py(1032): _bootstrap", 0, 5000)
    trace = read(tmp_path, kineto)
    assert not any("_bootstrap" in trace.strings[row] for row in trace.host.name.tolist())
    assert not any("_bootstrap" in op.name for op in trace.ops)


def test_an_old_external_id_that_repeats_the_correlation_names_no_op(tmp_path: Path) -> None:
    """torch 1.12 writes the correlation id as external id; an op with that number is somebody else."""
    kineto = Kineto()
    kineto.op("aten::relu", 0, 10, **{"External id": 5})
    kineto.op("aten::mm", 20, 10, **{"External id": 6})
    kineto.work("k1", 100, 5, correlation=5, **{"External id": 5})
    kineto.work("k2", 110, 5, correlation=9, **{"External id": 6})
    trace = read(tmp_path, kineto)
    assert trace.kernels.op[0] == -1
    assert op_of(trace, 1) == "aten::mm"


def test_one_step_is_its_marker_and_not_the_projection_onto_the_device(tmp_path: Path) -> None:
    kineto = Kineto()
    kineto.host("user_annotation", "ProfilerStep#6", 0, 100)
    kineto.launch("k", 10, 20, 5)
    kineto.launch("k", 30, 60, 20)
    kineto.work("ProfilerStep#6", 20, 60, cat="gpu_user_annotation")
    trace = read(tmp_path, kineto)
    assert len(trace.kernels) == 2  # the projection is no kernel
    found = boundaries.periods(trace, 0)
    assert (found.source, found.number.tolist()) == ("torch", [6])
    assert (found.end_ns - found.start_ns).tolist() == [100_000]


def test_without_a_card_the_innermost_ops_are_the_kernels(tmp_path: Path) -> None:
    kineto = Kineto(header={"deviceProperties": []})
    kineto.op("aten::linear", 0, 100)
    kineto.op("aten::addmm", 10, 80)
    kineto.op("aten::relu", 200, 5)
    trace = read(tmp_path, kineto)
    assert trace.basis == "host"
    assert [name_of(trace, row) for row in range(len(trace.kernels))] == ["aten::addmm", "aten::relu"]
    assert "device" in trace.missing


def test_without_a_card_an_op_is_the_work_in_spite_of_the_helpers_that_it_calls(tmp_path: Path) -> None:
    kineto = Kineto(header={"deviceProperties": []})
    kineto.op("aten::linear", 0, 100)
    kineto.op("aten::addmm", 10, 80)
    kineto.op("aten::expand", 10, 5)
    kineto.op("aten::as_strided", 11, 2)
    kineto.op("aten::copy_", 20, 10)  # the bias
    kineto.op("aten::resolve_conj", 40, 5)
    kineto.op("aten::to", 200, 20)  # hands on, however long its own time is
    kineto.op("aten::_to_copy", 203, 16)
    kineto.op("aten::empty_strided", 204, 2)
    kineto.op("aten::copy_", 210, 3)
    kineto.op("autograd::engine::evaluate_function: MmBackward0", 300, 100)
    kineto.op("MmBackward0", 320, 60)
    kineto.op("aten::mm", 340, 10)
    kineto.op("aten::empty", 500, 3)  # nobody's helper
    trace = read(tmp_path, kineto)
    kernels = trace.kernels
    assert [
        (name_of(trace, row), int(kernels.start_ns[row]) // 1000, int(kernels.duration_ns[row]) // 1000)
        for row in range(len(kernels))
    ] == [
        ("aten::addmm", 10, 80),
        ("aten::empty_strided", 204, 2),
        ("aten::copy_", 210, 3),
        ("aten::mm", 340, 10),
        ("aten::empty", 500, 3),
    ]


def test_a_range_round_a_module_is_a_scope_like_a_frame_of_one(tmp_path: Path) -> None:
    kineto = Kineto(header={"deviceProperties": []})
    kineto.host("user_annotation", "nn.Module: sequential", 0, 100)
    kineto.host("user_annotation", "nn.Module: dense_1", 10, 80)
    kineto.op("aten::mm", 20, 10, **{"Sequence number": 4})
    kineto.host("user_annotation", "nn.Module: LossScaleOptimizer", 200, 40)
    kineto.op("aten::div", 210, 10)
    kineto.host("user_annotation", "Optimizer.step#Adam.step", 250, 40)
    kineto.op("aten::mul", 260, 10)
    kineto.op("autograd::engine::evaluate_function: MmBackward0", 150, 40, **{"Sequence number": 4})
    kineto.op("aten::mm", 155, 30)
    trace = read(tmp_path, kineto)
    assert [op_of(trace, row) for row in range(len(trace.kernels))] == [
        "sequential/dense_1/aten::mm",
        "sequential/dense_1/MmBackward0 aten::mm",
        "LossScaleOptimizer/aten::div",
        "Optimizer.step#Adam.step aten::mul",
    ]
    owner = attribution.attribute(trace, None)
    phases = [owner.phase_of(op) for op in trace.kernels.op.tolist()]
    assert phases == ["forward", "backward", "loss_scale", "optimizer"]
    assert "layers" not in trace.missing


def test_ids_that_a_tool_wrote_as_floats_are_the_same_ids(tmp_path: Path) -> None:
    """pandas and JavaScript write 7.0 where a column has gaps."""
    kineto = small()
    for event in kineto.events:
        event["args"] = {
            key: float(value) if type(value) is int else value for key, value in event.get("args", {}).items()
        }
    floats, whole = read(tmp_path, kineto), read(tmp_path, small())
    for name in ("device", "stream", "correlation", "bytes", "op", "launch"):
        assert getattr(floats.kernels, name).tolist() == getattr(whole.kernels, name).tolist()


def test_our_own_markers_in_a_trace_of_somebody_elses_come_before_theirs(tmp_path: Path) -> None:
    kineto = Kineto(header={"deviceProperties": []})
    for step in range(4):
        kineto.host("user_annotation", f"mpprof_step#{step + 20}", step * 100, 99)
        kineto.host("user_annotation", f"ProfilerStep#{step}", step * 100 + 5, 90)
        kineto.op("aten::mm", step * 100 + 10, 30)
    found = boundaries.periods(read(tmp_path, kineto), 0)
    assert (found.source, found.number.tolist()) == ("mpprof", [20, 21, 22, 23])


@pytest.mark.parametrize(("apart_us", "said"), [(-1, True), (1, True), (2, True), (4, False), (5, False)])
def test_kernels_at_the_same_time_on_one_stream_are_doubted(
    tmp_path: Path, apart_us: float, said: bool
) -> None:
    kineto = Kineto()
    for n in range(50):
        kineto.work("volta_sgemm", 100 + n * apart_us, 5, correlation=n)
        kineto.work("volta_sgemm", 100 + n * apart_us, 5, correlation=100 + n, stream=8 + n)  # others may
    trace = read(tmp_path, kineto, strict=True)
    warnings = [text for text in trace.warnings if "on the same stream" in text]
    assert bool(warnings) is said
    assert not said or warnings[0].startswith("49 of 100 kernels overlap the kernel before them")


def test_what_the_file_lacks_is_said(tmp_path: Path) -> None:
    kineto = Kineto()
    kineto.op("aten::mm", 0, 10)
    kineto.launch("k", 1, 5, 5)
    missing = read(tmp_path, kineto).missing
    assert {"allocations", "markers", "shapes", "layers", "hlo"} <= missing.keys()
    assert "record_shapes=True" in missing["shapes"]


# --- TensorFlow's export -----------------------------------------------------------------------------------


def tensorflow(
    process: str = "/device:GPU:0", threads: tuple[str, ...] = ("stream:13", "TensorFlow Ops")
) -> dict[str, Any]:
    """*Synthetic*: laid out as tsl/profiler's trace_events_to_json.cc shows; numbers in args as text."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "pid": 1, "name": "process_name", "args": {"name": process}},
        {"ph": "M", "pid": 2, "name": "process_name", "args": {"name": "/host:CPU"}},
    ]
    for tid, name in enumerate(threads, 13):
        events.append({"ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": {"name": name}})
    for step in range(3):
        at = step * 1000
        events.append(
            {
                "ph": "X",
                "pid": 2,
                "tid": 5,
                "ts": at,
                "dur": 900,
                "name": "train",
                "args": {"step_num": str(step)},
            }
        )
        events.append(
            {
                "ph": "X",
                "pid": 2,
                "tid": 5,
                "ts": at + 10,
                "dur": 5.5,
                "name": "cuLaunchKernel",
                "args": {"correlation_id": str(step)},
            }
        )
        for tid in range(13, 13 + len(threads)):
            args = {
                "correlation_id": str(step),
                "tf_op": "model/dense/MatMul:MatMul",
                "tensor_shapes": "(half[32,128];half[128,64])",
            }
            events.append(
                {
                    "ph": "X",
                    "pid": 1,
                    "tid": tid,
                    "ts": at + 20,
                    "dur": 40.25,
                    "name": "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn",
                    "args": args,
                }
            )
    return {"displayTimeUnit": "ns", "traceEvents": events}


def tensorflow_text() -> bytes:
    return json.dumps(tensorflow()).encode()


def test_tensorflows_export_gives_streams_and_no_derived_line(tmp_path: Path) -> None:
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(tensorflow_text()))
    trace = traces.read(path)
    assert len(trace.kernels) == 3
    assert [stream.name for stream in trace.streams] == ["stream:13"]
    assert trace.ops[trace.kernels.op[0]].type == "MatMul"
    assert trace.kernels.launch.tolist() != [-1, -1, -1]
    assert boundaries.periods(trace, 0).number.tolist() == [0, 1, 2]
    verdict = placement.place(trace)
    assert verdict.verdicts[verdict.index[0]].placement == "tensor_core"
    assert "facts" in trace.missing


def test_tensorflow_1_lists_each_stream_twice(tmp_path: Path) -> None:
    """*Synthetic*: client/timeline.py writes a process of all streams and one for each."""
    document = tensorflow("/device:GPU:0/stream:all Compute", ("",))
    document["traceEvents"] += [
        {"ph": "M", "pid": 3, "name": "process_name", "args": {"name": "/device:GPU:0/stream:13 Compute"}},
        {"ph": "M", "pid": 4, "name": "process_name", "args": {"name": "/device:GPU:0 Compute"}},
        {"ph": "X", "pid": 3, "tid": 0, "ts": 20, "dur": 40, "name": "k", "args": {}},
        {"ph": "X", "pid": 4, "tid": 0, "ts": 20, "dur": 40, "name": "MatMul", "args": {}},
    ]
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(document))
    assert len(traces.read(path).kernels) == 3


def test_two_tasks_devices_of_one_name_stay_apart(tmp_path: Path) -> None:
    """*Synthetic*: a timeline of a distributed session of TensorFlow 1."""
    document = tensorflow("/job:worker/task:0/device:GPU:0", ("",))
    second = [dict(event) for event in document["traceEvents"] if event["pid"] == 1]
    for event in second:
        event["pid"] = 9
    second[0]["args"] = {"name": "/job:worker/task:1/device:GPU:0"}
    document["traceEvents"] += second
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(document))
    trace = traces.read(path)
    assert [device.plane for device in trace.devices] == [
        "/job:worker/task:0/device:GPU:0",
        "/job:worker/task:1/device:GPU:0",
    ]
    assert np.bincount(trace.kernels.device).tolist() == [3, 3]


# --- damage ------------------------------------------------------------------------------------------------


def test_a_cut_off_file_gives_what_is_whole_and_names_the_byte(tmp_path: Path) -> None:
    text = small().text()
    place = text.rindex(b'"Optimizer.step#Adam.step"') + 5
    path = tmp_path / "w.pt.trace.json"
    path.write_bytes(text[:place])
    trace = traces.read(path)
    assert 0 < len(trace.kernels) < 12
    begin = text.rindex(b"{", 0, place)
    assert len(trace.warnings) == 1
    assert f"byte {begin}" in trace.warnings[0]
    with pytest.raises(UnreadableError, match=f"byte {begin}"):
        traces.read(path, strict=True)


def test_a_damaged_event_is_passed_over_and_the_rest_is_read(tmp_path: Path) -> None:
    text = small().text()
    place = text.index(b'"AddmmBackward0"')
    path = tmp_path / "w.pt.trace.json"
    path.write_bytes(text[:place] + b"\x00" + text[place + 1 :])
    trace = traces.read(path)
    assert len(trace.kernels) == 12
    assert any("left out" in warning for warning in trace.warnings)


def test_behind_a_gap_of_any_length_no_event_is_looked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A sparse file may have one of a terabyte."""
    monkeypatch.setattr(limits, "LONGEST_DAMAGE_BYTES", 4 << 20)
    monkeypatch.setattr("mpprof.traces.chrome.json._CHUNK", 1 << 16)
    monkeypatch.setattr("mpprof.traces.chrome.json._AHEAD", 1 << 10)
    text = small().text()
    place = text.rindex(b'{\n   "ph"')
    path = tmp_path / "w.pt.trace.json"
    for gap, reads_on in ((1 << 20, True), (16 << 20, False)):
        path.write_bytes(text[:place] + bytes(gap) + text[place:])
        trace = traces.read(path)
        assert len(trace.kernels) > 0
        assert any(f"to {place + gap}: left out" in warning for warning in trace.warnings) is reads_on
        assert any(f"cut off or damaged at byte {place}" in text for text in trace.warnings) is not reads_on


def test_a_cut_off_gzip_gives_what_is_whole(tmp_path: Path) -> None:
    path = small().write(tmp_path / "w.pt.trace.json.gz")
    path.write_bytes(path.read_bytes()[:-60])
    trace = traces.read(path)
    assert 0 < len(trace.kernels) <= 12
    assert any("damaged" in warning for warning in trace.warnings)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b"[1, 2]",
        b'{"traceEvents": []}',
        b'{"traceEvents": 5}',
        b"\x1f\x8b\x08garbage",
        b'{"a":' * 5000,
    ],
    ids=["empty", "text", "object", "array", "numbers", "no events", "no list", "no gzip", "deep"],
)
def test_what_is_no_trace_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.trace.json"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        traces.read(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_bomb_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": [' + b" " * (64 << 20), 9))
    with pytest.raises(UnreadableError, match="30 times its size"):
        traces.read(path)


def test_more_events_than_can_be_held_are_left_out_and_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpprof.traces.chrome.json.MAX_EVENTS", 20)
    trace = read(tmp_path, small())
    assert len(trace.host) + len(trace.kernels) <= 20
    assert len(trace.warnings) == 1
    assert "more than 20 events" in trace.warnings[0]


def test_events_of_a_packed_file_are_bounded_by_its_packed_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpprof.model.limits.EVENTS_OF_SMALL_PACKED", 20)
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "ts": 1, "dur": 2}'
    text = f'{{"traceEvents": [{",".join([event] * 4000)}]}}'.encode()
    path = tmp_path / "w.pt.trace.json"
    path.write_bytes(text)
    assert len(traces.read(path, strict=True).kernels) == 4000
    path.write_bytes(packed := gzip.compress(text))
    trace = traces.read(path)
    assert len(trace.kernels) == len(packed) // 10
    assert f"more than {len(packed) // 10:,} events" in trace.warnings[0]


def test_hostile_values_are_left_out_or_bounded(tmp_path: Path) -> None:
    kineto = small()
    kineto.work("no time", 0, 1)
    kineto.events[-1]["ts"] = "soon"
    kineto.work("negative", 50, -3)
    kineto.work("far", 10**300, 1)
    kineto.work("device", 60, 1)
    kineto.events[-1]["args"]["device"] = 10**9
    kineto.work("\ud800 lone", 70, 1, correlation=[], grid="x")
    kineto.events += [None, 5, "x", {"ph": "X"}, {"ph": "X", "cat": 5, "name": []}]  # type: ignore[list-item]
    trace = read(tmp_path, kineto)
    assert len(trace.kernels) == 14
    assert any("3 events have no usable time or device" in warning for warning in trace.warnings)
    assert any("negative duration" in warning for warning in trace.warnings)
    assert all(text.encode() for text in trace.strings if text)


def test_ids_of_threads_that_are_no_text_can_be_shown(tmp_path: Path) -> None:
    kineto = small()
    for event in kineto.events:
        event["tid"] = "\ud800 lone"
    (name,) = set(read(tmp_path, kineto).threads)
    assert b"lone" in name.encode()


# --- recorded ----------------------------------------------------------------------------------------------


@recorded
def test_every_kernel_is_counted_once_with_its_duration(path: Path) -> None:
    """Against a count by the standard library's JSON with decimal numbers."""
    document = json.loads(gzip.decompress(path.read_bytes()), parse_float=Decimal)
    calls: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for event in document["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            calls[event["name"]] += 1
            total[event["name"]] += int(Decimal(event["dur"]) * 1000)
    trace = traces.read(path)
    assert sum(calls.values()) > 50
    names = [name_of(trace, row) for row in range(len(trace.kernels))]
    assert Counter(names) == calls
    summed: Counter[str] = Counter()
    for name, duration in zip(names, trace.kernels.duration_ns.tolist(), strict=True):
        summed[name] += duration
    assert summed == total
    assert not trace.warnings


@recorded
def test_recorded_kernels_have_a_placement(path: Path) -> None:
    trace = traces.read(path)
    found = placement.place(trace)
    unknown = np.array([verdict.placement == "unknown" for verdict in found.verdicts])[found.index]
    time = trace.kernels.duration_ns
    assert time[unknown].sum() < 0.02 * time.sum()


@recorded
def test_recorded_kernels_are_launched_before_they_start(path: Path) -> None:
    """All but those whose launch lies before the window have one, and clocks agree to a microsecond or two."""
    trace = traces.read(path)
    linked = trace.kernels.launch >= 0
    assert linked.mean() > 0.7
    early = trace.host.start_ns[trace.kernels.launch[linked]] - trace.kernels.start_ns[linked]
    assert early.max() < 5_000


@pytest.mark.parametrize("turned", [False, True])
def test_of_ops_at_one_time_that_begun_first_is_the_outer_one(turned: bool, tmp_path: Path) -> None:
    """PyTorch numbers ops as they begin; a call has the number of the op that it lies in, and a frame none."""
    kineto = Kineto()
    for at in (0.0, 100.0, 200.0):
        kineto.op("aten::zeros", at, 5, **{"External id": 2 * at + 1})
        kineto.op("aten::empty", at, 5, **{"External id": 2 * at + 2})
        kineto.module("Dense_1", at, 5)
        kineto.launch("fill_kernel", at, at + 20, 10)
        kineto.launch("copy_kernel", at, at + 20, 10, stream=8)
    for event in kineto.events:
        if event["cat"] == "cuda_runtime":
            event["args"]["External id"] = 2 * event["ts"] + 2
            event["dur"] = 5
        if "External id" in event["args"]:
            event["args"]["External id"] = int(event["args"]["External id"])
    if turned:
        kineto.events.reverse()
    trace = read(tmp_path, kineto)
    assert [trace.ops[op].name for op in trace.kernels.op.tolist()] == ["Dense_1/aten::empty"] * 6
    names = [trace.strings[name] for name in trace.kernels.name.tolist()]
    assert names == ["fill_kernel", "copy_kernel"] * 3


def test_a_timeline_of_tensorflow_1_is_called_what_it_is(tmp_path: Path) -> None:
    """As `generate_chrome_trace_format` of TensorFlow 1 writes it: ops by device, without their kernels."""
    events: list[dict[str, object]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "/device:GPU:0/stream:all Compute"}}
    ]
    for n in range(3):
        args = {"name": f"conv{n}/Conv2D", "op": "Conv2D", "input0": "x"}
        of = {
            "name": "Conv2D",
            "ph": "X",
            "cat": "Op",
            "pid": 1,
            "tid": 0,
            "ts": 1_500_000 + 100 * n,
            "dur": 80,
        }
        events.append({**of, "args": args})
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps({"traceEvents": events}))
    with pytest.raises(UnreadableError, match=r"timeline of TensorFlow 1 \(RunMetadata\)"):
        traces.read(path)
