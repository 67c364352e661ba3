"""Where no step can be told apart there is an account of the whole window, and it is called one."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards.export import report_html

from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders.read_back import brief, markdown, reading, text
from tests.builders.windows import (
    NO_PRODUCT,
    WIDE,
    Request,
    memory_from_the_driver,
    offloaded_weights,
    one_kernel,
    quantised_weights,
    serving,
)
from tests.paths import SAMPLES

report_html = reading(report_html)


def report(path: Path) -> Any:
    return documents.document(workflows.diagnose(path))


@pytest.fixture
def found(tmp_path: Path) -> Any:
    return report(serving().write(tmp_path / "serving.pt.trace.json"))


def test_no_time_of_a_window_stands_under_a_key_of_a_step(found: Any) -> None:
    assert found["account"] == {"basis": "window"}
    assert (found["time"], found["speedup"], found["whatif"]) == (None, None, None)
    assert "no step can be told apart" in found["absent"]["time"]
    assert found["facts"]["step_ns"] is None
    assert all(each["cost_ns_per_step"] is None for each in found["findings"])
    assert all(each["gain_ns_per_step"] is None for each in found["findings"])


@pytest.mark.parametrize(("basis", "work"), [("device", " kernels, "), ("host", " ops, ")])
def test_what_a_cpu_runs_are_no_kernels(basis: str, work: str, found: Any) -> None:
    found["window"]["basis"] = basis
    (busy,) = [line for line in text.render(found).splitlines() if line.startswith("Window")]
    assert work in busy


def test_a_step_is_no_window() -> None:
    found = report(SAMPLES / "v100-float32-island")
    assert found["account"] == {"basis": "step"}
    assert "window" not in found


def test_the_window_says_what_is_exposed_and_what_is_hidden(found: Any) -> None:
    window = found["window"]
    slices = {part["class"]: part for part in window["slices"]}
    assert math.isclose(sum(part["ns"] for part in window["slices"]), window["span_ns"], abs_tol=1)
    assert window["busy_ns"] + window["idle_ns"] == pytest.approx(window["span_ns"])
    assert slices["matmul"]["ns"] == 6 * 100_000
    assert slices["matmul"]["by"][0]["placement"] == "tensor_core"
    assert (slices["comm"]["ns"], slices["comm"]["hidden_ns"]) == (6 * 40_000, 6 * 40_000)
    assert slices["copy"]["ns"] == 6 * 50_000
    assert slices["idle_input"]["ns"] > 5 * 400_000
    assert window["kernels"] == 6 + 6 + 21
    assert window["kernel_ns"] == 6 * (100_000 + 80_000) + 21 * 3_000
    assert {each["family"]: each["kernels"] for each in window["families"]} == {
        "gemm": 6,
        "comm": 6,
        "elementwise": 21,
    }


def test_what_was_found_costs_of_the_window(found: Any) -> None:
    waits = next(each for each in found["findings"] if each["code"] == "MP301")
    assert waits["cost_ns_in_window"] == pytest.approx(
        next(part["ns"] for part in found["window"]["slices"] if part["class"] == "idle_input")
    )
    assert "in the window" in waits["summary"]
    assert waits["confidence"] == "low"
    for each in found["findings"]:
        said = " ".join((each["summary"], *(item["name"] for item in each["evidence"])))
        assert "step" not in said.replace("no step", ""), said
        assert "{" not in said


def test_all_texts_call_it_a_window(found: Any) -> None:
    said = text.render(found, width=100)
    assert "The whole window, not a step: " in said
    assert "communication: 240 µs" in said
    assert "240 µs hidden behind other work" in said
    assert "to have steps: call profiler.step() after each step" in said
    assert " a step (" not in said
    assert "Where the step's time goes" not in said
    marked = markdown.render(found)
    assert "The whole window, not a step" in marked
    assert "| class | in the window |" in marked
    page = report_html(found)
    assert "Where the window goes" in page
    assert "Where the step goes" not in page
    assert "Whole window" in page


def test_the_verdict_says_how_much_of_the_window_the_device_worked(found: Any) -> None:
    assert found["verdict"] == "The GPU waits for data about 3.29 of the 4.72 ms window."
    assert found["answer"]["because"] == [
        "The GPU was busy for 25.5 % of the window; the trace does not show where a step begins."
    ]


def test_nothing_is_clear_by_a_share_of_idle_time(tmp_path: Path) -> None:
    """A hundredth of a window that is mostly idle may be all of a step."""
    idle = report(serving(each=Request(every=90_000)).write(tmp_path / "idle.json"))
    assert not {"MP310", "MP405", "MP502"} & set(idle["clear"])
    why = next(each["reason"] for each in idle["unable"] if each["code"] == "MP310")
    assert "shares of a step are not known" in why
    assert "MP907" in idle["clear"]  # a share of the device's work


@pytest.mark.parametrize("memory", ["Pinned", "Pageable"])
def test_offloaded_weights_are_no_batches(memory: str, tmp_path: Path) -> None:
    """The largest copy is one copy and not the mean of a group; fills are none; and an inference's weights
    become no uint8."""
    path = offloaded_weights(memory=memory).write(tmp_path / "offloaded.pt.trace.json")
    copies = next(each for each in report(path)["findings"] if each["code"] == "MP310")
    assert copies["title"] == "Copies are not hidden behind work"
    remedy = copies["remedy"]
    assert "keep the copied data (weights) on the device" in remedy
    assert "uint8" not in remedy
    evidence = {each["name"]: each["value"] for each in copies["evidence"]}
    assert evidence["copies from the host in the window"] == 7
    assert f"the largest copy moves 40.0 MiB at 25.0 GB/s, from {memory.lower()} memory" in copies["summary"]


def test_a_fallback_is_found_without_a_step(tmp_path: Path) -> None:
    each = Request(every=420, product=180, kernel=WIDE)
    found = report(serving(each=each).write(tmp_path / "fallback.json"))
    fallback = next(each for each in found["findings"] if each["code"] == "MP412")
    assert fallback["severity"] != "info"
    assert "in the window" in fallback["summary"]
    assert found["tensor_core"]
    assert found["tensor_core"]["fallback_ns_per_step"] == 6 * 180_000


def test_where_steps_are_marked_nobody_is_told_to_mark_them(tmp_path: Path) -> None:
    k = serving()
    k.host("user_annotation", "ProfilerStep#3", 20, 30)  # before any launch
    found = report(k.write(tmp_path / "marked.json"))
    assert found["account"]["basis"] == "window"
    assert found["window"]["mark"] == []
    assert "profiler.step()" not in text.render(found)


def test_kernels_of_other_types_than_their_ops_take_are_named(tmp_path: Path) -> None:
    """An op of bfloat16 inputs whose kernel multiplies 4 bits with 8 is no product in bfloat16."""
    found = report(quantised_weights().write(tmp_path / "quantised.pt.trace.json"))
    said = "bfloat16 by the inputs of its matrix ops, most kernels in pairs of narrow types"
    assert said in " ".join(text.render(found).split())
    assert "mixed and" not in brief.render(found)


def test_a_window_of_one_kernel_is_not_judged_by_its_shares(tmp_path: Path) -> None:
    found = report(one_kernel().write(tmp_path / "one.pt.trace.json"))
    assert not {"MP302", "MP310", "MP502"} & {each["code"] for each in found["findings"]}
    assert "the window holds 1 kernel: too little to judge a training" in brief.render(found).lower().replace(
        "\n", " "
    )


def test_waiting_for_the_drivers_memory_is_no_op_on_the_cpu(tmp_path: Path) -> None:
    found = report(memory_from_the_driver().write(tmp_path / "malloc.pt.trace.json"))
    idle = next(part for part in found["window"]["slices"] if part["class"] == "idle_other")
    causes = {each["cause"]: each["ns"] for each in idle["causes"]}
    assert causes["memory allocated by the driver"] == pytest.approx(60e6, rel=0.01)
    assert "ops busy on the host" not in causes


def test_a_window_without_matrix_work_sends_to_a_later_step(tmp_path: Path) -> None:
    """What a step does before its products says nothing of how the training runs."""
    k = serving(each=Request(kernel=NO_PRODUCT))
    said = " ".join(brief.render(report(k.write(tmp_path / "early.pt.trace.json"))).split())
    assert "The window holds no matrix work: profile a later step." in said
