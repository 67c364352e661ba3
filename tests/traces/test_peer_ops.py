"""Ops and steps of device traces agree with XProf's; each test counts what it compared."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.model.trace import Trace, WorkKind
from tests.paths import SAMPLES
from tests.traces.conftest import V100, needs_shared, shared_xplanes, shared_xplanes_of_gpus
from tests.traces.peer import answer, steps_agree, xprof

STEPS = {"v100-8gpu-bert-fp16": 1}  # the other files hold no step marker, and XProf says so, too
ALIKE = {  # ops with equal time
    "jax08_attention": 5, "jax08_elementwise": 5, "jax08_gemm": 3, "jax_conv_minimal_08": 3,
    "te_fused_attention_gfx950": 5, "cyclops": 1,
}  # fmt: skip


def by_op(trace: Trace) -> dict[str, float]:
    """Microseconds per op's name."""
    total: dict[str, float] = defaultdict(float)
    for op, duration in zip(trace.kernels.op.tolist(), trace.kernels.duration_ns.tolist(), strict=True):
        if op >= 0:
            total[trace.ops[op].name] += duration / 1e3
    return total


@needs_shared()
@pytest.mark.parametrize("path", [p for p in shared_xplanes_of_gpus() if p != V100], ids=lambda p: p.name)
def test_device_ops_agree_with_xprof(path: Path, tmp_path: Path) -> None:
    """XProf counts everything twice: on the streams, and on the lines that it derives from them. It knows an
    instruction by its name alone, so equal names in several programs become one op; and it does not look for
    an op inside a fusion that has no name of its own. All else is equal, and the sum is."""
    trace = traces.read(path)
    theirs: dict[str, float] = defaultdict(float)
    for row in xprof(path, "framework_op_stats", tmp_path):
        if row["host_or_device"] == "Device" and row["operation"] != "IDLE":
            theirs[str(row["operation"])] += float(row["total_self_time"])  # type: ignore[arg-type]
    ours = by_op(trace)
    assert sum(theirs.values()) == pytest.approx(2 * sum(ours.values()), rel=1e-9)
    assert sum(theirs.values()) > 0, "an empty answer is no agreement"
    programs: dict[str, set[str]] = defaultdict(set)
    for op in trace.ops:
        if op.hlo:
            programs[op.hlo.name].add(op.hlo.module)
    otherwise = set()  # what XProf has under another name
    for op in trace.ops:
        if op.hlo and (len(programs[op.hlo.name]) > 1 or not op.hlo.op_name):
            otherwise |= {op.name, op.hlo.name}
    alike = {name for name in ours if theirs.get(name) == pytest.approx(2 * ours[name], rel=1e-6)}
    assert not (ours.keys() | theirs.keys()) - alike - otherwise
    assert len(alike) == ALIKE[path.name.partition(".")[0]]


@needs_shared()
@pytest.mark.parametrize("path", shared_xplanes_of_gpus(), ids=lambda p: p.name)
def test_kernels_survive_the_export_for_the_trace_viewer(path: Path, tmp_path: Path) -> None:
    """XProf's export holds the streams and, beside them, lines derived from each, which are not counted."""
    export = tmp_path / f"{path.name.partition('.')[0]}.trace.json"
    export.write_text(json.dumps(answer(path, "trace_viewer", tmp_path)))
    whole, exported = traces.read(path), traces.read(export)

    def kernels(trace: Trace) -> Counter[tuple[int, str, float]]:
        table = trace.kernels
        rows = zip(table.device.tolist(), table.name.tolist(), table.duration_ns.tolist(), strict=True)
        return Counter((trace.devices[row].ordinal, trace.strings[name], ns) for row, name, ns in rows)

    assert {stream.name for stream in exported.streams} == {
        whole.streams[row].name for row in np.unique(whole.kernels.stream)
    }
    assert kernels(exported) == kernels(whole)
    assert len(exported.kernels) > 0


@needs_shared()
def test_ops_of_the_v100_agree_with_the_line_that_a_converter_derived(tmp_path: Path) -> None:
    """Of this file XProf's op statistics say nothing but "IDLE"; its own line of ops is in the file."""
    rows = xprof(V100, "framework_op_stats", tmp_path)
    assert {row["operation"] for row in rows if row["host_or_device"] == "Device"} == {"IDLE"}
    events = answer(V100, "trace_viewer", tmp_path)["traceEvents"]
    process = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
    lines = {
        (e["pid"], e["tid"])
        for e in events
        if e.get("name") == "thread_name" and e["args"]["name"] == "TensorFlow Ops"
    }
    theirs: Counter[tuple[str, str]] = Counter()
    time: dict[tuple[str, str], float] = defaultdict(float)
    for event in events:
        if event.get("ph") == "X" and (event["pid"], event["tid"]) in lines:
            key = process[event["pid"]], event["name"]
            theirs[key] += 1
            time[key] += event["dur"]
    trace = traces.read(V100)
    ours: Counter[tuple[str, str]] = Counter()
    mine: dict[tuple[str, str], float] = defaultdict(float)
    for row in np.flatnonzero(trace.kernels.kind == WorkKind.KERNEL).tolist():
        plane = trace.devices[trace.kernels.device[row]].plane
        key = plane, trace.ops[trace.kernels.op[row]].type
        ours[key] += 1
        mine[key] += trace.kernels.duration_ns[row] / 1e3
    assert ours == theirs
    assert ours.total() == 1330
    for key, microseconds in mine.items():
        assert time[key] == pytest.approx(microseconds, abs=0.002 * ours[key]), key


@needs_shared()
@pytest.mark.parametrize("path", shared_xplanes(), ids=lambda p: p.name)
def test_steps_agree_with_xprof(path: Path, tmp_path: Path) -> None:
    assert steps_agree(traces.read(path), path, tmp_path) == STEPS.get(path.parent.name, 0)


@pytest.mark.parametrize("name", ["recorded-cpu-float32", "recorded-cpu-mixed-float16"])
def test_steps_of_the_samples_agree_with_xprof(name: str, tmp_path: Path) -> None:
    (path,) = (SAMPLES / name).glob("plugins/profile/*/*.xplane.pb")
    assert steps_agree(traces.read(path), path, tmp_path) == 5
