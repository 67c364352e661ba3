"""The pytest plugin, in a sample project whose tests pass and fail for the right reasons."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import mpprof
from mpprof.errors import UsageError
from mpprof.testing import assert_tensor_cores
from tests.cli.conftest import MIXED
from tests.paths import SAMPLES
from tests.record.processes import Process

ISLAND, CPU = SAMPLES / "v100-float32-island", SAMPLES / "recorded-cpu-float32"
PROJECT = f"""
import pytest
from mpprof.testing import assert_tensor_cores

def test_good(mpprof_run):
    assert_tensor_cores(mpprof_run.diagnose({str(MIXED)!r}), 0.99, precision="fp16")

def test_bad(mpprof_run):
    assert_tensor_cores(mpprof_run.diagnose({str(ISLAND)!r}))

def test_unknown(mpprof_run):
    assert_tensor_cores(mpprof_run.diagnose({str(CPU)!r}))
"""
TRAINING = """
import keras, numpy
from mpprof.testing import assert_tensor_cores

def test_training(mpprof_run):
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(4)])
    model.compile("sgd", "mse")
    model.fit(numpy.ones((64, 8)), numpy.ones((64, 4)), batch_size=8, verbose=0, callbacks=[mpprof_run.callback()])
    found = mpprof_run.diagnose()
    assert found.steps.count == 8
    assert_tensor_cores(found)
"""


def run_tests(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Run a project's tests as its own pytest would, with the plugin named: an installed mpprof names it."""
    (folder / "test_project.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "mpprof.pytest_plugin", "-p", "no:cacheprovider", "."],
        cwd=folder, env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_projects_tests_pass_and_fail_for_the_right_reasons(tmp_path: Path) -> None:
    done = run_tests(tmp_path, PROJECT)
    assert done.returncode == 1
    assert "2 failed, 1 passed" in done.stdout
    assert "10.1 % of the matrix time ran on Tensor Cores, less than 90.0 %" in done.stdout
    assert "MP104 float32-island: conv2d_2, conv2d_3 stay in float32" in done.stdout
    assert "the share of matrix time on Tensor Cores is not known" in done.stdout


def _tested(folder: Path) -> None:
    os.chdir(folder)
    sys.exit(pytest.main(["-q", "-p", "mpprof.pytest_plugin", "-p", "no:cacheprovider", "."]))


@pytest.mark.framework
def test_a_test_that_trains_is_judged(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    (tmp_path / "test_project.py").write_text(TRAINING)
    process = Process(tmp_path / "said", _tested, tmp_path)
    said = process.wait()
    assert process.code == pytest.ExitCode.TESTS_FAILED
    assert "the share of matrix time on Tensor Cores is not known" in said, said


def test_what_is_installed_names_the_plugin() -> None:
    import tomllib

    project = tomllib.loads((SAMPLES.parent / "pyproject.toml").read_text())
    (module,) = project["project"]["entry-points"]["pytest11"].values()
    assert module == "mpprof.pytest_plugin"


def test_it_takes_a_path_a_run_or_a_diagnosis() -> None:
    for found in (str(MIXED), MIXED, mpprof.load(MIXED), mpprof.diagnose(MIXED)):
        assert_tensor_cores(found)


def test_another_precision_does_not_count() -> None:
    tf32 = SAMPLES / "a100-tf32-baseline-float32"
    assert_tensor_cores(tf32, precision="tf32")
    with pytest.raises(AssertionError, match="0 % of the matrix time ran on Tensor Cores in fp16"):
        assert_tensor_cores(tf32, precision="fp16")


def test_what_is_not_identified_may_not_be_much() -> None:
    found = mpprof.diagnose(MIXED)
    assert found.tensor_core is not None
    found = replace(found, tensor_core=replace(found.tensor_core, unknown_ratio=0.2))
    with pytest.raises(AssertionError, match=r"20\.0 % of the device's work is not identified"):
        assert_tensor_cores(found)
    assert_tensor_cores(found, allow_unknown=0.3)


def test_a_share_is_from_0_to_1() -> None:
    with pytest.raises(UsageError, match="at_least is 90"):
        assert_tensor_cores(MIXED, 90)
