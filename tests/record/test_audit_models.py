"""What `mpprof.audit` says of models as they are built: heads, attention, wrappers, classes of one's own, and
of well-known ones, and that it says nothing else. Every remedy is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.api.auditing import announce
from mpprof.cli import main
from tests.record.on_tensorflow import keras
from tests.record.test_audit_remedies import assembled, end, image, noted, series, vector
from tests.record.training import callback

tf_keras = pytest.importorskip("tf_keras", reason="tf_keras is not installed")
pytestmark = pytest.mark.framework

layers = keras.layers
BOTH = pytest.mark.parametrize("of", [keras, tf_keras], ids=["keras", "tf_keras"])


class OwnLSTM(layers.LSTM):  # type: ignore[misc]
    pass


class OwnGRU(layers.GRU):  # type: ignore[misc]
    pass


class OwnOfKeras2(tf_keras.layers.LSTM):  # type: ignore[misc]
    pass


@pytest.fixture(autouse=True)
def _policy() -> Iterator[None]:
    yield
    set_policy(keras, "float32")
    set_policy(tf_keras, "float32")


def set_policy(of: Any, name: str) -> None:
    if of is tf_keras:
        of.mixed_precision.set_global_policy(name)
    else:
        of.config.set_dtype_policy(name)


def sequential(of: Any, *made: Any, policy: str = "mixed_float16") -> Any:
    """`made` are functions of the layers' module, so that the layers are made under the policy."""
    set_policy(of, policy)
    model = of.Sequential([one(of.layers) for one in made])
    model.compile("adam", "mse")
    return model


def codes(model: Any, **more: Any) -> set[tuple[str, str | None, str]]:
    return {(n.code, n.layer, n.severity) for n in mpprof.audit(model, **more).notes}


def written_out(code: str, tensor: Any, **names: Any) -> Any:
    """The outputs of a remedy that takes `x`, or of the one layer that it writes."""
    names = {"keras": keras, "tf_keras": tf_keras, "x": tensor, **names}
    body = ast.parse(code).body
    if len(body) == 1 and isinstance(body[0], ast.Expr):
        return eval(code, names)(tensor)
    exec(code, names)
    return names["outputs"]


# --- the head ----------------------------------------------------------------------------------------------


def language_model(of: Any, vocabulary: int, **head: Any) -> Any:
    return sequential(
        of,
        lambda k: of.Input((16,), dtype="int32"),
        lambda k: k.Embedding(vocabulary, 64),
        lambda k: k.LSTM(64, return_sequences=True),
        lambda k: k.Dense(vocabulary, name="head", **head),
    )


@BOTH
@pytest.mark.parametrize("activation", ["softmax", None])
def test_a_large_head_in_float32_is_found_with_what_it_costs_and_what_to_write(
    of: Any, activation: str | None
) -> None:
    model = language_model(of, 50257, dtype="float32", activation=activation)
    (note,) = noted(model, "MP104", "head", gpu="A100")
    assert note.severity == "warning"
    assert "50,257 outputs, 99.0 % of the model's multiplications" in note.reason
    assert "2 times slower at peak rates (TF32): 99.0 % more matrix time" in note.reason
    assert "8 times slower at peak rates (float32)" in noted(model, "MP104", "head", gpu="V100")[0].reason
    assert "8 times slower at peak rates (float32)" in noted(model, "MP104", "head", gpu="MI300X")[0].reason
    assert "a TPU multiplies in bfloat16" in noted(model, "MP104", "head", gpu="TPU v4")[0].reason
    assert "at most half the 16-bit rate (TF32)" in noted(model, "MP104", "head")[0].reason
    assert [n.layer for n in mpprof.audit(model).notes if n.code == "MP402"] == ["head"]

    for code, left in (("MP104", {"MP402"}), ("MP402", set())):
        (note,) = noted(model, code, "head")
        inputs = of.Input((16,), dtype="int32")
        hidden = inputs
        for layer in model.layers:
            if layer.name != "head" and not isinstance(layer, of.layers.InputLayer):
                hidden = layer(hidden)
        better = of.Model(inputs, written_out(note.remedy, hidden))
        better.compile("adam", "mse")
        assert {n.code for n in mpprof.audit(better).notes} & {"MP104", "MP106", "MP402"} == left
        head, last = better.layers[-2:]
        assert head.compute_dtype == "float16"  # the product
        assert last.compute_dtype == last.output.dtype == "float32"
        assert head.get_config()["activation"] == "linear"
        assert last.get_config()["activation"] == (activation or "linear")


