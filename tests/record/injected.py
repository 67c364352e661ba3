"""Trainings into which known seconds are put, one place at a time, and where `run_time` finds them.

In a process of the backend's own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from mpprof.analysis.steps.run_time import run_time
from mpprof.record import MPProfilerCallback, StepRecorder
from mpprof.runs.loading import load

BATCH, STEPS, EPOCHS = 4, 20, 2
PLAIN_RUNS = 5
REST_S = 0.01
"""Every run sleeps so long in each callback at each batch. A training that sleeps hands over its core, and the step
behind finds it taken and its caches cold: what is put into a callback is not to be the only sleep there."""
TRIES = 3
WORKERS = 8
HELD_BY = {
    "loader": "input", "generator": "input", "first callback": "callbacks", "last callback": "callbacks",
    "checkpoint every 5": "callbacks", "validation": "validation", "compile": "compile", "epoch end": "callbacks",
}  # fmt: skip
"""The part of `run_time` that holds what was put into a place."""
TRAININGS = (
    "arrays", "tf.data", "PyDataset", "PyDataset of 8 workers", "DataLoader", "generator", "two fits",
    "several steps a call", "jit", "run eagerly", "mixed precision", "loop",
)  # fmt: skip
"""Where nothing is said of their input it is a PyDataset."""
ANY = ""
BACKENDS = ("tensorflow", "jax", "torch")
_NO_CALLBACKS = "a loop of the user's own has no callbacks"
DOES_NOT_APPLY = {
    (ANY, "arrays", "loader"): "Keras slices them: there is no code of the user's that could take time",
    (ANY, "generator", "loader"): "it is the generator",
    **{(ANY, training, "generator"): "there is none" for training in TRAININGS if training != "generator"},
    **{(ANY, "loop", place): _NO_CALLBACKS for place, part in HELD_BY.items() if part == "callbacks"},
    (ANY, "loop", "compile"): "the recorder of a loop of no framework hears of no compiling",
    (ANY, "run eagerly", "compile"): "nothing is traced or compiled",
    ("tensorflow", "DataLoader", ANY): "torch is not installed beside TensorFlow in the tests",
    ("jax", "DataLoader", ANY): "torch is not installed beside JAX in the tests",
    ("torch", "tf.data", ANY): "TensorFlow is not installed beside torch in the tests",
    ("torch", "several steps a call", ANY): "Keras on torch runs one step a call",
    ("torch", "jit", ANY): "dynamo would trace the layer and the clock in it",
}
"""By backend, training and place (ANY: each) why nothing can be put there."""
WITHIN_STEPS = {"tensorflow": ("loader", "generator", "compile"), "torch": ("compile",), "jax": ()}
"""What a backend does not tell apart from steps: TensorFlow fetches in its graph and counts tracings; on torch
nothing compiles, and a layer's Python is a part of each step."""
IN_OTHER_THREADS = {
    ("tensorflow", ANY, "loader"), ("tensorflow", ANY, "generator"), (ANY, "tf.data", "loader"),
    (ANY, "PyDataset of 8 workers", "loader"),
}  # fmt: skip
"""Places that are not reached by the training's own thread: there an injected clock would be advanced at any
time."""
PARTLY_HIDDEN = IN_OTHER_THREADS | {("tensorflow", ANY, "validation")}
"""Places where a wait of real seconds goes on beside other work, and TensorFlow ends its thread after it."""
OUTSIDE = "by a clock outside"


def applies(backend: str, training: str, place: str, unless: Any = DOES_NOT_APPLY) -> bool:
    return not any(
        (one, other, at) in unless
        for one in (backend, ANY)
        for other in (training, ANY)
        for at in (place, ANY)
    )


def cells(backend: str) -> dict[str, tuple[str, ...]]:
    """The places into which seconds can be put, by training."""
    found = {
        training: tuple(place for place in HELD_BY if applies(backend, training, place))
        for training in TRAININGS
    }
    return {training: places for training, places in found.items() if places}


