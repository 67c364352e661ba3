"""Two windows of one workload are compared as windows: what decides, and no speedup per step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards.export import render
from mpprof_dashboards.pages import compare as page

from mpprof.api.ladder import compare
from mpprof.api.workflows import diagnose
from mpprof.report import json as documents
from tests.builders.read_back import markdown, reading, text
from tests.builders.windows import WIDE, Request, serving
from tests.traces.kineto import small

page = reading(page)

BEFORE = Request(every=90_000, product=379, reduction=40, kernel=WIDE, dtype="float")
AFTER = Request(every=94_000, product=291, reduction=40)


def compared(folder: Path, *requests: Request, counts: tuple[int, ...] = (6, 6)) -> Any:
    paths = [
        serving(count, each).write(folder / f"{at}.json")
        for at, (count, each) in enumerate(zip(counts, requests, strict=True))
    ]
    return documents.compare_document(compare(*paths))


@pytest.fixture
def found(tmp_path: Path) -> Any:
    return compared(tmp_path, BEFORE, AFTER)


def test_where_the_kernels_are_faster_and_the_window_is_not_the_wait_decides(found: Any) -> None:
    windows = found["steps"][0]["windows"]
    assert windows["kernel_ns"]["from"] - windows["kernel_ns"]["to"] == 6 * (379_000 - 291_000)  # type: ignore[operator]
    assert windows["span_ns"]["to"] > windows["span_ns"]["from"]  # type: ignore[operator]
    assert (windows["decides"], windows["waits_for"]) == ("waiting", "idle_input")
    assert "so their length depends on the input, not on the kernels" in windows["statements"][0]
    assert "hardly moved" in windows["statements"][0]


def test_no_speedup_is_claimed(found: Any) -> None:
    rung = found["steps"][0]
    assert (rung["observed"], rung["expected"], rung["slices"]) == (None, None, [])
    assert "no speedup per step" in rung["windows"]["statements"][-1]


def test_a_report_against_a_baseline_without_steps_says_what_is_missing(tmp_path: Path) -> None:
    base, run = (serving(6, each).write(tmp_path / f"{at}.json") for at, each in enumerate((BEFORE, AFTER)))
    found = documents.document(diagnose(run, base))
    assert found["speedup"] is not None
    assert found["speedup"]["expected"] is None
    assert found["absent"]["speedup.expected"].startswith("no step of 0.json and 1.json can be told apart")


def test_parts_stand_side_by_side(found: Any) -> None:
    parts = {(part["by"], part["name"]): part for part in found["steps"][0]["windows"]["parts"]}
    fallback, units = parts["placement", "cuda_core fp32"], parts["placement", "tensor_core fp16"]
    assert (fallback["from_ns"], fallback["to_ns"]) == (6 * 379_000, 0)
    assert (units["from_ns"], units["to_ns"]) == (0, 6 * 291_000)
    assert parts["family", "comm"]["from_ns"] == parts["family", "comm"]["to_ns"] == 6 * 40_000
    assert ("idle", "idle_input") in parts


def test_as_many_matrix_kernels_are_assumed_to_be_the_same_work(tmp_path: Path, found: Any) -> None:
    windows = found["steps"][0]["windows"]
    assert windows["same_work"] is True
    assert "assumed to be the same amount of work" in windows["statements"][1]
    more = compared(tmp_path, BEFORE, AFTER, counts=(6, 7))["steps"][0]["windows"]
    assert more["same_work"] is False
    assert more["matrix_kernels"] == [{"family": "gemm", "from": 6, "to": 7}]
    assert "not the same amount of work" in more["statements"][1]


def test_busy_windows_are_decided_by_the_device(tmp_path: Path) -> None:
    busy = [Request(every=e, product=p, reduction=40) for e, p in ((500, 379), (410, 291))]
    windows = compared(tmp_path, *busy)["steps"][0]["windows"]
    assert (windows["decides"], windows["waits_for"]) == ("device", None)
    assert "its work determines" in windows["statements"][0]


def test_all_texts_call_them_windows(found: Any) -> None:
    said = text.render_comparison(found)
    assert "0.json → 1.json: windows of 450 ms and 470 ms, not steps" in said
    assert "whole windows, not steps" in said
    for right in ("shares of a step are not known",):
        assert right in " ".join(said.split())
    assert " ".join(said.split()).count(" a step") == 2
    assert "| whole windows, not steps | before | after | times |" in markdown.render_comparison(found)
    html = "".join(render(part) for part in page.content(found))
    assert "windows, not steps" in html
    assert "depends on the input" in html


def test_a_run_with_steps_is_held_against_one_without_by_its_window(tmp_path: Path) -> None:
    stepped, plain = small().write(tmp_path / "a.json"), serving().write(tmp_path / "b.json")
    found = documents.compare_document(compare(stepped, plain))
    assert [each["account"]["basis"] for each in found["runs"]] == ["step", "window"]
    assert found["steps"][0]["windows"]["span_ns"]["from"] > 0  # type: ignore[operator]
    again = small().write(tmp_path / "c.json")
    assert "windows" not in documents.compare_document(compare(stepped, again))["steps"][0]
