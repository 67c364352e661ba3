"""Real training with Keras 2, the package tf_keras, in a process of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import Records, read_records
from tests.record import on_demand
from tests.record.processes import done, our_lines
from tests.record.training import (
    BATCH,
    CLASSES,
    FEATURES,
    assert_did_all,
    by_default,
    callback,
    data,
    said_into,
)

pytest.importorskip("tf_keras", reason="tf_keras is not installed")
pytestmark = pytest.mark.framework

KINDS = ("convolution",)  # of a dense one the run `skips` tells


def model(
    optimizer: Any = "adam",
    hidden: bool = True,
    policy: str = "mixed_float16",
    kind: str = "dense",
    **compiling: Any,
) -> Any:
    import tf_keras

    tf_keras.utils.set_random_seed(11)
    tf_keras.mixed_precision.set_global_policy(policy)
    layers = tf_keras.layers
    inner = {
        "dense": lambda: [layers.Dense(16, activation="relu", name="wide"), layers.Dropout(0.2)],
        "convolution": lambda: [
            layers.Reshape((FEATURES // 2, 2, 1)),
            layers.Conv2D(4, 2, padding="same"),
            layers.BatchNormalization(),
            layers.Flatten(),
        ],
        "recurrent": lambda: [layers.Reshape((FEATURES // 2, 2)), layers.LSTM(8)],
    }[kind]
    made = tf_keras.Sequential(
        [
            tf_keras.Input((FEATURES,)),
            *([tf_keras.Sequential(inner(), name="encoder")] if hidden else []),
            layers.Dense(CLASSES, name="head"),
            layers.Activation("softmax", dtype="float32"),
        ]
    )
    made.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, **compiling)
    return made


def weights(made: Any) -> str:
    import hashlib

    values = [*made.weights, *made.optimizer.variables]
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in values)).hexdigest()


def fit(made: Any, x: Any, y: Any, *callbacks: Any, **more: Any) -> None:
    made.fit(
        x, y, **{"batch_size": BATCH, "shuffle": False, "verbose": 0, "callbacks": list(callbacks), **more}
    )


def identical(out: Path, kinds: tuple[str, ...] = KINDS) -> None:
    """Whether models train to the same bits with the callback, one of them also as it is when nobody sets it."""
    import tensorflow as tf
    from tensorflow.python.framework import config

    tf.keras.utils.set_random_seed(0)
    tf.config.experimental.enable_op_determinism()
    x, y = data(70, bad_steps=(3, 20))
    same = {}
    for kind in kinds:
        as_set = callback(out / kind, profile_steps=(12, 16), hardware=True)
        digests = []
        for callbacks in ([], [as_set], *([by_default(out)] if kind == "convolution" else ())):
            made = model(kind=kind)
            with said_into(out / "printed"):
                fit(made, x, y, *callbacks, epochs=2, validation_data=(x[:16], y[:16]))
            digests.append(weights(made))
        same[kind] = len(set(digests)) == 1
    (out / "same.json").write_text(json.dumps(same))
    config.disable_op_determinism()


def recurrent(out: Path) -> None:
    identical(out, ("recurrent",))


def everything(out: Path) -> None:
    import tensorflow as tf
    import tf_keras

    identical(out)
    x, y = data(70, bad_steps=(3, 40, 41))
    digests = []
    for callbacks in ([], [callback(out / "skips", profile_steps=(50, 54))]):
        made = model()
        fit(made, x, y, *callbacks, validation_data=(x[:16], y[:16]))
        digests.append(weights(made))
    answers = {
        "identical": digests[0] == digests[1],
        "counter": int(made.optimizer.inner_optimizer.iterations),
    }
    x, y = data(38, bad_steps=(2, 37))
    fit(model(steps_per_execution=8), x, y, callback(out / "several"), epochs=2)
    fixed = tf_keras.mixed_precision.LossScaleOptimizer(
        tf_keras.optimizers.SGD(), dynamic=False, initial_scale=64
    )
    fit(model(fixed), x, y, callback(out / "fixed"))
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    model().fit(batches, verbose=0, callbacks=[callback(out / "dataset")])
    inputs_that_end_early(out)
    answers["legacy_scale"] = legacy_optimizers(out)
    on_demand.train(tf_keras, model(), out / "on-demand")
    (out / "answers.json").write_text(json.dumps(answers))


def legacy_optimizers(out: Path) -> list[float]:
    """They make their counter in the first step, and so after the fit has begun: one more fit has it."""
    import tf_keras

    scales, (x, y) = [], data(70, bad_steps=(1, 3, 40, 41))
    for name, per_call in (("legacy", 1), ("legacy-several", 8)):
        scaled = tf_keras.mixed_precision.LossScaleOptimizer(tf_keras.optimizers.legacy.SGD(0.01))
        made, recorded = model(scaled, steps_per_execution=per_call), callback(out / name)
        for _ in range(2):
            fit(made, x, y, recorded)
        scales.append(float(scaled.loss_scale))
    return scales


def inputs_that_end_early(out: Path) -> None:
    """Fewer batches than `steps_per_epoch` announces: Keras 2 tells no end of the call that finds no more."""
    import tensorflow as tf
    import tf_keras

    def short(
        name: str, steps: int, optimizer: Any = "adam", policy: str = "mixed_float16", **more: Any
    ) -> None:
        x, y = data(steps, bad_steps=(2, 43) if policy == "mixed_float16" else ())
        made = model(optimizer, hidden=False, policy=policy, steps_per_execution=8)
        batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
        made.fit(batches, verbose=0, callbacks=[callback(out / name)], **more)

    short("short", 45, steps_per_epoch=60)
    short("short-second-epoch", 45, steps_per_epoch=30, epochs=3)
    short("short-validated", 45, steps_per_epoch=60, validation_data=data(2))
    short("short-whole-calls", 48, steps_per_epoch=60)
    fixed = tf_keras.mixed_precision.LossScaleOptimizer(
        tf_keras.optimizers.SGD(), dynamic=False, initial_scale=64
    )
    short("short-fixed", 45, fixed, steps_per_epoch=60)
    short("short-float32", 45, policy="float32", steps_per_epoch=60)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tf_keras")
    said = done(out / "said", everything, out)
    assert our_lines(said) == []
    return out


def records(root: Path) -> Records:
    read = read_records(root)
    assert read.steps is not None
    assert read.facts is not None
    assert read.warnings == ()
    return read


def test_weights_are_the_same_bit_by_bit_and_every_skip_is_found(folder: Path) -> None:
    answers = json.loads((folder / "answers.json").read_text())
    assert answers["identical"]
    read = records(folder / "skips")
    steps = read.steps
    assert steps.step.tolist() == list(range(1, 71))
    assert int(steps.skipped[steps.skipped > 0].sum()) == 3
    assert answers["counter"] == 70  # Keras 2 counts skipped steps, too
    assert steps.loss_scale[1:4].tolist() == [2.0**15, 2.0**14, 2.0**14]
    assert steps.loss_scale[-1] == 2.0**12
    assert len(read.validations.t_ns) == 1
    assert steps.loss_known.all()


@pytest.mark.parametrize(("name", "skips"), [("legacy", [1, 3, 48]), ("legacy-several", [8, 40, 48])])
def test_skips_of_an_optimizer_that_makes_its_counter_in_the_first_step(
    folder: Path, name: str, skips: list[int]
) -> None:
    answers = json.loads((folder / "answers.json").read_text())
    assert answers["legacy_scale"] == [2.0**7] * 2
    read = records(folder / name)
    steps = read.steps
    assert steps.step[-1] == 140
    first, second = steps.fit == 1, steps.fit == 2
    assert steps.step[first & (steps.skipped > 0)].tolist() == skips
    assert [int(steps.skipped[fit & (steps.skipped > 0)].sum()) for fit in (first, second)] == [4, 4]
    assert steps.loss_scale[-1] == 2.0**7
    assert not {"skipped", "loss_scale"} & set(read.facts.absent)


def test_the_facts_of_the_run(folder: Path) -> None:
    import tf_keras

    facts = records(folder / "skips").facts
    assert facts.framework["keras"] == tf_keras.__version__
    assert facts.framework["keras_package"] == "tf_keras"
    (told,) = facts.fits
    assert (told.batch_size, told.steps_per_execution, told.policy.global_name) == (BATCH, 1, "mixed_float16")
    assert (told.optimizer.class_name, told.optimizer.inner) == ("LossScaleOptimizerV3", "Adam")
    assert (told.optimizer.dynamic, told.optimizer.initial_scale) == (True, 2.0**15)
    layers = {layer.name: layer for layer in facts.model.layers}
    assert layers["head"].compute_dtype == "float16"
    assert layers["head"].parameters == 68
    assert layers["encoder/wide"].config["units"] == 16
    assert facts.profile_windows[0].status == "done"


def test_calls_of_several_steps_and_one_that_is_not_full(folder: Path) -> None:
    steps = records(folder / "several").steps
    assert steps.step[-1] == 76
    assert steps.covers.tolist() == [8, 8, 8, 8, 6] * 2
    assert steps.skipped.tolist() == [1, 0, 0, 0, 1] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_weights_of_each_kind_of_model_are_the_same_bit_by_bit(folder: Path, kind: str) -> None:
    assert json.loads((folder / "same.json").read_text())[kind]
    read = records(folder / kind)
    assert read.facts.deterministic_ops is True
    assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == 4
    assert [window.status for window in read.facts.profile_windows] == ["done"]


@pytest.mark.full
def test_weights_of_a_recurrent_model_are_the_same_bit_by_bit(tmp_path: Path) -> None:
    assert our_lines(done(tmp_path / "said", recurrent, tmp_path)) == []
    assert json.loads((tmp_path / "same.json").read_text()) == {"recurrent": True}


def test_as_nobody_has_set_it_it_does_all_that_it_can(folder: Path) -> None:
    assert_did_all(folder / "default", (folder / "printed").read_text())


@pytest.mark.parametrize(
    ("name", "covers", "skipped"),
    [
        ("short", [8, 8, 8, 8, 8, 5], [1, 0, 0, 0, 0, 1]),
        ("short-second-epoch", [8, 8, 8, 6, 8, 7], [1, 0, 0, 0, 0, 1]),
        ("short-validated", [8, 8, 8, 8, 8, 5], [1, 0, 0, 0, 0, 1]),
        ("short-whole-calls", [8] * 6, [1, 0, 0, 0, 0, 1]),
        ("short-fixed", [8, 8, 8, 8, 8, 5], [0] * 6),
        ("short-float32", [8, 8, 8, 8, 8, 5], [0] * 6),
    ],
)
def test_an_input_that_ends_within_a_call_loses_none_of_its_steps(
    folder: Path, name: str, covers: list[int], skipped: list[int]
) -> None:
    read = records(folder / name)
    steps = read.steps
    assert read.finished
    assert steps.covers.tolist() == covers
    assert steps.step.tolist() == [sum(covers[: k + 1]) for k in range(len(covers))]
    assert steps.skipped[-1] >= 0  # read after the last step
    assert steps.skipped.clip(0).tolist() == skipped
    assert "skipped" not in read.facts.absent
    whole = name == "short-whole-calls"
    assert (steps.duration_ns >= 0).tolist() == [True] * (len(covers) - 1) + [whole]  # its end was not told


def test_a_file_and_a_signal_open_further_windows(folder: Path) -> None:
    root = folder / "on-demand"
    on_demand.check(root, records(root))


def test_a_fixed_scale_and_the_batch_size_of_a_data_set(folder: Path) -> None:
    read = records(folder / "fixed")
    assert (read.facts.fits[0].optimizer.dynamic, read.facts.fits[0].optimizer.fixed_scale) == (False, 64.0)
    assert not read.steps.loss_scale_known.any()
    assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == 0
    assert read.facts.absent["loss_scale"] == "the loss scale is fixed at 64.0"
    dataset = records(folder / "dataset").facts
    assert dataset.fits[0].batch_size == BATCH
