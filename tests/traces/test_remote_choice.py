"""Of a directory elsewhere the same trace is read as of one here, and the same is said of what is not."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.cli import main
from mpprof.traces.remote import fetch
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.servers import Web
from tests.traces.test_chrome import tensorflow_text
from tests.traces.test_nsys import export

pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for http://")

SAMPLE = SAMPLES / "v100-convnet-mixed-float16"
XPLANE = next(SAMPLE.rglob("*.xplane.pb"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "web" / "logs").mkdir(parents=True)
    return tmp_path / "web" / "logs"


@pytest.fixture
def web(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    server = Web(folder.parent)
    yield server
    server.close()


def _xplane(path: Path) -> None:
    path.write_bytes(XPLANE.read_bytes())


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _kineto(path: Path) -> None:
    small().write(path)


def _tensorflow(path: Path) -> None:
    path.write_bytes(tensorflow_text())


CASES: list[dict[str, Callable[[Path], object]]] = [
    {"host.xplane.pb": _xplane, "w.sqlite": export, "w.pt.trace.json": _kineto},
    {"k.xplane.pb": _kineto, "w.trace.json": _tensorflow},
    {"trace.json": _kineto, "w.sqlite": export},
    {"h.xplane.pb": _empty, "z.pt.trace.json.gz": _kineto},
    {"h.xplane.pb": _empty, "z.sqlite": export, "run.nsys-rep": _empty},
]


@pytest.mark.parametrize("files", CASES, ids=lambda files: "+".join(files))
def test_the_choice_is_that_of_the_directory_here(
    web: Web, folder: Path, files: dict[str, Callable[[Path], object]]
) -> None:
    for name, write in files.items():
        write(folder / name)
    here, there = workflows.load(folder), workflows.load(f"{web.url}/logs")
    assert [path.name for path in there.traces] == [path.name for path in here.traces]
    assert here.warnings
    assert there.warnings == here.warnings
    assert workflows.analyse(there).trace is not None
    assert workflows.load(f"{web.url}/logs").warnings == there.warnings  # its bytes are here now


@pytest.mark.parametrize("name", ["foo", "trace.json"])
def test_the_renamed_trace_of_a_window_is_read(web: Web, folder: Path, name: str) -> None:
    shutil.copytree(SAMPLE, folder, dirs_exist_ok=True)
    (trace,) = folder.glob("plugins/profile/*/*.xplane.pb")
    trace.rename(trace.with_name(name))
    (trace.parent / "data.sqlite").write_bytes(b"of another application")
    here, there = workflows.load(folder), workflows.load(f"{web.url}/logs")
    assert [path.name for path in there.traces] == [path.name for path in here.traces] == [name]
    assert there.warnings == here.warnings
    assert workflows.diagnose(there).account == workflows.diagnose(here).account is not None


def test_an_export_for_a_viewer_is_not_fetched(web: Web, folder: Path) -> None:
    _xplane(folder / "host.xplane.pb")
    (folder / "host.trace.json.gz").write_bytes(gzip.compress(tensorflow_text()))
    (folder / "perfetto_trace.json.gz").write_bytes(gzip.compress(tensorflow_text()))
    assert workflows.load(f"{web.url}/logs").warnings == ()
    assert not [each for name in ("host", "perfetto") for each in web.content(name)]


def test_a_scheme_may_be_written_in_capitals(
    web: Web, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _kineto(folder / "w.pt.trace.json")
    tables = []
    for address in (web.url, web.url.replace("http:", "HTTP:")):
        assert main(["kernels", f"{address}/logs/w.pt.trace.json", "--format", "csv"]) == 0
        tables.append(capsys.readouterr().out)
    assert tables[0] == tables[1] != ""


def test_a_port_that_cannot_be_is_no_address(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "http://127.0.0.1:99999/logs"]) == 2
    assert capsys.readouterr().err == (
        "mpprof: http://127.0.0.1:99999/logs: is not an address. Check its brackets and its port\n"
    )


def test_what_is_fetched_is_known_here_as_it_was_there(web: Web, folder: Path, tmp_path: Path) -> None:
    _kineto(folder / "k.xplane.pb")
    export(folder / "w.sqlite")
    there = fetch.fetch(f"{web.url}/logs", tmp_path / "kept")
    (found,) = traces.find_traces(there)
    assert found.name == "k.xplane.pb"
    assert str(traces.choice(found)).startswith("this kineto trace was read")
