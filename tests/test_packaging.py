"""Wheel and sdist: with the compiled walk where there is a C compiler, installable and equal without. No network."""

from __future__ import annotations

import json
import logging
import os
import random
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from mpprof.traces.common import walk
from mpprof.traces.xspace import reader as xspace
from tests.column_digests import digest
from tests.paths import NO_TRACES, ROOT
from tests.traces.conftest import shared_xplanes
from tests.traces.test_walk import small_space

SAMPLES = sorted((ROOT / "sample_traces").rglob("*.xplane.pb"))
SAMPLE = ROOT / "sample_traces" / "v100-convnet-mixed-float16"
DAMAGED = 200

_SAY = "from mpprof.traces.common import walk; import mpprof; print(walk.COMPILED, mpprof.__file__)"


def run(*arguments: str, cwd: Path, **environment: str) -> str:
    """What a program of this interpreter prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tracked files alone, as a release is made of."""
    pytest.importorskip("Cython")
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout")
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True
    ).stdout.decode()
    folder = tmp_path_factory.mktemp("release") / "src"
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file() and not name.startswith(("tests/", "sample_traces/", "docs/")):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def sdist(source: Path) -> Path:
    return build(source, "sdist")


@pytest.fixture(scope="module")
def plain(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the sdist was installed on a machine whose C compiler does not work."""
    target = tmp_path_factory.mktemp("plain")
    run(
        "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--no-compile",
        "--disable-pip-version-check", "--target", str(target), str(sdist), cwd=target, CC="/bin/false",
    )  # fmt: skip
    return target


def build(source: Path, kind: str, **environment: str) -> Path:
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}('dist'))"
    name = run("-c", code, cwd=source, **environment).split()[-1]
    return source / "dist" / name


def inside(package: Path, *arguments: str, **environment: str) -> str:
    """What the package installed there prints, imported from nowhere else."""
    place = run("-c", _SAY, cwd=package, PYTHONPATH=str(package)).split()[1]
    assert Path(place).is_relative_to(package)
    return run(*arguments, cwd=package, PYTHONPATH=str(package), **environment)


def columns(package: Path, files: list[Path]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        inside(package, str(ROOT / "tests" / "column_digests.py"), *map(str, files))
    )
    assert Path(found["package"]).is_relative_to(package)
    return found


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A small trace, and some samples, with bytes changed in place or cut off; always the same ones."""
    chance, folder, files = random.Random(20), tmp_path_factory.mktemp("damaged"), []
    for at in range(DAMAGED):
        content = bytearray(SAMPLES[at % len(SAMPLES)].read_bytes() if at % 10 == 0 else small_space())
        for _ in range(chance.randrange(1, 4)):
            place = chance.randrange(len(content))
            content[place] = chance.choice((chance.randrange(256), 0xFF, 0x80, 0, content[place] ^ 1))
        if at % 4 == 0:
            del content[chance.randrange(len(content)) :]
        path = folder / f"{at}.xplane.pb"
        path.write_bytes(content)
        files.append(path)
    return files


def test_without_a_c_compiler_it_installs_and_says_which_walk_it_uses(plain: Path) -> None:
    checks = json.loads(inside(plain, "-m", "mpprof.cli", "doctor", "--format", "json"))["checks"]
    (reader,) = [check for check in checks if check["name"] == "trace reader"]
    assert (reader["status"], reader["value"]) == ("missing", "plain Python")
    assert "C compiler" in reader["next"]


def test_without_a_c_compiler_a_report_says_the_same(plain: Path) -> None:
    command = ("-m", "mpprof.cli", "report", str(SAMPLE), "--format", "json", "--no-cache")
    assert json.loads(inside(plain, *command)) == json.loads(run(*command, cwd=ROOT))


@pytest.mark.skipif(not walk.COMPILED, reason="no compiled walk to compare with here")
@pytest.mark.parametrize("which", ["samples", "recorded", "damaged"])
def test_both_walks_give_the_same_columns(plain: Path, which: str, damaged: list[Path]) -> None:
    files = {"samples": SAMPLES, "recorded": shared_xplanes(), "damaged": damaged}[which]
    if not files:
        pytest.skip(NO_TRACES)
    found = columns(plain, files)
    assert not found["compiled"]
    ours = {str(path): digest(path) for path in files}
    assert found["files"] == ours
    read = [text for text in ours.values() if len(text) == 32]
    assert len(read) > len(files) / 3  # and not one error for all


def test_a_large_trace_read_in_plain_python_is_warned_of_once_and_is_whole(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(walk, "COMPILED", False)
    monkeypatch.setattr(xspace, "SLOW_BYTES", 0)
    walk.say_slow.cache_clear()
    for _ in range(2):
        assert xspace.XSpaceReader().read(SAMPLES[0], strict=True).warnings == ()
    (said,) = caplog.messages
    assert "plain Python" in said
    assert caplog.records[0].levelno == logging.WARNING


def test_an_sdist_holds_what_a_build_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as file:
        names = {name.partition("/")[2] for name in file.getnames()}
    assert {
        "setup.py",
        "pyproject.toml",
        "mpprof/traces/common/_walk.pyx",
        "mpprof/analysis/kernels/device_peaks.csv",
    } <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


@pytest.mark.soak
def test_a_wheel_holds_the_compiled_walk_and_the_data(
    source: Path, tmp_path: Path, damaged: list[Path]
) -> None:
    if shutil.which("cc") is None and shutil.which("gcc") is None:
        pytest.skip("no C compiler")
    with zipfile.ZipFile(build(source, "wheel")) as file:
        file.extractall(tmp_path)
    for name in (
        "analysis/kernels/device_peaks.csv",
        "report/report.schema.json",
        "traces/common/_walk.pyx",
        "py.typed",
    ):
        assert (tmp_path / "mpprof" / name).is_file(), name
    assert (tmp_path / "mpprof_dashboards" / "assets").is_dir()
    assert not list(tmp_path.rglob("*.c"))
    found = columns(tmp_path, damaged)
    assert found["compiled"]
    assert found["files"] == {str(path): digest(path) for path in damaged}


def test_the_extra_of_tensorflow_brings_tensorboard_and_a_plugin_that_was_tried_with_it() -> None:
    """TensorFlow 2.21 does not, and Keras' own callback then stops a fit."""
    with (ROOT / "pyproject.toml").open("rb") as file:
        extra = tomllib.load(file)["project"]["optional-dependencies"]["tensorflow"]
    assert {re.split("[<>=]", each)[0] for each in extra} >= {"tensorboard", "tensorboard-plugin-profile"}
    plugin = next(each for each in extra if "plugin" in each)
    assert "TensorFlow 2.16 and 2.21" in (ROOT / "docs" / "install.md").read_text()
    assert plugin.partition(">=")[2].partition(",")[0] in (ROOT / "docs" / "install.md").read_text()
