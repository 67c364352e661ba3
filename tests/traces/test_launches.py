"""Correlation ids that several launches share: which call launched a kernel is not known then."""

from __future__ import annotations

import gzip
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.steps.boundaries import periods
from mpprof.model.trace import Trace
from tests.builders.xspace import Space
from tests.paths import NO_TRACES
from tests.traces.conftest import SHARED
from tests.traces.kineto import Kineto, small
from tests.traces.test_nsys import export

Change = Callable[[int], int]
"""What becomes of an id."""

SAID = "have a correlation id that several launches share"
CONTROL = SHARED / "a100-v100-torch/control_a100.json.gz"


def constant(value: int) -> Change:
    return lambda id: value


def half(id: int) -> int:
    return 7 if id % 2 else id


def with_ids(document: dict[str, Any], change: Change, *names: str) -> dict[str, Any]:
    """Change these arguments of all events in place, and return the document."""
    for event in document["traceEvents"]:
        args = event.get("args", {})
        args |= {name: change(int(args[name])) for name in names if name in args}
    return document


def read(tmp_path: Path, document: dict[str, Any]) -> Trace:
    path = tmp_path / "w.pt.trace.json"
    path.write_text(json.dumps(document))
    return traces.read(path)


def steps_ms(trace: Trace) -> list[float]:
    found = periods(trace, 0)
    return [float(ns) / 1e6 for ns in found.end_ns - found.start_ns]


@pytest.mark.parametrize("value", [0, 7])
def test_kineto_with_one_id_for_all_launches(value: int, tmp_path: Path) -> None:
    found = read(tmp_path, with_ids(small().document(), constant(value), "correlation", "External id"))
    assert not (found.kernels.launch >= 0).any()
    assert not (found.kernels.op >= 0).any()
    said = [text for text in found.warnings if SAID in text]
    assert len(said) == 1
    assert said[0].startswith(f"12 of 12 kernels and copies {SAID} (ids: 1)")
    assert steps_ms(found) == steps_ms(read(tmp_path, small().document()))


def test_kineto_with_one_id_for_half_of_the_launches(tmp_path: Path) -> None:
    whole = read(tmp_path, small().document())
    found = read(tmp_path, with_ids(small().document(), half, "correlation"))
    assert (found.kernels.launch >= 0).tolist() == [id % 2 == 0 for id in range(1, 13)]
    assert steps_ms(found) == steps_ms(whole)
    assert found.warnings[0].startswith("6 of 12 kernels")


def test_kineto_whose_ids_repeat_after_the_counter_began_anew(tmp_path: Path) -> None:
    found = read(tmp_path, with_ids(small().document(), lambda id: (id - 1) % 8, "correlation"))
    assert (found.kernels.launch >= 0).tolist() == [False] * 4 + [True] * 4 + [False] * 4
    assert steps_ms(found) == steps_ms(read(tmp_path, small().document()))
    assert "(ids: 4)" in found.warnings[0]


def test_kineto_whose_kernels_all_name_one_call(tmp_path: Path) -> None:
    """Only the device's side lost its ids. A graph launches many kernels, any other call one."""
    document = small().document()
    for event in document["traceEvents"]:
        if event["cat"] == "kernel":
            event["args"]["correlation"] = 1
    found = read(tmp_path, document)
    assert (found.kernels.launch >= 0).tolist() == [False, False, False, True] * 3  # the last is a copy
    for event in document["traceEvents"]:
        if event["name"] == "cudaLaunchKernel":
            event["name"] = "cudaGraphLaunch"
    found = read(tmp_path, document)
    assert not found.warnings
    assert np.count_nonzero(found.kernels.launch == found.kernels.launch[0]) == 9


def test_a_driver_call_within_a_runtime_call_is_the_same_launch(tmp_path: Path) -> None:
    kineto = Kineto()
    kineto.host("cuda_runtime", "cudaLaunchKernel", 10, 5, correlation=3)
    kineto.host("cuda_driver", "cuLaunchKernel", 11, 4, correlation=3)
    kineto.work("gemm", 30, 10, correlation=3)
    found = read(tmp_path, kineto.document())
    assert found.host.start_ns[found.kernels.launch].tolist() == [0]
    assert not found.warnings


def test_an_external_id_names_the_op_of_a_kernel_whose_launch_is_not_known(tmp_path: Path) -> None:
    kineto = Kineto()
    for n in range(3):
        kineto.op(f"aten::op{n}", 100 * n, 10, **{"External id": 50 + min(n, 1)})
        kineto.host("cuda_runtime", "cudaLaunchKernel", 100 * n + 1, 5, correlation=3)
        kineto.work("gemm", 100 * n + 20, 10, correlation=3, **{"External id": 50 + min(n, 1)})
    found = read(tmp_path, kineto.document())
    assert [found.ops[op].name if op >= 0 else None for op in found.kernels.op.tolist()] == [
        "aten::op0", None, None,
    ]  # fmt: skip  # two ops have the id 51


@pytest.mark.skipif(not CONTROL.exists(), reason=NO_TRACES)
@pytest.mark.parametrize("change", [constant(0), half], ids=["constant", "half"])
def test_a_recorded_trace_keeps_its_steps_without_its_ids(change: Change, tmp_path: Path) -> None:
    """An A100's six steps; with the first launch of the id for all kernels, one step took 4.9 times as long."""
    document = json.loads(gzip.decompress(CONTROL.read_bytes()))
    expected = steps_ms(traces.read(CONTROL))
    found = read(tmp_path, with_ids(document, change, "correlation", "External id"))
    assert steps_ms(found) == pytest.approx(expected, rel=0.005)
    assert SAID in found.warnings[0]


def test_xplane_with_one_id_for_all_launches(tmp_path: Path) -> None:
    space = Space()
    host = space.plane("/host:CPU").line(1, "python", 1_000)
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)", 1_000)
    for n in range(3):
        host.event("cuLaunchKernel", 100 * n, 10, {"correlation_id": 4})
        line.event("kernel", 100 * n + 50, 10, {"correlation_id": 4})
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    found = traces.read(path)
    assert found.kernels.launch.tolist() == [-1] * 3
    assert SAID in found.warnings[0]


def test_nsight_with_one_id_for_all_launches(tmp_path: Path) -> None:
    tables = ("CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL")
    path = export(tmp_path / "w.sqlite", extra="".join(f"update {t} set correlationId = 4;" for t in tables))
    with sqlite3.connect(path) as db:
        assert db.execute(f"select distinct correlationId from {tables[1]}").fetchall() == [(4,)]
    found = traces.read(path)
    assert not (found.kernels.launch >= 0).any()
    assert SAID in found.warnings[0]
    assert [len(periods(found, device)) for device in range(2)] == [3, 3]
