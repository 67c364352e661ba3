"""Scripted trainings under a clock of their own, and what they record: the bytes of the files, without what names the
machine or the moment."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

OF_THE_MACHINE = frozenset(
    {
        "run_id",
        "created_unix_ns",
        "clock",
        "host",
        "framework",
        "devices",
        "pid",
        "started_unix_ns",
        "absent",
        "memory",
    }
    | {"dtype_policy", "loss", "ended"}
)
"""Keys whose values are of the machine, the moment or the installed packages. `loss` is a float of this processor."""


def recorded() -> Iterator[tuple[str, Any]]:
    """Yield what each scripted training records: run.json and the lines of steps.jsonl."""
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


def _kept(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _kept(each) for key, each in value.items() if key not in OF_THE_MACHINE}
    return [_kept(each) for each in value] if isinstance(value, list) else value


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
    made.compile(optimizer, "mse", jit_compile=False)
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
    from mpprof.record import StepRecorder
    from tests.record.wall_time import trainings

    clock = trainings.Clock()
    with StepRecorder(
        root, backend="tensorflow", clock=clock, hardware=False, profile_steps=None, verbose=0
    ) as recorder:
        for _ in recorder.batches(range(10)):
            with recorder.step():
                clock.passes(3_000_000)
            recorder.update(loss_scale=1024.0, skipped=0)
