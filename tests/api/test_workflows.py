"""Loading, analysing and comparing through the public names."""

import errno
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.api import workflows
from mpprof.api.source import LogDirectory
from mpprof.errors import MpprofError, NotFoundError, SeveralRunsError, TooNewError, UnreadableError
from mpprof.report import json as documents
from mpprof.report.to_json import to_json
from mpprof.runs.state import STOPPED_AFTER_S
from tests.builders.read_back import text
from tests.paths import NO_TRACES, SAMPLES, SHARED

MIXED, FLOAT32 = SAMPLES / "v100-convnet-mixed-float16", SAMPLES / "v100-convnet-float32"


def copy(source: Path, to: Path) -> Path:
    return Path(shutil.copytree(source, to))


def test_a_log_directory_is_one_run() -> None:
    run = mpprof.load(MIXED)
    assert run.name == MIXED.name
    assert run.facts is not None
    assert len(run.steps) == 160
    assert [trace.name for trace in run.traces] == ["synthetic.xplane.pb"]


def test_a_lone_trace_is_a_run_without_records() -> None:
    trace = next(MIXED.rglob("*.xplane.pb"))
    run = mpprof.load(trace)
    assert run.facts is None
    assert run.steps is None
    diagnosis = mpprof.diagnose(run)
    assert diagnosis.account.basis == "window"
    assert diagnosis.absent["steps"]


def test_a_directory_of_runs_asks_for_a_choice_and_lists_them(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "mixed")
    copy(FLOAT32, tmp_path / "deep" / "float32")
    with pytest.raises(SeveralRunsError, match="2 runs") as error:
        mpprof.load(tmp_path)
    assert "deep/float32" in str(error.value)
    assert workflows.load(tmp_path, run="mixed").name == "mixed"
    assert workflows.load(tmp_path, run="latest").name in ("mixed", "deep/float32")
    with pytest.raises(NotFoundError, match="no run named 'absent'"):
        workflows.load(tmp_path, run="absent")


def test_of_many_runs_the_newest_and_the_nearest_are_listed(tmp_path: Path) -> None:
    for number in range(25):
        record = copy(MIXED, tmp_path / f"sweep-{number:02}") / "mpprof" / "run.json"
        record.write_text(json.dumps(json.loads(record.read_text()) | {"created_unix_ns": 100 + number}))
        shutil.rmtree(tmp_path / f"sweep-{number:02}" / "plugins")
    with pytest.raises(SeveralRunsError, match="25 runs lie here; the newest 20 follow") as several:
        mpprof.load(tmp_path)
    assert [line.strip() for line in str(several.value).splitlines()[1:]] == [
        f"sweep-{number:02}" for number in range(5, 25)
    ]
    with pytest.raises(NotFoundError, match="There are 25") as missing:
        mpprof.load(tmp_path, run="swep-07")
    first, *others = str(missing.value).splitlines()[1:]
    assert (first.strip(), len(others)) == ("sweep-07", 19)


def test_the_latest_of_several_traces_is_the_newest_whatever_their_names(tmp_path: Path) -> None:
    (trace,) = mpprof.load(MIXED).traces
    for name, time in (("z", 1), ("a", 3), ("line\nbreak", 2)):
        copied = Path(shutil.copy(trace, tmp_path / f"{name}.xplane.pb"))
        os.utime(copied, ns=(time, time))
    assert workflows.load(tmp_path, run="latest").name == "a.xplane.pb"
    with pytest.raises(SeveralRunsError) as error:
        mpprof.load(tmp_path)
    assert str(error.value).splitlines()[-3:] == [
        "  z.xplane.pb",
        r"  line\nbreak.xplane.pb",
        "  a.xplane.pb",
    ]


def test_what_is_no_file_and_no_directory_is_said_so(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "host.xplane.pb")
    for path in (tmp_path / "host.xplane.pb", Path("/dev/zero")):
        with pytest.raises(UnreadableError, match="neither a regular file"):
            mpprof.load(path)


