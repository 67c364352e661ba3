"""Where the runs of a ladder lie, and the command that goes on with one that was broken off."""

from __future__ import annotations

import functools
import json
import os
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import UnableError
from mpprof.launch.options import Options
from mpprof.runs.loading import runs
from mpprof.store.writing import claim
from mpprof.trial import training, trying
from mpprof.trial.ladder import Turn
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import Choices, Setting
from mpprof.trial.training import Ended
from tests.paths import SAMPLES
from tests.trial.known import Known, climbed

FITS = ("v100-convnet-float32", "v100-convnet-mixed-float16")


def two_fits(words: Any, options: Options, output: Path, within_s: float) -> Ended:
    """A script's process whose second fit had enough steps; each fit has a run of its own."""
    assert options.trial is not None
    for name in FITS:
        place = claim(Path(options.logdir), f"20260101T000000Z-{os.getpid()}")
        shutil.copytree(SAMPLES / name / "mpprof", place / "mpprof", dirs_exist_ok=True)
    output.write_text("")
    answer = {"reason": "steps", "root": str(place), "fits": 2}
    Path(options.trial.answer).write_text(json.dumps(answer))
    return Ended(0, 1.0)


def test_a_rung_is_found_by_its_round_whatever_else_the_script_has_fitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    train = trying.in_processes(trying.Asked(("train.py",), "train.py", tmp_path))

    def killed(words: Any, options: Options, output: Path, within_s: float) -> Ended:
        two_fits(words, options, output, within_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "run", killed)
    with pytest.raises(KeyboardInterrupt):
        train(Turn(Setting("float32"), 0, 0, 1), 60.0)
    monkeypatch.setattr(training, "run", two_fits)
    one = train(Turn(Setting("float32"), 0, 0, 1), 60.0)
    assert one.root == str(tmp_path / "float32" / "1")
    facts = json.loads((SAMPLES / FITS[1] / "mpprof" / "run.json").read_text())
    assert mpprof.load(one.root).run_id == facts["run_id"]
    (measured,) = runs(tmp_path / "float32")
    assert measured.run_id == facts["run_id"]


def test_what_the_script_does_already_is_no_rung() -> None:
    train = Known(lambda setting, at: 20.0)  # it trains without XLA
    tried = climbed(train, Choices(jit=(None, False)))
    assert train.names == ["the script's own policy"]
    assert "\nNot tried, as the script does so already: without XLA\n" in str(tried)
    assert tried.to_dict()["already"] == ["without XLA"]


@pytest.mark.parametrize(
    "script", [("train.py", "--minutes", "9"), ("-m", "package", "--resume"), ("--", "train.py")]
)
def test_the_command_that_goes_on_can_be_copied(
    script: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    given: list[trying.Asked] = []
    known = Known(lambda setting, at: 20.0)

    def interrupted(turn: Turn, within_s: float) -> Trained:
        if len(known.turns) == 3:
            raise KeyboardInterrupt
        return known(turn, within_s)

    def in_processes(asked: trying.Asked) -> trying.Train:
        given.append(asked)
        return interrupted

    monkeypatch.setattr(trying, "in_processes", in_processes)
    words = ["--logdir", "my logs", "--policies", "float32,mixed_float16", "--minutes", "5", *script]
    assert main(["try", *words]) == 130
    said = next(line for line in capsys.readouterr().err.splitlines() if "To go on: " in line)
    _, command, *again = shlex.split(said.partition("To go on: ")[2])
    assert command == "try"
    assert main([command, *again]) == 130
    first, second = given
    assert second == replace(first, resume=True)
    last = next(line for line in capsys.readouterr().err.splitlines() if "To go on: " in line)
    assert shlex.split(last.partition("To go on: ")[2]) == [
        "mpprof",
        command,
        *again,
    ]  # nothing is said twice


def test_a_ladder_that_leaves_no_run_keeps_no_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A name that is misspelled, or a script that cannot start: it is mended, and tried again."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")

    def refused(words: Any, options: Options, output: Path, within_s: float) -> Ended:
        assert options.trial is not None
        answer = {"reason": "refused", "refused": "keras has no dtype policy 'mixed_bfloat61'"}
        Path(options.trial.answer).write_text(json.dumps(answer))
        return Ended(0, 1.0)

    def interrupted(words: Any, options: Options, output: Path, within_s: float) -> Ended:
        two_fits(words, options, output, within_s)
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "run", refused)
    for logdir in ([], ["--logdir", "mine"]):
        for _ in range(2):
            assert main(["try", *logdir, "--policies", "mixed_bfloat61", "train.py"]) == 2
            assert "no dtype policy 'mixed_bfloat61'" in capsys.readouterr().err
    monkeypatch.setattr(training, "run", interrupted)
    assert main(["try", "train.py"]) == 130
    assert main(["try", "train.py"]) == 130
    assert sorted(each.name for each in Path("mpprof-logs").iterdir()) == ["train-try", "train-try-2"]


@pytest.mark.parametrize(
    ("minutes", "error", "goes_on"),
    [
        ("1", None, True),  # six trainings, three rounds
        ("0.4", "60 steady steps were not reached in time", True),
        ("5", "out of memory", False),
        ("5", None, False),
    ],
)
def test_the_command_that_goes_on_is_printed_where_more_time_would_show_more(
    minutes: str,
    error: str | None,
    goes_on: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    train = Known(
        lambda setting, at: 20.0, lambda setting: {"error": None if setting.policy == "float32" else error}
    )
    monkeypatch.setattr(trying, "in_processes", lambda asked: train)
    monkeypatch.setattr(trying, "climb", functools.partial(trying.climb, clock=lambda: train.now_s))
    words = ["--minutes", minutes, "--policies", "float32,mixed_float16", "train.py"]
    assert main(["try", *words]) == 0
    shown = capsys.readouterr()
    assert "No time was left for" not in shown.out
    assert ("To go on, for as long as --minutes says: " in shown.err) is goes_on


def test_where_a_training_fails_the_file_with_its_output_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    why = "ValueError: input 0 of dense has 3 axes"

    def fails(words: Any, options: Options, output: Path, within_s: float) -> Ended:
        assert options.trial is not None
        output.write_text("USDT: profiler_stop")
        Path(options.trial.answer).write_text(json.dumps({"reason": "error", "error": why}))
        return Ended(1, 1.0)

    monkeypatch.setattr(training, "run", fails)
    train = trying.in_processes(trying.Asked(("train.py",), "train.py", tmp_path))
    first = train(Turn(Setting("float32"), 0, 0, 1), 60.0)
    output = tmp_path / "float32" / "1.txt"
    with pytest.raises(UnableError, match=f"{why}. What it printed: {output}$"):
        climbed(
            Known(
                lambda setting, at: 20.0,
                lambda setting: {"error": first.error, "output": first.output, "script_failed": True},
            )
        )
    later = Known(
        lambda setting, at: 20.0,
        lambda setting: {} if setting.policy == "float32" else {"error": first.error, "output": first.output},
    )
    shown = str(climbed(later))
    assert f"mixed_bfloat16: {why} (what it printed: {output})" in shown
    assert "USDT" not in shown
