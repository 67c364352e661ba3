"""Small real trainings with the callback; in the tests' own process on TensorFlow, in another one on JAX."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

import mpprof
from mpprof.record.calls import CallLog
from mpprof.store import read_records

FEATURES, CLASSES, BATCH = 8, 4, 8


def data(steps: int, bad_steps: tuple[int, ...] = ()) -> tuple[Any, Any]:
    """`steps` batches; in those of `bad_steps` (counted from 1) one input is infinite, and so all gradients."""
    random = np.random.default_rng(5)
    x = random.standard_normal((steps * BATCH, FEATURES)).astype("float32")
    y = random.integers(0, CLASSES, steps * BATCH)
    for step in bad_steps:
        x[(step - 1) * BATCH] = np.inf
    return x, y


def seed(number: int) -> None:
    """As Keras seeds itself; on JAX without its import of TensorFlow, which takes longer than a training."""
    import keras

    if keras.backend.backend() != "jax":
        keras.utils.set_random_seed(number)
    else:
        random.seed(number)
        np.random.seed(number)  # noqa: NPY002 - Keras shuffles with it


def model(
    policy: str = "mixed_float16", optimizer: Any = "adam", kind: str = "dense", **compiling: Any
) -> Any:
    import keras

    seed(11)
    keras.config.set_dtype_policy(policy)
    layers = keras.layers
    hidden = {
        "linear": [],
        "dense": [layers.Dense(16, activation="relu"), layers.Dropout(0.2)],
        "convolution": [
            layers.Reshape((FEATURES // 2, 2, 1)),
            layers.Conv2D(4, 2, padding="same"),
            layers.BatchNormalization(),
            layers.Flatten(),
        ],
        "recurrent": [layers.Reshape((FEATURES // 2, 2)), layers.LSTM(8)],
    }[kind]
    made = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            *hidden,
            layers.Dense(CLASSES),
            layers.Activation("softmax", dtype="float32"),
        ]
    )
    made.compile(loss="sparse_categorical_crossentropy", optimizer=optimizer, **compiling)
    keras.config.set_dtype_policy("float32")
    built_before_its_first_step(made)
    return made


def built_before_its_first_step(made: Any) -> None:
    """TensorFlow traces a step twice that makes variables of the optimizer."""
    made.optimizer.build(made.trainable_variables)


def digest(made: Any) -> str:
    """Of every weight, optimizer's variable and counter, bit by bit."""
    import keras

    values = map(keras.ops.convert_to_numpy, [*made.weights, *made.optimizer.variables])
    return hashlib.sha256(b"".join(value.tobytes() for value in values)).hexdigest()


def callback(logdir: Path, **more: Any) -> Any:
    from mpprof.record import MPProfilerCallback

    return MPProfilerCallback(
        logdir,
        **{"hardware": False, "profile_steps": None, "verbose": 0, "announce": None, "audit": False, **more},
    )


def by_default(logdir: Path) -> list[Any]:
    """Callbacks of a training whose user has set nothing: it audits, announces, profiles and samples."""
    from mpprof.record import MPProfilerCallback

    return [MPProfilerCallback(logdir / "default")]


def assert_did_all(root: Path, said: str) -> None:
    """Assert that the records of `by_default`, and what was printed meanwhile, show all that it does."""
    read = read_records(root)
    assert len(read.steps) == 140
    (window,) = read.facts.profile_windows
    assert window.status == "done"
    assert window.last_step == window.first_step + 4
    assert "hardware" not in read.facts.absent
    audited, ended = said.index("mpprof audit"), said.index("mpprof: 140 steps")
    assert audited < ended
    assert said.count("mpprof: ") == 1
    assert ". More: mpprof report " in said[ended:]


@contextlib.contextmanager
def said_into(file: Path) -> Iterator[None]:
    """What is printed meanwhile goes there, behind what went there before."""
    with file.open("a") as out, contextlib.redirect_stdout(out):
        yield


