"""The page over log directories that no training leaves, and requests that no browser sends."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import plotly.io
import pytest
from mpprof_dashboards import create_app
from mpprof_dashboards.choice import MOST_COMPARED
from mpprof_dashboards.pages import PAGES

from mpprof.api.source import LogDirectory
from mpprof.errors import NotFoundError
from mpprof.model.limits import MOST_LEVELS
from mpprof.runs import loading
from tests.paths import SAMPLES

SAMPLE = SAMPLES / "v100-loss-scale-thrash"
DRAW = "..page.children...live.disabled...seen.data.."
WRONG = (
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    "",
    "x",
    "\x00",
    [],
    {},
    [[]],
    [{}],
    {"id": "x"},
    ["x"] * 99,
    "a" * 9999,
)


@pytest.fixture(autouse=True)
def no_traceback_and_no_hang(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever is asked, nothing goes wrong inside; a pipe without a writer would be waited for."""
    os.environ["MPPROF_CACHE"] = "off"

    def hangs(*_: Any) -> None:
        raise AssertionError("a hang")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(120)  # long after anything that does not hang, on a busy machine, too
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    run(tmp_path / "run")
    return tmp_path


def run(root: Path) -> Path:
    """A small run: the facts and the first steps of a sample."""
    (root / "mpprof").mkdir(parents=True)
    shutil.copyfile(SAMPLE / "mpprof" / "run.json", root / "mpprof" / "run.json")
    lines = (SAMPLE / "mpprof" / "steps.jsonl").read_bytes().splitlines(keepends=True)
    (root / "mpprof" / "steps.jsonl").write_bytes(b"".join(lines[:30]))
    return root


def client_of(logs: Path) -> Any:
    return create_app(LogDirectory(logs)).server.test_client()


def call(path: str, query: str) -> dict[str, Any]:
    """What the browser sends to have a page drawn."""
    inputs = (("url", "pathname", path), ("url", "search", query), ("live", "n_intervals", 0))
    return {
        "output": DRAW,
        "outputs": [
            {"id": each.partition(".")[0], "property": each.partition(".")[2]}
            for each in DRAW[2:-2].split("...")
        ],
        "inputs": [{"id": id, "property": name, "value": value} for id, name, value in inputs],
        "state": [{"id": "seen", "property": "data", "value": None}],
        "changedPropIds": ["url.search"],
    }


def drawn(client: Any, path: str, query: str) -> str:
    answer = client.post("/_dash-update-component", json=call(path, query))
    assert answer.status_code == 200
    text: str = answer.text
    assert "a bug in mpprof" not in text
    return text


def every_page(client: Any, query: str) -> None:
    for page in PAGES:
        drawn(client, page.path, query)


# --- requests ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["nothing/x.js", "dash/nothing.js", "dash/dcc/../../dash.py", "dash/%00", "mpprof/errors.py"]
)
def test_a_script_that_is_not_there_is_not_found(logs: Path, name: str) -> None:
    client = client_of(logs)
    client.get("/?run=run")
    assert client.get(f"/_dash-component-suites/{name}").status_code == 404


@pytest.mark.parametrize(
    "body", ["[" * 200_000, '{"output":' * 50_000, '{"inputs":' + "[" * 2000 + "]" * 2000 + "}"]
)
def test_deeply_nested_json_is_the_callers_error(logs: Path, body: str) -> None:
    answer = client_of(logs).post("/_dash-update-component", data=body, content_type="application/json")
    assert answer.status_code == 400


@pytest.mark.parametrize("changed", [["{.x"], ["url.search", 1], ["nothing.value"], "url.search"])
def test_a_call_that_names_no_input_of_its_callback_is_refused(logs: Path, changed: Any) -> None:
    body = call("/", "") | {"changedPropIds": changed}
    assert client_of(logs).post("/_dash-update-component", json=body).status_code == 400


def test_a_body_beyond_any_call_is_refused_before_it_is_read(logs: Path) -> None:
    answer = client_of(logs).post(
        "/_dash-update-component", data=b"[" * (2 << 20), content_type="application/json"
    )
    assert answer.status_code in (400, 413)


