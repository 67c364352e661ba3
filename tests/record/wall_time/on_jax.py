"""The trainings of `test_on_jax.py`, in one process with Keras on JAX."""

from __future__ import annotations

import gc
import itertools
import json
import time
import weakref
from pathlib import Path
from typing import Any

from mpprof.model.limits import LONG_CALL_NS
from tests.record.training import seed


def train(folder: Path) -> None:
    from tests.record.wall_time import trainings

    made = trainings.model()
    answers = {
        "hooks": trainings.slow_hooks(folder / "hooks", made),
        "inputs": trainings.slow_inputs(folder / "inputs", made),
        "ends": trainings.slow_ends(folder / "ends", made),
        "same": same(folder / "same"),
        "asynchronous": asynchronous(folder / "asynchronous", made),
        "compiles": compiles(folder / "compiles"),
        "own loop": own_loop(folder / "own loop"),
        "freed": freed(folder / "freed", made),
    }
    (folder / "answers.json").write_text(json.dumps(answers))


def same(folder: Path) -> dict[str, list[Any]]:
    """What comes of trainings without our callback and with it."""
    from tests.record.wall_time import trainings

    def one(kind: str, root: Path | None) -> Any:
        seed(2)
        made, seen = trainings.model(), []
        ours = [] if root is None else [trainings.recorded(root, trainings.Clock())]

        class Sees(trainings.Batches):  # type: ignore[misc]  # keras has no types
            def __getitem__(self, index: int) -> Any:
                seen.append(index)
                if kind == "breaks" and index == 9:
                    raise LookupError("broken on purpose")
                return super().__getitem__(index)

        batches = Sees() if kind != "ends" else (each for each in itertools.islice(trainings.generated(), 17))
        try:
            trainings.fit(made, *ours, x=batches, **({"steps_per_epoch": 12} if kind == "ends" else {}))
            error = None
        except LookupError as found:
            error = str(found)
            for each in ours:
                each.close()
        return [trainings.digest(made), seen, error]

    return {kind: [one(kind, None), one(kind, folder / kind)] for kind in ("whole", "breaks", "ends")}


def asynchronous(folder: Path, made: Any) -> list[bool]:
    import keras

    from tests.record.wall_time import trainings

    made_lists = []
    make = keras.callbacks.CallbackList.__init__

    def noting(self: Any, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        made_lists.append(self)

    keras.callbacks.CallbackList.__init__ = noting
    try:
        for k in range(2):
            trainings.fit(made, trainings.recorded(folder / str(k), trainings.Clock()))
    finally:
        keras.callbacks.CallbackList.__init__ = make
    return [bool(each._async_train) for each in made_lists]


def compiles(folder: Path) -> list[Any]:
    import jax
    import keras
    from jax._src import monitoring

    from tests.record.wall_time import trainings

    class Compiles(keras.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            jax.jit(lambda a: a * (batch + 2.5))(1.0)

    before = len(monitoring.get_event_duration_listeners())
    x, y = trainings.data()
    made, ours = trainings.model(), trainings.recorded(folder, time.monotonic_ns)
    for more in ([], [Compiles()]):
        trainings.fit(made, ours, *more, validation_data=(x[:8], y[:8]))
    lines = [json.loads(line) for line in (folder / "mpprof" / "steps.jsonl").read_text().splitlines()]
    found: list[dict[str, int]] = [{}, {}]
    for line in lines:
        if line.get("part") == "compile":
            of = found[line["fit"] - 1]
            of[line["at"]] = of.get(line["at"], 0) + line["ns"]
    return [*found, [before, len(monitoring.get_event_duration_listeners())]]


def own_loop(folder: Path) -> list[list[Any]]:
    """Of each long compile the place, the first and the last step, in a loop that makes its own list of
    callbacks, and whose third batch has another shape."""
    import jax
    import keras

    from tests.record.wall_time import trainings

    class Compiles(keras.callbacks.Callback):  # type: ignore[misc]
        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            jax.jit(lambda a: a * 3.5)(1.0)

    x, y = trainings.data()
    made, ours = trainings.model(), trainings.recorded(folder, time.monotonic_ns)
    hooks = keras.callbacks.CallbackList([Compiles(), ours], model=made, epochs=1, steps=4)
    hooks.on_train_begin()
    hooks.on_epoch_begin(0)
    for batch in range(4):
        hooks.on_train_batch_begin(batch)
        made.train_on_batch(x[: 8 - batch // 2], y[: 8 - batch // 2])
        hooks.on_train_batch_end(batch)
    hooks.on_epoch_end(0)
    hooks.on_train_end()
    ours.close()
    lines = [json.loads(line) for line in (folder / "mpprof" / "steps.jsonl").read_text().splitlines()]
    of = [line for line in lines if line.get("part") == "compile" and line["ns"] >= LONG_CALL_NS]
    return [[line["at"], line["first_step"], line["last_step"]] for line in of]


def freed(folder: Path, made: Any) -> bool:
    """Whether the batches of a fit are freed at its end, without the collector of cycles."""
    from tests.record.wall_time import trainings

    batches = trainings.Batches()
    held = weakref.ref(batches)
    gc.collect()
    gc.disable()
    try:
        trainings.fit(made, trainings.recorded(folder, trainings.Clock()), x=batches)
        del batches
        return held() is None
    finally:
        gc.enable()