@pytest.fixture
def close(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a directory one that cannot be opened; permissions do not hold for every user that runs tests."""
    scandir, refused = os.scandir, set[str]()

    def refusing(path: str) -> Any:
        if str(path) in refused:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    return lambda path: refused.add(str(path))


def test_a_directory_that_cannot_be_opened_is_named(tmp_path: Path, close: Callable[[Path], None]) -> None:
    closed = tmp_path / "logs" / "closed"
    closed.mkdir(parents=True)
    close(closed)
    with pytest.raises(UnreadableError, match=r"closed: cannot be opened: Permission denied"):
        mpprof.load(tmp_path)


def test_a_directory_that_cannot_be_opened_is_said_beside_runs_that_can(
    tmp_path: Path, close: Callable[[Path], None]
) -> None:
    copy(MIXED, tmp_path / "mixed")
    (tmp_path / "closed").mkdir()
    close(tmp_path / "closed")
    said = f"skipped: {tmp_path / 'closed'} cannot be opened: Permission denied"
    for run in (mpprof.load(tmp_path), workflows.load(tmp_path, run="latest"), *workflows.runs(tmp_path)):
        assert run.warnings == (said,)
        assert said in mpprof.diagnose(run).warnings
    assert mpprof.load(tmp_path / "mixed").warnings == ()
    first, second = LogDirectory(tmp_path).entries()
    assert (first.name, first.problem) == (
        "closed",
        f"{tmp_path / 'closed'}: cannot be opened: Permission denied. Check its permissions",
    )
    assert (second.name, second.problem) == ("mixed", None)
    copy(FLOAT32, tmp_path / "float32")
    with pytest.raises(SeveralRunsError, match=r"2 runs lie here(?s:.*)skipped: .*closed cannot be opened"):
        mpprof.load(tmp_path)
    assert workflows.load(tmp_path, run="mixed").warnings == ()


def test_a_session_that_cannot_be_opened_is_not_called_gone(
    tmp_path: Path, close: Callable[[Path], None]
) -> None:
    (session,) = copy(MIXED, tmp_path / "run").glob("plugins/profile/*")
    close(session)
    run = mpprof.load(tmp_path / "run")
    assert run.warnings == (f"skipped: {session} cannot be opened: Permission denied",)
    why = mpprof.diagnose(run).absent["time"]
    assert why.startswith(f"the trace of the profiler window cannot be read: {session}: cannot be opened")


@pytest.mark.parametrize("listable", [True, False], ids=["0600", "0000"])
@pytest.mark.parametrize("folder", ["plugins", "plugins/profile"])
def test_a_run_is_judged_by_its_records_where_a_directory_above_its_window_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str, listable: bool
) -> None:
    closed = copy(MIXED, tmp_path / "run") / folder
    stat, scandir, access = os.stat, os.scandir, os.access

    def seen(path: Any, **how: Any) -> Any:
        if isinstance(path, str | Path) and closed in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **how)

    def listed(path: Any) -> Any:
        if closed in Path(path).parents or (Path(path) == closed and not listable):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "stat", seen)
    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != closed and access(path, mode))
    run = mpprof.load(tmp_path / "run")
    assert run.traces == ()
    assert any("cannot be opened: Permission denied" in said for said in run.warnings)
    diagnosis = mpprof.diagnose(run)
    assert diagnosis.absent["time"].startswith("the trace of the profiler window cannot be read: ")
    assert diagnosis.steps.median_ns is not None


def test_a_window_that_is_a_link_out_of_the_run_is_not_called_gone(tmp_path: Path) -> None:
    (session,) = copy(MIXED, tmp_path / "run").glob("plugins/profile/*")
    session.rename(tmp_path / "elsewhere")
    session.symlink_to(tmp_path / "elsewhere")
    why = mpprof.diagnose(mpprof.load(tmp_path / "run")).absent["time"]
    name = session.relative_to(tmp_path / "run").as_posix()
    assert why == (
        f"the trace of the profiler window cannot be read: {name} points outside the run and is not followed"
    )


@pytest.mark.parametrize("name", ["plugins/\0profile", "\ud800"], ids=["NUL", "half a character"])
def test_a_window_whose_folder_no_file_can_have_is_one_without_a_folder(tmp_path: Path, name: str) -> None:
    path = copy(MIXED, tmp_path / "run") / "mpprof" / "run.json"
    record = json.loads(path.read_text())
    for window in record["profile_windows"]:
        window["trace"] = name
    path.write_text(json.dumps(record))
    for session in (tmp_path / "run").glob("plugins/profile/*"):
        shutil.rmtree(session)
    run = mpprof.load(tmp_path / "run")
    assert {window.trace for window in run.facts.profile_windows} == {None}
    assert "trace" in mpprof.diagnose(run).absent["time"]


def test_of_several_runs_one_that_cannot_be_read_is_listed_with_the_reason(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "mixed")
    copy(FLOAT32, tmp_path / "float32")
    newer = copy(FLOAT32, tmp_path / "newer") / "mpprof" / "run.json"
    newer.write_text(newer.read_text().replace("mpprof.run/1", "mpprof.run/2"))
    with pytest.raises(SeveralRunsError) as caught:
        mpprof.load(tmp_path)
    head, *listed = str(caught.value).splitlines()
    assert "3 runs lie here" in head
    assert [line.split()[0] for line in listed] == ["float32", "mixed", "newer"]
    assert f"(cannot be read: {newer}" in listed[-1]


def test_a_run_picked_by_name_does_not_suffer_from_its_neighbour(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "mixed")
    newer = copy(FLOAT32, tmp_path / "float32") / "mpprof" / "run.json"
    newer.write_text(newer.read_text().replace("mpprof.run/1", "mpprof.run/2"))
    assert workflows.load(tmp_path, run="mixed").name == "mixed"
    with pytest.raises(TooNewError, match="newer mpprof"):
        workflows.load(tmp_path, run="latest")


@pytest.mark.parametrize(
    ("content", "error"), [(None, NotFoundError), ("", UnreadableError), ("hello\n", UnreadableError)]
)
def test_bad_paths_are_one_clear_error(tmp_path: Path, content: str | None, error: type[MpprofError]) -> None:
    path = tmp_path / "host.xplane.pb"
    if content is not None:
        path.write_text(content)
    with pytest.raises(error) as raised:
        mpprof.diagnose(mpprof.load(path))
    assert str(path) in str(raised.value)


def test_an_empty_directory_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="MPProfilerCallback"):
        mpprof.load(tmp_path)


@pytest.mark.parametrize(
    "below", ["mpprof", "mpprof/run.json", "mpprof/steps.jsonl", "mpprof/hardware.jsonl"]
)
def test_a_run_s_records_stand_for_the_run(
    tmp_path: Path, below: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy(FLOAT32, tmp_path / "run")
    (root / "mpprof" / "hardware.jsonl").write_text('{"schema":"mpprof.hardware/1"}\n')
    run = mpprof.load(root / below)
    assert (run.name, run.path, run.traces) == ("run", root, mpprof.load(root).traces)
    assert LogDirectory(root / "mpprof").entries()[0].name == "run"
    monkeypatch.chdir((root / below).parent)
    assert mpprof.load(Path(below).name).name == "run"
    monkeypatch.chdir(root / "mpprof")
    assert mpprof.load(".").name == mpprof.load("..").name == "run"


def test_records_that_are_no_run_are_no_trace_either(tmp_path: Path) -> None:
    (tmp_path / "mpprof").mkdir()
    (tmp_path / "mpprof" / "hardware.jsonl").write_text('{"schema":"mpprof.hardware/1"}\n')
    with pytest.raises(UnreadableError, match="unrecognised trace format"):
        mpprof.diagnose(mpprof.load(tmp_path / "mpprof" / "hardware.jsonl"))


def test_a_trace_of_a_doubtful_name_in_a_directory_is_named(tmp_path: Path) -> None:
    (trace,) = MIXED.glob("plugins/profile/*/*.xplane.pb")
    shutil.copy(trace, tmp_path / "window-3")
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(NotFoundError, match=r"no file with a trace's name here. Give it itself: window-3$"):
        mpprof.load(tmp_path)
    assert mpprof.load(tmp_path / "window-3").traces == (tmp_path / "window-3",)
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "window-3").rename(tmp_path / "a" / "b" / "window-3")
    with pytest.raises(NotFoundError, match=r"Give it itself: a/b/window-3$"):
        mpprof.load(tmp_path)


def test_a_file_that_may_be_a_trace_and_cannot_be_opened_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "window-3").write_bytes(b"?")
    (tmp_path / "notes.txt").write_text("hello")
    open_ = Path.open

    def refusing(path: Path, *how: Any, **more: Any) -> Any:
        if path.name == "window-3":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return open_(path, *how, **more)

    monkeypatch.setattr(Path, "open", refusing)
    with pytest.raises(
        UnreadableError, match=r"no file with a trace's name here, and these cannot be opened: window-3\. "
    ):
        mpprof.load(tmp_path)


def test_links_to_runs_are_followed_and_a_run_is_one_however_many_ways_lead_to_it(tmp_path: Path) -> None:
    """As TensorBoard follows them."""
    copy(MIXED, tmp_path / "elsewhere" / "far")
    copy(MIXED, tmp_path / "logs" / "near")
    logs = tmp_path / "logs"
    for name, target in (
        ("latest", "near"), ("z-again", "../elsewhere"), ("far", "../elsewhere/far"),
        ("up", ".."), ("here", "."), ("near/again", "../near"), ("gone", "nowhere"), ("itself", "itself"),
    ):  # fmt: skip
        (logs / name).symlink_to(target)
    (tmp_path / "elsewhere" / "back").symlink_to("../logs")
    assert [run.name for run in workflows.runs(logs)] == ["far", "near"]
    assert mpprof.load(logs, run="far").traces
    assert mpprof.load(logs / "latest").name == "latest"


def test_lone_traces_behind_links_are_found_too(tmp_path: Path) -> None:
    (trace,) = MIXED.rglob("*.xplane.pb")
    (tmp_path / "elsewhere").mkdir()
    shutil.copy(trace, tmp_path / "elsewhere")
    session = tmp_path / "logs" / "a" / "plugins" / "profile"
    session.mkdir(parents=True)
    (session / "t1").symlink_to(tmp_path / "elsewhere")
    (session / "t2").symlink_to(tmp_path / "elsewhere")
    (run,) = workflows.runs(tmp_path / "logs")
    assert run.name == f"a/plugins/profile/t1/{trace.name}"


def test_a_run_without_its_trace_still_has_its_records_judged(tmp_path: Path) -> None:
    root = copy(MIXED, tmp_path / "run")
    shutil.rmtree(root / "plugins")
    diagnosis = mpprof.diagnose(mpprof.load(root))
    assert diagnosis.account is None
    assert diagnosis.absent["time"]
    assert diagnosis.steps.median_ns is not None
    assert {u.code for u in diagnosis.unable}


def test_an_unreadable_trace_is_a_problem_beside_records_and_an_error_when_strict(tmp_path: Path) -> None:
    root = copy(MIXED, tmp_path / "run")
    next(root.rglob("*.xplane.pb")).write_text("not a trace")
    run = mpprof.load(root)
    assert "synthetic.xplane.pb" in str(mpprof.diagnose(run).absent["time"])
    with pytest.raises(UnreadableError):
        workflows.diagnose(run, strict=True)


def test_a_comparison_closes_and_keeps_the_order() -> None:
    comparison = mpprof.compare([mpprof.load(FLOAT32), mpprof.load(MIXED)])
    assert [d.run.name for d in comparison.runs] == [FLOAT32.name, MIXED.name]
    (rung,) = comparison.rungs
    assert rung.speedup.observed == pytest.approx(38.9 / 18.4, rel=0.25)  # the kernels' sums, as simulated
    assert rung.kernels[0].from_ns is not None or rung.kernels[0].to_ns is not None


def test_runs_without_traces_compare_by_their_step_times(tmp_path: Path) -> None:
    roots = [copy(FLOAT32, tmp_path / "a"), copy(MIXED, tmp_path / "b")]
    for root in roots:
        shutil.rmtree(root / "plugins")
    comparison = mpprof.compare([mpprof.load(root) for root in roots])
    speedup = comparison.rungs[0].speedup
    assert speedup.observed == pytest.approx(
        comparison.runs[0].steps.mean_ns / comparison.runs[1].steps.mean_ns
    )
    assert speedup.expected is None


def test_one_run_is_no_comparison() -> None:
    with pytest.raises(MpprofError, match="two runs"):
        mpprof.compare([mpprof.load(MIXED)])


def test_rows_of_many_runs_do_not_walk_the_directory_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(6):
        copy(FLOAT32 / "mpprof", tmp_path / f"run{at}" / "mpprof")
    monkeypatch.setattr("mpprof.api.source.monotonic", lambda: 0.0)  # all within the time of one answer
    source, walks = LogDirectory(tmp_path), list[Path]()
    entries = source.entries()
    places = workflows.places
    monkeypatch.setattr(workflows, "places", lambda path: walks.append(path) or places(path))
    for entry in entries:
        assert to_json(source.report(entry.id))["steps"]["count"] == 160
    assert len(walks) <= 1
    steps = tmp_path / "run3" / "mpprof" / "steps.jsonl"
    steps.write_text("\n".join(steps.read_text().splitlines()[:80]) + "\n")
    assert to_json(source.report("run3"))["steps"]["count"] < 160


def test_the_source_lists_reads_and_rereads(tmp_path: Path) -> None:
    root = copy(MIXED, tmp_path / "mixed")
    copy(FLOAT32, tmp_path / "float32")
    (tmp_path / "broken" / "mpprof").mkdir(parents=True)
    (tmp_path / "broken" / "mpprof" / "run.json").write_text("{")
    source = LogDirectory(tmp_path)
    entries = {entry.id: entry for entry in source.entries()}
    assert entries.keys() == {"mixed", "float32", "broken"}
    assert entries["broken"].problem
    assert not entries["mixed"].live
    before = to_json(source.report("mixed", "float32"))
    assert before["speedup"]["baseline"] == "measured"
    steps = root / "mpprof" / "steps.jsonl"
    steps.write_text("\n".join(steps.read_text().splitlines()[:80]) + "\n")
    assert to_json(source.report("mixed"))["steps"]["count"] < before["steps"]["count"]
    assert {e.id: e for e in source.entries()}["mixed"].live
    with pytest.raises(NotFoundError):
        source.report("gone")


@pytest.mark.skipif(not SHARED.is_dir(), reason=NO_TRACES)
def test_the_v100_bert_trace_claims_no_matrix_kernel() -> None:
    run = mpprof.load(SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb")
    rows = workflows.table_rows(run, "kernels")
    busy = {row["device"] for row in rows if not row["name"].lower().startswith(("memcpy", "memset"))}
    assert len(busy) == 2
    assert not [row for row in rows if row["placement"] in ("tensor_core", "cuda_core")]
    assert any(row["precision"] == "fp16" for row in rows)
    by_stream = workflows.table_rows(run, "kernels", by_stream=True)
    for device in {row["device"] for row in rows}:
        total = sum(row["total_ns"] for row in rows if row["device"] == device)
        assert total == sum(row["total_ns"] for row in by_stream if row["device"] == device)
    share = mpprof.diagnose(run).tensor_core
    if share is not None:
        assert share.ratio is None
        assert share.reason


def test_an_unreadable_trace_is_named_once_with_one_way_out(tmp_path: Path) -> None:
    root = copy(MIXED, tmp_path / "run")
    trace = next(root.rglob("*.xplane.pb"))
    trace.write_bytes(b"")
    with pytest.raises(MpprofError) as error:
        workflows.table_rows(mpprof.load(root), "kernels")
    line = str(error.value)
    assert ".." not in line
    assert line.count(str(trace)) == 1
    assert line.count("ecord ") == 1, "one thing to do next, not two"


def test_a_trace_without_whole_steps_still_has_its_share_of_the_whole_window() -> None:
    path = SHARED / "mi300-jax" / "jax08_gemm.xplane.pb"
    if not path.exists():
        pytest.skip(NO_TRACES)
    document = documents.document(workflows.diagnose(workflows.load(path)))
    assert document["time"] is None
    share = document["tensor_core"]
    assert (share["of"], share["unit"]) == ("window", "matrix_core")
    assert share["ratio"] is not None
    shown = text.render(document)
    assert shown.count("the sequence of kernels does not repeat") == 1
    assert "Tensor Cores" not in shown.partition("Speedup")[0]


def test_a_run_that_is_written_runs_and_one_that_is_not_has_stopped(tmp_path: Path) -> None:
    root = copy(MIXED, tmp_path / "mixed")
    source = LogDirectory(tmp_path)
    (ended,) = source.entries()
    assert (ended.state, ended.live) == ("ended", False)
    steps = root / "mpprof" / "steps.jsonl"
    steps.write_text("\n".join(steps.read_text().splitlines()[:80]) + "\n")
    (running,) = source.entries()
    assert (running.state, running.live) == ("running", True)
    assert running.written_unix_ns is not None
    long_ago_s = running.written_unix_ns / 1e9 - STOPPED_AFTER_S - 1
    for file in root.rglob("*"):
        os.utime(file, (long_ago_s, long_ago_s))
    (killed,) = source.entries()
    assert (killed.state, killed.live) == ("stopped", False)
    (elsewhere,) = LogDirectory(tmp_path, refresh=lambda: None).entries()
    assert (elsewhere.state, elsewhere.live) == ("unfinished", True)


def test_what_pairs_two_runs_is_listed(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "x" / "mixed")
    copy(FLOAT32, tmp_path / "x" / "base")
    mixed, base = sorted(LogDirectory(tmp_path).entries(), key=lambda entry: entry.policy == "float32")
    assert mixed.on_gpu
    assert mixed.device == base.device is not None
    assert mixed.parameters == base.parameters is not None
    assert mixed.batch_size == base.batch_size is not None


def test_traces_beside_recorded_runs_are_listed_with_what_is_wrong_with_them(tmp_path: Path) -> None:
    root = copy(MIXED, tmp_path / "run")
    trace = next(root.rglob("*.xplane.pb"))
    for name, body in (("good", trace.read_bytes()), ("garbage", b"no trace at all"), ("empty", b"")):
        folder = tmp_path / name / "plugins" / "profile" / "now"
        folder.mkdir(parents=True)
        (folder / "host.xplane.pb").write_bytes(body)
    entries = {entry.name.partition("/")[0]: entry for entry in LogDirectory(tmp_path).entries()}
    assert entries.keys() == {"run", "good", "garbage", "empty"}
    assert entries["run"].problem is entries["good"].problem is None
    assert "not a trace" in str(entries["garbage"].problem)
    assert "empty" in str(entries["empty"].problem)


def test_the_timeline_of_a_step_adds_up_to_it(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "mixed")
    source = LogDirectory(tmp_path)
    shown = source.timeline("mixed")
    step = shown["steps"][shown["step"]]
    assert (shown["from_ns"], shown["to_ns"]) == (step["start_ns"], step["end_ns"])
    device = next(lane for lane in shown["lanes"] if lane["kind"] == "device")
    inside = sum(
        max(0, min(start + length, shown["to_ns"]) - max(start, shown["from_ns"]))
        for start, length in zip(device["start_ns"], device["length_ns"], strict=True)
    )
    assert inside == pytest.approx(step["end_ns"] - step["start_ns"], rel=0.001)
    coarse = source.timeline("mixed", width=20)
    few = next(lane for lane in coarse["lanes"] if lane["kind"] == "device")
    assert len(few["start_ns"]) < len(device["start_ns"])
    assert sum(few["count"]) == sum(device["count"])
    near = source.timeline("mixed", from_ns=step["start_ns"] + 1000, to_ns=step["start_ns"] + 2000)
    assert near["to_ns"] - near["from_ns"] == 1000
    row = next(row for row in device["row"] if row >= 0)
    kernel = source.kernel("mixed", row)
    assert kernel["name"] == shown["names"][device["label"][device["row"].index(row)]]
    assert source.kernel("mixed", 10**9) is None


def test_a_window_without_length_or_outside_the_steps_is_the_whole_step(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "mixed")
    source = LogDirectory(tmp_path)
    known = source.timeline("mixed")
    last = len(known["steps"]) - 1
    for from_ns, to_ns in ((900, 3), (5, 5), (10**17, 2 * 10**17), (-900, -3), (10**17, None), (None, -3)):
        for asked, at in ((None, known["median"]), (last, last)):
            shown = source.timeline("mixed", step=asked, from_ns=from_ns, to_ns=to_ns)
            step = shown["steps"][at]
            assert (shown["from_ns"], shown["to_ns"]) == (step["start_ns"], step["end_ns"])
    cut = source.timeline("mixed", from_ns=-(10**9), to_ns=10**17)
    assert (cut["from_ns"], cut["to_ns"]) == (0, cut["steps"][last]["end_ns"])


def test_the_waits_of_a_window_are_the_idle_time_of_the_device_by_cause(tmp_path: Path) -> None:
    copy(MIXED, tmp_path / "mixed")
    source = LogDirectory(tmp_path)
    whole = source.timeline("mixed", width=4000)
    step = whole["steps"][whole["step"]]
    middle = (step["start_ns"] + step["end_ns"]) // 2
    for from_ns, to_ns in ((step["start_ns"], step["end_ns"]), (step["start_ns"] + 17, middle)):
        shown = source.timeline("mixed", from_ns=from_ns, to_ns=to_ns, width=1)
        sums: dict[str, int] = {}
        longest: dict[str, int] = {}
        times: dict[str, int] = {}
        device = whole["lanes"][0]
        assert set(device["count"]) == {1}  # nothing is merged
        for start, length, key, row in zip(
            device["start_ns"], device["length_ns"], device["key"], device["row"], strict=True
        ):
            inside = min(start + length, to_ns) - max(start, from_ns)
            if row < 0 and inside > 0:
                name = whole["keys"][key]
                sums[name] = sums.get(name, 0) + inside
                longest[name] = max(longest.get(name, 0), inside)
                times[name] = times.get(name, 0) + 1
        assert sums
        assert {wait["key"]: wait["total_ns"] for wait in shown["waits"]} == sums
        assert {wait["key"]: wait["count"] for wait in shown["waits"]} == times
        assert [wait["total_ns"] for wait in shown["waits"]] == sorted(sums.values(), reverse=True)
        for wait in shown["waits"]:
            inside = min(wait["end_ns"], to_ns) - max(wait["start_ns"], from_ns)
            assert inside == longest[wait["key"]]


def test_a_directory_is_read_again_only_where_something_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        copy(MIXED, tmp_path / name)
    (tmp_path / "a" / "notes.txt").write_text("not a run")
    hour_ago = 1_600_000_000_000_000_000
    looked: list[Path] = []
    find = workflows.places
    monkeypatch.setattr(workflows, "places", lambda path: looked.append(path) or find(path))
    source = LogDirectory(tmp_path)
    assert [entry.id for entry in source.entries()] == ["a", "b"]
    assert [entry.id for entry in source.entries()] == ["a", "b"]
    assert len(looked) == 2  # what was just written may be written again at the same time
    monkeypatch.setattr("mpprof.runs.watching.SETTLED_NS", -(1 << 60))
    source.entries()
    looked.clear()
    source.entries()
    steps = tmp_path / "a" / "mpprof" / "steps.jsonl"
    steps.write_text("\n".join(steps.read_text().splitlines()[:80]) + "\n")
    before = to_json(source.report("b"))["steps"]["count"]
    assert to_json(source.report("a"))["steps"]["count"] < before
    assert looked == []  # a run's own file changed: nothing was searched for
    copy(MIXED, tmp_path / "c")
    assert [entry.id for entry in source.entries()] == ["a", "b", "c"]
    shutil.rmtree(tmp_path / "b")
    assert [entry.id for entry in source.entries()] == ["a", "c"]
    assert len(looked) == 2
    os.utime(tmp_path / "a" / "notes.txt", ns=(hour_ago, hour_ago))
    source.entries()
    assert len(looked) == 3  # it may have become a trace
    with source.one_answer():
        source.entries()
        copy(MIXED, tmp_path / "d")
        assert [entry.id for entry in source.entries()] == ["a", "c"]
    assert [entry.id for entry in source.entries()] == ["a", "c", "d"]
