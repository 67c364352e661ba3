"""Servers that do not answer, files that are looked into before they are fetched, and what is seen meanwhile."""

from __future__ import annotations

import gzip
import io
import sqlite3
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mpprof import traces
from mpprof.cli import main, progress
from mpprof.errors import NotFoundError, UnreadableError
from mpprof.traces.common import file_head
from mpprof.traces.remote import errors, fetch
from mpprof.traces.remote import progress as told
from tests.cli.conftest import left_of
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.servers import Silent, Web
from tests.traces.test_nsys import export

pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for http://")

SAMPLE = SAMPLES / "v100-convnet-mixed-float16"
XPLANE = next(SAMPLE.rglob("*.xplane.pb")).read_bytes()
NO_TRACE = b'{"rows": [' + b"1," * (2 << 20) + b"1]}"


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


# --- servers that do not answer ----------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    assert errors.CONNECT_S <= errors.SILENCE_S <= 15
    assert errors.ANSWER_S <= 30
    monkeypatch.setattr(errors, "SILENCE_S", 0.2)
    monkeypatch.setattr(errors, "ANSWER_S", 1.0)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Silent]:
    server = Silent()
    monkeypatch.delenv("AWS_PROFILE", raising=False)
    settings = {
        "AWS_ENDPOINT_URL": server.url, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_CONFIG_FILE": str(tmp_path / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"), "STORAGE_EMULATOR_HOST": server.url,
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    yield server
    server.close()


@pytest.mark.parametrize("name", ["w.json.gz", "w.xplane.pb", "logs/", "logs"])
@pytest.mark.parametrize("scheme", ["http", "s3", "gs"])
def test_a_server_that_never_answers_is_one_error_after_few_tries(
    silent: Silent, impatient: None, kept: Path, scheme: str, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if scheme != "http":
        pytest.importorskip("s3fs" if scheme == "s3" else "gcsfs")
    root = silent.url if scheme == "http" else f"{scheme}://bucket"
    with pytest.raises(UnreadableError) as caught:
        fetch.fetch(f"{root}/{name}", kept)
    assert str(caught.value) == (
        f"{root}/{name}: does not answer: no byte in 0.2 s, or no whole answer in 1.0 s. "
        "Try again later, or copy the files here"
    )
    assert (
        len(silent.taken) < 20
    )  # each took SILENCE_S: no storm of tries, at whatever speed this machine has
    assert capsys.readouterr().err == ""
    assert not [path for path in kept.rglob("*") if path.is_file()]


def test_a_server_that_falls_silent_is_asked_once_more(
    web: Web, folder: Path, impatient: None, kept: Path
) -> None:
    path = small().write(folder / "w.pt.trace.json")
    web.faults.stalls = 1
    assert fetch.fetch(f"{web.url}/{path.name}", kept).read_bytes() == path.read_bytes()
    path.write_bytes(path.read_bytes() + b" ")
    before = len(web.content(path.name))
    web.faults.stalls = 100
    with pytest.raises(UnreadableError, match="does not answer"):
        fetch.fetch(f"{web.url}/{path.name}", kept)
    assert len(web.content(path.name)) - before == 2


# --- what a file is, before it is fetched ------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data.json.gz", "data.json", "data.sqlite", "model.pb", "data", "data.bin"])
def test_what_is_no_trace_is_not_fetched_whole(web: Web, folder: Path, kept: Path, name: str) -> None:
    (folder / name).write_bytes(NO_TRACE)
    with pytest.raises(UnreadableError, match=f"^{web.url}/{name}: unrecognised trace format, by its name"):
        fetch.fetch(f"{web.url}/{name}", kept)
    assert web.sent(name) <= file_head.HEAD_BYTES


@pytest.mark.parametrize("name", ["trace", "window.bin", "rank0.json.gz"])
def test_a_trace_of_any_name_is_fetched(
    web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    (folder / name).write_bytes(gzip.compress(small().text()))
    assert main(["kernels", str(folder / name), "--format", "csv"]) == 0
    here = capsys.readouterr().out
    assert main(["kernels", f"{web.url}/{name}", "--format", "csv"]) == 0
    assert capsys.readouterr().out == here


def test_a_report_that_nobody_can_read_is_not_fetched(web: Web, folder: Path, kept: Path) -> None:
    (folder / "w.nsys-rep").write_bytes(b"x" * 5000)
    with pytest.raises(UnreadableError, match=r"nsys export --type sqlite w\.nsys-rep"):
        fetch.fetch(f"{web.url}/w.nsys-rep", kept)
    assert web.sent("w.nsys-rep") == 5000 <= file_head.HEAD_BYTES
    (folder / "logs").mkdir()
    (folder / "logs" / "w.nsys-rep").write_bytes(b"x" * 5000)
    with pytest.raises(UnreadableError, match=f"^{web.url}/logs/w.nsys-rep: .*nsys export --type sqlite"):
        fetch.fetch(f"{web.url}/logs", kept)
    assert web.sent("logs/w.nsys-rep") == 0
    (folder / "w.nsys-rep").unlink()
    export(folder / "w.nsys-rep")
    assert len(traces.read(fetch.fetch(f"{web.url}/w.nsys-rep", kept)).kernels) > 0


def test_connecting_and_the_first_answer_have_one_time_together(
    monkeypatch: pytest.MonkeyPatch, kept: Path
) -> None:
    given_s: list[float] = []

    def waiting(futures: list[Any], timeout_s: float) -> Any:
        given_s.append(timeout_s)
        return wait(futures, 60)

    monkeypatch.setattr(errors, "wait", waiting)
    with pytest.raises(NotFoundError):
        fetch.fetch("memory://bucket/w.json.gz", kept)
    assert given_s == [30.0]


def test_an_application_s_database_there_is_no_trace(web: Web, folder: Path, kept: Path) -> None:
    (folder / "logs").mkdir()
    with sqlite3.connect(folder / "logs" / "mlflow.sqlite") as db:
        db.execute("create table runs (id integer)")
    db.close()
    small().write(folder / "logs" / "w.trace.json")
    there = fetch.fetch(f"{web.url}/logs", kept)
    assert [path.name for path in traces.find_traces(there)] == ["w.trace.json"]


@pytest.mark.parametrize("name", ["data.json", "data.json.gz", "data.sqlite", "data.pkl"])
def test_in_a_directory_a_long_file_that_is_no_trace_is_not_fetched(
    web: Web, folder: Path, kept: Path, name: str
) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / name).write_bytes(NO_TRACE)
    small().write(folder / "logs" / "rank0.json.gz")
    there = fetch.fetch(f"{web.url}/logs", kept)
    assert [path.name for path in traces.find_traces(there)] == ["rank0.json.gz"]
    assert web.sent(name) <= file_head.HEAD_BYTES


def test_one_of_a_run_s_records_stands_for_the_run(web: Web, folder: Path, kept: Path) -> None:
    (folder / "run" / "mpprof").mkdir(parents=True)
    (folder / "run" / "mpprof" / "run.json").write_text("{}")
    for name in ("run/mpprof/run.json", "run"):
        address = fetch.address_of(f"{web.url}/{name}")
        assert address == f"{web.url}/run"
        assert (fetch.fetch(address, kept) / "mpprof" / "run.json").read_text() == "{}"


@pytest.mark.parametrize("name", ["run?version=2", "run/?version=2"])
def test_a_directory_with_a_query_is_not_walked(web: Web, folder: Path, kept: Path, name: str) -> None:
    (folder / "run" / "mpprof").mkdir(parents=True)
    (folder / "run" / "mpprof" / "run.json").write_text("{}")
    with pytest.raises(
        UnreadableError,
        match=f"^{web.url}/run/?: is not a trace, and an address with a query is not a directory",
    ):
        fetch.fetch(f"{web.url}/{name}", kept)
    assert len(web.requests) <= 1


def test_what_is_no_address_is_one_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "http://[::1/logs"]) == 2
    assert (
        capsys.readouterr().err
        == "mpprof: http://[::1/logs: is not an address. Check its brackets and its port\n"
    )


