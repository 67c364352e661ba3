"""Wheel and sdist: with the compiled walk where there is a C compiler, installable without one. No network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.soak

_SAY = "from mpprof.traces import walk; import mpprof; print(walk.COMPILED, mpprof.__file__)"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """The tracked files alone, as a release is made of."""
    pytest.importorskip("Cython")
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "sample_traces/", "docs/")):
            (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, tmp_path / "src" / name)
    return tmp_path / "src"


def build(source: Path, kind: str, **environment: str) -> Path:
    code = f"from setuptools import build_meta; build_meta.build_{kind}('dist')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=source,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return next((source / "dist").iterdir())


def unpacked(wheel: Path, to: Path) -> tuple[str, Path]:
    """What the wheel's package says of its walk, imported from nowhere else."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(to)
    done = subprocess.run(
        [sys.executable, "-c", _SAY],
        cwd=to,
        env={**os.environ, "PYTHONPATH": str(to)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    compiled, place = done.stdout.split()
    assert Path(place).is_relative_to(to)
    return compiled, to


def test_a_wheel_holds_the_compiled_walk_and_the_data(source: Path, tmp_path: Path) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    compiled, place = unpacked(build(source, "wheel"), tmp_path / "unpacked")
    assert compiled == "True"
    for name in ("analysis/devices.csv", "report/report.schema.json", "traces/_walk.pyx", "py.typed"):
        assert (place / "mpprof" / name).is_file(), name
    assert (place / "mpprof_dashboards" / "assets").is_dir()


def test_without_a_c_compiler_the_wheel_walks_in_plain_python(source: Path, tmp_path: Path) -> None:
    compiled, _ = unpacked(build(source, "wheel", CC="/bin/false"), tmp_path / "unpacked")
    assert compiled == "False"


def test_an_sdist_holds_what_a_build_needs(source: Path) -> None:
    with tarfile.open(build(source, "sdist")) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {"setup.py", "pyproject.toml", "mpprof/traces/_walk.pyx", "mpprof/analysis/devices.csv"} <= names
