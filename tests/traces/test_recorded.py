"""Recorded traces, ours and others', and their agreement with XProf."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.model.trace import CopyKind, HostKind, Trace, WorkKind
from mpprof.traces.common import walk, walk_reference
from tests.paths import SHARED
from tests.traces.conftest import V100, needs_shared, shared_xplanes, shared_xplanes_of_gpus
from tests.traces.peer import events_agree, ops_agree, steps_agree, xprof
from tests.traces.test_damage import check

Record = Callable[[str, str, bool], Path]


def kernels_by_name(trace: Trace) -> dict[str, tuple[int, int]]:
    """Count and total ns of what carries kernel details, which is what XProf counts as kernels."""
    kernels = trace.kernels
    detailed = np.array(["grid:" in text for text in trace.strings] + [False])
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for row in np.flatnonzero(detailed[kernels.details]):
        found[trace.strings[kernels.name[row]]][0] += 1
        found[trace.strings[kernels.name[row]]][1] += int(kernels.duration_ns[row])
    return {name: (count, total) for name, (count, total) in found.items()}


@needs_shared()
@pytest.mark.parametrize("path", shared_xplanes_of_gpus(), ids=lambda p: p.parent.name + "/" + p.name)
def test_kernels_agree_with_xprof(path: Path, tmp_path: Path) -> None:
    theirs: dict[str, list[float]] = defaultdict(lambda: [0, 0.0])
    for row in xprof(path, "kernel_stats", tmp_path):
        theirs[str(row["kernel_name"])][0] += float(row["occurrences"])  # type: ignore[arg-type]
        theirs[str(row["kernel_name"])][1] += float(row["total_duration_us"])  # type: ignore[arg-type]
    ours = kernels_by_name(traces.read(path))
    assert sum(count for count, _ in theirs.values()) > 0, "an empty answer is no agreement"
    assert set(ours) == set(theirs)
    for name, (count, total_ns) in ours.items():
        assert count == theirs[name][0], name
        # XProf prints three decimals of a microsecond, rounded per row
        assert total_ns / 1e3 == pytest.approx(theirs[name][1], abs=0.001 * count + 0.002), name


@needs_shared()
@pytest.mark.parametrize("path", shared_xplanes(), ids=lambda p: p.parent.name + "/" + p.name)
def test_recorded_traces_are_read_whole(path: Path) -> None:
    trace = traces.read(path, strict=True)
    check(trace)
    assert trace.basis == "device"
    assert len(trace.kernels) > 0
    if trace.devices[0].facts.kind == "gpu":  # a TPU states no launches, and an op of few instructions
        assert (trace.kernels.launch >= 0).mean() > 0.9
        work = trace.kernels.kind == WorkKind.KERNEL
        assert (trace.kernels.op[work] >= 0).mean() > 0.9
    for device in range(len(trace.devices)):
        rows = trace.kernels.device == device
        own = [s for s, stream in enumerate(trace.streams) if stream.device == device]
        by_stream = sum(int(trace.kernels.duration_ns[trace.kernels.stream == s].sum()) for s in own)
        assert by_stream == int(trace.kernels.duration_ns[rows].sum())
        assert (np.diff(trace.kernels.start_ns[rows]) >= 0).all()


@needs_shared()
@pytest.mark.parametrize("path", [p for p in shared_xplanes() if "v100" not in str(p)], ids=lambda p: p.name)
def test_a_trace_is_the_same_without_the_extension(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = traces.read(path)
    monkeypatch.setattr(walk, "scan", walk_reference.scan)
    monkeypatch.setattr(walk, "fields", walk_reference.fields)
    monkeypatch.setattr(walk, "events", walk_reference.events)
    plain = traces.read(path)
    assert (plain.strings, plain.ops, plain.threads) == (compiled.strings, compiled.ops, compiled.threads)
    for table in ("kernels", "host", "markers", "allocations"):
        ours, theirs = getattr(compiled, table), getattr(plain, table)
        for column in ours.__slots__:
            assert np.array_equal(getattr(ours, column), getattr(theirs, column)), (table, column)


@needs_shared()
def test_v100_bert_has_two_gpus_with_kernels_and_one_with_copies() -> None:
    trace = traces.read(V100)
    kernels = trace.kernels
    assert len(trace.devices) == 8
    assert {d.facts.compute_capability for d in trace.devices} == {(7, 0)}
    with_kernels = {int(d) for d in kernels.device[kernels.kind == WorkKind.KERNEL]}
    assert {trace.devices[d].ordinal for d in with_kernels} == {4, 6}
    one = kernels.device == [d.ordinal for d in trace.devices].index(1)
    assert one.sum() == 19
    assert set(kernels.copy[one].tolist()) == {CopyKind.HOST_TO_DEVICE}
    assert (kernels.bytes[one] > 0).all()
    assert int((kernels.kind == WorkKind.KERNEL).sum()) == 2 * 665  # the derived lines repeat each of them
    half = [row for row in np.unique(kernels.shapes) if row >= 0 and "half" in trace.strings[row]]
    assert half
    assert trace.markers.number.tolist() == [0, 0]
    assert len(trace.allocations.time_ns) > 2000
    assert any(name.startswith("tf_gpu_private_4") for name in trace.threads)


@needs_shared()
def test_amd_traces_name_their_ops_and_copies() -> None:
    trace = traces.read(SHARED / "mi300-jax" / "jax08_gemm.xplane.pb")
    assert {d.facts.vendor for d in trace.devices} == {"amd"}
    dots = [op for op in trace.ops if op.name == "jit(dot)/dot_general" and op.hlo]
    assert {op.hlo.custom_call for op in dots if op.type == "custom-call"} == {"__cublas$gemm"}
    assert all(op.hlo.flops for op in dots)
    copies = trace.kernels.kind == WorkKind.MEMCPY  # AMD's runtime copies with kernels of its own
    assert set(trace.kernels.copy[copies].tolist()) == {CopyKind.HOST_TO_DEVICE, CopyKind.DEVICE_TO_DEVICE}


@pytest.mark.framework
@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_tensorflow_on_the_cpu_gives_leaf_ops(policy: str, record: Record, tmp_path: Path) -> None:
    path = record("tensorflow", policy, False)
    trace = traces.read(path, strict=True)
    check(trace)
    assert trace.basis == "host"
    assert trace.devices[0].facts.kind == "cpu"
    assert [n for n in trace.markers.number.tolist() if n >= 0] == [6, 7, 8]
    types = {trace.ops[row].type for row in trace.kernels.op.tolist()}
    assert any("MatMul" in t for t in types)
    assert not types & {"StatefulPartitionedCall", "If", "StatelessIf", "_Arg", "_Retval"}
    assert HostKind.INPUT in trace.host.kind
    assert HostKind.INPUT_PIPELINE in trace.host.kind
    assert not any(trace.ops[row].name.startswith("GatherV2") for row in trace.kernels.op.tolist())

    assert ops_agree(trace, path, tmp_path) > 50
    assert steps_agree(trace, path, tmp_path) == 3
    overlap_free(trace)


def overlap_free(trace: Trace) -> None:
    """On one stream no kernel holds another: nothing is counted twice."""
    for stream in range(len(trace.streams)):
        rows = trace.kernels.stream == stream
        start, end = trace.kernels.start_ns[rows], (trace.kernels.start_ns + trace.kernels.duration_ns)[rows]
        assert (start[1:] >= end[:-1] - 1).all()


@pytest.mark.framework
@pytest.mark.parametrize(
    ("backend", "policy"),
    [
        ("tensorflow", "mixed_float16"),
        ("jax", "mixed_float16"),
        pytest.param("jax", "float32", marks=pytest.mark.full),
    ],
)
def test_xla_on_the_cpu_gives_instructions_with_their_hlo(
    backend: str, policy: str, record: Record, tmp_path: Path
) -> None:
    path = record(backend, policy, True)
    trace = traces.read(path, strict=True)
    check(trace)
    assert trace.basis == "host"
    assert [n for n in trace.markers.number.tolist() if n >= 0] == [6, 7, 8]
    numbered = trace.markers.number >= 0
    assert set(np.array(trace.strings)[trace.markers.family][numbered].tolist()) == {"mpprof"}
    ops = [trace.ops[row] for row in trace.kernels.op.tolist()]
    assert len(ops) > 20
    assert all(op.hlo is not None for op in ops)
    assert {"dot", "convolution", "fusion"} <= {op.type for op in ops} | {"fusion"}
    scope = "my_dense"
    assert any(scope in op.name for op in ops), sorted({op.name for op in ops})
    assert not any(trace.strings[row].startswith("end: ") for row in trace.kernels.name.tolist())
    assert any(op.hlo.flops for op in ops if op.hlo)
    assert events_agree(trace, path, tmp_path) > 20
    assert steps_agree(trace, path, tmp_path) == 3
    if backend == "jax":  # the calls were made under the markers, what they started ran later
        launch = trace.kernels.launch
        assert {trace.strings[row] for row in trace.host.name[launch].tolist()} == {
            "PjitFunction(train_step)"
        }
        assert (trace.host.start_ns[launch] <= trace.kernels.start_ns).all()
        begun = trace.markers.start_ns[numbered]
        under = np.searchsorted(begun, trace.host.start_ns[launch], side="right") - 1
        assert np.bincount(under).tolist() == [len(trace.kernels) // 3] * 3
