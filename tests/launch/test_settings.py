"""What `mpprof run` changes of a training where it is asked to."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpprof.store import read_looks
from tests.launch.running import Forked, Ran, options
from tests.launch.test_scripts import records, steps

pytestmark = pytest.mark.framework


def ran(folder: Path, name: str, *arguments: str, **more: object) -> Ran:
    return Forked(folder, name, *arguments, options=options(folder, name, **more)).ended()


def test_a_policy_takes_the_place_of_the_scripts_own(tmp_path: Path) -> None:
    done = ran(tmp_path, "policy.py", policy="mixed_bfloat16")
    assert done.out.startswith("mixed_bfloat16 Adam\n['bfloat16', 'float32']")
    assert "mpprof: set_dtype_policy('mixed_float16') was overridden: mixed_bfloat16\n" in done.err
    assert "mpprof: the LossScaleOptimizer was left out: mixed_bfloat16 needs none\n" in done.err
    assert "mpprof: --policy mixed_bfloat16: 1 of 2 layers with weights compute in bfloat16\n" in done.err
    facts, _ = records(tmp_path / "logs")
    assert facts["fits"][0]["policy"]["global"] == "mixed_bfloat16"


FIXED = """
import keras
import numpy as np

keras.config.set_floatx("float64")
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1, dtype="float32")])
model.compile("sgd", "mse")
model.fit(np.ones((80, 4)), np.ones((80, 1)), batch_size=8, verbose=0)
print(keras.config.floatx(), model.layers[0].compute_dtype)
"""


def test_a_policy_that_no_layer_takes_is_said_and_floatx_stays(tmp_path: Path) -> None:
    (tmp_path / "fixed.py").write_text(FIXED)
    done = ran(tmp_path, str(tmp_path / "fixed.py"), policy="mixed_bfloat16")
    assert (done.code, done.out) == (0, "float32 float32\n"), done.err
    assert "mpprof: set_floatx('float64') was overridden: mixed_bfloat16\n" in done.err
    assert (
        "--policy mixed_bfloat16 did not take: 0 of 1 layers with weights compute in bfloat16\n" in done.err
    )


@pytest.mark.full
def test_a_policy_of_keras_2_takes_the_place_of_the_scripts_own(tmp_path: Path) -> None:
    assert ran(tmp_path, "keras2.py", policy="mixed_bfloat16").out.startswith("mixed_bfloat16 ")
    facts, _ = records(tmp_path / "logs")
    types = {layer["compute_dtype"] for layer in facts["model"]["layers"] if layer["class"] == "Dense"}
    assert types == {"bfloat16"}


@pytest.mark.full
def test_a_train_step_that_scales_its_loss_keeps_the_optimizer_that_can(tmp_path: Path) -> None:
    done = ran(tmp_path, "scaled.py", policy="float32")
    assert (done.code, done.out) == (0, "float32\n"), done.err
    assert "the LossScaleOptimizer was left in: the model has a train_step of its own" in done.err


def test_a_policy_that_keras_has_not_ends_the_script_before_it_trains(tmp_path: Path) -> None:
    done = ran(tmp_path, "arrays.py", policy="mixed_float99")
    assert (done.code, done.out) == (1, "")
    assert "mpprof: keras has no dtype policy 'mixed_float99'\n" in done.err
    assert "StepRecorder" not in done.err


def test_xla_is_switched_for_each_model_and_the_steps_to_profile_are_chosen(tmp_path: Path) -> None:
    assert ran(tmp_path, "arrays.py", jit=True, profile=(12, 13)).code == 5
    facts, _ = records(tmp_path / "logs")
    assert facts["fits"][0]["jit_compile"] is True
    assert facts["launched"] is True
    (window,) = facts["profile_windows"]
    assert (window["first_step"], window["last_step"]) == (12, 13)


@pytest.mark.full
def test_the_numbers_are_looked_at_by_layer(tmp_path: Path) -> None:
    done = ran(tmp_path, "policy.py", numerics=True)
    assert done.code == 0
    looks = read_looks(tmp_path / "logs")
    assert looks
    assert looks[0].forward is None


def test_the_process_ends_after_so_many_steady_steps_and_before_the_script_goes_on(tmp_path: Path) -> None:
    done = ran(tmp_path, "arrays.py", "--epochs", "50", steps=60)
    assert (done.code, done.out) == (0, "")
    assert (
        "mpprof: ended after 60 steady steps: what the script does after its training did not happen\n"
        in done.err
    )
    assert "mpprof report " in done.err
    _, lines = records(tmp_path / "logs")
    assert 60 < steps(lines) < 50 * 27
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == ["stopped"]


def test_a_loop_of_train_on_batch_ends_so_too(tmp_path: Path) -> None:
    done = ran(tmp_path, "by_batch.py", steps=10)
    assert (done.code, done.out) == (0, "")
    _, lines = records(tmp_path / "logs")
    assert 10 < steps(lines) < 40
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == ["finished"]
