"""What people ask for besides the records, with Keras on torch: comparison, result, audit, doctor."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import mpprof
from tests.paths import ROOT
from tests.torch.training import BATCH, FEATURES, callback, data, fit, keras, model, torch

pytestmark = pytest.mark.framework


def build() -> Any:
    layers = keras.layers
    made = keras.Sequential(
        [keras.Input((FEATURES,)), layers.Dense(64, activation="relu"), layers.Dense(4, dtype="float32")]
    )
    made.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return made


def command(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "KERAS_BACKEND": "torch"}
    ended = subprocess.run(
        [sys.executable, "-m", "mpprof.cli", *arguments],
        env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-2000:]
    return ended.stdout


def test_settings_take_turns(tmp_path: Path) -> None:
    tried = mpprof.try_settings(
        build,
        data(60),
        steps=20,
        seconds=0.0,
        most_rounds=4,
        logdir=tmp_path,
        batch_size=BATCH,
        say=lambda line: None,
    )
    assert keras.config.dtype_policy().name == "float32"
    assert [row.setting.name for row in tried.rows] == ["float32", "mixed_bfloat16"]
    assert all(len(row.rounds) >= 4 for row in tried.rows)
    assert tried.rows[1].speedup is not None
    run = mpprof.load(tmp_path / "mixed_bfloat16" / "1")
    assert run.facts.profile_windows[0].status == "done"


def test_the_result_and_the_last_line_tell_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(30, bad_steps=(4,))
    recorded = callback(tmp_path, verbose=1, announce="mpprof.api.workflows:announce")
    fit(model(), x, y, recorded)
    result = recorded.result()
    assert (result.path, result.steps, result.skipped, result.finished) == (tmp_path, 30, 1, True)
    assert result.median_step_ns is not None
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.startswith("mpprof: 30 steps")
    assert "1 skipped" in line
    assert "on a CPU" in line


def test_a_model_is_audited_before_its_first_step_and_from_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    layers = keras.layers
    made = keras.Sequential([keras.Input((FEATURES,)), layers.Dense(30, name="odd"), layers.Dense(4)])
    keras.config.set_dtype_policy("float32")
    made.compile("adam", "mse")
    x, _ = data(3)
    y = x[:, :4]
    made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[callback(tmp_path / "run", verbose=1, audit=True)])
    assert "odd" in capsys.readouterr().out
    assert "MP401" in str(mpprof.audit(made))
    made.save(tmp_path / "model.keras")
    said = command("audit", str(tmp_path / "model.keras"))
    assert "odd: units=30 is not a multiple of 8" in said


@pytest.mark.parametrize(
    ("masked", "arguments", "jit_compile", "said"),
    [
        (False, {}, False, None),
        (True, {}, False, "a mask: Keras on torch then runs a loop"),
        (False, {}, True, "jit_compile=True: Keras on torch then runs a loop"),
        (False, {"recurrent_dropout": 0.1}, False, "recurrent_dropout=0.1: cuDNN's kernel is ruled out"),
    ],
)
def test_the_audit_says_why_a_recurrent_layer_misses_cudnn(
    masked: bool, arguments: Any, jit_compile: bool, said: str | None
) -> None:
    layers = keras.layers
    keras.config.set_dtype_policy("mixed_float16")
    made = keras.Sequential(
        [
            keras.Input((8,), dtype="int32"),
            layers.Embedding(64, 8, mask_zero=masked),
            layers.LSTM(8, name="recurrent", **arguments),
            layers.Dense(8, dtype="float32"),
        ]
    )
    keras.config.set_dtype_policy("float32")
    made.compile("adam", "mse", jit_compile=jit_compile)
    notes = [note.reason for note in mpprof.audit(made).notes if note.code == "MP410"]
    assert notes == ([] if said is None else [said])


def test_doctor_names_the_backend() -> None:
    said = command("doctor")
    lines = [line.split() for line in said.splitlines()]
    assert ["ok", "torch", torch.__version__] in lines
    assert ["ok", "keras", "backend", "torch", "(KERAS_BACKEND)"] in lines


def test_the_command_reports_and_lists_a_run(tmp_path: Path) -> None:
    x, y = data(40, bad_steps=(4,))
    fit(model(), x, y, callback(tmp_path, profile_steps=(20, 24)))
    said = command("report", str(tmp_path), "-v", "--no-cache")
    assert "mixed_float16, torch" in said
    assert "no accelerator: ops" in said
    assert "1 skipped" in said
    assert "aten::mm" in command("ops", str(tmp_path), "--limit", "0", "--no-cache")
