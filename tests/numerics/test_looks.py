"""What a look says of models that people train, and of those that it cannot look into."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import NotFoundError, UnableError, UsageError
from mpprof.numbers import files, text
from mpprof.numbers.looks import Looks
from tests.numerics.on_tensorflow import keras, lost_updates, planted, tf
from tests.numerics.planted import ROWS, WIDTH, Made, case, dense, filled

layers, ops = keras.layers, keras.ops
pytestmark = pytest.mark.framework
numerics = mpprof.numerics


@pytest.fixture(autouse=True)
def _mixed_float16() -> Any:
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy("mixed_float16")
    yield
    keras.config.set_dtype_policy(before)


class Stacked(keras.Model):  # type: ignore[misc]
    """Calls its layers one after the other; their paths begin with its name."""

    def __init__(self, stack: list[Any]) -> None:
        super().__init__(name="stacked")
        self.stack = stack

    def call(self, x: Any) -> Any:
        for each in self.stack:
            x = each(x)
        return x


def doubled(x: Any) -> Any:
    """TensorFlow's graph makes it `x * 0.5`; eagerly the sum of 60,000 and itself is infinite."""
    return (x + x) * 0.25


@pytest.mark.parametrize("step", ["eager", "graph", "xla"])
def test_what_breaks_eagerly_and_not_in_the_compiled_step_is_no_break(step: str) -> None:
    """Under XLA, which does not rewrite it, it breaks in the compiled step, too."""
    made = planted.forward([Made(doubled, "doubled")], filled(60_000.0))
    made.model.compile("sgd", "mse", run_eagerly=step == "eager", jit_compile=step == "xla")
    found = numerics(made.model, made.x, made.y)
    assert found.basis == ("eager" if step == "eager" else "compiled")
    if step != "graph":
        assert (found.first_forward.layer, found.first_forward.kind) == ("doubled", "sum")
        assert found.note == ("the training's own step runs eagerly, too" if step == "eager" else None)
    else:
        assert found.first_forward is None
        row = next(row for row in found.layers if row.layer == "doubled" and row.tensor == "output")
        assert (row.max_abs, row.nonfinite_ratio) == (30_000.0, 0.0)


def test_the_loss_scale_at_its_floor_and_the_remedy_that_is_printed() -> None:
    """keras#16100: every step is skipped until the scale cannot fall any more. The layer that overflows is named,
    and in float32 the model trains."""
    x, y = filled(300.0), np.ones((ROWS, 1), np.float32)
    losses = {}
    for dtype in ("mixed_float16", "float32"):
        head = dense(1, 1, "squares", dtype=dtype)
        model = keras.Sequential([keras.Input(x.shape[1:]), dense(64, 1, "wide"), head])
        model.compile(keras.optimizers.Adam(0.01), "mse")
        for _ in range(12):
            losses[dtype] = float(model.train_on_batch(x, y))
        if dtype == "mixed_float16":
            assert float(model.optimizer.dynamic_scale) == 2.0**3
            found = numerics(model, x, y)
            assert (found.first_forward.layer, found.first_forward.kind) == ("squares", "sum")
            assert found.loss_scale.high is None
            assert found.advice[0].snippet == 'keras.layers.Dense(..., dtype="float32")  # squares'
    assert not np.isfinite(losses["mixed_float16"])
    assert np.isfinite(losses["float32"])


def test_a_loop_without_a_loss_scale_is_told_what_scale_is_good() -> None:
    made = planted.PLANTED["underflow_without_a_loss_scale"].make(True)
    found = numerics(made.model, made.x, made.y, **made.more)
    assert found.loss_scale.low is not None
    assert "optimizer.scale_loss(loss)" in found.advice[0].snippet
    cured = numerics(made.model, made.x, made.y, loss=made.more["loss"], loss_scale=found.loss_scale.low)
    assert (cured.first_forward, cured.first_backward, cured.advice) == (None, None, ())