def test_a_directory_that_holds_nothing_of_ours_is_called_so(web: Web, folder: Path, kept: Path) -> None:
    (folder / "notes").mkdir()
    (folder / "notes" / "a.txt").write_text("hello")
    for name in ("notes", "notes/"):
        with pytest.raises(NotFoundError, match="no mpprof records and no trace by its name there"):
            fetch.fetch(f"{web.url}/{name}", kept)


# --- what is seen meanwhile --------------------------------------------------------------------------------


def test_several_fetches_are_one_line_with_what_has_come_of_all() -> None:
    said: list[str] = []
    line = SimpleNamespace(say=said.append)
    with told.watched(progress.Fetching(line)), told.fetching("s3://bucket/a", 300 << 20) as tell:
        tell(32 << 20)
        with told.fetching("s3://bucket/b", None) as other:
            other(8 << 20)
        tell(64 << 20)
    assert said == [
        "fetching s3://bucket/a: 32 of 300 MiB",
        "fetching 2 files: 40 MiB",
        "fetching s3://bucket/a: 32 of 300 MiB",
        "fetching s3://bucket/a: 64 of 300 MiB",
        "reading what was fetched",
    ]


@pytest.mark.parametrize("watched", [True, False])
def test_a_fetch_is_shown_to_those_who_watch_and_to_nobody_else(
    web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool
) -> None:
    class Terminal(io.StringIO):
        seen = threading.Event()

        def isatty(self) -> bool:
            return watched

        def write(self, text: str) -> int:
            if "fetching" in text:
                self.seen.set()
            return super().write(text)

    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    small().write(folder / "w.pt.trace.json")
    if watched:
        web.faults.after = lambda: terminal.seen.wait(20) and None
    assert (
        main(["kernels", f"{web.url}/w.pt.trace.json", "--format", "csv", "-o", str(tmp_path / "out")]) == 0
    )
    said = terminal.getvalue()
    assert (f"fetching {web.url}/w.pt.trace.json" in said) == watched
    assert not watched or left_of(said) == ""  # the line is gone
    assert watched or not said


def test_quiet_is_quiet(web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    monkeypatch.setattr(progress, "Line", None)
    monkeypatch.setattr(sys, "stderr", type("Terminal", (io.StringIO,), {"isatty": lambda self: True})())
    small().write(folder / "w.pt.trace.json")
    assert main(["kernels", f"{web.url}/w.pt.trace.json", "--quiet", "-o", str(tmp_path / "out")]) == 0
