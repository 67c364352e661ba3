"""`git bisect run` with `mpprof audit` finds the commit that took a layer off the matrix units, or out of 16 bits."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.paths import ROOT
from tests.record.on_tensorflow import keras

pytestmark = pytest.mark.framework

Version = tuple[str, str, int]  # activation and policy of the hidden layer, units of the head
START: Version = ("relu", "mixed_float16", 512)
ODD: Version = ("relu", "mixed_float16", 509)

BUILD = """\
import sys

import keras

keras.config.set_dtype_policy("mixed_float16")
layers = keras.layers
model = keras.Sequential([
    keras.Input((512,)),
    layers.Dense(512, activation="{0}", dtype="{1}", name="hidden"),
    layers.Dense({2}, name="words"),
    layers.Activation("softmax", dtype="float32"),
])
model.compile("adam", "sparse_categorical_crossentropy")
model.save(sys.argv[1])
"""
BUILT = '"{python}" build_model.py "$PWD/model.keras" || exit 125\n'
AUDITED = '"{python}" -m mpprof audit "$PWD/model.keras" --gpu H100 --batch-size 64 --bounds {bounds} > "{said}" 2>&1\n'
ENVIRONMENT = {
    **os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "",
    "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": value for who in ("AUTHOR", "COMMITTER")
       for what, value in (("NAME", "someone"), ("EMAIL", "someone@example.org"))},
}  # fmt: skip


def git(repository: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", *arguments], cwd=repository, env=ENVIRONMENT, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def script(repository: Path, version: Version) -> None:
    (repository / "build_model.py").write_text(BUILD.format(*version))


def saved(repository: Path, version: Version) -> None:
    layers: Any = keras.layers
    activation, policy, units = version
    hidden = layers.Dense(512, activation=activation, dtype=policy, name="hidden")
    head = layers.Dense(units, dtype="mixed_float16", name="words")
    model = keras.Sequential([keras.Input((512,)), hidden, head])
    model.compile("adam", "mse")
    model.save(repository / "model.keras")


def committed(repository: Path, versions: list[Version], write: Callable[[Path, Version], None]) -> list[str]:
    """A repository with a commit for each version of the model; returns their hashes."""
    repository.mkdir()
    git(repository, "init", "--quiet", "--initial-branch=main")
    made = []
    for at, version in enumerate(versions):
        write(repository, version)
        git(repository, "add", ".")
        git(repository, "commit", "--quiet", "--allow-empty", "--message", f"version {at}")
        made.append(git(repository, "rev-parse", "HEAD").strip())
    return made


def first_bad(tmp_path: Path, commits: list[str], check: str, bound: str) -> tuple[str, str]:
    """The commit that `git bisect run` blames, and what the last audit said."""
    repository, bounds, run = tmp_path / "model", tmp_path / "mpprof.toml", tmp_path / "check.sh"
    said = tmp_path / "said.txt"
    bounds.write_text(f"[audit]\n{bound}\n")
    run.write_text(check.format(python=sys.executable, bounds=bounds, said=said))
    git(repository, "bisect", "start", commits[-1], commits[0])
    git(repository, "bisect", "run", "sh", str(run))
    found = git(repository, "rev-parse", "refs/bisect/bad").strip()
    git(repository, "bisect", "reset")
    return found, said.read_text()


@pytest.mark.full
def test_bisect_finds_the_commit_that_left_the_matrix_units(tmp_path: Path) -> None:
    commits = committed(tmp_path / "model", [START, ODD, ODD], saved)
    found, said = first_bad(tmp_path, commits, AUDITED, "min_matrix_unit_ratio = 0.9")
    assert found == commits[1]
    assert "words: units 509" in said


@pytest.mark.full
def test_two_regressions_in_ten_commits_are_found_each_by_its_own_bound(tmp_path: Path) -> None:
    """The fourth commit puts a layer into float32, which is TF32 on the card; the eighth makes a size odd."""
    versions = [
        ("gelu" if at % 2 else "relu", "float32" if at >= 3 else "mixed_float16", 509 if at >= 7 else 512)
        for at in range(10)
    ]
    commits = committed(tmp_path / "model", versions, script)
    for bound, planted in (("min_16_bit_ratio = 0.9", 3), ("min_matrix_unit_ratio = 0.9", 7)):
        found, _ = first_bad(tmp_path, commits, BUILT + AUDITED, bound)
        assert found == commits[planted], bound