def cells_on_own_clock(backend: str) -> dict[str, tuple[str, ...]]:
    """Those of them that an injected clock can measure. Of compiling, which costs seconds, there is one on
    TensorFlow; JAX tells of its own by a clock of its own."""
    compiles = {"tensorflow": "PyDataset"}.get(backend)
    return {
        training: tuple(
            place
            for place in places
            if (training == "loop" or applies(backend, training, place, IN_OTHER_THREADS))
            and (place != "compile" or training == compiles)
        )
        for training, places in cells(backend).items()
    }


class Clock:
    """Nanoseconds: a little at each look, and what is let pass."""

    def __init__(self) -> None:
        self.now = 5_000_000_000

    def __call__(self) -> int:
        self.now += 1_000
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def on_own_clock(folder: Path, trainings: Collection[str], backend: str) -> None:
    """Do `measured` with these trainings on an injected clock."""
    cells = {of: places for of, places in cells_on_own_clock(backend).items() if of in trainings}
    measured(folder, 0.05, cells, backend, Clock())


def on_own_clock_on_jax(folder: Path) -> None:
    """Do so with the trainings that the environment names."""
    on_own_clock(folder, os.environ["TRAININGS"].split("|"), "jax")


class Waits:
    """Lets time pass at one place, while a `fit` is seen by callbacks, and keeps when it did. `clock`: a
    `Clock` to advance; None: the wall's."""

    def __init__(self, place: str, once_s: float, clock: Clock | None = None) -> None:
        self.place, self.once_s, self._clock = place, once_s, clock
        self.armed = False
        self._spans: list[tuple[float, float]] = []  # workers do it at once

    def at(self, place: str, times: int = 1) -> None:
        """Let this time pass, so many times as long, if it is the place."""
        if self.armed and self._clock is None and place in ("first callback", "last callback"):
            time.sleep(REST_S)
        if not self.armed or place != self.place:
            return
        if self._clock is not None:
            begin_s = self._clock.now / 1e9
            self._clock.wait(self.once_s * times)
            self._spans.append((begin_s, self._clock.now / 1e9))
        else:
            begin_s = time.perf_counter()
            time.sleep(self.once_s * times)
            self._spans.append((begin_s, time.perf_counter()))  # a busy machine wakes late

    @property
    def total_s(self) -> float:
        """For how long some thread or other has waited."""
        total_s = until_s = 0.0
        for begin_s, end_s in sorted(self._spans):
            total_s += max(0.0, end_s - max(begin_s, until_s))
            until_s = max(until_s, end_s)
        return total_s


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    def __init__(self, waits: Waits, place: str, count: int = STEPS, workers: int = 1) -> None:
        super().__init__(workers=workers)
        self.waits, self.place, self.count = waits, place, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.waits.at(self.place, self.workers)
        return one_batch()


class Arms(keras.callbacks.Callback):  # type: ignore[misc]
    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def on_train_begin(self, logs: Any = None) -> None:
        self.waits.armed = True

    def on_train_end(self, logs: Any = None) -> None:
        self.waits.armed = False


class First(keras.callbacks.Callback):  # type: ignore[misc]
    place = "first callback"

    def __init__(self, waits: Waits) -> None:
        super().__init__()
        self.waits = waits

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.waits.at(self.place)


class Last(First):
    place = "last callback"
    calls = 0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.waits.at(self.place)
        self.calls += 1
        if self.calls % 5 == 0:
            self.waits.at("checkpoint every 5", 5)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.waits.at("epoch end", STEPS)


class Traced(keras.layers.Layer):  # type: ignore[misc]
    """Lets time pass once, as Python runs while the step is traced."""

    waits: Waits | None = None

    def call(self, x: Any) -> Any:
        if self.waits is not None and self.waits.armed:
            self.waits.at("compile", STEPS * EPOCHS)
            self.waits = None
        return x

    def compute_output_shape(self, shape: Any) -> Any:
        return shape


def one_batch() -> tuple[Any, Any]:
    return np.ones((BATCH, 8), "float32"), np.ones((BATCH, 2), "float32")


def generated(waits: Waits) -> Iterator[tuple[Any, Any]]:
    while True:
        waits.at("generator")
        yield one_batch()


