"""A bundle of a stranger takes no more than its bounds, and leaves nothing behind."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.cli import bundle_reading, bundle_writing
from tests.cli.conftest import MIXED, Mpprof
from tests.paths import ROOT


@pytest.fixture
def bundle(mpprof: Mpprof, tmp_path: Path) -> Path:
    out = tmp_path / "good.zip"
    assert mpprof("bundle", MIXED, "-o", out).code == 0
    return out


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where bundles are unpacked to; nothing may be left there."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert not list(folder.iterdir())


def a_zip(
    path: Path, names: list[str], packing: int = zipfile.ZIP_DEFLATED, manifest: int = zipfile.ZIP_STORED
) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        archive.writestr("MANIFEST.json", json.dumps({"schema": "mpprof.bundle/1"}), manifest)
        for name in names:
            archive.writestr(name, "x" * 100)
    return path


@pytest.mark.parametrize(
    "names",
    [
        [f"{'d/' * 60}{k}.json" for k in range(3)],
        [f"run/mpprof/worker-{k}/run.json" for k in range(bundle_reading.MOST_MEMBERS + 1)],
    ],
    ids=["deep", "many"],
)
def test_too_many_or_too_deep_members_are_refused_before_any_is_unpacked(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    monkeypatch.setattr(bundle_reading, "_extract", None)
    done = mpprof("report", a_zip(tmp_path / "x.zip", names))
    assert done.code == 2
    assert "holds more than 5,000 files, or one more than 8 levels deep" in done.err


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ([f"r{k}/mpprof/run.json" for k in range(3_000)], "holds more than one run"),
        ([f"r/plugins/profile/{k}/h.xplane.pb" for k in range(3_000)], "holds more than 1,000 traces"),
        ([f"r/plugins/profile/1/h{k}.xplane.pb" for k in range(3_000)], "holds more than 1,000 traces"),
        ([f"r/a{k}/b/c/d/e/mpprof/run.json" for k in range(3_000)], "no mpprof records and no trace here"),
    ],
)
def test_more_than_a_run_holds_is_not_unpacked(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str], says: str
) -> None:
    """Each of 5,000 runs in a directory of its own is unpacked and read to be listed: 10 s of processor time."""
    opened: list[str] = []
    open_member = zipfile.ZipFile.open

    def noted(self: zipfile.ZipFile, name: Any, *more: Any, **other: Any) -> Any:
        opened.append(getattr(name, "filename", name))
        return open_member(self, name, *more, **other)

    path = a_zip(tmp_path / "x.zip", names)
    monkeypatch.setattr(zipfile.ZipFile, "open", noted)
    done = mpprof("report", path)
    assert (done.code, opened) == (2, ["MANIFEST.json"])
    assert says in done.err


def test_what_nothing_reads_is_not_unpacked(
    mpprof: Mpprof, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    open_member = zipfile.ZipFile.open

    def noted(self: zipfile.ZipFile, name: Any, *more: Any, **other: Any) -> Any:
        opened.append(getattr(name, "filename", name))
        return open_member(self, name, *more, **other)

    with zipfile.ZipFile(bundle, "a") as archive:
        for k in range(50):
            archive.writestr(f"run/junk-{k}/a.txt", "x")
    monkeypatch.setattr(zipfile.ZipFile, "open", noted)
    assert mpprof("report", bundle).code == 0
    assert "MANIFEST.json" in opened
    assert any(name.endswith("run.json") for name in opened)
    assert not any("junk" in name for name in opened)


@pytest.mark.parametrize("packing", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
@pytest.mark.parametrize("name", ["MANIFEST.json", "run/mpprof/run.json"])
def test_a_damaged_member_of_another_packing_is_one_clear_error(
    mpprof: Mpprof, tmp_path: Path, packing: int, name: str
) -> None:
    stored = packing if name == "MANIFEST.json" else zipfile.ZIP_STORED
    path = a_zip(tmp_path / "x.zip", ["run/mpprof/run.json"], packing, stored)
    content = bytearray(path.read_bytes())
    at = content.index(name.encode()) + len(name)
    content[at + 4 : at + 20] = b"\xff" * 16
    path.write_bytes(content)
    done = mpprof("report", path)
    assert done.code == 2
    assert "LZMA or bzip2" in done.err


@pytest.mark.parametrize("where", ["mkdir", "write"])
def test_without_room_for_what_is_unpacked_one_error_says_what_to_do(
    mpprof: Mpprof, bundle: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def full(*arguments: Any, **more: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "mkdir":
        monkeypatch.setattr(tempfile, "mkdtemp", full)
    else:
        monkeypatch.setattr(bundle_reading, "_extract", full)
    done = mpprof("report", bundle)
    assert done.code == 2
    assert "a bundle cannot be unpacked here (No space left on device)" in done.err
    assert "TMPDIR" in done.err


READS = """
import sys, time
from pathlib import Path
from mpprof.cli.bundle_reading import unpacked
with unpacked(Path(sys.argv[1])) as folder:
    print(folder, flush=True)
    time.sleep(600)
"""


def reading(bundle: Path, scratch: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", READS, str(bundle)], stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
    )  # fmt: skip
    return process, Path(process.stdout.readline().strip())


@pytest.mark.parametrize("ends", ["SIGTERM", "SIGHUP"])
def test_a_process_that_is_asked_to_end_removes_what_it_has_unpacked(
    bundle: Path, scratch: Path, ends: str
) -> None:
    number = getattr(signal, ends, None)
    if number is None or signal.getsignal(number) is signal.SIG_IGN:  # as under nohup
        pytest.skip(f"{ends} ends nothing here")
    process, folder = reading(bundle, scratch)
    assert folder.is_dir()
    process.send_signal(number)
    process.communicate()
    assert process.returncode == 128 + number
    assert not folder.exists()


def test_what_a_killed_process_has_left_goes_with_the_next_and_a_living_ones_stays(
    mpprof: Mpprof, bundle: Path, scratch: Path
) -> None:
    pytest.importorskip("fcntl")
    killed, left = reading(bundle, scratch)
    killed.kill()
    killed.communicate()
    living, used = reading(bundle, scratch)  # which sweeps
    theirs = scratch / "mpprof-bundle-of-another-kind"
    theirs.mkdir()
    try:
        assert not left.parent.exists()
        assert mpprof("report", bundle).code == 0
        assert used.is_dir()
        assert theirs.is_dir()
    finally:
        theirs.rmdir()
        living.terminate()
        living.communicate()


def test_a_record_without_an_end_is_left_out(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a sparse file of 20 GB, which takes a kilobyte on disk."""
    run = tmp_path / "run"
    shutil.copytree(MIXED / "mpprof", run / "mpprof")
    os.truncate(run / "mpprof" / "steps.jsonl", 1 << 22)
    monkeypatch.setattr(bundle_writing, "MOST_RECORD_BYTES", 1 << 20)
    done = mpprof("bundle", run, "-o", tmp_path / "x.zip", "--max-size", "1")
    assert done.code == 0
    assert "left out mpprof/steps.jsonl: larger than 1 MiB; --max-size raises the limit" in done.err
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert not any(name.endswith("steps.jsonl") for name in archive.namelist())
