"""`mpprof ls`: every run of a directory in one line."""

import csv
import io
import json
import os
import shutil
from pathlib import Path
from time import time_ns

import pytest

from mpprof.report.runs.listing import shortened
from tests.builders import records
from tests.builders.gpus import V100
from tests.builders.xspace import Space
from tests.cli.conftest import MIXED, Mpprof
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.test_nsys import export


def recorded(directory: Path, name: str, dtype: str = "float16", **more: object) -> Path:
    layers = records.imagenette_convnet(dtype)
    run = records.Recorded(name, V100, dtype, layers, batch=64, step_ms=21.5, noise=0.0, **more)  # type: ignore[arg-type]
    return records.write(run, directory)


def without_end(run: Path, written_s_ago: float) -> Path:
    """The run as its process leaves it when it is killed, or while it lives."""
    log = run / "mpprof" / "steps.jsonl"
    lines = [line for line in log.read_text().splitlines(keepends=True) if '"fit_end"' not in line]
    log.write_text("".join(lines))
    at = time_ns() - int(written_s_ago * 1e9)
    for file in (run / "mpprof").iterdir():
        os.utime(file, ns=(at, at))
    return run


def rows(mpprof: Mpprof, path: object) -> dict[str, dict[str, object]]:
    done = mpprof("ls", path, "--format", "json")
    assert done.code == 0
    return {row["run"]: row for row in json.loads(done.out)}


def test_each_run_has_its_policy_card_batch_and_the_step_time_of_its_report(mpprof: Mpprof) -> None:
    found = rows(mpprof, SAMPLES)
    row = found[MIXED.name]
    report = json.loads(mpprof("report", MIXED, "--format", "json").out)
    assert (row["policy"], row["batch_size"]) == ("mixed_float16", 64)
    assert row["card"] == report["run"]["device"]
    assert row["step_ns"] == pytest.approx(report["steps"]["mean_ns"])
    assert (row["state"], row["absent"]) == ("ended", {})
    created = [each["created_unix_ns"] for each in found.values()]
    assert created == sorted(created)  # type: ignore[type-var]


def test_of_a_running_training_it_says_when_the_profile_opens(mpprof: Mpprof, tmp_path: Path) -> None:
    run = without_end(recorded(tmp_path, "live", steps=7), 0)
    facts = json.loads((run / "mpprof" / "run.json").read_text())
    del facts["absent"]["profile_windows"]
    plans = {"at step 13": (13, 17, False), "at step 10 or soon after": (10, None, True),
             "once step times have settled": (5, None, True), "": (3, 5, False)}  # fmt: skip
    for opens, (first, last, automatic) in plans.items():
        plan = {"first_step": first, "last_step": last, "automatic": automatic}
        changed = facts | {"profile_windows": [], "profile_plan": plan}
        (run / "mpprof" / "run.json").write_text(json.dumps(changed))
        said = f"step 7, the profile opens {opens}" if opens else "step 7"
        assert rows(mpprof, tmp_path)["live"]["progress"] == said
        assert mpprof("ls", tmp_path).out.endswith(f"\n\nlive: running, {said}\n")
        report = mpprof("report", run, "-v").out
        assert (f"it was to open {opens}" in " ".join(report.split())) == bool(opens)
    (run / "mpprof" / "run.json").write_text(json.dumps(changed | {"profile_windows": [{"status": "open"}]}))
    assert rows(mpprof, tmp_path)["live"]["progress"] == "step 7"
    without_end(run, 3600)
    assert rows(mpprof, tmp_path)["live"]["progress"] is None