def batches_of_unknown_number(x: Any, y: Any) -> Any:
    """A data set whose length neither TensorFlow nor Keras knows."""
    import tensorflow as tf

    def each() -> Iterator[tuple[Any, Any]]:
        for start in range(0, len(x), BATCH):
            yield x[start : start + BATCH], y[start : start + BATCH]

    shapes = (
        tf.TensorSpec((None, FEATURES), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    return tf.data.Dataset.from_generator(each, output_signature=shapes)


# --- what the JAX test asks for, all in one process --------------------------------------------------------


def on_jax(folder: Path) -> None:
    answers = {
        "identical": _identical(folder),
        "kept_asynchronous": _kept_asynchronous(folder),
        "copies_of_the_state": _copies_of_the_state(folder),
        **_waits(),
        **_recorded(folder),
        "evaluated_within": _evaluated_within(folder / "within"),
        "out_of_memory": _out_of_memory(folder),
        "whole": calls_of("dispatched", folder / "alike"),
    }
    _with_a_window_that_was_wished_for(folder)
    _with_windows_on_demand(folder / "on-demand")
    (folder / "answers.json").write_text(json.dumps(answers))


def calls_of(name: str, root: Path) -> int:
    """How often this method of the call log was called in a fit of 100 steps."""
    with mock.patch.object(CallLog, name, autospec=True, side_effect=getattr(CallLog, name)) as told:
        model().fit(*data(100), batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback(root)])
    return told.call_count


def recurrent_on_jax(folder: Path) -> None:
    (folder / "answers.json").write_text(json.dumps(_identical(folder, ("recurrent",))))


def _identical(folder: Path, kinds: tuple[str, ...] = ("dense", "convolution")) -> dict[str, bool]:
    x, y = data(70, bad_steps=(3, 40))
    same = {}
    for kind in kinds:
        as_set = callback(folder / f"identical-{kind}", profile_steps=(36, 42))
        digests = []
        for callbacks in ([], [as_set], *([by_default(folder)] if kind == "convolution" else ())):
            made = model(kind=kind)
            with said_into(folder / "printed"):
                made.fit(
                    x,
                    y,
                    batch_size=BATCH,
                    epochs=2,
                    verbose=0,
                    callbacks=callbacks,
                    validation_data=(x[:16], y[:16]),
                )
            digests.append(digest(made))
        same[kind] = len(set(digests)) == 1
    return same


def _kept_asynchronous(folder: Path) -> bool:
    import keras

    return bool(keras.callbacks.CallbackList([callback(folder / "unused")])._async_train)


def _copies_of_the_state(folder: Path) -> list[int]:
    """How often Keras copied JAX's state back into its variables, without the callback and with it."""
    x, y = data(40)
    made, counted = model(), [0]
    copy = made.jax_state_sync

    def counting() -> None:
        counted[0] += 1
        copy()

    made.jax_state_sync = counting
    copies = []
    for callbacks in ([], [callback(folder / "copies")]):
        before = counted[0]
        made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=callbacks)
        copies.append(counted[0] - before)
    return copies


def _waits() -> dict[str, Any]:
    """Whether what JAX waits for with a Keras list, and with the probe, has been computed then."""
    import jax
    from keras.src.utils.tracking import TrackedList

    from mpprof.record.backends.jax import JaxProbe

    class Trainer:
        pass

    slow = jax.jit(lambda a: jax.lax.fori_loop(0, 60, lambda _, b: jax.numpy.tanh(b @ b), a))
    numbers = jax.numpy.ones((400, 400))
    slow(numbers).block_until_ready()
    trainer: Any = Trainer()
    trainer._jax_state = {"trainable_variables": TrackedList([slow(numbers)]), "metrics_variables": None}
    jax.block_until_ready(trainer._jax_state)
    by_keras_list = trainer._jax_state["trainable_variables"][0].is_ready()
    probe = JaxProbe()
    probe.wait(trainer)
    by_probe = trainer._jax_state["trainable_variables"][0].is_ready()
    return {"waited": [by_keras_list, by_probe], "reset": probe.reset_memory_peak()}


def _recorded(folder: Path) -> dict[str, Any]:
    x, y = data(70, bad_steps=(3, 40, 41))
    made = model()
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback(folder / "skips")])

    made = model(steps_per_execution=4)
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[callback(folder / "several")])

    made = model()
    no_text = callback(folder / os.fsdecode(b"log\xff"), profile_steps=(20, 24))
    made.fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[no_text])
    made = model()
    several = callback(folder / "window", profile_steps=(20, 24))
    for _ in range(2):
        made.fit(
            x,
            y,
            batch_size=BATCH,
            shuffle=False,
            verbose=0,
            callbacks=[several],
            validation_data=(x[:16], y[:16]),
        )
    mpprof.audit(made)
    imported = "tensorflow" in sys.modules
    _with_tensorboard(folder / "board", x, y)
    _with_an_input_that_ends_by_itself(folder / "ends")
    return {
        "counter": int(made.optimizer.inner_optimizer._iterations.value),
        "tensorflow_imported": imported,
    }