def model(training: str) -> Any:
    dtype = "mixed_float16" if training == "mixed precision" else "float32"
    made = keras.Sequential([keras.Input((8,)), Traced(dtype=dtype), keras.layers.Dense(2, dtype=dtype)])
    made.compile(
        "sgd", "mse",
        steps_per_execution=4 if training == "several steps a call" else 1,
        jit_compile=training == "jit" or "auto", run_eagerly=training == "run eagerly",
    )  # fmt: skip
    return made


def feeds(training: str, waits: Waits) -> dict[str, Any]:
    """What `fit` is given."""
    match training:
        case "arrays":
            x, y = (np.repeat(each, STEPS, axis=0) for each in one_batch())
            return {"x": x, "y": y, "batch_size": BATCH}
        case "generator":
            return {"x": generated(waits), "steps_per_epoch": STEPS}
        case "tf.data":
            return {"x": _dataset(waits)}
        case "DataLoader":
            return {"x": _data_loader(waits)}
    return {"x": Batches(waits, "loader", workers=WORKERS if training == "PyDataset of 8 workers" else 1)}


def _dataset(waits: Waits) -> Any:
    import tensorflow as tf

    def batches() -> Iterator[tuple[Any, Any]]:
        for _ in range(STEPS):
            waits.at("loader")
            yield one_batch()

    kinds = tuple(tf.TensorSpec(each.shape, each.dtype) for each in one_batch())
    found = tf.data.Dataset.from_generator(batches, output_signature=kinds)
    # Keras on JAX drops the iterator between epochs, which waits for TensorFlow's autotuner: up to 0.9 s, some times.
    alone = tf.data.Options()
    alone.autotune.enabled = False
    return found.with_options(alone).apply(tf.data.experimental.assert_cardinality(STEPS))


def _data_loader(waits: Waits) -> Any:
    import torch

    class Rows(torch.utils.data.Dataset):  # type: ignore[misc]
        def __len__(self) -> int:
            return BATCH * STEPS

        def __getitem__(self, index: int) -> tuple[Any, Any]:
            if index % BATCH == 0:
                waits.at("loader")
            x, y = one_batch()
            return x[0], y[0]

    return torch.utils.data.DataLoader(Rows(), batch_size=BATCH)


def train(
    made: Any, training: str, waits: Waits, root: Path, clock: Callable[[], int] = time.monotonic_ns
) -> dict[str, float]:
    """Train and return the seconds of each part of `run_time`, with `unknown`; by the wall's clock those of the
    training by another one, too."""
    settings = {"clock": clock, "hardware": False, "profile_steps": None, "verbose": 0, "announce": None}
    begin_s = time.perf_counter()
    if training == "loop":
        _loop(waits, StepRecorder(root, **settings, backend=None))
    else:
        _fit(made, training, waits, MPProfilerCallback(root, audit=False, **settings))
    outside_s = time.perf_counter() - begin_s
    found = run_time(load(root))
    assert sum(part.ns for part in found.parts) + found.unknown_ns == found.wall_ns
    parts = {part.name: part.ns / 1e9 for part in found.parts}
    parts["unknown"] = found.unknown_ns / 1e9
    return parts | ({OUTSIDE: outside_s} if clock is time.monotonic_ns else {})


def _fit(made: Any, training: str, waits: Waits, ours: Any) -> None:
    made.layers[0].waits = waits
    given = feeds(training, waits)
    callbacks = [First(waits), ours, Last(waits), Arms(waits)]
    for _ in range(2 if training == "two fits" else 1):
        made.fit(
            **given, epochs=EPOCHS, verbose=0, callbacks=callbacks, shuffle=False,
            validation_data=Batches(waits, "validation", 4),
        )  # fmt: skip


def _loop(waits: Waits, recorder: StepRecorder) -> None:
    def data() -> Iterator[int]:
        for item in range(STEPS):
            waits.at("loader")
            yield item

    with recorder:
        waits.armed = True
        for _ in range(EPOCHS):
            for _item in recorder.batches(data()):
                with recorder.step():
                    sum(range(1000))
            with recorder.validation():
                waits.at("validation", 4)
            recorder.epoch()


