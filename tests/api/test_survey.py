"""Many runs at once: a row for each whatever happens to some of them, ranked, and taken up where it stopped."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards import choice
from mpprof_dashboards import runs as listed

import mpprof
from mpprof.api import survey, workflows
from mpprof.api.source import LogDirectory
from mpprof.api.survey_row import Task
from mpprof.cli import main
from mpprof.cli import survey as command
from mpprof.errors import MpprofError, NotFoundError, UsageError
from mpprof.model.rows import SurveyRow
from mpprof.report.runs import survey as rendering
from tests.cli.conftest import FLOAT32, MIXED
from tests.paths import SAMPLES

ISLAND, CPU = SAMPLES / "v100-float32-island", SAMPLES / "recorded-cpu-float32"


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """Four runs, a lone trace, and two that cannot be read."""
    root = tmp_path / "logs"
    for run in (FLOAT32, MIXED, ISLAND, CPU):
        shutil.copytree(run, root / run.name)
    (trace,) = MIXED.rglob("*.xplane.pb")
    (root / "lone").mkdir()
    shutil.copy(trace, root / "lone" / trace.name)
    shutil.copytree(MIXED, root / "bad-facts")
    (root / "bad-facts" / "mpprof" / "run.json").write_text("{")
    (root / "bad-trace").mkdir()
    (root / "bad-trace" / "host.xplane.pb").write_bytes(b"\x0a\x02")
    return root


def by_name(table: mpprof.Table) -> dict[str, Any]:
    return {str(row["run"]).partition("/")[0]: row for row in table}


def test_every_run_has_a_row_and_a_bad_one_stops_no_other(logs: Path) -> None:
    seen: list[tuple[int, int, int]] = []
    table = mpprof.survey(logs, workers=2, progress=lambda *told: seen.append(told))
    rows = by_name(table)
    assert sorted(rows) == sorted(each.name for each in logs.iterdir())
    assert {name for name, row in rows.items() if row["problem"]} == {"bad-facts", "bad-trace"}
    assert "run.json" in rows["bad-facts"]["problem"]
    assert seen[0] == (0, 7, 0)
    assert seen[-1] == (7, 7, 2)
    assert [row["problem"] is None for row in table] == [True] * 5 + [False] * 2


def test_a_row_is_what_the_report_says(logs: Path) -> None:
    row = by_name(mpprof.survey(logs, workers=1))[MIXED.name]
    found = mpprof.diagnose(MIXED, FLOAT32)
    document = found.document()
    assert row["baseline"] == str(logs / FLOAT32.name)
    assert row["speedup"] == document["facts"]["observed"]
    assert row["attainable_low"] == row["attainable_high"] == document["facts"]["attainable"]
    assert not row["estimated"]
    assert (row["cause"], row["cause_gain_ns"]) == (
        "MP501",
        document["facts"]["causes"][0]["gain_ns_per_step"],
    )
    assert row["step_ns"] == document["facts"]["step_ns"]
    assert row["examples_per_s"] == found.examples_per_s
    lost = 1 - document["facts"]["after_remedies_ns"] / document["facts"]["step_ns"]  # type: ignore[operator]
    assert row["lost_ratio"] == pytest.approx(lost)
    assert row["lost_gpu_hours_per_day"] == pytest.approx(24 * lost)
    assert row["lost_by"] == "remedies"  # shorter than the attainable step


def test_without_a_baseline_what_remedies_give_back_is_lost(tmp_path: Path) -> None:
    shutil.copytree(ISLAND, tmp_path / "alone")
    (row,) = mpprof.survey(tmp_path, workers=1)
    facts = mpprof.diagnose(ISLAND).document()["facts"]
    assert (row["baseline"], row["speedup"], row["estimated"]) == (None, None, True)
    assert row["lost_by"] == "remedies"
    assert row["lost_ratio"] == pytest.approx(1 - facts["after_remedies_ns"] / facts["step_ns"])  # type: ignore[operator]


def test_what_float32_loses_too_counts_and_so_does_a_baseline_that_is_faster(tmp_path: Path) -> None:
    rows = mpprof.survey(
        [SAMPLES / f"{name}-{policy}" for name in ("v100-input-bound", "v100-convnet", "gtx1080ti")
         for policy in ("float32", "mixed-float16")],
        workers=2,
    )  # fmt: skip
    lost = {Path(row["path"]).name: row for row in rows}
    waits, slower = lost["v100-input-bound-mixed-float16"], lost["gtx1080ti-mixed-float16"]
    assert rows[0] is waits
    assert (waits["cause_slug"], waits["lost_by"]) == ("input-bound", "remedies")
    assert waits["lost_ratio"] > 1 - waits["speedup"] / waits["attainable_low"]
    assert slower["lost_by"] == "baseline"
    assert slower["lost_ratio"] == pytest.approx(1 - slower["speedup"])


def test_a_step_whose_update_is_skipped_is_lost_whole() -> None:
    names = "v100-loss-scale-thrash", "v100-truncated"
    thrash, steady = (mpprof.survey(SAMPLES / name, workers=1)[0] for name in names)
    facts = mpprof.diagnose(SAMPLES / names[0]).document()["facts"]
    kept = (1 - thrash["skipped_ratio"]) * facts["after_remedies_ns"] / facts["step_ns"]  # type: ignore[operator]
    assert thrash["skipped_ratio"] > 0.3
    assert thrash["lost_ratio"] == pytest.approx(1 - kept)
    assert thrash["lost_ratio"] > steady["lost_ratio"]


def test_survey_page_and_report_name_one_baseline_and_say_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The samples hold five float32 runs of one model on one card, and the newest is of another experiment."""
    for run in SAMPLES.glob("v100-*"):
        shutil.copytree(run, tmp_path / "logs" / run.name)
    touched = tmp_path / "logs" / "v100-input-bound-float32" / "mpprof" / "run.json"
    facts = json.loads(touched.read_text())
    touched.write_text(json.dumps(facts | {"created_unix_ns": facts["created_unix_ns"] + 1}))
    rows = by_name(mpprof.survey(tmp_path / "logs", workers=2))
    source = LogDirectory(tmp_path / "logs")
    baselines = choice.default_baselines(source.entries())
    logs = f"{tmp_path / 'logs'}/"
    assert {
        name: (row["baseline"] or "").removeprefix(logs) or None for name, row in rows.items()
    } == baselines
    assert baselines[MIXED.name] == FLOAT32.name
    assert baselines[ISLAND.name] is None
    for run in (FLOAT32, MIXED):
        shutil.copytree(run, tmp_path / "pair" / run.name)
    document = json.loads(shown(capsys, "report", tmp_path / "pair", "--format", "json"))
    row, page = rows[MIXED.name], listed.summary(source, MIXED.name, FLOAT32.name)
    said = [document["facts"][key] for key in ("step_ns", "observed", "attainable")]
    assert [row["step_ns"], row["speedup"], row["attainable_low"]] == said
    assert [page["step_ns"], page["observed"], page["attainable"]] == said


