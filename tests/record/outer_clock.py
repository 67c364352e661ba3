"""Trainings beside a clock that is not mpprof's: a callback's `perf_counter`, and one around Keras' iterators.

In a process of the backend's own. From the second epoch on both clocks are read over the same steps, without the
epoch's end, its validation and the profiled steps with those beside them. Where there are not several workers an epoch's first fetch is out of a step: off JAX, where it cannot be
told from the first call, without that call.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np
from keras.src.trainers.data_adapters.py_dataset_adapter import PyDatasetAdapter

from mpprof import MPProfilerCallback
from mpprof.analysis.steps.statistics import averaged
from mpprof.runs.loading import load

KINDS = ("arrays", "1 worker", "8 workers", "4 steps a call", "varying lengths", "validation and window")
STEPS, EPOCHS, BATCH = 200, 4, 32
ON_JAX = keras.backend.backend() == "jax"


class Clock(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """When each epoch's calls begin and, off JAX, end, and when the epoch's own end is told."""

    def __init__(self) -> None:
        super().__init__()
        self.begins: list[list[tuple[int, float]]] = []
        self.ends: list[float] = []

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.begins.append([])
        self.ends.append(0.0)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.begins[-1].append((batch, time.perf_counter()))

    if not ON_JAX:  # there it would make Keras wait for each step

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self.ends[-1] = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.ends[-1] = self.ends[-1] or time.perf_counter()

    def on_test_begin(self, logs: Any = None) -> None:
        self.ends[-1] = self.ends[-1] or time.perf_counter()

    def when(self, epoch: int, batch: int) -> float:
        """When the first call of this epoch began that starts with this batch or a later one, else its end."""
        return next((at for of, at in self.begins[epoch] if of >= batch), self.ends[epoch])


class Fetches:
    """How long each fetch took on the host, and what the data did at an epoch's end, with the time of their ends.
    Below the callback's own, which calls what the class has."""

    def __init__(self) -> None:
        self.fetched: list[tuple[float, float]] = []
        self.at_end: list[tuple[float, float]] = []
        from keras.src.backend.jax.trainer import JAXEpochIterator

        self._kind = JAXEpochIterator
        self._make, self._end = self._kind._get_iterator, PyDatasetAdapter.on_epoch_end
        self._kind._get_iterator = lambda iterator: self._timed(self._make(iterator))
        PyDatasetAdapter.on_epoch_end = self._ended()

    def put_back(self) -> None:
        self._kind._get_iterator, PyDatasetAdapter.on_epoch_end = self._make, self._end

    def _timed(self, batches: Any) -> Iterator[Any]:
        iterator = iter(batches)
        while True:
            begin = time.perf_counter()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self.fetched.append((begin, time.perf_counter()))
            yield batch

    def _ended(self) -> Callable[[Any], None]:
        def on_epoch_end(adapter: Any) -> None:
            begin = time.perf_counter()
            self._end(adapter)
            self.at_end.append((begin, time.perf_counter()))

        return on_epoch_end


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(self, workers: int) -> None:
        super().__init__(workers=workers)

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        time.sleep(0.01 * self.workers)
        return np.ones((BATCH, 16), "float32"), np.ones((BATCH, 1), "float32")


def lengths() -> Iterator[tuple[Any, Any]]:
    for length in np.random.default_rng(0).permutation([8, 16, 24, 32] * STEPS).tolist():
        yield np.ones((BATCH, length, 16), "float32"), np.ones((BATCH, 1), "float32")


def trained(folder: Path) -> None:
    """Train as the folder's name says, and write `means.json`: ms of the same steps by either clock, and how many
    there are."""
    kind, layers = folder.name, keras.layers
    varying = kind == "varying lengths"
    pooled = [layers.GlobalAveragePooling1D()] if varying else []
    inputs = keras.Input((None, 16) if varying else (16,))
    model = keras.Sequential([inputs, layers.Dense(32), *pooled, layers.Dense(1)])
    several = 4 if kind == "4 steps a call" else 1
    jit = (
        True if varying and keras.backend.backend() != "torch" else "auto"
    )  # dynamo would compile each length
    model.compile("sgd", "mse", steps_per_execution=several, jit_compile=jit)
    given: dict[str, Any]
    match kind:
        case "varying lengths":
            given = {"x": lengths(), "steps_per_epoch": STEPS}
        case "1 worker" | "8 workers":
            given = {"x": Batches(int(kind[0]))}
        case _:
            rows = BATCH * STEPS
            given = {
                "x": np.ones((rows, 16), "float32"),
                "y": np.ones((rows, 1), "float32"),
                "batch_size": BATCH,
            }
    clock, fetches, window = Clock(), Fetches() if ON_JAX else None, None
    if kind == "validation and window":
        window = STEPS + STEPS // 2, STEPS + STEPS // 2 + 4
        given["validation_data"] = given["x"][: 50 * BATCH], given["y"][: 50 * BATCH]
    ours = MPProfilerCallback(folder, profile_steps=window, hardware=False, verbose=0, announce=None)
    model.fit(**given, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=[clock, ours])
    if fetches is not None:
        fetches.put_back()
    run = load(folder)
    times = averaged(run.steps, run.facts, run.spans)
    epoch, last = run.steps.epoch[times.row], run.steps.batch[times.row]
    leaves_out = 0 if ON_JAX or kind == "8 workers" else 1  # calls
    ours_ns = steps = outer_s = 0.0
    for each in range(1, EPOCHS):
        begins = clock.begins[each]
        own = (epoch == each) & (last >= begins[leaves_out][0])
        if not own.any():
            continue  # a busy machine's first steps may be taken for a warm-up
        ours_ns += float((times.time_ns * times.steps)[own].sum())
        steps += int(times.steps[own].sum())
        since_batch = int((last - times.steps)[own].min()) + 1
        before = [at for batch, at in begins if batch <= since_batch]
        end = clock.when(each, int(last[own].max()) + 1)
        outer_s += end - before[-1]
        ends, starts = last[own][:-1], (last - times.steps + 1)[own][1:]
        for at, till in zip((ends + 1).tolist(), starts.tolist(), strict=True):  # not counted
            outer_s -= clock.when(each, till) - clock.when(each, at)
        if fetches is not None:
            first = next((since, till) for since, till in fetches.fetched if since > begins[0][1])
            spans = [first, *fetches.at_end] if kind != "8 workers" else fetches.at_end
            outer_s -= sum(till - since for since, till in spans if before[-1] < since and till < end)
    means = {"ours_ms": ours_ns / steps / 1e6, "outer_ms": outer_s / steps * 1e3, "steps": steps}
    (folder / "means.json").write_text(json.dumps(means))
