"""What callbacks add to a step, measured by taking them in and out of one `fit` in blocks of 25 steps.

Run as a script, because Keras' backend is fixed for a process:

    KERAS_BACKEND=tensorflow python -m tools.benchmarks.callback_overhead OUT.json STEPS NAME [NAME …]

Names: mpprof, self (mpprof with a clock around its hooks), empty, naive, tensorboard-epoch, tensorboard-batch.
On torch the last two want TensorFlow beside it, and the last three, which have batch end hooks, keep Keras from
its own way of handing those over: measure them apart.

Fits scatter by more than what is to be measured, so at block edges Keras' list is exchanged: what mpprof puts in
its place for a fit, which times the others' hooks, or one with another callback, and
every second block has none of them, and each block is held against the bare one before it and the bare one
after it. Against one at a time: what disturbs a block only ever makes it slower, so against the mean of both,
with the extremes left out, a callback without cost would seem to save several microseconds a step. An epoch's
first block, a bare one, does not count: its input has only just begun, which would do the same.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import keras
import numpy as np

from mpprof.record.backends import ASYNCHRONOUS
from mpprof.record.wall_time.hooks import TimedList

ENDS = keras.backend.backend() not in ASYNCHRONOUS
"""Whether a callback without cost to Keras' own dispatch may have a batch end hook."""
BLOCK = 25
WARM_BLOCKS = 8
EPOCH_BLOCKS = 40
FEATURES = 64
WIDTH = {"jax": 256}.get(keras.backend.backend(), 96)
BATCHES = (32, 64, 128, 256, 512)
OURS = ("mpprof", "self")
BARE_NS = 500_000
"""A bare step of about half a millisecond: TensorFlow needs it for the smallest model, JAX for arithmetic."""


