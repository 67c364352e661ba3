"""Several profiles in one xplane file (synthetic): which host launched a device's work, and what is there twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof import traces
from mpprof.analysis.steps import boundaries
from mpprof.analysis.steps.calls import calls
from mpprof.cli import main
from mpprof.model.trace import Trace
from tests.builders.xspace import Ref, Space

STEPS, KERNELS = 6, 5
MS = 1_000_000

Write = Callable[[Space], None]


def host(period_ns: int, *, first_id: int = 1, input_ns: int = 0, plane: str = "/host:CPU") -> Write:
    """A host that trains: a marker for each step, and under it launches."""

    def write(space: Space) -> None:
        line = space.plane(plane, id=0).line(1, "python", MS)
        for step in range(STEPS):
            at = MS + step * period_ns
            line.event("train", at, period_ns - 10_000, {"step_num": step})
            if input_ns:
                line.event("IteratorGetNext:IteratorGetNext", at + period_ns - input_ns - 20_000, input_ns)
            for n in range(KERNELS):
                stats = {"correlation_id": first_id + step * KERNELS + n}
                line.event("cuLaunchKernel", at + 10_000 + 20_000 * n, 10_000, stats)

    return write


def gpu(period_ns: int, ordinal: int = 0, *, first_id: int = 1) -> Write:
    """What `host` of this period launched, from 50 µs on."""

    def write(space: Space) -> None:
        line = space.plane(f"/device:GPU:{ordinal}", id=0).line(13, "Stream #13(Compute)", MS)
        for step in range(STEPS):
            for n in range(KERNELS):
                stats = {"tf_op": Ref(f"model/dense_{n}/MatMul:MatMul")}
                if first_id:
                    stats |= {"correlation_id": first_id + step * KERNELS + n}
                at = MS + step * period_ns + 50_000 + 105_000 * n
                line.event(f"volta_fp16_s884gemm_{n}", at, 100_000, stats)

    return write


def metadata(space: Space) -> None:
    space.plane("/host:metadata", id=0)


def environment(space: Space) -> None:
    space.plane("Task Environment", id=0)


def write(path: Path, *planes: Write, hostnames: tuple[str, ...] = ("one", "two")) -> Path:
    space = Space(hostnames=list(hostnames))
    for plane in planes:
        plane(space)
    path.write_bytes(space.to_bytes())
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host.xplane.pb"


def launchers(trace: Trace, device: int) -> set[int]:
    """The hosts that launched the kernels of a device, -1 among them where there are kernels without."""
    launch = trace.kernels.launch[trace.kernels.device == device]
    of_thread = trace.thread_hosts or (0,) * len(trace.threads)
    return {of_thread[trace.host.thread[row]] if row >= 0 else -1 for row in launch.tolist()}


def report(path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    assert main(["report", str(path), "--format", "json", "--no-cache"]) == 0
    return json.loads(capsys.readouterr().out)


CHIEF, WORKER = host(700_000, first_id=1_000), host(MS)
SAME_IDS = host(700_000)


@pytest.mark.parametrize(
    ("planes", "own"),
    [
        ((CHIEF, WORKER, gpu(MS)), 1),
        ((gpu(MS), WORKER, CHIEF), 0),
        ((SAME_IDS, WORKER, gpu(MS)), 1),
        ((gpu(MS), WORKER, SAME_IDS), 0),
        ((metadata, SAME_IDS, metadata, gpu(MS), WORKER), 1),
        ((WORKER, gpu(MS), environment, SAME_IDS, environment), 0),
    ],
)
def test_a_host_without_a_device_takes_no_part_in_the_steps_of_the_others(
    file: Path, planes: tuple[Write, ...], own: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(file, *planes, hostnames=("worker", "chief") if own == 0 else ("chief", "worker"))
    trace = traces.read(path, strict=True)
    assert [device.plane for device in trace.devices] == ["worker /device:GPU:0"]
    assert launchers(trace, 0) == {own}
    assert trace.warnings == ()
    found = boundaries.periods(trace, 0)
    assert (found.missing_ratio, found.notes) == (0.0, ())
    assert (found.end_ns - found.start_ns).tolist() == [MS - 10_000] * STEPS
    assert report(path, capsys)["time"]["step_ns"] == MS


@pytest.mark.parametrize("first_id", [1, 1_000])
@pytest.mark.parametrize("device_first", [False, True])
def test_each_device_is_launched_and_its_steps_are_marked_by_its_own_host(
    file: Path, first_id: int, device_first: bool
) -> None:
    one = (host(MS), gpu(MS))
    two = (host(2 * MS, first_id=first_id), gpu(2 * MS, 1, first_id=first_id))
    order = slice(None, None, -1) if device_first else slice(None)
    planes = (*one[order], environment, *two[order], environment)
    trace = traces.read(write(file, *planes), strict=True)
    assert [device.plane for device in trace.devices] == ["one /device:GPU:0", "two /device:GPU:1"]
    for device, period in enumerate((MS, 2 * MS)):
        assert launchers(trace, device) == {device}
        found = boundaries.periods(trace, device)
        assert (found.end_ns - found.start_ns).tolist() == [period - 10_000] * STEPS


def test_hosts_as_merge_xprof_writes_them_into_one_file(file: Path) -> None:
    """That script of tpu-inference gives the rank of a process within its host to planes without a number."""
    one, two = (host(period, plane="/host:CPU 0") for period in (MS, 2 * MS))
    trace = traces.read(write(file, one, gpu(MS), two, gpu(2 * MS)), strict=True)
    assert [device.plane for device in trace.devices] == ["one /device:GPU:0", "two /device:GPU:0"]
    assert [launchers(trace, device) for device in (0, 1)] == [{0}, {1}]


@pytest.mark.parametrize(
    "planes",
    [
        (SAME_IDS, gpu(MS), WORKER),  # of the host before it, or of that behind it
        (WORKER, gpu(MS), CHIEF),
        (gpu(MS), WORKER, gpu(MS)),
        (gpu(MS), gpu(2 * MS), host(MS), host(2 * MS)),  # device by device, then host by host
        (gpu(MS), environment, gpu(2 * MS, 1), host(MS), environment),  # a host that was not recorded
    ],
)
def test_where_nothing_tells_the_host_no_launch_is_joined_and_that_is_said(
    file: Path, planes: tuple[Write, ...]
) -> None:
    trace = traces.read(write(file, *planes), strict=True)
    (warning,) = (each for each in trace.warnings if "byte for byte" not in each)
    assert "joined with the work of unknown host /device:GPU:0" in warning
    assert "their planes do not stand host by host. Read each host's own file" in warning
    assert {device.host for device in trace.devices} == {-1}
    assert (trace.kernels.launch == -1).all()
    assert all(calls(trace, device) is None for device in range(len(trace.devices)))


def test_kernels_without_ids_are_of_the_host_that_lies_with_them(file: Path) -> None:
    planes = (host(MS), gpu(MS, first_id=0), environment, host(700_000), environment)
    trace = traces.read(write(file, *planes), strict=True)
    assert trace.devices[0].host == 0
    found = calls(trace, 0)
    assert found.start_ns.tolist() == [MS * (step + 1) for step in range(STEPS)]


def test_devices_without_work_are_of_the_host_that_lies_with_them(file: Path) -> None:
    def idle(space: Space) -> None:
        space.plane("/device:GPU:1")
        space.plane("/device:GPU:2")

    trace = traces.read(write(file, CHIEF, environment, gpu(MS), idle, WORKER, environment), strict=True)
    assert [device.plane for device in trace.devices] == [f"two /device:GPU:{n}" for n in range(3)]
    assert {device.host for device in trace.devices} == {1}
    assert trace.warnings == ()


def test_what_waits_for_input_on_another_host_explains_no_idle_time(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = host(MS, first_id=1_000, input_ns=300_000)
    path = write(file, WORKER, gpu(MS), environment, other, environment)
    slices = {each["class"]: each["ns_per_step"] for each in report(path, capsys)["time"]["slices"]}
    assert slices.get("idle_input", 0) == 0


def test_a_machine_may_have_two_host_planes(file: Path) -> None:
    trace = traces.read(
        write(file, gpu(MS), host(MS), host(MS, first_id=1_000), hostnames=("one",)), strict=True
    )
    assert trace.thread_hosts == ()
    assert launchers(trace, 0) == {0}
    assert [device.plane for device in trace.devices] == ["/device:GPU:0"]


@pytest.mark.parametrize("hostnames", [(), ("same",), ("one", "two")])
@pytest.mark.parametrize("times", [2, 3])
def test_a_profile_that_is_in_the_file_twice_is_read_once(
    file: Path, hostnames: tuple[str, ...], times: int
) -> None:
    once = write(file, gpu(MS), host(MS), environment, hostnames=()).read_bytes()
    names = Space(hostnames=list(hostnames)).to_bytes()
    file.write_bytes(once)
    alone = traces.read(file, strict=True)
    file.write_bytes(once * times + names)
    trace = traces.read(file, strict=True)
    said = "twice" if times == 2 else "3 times"
    assert not trace.warnings
    assert trace.notes == (f"the file holds the same profile {said}, byte for byte: it was read once",)
    assert trace.kernels.start_ns.tolist() == alone.kernels.start_ns.tolist()
    assert len(trace.host) == len(alone.host)
    assert [device.plane for device in trace.devices] == ["/device:GPU:0"]


def test_a_profile_of_a_processor_that_is_in_the_file_twice_is_read_once(file: Path) -> None:
    space = Space()
    line = space.plane("/host:CPU").line(5, "tf_Compute/5", 1_000)
    line.event("dense/MatMul:MatMul", 2_000, 300)
    file.write_bytes(space.to_bytes() * 2)
    trace = traces.read(file)
    assert trace.kernels.duration_ns.tolist() == [300]
    assert not trace.warnings
    assert len(trace.notes) == 1


def test_the_other_profiles_keep_their_names(file: Path) -> None:
    one, two = (gpu(MS), host(MS), environment), (gpu(2 * MS), host(2 * MS), environment)
    trace = traces.read(write(file, *one, *one, *two, hostnames=("one", "one", "two")), strict=True)
    assert [device.plane for device in trace.devices] == ["one /device:GPU:0", "two /device:GPU:0"]
    assert [launchers(trace, device) for device in (0, 1)] == [{0}, {1}]


def test_one_plane_that_repeats_beside_others_is_counted_and_said(file: Path) -> None:
    trace = traces.read(write(file, gpu(MS), host(MS), gpu(MS), host(2 * MS)))
    assert len(trace.kernels) == 2 * STEPS * KERNELS
    assert trace.warnings[0].startswith("plane /device:GPU:0 is in the file twice, byte for byte")
