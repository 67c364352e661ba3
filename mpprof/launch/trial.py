"""A script that is trained under one of several settings: what is changed, left out and told of it.

It ends in `fit`, by `os._exit`, once it has trained long enough. What `mpprof try` has to know of it is left
in a file.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import os
import sys
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from mpprof import child
from mpprof.launch import batches
from mpprof.launch.energy import Energy
from mpprof.launch.fit import Argument, callbacks_in, is_list_object
from mpprof.launch.options import Options, Trial
from mpprof.launch.script import Script
from mpprof.launch.stopping import ending_after
from mpprof.record.keras_compat import Method, keras_of, replace

# Batches that are made ahead of the step, in what a `fit` is given.

AUTO = -1
"""`tf.data.AUTOTUNE`."""

Given = tuple[tuple[Any, ...], dict[str, Any], str | None]
"""Arguments by place and by name, and why they are as they were; None: they are not."""


def prefetched(fit: Method, args: tuple[Any, ...], kwargs: dict[str, Any], size: str) -> Given:
    """Return the arguments of a fit with a tf.data set that prefetches this many batches, or "auto"."""
    x = Argument(fit, "x")
    data = x.of(args, kwargs)
    if not _is_a("DatasetV2", data):
        return args, kwargs, f"a {type(data).__name__} has no prefetch: that is of a tf.data set"
    args, kwargs = x.put(args, kwargs, data.prefetch(AUTO if size == "auto" else int(size)))
    return args, kwargs, None


def with_workers(fit: Method, args: tuple[Any, ...], kwargs: dict[str, Any], count: str) -> Given:
    """Return the arguments of a fit whose PyDataset makes batches in this many workers. It stays the object
    that it is. In Keras 2 `fit` takes their number for a Sequence."""
    data = Argument(fit, "x").of(args, kwargs)
    if "workers" in inspect.signature(fit).parameters and _is_a("Sequence", data):
        args, kwargs = Argument(fit, "workers").put(args, kwargs, int(count))
    elif _is_a("PyDataset", data):
        data.workers = int(count)
    else:
        return args, kwargs, f"a {type(data).__name__} has no workers: those are of a PyDataset"
    return args, kwargs, None


def _is_a(name: str, data: Any) -> bool:
    return any(kind.__name__ == name for kind in type(data).__mro__)


WRITERS = frozenset({
    "BackupAndRestore", "CSVLogger", "ModelCheckpoint", "MPProfilerCallback", "MlflowCallback",
    "RemoteMonitor", "TensorBoard", "WandbCallback", "WandbEvalCallback", "WandbMetricsLogger",
    "WandbModelCheckpoint",
})  # fmt: skip
"""Callbacks that write or send what they see of a training, by their class or one that it derives from."""


class LongEnough:
    """Whether a number of steady steps is enough, and they have lasted so many seconds. `begins` gets the
    first of these numbers."""

    def __init__(
        self,
        steps: int,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
        begins: Callable[[int], None] = lambda steady: None,
    ) -> None:
        self._steps, self._seconds, self._clock, self._begins = steps, seconds, clock, begins
        self._since: float | None = None
        self.steady = 0

    @property
    def steps_reached(self) -> bool:
        """Whether there were enough steps, however long they lasted."""
        return self.steady >= self._steps

    def __call__(self, steady: int) -> bool:
        self.steady = steady
        if self._since is None and steady > 0:
            self._since = self._clock()
            self._begins(steady)
        return (
            steady >= self._steps and self._since is not None and self._clock() - self._since >= self._seconds
        )


class TriedScript(Script):
    """One of several trainings of a script."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        assert options.trial is not None
        self.trial: Trial = options.trial
        self.fits = 0
        self._measures: list[LongEnough] = []
        self._energy = Energy()
        self._loop_model: Any = lambda: None
        self._answer: dict[str, Any] = {"left_out": [], "unchanged": None, "batch": None, "took": None}

    def begin(self) -> None:
        if self.trial.parent:
            child.end_with_parent(self.trial.parent)
        super().begin()

    def _put_into(self, keras: ModuleType) -> None:
        from mpprof.launch import settings

        for policy in self.trial.policies:
            if not settings.has_policy(keras, policy):
                self._answer["refused"] = f"{keras.__name__} has no dtype policy {policy!r}"
                self._leave("refused")
        super()._put_into(keras)
        for name, value in self.trial.sets:
            if name == "steps_per_execution":
                settings.set_compiled(keras, name, int(value))
        replace(keras, "fit", self._prepared)
        replace(keras, "train_on_batch", self._measured)

    def _prepared(self, fit: Method) -> Method:
        """Return `fit` with what the setting changes of its arguments."""
        callbacks = Argument(fit, "callbacks")

        @functools.wraps(fit)
        def fit_prepared(model: Any, *args: Any, **kwargs: Any) -> Any:
            given = callbacks.of(args, kwargs)
            if given is not None and not self.trial.keep_callbacks:
                args, kwargs = callbacks.put(args, kwargs, self._without_writers(given))
            if self.trial.batch != 1:
                args, kwargs, found = batches.times(fit, args, kwargs, self.trial.batch)
                if isinstance(found, str):
                    self._leave_unchanged("the batch", found)
                self._answer["batch"] = found
            for name, value in self.trial.sets:
                args, kwargs, why = self._switched(name, value, fit, model, args, kwargs)
                if why is not None:
                    self._leave_unchanged(name, why)
            history = fit(model, *args, **kwargs)
            self._attempt("reading the last loss", self._look_at_loss, history)
            return history

        return fit_prepared

    def _measured(self, train_on_batch: Method) -> Method:
        """Return `train_on_batch` with a look at how many examples a call outside of `fit` gets."""
        batch = Argument(train_on_batch, "x")

        @functools.wraps(train_on_batch)
        def train_on_batch_measured(model: Any, *args: Any, **kwargs: Any) -> Any:
            if not self.fits and (shape := getattr(batch.of(args, kwargs), "shape", None)):
                self._answer["batch"] = int(shape[0])
            return train_on_batch(model, *args, **kwargs)

        return train_on_batch_measured

    def _look_at_loss(self, history: Any) -> None:
        """Keep whether the last epoch's loss is finite: a fit may end for that after its first step."""
        if losses := history.history.get("loss"):
            self._answer["finite"] = math.isfinite(losses[-1])

    def _switched(
        self, name: str, value: str, fit: Method, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Given:
        """Return the arguments of a fit with one switch, and why it changes nothing; None: it does. Switches
        of the environment and of `compile` are set by now."""
        from mpprof.launch import settings

        if name == "prefetch":
            return prefetched(fit, args, kwargs, value)
        if name == "workers":
            return with_workers(fit, args, kwargs, value)
        if name.startswith("loss_scale"):
            return (
                args,
                kwargs,
                settings.set_loss_scale(getattr(model, "optimizer", None), name, float(value)),
            )
        return args, kwargs, None

    def _leave_unchanged(self, what: str, why: str) -> None:
        self._answer["unchanged"] = f"{what} cannot be changed: {why}"
        self._leave("unchanged")

    def _without_writers(self, given: Any) -> Any:
        kept: list[Any] = []
        left_out: list[Any] = []
        for each in callbacks_in(given):
            writes = any(kind.__name__ in WRITERS for kind in type(each).__mro__)
            (left_out if writes else kept).append(each)
        names = [type(each).__name__ for each in left_out]
        self._answer["left_out"] += [name for name in names if name not in self._answer["left_out"]]
        if not left_out:
            return given
        if is_list_object(given):
            given.callbacks = kept
            return given
        return kept

    # --- what it trains --------------------------------------------------------------------------------

    def _callbacks_of(self, keras: ModuleType, model: Any) -> list[Any]:
        """Return the callbacks of one fit: each fit is a run of its own, in which its steps are counted."""
        from mpprof.record import MPProfilerCallback

        self.fits += 1
        if self.trial.fit not in (None, self.fits):
            return []
        self._energy.open()
        recorded = MPProfilerCallback(
            self.options.logdir, profile_steps=self._profile(), verbose=0, announce=None
        )
        enough, end = self._enough(), functools.partial(self._end_now, model)
        return [ending_after(keras, model, recorded, enough, end, lambda: enough.steps_reached), recorded]

    def _loop_recorder(self, model: Any) -> Any:
        if self.trial.batch != 1:
            self._leave_unchanged("the batch", "train_on_batch is called with batches of the script's own")
        self._loop_model = weakref.ref(model)
        self._energy.open()
        return super()._loop_recorder(model)

    def _profile(self) -> Any:
        return (self.options.profile or "auto") if self.trial.profiles else None

    def _enough(self) -> LongEnough:
        self._measures.append(
            LongEnough(self.options.steps or 1, self.trial.seconds, begins=self._energy.begin)
        )
        return self._measures[-1]

    def _look_at_types(self, model: Any) -> None:
        if self.options.policy is not None:
            from mpprof.launch import settings

            self._answer["took"] = settings.computing_in(model, self.options.policy)
        keras = keras_of(model)  # a process may have imported both
        self._answer["keras"] = None if keras is None else keras.__name__
        self._answer["jit"] = getattr(model, "jit_compile", None)

    # --- its end ---------------------------------------------------------------------------------------

    def _end_now(self, model: Any) -> None:
        self._energy.end(self._steady)
        self._attempt("reading the layers' types", self._look_at_types, model)
        self._leave("steps")

    def _leave(self, reason: str) -> None:
        """Leave what is to be known, and end the process with all that it has started."""
        from mpprof.launch import ending

        for stream in (sys.stdout, sys.stderr):
            self._attempt("writing the script's output", stream.flush)
        self._write_answer(reason)
        self._attempt("ending the script's processes", ending.end_children)
        os._exit(0)

    @property
    def _steady(self) -> int:
        return max((each.steady for each in self._measures), default=0)

    def _say_end(self) -> None:
        self._hook.remove()
        self.machine.stop()
        if (model := self._loop_model()) is not None:  # whose loop may have had enough steps in less time
            self._attempt("reading the layers' types", self._look_at_types, model)
        self._write_answer("error" if getattr(sys, "last_value", None) is not None else "script")

    def _say_notes(self) -> None:
        """Say nothing: `mpprof try` says it, once for all trainings."""

    def _write_answer(self, reason: str) -> None:
        recorder = sys.modules.get("mpprof.record.recorder")
        roots = [] if recorder is None else [root for root in recorder.ROOTS if root.is_dir()]
        from mpprof.record.facts.ended import in_a_line

        error = getattr(sys, "last_value", None)
        told = {
            **self._answer,
            "reason": reason,
            "root": str(roots[-1]) if roots else None,
            "fits": self.fits,
            "steady": self._steady,
            "energy": self._energy.told,
            "asked": self.asked,
            "overridden": self._notes,
            "error": None if error is None else in_a_line(error),
        }
        beside = f"{self.trial.answer}.part"
        with open(beside, "w", encoding="utf-8") as file:
            json.dump(told, file)
        os.replace(beside, self.trial.answer)
