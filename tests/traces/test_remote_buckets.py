"""s3:// and gs:// through the libraries that users have, against servers on this machine: see `servers`."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import MpprofError, NotFoundError, UnreadableError
from mpprof.report.to_json import to_json
from mpprof.traces.remote import fetch
from tests.paths import SAMPLES
from tests.traces.servers import S3, Gcs

SAMPLE = SAMPLES / "v100-convnet-mixed-float16"
BASELINE = SAMPLE.with_name("v100-convnet-float32")
BYTES = bytes(range(256)) * 14
pytestmark = pytest.mark.usefixtures("cache")


@dataclass
class Bucket:
    """A bucket, how to put files into it, and its server."""

    address: str
    put: Callable[[str, bytes], Any]
    server: Any

    def put_run(self, run: Path, name: str) -> None:
        for path in run.rglob("*"):
            if path.is_file():
                self.put(f"{name}/{path.relative_to(run).as_posix()}", path.read_bytes())

    def contents(self, suffix: str) -> list[Any]:
        """The requests for the bytes of what ends so, not for what is said of it."""
        if isinstance(self.server, Gcs):
            return [each for each in self.server.content(suffix) if "alt=media" in each.path]
        return list(self.server.content(suffix))


@pytest.fixture(scope="module")
def moto() -> Iterator[S3]:
    pytest.importorskip("moto.server", reason="no moto: pip install 'mpprof[dev]'")
    pytest.importorskip("s3fs")
    server = S3()
    yield server
    server.close()


@pytest.fixture
def s3(moto: S3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    import boto3

    for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    settings = {
        "AWS_ENDPOINT_URL": moto.url, "AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(tmp_path / "none"), "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "none"),
    }  # fmt: skip
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    name = f"mpprof-{uuid.uuid4().hex[:8]}"
    client = boto3.client("s3", endpoint_url=moto.url)
    client.create_bucket(Bucket=name)
    moto.requests.clear()
    moto.faults.__init__()  # type: ignore[misc]
    return Bucket(
        f"s3://{name}", lambda key, content: client.put_object(Bucket=name, Key=key, Body=content), moto
    )


@pytest.fixture
def gs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    pytest.importorskip("gcsfs", reason="no gcsfs: pip install 'mpprof[dev]'")
    server = Gcs()
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", server.url)
    yield Bucket("gs://bucket", lambda key, content: server.put("bucket", key, content), server)
    server.close()


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    found: Bucket = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def test_a_report_of_a_bucket_is_that_of_the_directory_and_the_second_fetches_nothing(
    bucket: Bucket, capsys: pytest.CaptureFixture[str]
) -> None:
    bucket.put_run(SAMPLE, "logs/run")
    bucket.put("logs/run/weights.h5", b"x" * 5000)
    assert main(["report", str(SAMPLE), "--format", "json"]) == 0
    here = json.loads(capsys.readouterr().out)
    for _ in range(2):
        assert main(["report", f"{bucket.address}/logs/run", "--format", "json"]) == 0
        there = json.loads(capsys.readouterr().out)
        assert there["time"] == here["time"]
        assert there["run"]["name"] == "run"
    assert len(bucket.contents(".xplane.pb")) == 1
    assert len(bucket.contents("steps.jsonl")) == 1
    assert not bucket.contents(".h5")


@pytest.mark.parametrize(
    "command",
    [["kernels"], ["ops"], ["layers"], ["report", "--format", "markdown"], ["bundle", "-o", "b.zip"]],
)
def test_every_command_with_a_path_takes_an_address(
    bucket: Bucket, command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    bucket.put_run(SAMPLE, "run")
    assert main([command[0], f"{bucket.address}/run", *command[1:]]) == 0
    said = capsys.readouterr()
    assert str(tmp_path / "cache") not in said.out + said.err
    if command[0] == "bundle":
        bucket.put("b.zip", (tmp_path / "b.zip").read_bytes())
        assert main(["kernels", f"{bucket.address}/b.zip"]) == 0


def test_runs_of_two_addresses_are_compared(bucket: Bucket, capsys: pytest.CaptureFixture[str]) -> None:
    bucket.put_run(BASELINE, "logs/float32")
    bucket.put_run(SAMPLE, "logs/mixed")
    addresses = [f"{bucket.address}/logs/{name}" for name in ("float32", "mixed")]
    assert main(["compare", *addresses, "--format", "json"]) == 0
    there = json.loads(capsys.readouterr().out)
    assert main(["compare", str(BASELINE), str(SAMPLE), "--format", "json"]) == 0
    here = json.loads(capsys.readouterr().out)
    assert [step["observed"] for step in there["steps"]] == [step["observed"] for step in here["steps"]]


def test_a_broken_connection_is_tried_again(
    bucket: Bucket, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 1000)
    bucket.put("w.json", BYTES)
    whole = len(BYTES) * 10  # of Google's, what is said of the object comes first
    bucket.server.faults.cut = [*([] if isinstance(bucket.server, S3) else [whole]), 1000, 400]
    assert fetch.fetch(f"{bucket.address}/w.json", kept).read_bytes() == BYTES


def test_an_object_that_is_replaced_meanwhile_is_read_from_its_beginning(
    bucket: Bucket, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch, "BLOCK_BYTES", 1000)
    bucket.put("w.json", BYTES)
    replaced: list[int] = []

    def replace() -> None:
        if len(bucket.contents("w.json")) == 2 and not replaced:
            replaced.append(1)
            bucket.put("w.json", BYTES[::-1])

    bucket.server.faults.after = replace
    assert fetch.fetch(f"{bucket.address}/w.json", kept).read_bytes() == BYTES[::-1]
    assert replaced


def test_a_whole_bucket_is_a_log_directory(bucket: Bucket, kept: Path) -> None:
    bucket.put_run(SAMPLE, "run")
    for address in (bucket.address, f"{bucket.address}/"):
        found = fetch.fetch(address, kept)
        assert len(list(found.rglob("run/mpprof/run.json"))) == 1


@pytest.mark.parametrize("name", ["none.json", "none", "none/mpprof"])
def test_what_is_not_there_is_said(bucket: Bucket, kept: Path, name: str) -> None:
    bucket.put("other/w.json", BYTES)
    with pytest.raises(NotFoundError, match=f"^{bucket.address}/{name}: "):
        fetch.fetch(f"{bucket.address}/{name}", kept)


def test_a_bucket_that_is_not_there_is_said(s3: Bucket, kept: Path) -> None:
    with pytest.raises(NotFoundError, match="s3://mpprof-nowhere/run"):
        fetch.fetch("s3://mpprof-nowhere/run", kept)


@pytest.mark.parametrize("name", ["w.json", "run"])
def test_what_is_refused_is_said(bucket: Bucket, kept: Path, name: str) -> None:
    bucket.put("w.json", BYTES)
    bucket.put_run(SAMPLE, "run")
    is_s3 = isinstance(bucket.server, S3)
    bucket.server.faults.status = {
        "/w.json": 403,
        bucket.address.removeprefix("s3:/") if is_s3 else "/o": 403,
    }
    with pytest.raises(UnreadableError, match=f"^{bucket.address}/{name}: access denied"):
        fetch.fetch(f"{bucket.address}/{name}", kept)


def test_without_credentials_a_public_bucket_is_read_and_another_one_is_named(
    s3: Bucket, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import boto3

    s3.put("private.json", BYTES)
    boto3.client("s3", endpoint_url=s3.server.url).put_object(
        Bucket=s3.address.removeprefix("s3://"), Key="w.json", Body=BYTES, ACL="public-read"
    )
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    assert fetch.fetch(f"{s3.address}/w.json", kept).read_bytes() == BYTES
    with pytest.raises(MpprofError, match=r"no credentials for it, and it is not public\. Set AWS_PROFILE"):
        fetch.fetch(f"{s3.address}/private.json", kept)


def test_many_objects_are_listed_over_several_pages(
    s3: Bucket, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "5")
    for at in range(12):
        s3.put(f"run/checkpoints/{at}", b"")
    s3.put("run/plugins/profile/a/host.xplane.pb", BYTES)
    (path,) = fetch.fetch(f"{s3.address}/run", kept).rglob("*.pb")
    assert sum("continuation-token" in each.path for each in s3.server.requests) >= 2
    assert path.read_bytes() == BYTES


def test_the_page_shows_the_runs_of_a_bucket(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    import mpprof_dashboards

    shown: list[Any] = []

    def serve(source: Any, **_: Any) -> None:
        found = {
            entry.name: to_json(source.report(entry.id))["time"]["step_ns"] for entry in source.entries()[:1]
        }
        shown.append((source.title, [entry.name for entry in source.entries()], found))

    monkeypatch.setattr(mpprof_dashboards, "serve", serve)
    bucket.put_run(SAMPLE, "logs/mixed")
    bucket.put_run(BASELINE, "logs/float32")
    assert main(["serve", f"{bucket.address}/logs"]) == 0
    ((title, names, steps),) = shown
    assert title == "logs"
    assert sorted(names) == ["float32", "mixed"]
    assert all(step > 0 for step in steps.values())
    assert len(bucket.contents(".xplane.pb")) == 2


def test_a_script_loads_an_address_as_it_does_a_path(bucket: Bucket) -> None:
    bucket.put_run(SAMPLE, "run")
    there, here = mpprof.load(f"{bucket.address}/run"), mpprof.load(SAMPLE)
    assert mpprof.diagnose(there).verdict == mpprof.diagnose(here).verdict


@pytest.mark.parametrize(
    "command",
    [["audit", "s3://b/model.keras"], ["counters", "f.csv", "--run", "s3://b/run"]],
    ids=lambda c: c[0],
)
def test_what_needs_files_says_so_of_an_address(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.csv").write_text("")
    assert main(command) == 2
    said = capsys.readouterr().err
    assert said.startswith("mpprof: s3://b/")
    assert "is not on this machine" in said
    assert said.count("\n") == 1


def test_a_survey_of_a_bucket_is_that_of_the_directory(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for run in (SAMPLE, BASELINE, SAMPLE.with_name("v100-float32-island")):
        bucket.put_run(run, f"logs/{run.name}")
        shutil.copytree(run, tmp_path / "logs" / run.name)
    shown = []
    for place in (tmp_path / "logs", f"{bucket.address}/logs"):
        assert main(["survey", str(place), "--workers", "1", "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        assert all(str(row["path"]).startswith(str(place)) for row in rows)
        shown.append([{**row, "path": None, "baseline": None} for row in rows])
    assert shown[0] == shown[1]
    assert [row["problem"] for row in shown[0]] == [None] * 3
