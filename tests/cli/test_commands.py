"""The commands end to end on the sample runs: what they print, and what they exit with."""

import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import jsonschema
import pytest

from mpprof.cli import NAMES, main
from mpprof.report import json as documents
from tests.builders.xspace import Space
from tests.cli.conftest import FLOAT32, MIXED, Mpprof, in_a_process, needs_shared
from tests.paths import SAMPLES, SHARED
from tests.traces.kineto import small
from tests.traces.test_nsys import export


def test_every_command_has_help_that_says_what_it_does_in_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert len(set(NAMES)) == len(NAMES)
    for name in NAMES:
        with pytest.raises(SystemExit) as ended:
            main([name, "--help"])
        assert ended.value.code == 0
        said = capsys.readouterr().out
        assert f"mpprof {name}" in said
        assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("module", ["mpprof", "mpprof.cli"])
def test_the_command_is_a_module_too(module: str) -> None:
    done = subprocess.run([sys.executable, "-m", module, "--version"], capture_output=True, check=False)
    assert (done.returncode, done.stdout.decode().split()[0]) == (0, "mpprof")


def test_report_json_keeps_the_schema_and_closes(mpprof: Mpprof) -> None:
    done = mpprof("report", MIXED, "--baseline", FLOAT32, "--format", "json")
    assert done.code == 0
    document = json.loads(done.out)
    jsonschema.Draft202012Validator(documents.schema("report")).validate(document)
    time, gain = document["time"], document["speedup"]
    assert sum(part["ns_per_step"] for part in time["slices"]) == pytest.approx(time["step_ns"], abs=1)
    assert sum(part["ns_per_step"] for part in gain["slices"]) == pytest.approx(gain["gap_ns"], abs=1)
    assert gain["baseline"] == "measured"
    assert document["run"]["policy"] == "mixed_float16"


@pytest.mark.parametrize("name", sorted(path.parent.name for path in SAMPLES.glob("*/origin.json")))
def test_every_sample_makes_a_valid_document(name: str, mpprof: Mpprof) -> None:
    done = mpprof("report", SAMPLES / name, "--format", "json")
    assert done.code == 0
    jsonschema.Draft202012Validator(documents.schema("report")).validate(json.loads(done.out))


@pytest.mark.parametrize("form", ["text", "markdown"])
def test_a_report_for_people_holds_the_verdict(form: str, mpprof: Mpprof) -> None:
    verdict = json.loads(mpprof("report", MIXED, "--format", "json").out)["verdict"]
    shown = " ".join(mpprof("report", MIXED, "--format", form, "-v").out.split())
    assert verdict.split("(")[0].strip() in shown
    assert "\x1b" not in shown


