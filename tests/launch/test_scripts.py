"""Fifteen scripts as people write them: their output, exit code and weights are the same under `mpprof run`, and the
report is of what they trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.launch.running import SCRIPTS, Forked, Ran, launched, options, python

pytestmark = pytest.mark.framework


def records(logdir: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """run.json and the step lines of a run."""
    folder = logdir / "mpprof"
    lines = [json.loads(line) for line in (folder / "steps.jsonl").read_text().splitlines()]
    return json.loads((folder / "run.json").read_text()), lines


def steps(lines: list[dict[str, Any]]) -> int:
    return sum(line["covers"] for line in lines if line.get("kind") == "step")


def both(folder: Path, name: str, *arguments: str) -> Ran:
    """The script under `mpprof run`; its output and exit code are those without it."""
    plain = Forked(folder, name, *arguments)
    under = Forked(folder, name, *arguments, options=options(folder, name))
    without, ran = plain.ended(), under.ended()
    assert (ran.code, ran.out) == (without.code, without.out), ran.err[-3000:]
    assert without.out
    written = {path.name for path in (folder / "launched").iterdir()}
    assert written == {path.name for path in (folder / "plain").iterdir()}
    return ran


FIT = {
    "arrays.py": (("--epochs", "2"), 5, 54, 1),
    "dataset.py": ((), 0, 40, 1),
    "pydataset.py": ((), 0, 48, 1),
    "generator.py": ((), 0, 40, 1),
    "subclassed.py": ((), 0, 50, 1),
    "custom_step.py": ((), 1, 40, 1),
    "policy.py": ((), 0, 40, 1),
    "two_fits.py": ((), 1, 80, 2),
    "notebook.py": ((), 0, 40, 1),
    "keras2.py": ((), 0, 40, 1),
    "devices.py": ((), 0, 20, 1),
}
"""By script: its arguments, its exit code, the steps and fits of its run."""


IN_FULL = {"pydataset.py", "custom_step.py", "notebook.py", "dataset.py", "subclassed.py", "policy.py"}
"""Those that differ least from others."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name in IN_FULL else ()) for name in FIT]
)
def test_a_script_is_recorded_and_nothing_else_changes(name: str, tmp_path: Path) -> None:
    arguments, code, ran_steps, fits = FIT[name]
    ran = both(tmp_path, name, *arguments)
    facts, lines = records(tmp_path / "logs")
    assert (ran.code, steps(lines), len(facts["fits"])) == (code, ran_steps, fits)
    assert "mpprof report " in ran.err
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == ["finished"] * fits
    assert ("2 runs were recorded" in ran.err) is (name == "two_fits.py")  # one of another model


def test_calls_of_train_on_batch_are_recorded_one_by_one(tmp_path: Path) -> None:
    ran = both(tmp_path, "by_batch.py")
    facts, lines = records(tmp_path / "logs")
    assert (steps(lines), facts["framework"]["loop"]) == (40, "custom")
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == ["finished"]
    assert all(line["loss"] > 0 for line in lines if line.get("kind") == "step")
    assert "mpprof report " in ran.err


def test_a_loop_of_the_scripts_own_gets_the_lines_that_record_it(tmp_path: Path) -> None:
    ran = both(tmp_path, "tape.py")
    assert "tape.py called neither fit nor train_on_batch" in ran.err
    assert 'with StepRecorder("logs/logs", model=model, optimizer=optimizer) as recorder:' in ran.err


def test_a_script_chooses_its_backend_in_its_first_lines_and_ends_by_an_interrupt(tmp_path: Path) -> None:
    script = str(SCRIPTS / "on_jax.py")
    ran = launched("--logdir", "logs", script, cwd=tmp_path)
    assert ran.code == -2, ran.err
    assert ran.out.startswith("3 [")
    facts, lines = records(tmp_path / "logs")
    assert (steps(lines), facts["framework"]["backend"], facts["script"]) == (80, "jax", "on_jax.py")
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == ["interrupted"]
    assert "mpprof report logs -v" in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


@pytest.mark.full
def test_a_training_in_a_forked_process_is_named(tmp_path: Path) -> None:
    script = str(SCRIPTS / "forks.py")
    plain, ran = python(script, cwd=tmp_path), launched("--logdir", "logs", script, cwd=tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out) == (0, plain.out), ran.err
    assert f"processes that {script} has started recorded 1 run: mpprof ls " in ran.err
    _, lines = records(tmp_path / "logs")
    assert steps(lines) == 40


