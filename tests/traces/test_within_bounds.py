"""Traces of more kernels, ops, devices and allocators than there are: what is beyond a bound is one, and said."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.memory import blocks
from mpprof.model import limits
from mpprof.model.trace import Trace
from mpprof.traces.nsys.sqlite import opened
from tests.builders.xspace import Space
from tests.fuzz.heavy import BY_NAME
from tests.fuzz.targets import check
from tests.traces.test_nsys import export


def space(tmp_path: Path, *, kernels: int = 5, host_ops: int = 0) -> Path:
    """Kernels of 1, 2, … µs, each of its own name and op, twice; and ops of the host."""
    made = Space()
    device = made.plane("/device:GPU:0").line(7, "Stream #7(Compute)")
    for n in range(2 * kernels):
        op = {"tf_op": f"model/dense_{n % kernels}/MatMul:MatMul"}
        device.event(f"kernel_{n % kernels}", 100_000 * n, 1000 * (1 + n % kernels), op)
    host = made.plane("/host:CPU").line(1, "tf_Compute/1")
    for n in range(host_ops):
        host.event(f"model/host_{n}/Relu:Relu", 1000 * n, 10)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(made.to_bytes())
    return path


def names(trace: Trace) -> Counter[str]:
    return Counter(trace.strings[row] for row in trace.kernels.name.tolist())


def test_the_longest_kernels_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = space(tmp_path)
    whole = traces.read(path)
    assert not whole.warnings
    monkeypatch.setattr(limits, "MOST_KERNELS", 3)
    trace = traces.read(path)
    check(trace)
    assert names(trace) == {"kernel_2": 2, "kernel_3": 2, "kernel_4": 2, "(other kernels)": 4}
    assert (trace.kernels.duration_ns == whole.kernels.duration_ns).all()
    other = trace.kernels.name == trace.strings.index("(other kernels)")
    assert (trace.kernels.op[other] == -1).all()
    assert trace.warnings == (
        "the 3 longest of 5 kernels that differ in name, op or shapes are kept apart; the others, 20.0 % of "
        "the kernels' time, are one",
    )


def test_ops_of_kernels_come_before_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = space(tmp_path, host_ops=20)
    whole = traces.read(path)
    monkeypatch.setattr(limits, "MOST_OPS", 7)
    trace = traces.read(path)
    check(trace)
    assert len(whole.ops) == 25
    assert len(trace.ops) == 7
    of = [[each.ops[op].name for op in each.kernels.op.tolist()] for each in (trace, whole)]
    assert of[0] == of[1]
    assert np.count_nonzero(trace.host.op >= 0) == 2
    assert trace.warnings == ("7 of 25 ops are kept; events of the others name no op",)


def test_of_very_many_instructions_the_first_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    BY_NAME["a computation for each fusion"].write(path := tmp_path / "host.xplane.pb", 10 * 210)
    whole = traces.read(path)
    monkeypatch.setattr(limits, "MOST_INSTRUCTIONS", 4)
    trace = traces.read(path)
    check(trace)
    assert [sum(op.hlo is not None for op in each.ops) for each in (trace, whole)] == [4, 10]
    assert len(trace.ops) == len(whole.ops)
    assert not whole.warnings
    assert trace.warnings == (
        "the first 4 of 10 instructions of compiled programs that ran were read; shapes, types and FLOPs of "
        "the others are not known",
    )


def test_devices_beyond_any_machine_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = export(tmp_path / "w.sqlite")
    monkeypatch.setattr(limits, "MOST_DEVICES", 1)
    trace = traces.read(path)
    check(trace)
    assert [device.plane for device in trace.devices] == ["/device:GPU:0"]
    assert {stream.device for stream in trace.streams} == {0}
    assert len(trace.kernels) == 4
    assert "the first 1 of 2 devices were read" in trace.warnings


def test_allocators_with_most_events_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Space()
    line = made.plane("/host:CPU").line(1, "python")
    for n in (0, 1, 1, 2, 2, 2):
        stats = {"allocator_name": f"GPU_{n}_bfc", "bytes_allocated": 256, "allocation_bytes": 256, "addr": n}
        line.event("MemoryAllocation", 1000 * n, 0, stats)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(made.to_bytes())
    monkeypatch.setattr(limits, "MOST_GPUS", 2)
    found = blocks.allocators(traces.read(path))
    assert [(each.name, each.events) for each, _ in found] == [("GPU_1_bfc", 2), ("GPU_2_bfc", 3)]


def test_a_long_default_is_read_as_far_as_a_range_is_looked_at(tmp_path: Path) -> None:
    path = export(tmp_path / "w.sqlite")
    with sqlite3.connect(path) as db:
        db.execute("alter table NVTX_EVENTS drop column text")
        db.execute(f"alter table NVTX_EVENTS add column text text default '{'x' * 16_000}'")
    db.close()
    with opened(path) as database:
        assert {len(text) for text in database.column("NVTX_EVENTS", "text", 2000)} == {2000}
    check(traces.read(path))