def test_a_trace_that_cannot_be_read_is_a_problem_beside_what_the_records_say(
    logs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (trace,) = (logs / MIXED.name).rglob("*.xplane.pb")
    trace.write_bytes(b"\x0a\x02")
    row = by_name(mpprof.survey(logs, workers=2))[MIXED.name]
    assert str(trace) in row["problem"]
    assert (row["policy"], row["batch_size"], row["tensor_core_ratio"]) == ("mixed_float16", 64, None)
    assert row["speedup"] == pytest.approx(
        mpprof.diagnose(MIXED, FLOAT32).document()["facts"]["observed"], 0.05
    )
    table, _, problems = shown(capsys, "survey", logs, "--workers", "2").partition("5 runs analysed")
    assert any(line.split()[1] == MIXED.name for line in table.splitlines()[1:] if line)
    listed_as = problems.splitlines()
    assert "1 run analysed without a trace that could be read:" in listed_as
    assert [line for line in listed_as if line.startswith(f"  {MIXED.name}: ") and str(trace) in line]
    assert "2 runs could not be analysed:" in listed_as


def test_every_gpu_that_trains_counts(tmp_path: Path) -> None:
    for name, replicas in (("one", 1), ("four", 4)):
        shutil.copytree(ISLAND, tmp_path / name)
        facts = tmp_path / name / "mpprof" / "run.json"
        facts.write_text(json.dumps(json.loads(facts.read_text()) | {"replicas": replicas}))
    rows = by_name(mpprof.survey(tmp_path, workers=1))
    assert (rows["one"]["gpus"], rows["four"]["gpus"]) == (1, 4)
    assert rows["four"]["lost_gpu_hours_per_day"] == pytest.approx(4 * rows["one"]["lost_gpu_hours_per_day"])
    hours = [mpprof.diagnose(tmp_path / name).gpu_hours_per_epoch for name in ("one", "four")]
    assert hours[1] == pytest.approx(4 * (hours[0] or 0.0))


def test_a_cpu_loses_no_gpu_hours_and_ranks_behind(logs: Path) -> None:
    table = mpprof.survey([str(logs)], workers=2)
    names = [str(row["run"]).partition("/")[0] for row in table if row["problem"] is None]
    assert by_name(table)[CPU.name]["gpus"] is None
    assert by_name(table)[CPU.name]["lost_gpu_hours_per_day"] is None
    assert names[-1] == CPU.name
    hours = [row["lost_gpu_hours_per_day"] for row in table if row["lost_gpu_hours_per_day"] is not None]
    assert hours == sorted(hours, reverse=True)


SITE = """
import os, signal
import mpprof.runs.loading as loading
load_at = loading.load_at
def told(root, **options):
    if root.name == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    if root.name == "hangs":
        signal.pause()
    if root.name == "prints":
        print("not a row", flush=True)
    return load_at(root, **options)
loading.load_at = told
"""


@pytest.fixture
def trapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs lie whose names make the process that reads them crash, hang or print."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return tmp_path / "logs"


def test_a_process_that_is_killed_takes_one_run_with_it(trapped: Path) -> None:
    for name in ("a", "kills", "prints", "z"):
        shutil.copytree(CPU, trapped / name)
    rows = by_name(mpprof.survey(trapped, workers=1))
    assert sorted(rows) == ["a", "kills", "prints", "z"]
    assert {name for name, row in rows.items() if row["problem"]} == {"kills"}
    assert (
        rows["kills"]["problem"]
        == "given up: its process was ended by SIGKILL, for example for lack of memory"
    )


def test_modules_in_the_current_directory_are_not_run(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.rmtree(logs / "bad-facts")
    for name in ("mpprof", "json"):
        (logs / f"{name}.py").write_text(f"open({str(tmp_path / 'trap')!r}, 'w')")
    monkeypatch.chdir(logs)
    monkeypatch.syspath_prepend(str(logs))  # as `python -m mpprof` does
    assert by_name(mpprof.survey(logs, workers=1))[MIXED.name]["problem"] is None
    assert not (tmp_path / "trap").exists()


def test_a_run_that_takes_too_long_is_given_up_and_tried_again(trapped: Path, tmp_path: Path) -> None:
    shutil.copytree(CPU, trapped / "hangs")
    for _ in range(2):
        (row,) = mpprof.survey(trapped, workers=1, time_limit_s=2, resume=tmp_path / "done.jsonl")
        assert row["problem"] == "given up: it took longer than 2 s"
    assert (tmp_path / "done.jsonl").read_text() == ""


def test_the_time_that_is_left_rests_on_what_was_analysed_now(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(command.progress, "say", said.append)
    clock = iter([0.0, 0.0, 10.0])
    told = command._Told(clock_s=lambda: next(clock))
    told(90, 300, 0)  # kept by an earlier survey
    told(100, 300, 1)
    assert said == [
        "90 of 300 runs, 0.0 a second",
        "100 of 300 runs, 1.0 a second, 1 with a problem, 200 s left",
    ]


@pytest.mark.parametrize("kept", [True, False])
def test_a_survey_that_is_interrupted_says_what_is_left_of_it(
    kept: bool,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = survey.rows

    def interrupted(left: Sequence[Task], workers: int, limit: float) -> Iterator[tuple[Task, SurveyRow]]:
        yield from islice(work(left, workers, limit), 2)
        raise KeyboardInterrupt

    monkeypatch.setattr(survey, "rows", interrupted)
    resume = ["--resume", str(tmp_path / "done.jsonl")] if kept else []
    assert main(["survey", str(logs), *resume]) == 130
    first, last = capsys.readouterr().err.splitlines()
    assert "2 of 7 runs" in first
    assert (f"{tmp_path / 'done.jsonl'}" if kept else "--resume FILE keeps them") in first
    assert last == "mpprof: interrupted"


def test_a_survey_goes_on_where_it_stopped(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "done.jsonl"
    first = mpprof.survey(logs, workers=2, resume=kept)
    lines = kept.read_text().splitlines(keepends=True)
    assert len(lines) == len(first)
    asked: list[str] = []
    work = survey.rows

    def counted(left: Sequence[Task], workers: int, limit: float) -> Iterator[tuple[Task, SurveyRow]]:
        asked.extend(task.name for task in left)
        return work(left, workers, limit)

    monkeypatch.setattr(survey, "rows", counted)
    again = mpprof.survey(logs, workers=2, resume=kept)
    assert asked == []
    assert list(again) == list(first)
    kept.write_text("".join(lines[:-1]) + lines[-1][:20])  # killed while it wrote
    assert list(mpprof.survey(logs, workers=2, resume=kept)) == list(first)
    assert len(asked) == 1
    asked.clear()
    os.utime(logs / FLOAT32.name / "mpprof" / "steps.jsonl", ns=(1, 1))
    mpprof.survey(logs, workers=2, resume=kept)
    assert sorted(asked) == sorted([FLOAT32.name, MIXED.name, ISLAND.name])  # those held against it, too


def shown(capsys: pytest.CaptureFixture[str], *argv: object) -> str:
    assert main([str(word) for word in argv]) == 0
    return capsys.readouterr().out


def test_the_command_prints_a_table_csv_and_json(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("survey", logs, "--workers", "2", "--resume", tmp_path / "done.jsonl")
    rows = json.loads(shown(capsys, *common, "--format", "json"))
    read = list(csv.DictReader(io.StringIO(shown(capsys, *common, "--format", "csv"))))
    assert [row["run"] for row in read] == [row["run"] for row in rows]
    assert list(read[0]) == list(SurveyRow.__annotations__)
    text = shown(capsys, *common)
    assert "v100-float32-island" in text
    assert "…" not in text
    assert "5 runs analysed" in text
    assert "2 runs could not be analysed" in text
    monkeypatch.setenv("COLUMNS", "80")
    narrow = shown(capsys, *common, "--limit", "2")
    assert [line for line in narrow.splitlines() if len(line) > 80 and not line.startswith("  bad")] == []
    assert "2 of 5 rows" in narrow


def test_parquet_needs_a_library_and_a_file(
    logs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["survey", str(logs), "--format", "parquet"]) == 2
    assert "needs a file" in capsys.readouterr().err
    for name in ("pyarrow", "pyarrow.parquet", "polars"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MpprofError, match="neither is installed"):
        rendering.write_parquet({"run": ["a"]}, tmp_path / "x.parquet")
    kept, out = tmp_path / "kept.jsonl", tmp_path / "x.parquet"
    assert main(["survey", str(logs), "--format", "parquet", "-o", str(out), "--resume", str(kept)]) == 2
    assert "neither is installed" in capsys.readouterr().err
    assert not kept.exists()  # said before a run is analysed


def test_every_column_has_one_type_that_a_parquet_file_takes() -> None:
    types = rendering.column_types()
    assert list(types) == list(SurveyRow.__annotations__)
    assert set(types.values()) <= {str, int, float, bool}
    assert (types["difference"], types["speedup"], types["one_step"]) == (str, float, bool)


@pytest.mark.parametrize("library", ["pyarrow", "polars"])
def test_parquet_holds_every_column(
    library: str,
    logs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pytest.importorskip(library, reason=f"{library} is not installed")
    reader = pytest.importorskip("polars", reason="Polars is not installed")
    if library == "polars":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
    out = tmp_path / "survey.parquet"
    common = ("survey", logs, "--workers", "2", "--resume", tmp_path / "done.jsonl")
    shown(capsys, *common, "--format", "parquet", "-o", out)
    monkeypatch.undo()
    frame = reader.read_parquet(out)
    assert frame.columns == list(SurveyRow.__annotations__)
    rows = json.loads(shown(capsys, *common, "--format", "json"))
    assert frame["run"].to_list() == [row["run"] for row in rows]
    assert frame["speedup"].to_list() == [row["speedup"] for row in rows]
    shown(capsys, "survey", CPU, "--format", "parquet", "-o", tmp_path / "one.parquet")
    assert reader.read_parquet(tmp_path / "one.parquet").schema == frame.schema  # though it knows less


def test_what_is_no_row_of_a_survey_is_passed_over(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(b'{"signature":1}\n' + b"[" * 3000 + b"\n\xff\n")
    assert all(row["problem"] is None for row in mpprof.survey(MIXED, workers=1, resume=kept))


@pytest.mark.parametrize("content", [b"loss: 0.3\nloss: 0.2", b'{"schema": 1}\n', b"\n", bytes(64)])
def test_a_file_that_no_survey_wrote_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    kept = tmp_path / "notes.txt"
    kept.write_bytes(content)
    with pytest.raises(UsageError, match=r"notes\.txt: is not a survey's table.*--resume a new file"):
        mpprof.survey(MIXED, workers=1, resume=kept)
    assert kept.read_bytes() == content


def test_a_survey_that_was_killed_in_its_first_row_goes_on(tmp_path: Path) -> None:
    kept = tmp_path / "kept.jsonl"
    kept.write_bytes(b'{"sig')
    assert len(mpprof.survey(MIXED, workers=1, resume=kept)) == 1
    assert [line[:13] for line in kept.read_text().splitlines()] == ['{"sig', '{"signature":']


def test_wrong_calls_are_refused(tmp_path: Path, logs: Path) -> None:
    with pytest.raises(NotFoundError):
        mpprof.survey(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="0 processes"):
        mpprof.survey(logs, workers=0)
    with pytest.raises(UsageError, match="--resume another file"):
        mpprof.survey(logs, resume=tmp_path)


def test_a_cluster_does_the_same_and_may_lose_a_worker(logs: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="Dask is not installed")
    for copy in range(6):
        shutil.copytree(MIXED, logs / f"copy-{copy}")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        pids = [worker.process.pid for worker in cluster.workers.values()]

        def told(done: int, of: int, problems: int) -> None:
            if done == 1:
                os.kill(pids[0], 9)

        found = mpprof.survey(logs, dask=cluster.scheduler_address, progress=told)
    here = mpprof.survey(logs, workers=2)
    assert list(found) == list(here)


def test_without_dask_the_error_says_what_to_install(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(MpprofError, match=r"pip install 'mpprof\[dask\]'"):
        mpprof.survey(logs, dask="tcp://127.0.0.1:1")


def test_the_list_of_runs_takes_the_rows_that_a_survey_has_kept(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "done.jsonl"
    mpprof.survey(logs, workers=2, resume=kept)
    without, source = LogDirectory(logs), LogDirectory(logs, survey=kept)
    asked = [(MIXED.name, FLOAT32.name), (FLOAT32.name, None), (CPU.name, None)]
    told = ("step", "observed", "attainable", "figure", "label", "do", "share", "peak", "cause", "spark")
    reported = [listed.summary(without, *each) for each in asked]
    with monkeypatch.context() as read:
        read.setattr(workflows, "analyse", None)  # no trace may be read
        source.entries()
        rows = [listed.summary(source, *each) for each in asked]
    assert [[row[key] for key in told] for row in rows] == [[row[key] for key in told] for row in reported]
    assert rows[0]["cause"].startswith("Mixed precision pays")
    assert source.surveyed(MIXED.name) is None  # it was held against another run
    os.utime(logs / FLOAT32.name / "mpprof" / "steps.jsonl", ns=(1, 1))
    source.entries()
    assert source.surveyed(MIXED.name, FLOAT32.name) is None