@pytest.mark.parametrize("classes", [1, 2, 10, 1000])
def test_a_small_head_in_float32_is_as_it_should_be(classes: int) -> None:
    parts = (
        image(8), lambda: layers.Conv2D(64, 3), layers.GlobalAveragePooling2D,
        lambda: layers.Dense(classes, activation="softmax", dtype="float32"),
    )  # fmt: skip
    assert mpprof.audit(assembled(parts, "mixed_float16"), batch_size=32, gpu="A100").notes == ()


def test_a_wide_head_that_is_little_of_the_work_is_no_island() -> None:
    parts = (
        lambda: keras.Input((64, 64, 64)), lambda: layers.Conv2D(256, 3), layers.GlobalAveragePooling2D,
        lambda: layers.Dense(2048, activation="softmax", dtype="float32"),
    )  # fmt: skip
    assert noted(assembled(parts, "mixed_float16"), "MP104", "dense") == []
    assert mpprof.audit(assembled(parts, "mixed_float16")).notes == ()


def test_of_two_outputs_the_large_one_is_found() -> None:
    set_policy(keras, "mixed_float16")
    inputs = keras.Input((64,))
    hidden = layers.Dense(64)(inputs)
    heads = [
        layers.Dense(33000, dtype="float32", activation="softmax", name="large")(hidden),
        layers.Dense(8, dtype="float32", name="small")(hidden),
    ]
    model = keras.Model(inputs, heads)
    model.compile("adam", "mse")
    (note,) = [n for n in mpprof.audit(model).notes if n.code == "MP104"]
    assert note.layer == "large"
    assert "Activation('softmax', dtype=\"float32\")" in note.remedy


class OfItsOwn(keras.Model):  # type: ignore[misc]
    def __init__(self, words: int, *, convolves: bool) -> None:
        super().__init__()
        self.first = layers.Conv2D(64, 3) if convolves else layers.Dense(64)
        self.pool = layers.GlobalAveragePooling2D()
        self.head = layers.Dense(words, dtype="float32", name="head")

    def call(self, x: Any) -> Any:
        return self.head(self.pool(self.first(x)))


@pytest.mark.parametrize(
    ("words", "convolves", "built", "found"),
    [(50264, False, False, True), (4096, False, False, False), (50264, True, False, False), (50264, True, True, True)],
)  # fmt: skip
def test_without_shapes_a_head_is_found_where_it_is_a_vocabulary(
    words: int, convolves: bool, built: bool, found: bool
) -> None:
    """Of convolutions without shapes it is not known how much more than the head they compute; once a model is built,
    its `call` on symbolic inputs states them."""
    set_policy(keras, "mixed_float16")
    model = OfItsOwn(words, convolves=convolves)
    if built:
        model(np.zeros((1, 8, 8, 8), "float32"))
    model.compile("adam", "mse")
    assert bool(noted(model, "MP104", "head")) is found


def test_the_remedy_for_a_16_bit_output_leads_to_no_float32_product(
    capsys: pytest.CaptureFixture[str],
) -> None:
    parts = (
        vector(),
        lambda: layers.Dense(64),
        lambda: layers.Dense(50264, activation="softmax", name="last"),
    )
    (note,) = noted(assembled(parts, "mixed_float16"), "MP106", "last")
    better = assembled(parts, "mixed_float16", "last", note.remedy)
    assert {n.code for n in mpprof.audit(better).notes} & {"MP104", "MP106"} == set()
    assert main(["explain", "MP106"]) == 0
    first = capsys.readouterr().out.partition("What to do")[2].partition("\n\n        ")
    assert "leave the last product in 16 bits" in first[0]
    code, own = (
        ast.parse(lines[k]) for lines, k in ((first[2].splitlines(), 0), (note.remedy.splitlines(), -1))
    )
    assert ast.dump(code) == ast.dump(own)


