"""Where ops really ran, and what waits in a copy: a CPU run on a machine with a GPU, counter ranges, `.to()`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests.builders import unmarked
from tests.paths import SAMPLES
from tests.traces.kineto import Kineto


def diagnosed(tmp_path: Path, k: Kineto) -> Diagnosis:
    return workflows.diagnose(k.write(tmp_path / "w.pt.trace.json"))


def codes(found: Diagnosis) -> set[str]:
    return {each.code for each in found.findings}


def unable(found: Diagnosis) -> dict[str, str]:
    return {each.code: each.reason for each in found.unable}


@pytest.mark.parametrize(
    "built", [unmarked.on_the_cpu(), unmarked.on_the_cpu(runtime=False, op="aten::mkldnn_linear")]
)
def test_ops_without_a_launch_ran_on_the_cpu(tmp_path: Path, built: Kineto) -> None:
    """The driver was traced and nothing was launched; or the ops are of a library for CPUs."""
    found = diagnosed(tmp_path, built)
    assert "MP908" not in codes(found) | set(unable(found))
    (note,) = (each for each in found.warnings if "nothing was launched there" in each)
    assert "NVIDIA H100 80GB HBM3" in note
    assert '.to("cuda")' in note
    assert found.window.trace_basis == "host"


def test_where_not_even_calls_were_recorded_both_may_be(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, unmarked.on_the_cpu(runtime=False))
    assert "MP908" not in codes(found)
    assert "either nothing was put on the device" in unable(found)["MP908"]


def test_launches_without_kernels_are_a_profiler_that_saw_nothing(tmp_path: Path) -> None:
    k = unmarked.on_the_cpu()
    k.host("cuda_runtime", "cudaLaunchKernel", 500, 4, correlation=9)
    assert "MP908" in codes(diagnosed(tmp_path, k))


@pytest.mark.parametrize(
    ("category", "said"),
    [
        ("cuda_profiler_range", "ranges of hardware counters"),
        ("mtia_ccp_events", "not read (mtia_ccp_events)"),
    ],
)
def test_events_of_another_kind_are_named(tmp_path: Path, category: str, said: str) -> None:
    k = Kineto()
    k.host("cuda_runtime", "cudaLaunchKernel", 0, 4, correlation=1)
    k.op("aten::mm", 0, 20)
    k.host(category, "range", 5, 100, tid=7)
    found = diagnosed(tmp_path, k)
    assert "MP908" not in codes(found)
    assert said in unable(found)["MP908"]


def test_a_device_that_is_not_listed_and_whose_events_are_not_read_is_no_cpu(tmp_path: Path) -> None:
    """As in a trace of an MTIA: no properties of a device, and arrows that lead to its events."""
    k = Kineto(header={"deviceProperties": []})
    k.op("aten::mm", 0, 20)
    k.host("mtia_runtime", "runFunction", 5, 4, correlation=1)
    k.events.append({"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 1, "pid": 1, "tid": 1, "ts": 6})
    k.host("mtia_ccp_events", "fc-dtype_Float", 30, 100, tid=7)
    found = diagnosed(tmp_path, k)
    assert found.answer.kind == "records"
    assert found.answer.sentence.startswith("The trace holds no kernels, but events that are not read (mtia_")
    assert found.answer.do == ""
    assert found.account is None
    assert "a CPU" not in str(found.warnings) + found.answer.sentence


def test_where_a_trace_is_cut_off_another_window_is_advised(tmp_path: Path) -> None:
    run = SAMPLES / "v100-convnet-mixed-float16"
    shutil.copytree(run / "mpprof", tmp_path / "mpprof")
    cut = tmp_path / "plugins" / "profile" / "now" / "host.xplane.pb"
    cut.parent.mkdir(parents=True)
    cut.write_bytes(next(run.rglob("*.xplane.pb")).read_bytes()[:4000])
    found = workflows.diagnose(workflows.load(tmp_path))
    assert found.answer.do.startswith("record a profile window")


def test_what_waits_in_a_copy_is_no_op_on_the_cpu(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, unmarked.waits_in_a_copy())
    assert len(found.account.steps) == 5
    by_code = {each.code: each for each in found.findings}
    assert "MP306" not in by_code
    copies = by_code["MP310"]
    assert "wait for copies that block the host" in copies.summary.replace("waits", "wait")
    assert "aten::to" in copies.summary
    waited = next(each.value for each in copies.evidence if "behind copies" in each.name)
    assert waited == pytest.approx(4_005_000, rel=0.01)  # from the last kernel's end to the copy's beginning
    assert not any("driver calls that did not return" in each for each in found.warnings)


@pytest.mark.parametrize("copy", ["DtoH (Device -> Pageable)", "HtoD (Pageable -> Device)"])
def test_a_copy_of_pageable_memory_is_shown_by_the_call_that_blocks(tmp_path: Path, copy: str) -> None:
    found = diagnosed(tmp_path, unmarked.waits_in_a_copy(copy=copy, last=False))
    copies = next(each for each in found.findings if each.code == "MP310")
    evidence = {each.name: each.value for each in copies.evidence}
    assert evidence["idle behind copies that block the host"] == pytest.approx(4_005_000, rel=0.01)
    assert evidence["calls that block the host"] == "cudaMemcpyAsync of aten::to"


def test_a_copy_from_pinned_memory_waits_for_nothing_and_was_held_up(tmp_path: Path) -> None:
    found = diagnosed(tmp_path, unmarked.waits_in_a_copy(copy="HtoD (Pinned -> Device)"))
    (said,) = (each for each in found.warnings if "driver calls that did not return" in each)
    assert said.endswith("cudaMemcpyAsync); the trace does not show what held them up")


@pytest.mark.parametrize(("in_calls_us", "computes"), [(1.0, True), (450.0, False)])
def test_an_op_that_is_in_the_drivers_calls_computes_nothing(
    tmp_path: Path, in_calls_us: float, computes: bool
) -> None:
    found = diagnosed(tmp_path, unmarked.waits_in_a_copy(op="mylib::exchange", in_calls_us=in_calls_us))
    assert ("MP306" in codes(found)) is computes
