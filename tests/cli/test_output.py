"""`-o FILE`: what is replaced, what is written into, and what stays as it was."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from mpprof.cli import output
from tests.cli.conftest import MIXED, Mpprof

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs devices, pipes, links and modes")

TEXT = b"a report\n"
NULL = os.makedev(1, 3)


def null_device(folder: Path) -> Path:
    path = folder / "null"
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, NULL)
        path.write_bytes(b"x")
    except OSError:
        pytest.skip("only root makes devices, and not everywhere")
    return path


def test_a_device_stays_a_device(mpprof: Mpprof, tmp_path: Path) -> None:
    device = null_device(tmp_path)
    before = device.stat()
    assert mpprof("report", MIXED, "-o", device, "--force").code == 0
    after = device.stat()
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, NULL)
    assert list(tmp_path.iterdir()) == [device]


def test_a_pipe_carries_what_is_written(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()), daemon=True)
    reader.start()
    output.write_bytes(TEXT * 100_000, pipe, force=True)  # more than a pipe holds
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    reader.join(60)
    assert read == [TEXT * 100_000]


@pytest.mark.parametrize("kind", ["a link", "a link to a link", "a link to nothing"])
def test_a_link_stays_and_its_target_is_written(tmp_path: Path, kind: str) -> None:
    target, link = tmp_path / "there" / "target.txt", tmp_path / "link.txt"
    target.parent.mkdir()
    if kind != "a link to nothing":
        target.write_text("mine")
    link.symlink_to("there/target.txt")
    if kind == "a link to a link":
        link = tmp_path / "second.txt"
        link.symlink_to("link.txt")
    output.write_bytes(TEXT, link, force=True)
    assert link.is_symlink()
    assert target.read_bytes() == TEXT
    assert list(target.parent.iterdir()) == [target]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444])
def test_the_mode_of_a_replaced_file_is_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "report.txt"
    path.write_text("mine")
    path.chmod(mode)
    output.write_bytes(TEXT, path, force=True)
    assert path.read_bytes() == TEXT
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux' /proc")
@pytest.mark.parametrize("name", ["/proc/self/fd/1", "/dev/stdout", "linked"])
def test_standard_output_is_written_where_it_stands(tmp_path: Path, name: str) -> None:
    """A shell that writes before and after into the same file loses nothing."""
    log = tmp_path / "log"
    (tmp_path / "linked").symlink_to("/proc/self/fd/1")
    path = tmp_path / "linked" if name == "linked" else Path(name)
    if not path.exists():
        pytest.skip(f"there is no {name}")
    code = (
        "import os, pathlib; from mpprof.cli import output; os.write(1, b'before\\n'); "
        f"output.write_bytes({TEXT!r}, pathlib.Path({str(path)!r}), force=True); os.write(1, b'after\\n')"
    )
    with log.open("wb") as stdout:
        subprocess.run([sys.executable, "-c", code], stdout=stdout, check=True)
    assert log.read_bytes() == b"before\n" + TEXT + b"after\n"
    piped = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert piped.stdout == log.read_bytes()


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="needs /dev/stdout")
def test_a_bundle_on_standard_output_is_the_zip_and_nothing_more() -> None:
    command = [sys.executable, "-m", "mpprof", "bundle", str(MIXED), "-o", "/dev/stdout", "--force"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout[-22:-18] == b"PK\x05\x06"  # where a zip ends
    assert b"files, " in done.stderr
