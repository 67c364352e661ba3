"""`mpprof.try_settings`: the settings of a model that a function builds, measured in this process."""

from __future__ import annotations

import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from mpprof.errors import UnableError, UsageError
from mpprof.launch import batches
from mpprof.launch.energy import Energy
from mpprof.launch.settings import computing_in
from mpprof.launch.trial import LongEnough
from mpprof.runs.loading import load_at
from mpprof.trial import measured, trying
from mpprof.trial.ladder import Turn
from mpprof.trial.result import Tried
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import FLOAT32, Choices

FEWEST_STEPS = 20
"""Fewer than these are hardly more than warm-up."""
_MANY_EPOCHS = 1_000_000


def try_settings(
    build_model: Callable[[], Any],
    data: Any,
    *,
    policies: Sequence[str] = (FLOAT32, "mixed_bfloat16"),
    jit: Sequence[bool] = (),
    batch: Sequence[float] = (),
    together: bool = False,
    steps: int = 60,
    seconds: float = trying.LEAST_S,
    minutes: float = 20.0,
    most_rounds: int | None = None,
    logdir: str | Path | None = None,
    say: Callable[[str], None] = print,
    **fit: Any,
) -> Tried:
    """Train a model under several settings that take turns, and say which one pays, as `mpprof try` does.

    Args:
        build_model: returns a new compiled model; called for each training, with the policy set.
        data: what `fit` takes first: a data set, a PyDataset, or (x, y) or (x, y, sample_weight) arrays. It
            is iterated again for each training.
        policies: names of dtype policies; the others are compared with the first.
        jit: whether to compile with XLA, in the order to try; empty: as the model is compiled.
        batch: times `batch_size`, or the batch of a `tf.data` set, e.g. (2, 4); empty: no other batch.
        together: try all combinations, instead of one change after the other.
        steps: steady steps of a training, at least 20.
        seconds: the least time that the steady steps last.
        minutes: the most that all trainings may take together.
        most_rounds: of each rung, four or more; None: until the speedups are known, or the time is spent.
        logdir: where the runs go, LOGDIR/<setting>/<round>; None: a new temporary directory.
        say: is called with a line on each training.
        fit: further arguments of `fit`.

    The trainings share this process: what the first one warms up is warm for the others. The policy is
    restored afterwards. Printing the result gives the table; `to_dict()` is the document of `mpprof try
    --format json`.

    Raises `UsageError` for arguments of other kinds; `UnableError` where nothing can be measured, as when the
    data run out.
    """
    import keras

    names = _checked(build_model, data, steps, policies)
    choices = Choices(names, tuple(jit), (1.0, *(float(each) for each in batch)) if batch else ())
    if max(map(len, (choices.policies, choices.jit, choices.batches))) < 2:
        raise UsageError("that is one setting alone", next='Name two: policies=("float32", "mixed_float16")')
    path = Path(logdir) if logdir is not None else Path(tempfile.mkdtemp(prefix="mpprof-"))
    asked = trying.Asked(
        (), "build_model", path, choices,
        together=together, steps=steps, minutes=minutes, most_rounds=most_rounds,
    )  # fmt: skip
    train = _Training(keras, build_model, data, fit, steps, seconds, path)
    with _policy_restored(keras):
        try:
            return trying.climb(asked, train, say)
        except UnableError as error:
            raise error from train.error


