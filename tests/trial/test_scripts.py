"""What a setting changes in a script's process, and what is left out of it: scripts as people write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.launch.options import Trial
from mpprof.trial import measured
from mpprof.trial.ladder import Turn
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import Setting
from mpprof.trial.training import Ended
from tests.launch.running import Forked, options

pytestmark = pytest.mark.framework

WRITES = """
import keras
import numpy as np

class Own(keras.callbacks.ModelCheckpoint):
    pass

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((80, 8), "float32")
seen = []
ends = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: seen.append(batch))
given = [Own("saved.keras"), keras.callbacks.CSVLogger("log.csv"), [ends], keras.callbacks.BackupAndRestore("backup")]
model.fit(x, x[:, :1], callbacks=given, epochs=40, verbose=0)
model.save("after.keras")
"""
ENDS_ON_NAN = """
import keras
import numpy as np

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.full((320, 8), np.nan, "float32")
model.fit(x, x[:, :1], epochs=100, verbose=0, callbacks=[keras.callbacks.TerminateOnNaN()])
"""
A_LAYER_FAILS = """
import keras
import numpy as np

class Fails(keras.layers.Layer):
    def call(self, x):
        raise ValueError("too long a sequence")

model = keras.Sequential([Fails(), keras.layers.Dense(1)])
model.compile("sgd", "mse")
x = np.ones((80, 8), "float32")
model.fit(x, x[:, :1], verbose=0)
"""
FAILS_IN_FLOAT16 = """
import keras
import numpy as np

model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
if model.layers[0].compute_dtype == "float16":
    raise FloatingPointError("no float16 here")