def test_what_runs_in_a_loop_is_unable_by_name_and_what_is_called_twice_is_seen_twice() -> None:
    inputs = keras.Input((3, 2))
    shared = layers.SimpleRNN(2, name="shared")
    outputs = layers.Add()([shared(inputs), shared(inputs * 2.0)])
    model = keras.Model(inputs, layers.Dense(1, name="head", dtype="float32")(outputs))
    model.compile("adam", "mse")
    found = numerics(model, np.ones((2, 3, 2)), np.ones((2, 1)))
    assert [(each.layer, each.reason) for each in found.unable] == [
        ("shared/simple_rnn_cell", "it runs inside a loop, or a function of its own")
    ]
    calls = [row.call for row in found.layers if row.layer == "shared" and row.tensor == "output"]
    assert calls == [1, 2]


def test_a_model_that_changes_a_tf_variable_is_refused_before_it_runs() -> None:
    steps = tf.Variable(0)

    def counted(x: Any) -> Any:
        steps.assign_add(1)
        return x

    made = case([Made(counted, "counted"), dense(1, 1, "head")], filled(1.0))
    before = int(steps)
    with pytest.raises(UnableError, match=r"changes a tf\.Variable"):
        numerics(made.model, made.x, made.y)
    assert int(steps) == before


def classes(loss: Any) -> Any:
    stack = [layers.Dense(3, name="classes"), layers.Activation("softmax", dtype="float32")]
    model = keras.Sequential([keras.Input((4,)), *stack])
    model.compile("sgd", loss)
    return model


SPARSE = "sparse_categorical_crossentropy"
PASS_FAILED = (
    r"numerics: the pass over this batch failed \(.*\); x is \({}\) and y is \({}\)\. Give a batch that"
)


@pytest.mark.parametrize(
    ("loss", "x", "y", "said"),
    [
        (SPARSE, (8, 5), np.zeros(8), PASS_FAILED.format("8, 5", "8,")),
        ("mse", (8, 4), np.zeros((6, 3)), PASS_FAILED.format("8, 4", "6, 3")),
        (
            SPARSE,
            (0, 4),
            np.zeros(0),
            r"the batch is empty: x is \(0, 4\) and y is \(0,\)\. Give at least one row",
        ),
        (
            SPARSE,
            (8, 4),
            np.full(8, 3),
            "the label 3 in y is none of the 3 classes. Labels begin at 0 and end at 2",
        ),
        (SPARSE, (8, 4), np.full((8, 1), -1), "the label -1 in y is none of the 3 classes"),
    ],
)
def test_a_batch_that_cannot_be_computed_is_one_line(loss: str, x: Any, y: Any, said: str) -> None:
    with pytest.raises(UsageError, match=said) as raised:
        numerics(classes(loss), np.ones(x, np.float32), y)
    assert "\n" not in str(raised.value)


def test_a_label_that_the_loss_passes_over_is_none_of_its_classes_either() -> None:
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    found = numerics(classes(loss), np.ones((8, 4), np.float32), np.array([-1] * 4 + [2] * 4))
    assert (found.first_forward, found.first_backward) == (None, None)


def test_an_index_beyond_an_embedding_is_said_in_its_own_words() -> None:
    model = keras.Sequential(
        [keras.Input((4,), dtype="int32"), layers.Embedding(10, 3), layers.Flatten(), layers.Dense(1)]
    )
    model.compile("sgd", "mse")
    with pytest.raises(UsageError, match=r"indices\[0,0\] = 12 is not in \[0, 10\)"):
        numerics(model, np.full((8, 4), 12), np.zeros((8, 1)))


def test_what_is_no_built_keras_model_is_said_to_be_so() -> None:
    with pytest.raises(UsageError, match="not a Keras model: int"):
        numerics(3, np.ones(3))
    with pytest.raises(UsageError, match="not built"):
        numerics(keras.Sequential([layers.Dense(3)]), np.ones((2, 3)))


def test_without_a_loss_the_forward_pass_is_looked_at_and_the_rest_is_absent() -> None:
    model = keras.Sequential([keras.Input((64,)), dense(1, 70_000.0, "head")])
    found = numerics(model, filled(1.0))
    assert (found.first_forward.kind, found.first_backward, found.loss_scale) == ("weights", None, None)
    reason = "the model has no loss: give `loss=`, or compile it with one"
    assert found.absent == {"first_backward": reason, "loss_scale": reason}


