"""Ranges that the user names make the steps, whatever else the trace calls a step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import mpprof
from mpprof import traces
from mpprof.analysis.steps import boundaries, ranges
from mpprof.api import workflows
from mpprof.api.source import LogDirectory
from mpprof.cli import main
from mpprof.errors import NotFoundError, UsageError
from mpprof.report import json as documents
from mpprof.report.to_json import to_json
from tests.builders.read_back import text
from tests.builders.windows import Request, serving
from tests.paths import SAMPLES
from tests.traces.test_nsys import export

UNMARKED = "update NVTX_EVENTS set text = replace(text, 'step', 'decode') where text like 'step %';"


def unmarked(tmp_path: Path, extra: str = "") -> Path:
    """An export of Nsight Systems whose ranges are called "decode 0", "decode 1", ... in two processes."""
    return export(tmp_path / "w.sqlite", extra=UNMARKED + extra)


def test_nvtx_ranges_of_a_pattern_are_steps_with_its_numbers(tmp_path: Path) -> None:
    trace = traces.read(unmarked(tmp_path))
    assert not len(boundaries.periods(trace, 0))
    marked = ranges.with_steps_of(trace, r"/decode (\d+)/")
    for device in (0, 1):
        found = boundaries.periods(marked, device)
        assert (found.source, found.number.tolist()) == ("range", [0, 1, 2])
        assert (found.end_ns - found.start_ns).tolist() == [900, 900, 900]
    # Each device has the ranges of the process that launches its work.
    threads = {marked.threads[row] for row in marked.markers.thread.tolist()}
    assert threads == {"thread 1", "thread 2"}
    assert any("on several threads" in note for note in marked.notes)


def test_an_exact_name_is_no_pattern(tmp_path: Path) -> None:
    marked = ranges.with_steps_of(traces.read(unmarked(tmp_path)), "decode 1")
    assert boundaries.periods(marked, 0).number.tolist() == [-1]
    assert "66.7 % of the launches lie outside" in marked.notes[0]


def test_ranges_that_start_and_end_anywhere_are_steps_too(tmp_path: Path) -> None:
    """NVTX's start/end ranges may cross others, so that they are no scopes of ops."""
    crossing = (
        UNMARKED.replace("decode", "request")
        + "update NVTX_EVENTS set eventType = 60 where text like 'request%';"
    )
    trace = traces.read(export(tmp_path / "w.sqlite", extra=crossing))
    assert len(boundaries.periods(ranges.with_steps_of(trace, r"/request \d/"), 0)) == 3
    kernel = trace.kernels.op[0]
    assert trace.ops[kernel].name == "forward/aten::mm"


def test_of_ranges_that_nest_or_overlap_the_first_stands_and_it_is_said(tmp_path: Path) -> None:
    k = serving(requests=4)
    k.host("user_annotation", "decode", 150, 20)  # in the first
    k.host("user_annotation", "decode", 300, 750)  # from the first into the second
    trace = traces.read(k.write(tmp_path / "nested.json"))
    marked = ranges.with_steps_of(trace, "decode")
    assert marked.markers.start_ns.tolist() == [0, 900_000, 1_800_000, 2_700_000]
    assert "2 more ranges 'decode' lie in another one or overlap an earlier one" in marked.notes[-1]


def test_a_range_of_a_kineto_trace_makes_its_account_one_of_steps(tmp_path: Path) -> None:
    path = serving(each=Request(reduction=40)).write(tmp_path / "serving.json")
    assert documents.document(mpprof.diagnose(mpprof.load(path)))["account"]["basis"] == "window"
    found = documents.document(mpprof.diagnose(mpprof.load(path, step_range="decode")))
    time = found["time"]
    assert found["account"]["basis"] == "step"
    assert (time["step_range"], time["step_source"], time["window_steps"]) == ("decode", "range", 6)
    assert next(part["ns_per_step"] for part in time["slices"] if part["class"] == "matmul") == 100_000
    assert "6 profiled steps, each a range decode, on" in text.render(found, width=200)