class _Training:
    """Trains the model once for each turn. `error`: the last one that a training raised."""

    def __init__(
        self, keras: Any, build: Callable[[], Any], data: Any, fit: dict[str, Any],
        steps: int, seconds: float, path: Path,
    ) -> None:  # fmt: skip
        self._keras, self._build, self._data, self._fit = keras, build, data, fit
        self._steps, self._seconds, self._path = steps, seconds, path
        self.error: Exception | None = None

    def __call__(self, turn: Turn, within_s: float) -> Trained:
        from mpprof.record import MPProfilerCallback

        begun = time.monotonic()
        root = self._path / turn.setting.folder / str(turn.round)
        profile: Any = "auto" if turn.round == 1 else None
        recorded = MPProfilerCallback(root, profile_steps=profile, verbose=0, announce=None)
        facts = Trained(turn.setting, turn.rung, turn.cycle, turn.round, seconds=0.0)
        energy = Energy()
        energy.open()
        enough = LongEnough(self._steps, self._seconds, begins=energy.begin)
        try:
            told = self._train(turn, recorded, enough, begun + within_s)
            energy.end(enough.steady)
            told["energy"] = energy.told
        except (UsageError, KeyboardInterrupt):
            raise
        except Exception as error:  # noqa: BLE001 - of one setting: the others go on
            self.error = error
            told = {"error": measured.in_short(error)}
        finally:
            recorded.close()
            gc.collect()  # the model, before the next one needs its memory
        facts = replace(
            facts,
            seconds=time.monotonic() - begun,
            root=None if recorded.root is None else str(recorded.root),
        )
        if why := told.get("error"):
            return replace(facts, error=why)
        run = None if recorded.root is None else load_at(recorded.root)
        if enough.steady < self._steps or run is None:
            return replace(
                facts,
                error=measured.too_few(
                    enough.steady, self._steps, finite=None if run is None else measured.is_finite(run)
                ),
                script_failed=True,
            )
        return measured.of_run(facts, run, told)

    def _train(self, turn: Turn, recorded: Any, enough: LongEnough, end_s: float) -> dict[str, Any]:
        setting, keras = turn.setting, self._keras
        keras.config.set_dtype_policy(setting.policy)
        model = self._build()
        if not isinstance(model, keras.Model):
            raise UsageError(
                f"build_model returned a {type(model).__module__.partition('.')[0]} {type(model).__name__}",
                next="Let it return a compiled model of Keras 3",
            )
        if setting.jit is not None:
            model.jit_compile = setting.jit
        inputs = self._data if isinstance(self._data, tuple) else (self._data,)
        given = {**dict(zip(("x", "y", "sample_weight"), inputs, strict=False)), "verbose": 0, **self._fit}
        told: dict[str, Any] = {}
        if setting.batch != 1:
            _, given, found = batches.times(keras.Model.fit, (), given, setting.batch)
            if isinstance(found, str):
                return {"error": f"the batch cannot be changed: {found}"}
            told["batch"] = found
        others = given.get("callbacks") or ()
        others = others if isinstance(others, list | tuple) else (others,)
        callbacks = [recorded, _stop_after(keras, recorded, enough, end_s), *others]
        model.fit(**{"epochs": _MANY_EPOCHS, **given, "callbacks": callbacks})
        return {**told, "took": computing_in(model, str(setting.policy)), "jit": model.jit_compile is True}


def _stop_after(keras: Any, recorded: Any, enough: LongEnough, end_s: float) -> Any:
    """Return a callback that ends a training once its steady steps are enough, or the time is spent."""

    class StopAfter(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            # Not at a batch's end: see MPProfilerCallback. The call that begins here is the last.
            steady = recorded.steady_steps
            if steady is None or enough(steady) or time.monotonic() > end_s:
                self._model.stop_training = True

    return StopAfter()


@contextmanager
def _policy_restored(keras: Any) -> Iterator[None]:
    before = keras.config.dtype_policy()
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def _checked(build_model: Any, data: Any, steps: Any, policies: Any) -> tuple[str, ...]:
    """Return the policies' names."""
    import keras

    if isinstance(build_model, keras.Model) or not callable(build_model):
        raise UsageError(
            f"build_model is not a function, but a {type(build_model).__name__}",
            next="Give a function that builds and compiles the model: its layers take the policy when built",
        )
    if type(steps) is not int or steps < FEWEST_STEPS:
        raise UsageError(
            f"steps is {steps!r}, not a whole number of at least {FEWEST_STEPS}", next="steps=60 is usual"
        )
    if isinstance(data, tuple) and not 1 <= len(data) <= 3:
        raise UsageError(
            f"data is a tuple of {len(data)} values", next="Give (x, y) or (x, y, sample_weight)"
        )
    given = [policies] if isinstance(policies, str) else list(policies)
    names = tuple(dict.fromkeys(str(getattr(policy, "name", policy)) for policy in given))
    for name in names:
        try:
            keras.DTypePolicy(name)
        except (TypeError, ValueError) as error:
            raise UsageError(f"no policy {name!r}", next='Give names such as "mixed_float16"') from error
    return names
