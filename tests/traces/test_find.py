"""Which file of a directory is read: by rule, and said where there was a choice."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.errors import UnreadableError
from mpprof.traces import find
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.test_chrome import tensorflow_text
from tests.traces.test_nsys import export

RECORDED = SAMPLES / "recorded-cpu-float32"
XPLANE = next((SAMPLES / "v100-convnet-mixed-float16").rglob("*.xplane.pb")).read_bytes()


def names(folder: Path) -> list[str]:
    return [path.relative_to(folder).as_posix() for path in traces.find_traces(folder)]


def test_a_trace_that_vanishes_while_it_is_looked_for_is_left_out(tmp_path: Path) -> None:
    there = tmp_path / "a.xplane.pb"
    there.write_bytes(XPLANE)
    assert find.in_order([there, tmp_path / "gone.xplane.pb"]) == [there]


def test_one_format_of_a_session_is_read_in_the_order_of_the_rule(tmp_path: Path) -> None:
    export(tmp_path / "w.sqlite")
    assert names(tmp_path) == ["w.sqlite"]
    (tmp_path / "host.trace.json").write_bytes(tensorflow_text())
    assert names(tmp_path) == ["host.trace.json"]
    small().write(tmp_path / "rank0.json.gz")  # a Kineto trace under a name of somebody's own
    assert names(tmp_path) == ["rank0.json.gz"]
    (tmp_path / "host.xplane.pb").write_bytes(XPLANE)
    assert names(tmp_path) == ["host.xplane.pb"]


@pytest.mark.parametrize(
    ("first", "name", "read"),
    [
        ("k.xplane.pb", "w.sqlite", "kineto"),
        ("a.json.gz", "k.xplane.pb", "kineto"),
        ("trace.json", "w.sqlite", "kineto"),
    ],
)
def test_the_bytes_say_what_comes_first_and_what_was_read(
    tmp_path: Path, first: str, name: str, read: str
) -> None:
    small().write(tmp_path / first)
    export(tmp_path / name)
    (run,) = workflows.runs(tmp_path)
    assert run.traces == (tmp_path / first,)
    assert run.warnings == (
        f"this {read} trace was read; traces of another format beside it were not: {name}",
    )
    assert workflows.analyse(run).trace is not None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "empty"),
        (b"hello" * 99, "its content is not a trace"),
        (b"\x1f\x8b\x08", "its content is not a trace"),
    ],
)
def test_what_only_a_name_claims_is_read_last(tmp_path: Path, content: bytes, why: str) -> None:
    small().write(tmp_path / "z.pt.trace.json.gz")
    (tmp_path / "h.xplane.pb").write_bytes(content)
    (run,) = workflows.runs(tmp_path)
    assert run.traces == (tmp_path / "z.pt.trace.json.gz",)
    assert run.warnings == (
        f"this kineto trace was read; traces of another format beside it were not: h.xplane.pb ({why})",
    )
    (tmp_path / "z.pt.trace.json.gz").unlink()
    assert names(tmp_path) == ["h.xplane.pb"]


def test_a_trace_that_only_its_bytes_show_is_named_beside_another(tmp_path: Path) -> None:
    export(tmp_path / "w.sqlite")
    small().write(tmp_path / "prof.bin")
    (tmp_path / "notes.txt").write_text("hello")
    (run,) = workflows.runs(tmp_path)
    assert run.traces == (tmp_path / "w.sqlite",)
    assert run.warnings == ("not read, because only the content is that of a trace: prof.bin",)


@pytest.mark.parametrize("name", ["foo", "trace.json", "host.xplane.pb.bak"])
def test_the_renamed_trace_of_a_window_is_read(tmp_path: Path, name: str) -> None:
    shutil.copytree(RECORDED, tmp_path / "run")
    (own,) = (tmp_path / "run").glob("plugins/profile/*/*.xplane.pb")
    expected = workflows.diagnose(workflows.load(tmp_path / "run")).account
    renamed = own.rename(own.with_name(name))
    (renamed.parent / "notes.txt").write_text("hello")
    run = workflows.load(tmp_path / "run")
    assert run.traces == (renamed,)
    said = f"{name} was read: its content is a trace, although its name is not that of one"
    assert run.warnings == (() if name == "trace.json" else (said,))
    assert workflows.diagnose(run).account == expected is not None
    renamed.write_bytes(b"hello")
    why = workflows.diagnose(workflows.load(tmp_path / "run")).absent["time"]
    folder = own.parent.relative_to(tmp_path / "run").as_posix()
    assert why.startswith(f"the trace of the profiler window is missing: {folder} holds no trace, only ")
    assert name in why


def test_a_host_whose_trace_is_empty_is_not_read_where_another_host_s_is_whole(tmp_path: Path) -> None:
    session = tmp_path / "plugins" / "profile" / "2026_01_01_00_00_00"
    session.mkdir(parents=True)
    (session / "alpha.xplane.pb").write_bytes(b"")
    (session / "beta.xplane.pb").write_bytes(XPLANE)
    assert traces.find_traces(tmp_path)[-1].name == "beta.xplane.pb"
    assert traces.hosts_beside(session / "beta.xplane.pb") == (
        ("alpha", session / "alpha.xplane.pb", "empty"),
    )
    assert traces.find_traces(tmp_path, host="alpha")[-1].name == "alpha.xplane.pb"  # the run's own


def test_every_host_of_a_session_and_every_session_is_found_newest_last(tmp_path: Path) -> None:
    for at, name in enumerate(("b/one.xplane.pb", "b/two.xplane.pb", "a/w.pt.trace.json.gz")):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        small().write(path)
        os.utime(path, (1000 + at, 1000 + at))
    assert names(tmp_path) == ["b/one.xplane.pb", "b/two.xplane.pb", "a/w.pt.trace.json.gz"]


def test_of_a_sessions_hosts_the_first_by_name_is_read_or_the_one_that_recorded(tmp_path: Path) -> None:
    session = tmp_path / "plugins" / "profile" / "2026_01_01_00_00_00"
    session.mkdir(parents=True)
    for at, name in enumerate(("beta", "alpha", "gamma")):  # written in this order
        (session / f"{name}.xplane.pb").write_bytes(XPLANE)
        os.utime(session / f"{name}.xplane.pb", (1000 + at, 1000 + at))
    ordered = [file.name.partition(".")[0] for file in traces.find_traces(tmp_path)]
    assert ordered == ["gamma", "beta", "alpha"]
    assert traces.find_traces(tmp_path, host="beta")[-1].name == "beta.xplane.pb"
    beside = traces.hosts_beside(session / "alpha.xplane.pb")
    assert [(host, why) for host, _, why in beside] == [("beta", ""), ("gamma", "")]
    assert traces.choice(session / "alpha.xplane.pb") is None


def test_a_run_reads_the_trace_of_its_own_host_first(tmp_path: Path) -> None:
    shutil.copytree(RECORDED, tmp_path / "run")
    (own,) = (tmp_path / "run").glob("plugins/profile/*/*.xplane.pb")
    run = workflows.load(tmp_path / "run")
    assert run.traces == (own,)
    assert (run.warnings, run.hosts) == ((), ())
    for name in ("aaa", "zzz"):
        shutil.copy(own, own.with_name(f"{name}.xplane.pb"))
    run = workflows.load(tmp_path / "run")
    assert run.traces[-1] == own
    assert run.warnings == ()
    assert [each.trace.name for each in run.hosts if each.trace] == [
        own.name, "aaa.xplane.pb", "zzz.xplane.pb",
    ]  # fmt: skip


def test_other_files_are_no_traces(tmp_path: Path) -> None:
    (tmp_path / "data.json.gz").write_bytes(gzip.compress(b'{"rows": [1, 2, 3]}'))
    (tmp_path / "broken.json.gz").write_bytes(b"no gzip")
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "folder.sqlite").mkdir()
    assert names(tmp_path) == []


def test_a_report_counts_where_its_export_is_missing(tmp_path: Path) -> None:
    (tmp_path / "run.nsys-rep").write_bytes(b"x")
    assert names(tmp_path) == ["run.nsys-rep"]
    export(tmp_path / "run.sqlite")
    assert names(tmp_path) == ["run.sqlite"]
    assert traces.choice(tmp_path / "run.sqlite") is None


def test_the_choice_is_said_in_the_run(tmp_path: Path) -> None:
    small().write(tmp_path / "w.pt.trace.json")
    export(tmp_path / "w.sqlite")
    (run,) = workflows.runs(tmp_path)
    assert run.traces == (tmp_path / "w.pt.trace.json",)
    assert run.warnings == (
        "this kineto trace was read; traces of another format beside it were not: w.sqlite",
    )


def test_a_file_that_is_named_is_no_choice_and_nor_is_the_viewers_export(tmp_path: Path) -> None:
    small().write(tmp_path / "w.pt.trace.json")
    export(tmp_path / "w.sqlite")
    assert workflows.load(tmp_path / "w.sqlite").warnings == ()
    folder = tmp_path / "jax"
    folder.mkdir()
    (folder / "host.xplane.pb").write_bytes(XPLANE)
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(tensorflow_text()))
    (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(b'{"traceEvents": []}'))
    assert traces.choice(folder / "host.xplane.pb") is None
    (folder / "host.pt.trace.json").write_bytes(b"{}")
    assert "were not: host.pt.trace.json" in str(traces.choice(folder / "host.xplane.pb"))


def test_links_that_lead_nowhere_and_pipes_are_no_traces(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    small().write(tmp_path / "run" / "a.pt.trace.json.gz")
    (tmp_path / "run" / "gone.pt.trace.json.gz").symlink_to("nowhere")
    (tmp_path / "run" / "self.pt.trace.json.gz").symlink_to("self.pt.trace.json.gz")
    (tmp_path / "run" / "gone.xplane.pb").symlink_to("nowhere")
    os.mkfifo(tmp_path / "run" / "pipe.pt.trace.json.gz")
    os.mkfifo(tmp_path / "run" / "pipe.json.gz")
    assert names(tmp_path) == ["run/a.pt.trace.json.gz"]
    with pytest.raises(UnreadableError, match="regular file"):
        traces.read(tmp_path / "run" / "pipe.pt.trace.json.gz")


def test_each_trace_of_a_folder_of_many_is_a_run_whatever_its_format(tmp_path: Path) -> None:
    for name in ("a.pt.trace.json.gz", "b.json.gz"):
        small().write(tmp_path / name)
    for name in ("a.sqlite", "w.sqlite", "z.xplane.pb"):  # the last by its name alone of another format
        export(tmp_path / name)
    (tmp_path / "w.nsys-rep").write_bytes(b"x")
    runs = workflows.runs(tmp_path)
    assert [run.name for run in runs] == sorted(
        ("a.pt.trace.json.gz", "b.json.gz", "a.sqlite", "w.sqlite", "z.xplane.pb"),
        key=lambda name: ((tmp_path / name).stat().st_mtime_ns, name),
    )
    assert all(run.warnings == () for run in runs)
    assert all(workflows.analyse(run).trace is not None for run in runs)


def test_a_viewers_export_is_no_run_of_its_own(tmp_path: Path) -> None:
    for host in ("a", "b"):
        (tmp_path / f"{host}.xplane.pb").write_bytes(XPLANE)
        (tmp_path / f"{host}.trace.json.gz").write_bytes(gzip.compress(tensorflow_text()))
    assert sorted(run.name for run in workflows.runs(tmp_path)) == ["a.xplane.pb", "b.xplane.pb"]


def test_a_folder_holds_the_same_runs_whether_it_is_named_or_one_above_it(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "host.xplane.pb").write_bytes(XPLANE)
        small().write(tmp_path / name / "rank0.pt.trace.json")
    above = {run.name: run.warnings for run in workflows.runs(tmp_path)}
    within = {
        f"{name}/{run.name}": run.warnings for name in ("a", "b") for run in workflows.runs(tmp_path / name)
    }
    assert above == within
    assert all("rank0.pt.trace.json" in said for (said,) in above.values())