@pytest.mark.parametrize(("vocabulary", "names"), [(50257, ["tied"]), (50304, [])])
def test_a_tied_embedding_multiplies_by_its_whole_vocabulary(vocabulary: int, names: list[str]) -> None:
    set_policy(keras, "mixed_float16")
    tied = layers.ReversibleEmbedding(vocabulary, 64, name="tied")
    inputs = keras.Input((16,), dtype="int32")
    logits = tied(layers.Dense(64)(tied(inputs)), reverse=True)
    model = keras.Model(inputs, layers.Activation("linear", dtype="float32")(logits))
    model.compile("adam", "mse")
    notes = [n for n in mpprof.audit(model).notes if n.code == "MP402"]
    assert [n.layer for n in notes] == names
    for note in notes:
        assert eval(note.remedy, {"keras": keras}).input_dim == 50304


# --- sizes of attention and EinsumDense --------------------------------------------------------------------


def attention(of: Any, layer: Callable[[Any], Any]) -> Any:
    set_policy(of, "mixed_float16")
    inputs = of.Input((8, 16))
    made = layer(of.layers)
    hidden = made(inputs) if "Einsum" in type(made).__name__ else made(inputs, inputs)
    model = of.Model(inputs, of.layers.Activation("linear", dtype="float32")(hidden))
    model.compile("adam", "mse")
    return model


@pytest.mark.parametrize(
    ("of", "make", "reason"),
    [
        (keras, lambda k: k.MultiHeadAttention(3, 5, name="one"), "key_dim=5 is not a multiple of 8: every head"),
        (tf_keras, lambda k: k.MultiHeadAttention(3, 5, name="one"), "key_dim=5 is not a multiple of 8: every head"),
        (keras, lambda k: k.MultiHeadAttention(2, 8, value_dim=6, name="one"), "value_dim=6 is not a multiple of 8"),
        (keras, lambda k: k.MultiHeadAttention(2, 5, value_dim=6, name="one"), "key_dim=5, value_dim=6 is no"),
        (keras, lambda k: k.GroupQueryAttention(12, 4, 2, name="one"), "head_dim=12 is not a multiple of 8"),
        (keras, lambda k: k.EinsumDense("abc,cd->abd", (None, 37), name="one"), "output_shape with 37 features"),
        (tf_keras, lambda k: k.EinsumDense("...x,xy->...y", 37, name="one"), "output_shape with 37 features"),
        (keras, lambda k: k.EinsumDense("abc,cde->abde", (None, 3, 5), name="one"), "output_shape with 15 features"),
    ],
)  # fmt: skip
def test_heads_and_projections_of_odd_size(of: Any, make: Any, reason: str) -> None:
    model = attention(of, make)
    (note,) = noted(model, "MP401", "one")
    assert reason in note.reason
    better = attention(of, lambda k: eval(note.remedy, {of.__name__: of}))
    assert mpprof.audit(better).notes == ()


@pytest.mark.parametrize(
    "make",
    [
        lambda k: k.MultiHeadAttention(3, 40),
        lambda k: k.MultiHeadAttention(12, 64, dropout=0.1),
        lambda k: k.GroupQueryAttention(32, 6, 3),
        lambda k: k.EinsumDense("abc,cde->abde", (None, 4, 2)),
        lambda k: k.EinsumDense("abc,cd->abd", (None, 64), bias_axes="d"),
    ],
)
def test_heads_and_projections_as_they_should_be(make: Any) -> None:
    report = mpprof.audit(attention(keras, make), batch_size=3, gpu="V100")  # of 8 positions each
    assert [(n.about, n.severity) for n in report.notes] == [("batch size 3", "info")]