@pytest.mark.parametrize(
    ("name", "finite"),
    [
        ("epsilon_of_a_reciprocal_root", True),
        ("division_by_a_sum_of_zeros", False),
        ("every_scale_by_the_root_of_zero", False),
    ],
)
def test_what_is_not_finite_in_float32_either_is_not_put_down_to_16_bits(name: str, finite: bool) -> None:
    made = planted.PLANTED[name].make(True)
    found = numerics(made.model, made.x, made.y)
    broken = found.first_forward or found.first_backward
    assert broken.finite_in_float32 is finite
    assert broken.reason.endswith("; it is not finite in float32, either") is not finite
    assert ("float32" in found.advice[0].snippet) is finite
    holds = "Give norm an epsilon that float16 holds (1e-3), or float32."
    assert (found.advice[0].text == holds) is (broken.kind == "epsilon")


class Own(keras.Model):  # type: ignore[misc]
    def train_step(self, data: Any) -> Any:
        return super().train_step(data)


def test_of_a_train_step_of_ones_own_it_says_which_loss_was_looked_at() -> None:
    inputs = keras.Input((64,))
    model = Own(inputs, dense(1, 1 / 64, "head")(inputs), name="own")
    model.compile("sgd", "mse")
    found = numerics(model, filled(1.0), np.ones((ROWS, 1)))
    assert [(each.layer, each.reason) for each in found.unable] == [
        ("own", "its own train_step may compute another loss; that of `compile` was looked at")
    ]


def test_a_float32_model_has_no_loss_scale_and_is_told_what_float16_would_hold() -> None:
    keras.config.set_dtype_policy("float32")
    model = keras.Sequential([keras.Input((64,)), dense(1, 2_000.0, "head"), dense(1, 1e-3, "small")])
    model.compile("sgd", "mse")
    found = numerics(model, filled(1.0), np.ones((ROWS, 1)))
    assert (found.first_forward, found.first_backward, found.loss_scale) == (None, None, None)
    safe = {row.layer: row.safe_in_float16 for row in found.layers if row.tensor == "output"}
    assert safe == {"head": False, "small": True, "loss": True}
    head = found.layers[0]
    assert (head.max_abs, head.would_be["float16"].nonfinite_ratio, head.would_be["bfloat16"].nonfinite_ratio) == (
        128_000.0, 1.0, 0.0
    )  # fmt: skip


def run_at(folder: Path) -> Path:
    (folder / "mpprof").mkdir(parents=True)
    (folder / "mpprof" / "run.json").write_text('{"schema":"mpprof.run/1","run_id":"r"}')
    return folder


def test_the_looks_of_a_run_are_read_back_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(*more: object) -> str:
        assert main(["numerics", str(root), *map(str, more)]) == 0
        return capsys.readouterr().out

    root = run_at(tmp_path / "run")
    with pytest.raises(NotFoundError, match="not recorded"):
        files.looks(root)
    made = [planted.PLANTED["weights_with_an_infinity"].make(broken) for broken in (False, True)]
    looks = [numerics(each.model, each.x, each.y) for each in made]
    files.append(root, looks[0], trigger="start", step=0)
    files.append(root, looks[1], trigger="skipped", step=18, batch="the one given")
    read, warnings = files.looks(root)
    assert (len(read), warnings) == (2, ())
    said = printed()
    assert said.startswith("Look 2 of 2 at step 18, an update was skipped. The batch: the one given.\n")
    assert "The output of head is the first to break: its weight kernel is not finite." in said
    for number, look in enumerate(looks, 1):
        document = json.loads(printed("--format", "json", "--look", number))
        assert {key: document[key] for key in look.to_dict()} == json.loads(json.dumps(look.to_dict()))
    assert main(["numerics", str(root), "--look", "3"]) == 2
    torn = root / "mpprof" / "numerics.jsonl"
    torn.write_bytes(torn.read_bytes()[:-40])
    assert printed().startswith("Look 1 of 1 at step 0, at the start.")


