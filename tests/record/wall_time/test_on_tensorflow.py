"""Where the wall time of a `fit` on TensorFlow goes, and that the training is as it is without us."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.analysis.steps.run_time import run_time
from tests.record.on_tensorflow import keras
from tests.record.wall_time.asserting import NEARLY, assert_hooks_are_timed
from tests.record.wall_time.trainings import (
    AT_ONCE,
    BATCH,
    EPOCHS,
    STEPS,
    Clock,
    Slow,
    data,
    digest,
    fit,
    model,
    recorded,
    slow_hooks,
    told,
)  # fmt: skip

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def made() -> Any:
    return model()


@pytest.fixture(scope="module")
def answers(made: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return slow_hooks(tmp_path_factory.mktemp("hooks"), made)


def test_each_callbacks_time_is_known_wherever_it_stands_in_the_list(answers: Any) -> None:
    assert_hooks_are_timed(answers)


def test_what_callbacks_do_is_in_the_gap_and_never_in_the_steps_own_time(answers: Any) -> None:
    for hook in ("on_train_batch_begin", "on_train_batch_end"):
        for order in ("1", "-1"):
            slow = answers[hook + order]
            assert slow["duration"] <= NEARLY
            # An epoch's first begin lies before its first step, and its last end behind the last one.
            assert slow["gap"] >= slow["spent"]["callbacks/Slow/batch"] - EPOCHS * AT_ONCE - NEARLY


def test_the_wait_for_input_is_said_to_be_unknown(answers: Any) -> None:
    assert "train function" in answers["nothing1"]["absent"]["run_time.input"]


def test_tracings_are_counted(tmp_path: Path) -> None:
    made = model()
    ours = recorded(tmp_path, Clock())
    for _ in range(2):
        fit(made, ours)
    lines = [json.loads(line) for line in (tmp_path / "mpprof" / "steps.jsonl").read_text().splitlines()]
    (traced,) = [line for line in lines if line.get("part") == "compile"]
    assert (traced["name"], traced["at"], traced["fit"]) == ("tensorflow tracing", "batch", 1)
    assert traced["calls"] >= 1
    assert "ns" not in traced


def test_a_result_states_the_step_time_of_its_report(made: Any, tmp_path: Path) -> None:
    clock = Clock()
    ours = recorded(tmp_path, clock)
    fit(made, ours, Slow("on_train_batch_end", clock.passes, every=5))
    fit(made, ours)
    result, steps = ours.result(), mpprof.diagnose(mpprof.load(tmp_path)).steps
    assert steps.mean_ns is not None
    assert steps.median_ns is not None
    assert (result.mean_step_ns, result.median_step_ns) == (steps.mean_ns, steps.median_ns)
    assert result.mean_step_ns > 100 * result.median_step_ns
    assert f"mean {result.mean_step_ns / 1e6:.3g} ms a step" in result.line()


def test_while_a_fit_runs_its_result_has_the_mean_of_the_timings_at_hand(made: Any, tmp_path: Path) -> None:
    clock, seen = Clock(), list[Any]()
    ours = recorded(tmp_path, clock)

    class Asks(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            seen.append(ours.result().mean_step_ns)

    fit(made, ours, Slow("on_train_batch_end", clock.passes, every=1), Asks())
    assert all(abs(ns - AT_ONCE) <= NEARLY for ns in seen)
    assert len(seen) == EPOCHS


class Watcher(keras.callbacks.Callback):
    """Notes the list that Keras goes through, which lies in `fit`'s own variables."""

    def __init__(self) -> None:
        super().__init__()
        self.lists: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        import sys

        frame = sys._getframe()
        while frame.f_code.co_name != "fit":
            assert frame.f_back is not None
            frame = frame.f_back
        self.lists.append(frame.f_locals["callbacks"])


def test_the_list_of_callbacks_is_put_back_and_nothing_is_set_on_them(made: Any, tmp_path: Path) -> None:
    clock, watcher, slow = Clock(), Watcher(), Slow("on_epoch_end", lambda ns: None)
    ours = recorded(tmp_path, clock)
    before = {name: value for name, value in vars(slow).items() if name not in ("_model", "params")}
    callbacks = [slow, ours, watcher]
    fit(made, *callbacks)
    assert {name: value for name, value in vars(slow).items() if name not in ("_model", "params")} == before
    (made_list,) = watcher.lists
    assert type(made_list.callbacks) is list
    assert not [name for name in vars(made_list) if name.startswith("on_")]
    assert made_list.callbacks[:3] == callbacks
    assert type(made_list.callbacks[3]) is keras.callbacks.History


def test_a_hook_that_a_callback_gets_while_the_training_runs_is_called(made: Any, tmp_path: Path) -> None:
    batches, told_of = list[int](), list[int]()

    class Gets(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.on_train_batch_end = lambda batch, logs=None: batches.append(batch)

    keras_own = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: told_of.append(batch))
    fitted = fit(made, Gets(), keras_own, recorded(tmp_path, Clock()))
    assert batches == told_of == list(range(STEPS)) * EPOCHS
    assert fitted.epoch == list(range(EPOCHS))


