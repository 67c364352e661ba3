"""`mpprof.try_settings`: the settings of a model, in this process."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.errors import UnableError, UsageError
from tests.record.on_tensorflow import keras

pytestmark = pytest.mark.framework

X = np.random.default_rng(5).random((160, 8), dtype="float32")
DATA = (X, X[:, :1])


def build() -> Any:
    made = keras.Sequential(
        [keras.Input((8,)), keras.layers.Dense(4), keras.layers.Dense(1, dtype="float32")]
    )
    made.compile("sgd", "mse", jit_compile=False)
    return made


def tried(build_model: Any = build, data: Any = DATA, **more: Any) -> Any:
    given = {"steps": 20, "seconds": 0.0, "say": lambda line: None, "batch_size": 8, "most_rounds": 4, **more}
    return mpprof.try_settings(build_model, data, **given)


def test_settings_take_turns_and_what_fails_is_marked(tmp_path: Path) -> None:
    said: list[str] = []

    def fails_in_float16() -> Any:
        if keras.config.dtype_policy().name == "mixed_float16":
            raise FloatingPointError("no float16 here")
        return build()

    before = set(threading.enumerate())
    found = tried(
        fails_in_float16,
        policies=("float32", "mixed_float16", "mixed_bfloat16"),
        logdir=tmp_path,
        say=said.append,
    )
    assert keras.config.dtype_policy().name == "float32"
    first, failed, last = found.rows
    assert (failed.error, failed.speedup, failed.rounds) == ("FloatingPointError: no float16 here", None, ())
    assert len(first.rounds) >= 4
    assert first.batch == 8
    assert last.speedup.interval is not None
    assert str(found).startswith("Measured on a CPU")
    assert len(said) == len(first.rounds) + 1 + len(last.rounds)
    for name in ("float32", "mixed_bfloat16"):
        run = mpprof.load(tmp_path / name / "4")
        assert run.last_fit.policy.compute_dtype == name.removeprefix("mixed_")
    assert set(threading.enumerate()) <= before


def test_a_model_that_always_fails_is_an_error_with_its_cause(tmp_path: Path) -> None:
    def fails() -> Any:
        raise ZeroDivisionError("nothing")

    with pytest.raises(UnableError, match="ZeroDivisionError: nothing") as raised:
        tried(fails, logdir=tmp_path)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_data_that_run_out_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnableError, match="of 20 steady steps"):
        tried(logdir=tmp_path, epochs=1, steps_per_epoch=12)


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("steps is 5", {"steps": 5}),
        ("steps is '60'", {"steps": "60"}),
        ("one setting alone", {"policies": "float32"}),
        ("no policy 'mixed_flaot16'", {"policies": ("float32", "mixed_flaot16")}),
        ("build_model is not a function, but a str", {"build_model": "text"}),
        ("returned a builtins NoneType", {"build_model": lambda: None}),
        ("a tuple of 4", {"data": (1, 2, 3, 4)}),
    ],
)
def test_what_cannot_be_tried_is_wrong_usage(tmp_path: Path, said: str, more: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=said):
        tried(**{"logdir": tmp_path, **more})
    assert list(tmp_path.rglob("run.json")) == []