@pytest.mark.full
def test_a_training_in_a_spawned_process_is_not_recorded_and_that_is_said(tmp_path: Path) -> None:
    script = str(SCRIPTS / "trains_elsewhere.py")
    plain, ran = python(script, cwd=tmp_path), launched("--logdir", "logs", script, cwd=tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out) == (3, "1\n"), ran.err
    assert "of processor time and are not recorded: a training in one is recorded where MPProf" in ran.err


def test_the_interpreter_is_no_script(tmp_path: Path) -> None:
    ran = launched("--logdir", "logs", "python3", "train.py", "--epochs", "2", cwd=tmp_path)
    assert ran.code == 2
    assert "python3 is not a script" in ran.err
    assert "mpprof run train.py --epochs 2" in ran.err


FULL = [*FIT, "fails.py", "by_batch.py", "tape.py", "jax_loop.py", "on_jax.py", "spawns.py"]


def test_a_log_directory_that_cannot_be_made_is_why_there_is_no_report(tmp_path: Path) -> None:
    """It was not that the script called no fit."""
    (tmp_path / "file").touch()
    asked = options(tmp_path, "arrays.py", logdir=str(tmp_path / "file" / "logs"))
    ran = Forked(tmp_path, "arrays.py", "--epochs", "1", options=asked).ended()
    assert ran.code == 5
    assert "mpprof: there is no report: " in ran.err
    assert "cannot be written" in ran.err
    assert "neither fit nor" not in ran.err


def test_a_script_that_fails_before_it_trains_is_not_told_how_to_record_a_loop(tmp_path: Path) -> None:
    (tmp_path / "early.py").write_text("import keras\nprint(keras.__name__)\nraise ValueError('no data')\n")
    ran = both(tmp_path, str(tmp_path / "early.py"))
    assert ran.code == 1
    assert "early.py ended by ValueError before it trained with Keras." in ran.err
    assert "StepRecorder" not in ran.err


ONE_OF_ITS_OWN = """
import keras
import numpy as np
from mpprof import MPProfilerCallback

x = np.ones((80, 4), "float32")
for callbacks in ([MPProfilerCallback("mine", profile_steps=None, verbose=0)], []):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(x, x[:, :1], verbose=0, callbacks=callbacks)
"""


def test_a_report_is_named_from_where_the_script_was_started(tmp_path: Path) -> None:
    (tmp_path / "moves.py").write_text(f"import os\n{(SCRIPTS / 'by_batch.py').read_text()}\nos.chdir('/')\n")
    asked = options(tmp_path / "launched", "moves.py")
    ran = Forked(tmp_path, str(tmp_path / "moves.py"), options=asked).ended()
    assert ran.code == 0
    assert "mpprof report logs -v" in ran.err


def test_a_script_that_only_predicts_is_not_told_how_to_record_a_loop(tmp_path: Path) -> None:
    script = "import keras, numpy\nmodel = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])\n"
    (tmp_path / "predicts.py").write_text(
        script + "print(model.predict(numpy.ones((8, 4)), verbose=0).shape)\n"
    )
    ran = both(tmp_path, str(tmp_path / "predicts.py"))
    assert "predicts.py called predict or evaluate, and trained nothing: there are no steps." in ran.err
    assert "StepRecorder" not in ran.err


def test_runs_that_lie_elsewhere_are_named(tmp_path: Path) -> None:
    (tmp_path / "both.py").write_text(ONE_OF_ITS_OWN)
    ran = Forked(tmp_path, str(tmp_path / "both.py"), options=options(tmp_path, "both.py")).ended()
    assert (
        f"2 runs were recorded (a model of its own is a run of its own). This is the longest; all of them: mpprof ls {tmp_path / 'logs'}, mpprof report "
        in ran.err
    )
    assert "/mine" in ran.err


def test_a_fit_that_fails_is_reported_as_one(tmp_path: Path) -> None:
    ran = both(tmp_path, "fails.py")
    assert ran.code == 1
    facts, lines = records(tmp_path / "logs")
    assert (facts["ended"]["reason"], facts["ended"]["text"]) == ("error", "no more data")
    assert steps(lines) == 20
    assert "no more data" in ran.err.partition("RuntimeError: no more data")[2]


@pytest.mark.full
@pytest.mark.parametrize("name", FULL)
def test_a_script_in_a_process_of_its_own_is_what_it_is_without_us(name: str, tmp_path: Path) -> None:
    arguments = FIT[name][0] if name in FIT else ()
    script = str(SCRIPTS / name)
    plain = python(script, *arguments, cwd=tmp_path)
    ran = launched("--logdir", "logs", script, *arguments, cwd=tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out), ran.err
    assert "mpprof report " in ran.err
    assert [path.name for path in tmp_path.iterdir()] in (["logs"], [])