def _with_an_input_that_ends_by_itself(folder: Path) -> None:
    """Keras then tells the begin of one call more, which never runs. The last skip comes after the last step
    that is read in its turn."""
    x, y = data(47, bad_steps=(45,))
    batches = ((x[k : k + BATCH], y[k : k + BATCH]) for k in range(0, len(x), BATCH))
    model().fit(batches, verbose=0, callbacks=[callback(folder)])


def _with_a_window_that_was_wished_for(folder: Path) -> None:
    import keras

    for name, times in (("wished", 1), ("wished-twice", 2)):
        recorded = callback(folder / name)

        class Wishes(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
            def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
                if batch == 40:
                    recorded._session.profiling.wish()  # as a file or a signal does  # noqa: B023

        x, y = data(60)
        model().fit(x, y, batch_size=BATCH, verbose=0, callbacks=[Wishes(), *[recorded] * times])


def _with_windows_on_demand(folder: Path) -> None:
    import keras

    from tests.record import on_demand  # it stands on this module

    on_demand.train(keras, model(), folder)


def _evaluated_within(folder: Path) -> int:
    """Evaluations in the midst of an epoch, the last one as its last call begins: before our hook and behind
    it."""
    import keras

    from mpprof.record.backends.jax import JaxProbe

    class Reuses(JaxProbe):
        """Where an evaluation has freed the state, the next one lies where that lay, as may well be."""

        place, seen, freed = 1, None, False

        def state(self, model: Any) -> int:
            held = getattr(model, "_jax_state", None)
            if held is not None and held is not self.seen:
                self.place += not self.freed
                self.seen, self.freed = held, False
            return 0 if held is None else self.place

    class Evaluates(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch in (4, 11, 19):
                self.model.evaluate(x[:16], y[:16], batch_size=BATCH, verbose=0, callbacks=[recorded])
                recorded._session.probe.freed = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            recorded._session.probe = Reuses()

    x, y = data(20, bad_steps=(3, 13, 20))
    for order in (1, -1):
        made, recorded = model(), callback(folder / str(order))
        fitted = [recorded, Evaluates()][::order]
        made.fit(x, y, batch_size=BATCH, epochs=2, shuffle=False, verbose=0, callbacks=fitted)
    return int(made.optimizer.inner_optimizer._iterations.value)


def _out_of_memory(folder: Path) -> list[str]:
    """A step of the user's that asks the device for more than there is, really; the allocator's numbers are a
    GPU's, which is not here. What the errors say."""
    import jax
    import keras

    from mpprof.record.backends.jax import JaxProbe

    class Eats(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            if batch == 10:
                jax.numpy.zeros(1 << 46).block_until_ready()  # 256 TiB

    reads, errors = [0], []

    def memory(self: Any) -> Any:
        reads[0] += 1
        return [{"device": "gpu:0", "peak_bytes": 1000 + reads[0], "live_bytes": reads[0]}]

    x, y = data(20)
    made = model(kind="linear", optimizer="sgd")
    with mock.patch.object(JaxProbe, "memory", memory):
        for then in ("close", "fit"):
            recorded = callback(folder / f"memory-{then}")
            try:
                made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded, Eats()])
            except jax.errors.JaxRuntimeError as error:
                errors.append(str(error))
            if then == "close":
                recorded.close()
            else:
                made.fit(x, y, batch_size=BATCH, verbose=0, callbacks=[recorded])
    return errors


def _with_tensorboard(folder: Path, x: Any, y: Any) -> None:
    """Keras' own callback profiles: on JAX from Python 3.12 on. It writes with TensorFlow in any case."""
    import keras

    if importlib.util.find_spec("tensorflow") is None or sys.version_info < (3, 12):
        return
    theirs = keras.callbacks.TensorBoard(str(folder), profile_batch=(12, 16), write_graph=False)
    ours = callback(folder, profile_steps="auto")
    model().fit(x, y, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[ours, theirs])