def measured(
    folder: Path, once_s: float, kinds: dict[str, tuple[str, ...]], backend: str, clock: Clock | None = None
) -> None:
    """Run each training once for each place, with plain runs in between, and write `measured.json`: rows of
    training, place, seconds put there, the parts then, and the parts of the plain runs. A model has trained
    before, but where what compiles is looked at. By the wall's clock a row that is `wrong` is measured again:
    what the machine did beside it is not there each time."""
    rows: list[dict[str, Any]] = []
    plain_runs, tries = (PLAIN_RUNS, TRIES) if clock is None else (2, 1)  # an injected one scatters little
    for training, places in kinds.items():
        warm = model(training)

        def run(name: str, waits: Waits, warm: Any = warm, training: str = training) -> dict[str, float]:
            made = model(training) if name.startswith("compile") else warm
            return train(made, training, waits, folder / training / name, clock or time.monotonic_ns)

        run("warm", Waits("", 0, clock))
        runs: dict[str, list[dict[str, float]]] = {}
        for place in places:
            kind = "compile" if place == "compile" else "plain"
            before = runs.setdefault(kind, [])
            while len(before) < plain_runs:
                before.append(run(f"{kind} without {len(before)}", Waits("", 0, clock)))
            for number in range(tries):
                if clock is None:
                    before.append(run(f"{kind} without {len(before)}", Waits("", 0, clock)))
                waits = Waits(place, once_s, clock)
                parts = run(f"{place} {number}", waits)
                row = {"training": training, "place": place, "put_s": waits.total_s, "parts": parts}
                row["plain"] = list(before)
                if not wrong(row, backend):
                    break
            rows.append(row)
    (folder / "measured.json").write_text(json.dumps(rows))


def really_measured(folder: Path, backend: str) -> None:
    """Do `measured` by the wall's clock, for the training that the folder is named after."""
    folder.mkdir(exist_ok=True)
    measured(folder, 0.05, {folder.name: cells(backend)[folder.name]}, backend)


def really_measured_on_jax(folder: Path) -> None:
    really_measured(folder, "jax")


def holder(row: dict[str, Any], backend: str) -> str:
    """Return which part is to hold what was put there."""
    unsplit = row["training"] != "loop" and row["place"] in WITHIN_STEPS[backend]
    return "steps" if unsplit else HELD_BY[row["place"]]


def wrong(row: dict[str, Any], backend: str) -> list[str]:
    """Return what is wrong in a row of `measured.json`: the part that holds what was put there grew by other
    than these seconds, or another part by more than the scatter of plain runs explains. Where a wait is partly
    hidden, the seconds are those by which the training became longer, by a clock outside."""
    put_s, put_scatter_s, said, holds = row["put_s"], 0.0, [], holder(row, backend)
    hidden = not applies(backend, row["training"], row["place"], PARTLY_HIDDEN)
    if hidden and OUTSIDE in row["parts"]:
        put_s, put_scatter_s = _grew(row, OUTSIDE)
    names = {name for parts in (row["parts"], *row["plain"]) for name in parts} - {OUTSIDE}
    for name in sorted(names):
        grew_s, scatter_s = _grew(row, name)
        # The scatter of the part itself is in what it grew by, too.
        if name == holds:
            expected_s, most_s = put_s, max(0.05 * put_s, 3 * scatter_s, 3 * put_scatter_s)
        else:
            expected_s, most_s = 0.0, max(0.02 * put_s, 3 * scatter_s)
        if abs(grew_s - expected_s) > most_s:
            said.append(
                f"{row['training']}, {row['place']}: {name} grew by {grew_s:.3f} of {put_s:.3f} s ({most_s:.3f})"
            )
    return said


def _grew(row: dict[str, Any], name: str) -> tuple[float, float]:
    """Return by how many seconds it grew over the median of the plain runs, and the spread of these."""
    plain = sorted(parts.get(name, 0.0) for parts in row["plain"])
    return row["parts"].get(name, 0.0) - plain[len(plain) // 2], plain[-1] - plain[0]
