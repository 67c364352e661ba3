"""Trainings with a clock of their own: known seconds pass at a known place, and nothing else takes time. For the
tests of each backend, in a process of that backend."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import keras
import numpy as np

from mpprof.analysis.steps.run_time import run_time
from mpprof.record import MPProfilerCallback
from mpprof.runs.loading import load

BATCH, STEPS, EPOCHS = 4, 12, 2
TICK_NS = 1_000
SECOND = 1_000_000_000
AT_ONCE = 50_000_000
"""What a slow hook takes."""


class Clock:
    """Nanoseconds: a little at each look, and what is passed."""

    def __init__(self) -> None:
        self.now = 5 * SECOND

    def __call__(self) -> int:
        self.now += TICK_NS
        return self.now

    def passes(self, ns: int) -> None:
        self.now += ns


def model() -> Any:
    made = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    made.compile("sgd", "mse")
    return made


def data() -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    return (
        random.standard_normal((BATCH * STEPS, 3)).astype("float32"),
        random.standard_normal((BATCH * STEPS, 2)).astype("float32"),
    )


class Slow(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Takes time at one hook, each `every` calls."""

    def __init__(self, hook: str, passes: Callable[[int], None], every: int = 1) -> None:
        super().__init__()
        calls = Counter[str]()

        def slow(*arguments: Any, **more: Any) -> None:
            calls[hook] += 1
            if calls[hook] % every == 0:
                passes(AT_ONCE)

        setattr(self, hook, slow)


class Batches(keras.utils.PyDataset):  # type: ignore[misc]
    def __init__(
        self, before: Callable[[], None] = lambda: None, at_end: Callable[[], None] = lambda: None
    ) -> None:
        super().__init__()
        self.before, self.on_epoch_end = before, at_end

    def __len__(self) -> int:
        return STEPS

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        self.before()
        x, y = data()
        rows = slice(index * BATCH, (index + 1) * BATCH)
        return x[rows], y[rows]


def generated(before: Callable[[], None] = lambda: None) -> Iterator[tuple[Any, Any]]:
    x, y = data()
    k = 0
    while True:
        before()
        rows = slice(k * BATCH, (k + 1) * BATCH)
        yield x[rows], y[rows]
        k = (k + 1) % STEPS


def recorded(root: Path, clock: Callable[[], int], **more: Any) -> Any:
    return MPProfilerCallback(
        root, clock=clock, hardware=False, profile_steps=None, verbose=0, announce=None, audit=False, **more
    )


def fit(made: Any, *callbacks: Any, x: Any = None, **more: Any) -> Any:
    given = {"x": x} if x is not None else dict(zip("xy", data(), strict=True)) | {"batch_size": BATCH}
    return made.fit(**given, epochs=EPOCHS, shuffle=False, verbose=0, callbacks=list(callbacks), **more)


def told(root: Path) -> dict[str, Any]:
    """What the records tell of the wall time. Of each sum `part/name/at` the nanoseconds."""
    lines = [json.loads(line) for line in (root / "mpprof" / "steps.jsonl").read_text().splitlines()]
    spent: Counter[str] = Counter()
    for line in lines:
        if line.get("kind") == "spent":
            spent["{part}/{name}/{at}".format(**line)] += line.get("ns", 0)
    of = {kind: [line for line in lines if line.get("kind") == kind] for kind in ("fit", "fit_end", "epoch")}
    return {
        "spent": dict(spent),
        "wall": sum(end["t_ns"] - begin["t_ns"] for begin, end in zip(of["fit"], of["fit_end"], strict=True)),
        "epochs": [line["end_ns"] - line["begin_ns"] for line in of["epoch"]],
        "validation": sum(line["duration_ns"] for line in lines if line.get("kind") == "validation"),
        "duration": sum(line.get("duration_ns", 0) for line in lines),
        "gap": sum(line.get("gap_ns", 0) for line in lines),
        "stalls": [
            (line["name"], line["first_step"], line["last_step"])
            for line in lines
            if line.get("kind") == "spent" and line["calls"] == 1 and line.get("ns", 0) >= AT_ONCE
        ],
        "reasons": [line["reason"] for line in of["fit_end"]],
        "absent": json.loads((root / "mpprof" / "run.json").read_text())["absent"],
    }


def slow_hooks(folder: Path, made: Any) -> dict[str, Any]:
    """The same slow callback before ours in the list and behind it, and none."""
    hooks = {
        "on_train_batch_begin": 1,
        "on_train_batch_end": 5,  # as a checkpoint every five steps
        "on_epoch_begin": 1,
        "on_epoch_end": 1,
        "on_train_begin": 1,
        "on_test_begin": 1,
        "on_test_batch_end": 1,
    }
    x, y = data()
    answers = {}
    for name, every in [("nothing", 1), *hooks.items()]:
        for order in (1, -1):
            root, clock = folder / f"{name}{order}", Clock()
            slow = [] if name == "nothing" else [Slow(name, clock.passes, every)]
            ours = recorded(root, clock)
            fit(made, *[ours, *slow][::order], validation_data=(x[:8], y[:8]), validation_batch_size=4)
            answers[f"{name}{order}"] = told(root)
    return answers


def slow_inputs(folder: Path, made: Any) -> dict[str, Any]:
    """Inputs whose every batch takes time, and whose fifth does."""
    answers = {}
    for name in ("arrays", "PyDataset", "generator"):
        for every in (0, 1, 5):
            root, clock, calls = folder / f"{name}{every}", Clock(), [0]

            def before(clock: Clock = clock, calls: list[int] = calls, every: int = every) -> None:
                calls[0] += 1
                if every and calls[0] % every == 0:
                    clock.passes(AT_ONCE)

            x = {"arrays": None, "PyDataset": Batches(before), "generator": generated(before)}[name]
            more = {"steps_per_epoch": STEPS} if name == "generator" else {}
            fit(made, recorded(root, clock), x=x, **more)
            answers[f"{name}{every}"] = {**told(root), "fetched": calls[0]}
    return answers


def slow_ends(folder: Path, made: Any) -> dict[str, Any]:
    """Data whose every epoch takes time to end: by a PyDataset's own hook, and after a generator's last batch."""
    answers = {}
    for name, ns in (("plain", 0), ("PyDataset", AT_ONCE), ("generator", AT_ONCE)):
        clock, root = Clock(), folder / name

        def at_end(clock: Clock = clock, ns: int = ns) -> None:
            clock.passes(ns)

        def ends(at_end: Callable[[], None] = at_end) -> Iterator[tuple[Any, Any]]:
            yield from itertools.islice(generated(), STEPS)
            at_end()

        fit(made, recorded(root, clock), x=ends() if name == "generator" else Batches(at_end=at_end))
        run = load(root)
        times = run_time(run)
        answers[name] = {
            "parts": {part.name: part.ns for part in times.parts},
            "longest": max(run.steps.interval_ns.tolist()),
            "batches": told(root)["spent"].get(f"input/{name}/batch", 0),
        }
    return answers


def digest(made: Any) -> str:
    weights = [*made.weights, *made.optimizer.variables]
    return hashlib.sha256(b"".join(np.asarray(each.value).tobytes() for each in weights)).hexdigest()