def test_an_audit_with_a_batch_tells_what_breaks_at_it() -> None:
    made = planted.PLANTED["sum_of_a_wide_dense"].make(True)
    report = mpprof.audit(made.model, batch=(made.x, made.y))
    first = report.notes[0]
    assert (first.code, first.layer, first.severity) == ("MP206", "head", "error")
    assert first.reason.startswith("a sum of values up to 100 x 1 overflows")
    assert 'dtype="float32"' in first.remedy
    assert "MP206" not in {note.code for note in mpprof.audit(made.model).notes}


def test_a_saved_model_is_audited_with_a_batch_from_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = planted.PLANTED["sum_of_a_wide_dense"].make(True)
    model, batch, wrong = tmp_path / "model.keras", tmp_path / "batch.npz", tmp_path / "wrong.npz"
    made.model.save(model)
    np.savez(batch, x=made.x, y=made.y)
    np.savez(wrong, images=made.x)
    assert main(["audit", str(model), "--batch", str(batch), "--trust", "--format", "json"]) == 0
    first = json.loads(capsys.readouterr().out)["notes"][0]
    assert (first["code"], first["layer"]) == ("MP206", "head")
    for file, trust, what in ((batch, [], "with its weights"), (wrong, ["--trust"], "it holds images")):
        assert main(["audit", str(model), "--batch", str(file), *trust]) == 2
        assert what in capsys.readouterr().err


def test_a_model_of_tf_keras_is_refused_by_name() -> None:
    tf_keras = pytest.importorskip("tf_keras")
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.build((None, 3))
    with pytest.raises(UnableError, match=r"a model of tf_keras\. Use Keras 3"):
        numerics(model, np.ones((2, 3)), np.ones((2, 1)))


def test_skips_come_before_a_loss_that_is_seen_first_and_any_kept_batch_may_be_the_one() -> None:
    """Seen on JAX on a busy machine: Keras' loss at an epoch's end came before the reading that told of the skip, and
    the batch that broke was said to be no longer kept."""
    looks = Looks(None, most_kept=4)
    looks.start_fit(0, None)
    looks._in_graph = False
    for _ in range(4):
        looks._keep((np.ones((1, 1)), None))
    looks.see(4, 0, None, np.inf, None)
    assert looks.wanted == "loss"
    assert [said for _, said in looks._batches("loss")] == [f"that of step {step}" for step in (4, 3, 2, 1)]
    looks.see(2, 1, 1, np.inf, 1024.0)
    assert looks.wanted == "skipped"
    assert [said for _, said in looks._batches("skipped")] == ["that of step 2"]
    looks.see(3, 1, 0, np.inf, None)
    assert looks.wanted == "skipped"


def test_a_loss_is_looked_at_with_the_scale_of_its_update(tmp_path: Path) -> None:
    """It was skipped, which has halved the scale before the look."""
    model = keras.Sequential([keras.Input((1,)), dense(1, 1, "head")])
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=2.0**14), "mse")
    (tmp_path / "mpprof").mkdir()
    looks = Looks((filled(1.0)[:, :1], np.ones((ROWS, 1))), most_kept=1)
    looks.wanted = None
    looks.see(1, 1, None, np.inf, 2.0**15)
    assert looks.look(tmp_path, model, 1, 0, lambda: 0)
    looks.end()
    assert looks.look(tmp_path, model, 1, 0, lambda: 0)
    found = [(each["trigger"], each["loss_scale"]["now"]) for each in files.looks(tmp_path)[0]]
    assert found == [("loss", 2.0**15), ("end", 2.0**14)]


@pytest.mark.parametrize(("policy", "low"), [("bfloat16", True), ("mixed_bfloat16", False)])
def test_what_an_update_loses_of_weights_of_16_bits(policy: str, low: bool) -> None:
    """Of weights of 1, updates of 2^-8, of 2^-11, which bfloat16 loses, and of 2^-14.3, which float16 loses, too."""
    keras.config.set_dtype_policy(policy)
    model = keras.Sequential(
        [keras.Input((3,)), layers.Dense(1, use_bias=False, name="head", kernel_initializer="ones")]
    )
    model.compile(keras.optimizers.SGD(2.0**-10), lambda y, outputs: ops.sum(outputs))
    found = numerics(model, np.array([[4.0, 0.5, 0.05]], np.float32), np.zeros((1, 1), np.float32))
    (row,) = [row for row in found.layers if row.tensor == "weight_gradient"]
    assert row.update_lost == (
        {"float16": pytest.approx(1 / 3), "bfloat16": pytest.approx(2 / 3)} if low else None
    )
    said = "Weights are bfloat16: an update changes 66.7 % of their elements in float32 and not in bfloat16"
    assert (said in str(found)) is low
    leaves = "Keep the weights in float32: an update leaves 66.7 % of the bfloat16 weights as they are."
    assert [each.text for each in found.advice] == [leaves] * low
    document = found.to_dict()
    for each in document["layers"]:
        if each["update_lost"]:
            each["update_lost"]["float16"] = None
    assert "an update changes" not in text.table(document)  # what is not known of a weight is not taken for 0