"""


def tried(
    folder: Path, name: str, setting: Setting, *arguments: str, steps: int = 12, **more: Any
) -> tuple[Trained, dict[str, Any], list[str]]:
    """A training of a script, what its process left, and the files that it wrote elsewhere."""
    more = {"seconds": 0.0, "profiles": False, **more}
    trial = Trial(0, str(folder / "answer.json"), batch=setting.batch, sets=setting.sets, **more)
    asked = options(folder, name, steps=steps, policy=setting.policy, jit=setting.jit, trial=trial)
    ran = Forked(folder, name, *arguments, options=asked).ended()
    told = json.loads(Path(trial.answer).read_text())
    (folder / "output.txt").write_text(ran.out + ran.err)
    one = measured.trained(
        Turn(setting, 0, 0, 1), Ended(ran.code, 1.0), Path(trial.answer), folder / "output.txt", steps
    )
    written = {path.name for path in (folder / "launched").iterdir()} - {"out", "err", "said"}
    return one, told, sorted(written)


def test_the_policy_is_set_and_what_the_script_asks_for_is_known(tmp_path: Path) -> None:
    one, _, _ = tried(tmp_path, "policy.py", Setting("mixed_bfloat16"))
    assert one.error is None
    assert one.asked == ("mixed_float16",)
    assert one.took == (1, 2)
    assert one.counts
    assert one.is_cpu
    assert one.batch == 8
    assert any(note.startswith("set_dtype_policy('mixed_float16') was overridden") for note in one.overridden)


def test_callbacks_that_write_are_left_out_and_nothing_comes_after_fit(tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text(WRITES)
    one, _, written = tried(tmp_path, str(tmp_path / "writes.py"), Setting())
    assert one.error is None
    assert one.left_out == ("Own", "CSVLogger", "BackupAndRestore")
    assert written == []


@pytest.mark.full
def test_callbacks_that_write_are_kept_where_that_is_asked(tmp_path: Path) -> None:
    (tmp_path / "writes.py").write_text(WRITES)
    one, _, written = tried(tmp_path, str(tmp_path / "writes.py"), Setting(), keep_callbacks=True)
    assert one.left_out == ()
    assert "log.csv" in written


@pytest.mark.parametrize(("name", "batch"), [("arrays.py", 32), ("dataset.py", 16)])
def test_the_batch_of_arrays_and_of_a_data_set_is_doubled(name: str, batch: int, tmp_path: Path) -> None:
    arguments = ("--epochs", "9") if name == "arrays.py" else ()
    one, _, _ = tried(tmp_path, name, Setting(batch=2.0), *arguments, steps=8)
    assert (one.error, one.batch) == (None, batch)
    assert one.examples_per_s == pytest.approx(batch / one.step_ns * 1e9)


def test_several_steps_are_executed_in_a_call(tmp_path: Path) -> None:
    setting = Setting(sets=(("steps_per_execution", "3"),))
    one, told, _ = tried(tmp_path, "arrays.py", setting, "--epochs", "9", steps=30)
    assert one.error is None
    facts = json.loads((Path(told["root"]) / "mpprof" / "run.json").read_text())
    assert facts["fits"][0]["steps_per_execution"] == 3


def test_a_pydataset_gets_workers_and_a_loss_scale_starts_elsewhere(tmp_path: Path) -> None:
    _, told, _ = tried(tmp_path, "pydataset.py", Setting(sets=(("workers", "3"),)))
    facts = json.loads((Path(told["root"]) / "mpprof" / "run.json").read_text())
    assert facts["fits"][0]["input"]["workers"] == 3
    (tmp_path / "scale").mkdir()
    setting = Setting("mixed_float16", sets=(("loss_scale", "8"), ("loss_scale_growth", "3000")))
    _, told, _ = tried(tmp_path / "scale", "policy.py", setting)
    facts = json.loads((Path(told["root"]) / "mpprof" / "run.json").read_text())
    optimizer = facts["fits"][0]["optimizer"]
    assert (optimizer["initial_scale"], optimizer["growth_steps"]) == (8, 3000)


def test_a_switch_of_what_the_script_has_not_says_so(tmp_path: Path) -> None:
    one, _, _ = tried(tmp_path, "arrays.py", Setting(sets=(("prefetch", "auto"),)))
    assert one.error == "prefetch cannot be changed: a ndarray has no prefetch: that is of a tf.data set"
    assert not one.script_failed


@pytest.mark.full
def test_a_script_that_diverges_in_float16_is_marked(tmp_path: Path) -> None:
    script = Path(__file__).parent / "scripts" / "diverges.py"
    one, _, _ = tried(tmp_path, str(script), Setting("mixed_float16"))
    assert (one.error, one.finite) == (None, False)
    assert one.skipped


def test_batches_of_its_own_cannot_be_changed(tmp_path: Path) -> None:
    one, _, _ = tried(tmp_path, "pydataset.py", Setting(batch=2.0))
    assert one.error.startswith("the batch cannot be changed: the batches of a ")
    assert not one.script_failed


def test_a_fit_that_ends_after_enough_steps_is_measured_and_nothing_comes_after(tmp_path: Path) -> None:
    one, told, _ = tried(tmp_path, "generator.py", Setting(), seconds=60.0)
    assert (one.error, told["reason"]) == (None, "steps")
    assert (tmp_path / "launched" / "out").read_text() == ""
    assert one.energy_absent is not None


def test_a_script_with_fewer_steps_says_how_many(tmp_path: Path) -> None:
    one, _, _ = tried(tmp_path, "arrays.py", Setting("float32"), steps=600)
    assert one.script_failed
    assert one.error.startswith("it ended after ")
    assert one.error.endswith(" of 600 steady steps, with exit code 5")


def test_a_script_that_raises_under_one_setting_says_why(tmp_path: Path) -> None:
    (tmp_path / "fails.py").write_text(FAILS_IN_FLOAT16)
    one, _, _ = tried(tmp_path, str(tmp_path / "fails.py"), Setting("mixed_float16"))
    assert (one.error, one.script_failed) == ("FloatingPointError: no float16 here", True)


def test_a_loss_that_is_not_finite_is_why_a_fit_ended(tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(ENDS_ON_NAN)
    one, _, _ = tried(tmp_path, str(tmp_path / "ends.py"), Setting("float32"), steps=60)
    assert one.error is not None
    assert one.error.startswith("its loss is not finite: it stopped after ")
    assert one.error.endswith(" of 60 steady steps")


def test_an_error_of_a_layer_is_told_in_its_own_words(tmp_path: Path) -> None:
    (tmp_path / "layer.py").write_text(A_LAYER_FAILS)
    one, _, _ = tried(tmp_path, str(tmp_path / "layer.py"), Setting("float32"))
    assert one.error == "ValueError: too long a sequence (in Fails.call())"


def test_a_policy_that_keras_has_not_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    one, told, _ = tried(tmp_path, "arrays.py", Setting("float32"), policies=("float32", "nonsense"))
    assert (one.error, one.script_failed) == ("keras has no dtype policy 'nonsense'", True)
    assert told["fits"] == 0


@pytest.mark.full
@pytest.mark.parametrize(("fit", "first"), [(None, 1), (2, 2)])
def test_one_of_two_fits_is_measured(fit: int | None, first: int, tmp_path: Path) -> None:
    one, told, _ = tried(tmp_path, "two_fits.py", Setting(), fit=fit)
    assert one.error is None
    assert told["fits"] == first


@pytest.mark.full
def test_a_loop_of_train_on_batch_is_measured(tmp_path: Path) -> None:
    one, _, _ = tried(tmp_path, "by_batch.py", Setting("mixed_bfloat16"), seconds=60.0)
    assert one.error is None  # its 40 steps are enough, and it ends before
    assert one.took is not None
    assert one.batch == 8
    assert one.examples_per_s == pytest.approx(8 / one.step_ns * 1e9)


UNDER_TRY: dict[str, str | None] = {
    "subclassed.py": None,
    "custom_step.py": None,
    "two_fits.py": None,
    "notebook.py": None,
    "keras2.py": None,
    "devices.py": None,
    "by_batch.py": None,
    "tape.py": "no fit of Keras was called",
    "fails.py": "RuntimeError: no more data",
}
"""Scripts as people write them, and why nothing is measured; those that the tests above use are left out."""


@pytest.mark.full
@pytest.mark.parametrize("name", UNDER_TRY)
def test_each_script_is_measured_or_says_why_not(name: str, tmp_path: Path) -> None:
    setting = Setting("mixed_bfloat16")
    one, _, written = tried(tmp_path, name, setting, steps=30 if name == "fails.py" else 4, seconds=60.0)
    assert one.error == UNDER_TRY[name]
    assert one.counts is (one.error is None)
    assert written == []
