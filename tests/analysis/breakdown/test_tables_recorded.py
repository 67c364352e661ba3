"""Tables of real accelerator traces: sums that agree with the file, nothing claimed that did not run."""

from __future__ import annotations

from collections import defaultdict

import pytest

from mpprof import traces
from mpprof.analysis.breakdown import tables
from mpprof.analysis.kernels import placement
from mpprof.analysis.layers.attribution import attribute
from mpprof.api import workflows
from tests.paths import NO_TRACES, SAMPLES, SHARED

XPLANES = sorted(path.relative_to(SHARED).as_posix() for path in SHARED.glob("*/*.xplane.pb"))


@pytest.mark.skipif(not XPLANES, reason=NO_TRACES)
@pytest.mark.parametrize("name", XPLANES or ["none"])
def test_tables_of_a_recorded_trace(name: str) -> None:
    trace = traces.read(SHARED / name)
    placements, ownership = placement.place(trace), attribute(trace)
    rows = tables.kernels(trace, placements, ownership, by_stream=True)
    whole, by_device = int(trace.kernels.duration_ns.sum()), defaultdict(float)
    assert sum(row["total_ns"] for row in rows) == whole > 0
    for row in rows:
        by_device[row["device"]] += row["ratio"]
    assert all(ratio == pytest.approx(1) for ratio in by_device.values())
    for table in (tables.kernels, tables.ops, tables.layers):
        assert sum(row["total_ns"] for row in table(trace, placements, ownership)) == whole
    if name.startswith(("mi300", "gtx1080ti")):
        assert not [row for row in rows if row["placement"] == "tensor_core"]


@pytest.mark.skipif(not XPLANES, reason=NO_TRACES)
def test_the_v100_window_holds_copies_and_no_matrix_product() -> None:
    trace = traces.read(SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb")
    placements, ownership = placement.place(trace), attribute(trace)
    rows = tables.kernels(trace, placements, ownership)
    copies = [row for row in rows if row["name"].startswith("Memcpy")]
    assert {row["name"] for row in copies} >= {"MemcpyH2D"}
    assert {row["device"] for row in rows if row not in copies} == {"/device:GPU:4", "/device:GPU:6"}
    ops = tables.ops(trace, placements, ownership)
    assert not any(row["matmul_ns"] or row["tensor_core_ratio"] is not None for row in ops)


def test_ops_that_ran_on_the_host_have_no_share_of_tensor_cores() -> None:
    analysis = workflows.analyse(workflows.load(SAMPLES / "recorded-cpu-mixed-float16"))
    for kind in ("ops", "layers"):
        rows = workflows.rows_of(analysis, kind)
        assert sum(row["matmul_ns"] > 0 for row in rows) > 2
        assert {row["tensor_core_ratio"] for row in rows} == {None}
