"""`mpprof.audit`: what is said of a model before it trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.api.auditing import announce
from mpprof.cli import main
from mpprof.errors import MpprofError
from mpprof.model.audit import AuditReport
from mpprof.record import StepRecorder
from tests.record.on_tensorflow import keras
from tests.record.test_audit_remedies import CastsWithin
from tests.record.training import callback

pytestmark = pytest.mark.framework


class ClipsByItself(keras.Sequential):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any:
        import tensorflow as tf

        with tf.GradientTape() as tape:
            loss = self.optimizer.scale_loss(self.compute_loss(data[0], data[1], self(data[0])))
        gradients = tape.gradient(loss, self.trainable_variables)
        self.optimizer.apply([tf.clip_by_norm(g, 1.0) for g in gradients], self.trainable_variables)
        return {}


def built(*layers: Any, policy: str = "mixed_float16", kind: Any = None, **compiling: Any) -> Any:
    """`layers` are functions, so that they are made under the policy."""
    keras.config.set_dtype_policy(policy)
    try:
        made = (kind or keras.Sequential)([layer() for layer in layers])
        made.compile(**{"optimizer": "adam", "loss": "mse", **compiling})
    finally:
        keras.config.set_dtype_policy("float32")
    return made


def said(report: AuditReport, code: str) -> dict[str | None, str]:
    return {note.layer: f"{note.reason}\n{note.remedy}" for note in report.notes if note.code == code}


layers = keras.layers
GOOD = (
    lambda: keras.Input((32, 32, 8)),
    lambda: layers.Conv2D(64, 3, name="stem"),
    lambda: layers.GlobalAveragePooling2D(),
    lambda: layers.Dense(128, name="wide"),
    lambda: layers.Activation("softmax", dtype="float32"),
)


def test_a_model_as_it_should_be_has_nothing_to_be_said_of() -> None:
    report = mpprof.audit(built(*GOOD), batch_size=32, gpu="A100")
    assert report.notes == ()
    assert report.policy == "mixed_float16"
    assert "MP104" in report.clear
    assert "Nothing was found" in str(report)
    assert announce(built(*GOOD), 32) == []


@pytest.mark.parametrize(
    ("code", "layer", "wanted", "model", "more"),
    [
        ("MP401", "odd", "units=100 is not a multiple of 8", (lambda: keras.Input((8,)), lambda: layers.Dense(100, name="odd"), lambda: layers.Dense(8, dtype="float32")), {}),
        ("MP401", "odd", "Dense(units=320", (lambda: keras.Input((8,)), lambda: layers.Dense(300, name="odd"), lambda: layers.Dense(8, dtype="float32")), {"gpu": "A100"}),
        ("MP401", "odd", "Dense(units=304", (lambda: keras.Input((8,)), lambda: layers.Dense(300, name="odd"), lambda: layers.Dense(8, dtype="float32")), {"gpu": "V100"}),
        ("MP401", "even", "best with 64", (lambda: keras.Input((8,)), lambda: layers.Dense(1000, name="even"), lambda: layers.Dense(8, dtype="float32")), {"gpu": "8.0"}),
        ("MP401", None, "batch_size = 32", GOOD, {"batch_size": 30}),
        ("MP401", "wide", "reads 30 features", (lambda: keras.Input((30,)), lambda: layers.Dense(64, name="wide"), lambda: layers.Dense(8, dtype="float32")), {}),
        ("MP402", "words", "Dense(units=33728", (lambda: keras.Input((8,)), lambda: layers.Dense(33708, name="words"), lambda: layers.Activation("softmax", dtype="float32")), {}),
        ("MP403", "stem", "[0, 1]", (lambda: keras.Input((32, 32, 3)), lambda: layers.Conv2D(8, 3, strides=2, name="stem"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP403", "stem", "[0, 5]", (lambda: keras.Input((32, 32, 3)), lambda: layers.Conv2D(8, 3, name="stem"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP406", "deep", "dtype='float32'", (lambda: keras.Input((32, 32, 8)), lambda: layers.DepthwiseConv2D(3, name="deep"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP407", "groups", "4 filters each", (lambda: keras.Input((32, 32, 8)), lambda: layers.Conv2D(16, 3, groups=4, name="groups"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP410", "rnn", "recurrent_dropout=0.1", (lambda: keras.Input((4, 8)), lambda: layers.LSTM(16, recurrent_dropout=0.1, name="rnn"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP410", "rnn", "activation='relu'", (lambda: keras.Input((4, 8)), lambda: layers.GRU(16, activation="relu", name="rnn"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP309", "moves", "outside = model.get_layer", (lambda: keras.Input((8, 8, 3)), lambda: layers.RandomTranslation(0.1, 0.1, name="moves"), lambda: layers.Flatten(), lambda: layers.Dense(16), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP309", "lstm", "use_cudnn=False", (lambda: keras.Input((4, 8)), lambda: layers.LSTM(16, name="lstm"), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP104", "island", "by its own policy", (lambda: keras.Input((8,)), lambda: layers.Dense(16, dtype="float32", name="island"), lambda: layers.Dense(16), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP104", "casts", "casts inside", (lambda: keras.Input((8,)), lambda: CastsWithin(name="casts"), lambda: layers.Dense(16), lambda: layers.Activation("relu", dtype="float32")), {}),
        ("MP106", "end", 'dtype="float32"', (lambda: keras.Input((8,)), lambda: layers.Dense(16, activation="softmax", name="end")), {}),
    ],
)  # fmt: skip
def test_what_is_named_with_layer_reason_and_remedy(
    code: str, layer: str | None, wanted: str, model: Any, more: dict[str, Any]
) -> None:
    report = mpprof.audit(built(*model), **more)
    found = said(report, code)
    assert wanted in found[layer], found
    assert wanted in str(report)


def test_an_odd_vocabulary_is_told_before_the_first_step() -> None:
    """Without a trace it is only possible; after the training it is too late to pad it."""
    keras.config.set_dtype_policy("mixed_bfloat16")
    made = keras.Sequential([keras.Input((16,)), keras.layers.Dense(8201, name="words")])
    keras.config.set_dtype_policy("float32")
    made.compile("adam", "mse")
    assert any("MP402" in line and "words" in line for line in announce(made, 32))


def test_layers_in_float16_without_loss_scaling() -> None:
    model = built(
        lambda: keras.Input((8,)), lambda: layers.Dense(16, dtype="mixed_float16"), policy="float32"
    )
    assert "LossScaleOptimizer(model.optimizer)" in said(mpprof.audit(model), "MP102")[None]


def test_a_model_that_was_built_before_the_policy_was_set() -> None:
    model = built(lambda: keras.Input((8,)), lambda: layers.Dense(16), policy="float32")
    keras.config.set_dtype_policy("mixed_float16")
    try:
        report = mpprof.audit(model)
    finally:
        keras.config.set_dtype_policy("float32")
    assert report.notes[0].code == "MP101"
    assert report.notes[0].severity == "error"
    assert report.policy == "float32"


def test_clipping_of_scaled_gradients() -> None:
    model = built(*GOOD, kind=ClipsByItself)
    assert "scaled" in said(mpprof.audit(model), "MP506")[None]


def test_a_float32_model_is_judged_as_it_would_be() -> None:
    report = mpprof.audit(
        built(lambda: keras.Input((8,)), lambda: layers.Dense(100, name="odd"), policy="float32")
    )
    assert "odd" in said(report, "MP401")
    assert "computes in float32 as it is" in str(report)


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_the_command_reads_a_saved_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "model.keras"
    built(*GOOD).save(path)
    assert main(["audit", str(path), "--batch-size", "30"]) == 0
    assert "batch_size = 32" in capsys.readouterr().out
    assert main(["audit", str(path), "--batch-size", "30", "--gpu", "A100", "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "mpprof.audit/1"
    assert [note["code"] for note in document["notes"]] == ["MP401"]
    (tmp_path / "bad.keras").write_bytes(b"no model")
    for bad in (["bad.keras"], ["none.keras"], ["model.keras", "--gpu", "no such card"]):
        assert main(["audit", str(tmp_path / bad[0]), *bad[1:]]) == 2


def test_the_command_takes_a_function_and_the_log_directory_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "made_here.py").write_text(
        "import keras\n"
        "def odd():\n"
        "    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(300, name='odd')])\n"
        "def broken():\n"
        "    raise ValueError('no data')\n"
    )
    monkeypatch.chdir(tmp_path)
    assert main(["audit", "made_here:odd", "--gpu", "A100", "--format", "json"]) == 0
    by_function = json.loads(capsys.readouterr().out)
    assert [(note["code"], note["layer"]) for note in by_function["notes"]] == [("MP401", "odd")]
    for wrong in ("made_here:broken", "made_here:none", "no_such_module:odd"):
        assert main(["audit", wrong]) == 2
        assert "returns a Keras model" in capsys.readouterr().err
    model = built(lambda: keras.Input((8,)), lambda: layers.Dense(300, name="odd"))
    model.fit(np.zeros((8, 8)), np.zeros((8, 300)), verbose=0, callbacks=[callback(tmp_path / "run")])
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "run"), "--gpu", "A100", "--format", "json"]) == 0
    recorded = json.loads(capsys.readouterr().out)
    assert "MP401" in [note["code"] for note in recorded["notes"] if note["layer"] == "odd"]


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_a_quantised_model_is_read_from_its_file(tmp_path: Path) -> None:
    """Its layers hold a configuration of the quantisation, a class of Keras' own that is no layer."""
    made = built(lambda: keras.Input((64,)), lambda: layers.Dense(64, name="a"), policy="mixed_bfloat16")
    made.layers[0].quantize("float8")
    path = tmp_path / "model.keras"
    made.save(path)
    report = mpprof.audit(path, gpu="H100")
    assert report.policy == "mixed_bfloat16"
    assert [(one.layer, one.precision) for one in report.work] == [("a", "fp8")]