# --- convolutions ------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize("dimensions", [1, 2])
def test_the_depthwise_part_of_a_separable_convolution(of: Any, dimensions: int) -> None:
    shape = (16, 16, 8)[-dimensions - 1 :]
    model = sequential(
        of,
        lambda k: of.Input(shape),
        lambda k: getattr(k, f"SeparableConv{dimensions}D")(
            16, 3, strides=2, padding="same", depth_multiplier=2, activation="relu", use_bias=False,
            pointwise_initializer="he_normal", name="both",
        ),
        lambda k: k.Activation("linear", dtype="float32"),
    )  # fmt: skip
    assert codes(model) == {("MP406", "both", "info")}
    ((code, *_),) = [(n.remedy,) for n in mpprof.audit(model).notes]
    inputs = of.Input(shape)
    better = of.Model(inputs, written_out(code, inputs))
    ours, theirs = model.get_layer("both"), better.get_layer("both")
    assert [one.shape for one in theirs.weights] == [one.shape for one in ours.weights]
    assert [one.compute_dtype for one in theirs.layers[-2:]] == ["float32", "float16"]
    theirs.set_weights(ours.get_weights())
    x = np.random.default_rng(1).normal(size=(2, *shape)).astype("float32")
    np.testing.assert_allclose(np.array(theirs(x)), np.array(ours(x)), atol=0.02)


def test_groups_of_a_norm_are_no_grouped_convolution() -> None:
    parts = (image(8), lambda: layers.Conv2D(32, 3), lambda: layers.GroupNormalization(8), end)
    assert mpprof.audit(assembled(parts, "mixed_float16")).notes == ()


# --- recurrent layers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("of", "make", "reason"),
    [
        (keras, lambda k: OwnLSTM(16, recurrent_dropout=0.1, name="rnn"), "recurrent_dropout=0.1"),
        (keras, lambda k: OwnGRU(16, reset_after=False, name="rnn"), "reset_after=False"),
        (keras, lambda k: OwnGRU(16, activation="relu", use_bias=False, name="rnn"), "activation='relu', use_bias=False"),
        (tf_keras, lambda k: OwnOfKeras2(16, recurrent_dropout=0.1, name="rnn"), "recurrent_dropout=0.1"),
    ],
)  # fmt: skip
def test_a_class_that_derives_from_lstm_or_gru(of: Any, make: Any, reason: str) -> None:
    rest = (lambda k: k.Activation("linear", dtype="float32"),)
    model = sequential(of, lambda k: of.Input((4, 8)), make, *rest)
    (note,) = mpprof.audit(model).notes  # and not that cuDNN turns XLA off
    assert (note.code, note.layer) == ("MP410", "rnn")
    assert reason in note.reason
    names = {"OwnLSTM": OwnLSTM, "OwnGRU": OwnGRU, "OwnOfKeras2": OwnOfKeras2}
    better = sequential(of, lambda k: of.Input((4, 8)), lambda k: eval(note.remedy, names), *rest)
    assert {n.code for n in mpprof.audit(better).notes} <= {"MP309"}