class Fails(keras.callbacks.Callback):
    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error: BaseException | None = error

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if batch == 7 and self.error is not None:
            raise self.error


@pytest.mark.parametrize("close", [True, False])
@pytest.mark.parametrize("error", [ValueError("broken"), KeyboardInterrupt()])
def test_after_an_error_the_list_is_put_back_as_soon_as_we_are_told(
    made: Any, tmp_path: Path, error: BaseException, close: bool
) -> None:
    watcher, fails, ours = Watcher(), Fails(error), recorded(tmp_path, Clock())
    with pytest.raises(type(error)) as raised:
        fit(made, watcher, ours, fails)
    if close:
        ours.close()
    else:
        fails.error = None
        fit(made, ours, fails)
    assert raised.value is error
    assert watcher.lists[0].callbacks[:3] == [watcher, ours, fails]
    read = told(tmp_path)
    assert read["reasons"][0] == ("interrupted" if isinstance(error, KeyboardInterrupt) else "error")
    assert read["wall"] > 0


def test_how_a_fit_ended_stands_in_the_steps_as_in_the_run(made: Any, tmp_path: Path) -> None:
    ours = recorded(tmp_path, Clock())
    try:
        fit(made, ours, Fails(ValueError("broken")))
    except ValueError:
        ours.close()
    run = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert run["ended"]["reason"] == "error"
    assert told(tmp_path)["reasons"] == ["error"]


def test_a_fit_that_failed_ends_at_its_last_hook(made: Any, tmp_path: Path) -> None:
    clock = Clock()
    ours = recorded(tmp_path, clock)
    with pytest.raises(ValueError, match="broken"):
        fit(made, ours, Slow("on_train_batch_begin", clock.passes), Fails(ValueError("broken")))
    clock.passes(10**12)
    ours.close()
    assert abs(told(tmp_path)["wall"] - 8 * AT_ONCE) <= NEARLY


def test_hooks_of_an_epochs_begin_take_nothing_of_what_follows_a_validation(tmp_path: Path) -> None:
    clock = Clock()

    class Releases(keras.Sequential):
        def evaluate(self, *arguments: Any, **named: Any) -> Any:
            try:
                return super().evaluate(*arguments, **named)
            finally:
                clock.passes(AT_ONCE)

    made = Releases([keras.Input((3,)), keras.layers.Dense(2)])
    made.compile("sgd", "mse")
    slow = (Slow(hook, clock.passes) for hook in ("on_epoch_begin", "on_epoch_end"))
    x, y = data()
    fit(made, recorded(tmp_path, clock), *slow, validation_data=(x[:8], y[:8]))
    times = run_time(mpprof.load(tmp_path))
    assert times is not None
    parts = {part.name: part for part in times.parts}
    behind = {each.name: each.ns for each in parts["validation"].by}["after its last hook"]
    assert abs(behind - EPOCHS * AT_ONCE) <= NEARLY
    assert abs(parts["callbacks"].ns - 2 * EPOCHS * AT_ONCE) <= NEARLY


def test_a_callback_that_stands_twice_in_the_list_is_timed_twice_and_ours_once(
    made: Any, tmp_path: Path
) -> None:
    clock = Clock()
    ours, slow = recorded(tmp_path, clock), Slow("on_epoch_end", clock.passes)
    fit(made, slow, ours, slow, ours)
    read = told(tmp_path)
    assert abs(read["spent"]["callbacks/Slow/epoch"] - 2 * EPOCHS * AT_ONCE) <= NEARLY
    assert len(read["epochs"]) == EPOCHS
    assert ours.result().steps == STEPS * EPOCHS


def test_of_two_of_ours_one_times_the_callbacks(made: Any, tmp_path: Path) -> None:
    clock = Clock()
    one, other = recorded(tmp_path / "one", clock), recorded(tmp_path / "other", clock)
    fit(made, one, Slow("on_epoch_end", clock.passes), other)
    first, second = told(tmp_path / "one"), told(tmp_path / "other")
    assert abs(first["spent"]["callbacks/Slow/epoch"] - EPOCHS * AT_ONCE) <= NEARLY
    assert "callbacks/Slow/epoch" not in second["spent"]
    assert "another MPProfilerCallback" in second["absent"]["run_time.callbacks"]
    assert one.result().steps == other.result().steps == STEPS * EPOCHS


