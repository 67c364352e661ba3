"""Scripted trainings under a clock of their own, and what they record: the bytes of the files, without what names the
machine or the moment."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

OF_THE_MACHINE = frozenset(
    {
        "run_id",
        "created_unix_ns",
        "clock",
        "host",
        "framework",
        "devices",
        "pid",
        "script",
        "started_unix_ns",
        "absent",
        "memory",
    }
    | {"dtype_policy", "loss", "ended"}
)
"""Keys whose values are of the machine, the moment or the installed packages. `loss` is a float of this processor."""


def recorded() -> Iterator[tuple[str, Any]]:
    """Yield what each scripted training records, on the backend of this process: run.json and the lines of
    steps.jsonl."""
    import keras

    for name, train in {"plain": _plain, "skips": _skips, "crash": _crash, "loop": _loop}.items():
        keras.utils.set_random_seed(1)
        keras.utils.clear_session()  # the names of layers count on from those that the process made before
        with tempfile.TemporaryDirectory() as folder:
            train(Path(folder) / "run")
            root = Path(folder) / "run" / "mpprof"
            facts = json.loads((root / "run.json").read_text())
            lines = [json.loads(line) for line in (root / "steps.jsonl").read_text().splitlines()]
            yield name, {"exit": 0, "document": {"run.json": _kept(facts), "steps.jsonl": _kept(lines)}}


def recorded_on_jax() -> Iterator[tuple[str, Any]]:
    """Yield the same of an interpreter of its own, in which Keras runs on JAX."""
    from tests.record.processes import done_on_jax

    with tempfile.TemporaryDirectory() as folder:
        done_on_jax(write, Path(folder))
        yield from json.loads((Path(folder) / "records.json").read_text()).items()


def write(folder: Path) -> None:
    """Write what is recorded where each value that is asked for has arrived when it is looked at, and where none
    has: which it is on a machine is chance."""
    from mpprof.record.backends.jax import _Queued

    records = {}
    for name, arrived in (("at once", True), ("late", False)):
        with mock.patch.object(_Queued, "ready", lambda self, arrived=arrived: arrived):
            records |= {f"{training} {name}": kept for training, kept in recorded()}
    (folder / "records.json").write_text(json.dumps(records))


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _kept(each) for key, each in value.items() if key not in OF_THE_MACHINE}
    return [_kept(each) for each in value if not _compiled(each)] if isinstance(value, list) else value


def _compiled(value: Any) -> bool:
    """Return whether this is a line of a compile that JAX timed: its seconds are real, and how many they are says at
    which step the line is written."""
    return isinstance(value, dict) and value.get("part") == "compile" and "ns" in value


def _plain(root: Path) -> None:
    from tests.record.wall_time import trainings

    made = trainings.model()
    trainings.fit(made, trainings.recorded(root, trainings.Clock()), validation_data=trainings.data())


def _skips(root: Path) -> None:
    """Train in float16 from a scale that overflows twice."""
    import keras

    from tests.record.wall_time import trainings

    made = trainings.model()
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.001), initial_scale=2.0**127)
    made.compile(optimizer, "mse")
    trainings.fit(made, trainings.recorded(root, trainings.Clock(), read_every=1))


def _crash(root: Path) -> None:
    import keras

    from tests.record.wall_time import trainings

    class Breaks(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 7:
                raise RuntimeError("broken on purpose")

    ours = trainings.recorded(root, trainings.Clock())
    _until_it_breaks(lambda: trainings.fit(trainings.model(), ours, Breaks()))
    ours.close()


def _until_it_breaks(work: Callable[[], Any]) -> None:
    try:
        work()
    except RuntimeError:
        return
    raise AssertionError("the training did not break")


def _loop(root: Path) -> None:
    import keras

    from mpprof.record import StepRecorder
    from tests.record.wall_time import trainings

    clock = trainings.Clock()
    with StepRecorder(
        root, backend=keras.backend.backend(), clock=clock, hardware=False, profile_steps=None, verbose=0
    ) as recorder:
        for _ in recorder.batches(range(10)):
            with recorder.step():
                clock.passes(3_000_000)
            recorder.update(loss_scale=1024.0, skipped=0)
