"""Planes that no recorded trace at hand holds: TPUs, several hosts, old collectors. Written out by hand (synthetic),
after the field names in xplane_schema.h."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpprof import traces
from mpprof.analysis.steps.boundaries import periods
from mpprof.api import workflows
from mpprof.cli import main
from mpprof.errors import UnreadableError
from mpprof.model.trace import HostKind, Trace, WorkKind
from tests.builders.xspace import Ref, Space


def read(space: Space, folder: Path) -> Trace:
    path = folder / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    return traces.read(path, strict=True)


def test_a_tpu_plane_gives_the_leaves_of_its_op_line_once(tmp_path: Path) -> None:
    space = Space(hostnames=["tpu-host"])
    tpu = space.plane("/device:TPU:0")
    tpu.stats |= {"device_type_string": "TPU v4", "memory_size": 32 << 30}
    steps = tpu.line(1, "Steps", 1_000)
    modules = tpu.line(2, "XLA Modules", 1_000)
    ops = tpu.line(3, "XLA Ops", 1_000)
    for n in range(2):
        at = 1_000 + 1_000 * n
        steps.event(str(n), at, 900)
        modules.event("jit_train_step(7)", at, 900)
        ops.event("while.1", at + 10, 600)
        ops.event(
            "fusion.2", at + 20, 200, {"hlo_op": Ref("fusion.2"), "tf_op": Ref("jit(f)/dense/dot_general:")}
        )
        ops.event("fusion.3", at + 300, 300)
        ops.event("copy.4", at + 700, 100)
    trace = read(space, tmp_path)
    facts = trace.devices[0].facts
    assert (facts.kind, facts.vendor, facts.name, facts.memory_bytes) == ("tpu", "google", "TPU v4", 32 << 30)
    assert [trace.strings[n] for n in trace.kernels.name.tolist()] == ["fusion.2", "fusion.3", "copy.4"] * 2
    assert int(trace.kernels.duration_ns.sum()) == 2 * 600
    assert {op.name for op in trace.ops} == {"jit(f)/dense/dot_general"}
    families = [trace.strings[row] for row in trace.markers.family.tolist()]
    assert list(zip(families, trace.markers.number.tolist(), strict=True)) == [
        ("steps_line", 0), ("xla_module jit_train_step", -1), ("steps_line", 1), ("xla_module jit_train_step", -1),
    ]  # fmt: skip


def test_devices_and_threads_of_several_hosts_in_one_file_stay_apart(tmp_path: Path) -> None:
    space = Space(hostnames=["one", "two"])
    for n in range(2):
        device = space.plane("/device:GPU:0")
        # Each process counts its launches from the same number on.
        device.line(7, "Stream #7(Compute)", 1_000).event("kernel", 2_000 + n, 50, {"correlation_id": 40})
        host = space.plane("/host:CPU")
        for id in (1, 2):
            host.line(id, f"python {n}.{id}", 1_000).event("op:Op", 1_400 - n, 300)
        host.line(1, "python", 1_000).event("cuLaunchKernel", 1_500 - n, 10, {"correlation_id": 40})
    trace = read(space, tmp_path)
    assert len(trace.devices) == 2
    assert trace.kernels.device.tolist() == [0, 1]
    assert trace.threads == ("python 0.1", "python 0.2", "python 1.1", "python 1.2")
    assert trace.host.thread.tolist() == [0, 0, 1, 2, 2, 3]
    assert trace.host.start_ns[trace.kernels.launch].tolist() == [1_500, 1_499]
    assert trace.source.host == "one"
    assert [device.plane for device in trace.devices] == ["one /device:GPU:0", "two /device:GPU:0"]


@pytest.mark.parametrize(
    ("hostnames", "shown"),
    [(["one", "two"], ("one", "two")), (["same", "same"], ("host 1", "host 2")), ([], ("host 1", "host 2"))],
)
def test_tables_and_reports_tell_the_devices_of_two_hosts_apart(
    tmp_path: Path, hostnames: list[str], shown: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    space = Space(hostnames=hostnames)
    for n in range(2):
        stream = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)", 1_000)
        host = space.plane("/host:CPU").line(1, "python", 1_000)
        for step in range(4):
            at = 2_000_000 * (step + 1)
            host.event("train", at, 1_900_000, {"step_num": step})
            stats = {"correlation_id": step, "tf_op": Ref("model/dense/MatMul:MatMul")}
            host.event("cuLaunchKernel", at + 10, 5, {"correlation_id": step})
            stream.event("volta_sgemm_128x64_nn", at + 100, 100_000 * (n + 1), stats)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    names = [f"{host} /device:GPU:0" for host in shown]
    for table in ("kernels", "products", "ops", "layers"):
        assert main([table, str(path), "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert {row["device"]: (row["total_ns"], row["ratio"]) for row in rows} == {
            names[0]: (400_000, 1.0), names[1]: (800_000, 1.0),
        }  # fmt: skip
        assert main([table, str(path)]) == 0
        text = capsys.readouterr().out
        assert all(name in text for name in names)
    assert main(["report", str(path), "--format", "json"]) == 0
    devices = json.loads(capsys.readouterr().out)["time"]["devices"]
    assert sorted(each["device"] for each in devices) == names


def test_the_processors_of_two_hosts_in_one_file_stay_apart(tmp_path: Path) -> None:
    space = Space(hostnames=["one", "two"])
    for n in range(2):
        line = space.plane("/host:CPU").line(5, "tf_Compute/5", 1_000)
        line.event(f"dense_{n}/MatMul:MatMul", 2_000, 300 + n)
    trace = read(space, tmp_path)
    assert [device.plane for device in trace.devices] == ["one /host:CPU", "two /host:CPU"]
    assert trace.kernels.device.tolist() == [0, 1]
    assert trace.kernels.duration_ns.tolist() == [300, 301]
    assert [stream.device for stream in trace.streams] == [0, 1]


@pytest.mark.parametrize(
    ("stats", "op"),
    [
        (
            {"annotation": Ref("model/dense/MatMul:MatMul#id=1#")},
            ("model/dense/MatMul", "MatMul"),
        ),  # TensorFlow 2.2
        ({"level 0": Ref("model/dense/MatMul:MatMul")}, ("model/dense/MatMul", "MatMul")),  # 2.3
        ({"tf_op": Ref("model/dense/MatMul:MatMul")}, ("model/dense/MatMul", "MatMul")),  # since 2.4
        ({"name": Ref("jit(f)/dot"), "hlo_op": Ref("dot.1"), "hlo_module": Ref("jit_f")}, ("jit(f)/dot", "")),
    ],
)
@pytest.mark.parametrize("details", ["kernel_details", "Kernel_details"])
def test_old_spellings_of_stats(
    stats: dict[str, Ref], op: tuple[str, str], details: str, tmp_path: Path
) -> None:
    space = Space()
    text = "regs:32 static_shared:0 dynamic_shared:0 grid:8,1,1 block:256,1,1"
    device = space.plane("/device:GPU:0")
    stream = device.line(7, "Stream #7(Compute)", 1_000)
    stream.event(
        "volta_sgemm_128x64_nn", 2_000, 50, {**stats, details: Ref(text), "shape": Ref("(half[8,8])")}
    )
    host = space.plane("/host:CPU").line(1, "python", 1_000)
    host.event("TraceContext", 1_000, 500, {"step_num": 3, "graph_type": Ref("train")})
    trace = read(space, tmp_path)
    assert trace.kernels.kind.tolist() == [WorkKind.KERNEL]
    found = trace.ops[trace.kernels.op[0]]
    assert (found.name, found.type) == op
    assert trace.strings[trace.kernels.details[0]] == text
    assert trace.strings[trace.kernels.shapes[0]] == "(half[8,8])"
    assert trace.markers.number.tolist() == [3]
    assert HostKind.MARKER in trace.host.kind


def test_devices_of_one_host_share_its_launches(tmp_path: Path) -> None:
    """Two cards and one process: a correlation id is used once, whichever card the kernel ran on."""
    space = Space()
    host = space.plane("/host:CPU").line(1, "python", 1_000)
    for n in range(2):
        device = space.plane(f"/device:GPU:{n}")
        for at in range(2):
            host.event("cuLaunchKernel", 1_100 + 100 * n + 10 * at, 5, {"correlation_id": 2 * n + at})
            device.line(7 + at, f"Stream #{7 + at}(Compute)", 1_000).event(
                "kernel", 2_000 + at, 50, {"correlation_id": 2 * n + at}
            )
    trace = read(space, tmp_path)
    assert trace.kernels.device.tolist() == [0, 0, 1, 1]
    assert trace.host.start_ns[trace.kernels.launch].tolist() == [1_100, 1_110, 1_200, 1_210]
    assert [(stream.device, stream.number) for stream in trace.streams] == [(0, 7), (0, 8), (1, 7), (1, 8)]


@pytest.mark.parametrize("with_host", [0, 1])
def test_where_one_machine_has_no_host_plane_no_launch_is_joined_and_it_is_said(
    with_host: int, tmp_path: Path
) -> None:
    """Launches of several machines are told apart only where their planes stand host by host."""
    space = Space(hostnames=["one", "two"])
    for n in range(2):
        device = space.plane("/device:GPU:0")
        device.line(7, "Stream #7(Compute)", 1_000).event("kernel", 2_000 + n, 50, {"correlation_id": 40})
        if n == with_host:
            host = space.plane("/host:CPU").line(1, "python", 1_000)
            host.event("cuLaunchKernel", 1_500, 10, {"correlation_id": 40})
        space.plane("Task Environment")
    trace = read(space, tmp_path)
    assert trace.kernels.launch.tolist() == [-1, -1]
    assert any("launch" in text for text in trace.warnings), trace.warnings


@pytest.mark.parametrize("spelling", ["cuda_graph_id", "command_buffer_id"])
def test_the_graph_that_a_kernel_ran_in_is_kept_in_both_spellings(spelling: str, tmp_path: Path) -> None:
    space = Space()
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    line.event("in a graph", 0, 5, {spelling: 12})
    line.event("alone", 10, 5)
    assert read(space, tmp_path).kernels.graph.tolist() == [12, -1]


def test_the_files_own_groups_are_steps_where_there_is_no_marker(tmp_path: Path) -> None:
    """TensorFlow 2.2 to 2.5 wrote the group into every kernel."""
    space = Space()
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    for group in range(3):
        for at in range(4):
            stats = {"group_id": group + 5, "annotation": Ref(f"model/dense_{at}/MatMul:MatMul")}
            line.event("sgemm", 1_000 * group + 100 * at, 50, stats)
    trace = read(space, tmp_path)
    assert trace.kernels.group.tolist() == [5] * 4 + [6] * 4 + [7] * 4
    found = periods(trace, 0)
    assert (found.source, found.start_ns.tolist(), found.end_ns.tolist()) == (
        "group",
        [0, 1_000],
        [1_000, 2_000],
    )


def test_what_the_profiler_says_of_itself_is_found_as_mp909(tmp_path: Path) -> None:
    space = Space(errors=["CUPTI could not be loaded"], warnings=["too many events"])
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    line.event("sgemm", 0, 5)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    diagnosis = workflows.diagnose(workflows.load(path))
    (found,) = [finding for finding in diagnosis.findings if finding.code == "MP909"]
    said = [str(each.value) for each in found.evidence]
    assert said == [
        "the profiler's own error: CUPTI could not be loaded",
        "the profiler's own warning: too many events",
    ]


def test_a_profilers_own_words_are_one_line_beside_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    space = Space(errors=["CUPTI\ncould not be loaded"])
    space.plane("/device:GPU:0").line(7, "Stream #7(Compute)").event("sgemm", 0, 5)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    assert main(["memory", str(path)]) == 2
    warning, error = capsys.readouterr().err.splitlines()
    assert warning == r"mpprof: warning: the profiler's own error: CUPTI\ncould not be loaded"
    assert "no allocator events" in error


def test_a_damaged_plane_of_an_odd_name_is_one_line(tmp_path: Path) -> None:
    space = Space()
    space.plane("/device:GPU:0\nanother line").line(7, "Stream #7(Compute)").event("sgemm", 0, 5)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes()[:-3])
    with pytest.raises(UnreadableError, match="in plane /device:GPU:0 another line, which begins at byte 0"):
        traces.read(path, strict=True)


def test_events_of_several_host_planes_are_one_table(tmp_path: Path) -> None:
    space = Space()
    for thread, name in ((1, "first"), (2, "second")):
        space.plane("/host:CPU").line(thread, name).event("work", 10 * thread, 5)
    (tmp_path / "h.xplane.pb").write_bytes(space.to_bytes())
    trace = traces.read(tmp_path / "h.xplane.pb")
    assert [trace.threads[row] for row in trace.host.thread] == ["first", "second"]
    assert trace.host.start_ns[1] - trace.host.start_ns[0] == 10
    assert trace.host.shapes is None  # no xplane states them
    assert not trace.warnings