WRAPPED: tuple[tuple[str, str, Any, Any], ...] = (
    ("MP410", "bidirectional", series, lambda: layers.Bidirectional(layers.GRU(16, use_bias=False, return_sequences=True), name="bidirectional")),
    ("MP410", "both", series, lambda: layers.Bidirectional(layers.LSTM(16, name="there"), backward_layer=layers.LSTM(16, go_backwards=True, unroll=True, name="back"), merge_mode="sum", name="both")),
    ("MP410", "both", series, lambda: layers.Bidirectional(layers.RNN(layers.LSTMCell(16), return_sequences=True), name="both")),
    ("MP410", "cells", series, lambda: layers.RNN([layers.LSTMCell(16), layers.GRUCell(8)], return_sequences=True, name="cells")),
    ("MP410", "cells", series, lambda: layers.RNN([layers.LSTMCell(16), layers.LSTMCell(8)], go_backwards=True, name="cells")),
    ("MP410", "cell", series, lambda: layers.RNN(layers.GRUCell(16, activation="relu"), name="cell")),
    ("MP410", "simple", series, lambda: layers.SimpleRNN(16, activation="relu", name="simple")),
    ("MP309", "both", series, lambda: layers.Bidirectional(layers.LSTM(16, return_sequences=True), name="both")),
    ("MP401", "both", series, lambda: layers.Bidirectional(layers.LSTM(12, name="inner"), merge_mode="concat", name="both")),
    ("MP401", "each", series, lambda: layers.TimeDistributed(layers.Dense(30, activation="relu"), name="each")),
    ("MP401", "norm", vector(), lambda: layers.SpectralNormalization(layers.Dense(30), name="norm")),
    ("MP401", "cell", series, lambda: layers.RNN(layers.SimpleRNNCell(12), name="cell")),
    ("MP401", "cells", series, lambda: layers.RNN([layers.LSTMCell(16), layers.LSTMCell(12)], name="cells")),
    ("MP401", "each", lambda: keras.Input((4, 30)), lambda: layers.TimeDistributed(layers.Dense(32), name="each")),
    ("MP104", "each", series, lambda: layers.TimeDistributed(layers.Dense(16, dtype="float32"), name="each")),
    ("MP104", "both", series, lambda: layers.Bidirectional(layers.LSTM(16, dtype="float32", return_sequences=True), name="both")),
    ("MP406", "each", lambda: keras.Input((4, 16, 16, 8)), lambda: layers.TimeDistributed(layers.DepthwiseConv2D(3), name="each")),
    ("MP407", "each", lambda: keras.Input((4, 16, 16, 8)), lambda: layers.TimeDistributed(layers.Conv2D(16, 3, groups=4), name="each")),
)  # fmt: skip


@pytest.mark.parametrize(("code", "name", "inputs", "make"), WRAPPED)
def test_a_layer_inside_another_is_written_with_the_one_around_it(
    code: str, name: str, inputs: Any, make: Any
) -> None:
    parts = (inputs, make, lambda: layers.Flatten(), lambda: layers.Dense(64), end)
    model = assembled(parts, "mixed_float16")
    found = noted(model, code, name)
    assert found
    assert [n for n in mpprof.audit(model).notes if n.code == code and "/" in str(n.layer)] == []
    better = assembled(parts, "mixed_float16", name, found[0].remedy)
    assert noted(better, code, name) == []
    if code != "MP401":  # which makes it wider
        assert [one.shape for one in better.outputs] == [one.shape for one in model.outputs]
        assert better.get_layer(name).output.shape == model.get_layer(name).output.shape


def test_a_layer_in_float32_is_named_once_and_not_with_what_it_is_made_of() -> None:
    set_policy(keras, "mixed_float16")
    inputs = keras.Input((8, 16))
    hidden = layers.MultiHeadAttention(2, 8, dtype="float32", name="attention")(inputs, inputs)
    hidden = layers.LSTM(16, dtype="float32", return_sequences=True, name="rnn")(hidden)
    nested = keras.Sequential(
        [keras.Input((8, 16)), layers.Dense(16, dtype="float32", name="inner")], name="nested"
    )
    hidden = layers.Dense(16)(nested(hidden))
    model = keras.Model(inputs, layers.Activation("linear", dtype="float32")(hidden))
    model.compile("adam", "mse")
    islands = [n for n in mpprof.audit(model).notes if n.code == "MP104"]
    assert [n.layer for n in islands] == ["attention", "rnn", "nested/inner"]
    for note in islands:
        assert eval(note.remedy, {"keras": keras}).compute_dtype == "float16"


@pytest.mark.parametrize(
    ("make", "layer"),
    [
        (lambda: layers.TimeDistributed(layers.Dense(8, activation="softmax"), name="each"), "each"),
        (lambda: keras.Sequential([keras.Input((4, 8)), layers.Dense(8, activation="softmax", name="deep")], name="nested"), "nested/deep"),
        (lambda: layers.LSTM(8, activation="relu", return_sequences=True, name="rnn"), "rnn"),
    ],
)  # fmt: skip
def test_the_activation_of_an_output_inside_another_layer_is_float32(make: Any, layer: str) -> None:
    parts = (series, lambda: layers.Dense(8), make)
    model = assembled(parts, "mixed_float16")
    (note,) = noted(model, "MP106", layer)
    better = assembled(parts, "mixed_float16", layer.partition("/")[0], note.remedy)
    assert [n for n in mpprof.audit(better).notes if n.code == "MP106"] == []
    activated = "relu" if layer == "rnn" else "softmax"
    assert str([one.get_config() for one in better.layers]).count(f"'{activated}'") == 1
    if layer != "rnn":  # of which the activation is within its steps
        assert better.layers[-1].get_config()["activation"] == activated


