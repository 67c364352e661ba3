"""Traces at an address: fetched once, within bounds, with one clear line where they are not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError
from mpprof.traces.remote import fetch
from mpprof.traces.remote.listing import File
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.servers import Web

SAMPLE = SAMPLES / "v100-convnet-mixed-float16"

pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for http://")


@pytest.fixture
def web(tmp_path: Path) -> Iterator[Web]:
    folder = tmp_path / "web"
    folder.mkdir()
    server = Web(folder)
    yield server
    server.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "web"


@pytest.fixture
def memory() -> Iterator[Any]:
    filesystem = fsspec.filesystem("memory")
    yield filesystem
    filesystem.rm("/", recursive=True)


# --- HTTP --------------------------------------------------------------------------------------------------


def test_a_report_of_an_address_is_that_of_the_file(
    web: Web, folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small().write(folder / "w.pt.trace.json.gz")
    assert main(["kernels", str(path), "--format", "json"]) == 0
    here = capsys.readouterr().out
    assert main(["kernels", f"{web.url}/w.pt.trace.json.gz", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(here)


def test_a_second_look_fetches_nothing_and_a_change_is_fetched(
    web: Web, folder: Path, tmp_path: Path
) -> None:
    path = small().write(folder / "w.pt.trace.json")
    first = fetch.fetch(f"{web.url}/w.pt.trace.json", tmp_path / "kept")
    assert first.read_bytes() == path.read_bytes()
    assert fetch.fetch(f"{web.url}/w.pt.trace.json", tmp_path / "kept") == first
    assert len(web.content(".json")) == 1
    path.write_bytes(path.read_bytes() + b" ")
    assert fetch.fetch(f"{web.url}/w.pt.trace.json", tmp_path / "kept").read_bytes() == path.read_bytes()
    assert len(web.content(".json")) == 2


def test_of_a_log_directory_the_records_and_one_format_are_fetched(
    web: Web, folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder / "logs" / "run"
    for file in SAMPLE.rglob("*"):
        if file.is_file():
            target = run / file.relative_to(SAMPLE)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
    session = next(run.rglob("*.xplane.pb"))
    viewers = session.parent / session.name.replace(".xplane.pb", ".trace.json.gz")
    viewers.write_bytes(b"the same for the trace viewer")
    (run / "weights.h5").write_bytes(b"x" * 1000)
    assert main(["report", str(SAMPLE), "--format", "json"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert main(["report", f"{web.url}/logs/run", "--format", "json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert there["time"] == here["time"]
    assert there["run"]["name"] == "run"
    assert not web.content(".h5") + web.content(".trace.json.gz")
    assert len(web.content(".xplane.pb")) == 1


def test_with_no_cache_nothing_stays(
    web: Web, folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small().write(folder / "w.pt.trace.json")
    assert main(["kernels", f"{web.url}/w.pt.trace.json", "--no-cache"]) == 0
    assert not cache.exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("none.xplane.pb", "nothing was found at this address"),
        ("none/", "nothing was found"),
        ("w.txt", "unrecognised trace format"),
        ("empty/", "no trace by its name"),
    ],
)
def test_what_is_not_there_is_one_line(
    web: Web, folder: Path, cache: Path, name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "w.txt").write_text("hello")
    (folder / "empty").mkdir()
    assert main(["report", f"{web.url}/{name}"]) == 2
    said = capsys.readouterr().err
    assert says in said
    assert f"{web.url}/{name.rstrip('/')}" in said
    assert said.count("\n") == 1


def test_no_connection_is_said_as_such(web: Web, tmp_path: Path) -> None:
    url = web.url
    web.close()
    with pytest.raises(UnreadableError, match="cannot be reached"):
        fetch.fetch(f"{url}/w.json.gz", tmp_path)


def test_an_error_in_the_file_names_the_address(
    web: Web, folder: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "w.xplane.pb").write_text("no profile")
    assert main(["report", f"{web.url}/w.xplane.pb"]) == 2
    said = capsys.readouterr().err
    assert f"{web.url}/w.xplane.pb" in said
    assert str(cache) not in said


def test_passwords_and_signatures_are_not_shown(web: Web, tmp_path: Path) -> None:
    address = web.url.replace("//", "//me:secret@") + "/none.json.gz?signature=abc"
    with pytest.raises(MpprofError) as caught:
        fetch.fetch(address, tmp_path)
    assert "secret" not in str(caught.value)
    assert "abc" not in str(caught.value)


# --- any filesystem ----------------------------------------------------------------------------------------


def test_another_filesystem_is_walked_the_same_way(memory: Any, tmp_path: Path) -> None:
    memory.pipe("/logs/plugins/profile/a/host.xplane.pb", b"xplane")
    memory.pipe("/logs/plugins/profile/a/host.trace.json.gz", b"viewer")
    memory.pipe("/logs/plugins/profile/b/host.pt.trace.json", b"kineto")
    memory.pipe("/logs/mpprof/run.json", b"{}")
    memory.pipe("/logs/mpprof/counters.bin", b"no record of ours")
    found = fetch.fetch("memory://logs", tmp_path)
    assert (found / "plugins/profile/a/host.xplane.pb").read_bytes() == b"xplane"
    names = sorted(
        p.relative_to(found).as_posix() for p in found.rglob("*") if p.is_file() and p.name[0] != "."
    )
    assert names == [
        "mpprof/run.json",
        "plugins/profile/a/host.xplane.pb",
        "plugins/profile/b/host.pt.trace.json",
    ]


def test_no_name_leads_out_of_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Hostile:
        def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
            return [{"name": f"{path}/../../../outside.xplane.pb", "type": "file", "size": 5, "ETag": "1"}]

    monkeypatch.setattr(fetch, "_connect", lambda *_: (Hostile(), "root/logs", {"type": "directory"}))
    with pytest.raises(
        UnreadableError, match=r"^s3://root/logs: the server lists a name that leads elsewhere.* Give the"
    ):
        fetch.fetch("s3://root/logs", tmp_path / "kept")
    assert not list(tmp_path.rglob("outside*"))


def test_more_than_the_bound_is_refused_before_any_of_it_comes(
    web: Web,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(fetch, "LIMIT_BYTES", 100)
    for name in ("a", "b"):
        (folder / "logs" / name).mkdir(parents=True)
        (folder / "logs" / name / "host.xplane.pb").write_bytes(b"x" * 60)
    with pytest.raises(UnreadableError, match=f"^{web.url}/logs: more than .* Give the address of one run"):
        fetch.fetch(f"{web.url}/logs", tmp_path / "kept")
    assert not web.content(".pb")
    os.utime(folder / "logs" / "a" / "host.xplane.pb", (1, 1))
    (folder / "logs" / "mpprof").mkdir()
    (folder / "logs" / "mpprof" / "run.json").write_text("{}")
    found = fetch.fetch(f"{web.url}/logs", tmp_path / "kept")
    assert [path.parent.name for path in found.rglob("*.pb")] == ["b"]
    (said,) = caplog.messages
    assert "1 of 3 files were not fetched, the oldest traces" in said


def test_a_listing_without_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Endless:
        def ls(self, path: str, detail: bool) -> list[dict[str, Any]]:
            return [{"name": f"{path}/{at}", "type": "directory"} for at in range(50)]

    monkeypatch.setattr(fetch, "_connect", lambda *_: (Endless(), "logs", {"type": "directory"}))
    with pytest.raises(UnreadableError, match=r"^s3://logs: more than 20000 files"):
        fetch.fetch("s3://logs", tmp_path)


def test_a_download_that_breaks_off_leaves_nothing(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/w.json.gz", b"12345")
    monkeypatch.setattr(
        type(memory), "info", lambda self, path, **_: {"name": path, "size": 9, "type": "file", "ETag": "1"}
    )
    with pytest.raises(UnreadableError, match="byte 5 of 9"):
        fetch.fetch("memory://w.json.gz", tmp_path)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_a_missing_package_and_an_unknown_scheme_say_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(*_: str) -> None:
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fetch, "_connect", missing)
    with pytest.raises(UsageError, match="pip install s3fs"):
        fetch.fetch("s3://bucket/w.json.gz", tmp_path)
    with pytest.raises(UsageError, match="ftp:// is not fetched"):
        fetch.address_of(Path("ftp://host/w.json.gz"))


def test_a_file_address_is_read_where_it_lies(
    tmp_path: Path, cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = small().write(tmp_path / "w.pt.trace.json.gz")
    assert main(["kernels", str(path), "--format", "json"]) == 0
    here = capsys.readouterr().out
    for address in (path.as_uri(), tmp_path.as_uri(), f"file:{path}"):
        assert main(["kernels", address, "--format", "json"]) == 0
        assert json.loads(capsys.readouterr().out) == json.loads(here)
    assert mpprof.load(path.as_uri()).traces == (path,)
    assert not list(cache.rglob("fetched"))
    with pytest.raises(NotFoundError, match="absent: no such file"):
        mpprof.load((tmp_path / "absent").as_uri())


def test_a_file_of_unstated_size_without_end_is_refused(
    memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/w.json.gz", b"x" * 3000)
    monkeypatch.setattr(fetch, "LARGEST_BYTES", 1 << 11)
    file = File("/w.json.gz", "w.json.gz", None, "", None)
    with pytest.raises(UnreadableError, match="is longer than the 0 MiB that may be fetched"):
        fetch.get(memory, file, tmp_path, "memory://w.json.gz")
    assert not list(tmp_path.iterdir())


def test_what_was_used_longest_ago_goes(memory: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "LIMIT_BYTES", 1500)
    for name in ("a", "b"):
        memory.pipe(f"/{name}.json.gz", b"x" * 1000)
        copy = fetch.fetch(f"memory://{name}.json.gz", tmp_path)
        if name == "a":
            os.utime(copy.with_name(".a.json.gz.version"), (1, 1))  # long ago
    assert [path.name for path in tmp_path.rglob("*.json.gz")] == ["b.json.gz"]


def test_an_address_survives_being_a_path() -> None:
    assert fetch.address_of(Path("https://host/a/b")) == "https://host/a/b"
    assert fetch.address_of(Path("gs://bucket/run")) == "gs://bucket/run"
    assert fetch.address_of(Path("HTTPS://Host/a/B")) == "https://Host/a/B"
    assert fetch.address_of(Path("logs/run")) is None
    assert fetch.address_of(Path("C:/logs")) is None
    with pytest.raises(NotFoundError):
        fetch.fetch("memory://nothing", Path("unused"))
