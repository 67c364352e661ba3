"""Trainings into which known seconds are put, one place at a time, and where `run_time` finds them.

In a process of the backend's own. `wait` is told how long to let pass: it sleeps, or advances a clock.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from mpprof.analysis.steps.run_time import run_time
from mpprof.record import MPProfilerCallback, StepRecorder
from mpprof.runs.loading import load

BATCH, STEPS, EPOCHS = 4, 20, 2
PLAIN_RUNS = 5
HELD_BY = {
    "loader": "input", "first callback": "callbacks", "last callback": "callbacks",
    "checkpoint every 5": "callbacks", "validation": "validation", "compile": "compile", "epoch end": "callbacks",
}  # fmt: skip
"""The part of `run_time` that holds what was put into a place."""
WITHIN_STEPS = {"tensorflow": ("loader", "compile"), "torch": ("compile",), "jax": ()}
"""What a backend does not tell apart from steps: TensorFlow fetches in its graph and counts tracings; on torch
nothing compiles, and a layer's Python is a part of each step."""
TRAININGS: dict[str, tuple[str, ...]] = {
    "PyDataset": tuple(HELD_BY),
    "generator": ("loader", "last callback"),
    "arrays": ("first callback", "checkpoint every 5", "epoch end"),
    "two fits": ("last callback", "epoch end"),
    "several steps a call": ("last callback", "validation"),
    "jit": ("checkpoint every 5",),
    "loop": ("loader", "validation"),
}
"""Into which places of each kind of training seconds are put."""


class Clock:
    """Nanoseconds: a little at each look, and what is let pass."""

    def __init__(self) -> None:
        self.now = 5_000_000_000

    def __call__(self) -> int:
        self.now += 1_000
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += round(seconds * 1e9)


def on_own_clock(folder: Path, backend: str = "jax") -> None:
    """Do `measured` on an injected clock, where each place is reached by the training's own thread: TensorFlow
    fetches in another one. What compiles is timed by another clock on JAX."""
    kinds = {
        training: tuple(place for place in places if place not in ("loader", "compile") or training == "loop")
        for training, places in TRAININGS.items()
    }
    if backend == "jax":
        kinds = {training: (*places, "loader") for training, places in kinds.items() if training != "loop"}
        kinds = {name: kinds[name] for name in ("PyDataset", "generator", "two fits")}
    else:
        kinds["PyDataset"] += ("compile",)
    clock = Clock()
    measured(folder, 0.05, kinds, clock.wait, clock)


class Waits:
    """Lets time pass at one place, while a `fit` is seen by callbacks, and counts it."""

    def __init__(self, place: str, once_s: float, wait: Callable[[float], None]) -> None:
        self.place, self.once_s, self._wait = place, once_s, wait
        self.armed, self.total_s = False, 0.0

    def at(self, place: str, times: int = 1) -> None:
        """Let this time pass, so many times as long, if it is the place."""
        if self.armed and place == self.place:
            begin = time.perf_counter()
            self._wait(self.once_s * times)
            self.total_s += max(time.perf_counter() - begin, self.once_s * times)  # a busy machine wakes late


class Batches(keras.utils.PyDataset):  # type: ignore[misc]  # keras has no types
    def __init__(self, waits: Waits, place: str, count: int = STEPS) -> None:
        super().__init__()
        self.waits, self.place, self.count = waits, place, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.waits.at(self.place)
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

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.waits.at(self.place)
        if batch % 5 == 4:
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
        waits.at("loader")
        yield one_batch()


def model(training: str) -> Any:
    made = keras.Sequential([keras.Input((8,)), Traced(), keras.layers.Dense(2)])
    several = 4 if training == "several steps a call" else 1
    made.compile("sgd", "mse", steps_per_execution=several, jit_compile=training == "jit" or "auto")
    return made


def train(
    made: Any, training: str, waits: Waits, root: Path, clock: Callable[[], int] = time.monotonic_ns
) -> dict[str, float]:
    """Train and return the seconds of each part of `run_time`, with `unknown`."""
    settings = {"clock": clock, "hardware": False, "profile_steps": None, "verbose": 0, "announce": None}
    if training == "loop":
        _loop(waits, StepRecorder(root, **settings, backend=None))
    else:
        _fit(made, training, waits, MPProfilerCallback(root, audit=False, **settings))
    found = run_time(load(root))
    assert found is not None
    assert sum(part.ns for part in found.parts) + found.unknown_ns == found.wall_ns
    return {part.name: part.ns / 1e9 for part in found.parts} | {"unknown": found.unknown_ns / 1e9}


