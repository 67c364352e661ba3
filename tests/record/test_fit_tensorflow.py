"""Real training on TensorFlow (CPU): the records are right and the training is untouched."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.record import StepRecorder
from mpprof.store import find_runs, read_records
from tests.record.fits import counter, fit, records, total_skipped
from tests.record.on_tensorflow import keras, tf
from tests.record.processes import done
from tests.record.training import (
    BATCH,
    batches_of_unknown_number,
    callback,
    calls_of,
    data,
    model,
)

pytestmark = pytest.mark.framework


def test_a_disk_that_hangs_is_noticed_however_seldom_is_read(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpprof.store.writing.MOST_QUEUED", 500)
    monkeypatch.setattr("mpprof.store.writing.FLUSH_SECONDS", 3600)  # nothing is written
    x, y = data(40)
    recorded, ran = callback(tmp_path, read_every=10**9), []

    class Hooks(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            ran.append(recorded.steps_run)
            for k in range(100):
                recorded.on_train_batch_begin(100 * batch + k)
                recorded.on_train_batch_end(100 * batch + k, logs)

    fit(trained, x, y, recorded, Hooks())
    assert ran[:3] == [1, 102, 203]
    assert ran[-1] is None  # not recorded any more
    steps = read_records(tmp_path).steps
    assert steps is None or len(steps) == 0


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # what Keras says of unknown lengths
@pytest.mark.parametrize("per_call", [1, 4, 8])
@pytest.mark.parametrize("known", [True, False])
def test_steps_and_skips_where_the_last_call_is_not_full(tmp_path: Path, per_call: int, known: bool) -> None:
    x, y = data(38, bad_steps=(2, 37))
    made = model(optimizer="sgd", kind="linear", steps_per_execution=per_call)
    source: Any = batches_of_unknown_number(x, y)
    if known:
        source = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    made.fit(source, epochs=2, shuffle=False, verbose=0, callbacks=[callback(tmp_path)])
    read = records(tmp_path)
    steps = read.steps
    assert steps.step[-1] == 76
    assert steps.covers.sum() == 76
    assert steps.covers[steps.epoch == 0][-1] == (38 % per_call or per_call)
    assert steps.batch[-1] == 37
    assert total_skipped(read) == 4 == 76 - counter(made)


def test_the_facts_of_the_run(tmp_path: Path) -> None:
    x, y = data(4)
    made = model(kind="convolution", optimizer=keras.optimizers.SGD(0.1), jit_compile=False)
    fit(made, x, y, callback(tmp_path))
    facts = records(tmp_path).facts
    assert facts.framework["keras"] == keras.__version__
    assert facts.framework["backend_version"] == tf.__version__
    assert facts.tf32_enabled is tf.config.experimental.tensor_float_32_execution_enabled()
    assert facts.deterministic_ops is False
    assert facts.graph_rewrite is False
    assert (facts.distribution, facts.replicas) == (None, 1)
    assert facts.devices[-1].kind == "cpu"
    assert facts.timing.basis == "synchronous"
    assert "no GPU" in facts.absent["memory"]
    (told,) = facts.fits
    assert (told.batch_size, told.steps_per_execution, told.jit_compile) == (BATCH, 1, False)
    assert told.input == {"kind": "arrays"}
    assert told.optimizer.class_name == "LossScaleOptimizer"
    assert (told.optimizer.inner, told.optimizer.initial_scale) == ("SGD", 2.0**15)
    assert told.policy.compute_dtype == "float16"
    layers = {layer.name: layer for layer in facts.model.layers}
    convolution = next(layer for layer in layers.values() if layer.class_name == "Conv2D")
    assert (convolution.compute_dtype, convolution.variable_dtype) == ("float16", "float32")
    assert (convolution.config["filters"], convolution.config["kernel_size"]) == (4, [2, 2])
    assert convolution.output_shape == (None, 4, 2, 4)
    assert convolution.parameters == 20
    assert facts.model.parameters == made.count_params()


def test_layers_within_layers_have_paths_and_late_models_are_described(tmp_path: Path) -> None:
    layers = keras.layers
    encoder = keras.Sequential([layers.Dense(8, name="wide"), layers.Dense(4, name="narrow")], name="encoder")
    made = keras.Sequential([encoder, layers.Dense(4, activation="softmax", name="head")])
    made.compile(loss="sparse_categorical_crossentropy")
    x, y = data(3)
    fit(made, x, y, callback(tmp_path))  # has no Input: it is built by its first step
    facts = records(tmp_path).facts
    found = {layer.name: layer for layer in facts.model.layers}
    assert {"encoder", "encoder/wide", "encoder/narrow", "head"} <= set(found)
    assert found["head"].parameters == 20
    assert found["head"].config["activation"] == "softmax"


def test_several_fits_validation_and_initial_epoch_are_one_run(trained: Any, tmp_path: Path) -> None:
    x, y = data(6)
    made, recorded = trained, callback(tmp_path, hardware=True)
    fit(made, x, y, recorded, epochs=2, validation_data=(x, y))
    assert not [
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("mpprof") and thread.name != "mpprof timeout"
    ]
    fit(made, x, y, recorded, epochs=4, initial_epoch=2)
    made.evaluate(x, y, verbose=0, callbacks=[recorded])  # outside of fit: no validation of the run
    read = records(tmp_path)
    steps, facts = read.steps, read.facts
    assert steps.step.tolist() == list(range(1, 25))
    assert steps.fit.tolist() == [1] * 12 + [2] * 12
    assert steps.epoch.tolist() == [0] * 6 + [1] * 6 + [2] * 6 + [3] * 6
    assert [(fit.first_step, fit.initial_epoch) for fit in facts.fits] == [(1, 0), (13, 2)]
    assert len(read.validations.t_ns) == 2
    assert (read.validations.duration_ns > 0).all()
    # The last call of an epoch has no interval: validation and the epoch's end lie behind it.
    assert (steps.interval_ns == -1).tolist() == ([False] * 5 + [True]) * 4
    assert (steps.gap_ns == -1).tolist() == ([True] + [False] * 5) * 4
    assert read.finished
    assert (steps.interval_ns[:5] >= steps.duration_ns[:5]).all()
    assert (np.diff(steps.t_ns) > 0).all()


def test_each_fit_names_the_model_that_it_trained(trained: Any, tmp_path: Path) -> None:
    other, recorded = model(kind="linear", optimizer="sgd"), callback(tmp_path)
    for made in (trained, other):
        fit(made, *data(3), recorded)
    run = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert [each["model"] for each in run["fits"]] == [trained.name, other.name]
    assert trained.name != other.name == run["model"]["name"]
    assert trained.name in run["absent"]["model.earlier"]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")
def test_where_no_loss_is_scaled_an_input_that_ends_by_itself_hides_no_skips(tmp_path: Path) -> None:
    made = model("float32", optimizer="sgd")
    fit(made, batches_of_unknown_number(*data(9)), None, callback(tmp_path), epochs=4)
    read = records(tmp_path)
    assert read.steps.step.tolist() == list(range(1, 37))
    assert "skipped" not in read.facts.absent
    assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == 0


def test_each_model_is_audited_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made, other = model(kind="convolution"), model(kind="convolution")  # have sizes that the audit speaks of
    recorded = callback(tmp_path, verbose=1, audit=True)
    printed = []
    for trained in (made, made, other):
        fit(trained, *data(2), recorded)
        printed.append("MP4" in capsys.readouterr().out)
    assert printed == [True, False, True]


def test_a_second_training_in_the_same_directory_has_its_own(trained: Any, tmp_path: Path) -> None:
    x, y = data(3)
    first, second = callback(tmp_path), callback(tmp_path)
    fit(trained, x, y, first)
    before = (tmp_path / "mpprof" / "steps.jsonl").read_bytes()
    fit(trained, x, y, second)
    assert (tmp_path / "mpprof" / "steps.jsonl").read_bytes() == before
    assert first.root == tmp_path
    assert second.root.parent == tmp_path
    assert set(find_runs(tmp_path)) == {tmp_path, second.root}


def test_memory_is_read_with_the_counters_and_its_peak_reset_once(
    trained: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mpprof.record.backends.tensorflow import TensorFlowProbe

    """What is read behind the reset tells nothing of the call before it."""
    resets: list[int] = []
    monkeypatch.setattr(
        TensorFlowProbe,
        "memory",
        lambda self: [{"device": "GPU:0", "peak_bytes": 400 if resets else 500, "live_bytes": 300}],
    )
    monkeypatch.setattr(TensorFlowProbe, "reset_memory_peak", lambda self: resets.append(1))
    x, y = data(60)
    fit(trained, x, y, callback(tmp_path))
    read = records(tmp_path)
    assert read.steps.step[read.steps.peak_bytes >= 0].tolist() == [*range(1, 33), 48]
    assert read.steps.step[read.steps.peak_bytes == 500].tolist() == [*range(1, 9)]
    assert resets == [1]
    assert "memory" not in read.facts.absent


def test_a_loop_of_ones_own_has_its_skips_counted(tmp_path: Path) -> None:
    from mpprof.record import StepRecorder

    x, y = data(40, bad_steps=(4, 37))
    made = model()
    loss_of = keras.losses.SparseCategoricalCrossentropy()

    @tf.function
    def train(x: Any, y: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = made.optimizer.scale_loss(loss_of(y, made(x, training=True)))
        made.optimizer.apply(tape.gradient(loss, made.trainable_variables), made.trainable_variables)
        return loss

    quiet: Any = {"hardware": False, "verbose": 0, "announce": None, "profile_steps": (20, 23)}
    with StepRecorder(tmp_path, model=made, batch_size=BATCH, **quiet) as recorder:
        for start in recorder.batches(range(0, 40 * BATCH, BATCH)):
            with recorder.step():
                train(x[start : start + BATCH], y[start : start + BATCH])
    read = records(tmp_path)
    assert total_skipped(read) == 2 == 40 - counter(made)
    assert read.steps.loss_scale[read.steps.loss_scale_known][-1] == 2.0**13
    assert (read.steps.input_wait_ns >= 0).all()
    assert read.facts.model is not None
    assert read.facts.profile_windows[0].status == "done"
    assert read.steps.step[read.steps.profiled].tolist() == [20, 21, 22, 23]


def mirrored(folder: Path) -> None:
    tf.config.set_logical_device_configuration(
        tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
    )
    x, y = data(24, bad_steps=(5, 19))
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        made = model()
    fit(made, x, y, callback(folder))


def test_two_replicas_count_a_step_once(tmp_path: Path) -> None:
    done(tmp_path / "said", mirrored, tmp_path)
    read = records(tmp_path)
    assert (read.facts.distribution, read.facts.replicas) == ("MirroredStrategy", 2)
    assert read.facts.fits[0].batch_size == 8
    assert read.steps.step[-1] == 24
    assert total_skipped(read) == 2
    assert read.facts.fits[0].scale_loss_called is True  # Keras' own step scales it, in a thread for each


def test_a_callback_that_stands_in_the_list_twice_records_once(
    trained: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    x, y = data(6)
    recorded = callback(tmp_path, verbose=1)
    for _ in range(2):
        fit(trained, x, y, recorded, recorded)
    read = records(tmp_path)
    assert read.steps.step.tolist() == list(range(1, 13))
    assert [one.fit for one in read.facts.fits] == [1, 2]
    assert "interrupted" not in (tmp_path / "mpprof" / "steps.jsonl").read_text()
    assert capsys.readouterr().out.count("mpprof report") == 2


def test_updates_on_every_fourth_step_are_not_skips(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Gradients gathered by hand: between two updates the loss scale does not fall, so nothing is skipped."""
    variable = keras.Variable(np.ones(4, "float32"))
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.1))
    optimizer.build([variable])
    recorder = StepRecorder(
        tmp_path, optimizer=optimizer, read_every=1, hardware=False, profile_steps=None, verbose=0
    )
    with recorder:
        for k in range(60):
            with recorder.step():
                if k % 4 == 3:
                    optimizer.apply([tf.ones(4)], [variable])
    read = records(tmp_path)
    assert set(read.steps.skipped.tolist()) == {-1}
    assert "once per step" in read.facts.absent["skipped"]
    assert set(read.steps.loss_scale.tolist()) == {2.0**15}
    assert "alarms" not in json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert caplog.records == []


