"""`mpprof audit MODEL`: saved models of both Kerases, with classes of their own, and files that are none."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.cli import main
from tests.record.on_tensorflow import keras
from tests.record.processes import done

pytestmark = [
    pytest.mark.framework,
    pytest.mark.usefixtures("looked_at_by_a_fork"),
    # Keras reads its own files with an __array__ that NumPy 2 warns of.
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),
]

layers = keras.layers

CLASSES = """
import keras

class Plain(keras.layers.Layer):
    def __init__(self, units=8, **more):
        super().__init__(**more)
        self.units, self.inner = units, keras.layers.Dense(units, name="inner")

    def call(self, x):
        return self.inner(x)

    def get_config(self):
        return {**super().get_config(), "units": self.units}

@keras.saving.register_keras_serializable("ours")
class Registered(Plain):
    pass

@keras.saving.register_keras_serializable("ours")
class Whole(keras.Model):
    def __init__(self, **more):
        super().__init__(**more)
        self.wide = keras.layers.Dense(100, name="wide")

    def call(self, x):
        return self.wide(x)
"""


def save(folder: Path) -> None:
    sys.path.insert(0, str(folder))
    classes: Any = importlib.import_module("classes")
    keras.config.set_dtype_policy("mixed_float16")
    for name, kind in (("plain", classes.Plain), ("registered", classes.Registered)):
        made = keras.Sequential([keras.Input((8,)), kind(100)])
        made.compile("adam", "mse")
        made.save(folder / f"{name}.keras")
    whole = classes.Whole()
    whole.compile("adam", "mse")
    whole(np.zeros((1, 8)))
    whole.save(folder / "whole.keras")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Saved by another process, so that its classes are not at hand in this one."""
    folder = tmp_path_factory.mktemp("saved")
    (folder / "classes.py").write_text(CLASSES)
    done(folder / "said", save, folder)
    return folder


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    path = list(sys.path)
    yield
    sys.path[:] = path
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize("name", ["plain", "registered", "whole"])
def test_classes_of_its_own_are_named_and_imported(
    saved: Path,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(saved)
    (tmp_path / "classes.py").write_text("")  # installed, with the name of the user's own
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "classes", raising=False)
    keras.saving.get_custom_objects().clear()
    assert main(["audit", f"{name}.keras"]) == 2
    said = capsys.readouterr().err
    assert f"it needs the class {name.capitalize()}, which was not imported" in said
    assert f"mpprof audit {name}.keras --import MODULE" in said
    if name == "plain":
        spaced = shutil.copy(f"{name}.keras", "a model.keras")
        assert main(["audit", spaced]) == 2
        assert "mpprof audit 'a model.keras' --import MODULE" in capsys.readouterr().err
    assert main(["audit", f"{name}.keras", "--import", "classes"]) == 0
    said = capsys.readouterr().out
    assert "policy mixed_float16" in said
    assert "units=100 is not a multiple of 8" in said
    assert "MP102" not in said  # loaded under its own policy, with a loss scale
    keras.saving.get_custom_objects().clear()


def test_a_module_that_cannot_be_imported(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", str(saved / "plain.keras"), "--import", "no_such_module"]) == 2
    assert "no_such_module cannot be imported" in capsys.readouterr().err


def built(of: Any) -> Any:
    made = of.Sequential(
        [of.Input((8,)), of.layers.Dense(100, name="odd"), of.layers.Activation("relu", dtype="float32")]
    )
    made.compile("adam", "mse")
    return made


@pytest.mark.parametrize("name", ["model.h5", "model.keras", "model"])
@pytest.mark.filterwarnings("ignore:You are saving your model as an HDF5 file")
def test_a_model_of_keras_2(tmp_path: Path, name: str) -> None:
    tf_keras = pytest.importorskip("tf_keras", reason="tf_keras is not installed")
    tf_keras.mixed_precision.set_global_policy("mixed_float16")
    try:
        built(tf_keras).save(tmp_path / name)
    finally:
        tf_keras.mixed_precision.set_global_policy("float32")
    report = mpprof.audit(tmp_path / name, trust=name == "model")
    assert report.policy == "mixed_float16"
    assert [(n.code, n.layer) for n in report.notes] == [("MP401", "odd")]
    assert tf_keras.mixed_precision.global_policy().name == "float32"


def test_an_hdf5_file_whose_loss_keras_3_cannot_load(tmp_path: Path) -> None:
    keras.config.set_dtype_policy("mixed_float16")
    try:
        built(keras).save(tmp_path / "model.h5")
    finally:
        keras.config.set_dtype_policy("float32")
    report = mpprof.audit(tmp_path / "model.h5")
    assert report.policy == "mixed_float16"
    assert ("MP401", "odd") in [(n.code, n.layer) for n in report.notes]


def cut_off(folder: Path) -> Path:
    whole, part = folder / "whole.keras", folder / "part.keras"
    built(keras).save(whole)
    part.write_bytes(whole.read_bytes()[:2000])
    return part


def text(folder: Path) -> Path:
    (folder / "text.h5").write_text("no model")
    return folder / "text.h5"


def weights(folder: Path) -> Path:
    built(keras).save_weights(folder / "only.weights.h5")
    return folder / "only.weights.h5"


def code(folder: Path) -> Path:
    made = keras.Sequential([keras.Input((8,)), layers.Lambda(lambda x: x * 2), layers.Dense(8)])
    made.save(folder / "lambda.keras")
    return folder / "lambda.keras"


@pytest.mark.filterwarnings("ignore:The object being serialized includes a `lambda`")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (cut_off, "or the file is cut off"),
        (text, "not a whole model as .keras or .h5"),
        (weights, "weights alone, without the model"),
        (code, "a Lambda layer, whose code is not run from a file"),
        (lambda folder: folder, "a directory without a model in it"),
        (lambda folder: folder / "none.keras", "no such file"),
    ],
)
def test_files_that_cannot_be_audited_get_one_clear_line(
    tmp_path: Path, make: Callable[[Path], Path], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = make(tmp_path)
    capsys.readouterr()
    assert main(["audit", str(file)]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert words in line
    assert str(file) in line
