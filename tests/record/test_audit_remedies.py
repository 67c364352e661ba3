"""Every remedy that the audit gives is executed on the model it was given for, and what was found is gone."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

import mpprof
from mpprof.model.audit import AuditNote
from tests.record.on_tensorflow import keras, tf

pytestmark = pytest.mark.framework

layers = keras.layers
Parts = Sequence[Callable[[], Any]]


class CastsWithin(keras.layers.Layer):  # type: ignore[misc]
    def call(self, x: Any) -> Any:
        return keras.ops.cast(x, "float32")


class ComputesAsItShould(keras.layers.Layer):  # type: ignore[misc]
    """The remedy for the layer above, written into its `call`."""

    remedy = ""

    def call(self, x: Any) -> Any:
        namespace = {"keras": keras, "x": x, "self": self}
        exec(self.remedy, namespace)
        return namespace["x"]


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    yield
    keras.config.set_dtype_policy("float32")


def assembled(parts: Parts, policy: str, at: str | None = None, code: str = "") -> Any:
    """A model of `parts`, compiled. The layer called `at` is replaced, preceded or followed by what `code`
    makes: a layer in its place, a tensor `x` or `images` for it, or the model's `outputs`."""
    keras.config.set_dtype_policy(policy)
    inputs = tensor = None
    for part in parts:
        made = part()
        if tensor is None:
            inputs = tensor = made
        elif made.name == at:
            tensor = _changed(made, tensor, code)
        else:
            tensor = made(tensor)
    model = keras.Model(inputs, tensor)
    model.compile("adam", "mse")
    return model


def _changed(layer: Any, tensor: Any, code: str) -> Any:
    names = {"keras": keras, "x": tensor, "images": tensor}
    body = ast.parse(code).body
    if len(body) == 1 and isinstance(body[0], ast.Expr):
        return eval(code, names)(tensor)
    exec(code, names)
    if "outputs" in names:
        return names["outputs"]
    return layer(names["x"] if names["x"] is not tensor else names["images"])


def noted(model: Any, code: str, layer: str | None = None, **more: Any) -> list[AuditNote]:
    return [n for n in mpprof.audit(model, **more).notes if (n.code, n.layer) == (code, layer)]


def end() -> Any:
    return layers.Activation("relu", dtype="float32")


def image(channels: int = 8) -> Callable[[], Any]:
    return lambda: keras.Input((16, 16, channels))


def series() -> Any:
    return keras.Input((4, 8))


def vector(size: int = 8) -> Callable[[], Any]:
    return lambda: keras.Input((size,))