class Naive(keras.callbacks.Callback):  # type: ignore[misc]
    """What people write: read the loss scale and the counter after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, int]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        optimizer = self.model.optimizer
        self.seen.append((float(optimizer.dynamic_scale), int(optimizer.inner_optimizer._iterations)))


class Empty(keras.callbacks.Callback):  # type: ignore[misc]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass


class EmptyBoth(Empty):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        pass


class Timed(keras.callbacks.Callback):  # type: ignore[misc]
    """Another callback, and how long its batch hooks took."""

    def __init__(self, inner: Any, times: list[int], ends: bool) -> None:
        super().__init__()
        self.inner, self.times, self.ends = inner, times, ends
        self._begin_ns = 0

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        begin = time.perf_counter_ns()
        self.inner.on_train_batch_begin(batch, logs)
        self._begin_ns = time.perf_counter_ns() - begin
        if not self.ends:
            self.times.append(self._begin_ns)

    def after(self, batch: int, logs: Any) -> None:
        begin = time.perf_counter_ns()
        self.inner.on_train_batch_end(batch, logs)
        self.times.append(time.perf_counter_ns() - begin + self._begin_ns)


class TimedBoth(Timed):
    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.after(batch, logs)


class Switch(keras.callbacks.Callback):  # type: ignore[misc]
    """Stands first in the list and exchanges what stands behind it at block edges."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0
        self.began_ns = 0
        self.begins_epoch = False  # the block that runs is an epoch's first
        self.blocks: list[tuple[str, float, float]] = []  # what was in, ns per step: wall, this thread's CPU
        self.ran: list[str] = []  # what was in, of all blocks
        self.began_cpu_ns = 0
        self.list: Any = None
        self.whole: list[Any] = []  # who hears of epochs
        self.lists: dict[str, list[Any]] = {}  # by what is in
        self.hidden_ns = self.left_ns = 0

    def clock(self) -> int:
        """For the callback that is measured: it stands still while that is out, or it would think that steps
        take longer than they do and work more often."""
        return time.monotonic_ns() - self.hidden_ns

    def switch_between(self, subjects: dict[str, Any]) -> None:
        """Switch in the list that is there."""
        self.order = [name for subject in subjects for name in ("", subject)]
        self.whole = self.list.callbacks
        heard = list(getattr(self.whole, "original", self.whole))
        bare = [each for each in heard if not any(each is subject for subject in subjects.values())]
        rest = [each for each in bare if each is not self]
        self.lists = {name: [self, subject, *rest] for name, subject in subjects.items()}
        self.lists[""] = [self, *rest]
        if "mpprof" in subjects:
            assert isinstance(self.whole, TimedList)
            self.lists["mpprof"] = self.whole

    def now(self) -> str:
        return self.order[self.steps // BLOCK % len(self.order)]

    # Both are marked as Keras marks hooks that do nothing: mpprof times the others.

    @keras.src.utils.default  # type: ignore[untyped-decorator]
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if not ENDS or not self.began_ns:
            self._exchange()
        self.steps += 1

    if ENDS:

        @keras.src.utils.default  # type: ignore[untyped-decorator]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._exchange()

    def _exchange(self) -> None:
        """Exchange the list at a block's edge; the hook that is told now is told to the list before."""
        if self.steps % BLOCK == 0:
            self._wait()
            now, cpu = time.perf_counter_ns(), time.thread_time_ns()
            if self.began_ns and not self.begins_epoch:
                name = self.order[(self.steps // BLOCK - 1) % len(self.order)]
                spent = ((now - self.began_ns) / BLOCK, (cpu - self.began_cpu_ns) / BLOCK)
                self.blocks.append((name, *spent))
            self.begins_epoch = not self.began_ns
            name = self.now()
            self.ran.append(name)
            if name in OURS:
                if self.left_ns:
                    self.hidden_ns += time.monotonic_ns() - self.left_ns
                self.left_ns = 0
            elif not self.left_ns:
                self.left_ns = time.monotonic_ns()
            epoch_ends = self.began_ns and self.steps % (BLOCK * EPOCH_BLOCKS) == 0
            self.list.callbacks = self.whole if epoch_ends else self.lists[name]
            self.began_ns, self.began_cpu_ns = time.perf_counter_ns(), time.thread_time_ns()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.began_ns = 0  # what lies between two epochs belongs to no block
        self.list.callbacks = self.whole

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.on_epoch_end(epoch)

    def _wait(self) -> None:
        if keras.backend.backend() == "jax":
            import jax

            state = getattr(self._model, "_jax_state", None) or {}
            jax.block_until_ready([list(values) for values in state.values() if values is not None])


LIST = {"add_history": True, "epochs": 1, "steps": BLOCK * EPOCH_BLOCKS}


def listed(callbacks: list[Any], made: Any) -> Any:
    return keras.callbacks.CallbackList(callbacks, **LIST, model=made)


def fit(callbacks: list[Any], made: Any) -> Any:
    """The list as Keras' own `fit` makes it, by which mpprof knows one that it may exchange."""
    epoch_iterator = None  # noqa: F841 - so does `fit`
    return keras.callbacks.CallbackList(callbacks, **LIST, model=made)


def model() -> Any:
    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy("mixed_float16")
    layers = keras.layers
    made = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            layers.Dense(WIDTH, activation="relu"),
            layers.Dense(WIDTH, activation="relu"),
            layers.Dense(10, activation="softmax", dtype="float32"),
        ]
    )
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def timed_batch() -> int:
    """The batch size whose bare step, the fastest of several short fits, is nearest to `BARE_NS`."""
    steps, found = 100, {}
    for batch in BATCHES:
        made, x, y = model(), *data(batch * steps)
        times = []
        for _ in range(6):
            begin = time.perf_counter_ns()
            made.fit(x, y, batch_size=batch, verbose=0)
            times.append((time.perf_counter_ns() - begin) / steps)
        found[batch] = abs(math.log(min(times) / BARE_NS))
        if min(times) > BARE_NS:
            break
    return min(found, key=lambda batch: found[batch])


def data(rows: int) -> tuple[Any, Any]:
    random = np.random.default_rng(1)
    return random.standard_normal((rows, FEATURES), dtype=np.float32), random.integers(0, 10, rows)


def subject(name: str, folder: Path, clock: Any) -> Any:
    from mpprof import MPProfilerCallback

    match name:
        case "mpprof" | "self":
            return MPProfilerCallback(folder / "run", verbose=0, announce=None, clock=clock)
        case "empty":
            return (EmptyBoth if ENDS else Empty)()
        case "naive":
            return Naive()
        case "tensorboard-epoch" | "tensorboard-batch":
            every = name.removeprefix("tensorboard-")
            return keras.callbacks.TensorBoard(str(folder / name), update_freq=every, profile_batch=0)
    raise ValueError(name)


def measure(names: list[str], steps: int) -> dict[str, Any]:
    steps -= steps % (BLOCK * EPOCH_BLOCKS)
    with tempfile.TemporaryDirectory() as folder:
        switch = Switch()
        subjects = {name: subject(name, Path(folder), switch.clock) for name in names}
        times: list[int] = []
        mine = next((subjects[name] for name in OURS if name in subjects), None)
        if "self" in subjects:
            subjects["self"] = (TimedBoth if ENDS else Timed)(mine, times, ENDS)
        batch, made = timed_batch(), model()
        heard = [mine if name == "self" else subjects[name] for name in names]
        callbacks = switch.list = (fit if "mpprof" in subjects else listed)([switch, *heard], made)
        switch.switch_between(subjects)
        x, y = data(batch * BLOCK * EPOCH_BLOCKS)
        epochs = max(1, steps // (BLOCK * EPOCH_BLOCKS))
        made.fit(x, y, batch_size=batch, epochs=epochs, verbose=0, callbacks=callbacks)
        lines = None if mine is None else Path(folder) / "run" / "mpprof" / "steps.jsonl"
        bytes_per_step = None
        if lines is not None:
            text = lines.read_bytes()
            recorded, ran = text.count(b'"kind":"step"'), sum(name in OURS for name in switch.ran) * BLOCK
            if recorded != ran:
                raise RuntimeError(
                    f"{recorded} steps were recorded of {ran}: what was measured is not recording"
                )
            bytes_per_step = len(text) / ran
    return {**summary(switch.blocks, names), "self_us": spread(times), "bytes_per_step": bytes_per_step}


def summary(blocks: list[tuple[str, float, float]], names: list[str]) -> dict[str, Any]:
    blocks = blocks[WARM_BLOCKS:]
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    for one, other in pairwise(blocks):
        name = one[0] or other[0]
        if name and not (one[0] and other[0]):
            here, without = (one, other) if one[0] else (other, one)
            wall[name].append(here[1] - without[1])
            cpu[name].append(here[2] - without[2])
    bare = [block[1] for block in blocks if not block[0]]
    return {
        "bare_us": statistics.median(bare) / 1e3,
        "added_us": {name: bounds(values) for name, values in wall.items()},
        "added_cpu_us": {name: bounds(values) for name, values in cpu.items()},
    }


def bounds(values: list[float]) -> dict[str, float]:
    """Mean of the added time with its 95 % bounds, in us; `values` in the order of the blocks. A tenth of them
    at each end is left out: there the machine did something else."""
    kept = np.sort(values)[len(values) // 10 : len(values) - len(values) // 10] / 1e3
    mean = float(kept.mean())
    # Standard error of a trimmed mean (Yuen 1974): of the winsorized sample, over the share that is kept.
    winsorized = np.clip(np.asarray(values) / 1e3, kept[0], kept[-1])
    off = winsorized - winsorized.mean()
    # Two differences in a row share a block and err together: what they share counts twice.
    shared = max(0.0, float((off[1:] * off[:-1]).mean()))
    error = (float(off.var(ddof=1)) + 2 * shared) ** 0.5 / (0.8 * len(values) ** 0.5)
    return {"mean": mean, "low": mean - 1.96 * error, "high": mean + 1.96 * error, "pairs": len(values)}


def spread(times: list[int]) -> dict[str, float] | None:
    if not times:
        return None
    kept = np.sort(times[100:]) / 1e3
    return {
        "median": float(np.median(kept)),
        "mean": float(kept.mean()),
        "p95": float(kept[int(0.95 * len(kept))]),
    }


if __name__ == "__main__":
    out, steps, *names = sys.argv[1:]
    Path(out).write_text(json.dumps({"backend": keras.backend.backend(), **measure(names, int(steps))}))