def test_a_name_that_is_not_there_lists_the_nearest_and_the_largest(tmp_path: Path) -> None:
    path = serving().write(tmp_path / "serving.json")
    with pytest.raises(
        NotFoundError, match=r"no range is named 'decoed'.*'decode' \(6, 100 % of the launches\)"
    ):
        mpprof.diagnose(mpprof.load(path, step_range="decoed"))
    with pytest.raises(NotFoundError, match=r"/decode \(\\\\d\+\)/' \(6"):
        ranges.with_steps_of(traces.read(unmarked(tmp_path)), "prefill")


def test_a_pattern_must_be_one(tmp_path: Path) -> None:
    trace = traces.read(serving().write(tmp_path / "serving.json"))
    with pytest.raises(UsageError, match="is not a regular expression"):
        ranges.with_steps_of(trace, "/(/")


def test_a_command_says_it_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(serving().write(tmp_path / "serving.json"))
    for command in (["report"], ["kernels"], ["compare", path]):
        assert main([*command, path, "--step-range", "nothing"]) == 2
        said = capsys.readouterr().err.strip()
        assert said.count("\n") == 0
        assert "'decode' (6, 100 % of the launches)" in said


def test_the_window_names_what_may_be_steps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(serving().write(tmp_path / "serving.json"))
    assert main(["report", path, "--no-color", "-v"]) == 0
    said = capsys.readouterr().out
    assert f"mpprof report {path} --step-range decode" in said
    assert main(["report", path, "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["window"]["ranges"]
    assert listed == [{"name": "decode", "count": 6, "launches_ratio": 1.0}]


def test_tables_hold_what_the_ranges_launched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    k = serving()
    k.launch("gemm_of_the_warm_up", -500, -480, 90)
    path = str(k.write(tmp_path / "serving.json"))

    def names(*more: str) -> set[str]:
        assert main(["kernels", path, "--format", "json", *more]) == 0
        return {row["name"] for row in json.loads(capsys.readouterr().out)}

    assert names() - names("--step-range", "decode") == {"gemm_of_the_warm_up"}


def test_ranges_that_launch_nothing_leave_a_window(tmp_path: Path) -> None:
    k = serving()
    k.host("user_annotation", "logging", 10, 5)
    path = k.write(tmp_path / "serving.json")
    found = documents.document(mpprof.diagnose(mpprof.load(path, step_range="logging")))
    assert found["account"]["basis"] == "window"
    assert "no range of that name launched kernels" in found["window"]["reason"]


def test_a_step_log_counts_other_steps_and_is_left_out() -> None:
    run = mpprof.load(SAMPLES / "v100-float32-island", step_range="multi_step_on_iterator")
    found = documents.document(workflows.diagnose(run))
    assert found["steps"] is None
    assert found["time"] is not None
    assert found["time"]["basis"] == "window"
    assert any("the step log is left out" in warning for warning in found["warnings"])


def test_the_page_takes_them_too(tmp_path: Path) -> None:
    serving(each=Request(reduction=40)).write(tmp_path / "serving.pt.trace.json")
    (entry,) = LogDirectory(tmp_path, step_range="decode").entries()
    found = to_json(LogDirectory(tmp_path, step_range="decode").report(entry.id))
    assert found["account"]["basis"] == "step"
    assert to_json(LogDirectory(tmp_path).report(entry.id))["account"]["basis"] == "window"


def test_the_pages_tables_say_over_what_their_sums_are(tmp_path: Path) -> None:
    from mpprof_dashboards import work

    serving(each=Request(reduction=40)).write(tmp_path / "serving.pt.trace.json")
    for source, said in (
        (LogDirectory(tmp_path, step_range="decode"), "; over the ranges decode that were taken as steps"),
        (LogDirectory(tmp_path), ""),
    ):
        (entry,) = source.entries()
        assert work.over(source.report(entry.id)) == said