def test_a_float32_product_whose_wrapper_rounds_it_again_is_sent_to_a_float32_activation() -> None:
    """TimeDistributed of Keras 3 gives its own compute type out."""
    parts = (
        series, lambda: layers.Dense(8),
        lambda: layers.TimeDistributed(layers.Dense(9000, activation="softmax", dtype="float32"), name="each"),
    )  # fmt: skip
    model = assembled(parts, "mixed_float16")
    assert model(np.zeros((1, 4, 8), "float32")).dtype == "float16"
    for code in ("MP104", "MP106"):
        (note,) = noted(model, code, "each")
        better = assembled(parts, "mixed_float16", "each", note.remedy)
        assert {n.code for n in mpprof.audit(better).notes} & {"MP104", "MP106"} == set()
        assert better(np.zeros((1, 4, 8), "float32")).dtype == "float32"


def test_what_a_lambda_gives_is_not_known() -> None:
    """Keras 3 takes a Lambda's compute type for that of its output: here it is float32."""
    parts = (
        series, lambda: layers.Dense(8),
        lambda: layers.Lambda(lambda x: keras.ops.cast(x, "float32"), name="casts"),
    )  # fmt: skip
    model = assembled(parts, "mixed_float16")
    assert model(np.zeros((1, 4, 8), "float32")).dtype == "float32"
    report = mpprof.audit(model)
    assert report.notes == ()
    (unable,) = report.unable
    assert "the output dtype of casts was not recorded" in unable.reason


# --- the batch, and what is printed ------------------------------------------------------------------------


def test_what_is_said_of_a_batch_can_be_asked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = assembled((vector(), lambda: layers.Dense(16), end), "mixed_float16")
    model.fit(
        np.ones((40, 8)), np.ones((40, 16)), batch_size=4, verbose=0,
        callbacks=[callback(tmp_path, verbose=1, audit=True)],
    )  # fmt: skip
    said = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("mpprof audit", "  "))]
    assert said[1] == "  MP401 Sizes that are not multiples of 8: batch size 4"
    command = said[2].partition("remedies: ")[2]
    report = eval(command, {"mpprof": mpprof, "model": model})
    assert "the batch size is 4, not a multiple of 8" in str(report)
    assert [n.about for n in report.notes] == ["batch size 4"]


def test_positions_make_up_for_a_small_batch() -> None:
    """Of a sequence of 8 even a batch of 3 gives products of 24 rows."""
    parts = (lambda: keras.Input((8, 16)), lambda: layers.Dense(16), end)
    model = assembled(parts, "mixed_float16")
    assert [n.severity for n in noted(model, "MP401", batch_size=3)] == ["info"]
    assert announce(model, 3) == []
    odd = assembled((lambda: keras.Input((9, 16)), *parts[1:]), "mixed_float16")
    assert [n.severity for n in noted(odd, "MP401", batch_size=3)] == ["warning"]
    rnn = assembled((parts[0], lambda: layers.LSTM(16), end), "mixed_float16")
    assert [n.severity for n in noted(rnn, "MP401", batch_size=3)] == ["warning"]  # each step is a product


def test_no_layer_is_named_twice() -> None:
    parts = (
        lambda: keras.Input((4, 30)),
        *(lambda at=at: layers.LSTM(12, unroll=True, return_sequences=True, name=f"rnn_{at}") for at in range(2)),
        lambda: layers.Bidirectional(layers.GRU(12, use_bias=False), name="both"),
        end,
    )  # fmt: skip
    said = announce(assembled(parts, "mixed_float16"), 16)
    assert said[1:3] == [
        "  MP410 A recurrent layer runs as a loop: rnn_0, rnn_1, both",
        "  MP401 Sizes that are not multiples of 8: rnn_0, rnn_1, both",
    ]