def test_a_state_restored_as_training_begins_costs_one_reading(tmp_path: Path) -> None:
    class Restores(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_begin(self, logs: Any = None) -> None:
            self.model.optimizer.inner_optimizer._iterations.assign(500)

    x, y = data(12, bad_steps=(5,))
    fit(model(), x, y, callback(tmp_path), Restores())
    read = records(tmp_path)
    assert read.steps.skipped.tolist() == [-1, 0, 0, 0, 1, *[0] * 7]
    assert "skipped" not in read.facts.absent


class Ticks(keras.callbacks.Callback):  # type: ignore[misc]
    """A clock, and as a callback of an evaluation the long time that this takes."""

    now, evaluation = 0, 10**9

    def __call__(self) -> int:
        self.now += 1000
        return self.now

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.now += self.evaluation


class EvaluatesWithin(keras.callbacks.Callback):  # type: ignore[misc]
    """Evaluates in the midst of an epoch, as a batch begins or when one has ended, and tells `others` of it."""

    def __init__(self, hook: str, x: Any, y: Any, *others: Any) -> None:
        super().__init__()
        self._data, self._others = (x[:16], y[:16]), list(others)
        setattr(self, hook, self._evaluate)

    def _evaluate(self, batch: int, logs: Any = None) -> None:
        if batch in (4, 11, 12, 19):
            x, y = self._data
            self.model.evaluate(x, y, batch_size=BATCH, verbose=0, callbacks=self._others)


BEGIN, END = "on_train_batch_begin", "on_train_batch_end"


@pytest.mark.parametrize(
    ("hook", "before_ours", "told"),
    [
        # Any two of the three meet in every test run.
        *[(BEGIN, True, True), (BEGIN, False, False), (END, True, False), (END, False, True)],
        *[
            pytest.param(*each, marks=pytest.mark.full)
            for each in ((BEGIN, True, False), (BEGIN, False, True), (END, True, True), (END, False, False))
        ],
    ],
)
def test_an_evaluation_in_the_midst_of_an_epoch_loses_no_step(
    tmp_path: Path, hook: str, before_ours: bool, told: bool
) -> None:
    x, y = data(20, bad_steps=(3, 13, 20))
    clock = Ticks()
    made, recorded = model(), callback(tmp_path, profile_steps=(9, 14), clock=clock)
    theirs = EvaluatesWithin(hook, x, y, *([recorded, clock] if told else []))
    fit(made, x, y, *([theirs, recorded] if before_ours else [recorded, theirs]), epochs=2)
    read = records(tmp_path)
    assert read.steps.step.tolist() == list(range(1, 41))
    assert read.steps.batch.tolist() == [*range(20), *range(20)]
    assert total_skipped(read) == 40 - counter(made) == 6
    assert read.steps.skipped[[2, 12, 19]].tolist() == [1, 1, 1]
    assert "skipped" not in read.facts.absent
    assert len(read.validations.t_ns) == (8 if told else 0)
    (window,) = read.facts.profile_windows
    assert window.status == "done"
    assert window.last_step in ((11, 12) if told else (14,))  # never across a validation
    profiled = read.steps.step[read.steps.profiled].tolist()
    assert profiled == list(range(window.first_step, window.last_step + 1))
    # What an evaluation took belongs to no step.
    times = [getattr(read.steps, name) for name in ("interval_ns", "duration_ns", "gap_ns")]
    assert all((of >= 0).sum() >= 38 and of.max() < Ticks.evaluation for of in times)
    assert (read.validations.duration_ns >= Ticks.evaluation).all()


def test_all_steps_between_readings_go_the_short_way(tmp_path: Path) -> None:
    whole = calls_of("end", tmp_path)
    steps = records(tmp_path).steps
    assert steps.step.tolist() == list(range(1, 101))
    assert whole == 32 + 4  # those that are read: one by one at first, then 48, 64, 80 and 96


def test_where_an_input_ended_within_a_call_the_next_reading_comes_in_its_turn(tmp_path: Path) -> None:
    x, y = data(45)
    batches = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH, drop_remainder=True)
    made = model(steps_per_execution=8)
    recorded = callback(tmp_path)
    made.fit(batches, steps_per_epoch=48, epochs=2, shuffle=False, verbose=0, callbacks=[recorded])
    steps = records(tmp_path).steps
    assert steps.step.tolist() == [8, 16, 24, 32, 40, 45, 53, 61, 69, 77, 85, 90]
    read = steps.step[steps.skipped >= 0].tolist()
    assert read == [8, 16, 24, 32, 45, 53, 69, 85, 90]  # where a multiple of 16 is reached, and epochs end


