"""The xplane reader on written-out cases (synthetic: laid out as the collectors' source shows)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.model.trace import CopyKind, HostKind, Trace, WorkKind
from tests.builders.allocations import Allocator
from tests.builders.xspace import Line, Plane, Ref, Space, tagged_bytes, tagged_varint


def gpu(space: Space, ordinal: int = 0, **stats: int | str) -> Plane:
    plane = space.plane(f"/device:GPU:{ordinal}", ordinal)
    plane.stats |= stats
    return plane


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def run(space: Space | bytes, name: str = "host.xplane.pb") -> Trace:
        path = tmp_path / name
        path.write_bytes(space if isinstance(space, bytes) else space.to_bytes())
        return traces.read(path)

    return run


def names(trace: Trace, column: np.ndarray) -> list[str | None]:
    return [trace.strings[row] if row >= 0 else None for row in column.tolist()]


def op_names(trace: Trace, column: np.ndarray) -> list[str | None]:
    return [trace.ops[row].name if row >= 0 else None for row in column.tolist()]


def test_device_facts_come_from_the_planes_stats(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(
        space, 3, device_vendor="Nvidia", gpu_device_name="NVIDIA H100", clock_rate=1_980_000, core_count=132,
        memory_size=85 * 10**9, memory_bandwidth=3_352 * 10**9, compute_cap_major=9, compute_cap_minor=0,
    )  # fmt: skip
    gpu(space, 4, device_vendor="AMD")
    gpu(space, 5)
    space.plane("/device:TPU:0")
    trace = read(space)
    nvidia, amd, unstated, tpu = (d.facts for d in trace.devices)
    assert trace.devices[0].ordinal == 3
    assert (nvidia.vendor, nvidia.name, nvidia.compute_capability) == ("nvidia", "NVIDIA H100", (9, 0))
    assert (nvidia.sm_count, nvidia.sm_clock_khz, nvidia.memory_bytes) == (132, 1_980_000, 85 * 10**9)
    assert nvidia.memory_bandwidth_bytes_per_s == 3_352e9
    assert (amd.vendor, amd.compute_capability, amd.memory_bytes) == ("amd", None, None)
    assert unstated.vendor == "unknown"
    assert (tpu.kind, tpu.vendor) == ("tpu", "google")


def test_derived_lines_are_told_by_id_and_by_name_and_never_counted(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    plane = gpu(space)
    plane.line(7, "Stream #7(Compute)").event("kernel", 100, 10)
    lines = (
        (-559038734, "TensorFlow Ops"), (0xDEADBEEF + 5, "anything"), (3, "XLA Ops"), (4, "XLA Ops - from #7"),
    )  # fmt: skip
    for id, name in lines:
        plane.line(id, name).event("kernel", 100, 10)
    steps = plane.line(-559038737, "Steps")
    steps.event("12", 90, 100, {"group_id": 0, "step_name": "12"})
    trace = read(space)
    assert [s.name for s in trace.streams] == ["Stream #7(Compute)"]
    assert trace.kernels.duration_ns.tolist() == [10]
    assert trace.markers.number.tolist() == [12]
    assert names(trace, trace.markers.family) == ["steps_line"]
    assert trace.markers.device.tolist() == [0]


def test_a_steps_line_whose_numbers_stand_only_in_step_name(read) -> None:  # type: ignore[no-untyped-def]
    """As TensorFlow 2.5 to 2.13 write it: the event is called "0", its step_name is a text met nowhere else."""
    space = Space()
    plane = gpu(space)
    plane.line(7, "Stream #7(Compute)").event("kernel", 100, 10)
    steps = plane.line(-559038737, "Steps")
    for n, number in enumerate(("31", "32")):
        steps.event(str(n), 90 + 100 * n, 100, {"group_id": n, "step_name": number})
    trace = read(space)
    assert trace.markers.number.tolist() == [31, 32]


def test_ops_in_every_spelling(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    stream = gpu(space).line(7, "Stream #7(Compute)")
    stream.event("new", 0, 5, {"tf_op": Ref("a/dense/MatMul:MatMul"), "tensor_shapes": "(half[8,8])"})
    old = {
        "annotation": "a/conv:Conv2D#shape=(half[1])#",
        "level 0": Ref("a/conv:Conv2D"),
        "shape": Ref("(half[1])"),
    }
    stream.event("old", 10, 5, old)
    stream.event("older", 20, 5, {"annotation": Ref("a/old:Relu#shape=(float[1])#")})
    xla = {"tf_op": Ref("XlaModule:"), "hlo_op": Ref("fusion.3"), "hlo_module": Ref("jit_f"), "program_id": 4}
    stream.event("fusion_3", 30, 5, xla | {"name": Ref("jit(f)/jvp(dense)/dot_general")})
    stream.event("fusion_4", 40, 5, xla | {"hlo_op": Ref("fusion.4")})
    stream.event("nameless", 50, 5)
    trace = read(space)
    assert op_names(trace, trace.kernels.op) == [
        "a/dense/MatMul", "a/conv", "a/old", "jit(f)/jvp(dense)/dot_general", "fusion.4", None,
    ]  # fmt: skip
    assert [trace.ops[row].type for row in trace.kernels.op[:3]] == ["MatMul", "Conv2D", "Relu"]
    assert names(trace, trace.kernels.shapes)[:3] == ["(half[8,8])", "(half[1])", None]


def test_stats_of_the_event_metadata_count_where_the_event_has_none(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    plane = space.plane("/device:TPU:0")
    line = plane.line(1, "XLA Ops")
    line.event("while.1", 0, 100)
    line.event("fusion.2", 10, 20)
    line.event("fusion.2", 40, 20)
    plane.line(2, "Steps")
    body = space.to_bytes()
    # the builder writes no stats of metadata: add an entry for `fusion.2` that has one (the last one counts)
    entry = tagged_varint(1, plane.event_id("fusion.2")) + tagged_bytes(2, b"fusion.2")
    stat = tagged_bytes(5, plane.stat("tf_op", "jit(f)/dot_general"))
    raw = plane.to_bytes() + tagged_bytes(
        4, tagged_varint(1, plane.event_id("fusion.2")) + tagged_bytes(2, entry + stat)
    )
    assert len(raw) > len(body) - 10
    trace = read(tagged_bytes(1, raw))
    assert op_names(trace, trace.kernels.op) == ["jit(f)/dot_general"] * 2  # and the loop is no kernel
    assert [s.name for s in trace.streams] == ["XLA Ops"]


def test_copies_and_sets(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    stream = gpu(space).line(7, "Stream #7")
    stream.event("MemcpyH2D", 0, 5, {"memcpy_details": "size:6144 dest:4 async:1"})
    stream.event(
        "MemcpyD2H", 10, 5, {"memcpy_details": Ref("kind_src:device kind_dst:pageable size:8 dest:0 async:1")}
    )
    stream.event(
        "Memcpy", 20, 5, {"memcpy_details": "kind_src:device kind_dst:device size:64 dest:0 async:1"}
    )
    stream.event(
        "MemcpyP2P", 30, 5, {"memcpy_details": "kind_src:device kind_dst:device size:9 dest:1 async:1"}
    )
    stream.event("Memset", 40, 5, {"memset_details": "kind:device num_bytes:4096 async:1"})
    stream.event("memcpy_like_kernel", 50, 5, {"kernel_details": "regs:8"})
    kernels = read(space).kernels
    copy, memset, kernel = WorkKind.MEMCPY, WorkKind.MEMSET, WorkKind.KERNEL
    assert kernels.kind.tolist()[:5] == [copy, copy, copy, copy, memset]
    assert kernels.bytes.tolist()[:5] == [6144, 8, 64, 9, 4096]
    assert kernels.copy.tolist()[:5] == [
        CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_HOST, CopyKind.DEVICE_TO_DEVICE, CopyKind.PEER, CopyKind.NONE,
    ]  # fmt: skip
    assert (kernels.kind[5], kernels.bytes[5], kernels.copy[5]) == (kernel, -1, CopyKind.NONE)


def launch(line: Line, name: str, at: int, correlation: int) -> None:
    line.event(name, at, 4, {"correlation_id": correlation})


def test_kernels_find_their_launch_whatever_it_is_called(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    device = gpu(space)
    stream = device.line(7, "Stream #7")
    thread = space.plane("/host:CPU").line(1, "python")
    thread.event("a/dense/MatMul:MatMul", 0, 50, display="MatMul")
    launch(thread, "cuLaunchKernel", 10, 1)
    launch(thread, "my_fusion", 60, 2)  # newer XLA: the launch bears the kernel's name
    launch(thread, "cuMemcpyHtoDAsync_v2", 70, 3)
    launch(thread, "hipMemcpyDtoHAsync", 80, 4)
    for at, name, correlation in (
        (100, "k", 1),
        (110, "my_fusion", 2),
        (130, "__amd_rocclr_copyBuffer.kd", 4),
    ):
        stream.event(name, at, 5, {"correlation_id": correlation})
    stream.event("MemcpyH2D", 120, 5, {"correlation_id": 3, "memcpy_details": "size:1"})
    stream.event("lost", 140, 5, {"correlation_id": 99})
    trace = read(space)
    kernels, host = trace.kernels, trace.host
    assert names(trace, host.name[kernels.launch[:4]]) == [
        "cuLaunchKernel", "my_fusion", "cuMemcpyHtoDAsync_v2", "hipMemcpyDtoHAsync",
    ]  # fmt: skip
    assert kernels.launch[4] == -1
    assert host.kind[kernels.launch[:4]].tolist() == [
        HostKind.LAUNCH,
        HostKind.LAUNCH,
        HostKind.COPY,
        HostKind.COPY,
    ]
    assert op_names(trace, kernels.op)[:2] == ["a/dense/MatMul", None]  # the op event around the launch
    assert kernels.copy[3] == CopyKind.DEVICE_TO_HOST  # as the call says that enqueued it


def test_markers_of_every_family(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(space)
    thread = space.plane("/host:CPU").line(1, "python")
    thread.event("mpprof_step", 0, 10, {"step_num": 7})
    thread.event("train", 20, 10, {"step_num": 8, "_r": 1})
    thread.event("Profiled batch", 40, 10, {"step_num": 0})
    thread.event("Profiled batch 31", 60, 10)
    thread.event("other", 80, 10)
    trace = read(space)
    assert trace.markers.number.tolist() == [7, 8, 0, 31]
    assert names(trace, trace.markers.family) == ["mpprof", "tensorflow", "keras", "keras"]
    assert (trace.markers.end_ns - trace.markers.start_ns).tolist() == [10] * 4
    assert (trace.host.kind == HostKind.MARKER).sum() == 4
    thread.event("PjitFunction(f)", 90, 1)
    assert names(read(space), read(space).markers.family)[1] == "jax"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("cuLaunchKernel", HostKind.LAUNCH), ("cudaLaunchKernelExC_v11060", HostKind.LAUNCH),
        ("cuGraphLaunch", HostKind.LAUNCH), ("hipExtModuleLaunchKernel", HostKind.LAUNCH),
        ("cuMemcpyHtoDAsync_v2", HostKind.COPY), ("cuMemsetD32Async", HostKind.COPY),
        ("cuMemcpyDtoH_v2", HostKind.SYNC), ("cuStreamSynchronize", HostKind.SYNC),
        ("hipDeviceSynchronize", HostKind.SYNC), ("CommonPjRtBuffer::Await", HostKind.SYNC),
        ("IteratorGetNextOp::DoCompute", HostKind.INPUT), ("EagerLocalExecute: IteratorGetNext", HostKind.INPUT),
        ("Iterator::Root::Prefetch", HostKind.INPUT_PIPELINE), ("ParallelMapProduce", HostKind.INPUT_PIPELINE),
        ("ExecutorState::Process", HostKind.EXECUTOR), ("PjitFunction(train_step)", HostKind.EXECUTOR),
        ("cpp_pjit_shard_arg_fallback", HostKind.EXECUTOR), ("shard_args", HostKind.EXECUTOR),
        ("shard_args_of_my_own", HostKind.OTHER), ("XlaCompile", HostKind.COMPILE), ("backend_compile", HostKind.COMPILE),
        ("model/dense/MatMul:MatMul", HostKind.OP), ("$profiler.py:101 start_trace", HostKind.OTHER),
        ("my own annotation", HostKind.OTHER),
    ],
)  # fmt: skip
def test_host_events_are_told_by_name(name: str, kind: HostKind, read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(space)
    space.plane("/host:CPU").line(1, "python").event(name, 0, 10)
    assert HostKind(int(read(space).host.kind[0])) is kind


def test_host_events_are_told_by_thread_and_by_tracing(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(space)
    host = space.plane("/host:CPU")
    host.line(1, "tf_data_private_threadpool/1").event("GatherV2:GatherV2", 0, 10, display="GatherV2")
    fetching = host.line(2, "tf_data_iterator_get_next/2")
    fetching.event("Iterator::Root", 0, 10)
    # Goes on with the step: nobody waits for input.
    fetching.event("ExecutorState::ProcessAsync::Done", 20, 900)
    main = host.line(3, "python")
    main.event("train_step", 0, 10, {"tf_function_call": Ref("traced-nonXla")})
    main.event("train_step", 20, 10, {"tf_function_call": Ref("notTraced-nonXla")})
    kinds = read(space).host.kind.tolist()
    assert kinds[:3] == [HostKind.INPUT_PIPELINE, HostKind.INPUT, HostKind.EXECUTOR]
    assert kinds[3] == HostKind.COMPILE
    assert kinds[4] != HostKind.COMPILE


def test_lines_of_one_thread_are_one_thread_parents_first(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(space)
    host = space.plane("/host:CPU")
    one = host.line(1, "python")
    one.event("child", 10, 5)
    one.event("parent", 10, 20)
    host.line(2, "other").event("elsewhere", 0, 5)
    host.line(1, "python").event("earlier", 3, 2)
    trace = read(space)
    assert trace.threads == ("python", "other")
    assert names(trace, trace.host.name) == ["earlier", "parent", "child", "elsewhere"]


def test_allocator_events_with_their_stats(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(space)
    line = space.plane("/host:CPU").line(1, "python")
    sizes = {"bytes_allocated": 900, "peak_bytes_in_use": 950, "bytes_reserved": 0, "bytes_available": 50}
    stats = {
        "allocator_name": Ref("GPU_0_bfc"), "requested_bytes": 90, "allocation_bytes": 256, "addr": 2**63 - 8,
        "tf_op": "a/b:MatMul", "data_type": 19, "tensor_shapes": "[8,8]", "region_type": Ref("dynamic"),
    }  # fmt: skip
    line.event(
        "MemoryDeallocation", 50, 0, {"allocator_name": "GPU_0_bfc", "tf_op": "(null)", "data_type": 0}
    )
    line.event("MemoryAllocation", 10, 0, sizes | stats)
    trace = read(space)
    table = trace.allocations
    assert table.time_ns.tolist() == [10, 50]
    assert table.free.tolist() == [False, True]
    assert table.bytes.tolist() == [256, -1]
    assert (table.live_bytes[0], table.peak_bytes[0], table.available_bytes[0]) == (900, 950, 50)
    assert (table.reserved_bytes.tolist(), table.address[0]) == ([0, -1], 2**63 - 8)
    assert names(trace, table.dtype) == ["half", None]
    assert names(trace, table.shapes) == ["[8,8]", None]
    assert names(trace, table.region) == ["dynamic", None]
    assert names(trace, table.allocator) == ["GPU_0_bfc"] * 2
    assert op_names(trace, table.op) == ["a/b", None]
    assert not len(trace.host)


def test_times_count_from_the_start_of_the_profile_or_from_1970(read) -> None:  # type: ignore[no-untyped-def]
    start = 1_700_000_000_000_000_000
    for stamp, environment, origin in ((500, True, start), (start + 500, True, start), (500, False, None)):
        space = Space()
        gpu(space).line(7, "Stream #7", stamp).event("k", stamp + 20, 5)
        if environment:
            space.plane("Task Environment").stats["profile_start_time"] = start
        trace = read(space)
        assert (trace.origin_unix_ns, trace.kernels.start_ns.tolist()) == (origin, [520])


def test_a_stat_that_names_no_id_is_the_one_with_id_zero(read) -> None:  # type: ignore[no-untyped-def]
    start = 1_700_000_000_000_000_000
    space = Space()
    gpu(space).line(7, "Stream #7").event("k", start + 20, 5)
    environment = tagged_bytes(2, b"Task Environment") + tagged_bytes(6, tagged_varint(3, start))
    environment += tagged_bytes(5, tagged_bytes(2, tagged_bytes(2, b"profile_start_time")))
    assert read(space.to_bytes() + tagged_bytes(1, environment)).origin_unix_ns == start


def test_what_the_profiler_says_of_itself_is_passed_on(read) -> None:  # type: ignore[no-untyped-def]
    space = Space(errors=["CUPTI could not be loaded"], warnings=["too many events"], hostnames=["worker-3"])
    gpu(space)
    trace = read(space)
    assert "the profiler's own error: CUPTI could not be loaded" in trace.warnings
    assert "the profiler's own warning: too many events" in trace.warnings
    assert trace.source.host == "worker-3"


def test_odd_numbers_are_clipped_and_said(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    plane = gpu(space)
    line = plane.line(7, "Stream #7")
    k = tagged_varint(1, plane.event_id("k"))
    line.events.append(tagged_bytes(4, k + tagged_varint(2, 5_000_000) + tagged_varint(3, -7_000)))
    line.events.append(tagged_bytes(4, k + tagged_varint(2, 2**63 - 1) + tagged_varint(3, 2**63 - 1)))
    line.events.append(tagged_bytes(4, k + tagged_varint(5, 12) + tagged_varint(3, 9_000)))  # only counted
    line.events.append(
        tagged_bytes(4, tagged_varint(1, 999) + tagged_varint(2, 1_500) + tagged_varint(3, 1_500))
    )
    trace = read(space)
    assert trace.kernels.start_ns.tolist()[:2] == [1, 5000]  # time may go backwards in a file: it is sorted
    assert trace.kernels.duration_ns.tolist()[:2] == [2, 0]  # 1.5 to 3 us: both ends are rounded down
    assert trace.kernels.duration_ns.min() >= 0
    said = " ".join(trace.warnings)
    for words in ("negative duration", "names of 1 events"):
        assert words in said
    assert trace.notes == ("plane /device:GPU:0: 1 events only count occurrences and were left out",)


def test_text_that_is_no_utf8_and_ids_of_any_size(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    plane = gpu(space)
    plane.line(7, "Stream #7").event("placeholder", 0, 5)
    huge = 2**62 + 1
    event = tagged_bytes(4, tagged_varint(1, huge) + tagged_varint(2, 9_000) + tagged_varint(3, 1_000))
    meta = tagged_varint(1, huge) + tagged_bytes(2, b"caf\xe9")
    raw = plane.to_bytes() + tagged_bytes(3, tagged_varint(1, 8) + tagged_bytes(2, b"Stream #8") + event)
    raw += tagged_bytes(4, tagged_varint(1, huge) + tagged_bytes(2, meta))
    trace = read(tagged_bytes(1, raw))
    assert names(trace, trace.kernels.name) == ["placeholder", "caf�"]


def test_an_accelerator_without_events_is_a_device_trace_without_kernels(read) -> None:  # type: ignore[no-untyped-def]
    space = Space()
    gpu(space)
    space.plane("/host:CPU").line(1, "tf_Compute").event("a/b:MatMul", 0, 5, display="MatMul")
    trace = read(space)
    assert (trace.basis, len(trace.kernels), len(trace.host)) == ("device", 0, 1)


def test_allocator_events_name_their_thread(read) -> None:  # type: ignore[no-untyped-def]
    """Also where the rows of two threads are put in the order of time."""
    space = Space()
    plane = space.plane("/host:CPU")
    pool, executor = plane.line(1, "tf_data_private_threadpool/1"), plane.line(2, "tf_Compute/2")
    mine = Allocator(executor, "mklcpu")
    mine.allocate(30, 4096, 100, "GatherV2", on=pool)
    mine.allocate(20, 8192, 100, "d/MatMul")
    mine.free(40, 4096)
    trace = read(space)
    assert [trace.threads[row] for row in trace.allocations.thread.tolist()] == [
        "tf_Compute/2", "tf_data_private_threadpool/1", "tf_Compute/2",
    ]  # fmt: skip
