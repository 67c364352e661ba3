"""Alarms that stop a real `fit`, and the loss they are raised by where no step's is told: on JAX, on Keras 2, on
TensorFlow; and by tests/torch on torch."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import read_records
from tests.record.fits import reasons
from tests.record.processes import done, done_on_jax
from tests.record.training import BATCH, callback, data, model

pytestmark = pytest.mark.framework

STEPS = 120


@dataclass(frozen=True)
class Trouble:
    """Steps with infinite gradients, the loss scale before them, and the step by which the alarm is raised."""

    bad: tuple[int, ...]
    initial_scale: float
    step: int


TROUBLES = {
    "endless_skips": Trouble(tuple(range(25, STEPS + 1)), 2.0**15, 34),
    "loss_scale_low": Trouble((5, 6, 7), 4.0, 7),  # at a scale of 1: that of Keras 2 falls no further
    "non_finite_loss": Trouble((40,), 2.0**15, 48),  # from step 33 on every 16th is read
}
BACKENDS = ("tensorflow", "tf_keras", "jax")


def slow_clock() -> Any:
    """A clock by which every reading is late: it is waited for as the next call begins."""
    return itertools.count(1, 1_000_000_000).__next__


def scaled(package: Any, initial: float) -> Any:
    if package.__name__ == "tf_keras":
        return package.mixed_precision.LossScaleOptimizer(package.optimizers.SGD(), initial_scale=initial)
    return package.optimizers.LossScaleOptimizer(package.optimizers.SGD(), initial_scale=initial)


def train(made: Any, root: Path, trouble: Trouble, kind: str) -> None:
    x, y = data(STEPS, trouble.bad)
    recorded = callback(root, stop_on=kind, clock=slow_clock())
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[recorded])


def all_of(root: Path, troubles: dict[str, Trouble], package: Any, make: Any) -> None:
    for kind, trouble in troubles.items():
        train(make(optimizer=scaled(package, trouble.initial_scale)), root / kind, trouble, kind)


def on_tensorflow(folder: Path) -> None:
    import keras

    all_of(folder, TROUBLES, keras, model)


def on_tf_keras(folder: Path) -> None:
    import tf_keras

    from tests.record.test_fit_tf_keras import model as of_keras_2

    all_of(folder, TROUBLES, tf_keras, of_keras_2)


def on_jax(folder: Path) -> None:
    import keras

    all_of(folder, TROUBLES, keras, model)
    losses(folder / "losses")
    a_train_step_of_ones_own(folder / "own")
    x, y = data(40, bad_steps=(40,))
    for name, more in (("last", {}), ("validated", {"validation_data": data(2)})):
        recorded = callback(folder / name)
        model().fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[recorded], **more)


# --- the loss where no step's is told ----------------------------------------------------------------------

READ = (1, 20, 32, 48, 64)


def losses(folder: Path) -> None:
    """Two epochs of 70 steps, and what Keras tells a callback after those steps of one that are read."""
    import keras

    truth: list[float] = []

    class Asks(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch + 1 in READ:
                truth.append(float(logs["loss"]))

    x, y = data(70)
    for epochs, asked in ((1, Asks()), (2, callback(folder))):
        model().fit(x, y, batch_size=BATCH, epochs=epochs, shuffle=False, verbose=0, callbacks=[asked])
    (folder / "truth.json").write_text(json.dumps(truth))


def check_losses(folder: Path, rel: float = 1e-5) -> None:
    truth = json.loads((folder / "truth.json").read_text())
    read = read_records(folder)
    steps, facts = read.steps, read.facts
    assert steps.step[steps.loss_known].tolist() == [*range(1, 33), 48, 64, 80, 96, 112, 128]
    by_step = dict(zip(steps.step.tolist(), steps.loss.tolist(), strict=True))
    assert [by_step[step] for step in READ] == pytest.approx(truth, rel=rel)
    assert by_step[80] != pytest.approx(by_step[64], rel=0.01)  # of the second epoch alone
    assert "loss" not in facts.absent


def a_train_step_of_ones_own(folder: Path) -> None:
    """It does not keep Keras' running mean."""
    import jax
    import keras

    class Own(keras.Sequential):  # type: ignore[misc]  # keras has no types
        def train_step(self, state: Any, given: Any) -> Any:
            trainable, fixed, optimizer, metrics = state
            x, y = given[:2]

            def loss_of(trainable: Any) -> Any:
                outputs, _ = self.stateless_call(trainable, fixed, x, training=True)
                return self.compute_loss(x, y, outputs)

            loss, gradients = jax.value_and_grad(loss_of)(trainable)
            trainable, optimizer = self.optimizer.stateless_apply(optimizer, gradients, trainable)
            return {"loss": loss}, (trainable, fixed, optimizer, metrics)

    made = Own([keras.Input((8,)), keras.layers.Dense(4, activation="softmax")])
    made.compile("sgd", "sparse_categorical_crossentropy")
    x, y = data(STEPS, bad_steps=(40,))
    recorded = callback(folder, stop_on="non_finite_loss")
    made.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=[recorded])


# --- what was recorded -------------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=BACKENDS)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    backend = str(request.param)
    pytest.importorskip(backend)
    out = tmp_path_factory.mktemp(backend)
    if backend == "jax":
        done_on_jax(on_jax, out)
    else:
        done(out / "said", {"tensorflow": on_tensorflow, "tf_keras": on_tf_keras}[backend], out)
    return backend, out


@pytest.mark.parametrize("kind", TROUBLES)
def test_an_alarm_stops_the_training(folder: Any, kind: str) -> None:
    backend, out = folder
    check_stopped(out / kind, TROUBLES[kind], kind, later=2 if backend == "jax" else 0)


def check_stopped(root: Path, trouble: Trouble, kind: str, later: int) -> None:
    """`later`: so many steps have begun, at most, when the reading arrives."""
    alarms = json.loads((root / "mpprof" / "run.json").read_text())["alarms"]
    assert [alarm["step"] for alarm in alarms if alarm["kind"] == kind] == [trouble.step]
    read = read_records(root)
    assert trouble.step <= len(read.steps) <= trouble.step + later
    assert reasons(root) == ["stopped"]


@pytest.mark.parametrize("folder", ["jax"], indirect=True)
class TestOnJax:
    def test_lines_that_were_read_carry_the_running_mean(self, folder: Any) -> None:
        check_losses(folder[1] / "losses")

    def test_where_a_train_step_keeps_no_running_mean_no_line_has_one(self, folder: Any) -> None:
        root = folder[1] / "own"
        facts = json.loads((root / "mpprof" / "run.json").read_text())
        assert "a custom train_step need not keep one" in facts["absent"]["loss"]
        read = read_records(root)
        assert not read.steps.loss_known.any()
        assert len(read.steps) == 2 * STEPS

    @pytest.mark.parametrize("name", ["last", "validated"])
    def test_a_loss_that_raises_the_alarm_as_the_epoch_ends_is_on_record(
        self, name: str, folder: Any
    ) -> None:
        root = folder[1] / name
        (alarm,) = json.loads((root / "mpprof" / "run.json").read_text())["alarms"]
        assert (alarm["kind"], alarm["step"]) == ("non_finite_loss", 40)
        steps = read_records(root).steps
        assert steps.step[steps.loss_known].tolist() == [*range(1, 33), 40]
        assert math.isnan(steps.loss[-1])