def _paths(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in value if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _paths(value[key])


def test_no_argument_of_a_call_is_more_than_the_callers_error(logs: Path) -> None:
    client = client_of(logs)
    assert client.post("/_dash-update-component", json=call("/", "?run=run")).status_code == 200
    count = len(list(_paths(call("/", "?run=run"))))
    seen = set()
    for row in range(count):
        for wrong in WRONG:
            body = call("/", "?run=run")
            owner, key = list(_paths(body))[row]
            owner[key] = wrong
            seen.add(client.post("/_dash-update-component", json=body).status_code)
    assert seen == {200, 400}


@pytest.mark.parametrize(
    "query", ["?run=%00", "?run=%ff", "?run=../../etc", "?run=run&baseline=%00", "?" + "a&" * 5000]
)
def test_whatever_a_link_names_every_page_answers(logs: Path, query: str) -> None:
    client = client_of(logs)
    for page in PAGES:
        assert client.get(page.path + query).status_code in (200, 302)
        drawn(client, page.path, query)
    assert client.get("/report.html" + query).status_code in (200, 404)


def test_a_ladder_is_as_long_as_can_be_held(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    def compare(runs: tuple[str, ...]) -> Any:
        asked.append(runs)
        raise NotFoundError("none of these")

    source = LogDirectory(logs)
    monkeypatch.setattr(source, "compare", compare)
    drawn(create_app(source).server.test_client(), "/compare", "".join(f"&with=r{n}" for n in range(900)))
    assert [len(runs) for runs in asked] == [MOST_COMPARED]


# --- directories -------------------------------------------------------------------------------------------


def deep(folder: Path, levels: int) -> Path:
    """A directory so many levels below, made a level at a time: its path may be too long to be said at once."""
    at = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    return folder / Path(*["d"] * levels)


def remove_deep(folder: Path) -> None:
    """`shutil.rmtree` calls itself for each level, and pytest's clean-up with it."""
    subprocess.run(["rm", "-rf", str(folder / "d")], check=True)


@pytest.mark.parametrize("levels", [300, 1200, 3000])
def test_a_tree_of_a_thousand_levels_is_looked_through(logs: Path, levels: int) -> None:
    deep(logs, levels)
    try:
        client = client_of(logs)
        assert client.get("/?run=run").status_code == 200
        every_page(client, "?run=run")
        assert client.get("/report.html?run=run").status_code == 200
    finally:
        remove_deep(logs)


def test_a_run_far_down_is_found(logs: Path) -> None:
    shutil.move(logs / "run", deep(logs, MOST_LEVELS - 1) / "run")
    (entry,) = LogDirectory(logs).entries()
    assert (entry.name.count("d/"), entry.problem) == (MOST_LEVELS - 1, None)


def test_that_directories_lie_beyond_the_bound_is_said(logs: Path) -> None:
    shutil.move(logs / "run", deep(logs, MOST_LEVELS + 1) / "run")
    (entry,) = LogDirectory(logs).entries()
    assert f"more than {MOST_LEVELS} levels down" in str(entry.problem)


def test_three_hundred_runs_some_of_them_corrupt_are_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        root = run(tmp_path / f"run-{n:03}")
        if n % 10 == 0:
            (root / "mpprof" / "run.json").write_bytes((b"{", b"[]", b"\x00" * 99, b"")[n // 10 % 4])
        if n % 10 == 5:
            (root / "mpprof" / "steps.jsonl").write_bytes(b"{\n" * n)
    reads: list[str] = []
    read = loading.Place.read
    monkeypatch.setattr(
        loading.Place, "read", lambda self, *given: reads.append(self.name) or read(self, *given)
    )
    source = LogDirectory(tmp_path)
    entries = source.entries()
    assert len(entries) == len(reads) == 300
    assert sum(entry.problem is not None for entry in entries) >= 30
    client = create_app(source).server.test_client()
    every_page(client, "?run=run-001")
    every_page(client, "?run=run-000")
    every_page(client, "?run=run-005")
    assert reads[300:] == []
    (tmp_path / "run-007" / "mpprof" / "steps.jsonl").write_bytes(b"")
    source.entries()
    assert reads[300:] == ["run-007"]


def test_of_many_runs_each_is_compared_with_those_below_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(100):
        run(tmp_path / f"run-{n:03}")
    run(tmp_path / "run-050" / "again")
    asked = []
    below = Path.is_relative_to
    monkeypatch.setattr(
        Path, "is_relative_to", lambda self, *other: asked.append(self) or below(self, *other)
    )
    places = {place.name: place.nested for place in loading.places(tmp_path)}
    assert places.pop("run-050") == (tmp_path / "run-050" / "again",)
    assert set(places.values()) == {()}
    assert len(asked) < 10 * 101


@pytest.mark.parametrize("gone", ["run", "run/mpprof", "run/mpprof/run.json", "run/mpprof/steps.jsonl", "."])
def test_what_vanishes_while_it_is_shown_is_said(tmp_path: Path, gone: str) -> None:
    logs = tmp_path / "logs"
    run(logs / "run")
    client = client_of(logs)
    every_page(client, "?run=run")
    at = logs / gone
    shutil.rmtree(at) if at.is_dir() else at.unlink()
    every_page(client, "?run=run")
    assert client.get("/?run=run").status_code == 200
    assert client.get("/report.html?run=run").status_code in (200, 404)


def test_a_run_that_goes_at_any_look_into_its_directories_leaves_the_others_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is moved away as a directory is about to be opened, its own or another: at the first one, then the second."""
    logs = tmp_path / "logs"
    run(logs / "run")
    gone, looks, last = logs / "gone", 0, 0

    def looking(opens: Any) -> Any:
        def look(at: Any) -> Any:
            nonlocal looks
            if Path(at).is_relative_to(logs):
                looks += 1
                if looks == last and gone.exists():
                    gone.rename(tmp_path / "elsewhere")
            return opens(at)

        return look

    while looks >= last:
        for each in (gone, tmp_path / "elsewhere"):
            shutil.rmtree(each, ignore_errors=True)
        (run(gone) / "mpprof" / "worker-1").mkdir()
        session = gone / "plugins" / "profile" / "1"
        session.mkdir(parents=True)
        shutil.copyfile(next(SAMPLE.rglob("*.xplane.pb")), session / "host.xplane.pb")
        looks, last = 0, last + 1
        with monkeypatch.context() as world:
            world.setattr(os, "scandir", looking(os.scandir))
            world.setattr(os, "listdir", looking(os.listdir))
            client = client_of(logs)
            assert "run" in {
                run["id"] for group in client.get("/runs.json").json["groups"] for run in group["runs"]
            }
        assert client.get("/report.html?run=run&baseline=none").status_code == 200
    assert last > 5


def test_a_run_that_changes_between_the_listing_and_the_reading(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is gone, it is another, it is damaged: each at the worst moment."""
    record = logs / "run" / "mpprof" / "run.json"
    whole, read = record.read_bytes(), loading.Place.read

    def changing(self: loading.Place, *given: Any) -> Any:
        record.unlink(missing_ok=True) if change is None else record.write_bytes(change)
        return read(self, *given)

    client = client_of(logs)
    monkeypatch.setattr(loading.Place, "read", changing)
    newer = json.dumps({"schema": "mpprof.run/99"}).encode()
    for change in (None, b"", whole[:500], newer, whole):  # noqa: B007 - `changing` takes it
        record.write_bytes(whole + b" " * len(whole))  # so that it is read anew
        every_page(client, "?run=run")  # a page that fails is no answer of status 200
        assert client.get("/?run=run").status_code == 200


def _pipe(at: Path) -> None:
    os.mkfifo(at)


def _socket(at: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:  # its name stays
        here = os.getcwd()
        os.chdir(at.parent)  # a socket's path has 107 bytes at most
        try:
            listening.bind(at.name)
        finally:
            os.chdir(here)


def _device(at: Path) -> None:
    at.symlink_to("/dev/zero")


def _itself(at: Path) -> None:
    at.symlink_to(at.name)


def _folder(at: Path) -> None:
    at.mkdir()


def _closed(at: Path) -> None:
    at.write_bytes(b"{}")
    at.chmod(0)


SPECIAL = (_pipe, _socket, _device, _itself, _folder, _closed)
PLACES = (
    "run/mpprof/run.json", "run/mpprof/steps.jsonl", "run/mpprof/hardware.jsonl", "run/mpprof/counters.json",
    "run/mpprof/worker-1", "run/mpprof", "run/plugins", "run/plugins/profile/1/host.xplane.pb", "run/plugins/profile/1/any",
    "run/w.sqlite", "run/w.pt.trace.json", "run/w.trace.json.gz", "beside/mpprof/steps.jsonl", "beside",
)  # fmt: skip


def test_pages_are_sent_without_orjson_where_it_is_installed(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refuses half characters, of which a run's name may consist."""
    monkeypatch.setitem(sys.modules, "orjson", types.ModuleType("orjson"))
    monkeypatch.setattr(plotly.io.json.config, "default_engine", "auto")
    assert "run" in drawn(client_of(logs), "/", "?run=run")


@pytest.mark.parametrize("special", SPECIAL, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("place", PLACES)
def test_special_files_are_not_waited_for(logs: Path, place: str, special: Any) -> None:
    at = logs / place
    at.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(at) if at.is_dir() else at.unlink(missing_ok=True)
    special(at)
    source = LogDirectory(logs)
    client = create_app(source).server.test_client()
    for entry in source.entries():
        every_page(client, f"?run={entry.id}")
        assert client.get(f"/report.html?run={entry.id}").status_code in (200, 404)


def test_links_that_lead_in_circles_are_not_followed(logs: Path) -> None:
    (logs / "run" / "up").symlink_to(logs)
    (logs / "run" / "mpprof" / "here").symlink_to(".")
    (logs / "one").symlink_to("two")
    (logs / "two").symlink_to("one")
    source = LogDirectory(logs)
    assert [entry.name for entry in source.entries()] == ["run"]
    every_page(create_app(source).server.test_client(), "?run=run")
