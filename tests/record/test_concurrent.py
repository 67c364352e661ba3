"""Trainings that have nothing to do with each other and write into one log directory at the same time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from mpprof.api.source import LogDirectory
from mpprof.cli import main
from mpprof.store import find_runs, read_records
from tests.record.processes import Process, our_lines
from tests.record.training import callback, data, model

pytest.importorskip("tensorflow")
pytestmark = pytest.mark.framework

STEPS, MANY = 40, 3


def train(logdir: Path, folder: Path, number: int) -> None:
    """All begin their fit at once."""
    made, recorded = model(kind="linear", optimizer="sgd"), callback(logdir, profile_steps=(20, 24))
    x, y = data(STEPS + number)
    (folder / f"ready-{number}").touch()
    while len(list(folder.glob("ready-*"))) < MANY:
        time.sleep(0.001)
    made.fit(x, y, batch_size=8, verbose=0, callbacks=[recorded])


def test_each_has_its_own_directory_and_nothing_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logdir = tmp_path / "logs"
    started = [
        Process(tmp_path / f"said-{number}", train, logdir, tmp_path, number) for number in range(MANY)
    ]
    for process in started:
        said = process.wait(120)
        assert (process.code, our_lines(said)) == (0, []), said[-3000:]
    roots = find_runs(logdir)
    assert len(roots) == MANY
    steps = set()
    for root in roots:
        read = read_records(root)
        assert read.warnings == ()
        assert read.finished
        assert read.steps.step.tolist() == list(range(1, len(read.steps) + 1))
        (window,) = read.facts.profile_windows
        assert window.status == "done"
        assert list((root / str(window.trace)).glob("*.xplane.pb"))
        steps.add(len(read.steps))
    assert steps == {STEPS + number for number in range(MANY)}

    entries = LogDirectory(logdir).entries()  # what the page shows
    assert len({entry.name for entry in entries}) == MANY
    assert not [entry.problem for entry in entries if entry.problem]
    assert main(["report", str(logdir)]) == 2
    listed = capsys.readouterr().err
    assert all(entry.name in listed for entry in entries), listed
    assert main(["report", str(logdir), "--run", "latest"]) == 0
