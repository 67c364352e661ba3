"""Where Keras' own TensorBoard callback profiles, its trace is left alone, and it is the one that is used."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.model.run import ProfileWindow
from mpprof.record.profile.schedule import profile_of
from mpprof.store import read_records
from tests.record.on_tensorflow import keras
from tests.record.test_fit_jax import events_of
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework


@functools.cache
def trained() -> Any:
    """One for all tests: whether others have trained it before changes no profile."""
    return model()


def train(steps: int, *callbacks: Any, fits: int = 1) -> None:
    x, y = data(steps)
    for _ in range(fits):
        trained().fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=list(callbacks))


def board(logdir: Path, calls: tuple[int, int] | int) -> Any:
    return keras.callbacks.TensorBoard(str(logdir), profile_batch=calls, write_graph=False)


def windows(root: Path) -> tuple[ProfileWindow, ...]:
    read = read_records(root)
    assert read.warnings == ()
    return read.facts.profile_windows


@pytest.mark.parametrize("theirs_first", [True, False])
@pytest.mark.parametrize("same", [True, False])
def test_its_trace_is_the_runs_own(tmp_path: Path, theirs_first: bool, same: bool) -> None:
    ours = callback(tmp_path / "run", profile_steps="auto")
    theirs = board(tmp_path / ("run" if same else "board"), (12, 16))
    train(40, *([theirs, ours] if theirs_first else [ours, theirs]))
    (window,) = windows(tmp_path / "run")
    assert (window.status, window.first_step, window.last_step) == ("foreign", 12, 16)
    assert window.trace.startswith("train/plugins/profile/" if same else "plugins/profile/")
    (trace,) = (tmp_path / "run" / window.trace).glob("*.xplane.pb")
    assert trace.name == f"{window.host}.xplane.pb"
    assert sum(name == "Profiled batch" for name, _ in events_of(trace)) == 5
    (original,) = (tmp_path / ("run" if same else "board") / "train/plugins/profile").iterdir()
    assert any(original.iterdir())  # and theirs is where they look for it

    run = mpprof.load(tmp_path / "run")
    assert run.traces == (trace,)
    assert run.steps.step[run.steps.profiled].tolist() == [12, 13, 14, 15, 16]
    report = mpprof.diagnose(run)
    # Five markers make five whole steps; how many of them are steady is up to the machine, and is said. Keras'
    # markers count from 0, ours from 1.
    left_out = [re.match(r"(\d+) of (\d+) whole steps left out", note) for note in report.account.notes]
    out = sum(int(found[1]) for found in left_out if found)
    assert len(report.account.steps) + out == 5
    assert set() < set(report.account.steps) <= set(range(11, 17))
    assert "MP910" not in {finding.code for finding in report.findings}


def test_our_window_opens_where_it_closes_before_theirs_begins(tmp_path: Path) -> None:
    train(40, callback(tmp_path, profile_steps=(5, 8)), board(tmp_path, (20, 22)))
    assert [(w.first_step, w.last_step, w.status) for w in windows(tmp_path)] == [
        (5, 8, "done"),
        (20, 22, "foreign"),
    ]
    assert len({w.trace for w in windows(tmp_path)}) == 2


@pytest.mark.parametrize("theirs", [(10, 12), (8, 8), (3, 6)])
def test_our_window_gives_way_to_theirs(tmp_path: Path, theirs: tuple[int, int]) -> None:
    train(30, board(tmp_path, theirs), callback(tmp_path, profile_steps=(5, 9)))
    first = windows(tmp_path)[0]
    assert first.status == "foreign"
    assert (tmp_path / "train/plugins/profile").is_dir()
    for later in windows(tmp_path)[1:]:  # what was left of ours when theirs had ended
        assert (later.first_step, later.last_step, later.status) == (theirs[1] + 1, 9, "done")


def test_each_fit_is_profiled_by_it_anew(tmp_path: Path) -> None:
    train(20, callback(tmp_path, profile_steps=None), board(tmp_path / "board", (4, 6)), fits=2)
    assert [(w.first_step, w.last_step, w.status) for w in windows(tmp_path)] == [
        (4, 6, "foreign"),
        (24, 26, "foreign"),
    ]


def test_a_fit_that_ends_within_its_profile(tmp_path: Path) -> None:
    train(20, callback(tmp_path, profile_steps=None), board(tmp_path, (18, 900)))
    (window,) = windows(tmp_path)
    assert (window.status, window.first_step, window.last_step) == ("foreign", 18, 20)
    run = mpprof.load(tmp_path)
    assert len(run.traces) == 1  # written by its own on_train_end, after ours


def test_what_it_will_profile() -> None:
    found = profile_of([object(), board(Path("a"), 0), board(Path("b"), (3, 4))])
    assert (found.first, found.last) == (3, 4)
    assert found.folders[0] == Path("b").absolute() / "train/plugins/profile"
    assert profile_of([board(Path("a"), 0)]) is None