def test_a_report_as_one_page(mpprof: Mpprof, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert mpprof("report", MIXED, "--format", "html", "-o", page).code == 0
    content = page.read_text()
    assert content.lstrip().lower().startswith("<!doctype html")
    assert MIXED.name in content


def test_a_ladder_has_a_step_for_each_neighbour(mpprof: Mpprof) -> None:
    ladder = (FLOAT32, MIXED, SAMPLES / "v100-float32-island")
    document = json.loads(mpprof("compare", *ladder, "--format", "json").out)
    jsonschema.Draft202012Validator(documents.schema("compare")).validate(document)
    assert [(step["from"], step["to"]) for step in document["steps"]] == [(0, 1), (1, 2)]
    assert {kernel["step"] for kernel in document["kernels"]} == {0, 1}
    for step in document["steps"]:
        if step["gap_ns"] is not None:
            assert sum(part["ns_per_step"] for part in step["slices"]) == pytest.approx(step["gap_ns"], abs=1)


def test_a_run_on_a_cpu_has_no_tensor_core_share(mpprof: Mpprof) -> None:
    document = json.loads(mpprof("report", SAMPLES / "recorded-cpu-float32", "--format", "json").out)
    assert document["time"]["basis"] == "host"
    assert document["tensor_core"] is None
    assert document["absent"]["tensor_core"]


def test_compare_of_two_runs(mpprof: Mpprof) -> None:
    done = mpprof("compare", FLOAT32, MIXED, "--format", "json")
    assert done.code == 0
    document = json.loads(done.out)
    jsonschema.Draft202012Validator(documents.schema("compare")).validate(document)
    assert [run["run"]["name"] for run in document["runs"]] == [FLOAT32.name, MIXED.name]
    assert document["steps"][0]["observed"] > 1
    assert mpprof("compare", FLOAT32, MIXED, "--format", "html").out.startswith("<!DOCTYPE html>")
    text = mpprof("compare", FLOAT32, MIXED).out
    assert f"{FLOAT32.name} → {MIXED.name}" in text


def test_global_options_stand_before_or_after_the_command(mpprof: Mpprof) -> None:
    truncated = SAMPLES / "v100-truncated"
    assert mpprof("report", truncated).code == 0
    for args in (("--strict", "report", truncated), ("report", "--strict", truncated)):
        done = mpprof(*args)
        assert done.code == 2
        assert "byte" in done.err


def test_a_cut_off_trace_is_reported_with_its_warning(mpprof: Mpprof) -> None:
    warnings = json.loads(mpprof("report", SAMPLES / "v100-truncated", "--format", "json").out)["warnings"]
    assert any("byte" in warning for warning in warnings)
    table = mpprof("kernels", SAMPLES / "v100-truncated")
    assert table.code == 0
    assert "warning" in table.err
    assert mpprof("--quiet", "kernels", SAMPLES / "v100-truncated").err == ""


# --- bad input ---------------------------------------------------------------------------------------------


def one_line(text: str) -> str:
    assert text.count("\n") == 1
    assert text.startswith("mpprof: ")
    return text


@pytest.mark.parametrize(
    "command", ["report", "kernels", "ops", "layers", "memory", "bundle", "compare", "serve"]
)
def test_a_missing_path_is_one_line_and_exit_code_2(command: str, mpprof: Mpprof, tmp_path: Path) -> None:
    done = mpprof(command, tmp_path / "absent")
    assert done.code == 2
    assert str(tmp_path / "absent") in one_line(done.err)
    assert done.out == ""


@pytest.mark.parametrize("content", ["", "hello\n", '{"traceEvents": '])
def test_a_file_that_is_no_trace(content: str, mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_text(content)
    for command in ("report", "kernels"):
        done = mpprof(command, path)
        assert done.code == 2
        assert str(path) in one_line(done.err)


def test_records_of_a_newer_version(mpprof: Mpprof, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(MIXED, run)
    path = run / "mpprof" / "run.json"
    path.write_text(path.read_text().replace("mpprof.run/1", "mpprof.run/99"))
    done = mpprof("report", run)
    assert done.code == 2
    assert "mpprof.run/99" in one_line(done.err) or "99" in done.err


def test_a_path_with_several_runs_lists_them(mpprof: Mpprof, tmp_path: Path) -> None:
    for source in (MIXED, SAMPLES / "v100-float32-island"):  # no pair: both in mixed precision
        shutil.copytree(source, tmp_path / source.name)
    done = mpprof("report", tmp_path)
    assert done.code == 2
    assert "--run" in done.err
    assert MIXED.name in done.err
    assert mpprof("report", tmp_path, "--run", MIXED.name).code == 0
    assert mpprof("kernels", tmp_path, "--run", "latest").code == 0
    assert mpprof("report", tmp_path, "--run", "nonsense").code == 2


def test_a_cut_table_of_several_devices_names_the_device(mpprof: Mpprof, tmp_path: Path) -> None:
    def work(device: int, name: str) -> dict[str, object]:
        args = {"device": device, "stream": 7, "correlation": device + 1}
        return {
            "ph": "X",
            "cat": "kernel",
            "name": name,
            "pid": device,
            "tid": 7,
            "ts": 1,
            "dur": 5,
            "args": args,
        }

    trace = tmp_path / "w.pt.trace.json"
    for devices in (2, 1):
        events = [work(device, name) for device in range(devices) for name in ("a", "b")]
        trace.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
        done = mpprof("kernels", trace, "--limit", "1")
        assert done.code == 0
        assert ("/device:GPU:0" in "".join(done.out.splitlines()[:3])) == (devices == 2)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("kernels", MIXED, "--limit", "-1"), "--limit"),
        (("kernels", MIXED, "--limit", "many"), "--limit"),
        (("kernels", MIXED, "--sort", "nonsense"), "total_ns"),
        (("kernels", MIXED, "--by", "nonsense"), "family"),
        (("kernels", MIXED, "--steps", "9:3"), "--steps"),
        (("kernels", MIXED, "--steps", "900:901"), "900"),
        (("kernels", MIXED, "--format", "xml"), "--format"),
        (("report",), "PATH"),
        (("nonsense",), "nonsense"),
        ((), "COMMAND"),
        (("classify", "--cc", "eight", "x"), "8.0"),
        (("classify", "--gpu", "nonsense", "x"), "--cc"),
        (("classify", "--gpu", "A100,V100", "x"), "one card"),
        (("explain", "MP000"), "MP000"),
        (("compare", MIXED), "two runs"),
        (("serve", MIXED / "origin.json"), "directory"),
        (("serve", MIXED, "--port", "70000"), "70000"),
        (("bundle", MIXED, "--max-size", "-3"), "--max-size"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(args: tuple[object, ...], says: str, mpprof: Mpprof) -> None:
    done = mpprof(*args)
    assert done.code == 2
    assert says in one_line(done.err)


def test_what_mpprof_wrote_of_a_run_is_not_the_run(mpprof: Mpprof, tmp_path: Path) -> None:
    stored = tmp_path / "baseline.json"
    assert mpprof("report", MIXED, "--format", "json", "-o", stored).code == 0
    done = mpprof("report", MIXED, "--baseline", stored)
    assert done.code == 2
    assert "Give the log directory" in one_line(done.err)


@pytest.mark.parametrize(
    ("environment", "colours"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_a_terminal_has_colours_unless_it_or_its_user_has_none(
    environment: dict[str, str],
    colours: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | environment).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["report", str(MIXED)]) == 0
    assert ("\x1b[" in capsys.readouterr().out) == colours


def test_a_message_cannot_steer_the_terminal(mpprof: Mpprof, tmp_path: Path) -> None:
    done = mpprof("report", tmp_path / "a\x1b[31mb")
    assert done.code == 2
    assert "\x1b" not in done.err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission(mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(b"x")
    path.chmod(0)
    done = mpprof("report", path)
    assert done.code == 2
    assert str(path) in one_line(done.err)


@pytest.mark.parametrize("holds", ["nothing", "a run"])
def test_serve_says_where_no_run_is_yet_what_it_expects(
    holds: str, mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("waitress.wasyncore.loop", interrupted)
    if holds == "a run":
        shutil.copytree(MIXED, tmp_path / "run")
    done = mpprof("serve", tmp_path, "--port", "0")
    assert (done.code, done.err) == (0, "")
    first, *rest = done.out.splitlines()
    assert "http://127.0.0.1:" in first
    assert [
        all(word in line for word in ("No runs yet", "MPProfilerCallback", "appear")) for line in rest
    ] == ([True] if holds == "nothing" else [])


# --- output ------------------------------------------------------------------------------------------------


def test_a_file_is_not_overwritten_unless_told(mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "report.txt"
    assert mpprof("report", MIXED, "-o", path).code == 0
    written = path.read_text()
    assert "matmul" in written
    path.write_text("mine")
    done = mpprof("report", MIXED, "-o", path)
    assert done.code == 2
    assert "--force" in done.err
    assert path.read_text() == "mine"
    assert mpprof("report", MIXED, "-o", path, "--force").code == 0
    assert path.read_text() == written


def test_a_failed_write_leaves_nothing(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    done = mpprof("report", MIXED, "-o", tmp_path / "report.txt")
    assert done.code == 2
    assert "No space left" in done.err
    assert list(tmp_path.iterdir()) == []
    assert mpprof("report", MIXED, "-o", tmp_path / "absent" / "x").code == 2


def test_a_reader_that_leaves_early_is_no_error() -> None:
    command = [sys.executable, "-m", "mpprof.cli", "kernels", str(MIXED), "--format", "csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "command",
    [("report", MIXED), ("explain",), ("classify", "sgemm"), ("doctor",),
     ("bundle", MIXED, "--quiet", "-o", "run.zip")],
)  # fmt: skip
def test_a_full_disk_behind_stdout_is_one_line(command: tuple[object, ...], tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "mpprof.cli", *map(str, command)], cwd=tmp_path, env=elsewhere(),
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert "standard output: cannot be written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_the_exit_code_does_not_depend_on_who_reads_stderr(tmp_path: Path) -> None:
    """1 says that a check failed; what cannot be read is 2, and a bundle that was written is 0."""
    for command, code in (("report", "/nope"), 2), (("bundle", str(MIXED), "-o", "run.zip"), 0):
        with open("/dev/full", "w") as full:
            done = subprocess.run(
                [sys.executable, "-m", "mpprof.cli", *command], cwd=tmp_path, env=elsewhere(),
                stdout=subprocess.DEVNULL, stderr=full, check=False,
            )  # fmt: skip
        assert done.returncode == code, command


def test_a_terminal_without_unicode_still_gets_a_report() -> None:
    done = in_a_process("report", MIXED, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.code == 0
    assert "#####" in done.out
    assert done.out.isascii()


# --- tables ------------------------------------------------------------------------------------------------


def test_kernels_has_the_rows_of_the_contract(mpprof: Mpprof) -> None:
    rows = json.loads(mpprof("kernels", MIXED, "--format", "json").out)
    keys = ["device", "name", "op", "layer", "placement", "precision", "family", "reason", "calls", "total_ns",
            "ratio"]  # fmt: skip
    for row in rows:
        assert [key for key in row if key in keys] == keys, (
            "these keys stay, in this order; add others anywhere"
        )
    assert sum(row["ratio"] for row in rows) == pytest.approx(1)
    by_stream = json.loads(mpprof("kernels", MIXED, "--format", "json", "--by", "stream").out)
    assert all("stream" in row for row in by_stream)
    assert sum(row["total_ns"] for row in by_stream) == sum(row["total_ns"] for row in rows)


def test_sort_limit_and_by(mpprof: Mpprof) -> None:
    rows = json.loads(mpprof("kernels", MIXED, "--format", "json", "--sort", "calls", "--limit", 5).out)
    calls = [row["calls"] for row in rows]
    assert len(rows) == 5
    assert calls == sorted(calls, reverse=True)
    names = json.loads(mpprof("kernels", MIXED, "--format", "json", "--sort", "name").out)
    assert [row["name"] for row in names] == sorted(row["name"] for row in names)
    grouped = json.loads(mpprof("kernels", MIXED, "--format", "json", "--by", "placement").out)
    assert {row["placement"] for row in grouped} == {"tensor_core", "not_matmul"}
    assert sum(row["total_ns"] for row in grouped) == sum(row["total_ns"] for row in names)
    none_last = json.loads(mpprof("kernels", MIXED, "--format", "json", "--sort", "layer:desc").out)
    layers = [row["layer"] for row in none_last]
    known = [layer for layer in layers if layer is not None]
    assert None in layers
    assert layers[: len(known)] == sorted(known, reverse=True)


def test_csv_is_whole_and_raw(mpprof: Mpprof) -> None:
    rows = list(csv.DictReader(io.StringIO(mpprof("kernels", MIXED, "--format", "csv").out)))
    wanted = json.loads(mpprof("kernels", MIXED, "--format", "json").out)
    assert [row["name"] for row in rows] == [row["name"] for row in wanted]
    assert [int(row["total_ns"]) for row in rows] == [row["total_ns"] for row in wanted]
    assert rows[0]["reason.code"] == wanted[0]["reason"]["code"]


def test_control_characters_of_foreign_names_reach_neither_csv_nor_page(
    mpprof: Mpprof, tmp_path: Path
) -> None:
    space = Space(errors=["CUPTI\nline two <b> \x1b[31m"], warnings=["\0\x07"])
    line = space.plane("/device:GPU:0\x1b").line(7, "Stream #7(Compute)")
    line.event("sgemm\x1b[31m\0\x9b", 0, 5)
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    table = mpprof("kernels", path, "--format", "csv").out
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", table) is None
    assert r"sgemm\x1b[31m\x00\x9b" in table
    page = mpprof("report", path, "--format", "html").out
    body = page[page.index("<body") : page.index("<script", page.index("<body"))]
    assert re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", body) is None
    assert r"CUPTI\nline two &lt;b&gt; \x1b[31m" in body
    assert "CUPTI\n" not in page


@pytest.mark.parametrize("table", ["kernels", "ops", "layers"])
@pytest.mark.parametrize("by", [(), ("--by", "stream"), ("--by", "device")], ids=["", "stream", "device"])
def test_csv_has_its_header_without_rows_too(
    mpprof: Mpprof, tmp_path: Path, table: str, by: tuple[str, ...]
) -> None:
    ranges = "".join(f"drop table CUPTI_ACTIVITY_KIND_{name};" for name in ("KERNEL", "MEMCPY", "RUNTIME"))
    empty = export(tmp_path / "empty.sqlite", extra=ranges)
    header, *rows = mpprof(table, MIXED, "--format", "csv", *by).out.splitlines()
    assert rows
    assert mpprof(table, empty, "--format", "csv", *by).out == f"{header}\n"
    assert mpprof(table, empty, "--format", "json", *by).out == "[]\n"
    done = mpprof(table, empty, "--sort", "nonsense", *by)
    assert done.code == 2
    assert header.split(",")[-1] in done.err  # of the columns that there are


def test_csv_without_a_row_that_passes_the_filter_has_its_header(mpprof: Mpprof) -> None:
    header = mpprof("kernels", MIXED, "--format", "csv").out.splitlines()[0]
    done = mpprof("kernels", MIXED, "--format", "csv", "--placement", "matrix_core")
    assert done.out == f"{header}\n"


def test_tables_say_what_was_passed_over(mpprof: Mpprof, tmp_path: Path) -> None:
    small().write(tmp_path / "w.pt.trace.json")
    export(tmp_path / "w.sqlite")
    for table in ("kernels", "ops", "layers", "memory"):
        done = mpprof(table, tmp_path)
        assert (
            "warning: this kineto trace was read; traces of another format beside it were not: w.sqlite"
            in done.err
        )
        assert not mpprof(table, tmp_path, "--quiet").err


def test_a_table_says_what_it_leaves_out_and_the_unknown_share(mpprof: Mpprof) -> None:
    out = mpprof("kernels", MIXED, "--limit", 3).out
    assert "3 of " in out
    assert "unknown: " in out
    assert "3 of " not in mpprof("kernels", MIXED, "--limit", 0).out


def test_chosen_steps_hold_less_than_the_whole(mpprof: Mpprof) -> None:
    whole = json.loads(mpprof("ops", MIXED, "--format", "json").out)
    first = json.loads(mpprof("report", MIXED, "--format", "json").out)["time"]["window_steps"]
    assert first > 1
    error = mpprof("ops", MIXED, "--steps", "1:1").err
    held = re.search(r"whole steps (\d+) to", error)  # it names those that there are
    assert held
    some = json.loads(mpprof("ops", MIXED, "--steps", f"{held[1]}:{held[1]}", "--format", "json").out)
    assert 0 < sum(row["calls"] for row in some) < sum(row["calls"] for row in whole)


@pytest.mark.parametrize("table", ["kernels", "ops", "layers"])
def test_a_table_says_above_it_what_its_times_are_summed_over(mpprof: Mpprof, table: str) -> None:
    assert mpprof(table, MIXED).out.splitlines()[0] == "Sums over the whole trace:"
    held = re.search(r"whole steps (\d+) to", mpprof(table, MIXED, "--steps", "1:1").err)
    assert held
    chosen = mpprof(table, MIXED, "--steps", f"{held[1]}:{held[1]}")
    assert chosen.out.splitlines()[0] == f"Sums over step {held[1]}:"


@pytest.mark.parametrize("command", ["ops", "layers"])
def test_other_tables(command: str, mpprof: Mpprof) -> None:
    rows = json.loads(mpprof(command, MIXED, "--format", "json").out)
    assert rows
    assert max(rows, key=lambda row: row["total_ns"]) == rows[0]
    assert mpprof(command, MIXED).code == 0


@needs_shared
def test_a_real_trace_of_eight_gpus(mpprof: Mpprof) -> None:
    path = SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb"
    assert mpprof("report", path).code == 0
    assert mpprof("memory", path, "--by", "dtype").code == 0
    assert mpprof("memory", path, "--by", "nonsense").code == 2
    rows = json.loads(mpprof("kernels", path, "--format", "json").out)
    assert not [row for row in rows if row["placement"] == "tensor_core"]


# --- the small commands ------------------------------------------------------------------------------------


def test_classify_answers_each_line_as_it_comes() -> None:
    command = [sys.executable, "-m", "mpprof.cli", "classify", "--cc", "7.0"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for name in ("volta_h884gemm_256x64_ldg8_nn", "volta_sgemm_128x64_nn"):
            process.stdin.write(f"{name}\n".encode())
            process.stdin.flush()
            row = json.loads(process.stdout.readline())  # the answer comes before the next question
            assert row["name"] == name
        process.stdin.close()
        assert process.wait() == 0


@pytest.mark.parametrize(("gpu", "placement"), [("GTX 1660", "cuda_core"), ("Tesla T4", "tensor_core")])
def test_classify_knows_cards_of_7_5_without_tensor_cores(
    gpu: str, placement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["classify", "--gpu", gpu, "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn"]) == 0
    assert json.loads(capsys.readouterr().out)["placement"] == placement


def test_classify_survives_blank_lines_bytes_and_controls() -> None:
    done = in_a_process("classify", stdin=b"\n  \nfoo\xff\xfe\r\nvolta_sgemm_128x64_nn")
    rows = [json.loads(line) for line in done.out.splitlines()]
    assert done.code == 0
    assert [row["name"] for row in rows] == ["foo\\xff\\xfe", "volta_sgemm_128x64_nn"]
    assert rows[0]["placement"] == "unknown"
    assert set(rows[1]) == {"name", "placement", "precision", "family", "reason"}
    assert set(rows[1]["reason"]) == {"code", "text"}


def test_the_card_decides_what_a_name_means(mpprof: Mpprof) -> None:
    name = "turing_fp16_s1688gemm_fp16_128x128_ldg8_f2f_nn"
    assert json.loads(mpprof("classify", "--gpu", "Tesla T4", name).out)["placement"] == "tensor_core"
    sgemm = json.loads(mpprof("classify", "--cc", "8.0", "ampere_sgemm_128x128_nn").out)
    assert sgemm["placement"] == "cuda_core"


def test_explain_lists_and_prints(mpprof: Mpprof) -> None:
    listed = mpprof("explain").out
    assert "MP301  input-bound" in listed
    assert mpprof("explain", "MP301").out == mpprof("explain", "input-bound").out
    for line in listed.splitlines():
        assert mpprof("explain", line.split()[0]).code == 0


def test_interrupting_is_no_traceback(monkeypatch: pytest.MonkeyPatch, mpprof: Mpprof) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("mpprof.diagnosis.manual.explain", interrupted)
    done = mpprof("explain", "MP301")
    assert done.code == 128 + signal.SIGINT
    assert done.err == "mpprof: interrupted\n"


# --- fast start --------------------------------------------------------------------------------------------

SLOW = {
    "rich",
    "polars",
    "dash",
    "plotly",
    "pandas",
    "tensorflow",
    "keras",
    "jax",
    "torch",
    "fsspec",
    "psutil",
}


@pytest.mark.parametrize(
    ("args", "also"),
    [
        (["--help"], {"numpy"}),
        (["--version"], {"numpy"}),
        (["report", str(MIXED)], set()),
        (["report", str(MIXED), "--format=json"], set()),
    ],
)
def test_what_a_command_imports(args: list[str], also: set[str]) -> None:
    code = (
        "import os, sys\nfrom mpprof.cli import __main__ as program\n"
        "def ended(code):\n    print('modules:', *sorted({name.partition('.')[0] for name in sys.modules}))\n"
        f"os._exit, sys.argv = ended, ['mpprof', *{args!r}]\n"
        "try:\n    program.run()\nexcept SystemExit:\n    ended(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "mpprof" in loaded
    assert not loaded & (SLOW | also)


def test_a_table_of_checksums_is_no_bundle(mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(zlib.compress(b"not a zip"))
    assert mpprof("report", path).code == 2


def test_kernels_are_filtered_by_where_in_what_and_why(mpprof: Mpprof) -> None:
    rows = json.loads(mpprof("kernels", MIXED, "--format", "json").out)
    code = rows[-1]["reason"]["code"]
    cases = [
        (["--placement", "tensor_core"], lambda row: row["placement"] == "tensor_core"),
        (["--precision", "fp16", "--precision", "fp32"], lambda row: row["precision"] in ("fp16", "fp32")),
        (["--reason", code], lambda row: row["reason"]["code"] == code),
        (["--placement", "not_matmul", "--precision", "fp16"],
         lambda row: (row["placement"], row["precision"]) == ("not_matmul", "fp16")),
    ]  # fmt: skip
    for options, keep in cases:
        assert json.loads(mpprof("kernels", MIXED, "--format", "json", *options).out) == [*filter(keep, rows)]


def test_ops_are_filtered_by_why_they_missed_tensor_cores(mpprof: Mpprof) -> None:
    odd = SAMPLES / "v100-odd-vocabulary-mixed-float16"
    rows = json.loads(mpprof("ops", odd, "--format", "json", "--reason", "shape").out)
    assert {row["layer"] for row in rows} == {"logits"}
    done = mpprof("ops", odd, "--reason", "nonsense")
    assert done.code == 2
    assert "shape" in done.err


def test_a_filtered_table_still_says_what_is_unknown_of_all(mpprof: Mpprof) -> None:
    foot = mpprof("kernels", MIXED).out.splitlines()[-1]
    assert mpprof("kernels", MIXED, "--placement", "tensor_core").out.splitlines()[-1] == foot
    assert mpprof("kernels", MIXED, "--placement", "nowhere").code == 2


def test_a_table_in_a_pipe_is_not_cut(mpprof: Mpprof, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    names = [row["op"] for row in json.loads(mpprof("ops", MIXED, "--format", "json").out) if row["op"]]
    longest = max(names, key=len)
    assert len(longest) > 70
    assert longest in mpprof("ops", MIXED, "--limit", "0").out
    monkeypatch.setenv("COLUMNS", "80")
    cut = mpprof("ops", MIXED, "--limit", "0").out
    assert longest not in cut


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_started_without_its_streams_it_ends_as_it_would(closed: str) -> None:
    for path, code in ((MIXED, 0), ("/nope", 2)):
        said = subprocess.run(
            ["sh", "-c", f'"$0" -m mpprof report "$1" {closed}', sys.executable, str(path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert said.returncode == code
        assert "Traceback" not in said.stderr


def elsewhere() -> dict[str, str]:
    """Return the environment of a process with another working directory. Its streams are buffered, as in
    most shells."""
    bare = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return {**bare, "PYTHONPATH": os.pathsep.join(filter(None, map(os.path.abspath, sys.path)))}


def test_a_working_directory_that_is_gone_is_said(tmp_path: Path) -> None:
    (gone := tmp_path / "gone").mkdir()
    said = subprocess.run(
        ["sh", "-c", 'rmdir "$1" && "$0" -m mpprof ls .', sys.executable, str(gone)],
        cwd=gone, env=elsewhere(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 2
    assert said.stderr == "mpprof: the working directory is gone. Change into one that exists\n"