@pytest.mark.parametrize(
    ("code", "layer", "parts", "more"),
    [
        ("MP401", "odd", (vector(), lambda: layers.Dense(100, activation="relu", kernel_initializer="he_normal", name="odd"), end), {}),
        ("MP401", "odd", (vector(), lambda: layers.Dense(300, name="odd"), end), {"gpu": "A100"}),
        ("MP401", "even", (vector(), lambda: layers.Dense(1000, use_bias=False, name="even"), end), {"gpu": "A100"}),
        ("MP401", "conv", (image(), lambda: layers.Conv2D(12, (3, 1), padding="same", name="conv"), end), {}),
        ("MP401", "wide", (vector(30), lambda: layers.Dense(64, name="wide"), end), {}),
        ("MP401", "rnn", (lambda: keras.Input((4, 30)), lambda: layers.LSTM(64, name="rnn"), end), {}),
        ("MP402", "words", (vector(), lambda: layers.Dense(33708, name="words"), end), {}),
        ("MP403", "stem", (image(3), lambda: layers.Conv2D(8, 3, strides=2, name="stem"), end), {}),
        ("MP403", "stem", (image(3), lambda: layers.Conv2D(8, 3, name="stem"), end), {}),
        ("MP403", "stem", (lambda: keras.Input((16, 3)), lambda: layers.Conv1D(8, 3, name="stem"), end), {}),
        ("MP406", "deep", (image(), lambda: layers.DepthwiseConv2D(3, name="deep"), lambda: layers.Conv2D(8, 1), end), {}),
        ("MP407", "groups", (image(), lambda: layers.Conv2D(16, 3, groups=4, name="groups"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.LSTM(16, recurrent_dropout=0.1, return_sequences=True, name="rnn"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.LSTM(16, activation="relu", name="rnn"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.LSTM(16, recurrent_activation="hard_sigmoid", name="rnn"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.LSTM(16, use_bias=False, name="rnn"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.LSTM(16, unroll=True, name="rnn"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.GRU(16, reset_after=False, name="rnn"), end), {}),
        ("MP410", "rnn", (series, lambda: layers.RNN(layers.LSTMCell(16), return_sequences=True, name="rnn"), end), {}),
        ("MP309", "rnn", (series, lambda: layers.LSTM(16, name="rnn"), end), {}),
        ("MP104", "island", (vector(), lambda: layers.Dense(16, dtype="float32", name="island"), lambda: layers.Dense(16), end), {}),
        ("MP106", "last", (vector(), lambda: layers.Dense(16, activation="softmax", kernel_regularizer=keras.regularizers.L2(1e-3), name="last")), {}),
        ("MP106", "last", (vector(), lambda: layers.Dense(16, name="last")), {}),
        ("MP106", "last", (vector(), lambda: layers.Dense(16), lambda: layers.Softmax(axis=1, name="last")), {}),
    ],
)  # fmt: skip
def test_a_layers_remedy_removes_what_was_found(
    code: str, layer: str, parts: Parts, more: dict[str, Any]
) -> None:
    model = assembled(parts, "mixed_float16")
    (note,) = noted(model, code, layer, **more)
    better = assembled(parts, "mixed_float16", layer, note.remedy)
    assert noted(better, code, layer, **more) == []
    before, after = mpprof.audit(model, **more), mpprof.audit(better, **more)
    assert {n.code for n in after.notes} <= {n.code for n in before.notes} | {"MP309"}  # nothing worse comes
    kept = [one.name for one in model.layers if not isinstance(one, layers.InputLayer)]
    assert [name for name in kept if name != layer] <= [one.name for one in better.layers]


def test_an_island_among_layers_with_policies_of_their_own() -> None:
    parts = (
        vector(), lambda: layers.Dense(16, dtype="mixed_float16"),
        lambda: layers.Dense(16, dtype="float32", name="island"),
        lambda: layers.Dense(16, dtype="mixed_float16"), end,
    )  # fmt: skip
    (note,) = noted(assembled(parts, "float32"), "MP104", "island")
    assert "dtype='mixed_float16'" in note.remedy
    assert noted(assembled(parts, "float32", "island", note.remedy), "MP104", "island") == []


def test_a_layer_that_casts_within() -> None:
    parts = (vector(), lambda: CastsWithin(name="casts"), lambda: layers.Dense(16), end)
    (note,) = noted(assembled(parts, "mixed_float16"), "MP104", "casts")
    ComputesAsItShould.remedy = note.remedy
    better = (parts[0], lambda: ComputesAsItShould(name="casts"), *parts[2:])
    assert noted(assembled(better, "mixed_float16"), "MP104", "casts") == []


def test_the_batch_size() -> None:
    model = assembled((vector(), lambda: layers.Dense(16), end), "mixed_float16")
    (note,) = noted(model, "MP401", batch_size=30)
    names: dict[str, Any] = {}
    exec(note.remedy, names)
    assert noted(model, "MP401", batch_size=names["batch_size"]) == []


def run_on(model: Any, code: str, **names: Any) -> Any:
    namespace = {"keras": keras, "model": model, **names}
    exec(code, namespace)
    return namespace["model"]


def test_missing_loss_scaling() -> None:
    parts = (vector(), lambda: layers.Dense(16, dtype="mixed_float16"), end)
    model = assembled(parts, "float32")
    (note,) = noted(model, "MP102")
    better = run_on(model, note.remedy)
    assert noted(better, "MP102") == []
    assert type(better.optimizer.inner_optimizer) is type(keras.optimizers.Adam())


def test_a_model_built_before_the_policy() -> None:
    parts = (vector(), lambda: layers.Dense(16), end)
    model = assembled(parts, "float32")
    keras.config.set_dtype_policy("mixed_float16")
    (note,) = noted(model, "MP101")
    better = run_on(
        model, note.remedy, build_model=lambda: assembled(parts, keras.config.dtype_policy().name)
    )
    assert noted(better, "MP101") == []


def test_layers_that_were_given_float32_are_not_said_to_be_built_too_early() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential([keras.Input((16,)), layers.Dense(16, "relu", dtype="float32")])
    model.compile("adam", "mse")
    (note,) = noted(model, "MP101")
    assert note.remedy.startswith('drop dtype="float32"')
    loaded = keras.Sequential.from_config(model.get_config())  # whose types nobody has named here
    loaded.compile("adam", "mse")
    (note,) = noted(loaded, "MP101")
    assert "set_dtype_policy" in note.remedy


def test_a_layer_that_xla_cannot_compile_moves_into_the_data() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    moves = layers.RandomTranslation(0.1, 0.1, name="moves")
    model = keras.Sequential([image()(), moves, layers.Flatten(), layers.Dense(16), end()])
    model.compile("adam", "mse")
    (note,) = noted(model, "MP309", "moves")
    better = run_on(model, note.remedy)
    assert noted(better, "MP309", "moves") == []
    assert "moves" not in [layer.name for layer in better.layers]


def clips(self: Any, data: Any) -> Any:
    gradients = keras.ops.clip(data[0], -1.0, 1.0)
    return {"loss": tf.clip_by_global_norm([gradients], 1.0)[1]}


def test_clipping_moves_to_the_inner_optimizer() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = type("Clips", (keras.Sequential,), {"train_step": clips})([vector()(), layers.Dense(16), end()])
    model.compile("adam", "mse")
    (note,) = noted(model, "MP506")
    better = run_on(model, note.remedy)
    assert better.optimizer.inner_optimizer.global_clipnorm == 1.0
    assert noted(better, "MP506") == []


def test_all_of_several_outputs_are_named() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    inputs = keras.Input((8,))
    heads = [
        layers.Dense(8, activation="softmax", name="one")(inputs),
        layers.Dense(8, name="two", dtype="float32")(inputs),
        layers.Dense(8, name="three")(inputs),
    ]
    model = keras.Model(inputs, heads)
    model.compile("adam", "mse")
    report = mpprof.audit(model)
    assert [n.layer for n in report.notes if n.code == "MP106"] == ["one", "three"]
    assert [n for n in report.notes if n.code == "MP104"] == []  # an output in float32 is as it should be


class OfItsOwn(keras.Model):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.last = layers.Dense(100, name="wide"), layers.Dense(8, name="last")

    def call(self, x: Any) -> Any:
        return self.last(self.wide(x))


def test_a_model_of_a_class_of_its_own_states_no_outputs() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = OfItsOwn()
    model.compile("adam", "mse")
    report = mpprof.audit(model)
    (unable,) = [one for one in report.unable if one.code == "MP106"]
    assert 'keras.ops.cast(outputs, "float32")' in unable.reason
    (odd,) = noted(model, "MP401", "wide")
    assert odd.remedy.startswith("keras.layers.Dense(units=104, name='wide')")


def test_a_masked_recurrent_layer_wants_right_padding() -> None:
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((5,)),
            layers.Embedding(64, 8, mask_zero=True),
            layers.LSTM(16, name="masked"),
            layers.Dense(8),
            end(),
        ]
    )
    model.compile("adam", "mse")
    (note,) = noted(model, "MP410", "masked")
    assert note.severity == "info"
    names: dict[str, Any] = {"keras": keras, "sequences": [[1, 2], [3]]}
    exec(note.remedy, names)
    assert names["x"].tolist() == [[1, 2], [3, 0]]


@pytest.mark.parametrize(("kind", "package", "said"), [
    ("MultiWorkerMirroredStrategy", None, True),
    ("MultiWorkerMirroredStrategy", "tf_keras", False),
    ("MirroredStrategy", None, False),
])  # fmt: skip
def test_several_workers_want_keras_2(kind: str, package: str | None, said: bool) -> None:
    from dataclasses import replace

    from mpprof.api.auditing import audit_run
    from mpprof.record.facts.untrained import run_of

    run = run_of(assembled((vector(), lambda: layers.Dense(16), end), "mixed_float16"))
    framework = {**run.facts.framework, **({"keras_package": package} if package else {})}
    report = audit_run(replace(run, facts=replace(run.facts, distribution=kind, framework=framework)))
    assert ("train with tf_keras" in str(report)) is said


def test_under_a_strategy_xla_has_to_be_asked_for() -> None:
    with tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        model = assembled((vector(), lambda: layers.Dense(16), end), "mixed_float16")
    (note,) = noted(model, "MP309")
    assert noted(run_on(model, note.remedy), "MP309") == []