def test_what_is_no_model_is_refused() -> None:
    with pytest.raises(MpprofError, match="is not a Keras model"):
        mpprof.audit(3)


def test_the_callback_says_it_once_and_can_be_silenced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x = np.zeros((16, 8), "float32")
    model = built(lambda: keras.Input((8,)), lambda: layers.Dense(300, name="odd"))
    recorded = callback(tmp_path / "a", verbose=1, audit=True)
    for _ in range(2):
        model.fit(x, np.zeros((16, 300)), batch_size=8, verbose=0, callbacks=[recorded])
    out = capsys.readouterr().out
    assert out.count("mpprof audit, before the first step") == 1
    assert "MP401 Sizes that are not multiples of 8: odd" in out
    silent = callback(tmp_path / "b", verbose=1, audit=False)
    model.fit(x, np.zeros((16, 300)), batch_size=8, verbose=0, callbacks=[silent])
    assert "audit" not in capsys.readouterr().out


def test_layers_beyond_those_described_are_not_passed_over_in_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpprof.record.facts.layers.MOST_LAYERS", 2)
    dense = keras.layers.Dense
    made = keras.Sequential([keras.Input((8,)), dense(8), dense(8), dense(8)])  # and an InputLayer
    report = mpprof.audit(made)
    assert report.layers == 2
    assert report.warnings == ("not judged: 2 of 4 layers are not described",)
    assert "2 of 4 layers" in str(report)
    recorder = StepRecorder(tmp_path, model=made, hardware=False, profile_steps=None, verbose=0)
    with recorder, recorder.step():
        pass
    told = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert told["model"]["layers_left_out"] == 2
    assert told["absent"]["model.layers"] == "2 of 4 layers are not described"


def test_no_name_of_a_layer_moves_the_cursor() -> None:
    """What the callback prints before the first step: Keras takes any text without a slash as a name."""
    made = built(lambda: keras.Input((8,)), lambda: layers.Dense(300, name="a\x1b[2Jb\x00\x07\u202e"))
    said = "\n".join(announce(made, 32))
    assert said.replace("\n", "").isprintable()
    assert "a\\x1b[2Jb\\x00\\x07\\u202e" in said