def _fit(made: Any, training: str, waits: Waits, ours: Any) -> None:
    made.layers[0].waits = waits
    callbacks = [First(waits), ours, Last(waits), Arms(waits)]
    feeds: dict[str, Any] = {"x": Batches(waits, "loader")}
    if training == "generator":
        feeds = {"x": generated(waits), "steps_per_epoch": STEPS}
    elif training != "PyDataset":
        x, y = (np.repeat(each, STEPS, axis=0) for each in one_batch())
        feeds = {"x": x, "y": y, "batch_size": BATCH}
    for _ in range(2 if training == "two fits" else 1):
        made.fit(
            **feeds, epochs=EPOCHS, verbose=0, callbacks=callbacks, shuffle=False,
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
    folder: Path,
    once_s: float = 0.05,
    kinds: dict[str, tuple[str, ...]] = TRAININGS,
    wait: Callable[[float], None] = time.sleep,
    clock: Callable[[], int] = time.monotonic_ns,
) -> None:
    """Run each training once for each place, with plain runs in between, and write `measured.json`: rows of
    training, place, seconds put there, the parts then, and the parts of the plain runs. A model has trained
    before, but where what compiles is looked at."""
    rows: list[dict[str, Any]] = []
    for training, places in kinds.items():
        warm = model(training)

        def run(name: str, waits: Waits, warm: Any = warm, training: str = training) -> dict[str, float]:
            made = model(training) if name.startswith("compile") else warm
            return train(made, training, waits, folder / training / name, clock)

        run("warm", Waits("", 0, wait))
        plain: list[dict[str, float]] = []
        for place in (each for each in places if each != "compile"):
            plain.append(run(f"plain {len(plain)}", Waits("", 0, wait)))
            rows.append(_row(training, place, Waits(place, once_s, wait), run, plain))
        plain += [run(f"plain {number}", Waits("", 0, wait)) for number in range(len(plain), PLAIN_RUNS)]
        if "compile" in places:
            fresh = [run(f"compile {number}", Waits("", 0, wait)) for number in range(PLAIN_RUNS)]
            rows.append(_row(training, "compile", Waits("compile", once_s, wait), run, fresh))
    (folder / "measured.json").write_text(json.dumps(rows))


def _row(
    training: str,
    place: str,
    waits: Waits,
    run: Callable[[str, Waits], dict[str, float]],
    plain: list[dict[str, float]],
) -> dict[str, Any]:
    parts = run(place, waits)
    return {"training": training, "place": place, "put_s": waits.total_s, "parts": parts, "plain": plain}


def holder(row: dict[str, Any], backend: str) -> str:
    """Return which part is to hold what was put there."""
    unsplit = row["training"] != "loop" and row["place"] in WITHIN_STEPS[backend]
    return "steps" if unsplit else HELD_BY[row["place"]]


def wrong(row: dict[str, Any], backend: str) -> list[str]:
    """Return what is wrong in a row of `measured.json`: the part that holds what was put there grew by other
    than these seconds, or another part by more than the scatter of plain runs explains."""
    put_s, said, holds = row["put_s"], [], holder(row, backend)
    names = {name for parts in (row["parts"], *row["plain"]) for name in parts}
    for name in sorted(names):
        plain = sorted(parts.get(name, 0.0) for parts in row["plain"])
        grew, scatter = row["parts"].get(name, 0.0) - plain[len(plain) // 2], plain[-1] - plain[0]
        # The scatter of the part itself is in what it grew by, too.
        most = max(0.05 * put_s if name == holds else 0.02 * put_s, 3 * scatter)
        if abs(grew - (put_s if name == holds else 0.0)) > most:
            said.append(
                f"{row['training']}, {row['place']}: {name} grew by {grew:.3f} of {put_s:.3f} s ({most:.3f})"
            )
    return said
