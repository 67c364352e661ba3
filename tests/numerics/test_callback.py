"""The looks of the callback: when and at which batch, what they cost, and that the training is the same."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.analysis.steps.run_time import run_time
from mpprof.cli import main
from mpprof.errors import UsageError
from mpprof.numbers import files
from mpprof.runs.loading import load
from mpprof.store import read_records
from tests.numerics.on_tensorflow import keras, setups, tf

pytestmark = pytest.mark.framework
FEW = ("batch norm",)


def absent(root: Path) -> dict[str, str]:
    facts = read_records(root).facts
    return dict(facts.absent)


def callback(root: Path, **more: Any) -> mpprof.MPProfilerCallback:
    return mpprof.MPProfilerCallback(root, profile_steps=None, hardware=False, announce=None, **more)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What mpprof said: TensorFlow says once a process, and so where other tests ran before, what it finds."""
    return [each.message for each in caplog.records if each.name == "mpprof"]


@setups.AS_KERAS_WARNS
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in FEW else pytest.mark.full) for name in setups.SETUPS]
)
def test_a_training_that_is_looked_at_is_bit_identical(name: str, tmp_path: Path) -> None:
    assert setups.changed_by_fit(name, tmp_path / "run") == []


def test_what_was_skipped_is_found_in_the_batch_that_was_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, x, y = setups.made("gradient accumulation")
    root = tmp_path / "run"
    given = callback(root, numerics=(x, y * setups.LARGE), verbose=0)
    large = np.concatenate([y, y * setups.LARGE])
    model.fit(
        np.concatenate([x, x]),
        large,
        batch_size=len(x),
        epochs=1,
        shuffle=False,
        verbose=0,
        callbacks=[given],
    )
    looks, warnings = files.looks(root)
    assert warnings == ()
    assert [(each["trigger"], each["step"], each["batch"]) for each in looks] == [
        ("start", 0, "the one given"), ("skipped", 2, "the one given"), ("end", 2, "the one given")
    ]  # fmt: skip
    assert [each["loss_scale"]["now"] for each in looks] == [2.0**15, 2.0**15, 2.0**14]
    assert {each["first_forward"]["layer"] for each in looks} == {"loss"}
    assert main(["numerics", str(root), "--look", "2"]) == 0
    assert "at step 2, an update was skipped. The batch: the one given." in capsys.readouterr().out
    times = run_time(load(root))
    assert times.unknown_ns + sum(part.ns for part in times.parts) == times.wall_ns
    cost_ns = sum(each["cost_ns"] for each in looks)
    spent = times.part("profiler")
    assert spent.by[0].name == "numerics"
    assert cost_ns <= spent.by[0].ns < times.wall_ns
    read = read_records(root)
    assert (read.steps.duration_ns + np.maximum(read.steps.gap_ns, 0)).sum() < times.wall_ns - cost_ns


@pytest.mark.full
def test_a_skip_that_the_pass_does_not_reproduce_is_said_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model, x, y = setups.made("gradient accumulation")
    large = np.concatenate([y, y * setups.LARGE])
    model.fit(
        np.concatenate([x, x]), large, batch_size=len(x), verbose=0, shuffle=False,
        callbacks=[callback(tmp_path / "run", numerics=True, verbose=0)],
    )  # fmt: skip
    assert main(["numerics", str(tmp_path / "run")]) == 0
    heading, first = capsys.readouterr().out.splitlines()[:2]
    rows = "the first 16 rows of the arrays given to fit, which need not be the batch that broke"
    assert heading.endswith(f"The batch: {rows}.")
    assert first.startswith("An update was skipped, and this pass does not reproduce it. Nothing breaks")


def test_what_cannot_be_looked_at_is_one_line_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, x, y = setups.made("gradient accumulation")
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(8)
    with caplog.at_level(logging.WARNING, "mpprof"):
        model.fit(
            data,
            epochs=2,
            shuffle=False,
            verbose=0,
            callbacks=[callback(tmp_path / "run", numerics=True, verbose=0)],
        )
    assert [line.partition(" the numbers")[0] for line in said(caplog)] == ["mpprof does not look at"]
    assert "give a batch" in absent(tmp_path / "run")["numerics"]
    assert not (tmp_path / "run" / "mpprof" / "numerics.jsonl").exists()
    assert int(model.optimizer.inner_optimizer._iterations) == 4


def test_a_look_that_fails_is_one_line_and_the_training_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, x, y = setups.made("gradient accumulation")
    wrong = callback(tmp_path / "run", numerics=(x[:, :3], y), verbose=0)
    with caplog.at_level(logging.WARNING, "mpprof"):
        model.fit(x, y, epochs=3, verbose=0, callbacks=[wrong])
    (line,) = said(caplog)
    assert line.startswith(
        "mpprof does not look at the numbers by layer: numerics: the pass over this batch failed"
    )
    assert "x is (16, 3) and y is (16, 1)" in absent(tmp_path / "run")["numerics"]
    assert int(model.optimizer.inner_optimizer._iterations) == 3


def test_what_is_no_batch_is_refused(tmp_path: Path) -> None:
    assert keras.backend.backend() == "tensorflow"
    with pytest.raises(UsageError, match="numerics is a int"):
        callback(tmp_path, numerics=3)