@pytest.mark.parametrize("columns", ["80", "68"])
def test_the_table_fits_80_columns(columns: str, mpprof: Mpprof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    lines = mpprof("ls", SAMPLES).out.splitlines()
    assert lines[0].split() == ["run", "policy", "card", "batch", "step", "state", "written"]
    assert len(lines) == 1 + len(rows(mpprof, SAMPLES))
    assert max(map(len, lines)) <= int(columns)


def test_in_a_pipe_every_name_is_whole(mpprof: Mpprof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    found = rows(mpprof, SAMPLES)
    table = mpprof("ls", SAMPLES).out
    assert {line.split()[0] for line in table.splitlines()[1:]} == set(found)
    assert "…" not in table


def test_the_state_is_told_by_the_records_end_and_the_last_write(mpprof: Mpprof, tmp_path: Path) -> None:
    recorded(tmp_path, "ended")
    without_end(recorded(tmp_path, "running"), written_s_ago=1)
    without_end(recorded(tmp_path, "stopped"), written_s_ago=120)
    found = rows(mpprof, tmp_path)
    assert {name: row["state"] for name, row in found.items()} == {
        name: name for name in ("ended", "running", "stopped")
    }
    table = mpprof("ls", tmp_path).out
    assert "2 min ago" in next(line for line in table.splitlines() if line.startswith("stopped"))


def test_what_is_written_beside_the_records_does_not_revive_a_run(mpprof: Mpprof, tmp_path: Path) -> None:
    run = without_end(recorded(tmp_path, "killed"), written_s_ago=120)
    (run / "mpprof" / "counters.json").write_text("{}")
    assert rows(mpprof, tmp_path)["killed"]["state"] == "stopped"


def test_a_further_worker_that_still_writes_keeps_its_run_running(mpprof: Mpprof, tmp_path: Path) -> None:
    run = without_end(recorded(tmp_path, "two"), written_s_ago=120)
    shutil.copytree(run / "mpprof", run / "mpprof" / "worker-1", copy_function=shutil.copy)
    assert rows(mpprof, tmp_path)["two"]["state"] == "running"


def test_of_a_copy_from_elsewhere_the_records_own_clock_tells_when(mpprof: Mpprof, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    run = without_end(recorded(tmp_path, "far"), written_s_ago=1)
    last_ns = max(
        json.loads(line).get("t_ns", 0) for line in (run / "mpprof/steps.jsonl").read_text().splitlines()
    )
    memory = fsspec.filesystem("memory")
    memory.put(str(tmp_path), "/bucket", recursive=True)
    try:
        found = rows(mpprof, "memory://bucket")
    finally:
        memory.rm("/bucket", recursive=True)
    assert found["far"]["state"] == "unfinished"
    assert found["far"]["last_written_unix_ns"] == records.UNIX_NS + last_ns


def test_a_broken_run_is_listed_with_its_reason_and_a_lone_trace_without_figures(
    mpprof: Mpprof, tmp_path: Path
) -> None:
    recorded(tmp_path, "whole")
    (recorded(tmp_path, "newer") / "mpprof/run.json").write_text('{"schema": "mpprof.run/99"}')
    found = rows(mpprof, tmp_path)
    assert list(found) == ["whole", "newer"]
    assert "newer" in str(found["newer"]["problem"])
    assert found["newer"]["state"] is None
    lines = mpprof("ls", tmp_path).out.splitlines()
    assert "broken" in lines[2]
    assert lines[-1].startswith("newer: ")
    assert str(found["newer"]["problem"]) in lines[-1]

    lone = tmp_path / "lone" / "host.xplane.pb"
    lone.parent.mkdir()
    lone.write_bytes(Space(hostnames=["here"]).to_bytes())
    row = rows(mpprof, lone)["host.xplane.pb"]
    assert (row["step_ns"], row["state"], row["traces"]) == (None, None, 1)
    assert "without records" in row["absent"]["step_ns"]  # type: ignore[index]


def test_a_run_whose_files_are_empty_is_listed_with_that_reason(mpprof: Mpprof, tmp_path: Path) -> None:
    """As the help promises: "runs that cannot be read come last, with the reason"."""
    recorded(tmp_path, "whole")
    for file in ("log/mpprof/steps.jsonl", "traces/host.xplane.pb"):
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).touch()
    found = rows(mpprof, tmp_path)
    assert list(found) == ["whole", "log"]  # beside records only these are runs
    assert found["log"]["problem"] == f"{tmp_path / 'log'}: holds nothing. Record it again, or delete it"
    (lone,) = rows(mpprof, tmp_path / "traces").values()
    assert "host.xplane.pb: holds nothing" in str(lone["problem"])
    assert "broken" in mpprof("ls", tmp_path / "traces").out.splitlines()[1]


def test_csv_has_the_same_rows(mpprof: Mpprof, tmp_path: Path) -> None:
    recorded(tmp_path, "one")
    (row,) = csv.DictReader(io.StringIO(mpprof("ls", tmp_path, "--format", "csv").out))
    (same,) = rows(mpprof, tmp_path).values()
    assert list(row) == list(same)
    assert float(row["step_ns"]) == same["step_ns"]


def test_a_directory_without_runs_is_an_error(mpprof: Mpprof, tmp_path: Path) -> None:
    done = mpprof("ls", tmp_path)
    assert (done.code, done.out) == (2, "")
    assert "no mpprof records" in done.err


ALIKE = (
    "resnet50-imagenet-bs256-mixed_float16-lr0.1-seed1", "resnet50-imagenet-bs256-mixed_float16-lr0.1-seed2",
    "resnet50-imagenet-bs512-mixed_float16-lr0.1-seed1", "resnet50-imagenet-bs512-mixed_bfloat16-lr0.1-seed1",
    "2026-11-22T09-41-07Z-18231/train", "2026-11-22T09-41-07Z-18231/eval", "2026-11-22T10-41-07Z-18231/train",
    "wandb/run-20261122_094107-a1b2c3d4/files", "wandb/run-20261122_094107-a1b2c3d5/files", "short",
)  # fmt: skip


@pytest.mark.parametrize("width", [12, 16, 22, 28, 40, 80])
def test_names_that_differ_stay_different_when_they_are_cut(width: int) -> None:
    found = shortened(ALIKE, width)
    assert len(set(found)) == len(ALIKE)
    assert found[-1] == "short"
    assert all(len(short) <= width or short == whole for short, whole in zip(found, ALIKE, strict=True))
    assert max(map(len, found)) <= width


def test_every_row_of_a_narrow_table_can_be_told_from_the_others(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ALIKE:
        recorded(tmp_path, name)
    monkeypatch.setenv("COLUMNS", "80")
    lines = mpprof("ls", tmp_path).out.splitlines()[1:]
    assert len({line.split()[0] for line in lines}) == len(ALIKE)
    assert max(map(len, lines)) <= 80


def test_every_trace_of_a_folder_is_listed_whatever_its_format(mpprof: Mpprof, tmp_path: Path) -> None:
    small().write(tmp_path / "a.pt.trace.json.gz")
    export(tmp_path / "b.sqlite")
    rows = json.loads(mpprof("ls", tmp_path, "--format", "json").out)
    assert [row["run"] for row in rows] == ["a.pt.trace.json.gz", "b.sqlite"]