@pytest.mark.parametrize("policy", ["float32", "float64"])
def test_the_type_that_a_model_computes_in_is_said_as_it_is(policy: str) -> None:
    report = mpprof.audit(assembled((vector(), lambda: layers.Dense(16)), policy))
    assert f"It computes in {policy} as it is" in str(report)


def test_a_quantised_model_is_not_sent_to_float16() -> None:
    """Keras refuses int8 layers whose compute type is float16."""
    model = assembled((vector(64), lambda: layers.Dense(64)), "float32")
    model.get_layer(index=1).quantize("int8")
    for card in ("A100", "T4", None):
        report = mpprof.audit(model, gpu=card, batch_size=8)
        assert report.mixed == "mixed_bfloat16"
        assert "mixed_float16" not in str(report)


# --- well-known models -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("ResNet50", {"MP106", "MP401", "MP403"}),
        ("MobileNetV2", {"MP106", "MP401", "MP403", "MP406"}),
        ("EfficientNetB0", {"MP106", "MP401", "MP403", "MP406"}),
    ],
)
def test_known_networks_have_nothing_worth_a_warning_but_their_output(name: str, found: set[str]) -> None:
    set_policy(keras, "mixed_float16")
    model = getattr(keras.applications, name)(weights=None)
    model.compile("adam", "sparse_categorical_crossentropy")
    report = mpprof.audit(model, batch_size=32, gpu="A100")
    assert {n.code for n in report.notes} == found
    assert [(n.code, n.layer) for n in report.notes if n.severity != "info"] == [("MP106", "predictions")]