@pytest.mark.parametrize("subclassed", [False, True])
def test_the_policy_that_is_printed_for_several_layers_cures_them(subclassed: bool) -> None:
    """Of 128,000 and of 512,000 in NumPy; and the optimizer scales the loss as before."""
    code = ""
    for cured in (False, True):
        keras.utils.clear_session()
        keras.config.set_dtype_policy("mixed_float16")
        names = {"keras": keras, "optimizer": keras.optimizers.SGD()}
        exec(code, names)
        stack = [dense(4, 1, "wide"), dense(1, 1, "head"), dense(1, 1e-4, "small", dtype="float32")]
        x, y = filled(2000.0), filled(51.0, 1)
        if subclassed:
            model = Stacked(stack)
            model(x)
        else:
            model = keras.Sequential([keras.Input(x.shape[1:]), *stack])
        model.compile(names["optimizer"], "mse")
        found = numerics(model, x, y)
        assert type(model.optimizer).__name__ == "LossScaleOptimizer"
        if cured:
            assert (found.first_forward, found.first_backward, found.advice) == (None, None, ())
            largest = {row.layer: row.max_abs for row in found.layers if row.tensor == "output"}
            assert (largest["wide"], largest["head"]) == (128_000, 512_000)
            assert np.isfinite(model.train_on_batch(x, y))
        else:
            assert found.advice[0].text == "wide and head need bfloat16 or float32."
            code = found.advice[0].snippet


def test_who_reads_a_large_output_computes_in_float32_too_and_the_code_that_is_printed_cures_it() -> None:
    """128,000, and of it 1.28: in float16 the second would be given an infinity."""
    found, code = [], ""
    for _ in range(2):
        keras.utils.clear_session()
        keras.config.set_dtype_policy("mixed_float16")
        exec(code, {"keras": keras, "optimizer": keras.optimizers.SGD()})
        stack = [dense(4, 1, "wide"), layers.Rescaling(1e-5, name="little"), dense(1, 1, "head")]
        made = case(stack, filled(2000.0), y=5.0)
        found.append(numerics(made.model, made.x, made.y))
        code = code or found[0].advice[0].snippet
    assert found[0].advice[0].text == "wide and little need bfloat16 or float32."
    assert (found[1].first_forward, found[1].first_backward) == (None, None)
    largest = {row.layer: row.max_abs for row in found[1].layers if row.tensor == "output"}
    assert largest["little"] == pytest.approx(64 * 2000 * 1e-5)
    assert largest["head"] == pytest.approx(4 * 64 * 2000 * 1e-5, rel=1e-3)


def test_a_gradient_that_a_lower_scale_mends_is_not_put_down_to_a_forward_pass_that_it_does_not_depend_on() -> (
    None
):
    """In float64 the gradient of `fine` is 2/8 of an error of 80 times 2^15, beyond float16; that of `broken` is of
    an infinity."""
    inputs = keras.Input((1,))
    fine, broken = dense(1, 1, "fine")(inputs), dense(1, 70_000.0, "broken")(inputs)
    model = keras.Model(inputs, {"fine": fine, "broken": broken})
    model.compile("sgd", {"fine": "mse", "broken": "mse"})
    found = numerics(model, filled(0.0, 1) + 2, {"fine": filled(82.0, 1), "broken": filled(0.0, 1)})
    assert (found.first_forward.layer, found.first_forward.kind) == ("broken", "weights")
    assert (found.first_backward.layer, found.first_backward.kind) == ("broken", "forward")