def test_a_list_of_the_users_own_is_timed_in_each_fit_and_put_back(made: Any, tmp_path: Path) -> None:
    clock, watcher = Clock(), Watcher()
    ours = recorded(tmp_path, clock)
    slow = Slow("on_train_batch_end", clock.passes)
    callbacks = keras.callbacks.CallbackList(
        [ours, slow, watcher], add_history=True, model=made, epochs=EPOCHS, steps=STEPS
    )
    held, members = callbacks.callbacks, list(callbacks.callbacks)
    clock.passes(10**12)  # before the fit
    x, y = data()
    for _ in range(2):
        made.fit(x, y, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=callbacks)
        assert callbacks.callbacks is held
        assert callbacks.callbacks == members
    read = told(tmp_path)
    assert "run_time.callbacks" not in read["absent"]
    expected = 2 * EPOCHS * STEPS * AT_ONCE
    assert abs(read["spent"]["callbacks/Slow/batch"] - expected) <= NEARLY
    assert len(read["epochs"]) == 2 * EPOCHS
    assert abs(read["wall"] - expected) <= 2 * NEARLY


def test_a_loop_with_a_list_of_its_own_is_timed_also_after_one_that_broke_off(
    made: Any, tmp_path: Path
) -> None:
    clock = Clock()
    slow, ours = Slow("on_train_batch_end", clock.passes), recorded(tmp_path, clock)
    hooks = keras.callbacks.CallbackList([slow, ours], model=made, epochs=1, steps=STEPS)
    for steps in (STEPS // 2, STEPS):
        hooks.on_train_begin()
        hooks.on_epoch_begin(0)
        for batch in range(steps):
            hooks.on_train_batch_begin(batch)
            hooks.on_train_batch_end(batch, {"loss": 1.0})
        if steps == STEPS:
            hooks.on_epoch_end(0)
            hooks.on_train_end()
    assert hooks.callbacks == [slow, ours]
    read = told(tmp_path)
    assert abs(read["spent"]["callbacks/Slow/batch"] - STEPS * 3 // 2 * AT_ONCE) <= NEARLY
    assert "callbacks/mpprof/train" in read["spent"]
    assert read["reasons"] == ["interrupted", "finished"]
    assert ours.result().steps == STEPS * 3 // 2


def test_a_fit_within_ours_has_a_list_of_its_own(made: Any, tmp_path: Path) -> None:
    clock, other = Clock(), model()
    ours = recorded(tmp_path / "outer", clock)
    inner = recorded(tmp_path / "inner", clock)

    class Nests(keras.callbacks.Callback):
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            fit(other, inner, Slow("on_epoch_end", clock.passes))
            fit(other, ours)  # the same callback: not recorded

    fit(made, Nests(), ours)
    outer, within = told(tmp_path / "outer"), told(tmp_path / "inner")
    assert abs(outer["spent"]["callbacks/Nests/epoch"] - EPOCHS * EPOCHS * AT_ONCE) <= 2 * NEARLY
    assert abs(within["spent"]["callbacks/Slow/epoch"] - EPOCHS * EPOCHS * AT_ONCE) <= NEARLY
    assert ours.result().steps == STEPS * EPOCHS


def callbacks_of_keras(folder: Path, clock: Clock) -> list[Any]:
    called: list[int] = []
    return [
        keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: called.append(epoch)),
        keras.callbacks.EarlyStopping(monitor="loss", patience=0, restore_best_weights=True),
        keras.callbacks.ModelCheckpoint(folder / "best.keras", monitor="loss"),
        keras.callbacks.ModelCheckpoint(folder / "often.weights.h5", save_freq=5, save_weights_only=True),
        keras.callbacks.BackupAndRestore(folder / "backup"),
        keras.callbacks.ReduceLROnPlateau(monitor="loss", patience=0, min_delta=1.0),
        keras.callbacks.TensorBoard(folder / "board", update_freq=3),
        keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
        keras.callbacks.CSVLogger(folder / "log.csv"),
        keras.callbacks.TerminateOnNaN(),
    ]


def test_with_keras_own_callbacks_the_weights_and_the_history_are_the_same_bit_by_bit(tmp_path: Path) -> None:
    ended = []
    for ours in (False, True):
        keras.utils.set_random_seed(4)
        folder, clock = tmp_path / str(ours), Clock()
        folder.mkdir()
        made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2), keras.layers.Dropout(0.3)])
        made.compile(keras.optimizers.SGD(0.01, use_ema=True), "mse", metrics=["mae"])
        callbacks = callbacks_of_keras(folder, clock)
        held = recorded(folder / "run", clock)
        x, y = data()
        history = made.fit(
            x, y, batch_size=BATCH, epochs=4, verbose=0, validation_data=(x[:8], y[:8]),
            callbacks=[*callbacks[:5], *([held] if ours else []), *callbacks[5:]],
        )  # fmt: skip
        assert made.history is history
        ended.append((digest(made), history.history, (folder / "log.csv").read_text()))
        if ours:
            spent = told(folder / "run")["spent"]
            names = {type(each).__name__ for each in callbacks} - {"TerminateOnNaN", "LearningRateScheduler"}
            assert names <= {name.split("/")[1] for name in spent}
            pickle.dumps(held)
    assert ended[0] == ended[1]
    assert np.isfinite(list(ended[0][1]["loss"])).all()