def transformer(width: int, heads: int, vocabulary: int) -> Any:
    set_policy(keras, "mixed_float16")
    inputs = keras.Input((32,), dtype="int32")
    x = layers.Embedding(vocabulary, width)(inputs)
    for block in range(2):
        y = layers.LayerNormalization()(x)
        x = layers.Add()([x, layers.MultiHeadAttention(heads, width // heads, name=f"heads_{block}")(y, y)])
        y = layers.Dense(4 * width, activation="gelu")(layers.LayerNormalization()(x))
        x = layers.Add()([x, layers.Dense(width)(y)])
    x = layers.Dense(vocabulary, name="words")(x)
    model = keras.Model(inputs, layers.Activation("softmax", dtype="float32")(x))
    model.compile("adam", "sparse_categorical_crossentropy")
    return model


def test_a_transformer() -> None:
    assert codes(transformer(128, 4, 8192), batch_size=8, gpu="A100") == set()
    assert codes(transformer(120, 6, 8191), batch_size=8, gpu="V100") == {
        ("MP401", "heads_0", "warning"),
        ("MP401", "heads_1", "warning"),
        ("MP401", "words", "warning"),
    }


def test_a_dense_layer_with_lora() -> None:
    parts = (vector(64), lambda: layers.Dense(64, name="tuned"), lambda: layers.Dense(64), end)
    model = assembled(parts, "mixed_float16")
    model.get_layer("tuned").enable_lora(4)
    assert mpprof.audit(model, batch_size=8, gpu="A100").notes == ()


def test_an_odd_vocabulary_that_is_only_looked_up() -> None:
    """A table is read row by row: no product is as wide as it is long."""
    parts = (
        lambda: keras.Input((16,), dtype="int32"), lambda: layers.Embedding(50257, 64),
        layers.GlobalAveragePooling1D, lambda: layers.Dense(16, activation="softmax", dtype="float32"),
    )  # fmt: skip
    assert mpprof.audit(assembled(parts, "mixed_float16")).notes == ()


# --- Keras 2 -----------------------------------------------------------------------------------------------


def test_code_for_keras_2_calls_nothing_that_it_lacks() -> None:
    set_policy(tf_keras, "mixed_float16")
    inputs = tf_keras.Input((13,))
    hidden = tf_keras.layers.Dense(16, dtype="mixed_float16")(inputs)
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(16, dtype="mixed_float16")(hidden))
    model.compile(tf_keras.optimizers.Adam(), "mse")
    (padded,) = [note for note in mpprof.audit(model).notes if "reads 13 features" in note.reason]
    assert padded.remedy.startswith("x = tf.pad(x, ")
    (ends,) = noted(model, "MP106", model.layers[-1].name)
    assert "tf_keras.layers.Activation" in ends.remedy

    set_policy(tf_keras, "float32")
    model = tf_keras.Sequential([tf_keras.layers.Dense(16, dtype="mixed_float16"), tf_keras.layers.Dense(16)])
    model.compile(tf_keras.optimizers.Adam(), "mse")
    model.build((None, 16))
    (scaling,) = [note for note in mpprof.audit(model).notes if note.code == "MP102"]
    names = {"tf_keras": tf_keras, "model": model}
    exec(scaling.remedy, names)
    assert "LossScaleOptimizer" in type(model.optimizer).__name__

    set_policy(tf_keras, "float32")
    model = tf_keras.Sequential([tf_keras.layers.Dense(16)])
    model.compile("adam", "mse")
    model.build((None, 16))
    assert 'tf_keras.mixed_precision.set_global_policy("mixed_float16")' in str(mpprof.audit(model))
    set_policy(tf_keras, "mixed_float16")
    (policy,) = [note for note in mpprof.audit(model).notes if note.code == "MP101"]
    exec(policy.remedy, {"tf_keras": tf_keras, "build_model": lambda: None})
    assert tf_keras.mixed_precision.global_policy().name == "mixed_float16"


def test_where_a_depthwise_convolution_runs_on_a_tpu_is_not_known() -> None:
    model = sequential(
        keras, lambda of: of.Input((32, 32, 64)), lambda of: of.DepthwiseConv2D(3, name="deep")
    )
    units = {gpu: mpprof.audit(model, gpu=gpu).work[0].unit for gpu in ("TPU v4", "A100")}
    assert units == {"TPU v4": "unknown", "A100": "cuda_core"}


def test_what_functions_between_layers_multiply_is_named_as_not_judged() -> None:
    """Products without weights are in no share, and no policy is advised for what follows the inputs' type."""
    set_policy(keras, "mixed_float16")
    given = keras.Input((16, 64))
    narrow = layers.Dense(64)(given)
    between = keras.ops.matmul(narrow, keras.ops.transpose(narrow, (0, 2, 1)))
    said = str(mpprof.audit(keras.Model(given, between), gpu="A100"))
    assert "Its multiplications with weights can run on: Tensor Cores in fp16 100 %" in said
    assert "Not judged is what functions between layers multiply: matmul" in said
    assert "Nothing was found" not in said

    set_policy(keras, "float32")
    left, right = keras.Input((16, 64)), keras.Input((64, 16))
    alone = str(mpprof.audit(keras.Model([left, right], keras.ops.matmul(left, right)), gpu="A100"))
    assert "Not judged is what functions between layers multiply: matmul" in alone
    assert "set_dtype_policy" not in alone


def test_each_layer_under_a_map_of_policies_has_its_own() -> None:
    of = keras.dtype_policies
    policies = of.DTypePolicyMap(default_policy="mixed_float16")
    given = keras.Input((64, 128))
    heads = layers.MultiHeadAttention(4, 32, name="mha", dtype=policies)
    policies["mha/query"], policies["mha/key"] = of.DTypePolicy("float32"), of.DTypePolicy("mixed_bfloat16")
    found = mpprof.audit(keras.Model(given, heads(given, given)), gpu="A100")
    assert dict(found.policies) == {"mixed_float16": 2, "float32": 1, "mixed_bfloat16": 1}
    assert "map_" not in str(found)


def test_whole_numbers_take_their_own_bytes() -> None:
    set_policy(keras, "float32")
    model = keras.Sequential([keras.Input((256,)), layers.Dense(512)])
    model.layers[0].quantize("int8")
    found = mpprof.forecast_memory(model, batch_size=8, policies="float32").runs[0]
    assert found.parameters_bytes == 256 * 512 + 4 * (512 + 512)  # the kernel, scales and biases
    assert found.gradients_bytes == 4 * 512