def test_in_a_float32_model_the_layer_is_named_whose_derivative_is_infinite() -> None:
    keras.config.set_dtype_policy("float32")
    made = planted.plant_every_scale_by_the_root_of_zero(True)
    found = numerics(made.model, made.x, made.y)
    (broken, advice) = found.first_backward, found.advice[0]
    assert (broken.layer, broken.kind, broken.source, broken.finite_in_float32) == (
        "first", "every scale", "length", False
    )  # fmt: skip
    assert "float32" not in advice.text + advice.snippet
    assert "are finite" not in str(found)


def test_why_nothing_is_known_of_float32_is_said() -> None:
    """A layer that casts by itself has 16 bits also where it is to compute in float32; of its gradient, too."""
    squares = layers.Lambda(
        lambda x: ops.sum(ops.square(ops.cast(x, "float16")), -1, keepdims=True), name="squares"
    )
    made = case([squares, dense(1, 1e-4, "small", dtype="float32")], filled(300.0))
    found = numerics(made.model, made.x, made.y)
    assert [each.finite_in_float32 for each in (found.first_forward, found.first_backward)] == [None, None]
    assert found.first_forward.reason.endswith("; a layer casts to 16 bits by itself")
    assert (
        found.advice[0].snippet == 'x = keras.ops.cast(x, "float32")  # in squares, of the x that is squared'
    )


def test_a_gradient_that_follows_says_that_it_is_not_finite_in_float32_either() -> None:
    made = planted.PLANTED["division_by_a_sum_of_zeros"].make(True)
    follows = numerics(made.model, made.x, made.y).first_backward
    assert (follows.kind, follows.finite_in_float32) == ("forward", False)
    assert follows.reason == "the forward pass broke before, in share; it is not finite in float32, either"


def test_a_gradient_that_an_output_of_0_spoils_follows_from_it() -> None:
    """Not finite at the present scale, or 0 at each: of the same hidden infinity, and told once."""

    def norm(x: Any) -> Any:
        return x * ops.rsqrt(ops.mean(ops.square(x), axis=-1, keepdims=True) + 1e-3)

    stack = [dense(WIDTH, 1.0 / WIDTH, "first"), Made(norm, "norm"), dense(1, 1.0, "small", dtype="float32")]
    made = case(stack, filled(300.0), y=1.0)
    found = numerics(made.model, made.x, made.y)
    assert (found.first_forward.layer, found.first_forward.kind) == ("norm", "underflow")
    assert found.first_backward.reason == "the forward pass broke before, in norm"
    assert [(each.code, each.of) for each in found.advice] == [("MP202", "first_forward")]


def test_of_a_batch_the_part_that_is_not_finite_is_named_and_of_weights_a_checkpoint() -> None:
    made = case([dense(1, 1, "head")], filled(1.0), y=np.nan)
    (advice,) = numerics(made.model, made.x, made.y).advice
    assert advice.snippet == "assert numpy.isfinite(y).all()"
    made = planted.PLANTED["weights_with_an_infinity"].make(True)
    (advice,) = numerics(made.model, made.x, made.y).advice
    assert advice.text == "Restore a checkpoint from before the weights of head were not finite."


def test_a_weight_of_float16_is_rounded_before_bfloat16_loses_an_update_of_it() -> None:
    """In bfloat16 1 + 2^-9 is 1, and an update of 1.5 * 2^-9 leaves it so: 1 + 2.5 * 2^-9 would be another. Float16
    holds both."""
    keras.config.set_dtype_policy("float16")
    head = dense(1, 1 + 2.0**-9, "head")
    model = keras.Sequential([keras.Input((1,)), head])
    model.compile(keras.optimizers.SGD(1.5 * 2.0**-9), lambda y, outputs: -ops.sum(outputs))
    found = numerics(model, np.ones((1, 1), np.float32), np.zeros((1, 1), np.float32))
    (row,) = [row for row in found.layers if row.tensor == "weight_gradient"]
    assert row.update_lost == {"float16": 0.0, "bfloat16": 1.0}


def test_what_an_update_loses_is_that_of_the_optimizer_as_it_is() -> None:
    assert lost_updates.wrong() == []