def test_an_evaluate_or_predict_alone_says_that_nothing_is_recorded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once, on one line; a validation and an evaluation within a fit are recorded, and say nothing."""
    made, (x, y) = model(), data(4)
    recorded = callback(tmp_path / "run", verbose=1, announce=None, audit=False)
    made.evaluate(x, y, verbose=0, callbacks=[recorded])
    made.predict(x, verbose=0, callbacks=[recorded])
    assert (
        capsys.readouterr().out == "mpprof: this evaluate is not recorded: the callback records fit alone.\n"
    )
    assert not (tmp_path / "run").exists()
    within = callback(tmp_path / "within", verbose=1, announce=None, audit=False)
    made.fit(x, y, batch_size=BATCH, validation_data=(x, y), verbose=0, callbacks=[within])
    assert "not recorded" not in capsys.readouterr().out
    made.predict(x, verbose=0, callbacks=[within])
    assert "this predict is not recorded" in capsys.readouterr().out


def test_a_clock_that_breaks_in_the_midst_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Keras holds the batch hooks that it has begun with, and calls them to the end."""
    ticks = iter(range(0, 40 * 10**6, 10**6))  # then StopIteration
    made, (x, y) = model(), data(40)
    recorded = callback(tmp_path, clock=lambda: next(ticks))
    made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    assert [record.getMessage() for record in caplog.records if "stops recording" in record.getMessage()] == [
        "mpprof stops recording, training goes on: StopIteration: "
    ]
    assert [each for each in caplog.records if each.name == "mpprof"][1:] == []
    assert all("mpprof" not in thread.name for thread in threading.enumerate())  # all is closed
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert facts["absent"]["recording"].startswith("failed: StopIteration")
