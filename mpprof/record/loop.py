"""`StepRecorder`: the same records from a training loop of one's own, with or without Keras."""

from __future__ import annotations

import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from mpprof.errors import UsageError
from mpprof.model import limits
from mpprof.record.alarms import Seen, checked
from mpprof.record.arguments import (
    checked_announce,
    checked_batch_size,
    checked_callable,
    checked_clock,
    checked_logdir,
)
from mpprof.record.backends import PROBES, Probe, probe_for
from mpprof.record.backends.base import Absent, Facts
from mpprof.record.end_of_fit import ANNOUNCE, Announce, last_line, tell
from mpprof.record.facts.dataset import describe_input
from mpprof.record.facts.ended import NO_WEIGHTS, ended
from mpprof.record.facts.fit import Evaluation
from mpprof.record.profile.window import Plan, ProfileSteps
from mpprof.record.profile.window_signal import SignalledWish, checked_signal
from mpprof.record.recorder import Recorder, warn_once
from mpprof.record.run_with_timeout import failures_suppressed
from mpprof.record.session import ASYNCHRONOUS_NOTE, FitSession
from mpprof.record.step_line import Line
from mpprof.record.wall_time.input import InputWait

T = TypeVar("T")

_ALARMING = frozenset({"loss", "loss_scale", "skipped"})

RESERVED = frozenset(
    {"kind", "step", "fit", "epoch", "batch", "covers", "t_ns", "synced", "profiled", "memory", "interval_ns"}
    | {"interval_calls", "duration_ns", "dispatch_ns", "gap_ns"}
)
"""Keys of a step line that are not the loop's to give."""

NO_PROFILER = "not wanted: there is no profiler without a framework (give backend=)"
SKIPS_ARE_READ = "update(skipped=…) is ignored: skipped steps are read from the optimizer's own counters"

HOST_NOTE = (
    "A loop of the user's own, timed on the host from step begin to step begin. If a step's block does not "
    "wait for the device, this is the time of the dispatch; only its mean over many steps is the "
    "device's time."
)


class StepRecorder:
    """Record a training loop.

        with StepRecorder("logs/run1", optimizer=optimizer) as recorder:
            for x, y in recorder.batches(data):
                with recorder.step():
                    loss = train_step(x, y)
                recorder.update(loss=float(loss))

    Args:
        logdir: as for `MPProfilerCallback`.
        model, optimizer: Keras objects, if there are any: the model's layers are described, and loss scale
            and skipped steps are read from the optimizer's variables. A JAX loop holds these itself and hands
            them over after each step (and before the first, where they are not new):
            `update(optimizer_variables=…)`. Without an optimizer give `update(loss_scale=…, skipped=…)`: with
            torch's GradScaler its `get_scale()`, and `skipped=1` if that fell in `scaler.update()`. Where a
            LossScaleOptimizer's own counters are read, `skipped` is ignored, with one warning.
        wait: a function that waits for the device, where a step's block does not: `torch.cuda.synchronize`
            or `lambda: jax.block_until_ready(params)`. It is called every `read_every` steps, and step times
            are then means between two waits.
        backend: "tensorflow", "jax" or "torch"; None: Keras' backend, or the framework that is imported.
        batch_size: the global batch, in examples; None: not recorded.
        profile_steps, read_every, hardware, verbose, announce, stop_on, window_signal, clock: as for
            `MPProfilerCallback`.

    Attributes:
        stop_requested: whether an alarm of `stop_on` was raised; the loop itself has to stop.

    A failure of the recorder does not stop the loop. Steps after the recorder's end are not recorded, with
    one warning. Raises `UsageError` for wrong arguments, for a step within a step or before the recorder was
    entered, and where it is entered twice.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        model: Any = None,
        optimizer: Any = None,
        wait: Callable[[], Any] | None = None,
        backend: str | None = None,
        batch_size: int | None = None,
        profile_steps: ProfileSteps = "auto",
        read_every: int = 16,
        hardware: bool = True,
        verbose: int = 1,
        announce: Announce | str | None = ANNOUNCE,
        stop_on: str | Iterable[str] = (),
        window_signal: int | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        plan = Plan.of(profile_steps)
        stopping = checked(stop_on)
        checked_callable("wait", wait)
        self._recorder = Recorder(checked_logdir(logdir), hardware=hardware, clock=checked_clock(clock))
        self._loop = _Loop(model, optimizer if optimizer is not None else getattr(model, "optimizer", None))
        name = backend or _loaded_backend()
        if name != "none" and name not in PROBES:
            raise UsageError(f"no backend {name!r}", next=f"Give one of {', '.join(PROBES)}")
        probe = probe_for(name)
        if name == "none" and plan is not None and plan.auto:
            plan = None  # there is no profiler
        size = checked_batch_size(batch_size)
        self._session = _LoopSession(self._recorder, probe, plan, read_every, wait, size, stopping)
        self._session.observer.stop = self._request_stop
        if (number := checked_signal(window_signal)) is not None:
            self._session.signalled = SignalledWish(number, self._session.profiling.wish)
        self.stop_requested = False  # by an alarm of `stop_on`: the loop's own matter to obey
        self._verbose, self._announce, self._clock = verbose, checked_announce(announce), clock
        self._batch = self._epoch = 0
        self._in_step = self._entered = self._ended = False
        self._epoch_ends = False  # as was told within its last step
        self._values: dict[str, Any] = {}
        self._said: set[str] = set()

    def _request_stop(self) -> None:
        self.stop_requested = True

    @property
    def root(self) -> Path | None:
        """The directory of this run. None before the recorder was entered."""
        return self._recorder.root if self._recorder.facts else None

    @property
    def steady_steps(self) -> int:
        """Steps whose time counts: after the warm-up, and not profiled."""
        return self._session.observer.timed_steps

    def __enter__(self) -> StepRecorder:
        if self._entered:
            raise UsageError(
                "a StepRecorder was entered twice", next="Make a new StepRecorder for each training"
            )
        self._entered = True
        self._attempt(self._session.open, self._loop)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None and self._recorder.facts:
            self._recorder.facts["ended"] = self._recorder.attempt("ended", ended, error)
        self._attempt(self._session.finish, "finished" if kind is None else "interrupted")
        if self._verbose and self._recorder.on:
            with failures_suppressed():  # all is on disk: what is said of it is an extra
                tell([last_line(self._announce, self._recorder.root, self._session.summary)])
        if self._recorder.on:
            self._attempt(self._session.end_of_exit)
        self._recorder.close()
        self._ended = True

    @contextlib.contextmanager
    def step(self) -> Iterator[None]:
        """Record the `with` block as one optimizer step."""
        if self._in_step:
            raise UsageError(
                "step() was called within a step", next="Leave the block of recorder.step() first"
            )
        if not self._entered:
            raise UsageError(
                "step() was called before the recorder was entered",
                next="Write: with StepRecorder(…) as recorder:",
            )
        if self._ended:
            self._say_once("a step after the recorder has ended is not recorded")
        self._in_step, self._epoch_ends = True, False
        try:
            self._attempt(self._session.begin, self._batch)
            yield
            self._attempt(self._session.end, None)
            self._batch += 1
            self._give()
        finally:
            self._in_step = False
        if self._epoch_ends:
            self.epoch()

    def update(self, **values: Any) -> None:
        """Record values of the current step; between steps, of the step before.

        Args:
            values: `loss`, `loss_scale`, `skipped` (updates skipped since the last call that gave it) and
                numbers of other names, which are kept under their names; None: not known on this step. A
                value on a device is fetched, which waits for it. A value that is not a number gives one
                warning, and its name is no longer recorded. `optimizer_variables`: a JAX loop's, read only
                on the steps that `read_every` chooses.

        Late values (after `epoch()`, within or after `validation()`) are credited to the last step, in a
        line of their own (kind `update`). Before the first step, and after the recorder's end, values are
        ignored with one warning, but for `optimizer_variables` before the first step.
        """
        self._values.update(values)
        if self._in_step:
            return
        if self._ended:
            self._values.clear()
            self._say_once("an update after the recorder has ended is not recorded")
        elif self._give() and not self._session.calls.step:
            self._say_once("update() before the first step was ignored")

    def batches(self, data: Iterable[T]) -> Iterator[T]:
        """Iterate over `data`, and record the wait for each batch as the next step's `input_wait_ns`."""
        self._attempt(self._session.describe_data, data)
        iterator = iter(data)
        while True:
            begin = self._clock()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            self._session.waited_for_batch(self._clock() - begin)
            yield batch

    def epoch(self) -> None:
        """Begin a new epoch: batches count from 0 again; the time since the last step belongs to no step.
        Within a step, the epoch begins when the step has ended."""
        if self._in_step:
            self._epoch_ends = True
            return
        self._attempt(self._session.end_epoch)
        self._attempt(self._session.close_epoch)
        self._epoch, self._batch = self._epoch + 1, 0
        self._attempt(self._session.start_epoch, self._epoch)

    @contextlib.contextmanager
    def validation(self) -> Iterator[None]:
        """Record the `with` block as a validation; its time belongs to no step."""
        self._attempt(self._session.start_validation)
        try:
            yield
        finally:
            self._attempt(self._session.end_validation)
            if not self._in_step:
                self._attempt(self._session.start_epoch, self._epoch)

    def _give(self) -> bool:
        """Hand on what was told; whether that were values."""
        values, self._values = self._values, {}
        variables = values.pop("optimizer_variables", None)
        if variables is not None:
            self._attempt(self._session.take, list(variables))
        if values:
            self._attempt(self._session.add, values)
        return bool(values)

    def _say_once(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            warn_once("mpprof: %s", text)

    def _attempt(self, work: Callable[..., None], *arguments: Any) -> None:
        if self._recorder.works("recording"):
            self._recorder.attempt("recording", work, *arguments)
            if not self._recorder.works("recording"):  # a profiler must not run on
                self._recorder.attempt("closing", self._session.abandon)


NO_TRACINGS = "a loop of the user's own has no train function whose tracings could be counted"


class _Loop:
    """Stands where `fit` has its model."""

    steps_per_execution = 1

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer


def _loaded_backend() -> str:
    keras = sys.modules.get("keras")
    if keras is not None and hasattr(keras, "backend"):
        return str(keras.backend.backend())
    return next((name for name in PROBES if name in sys.modules), "none")


def _count(name: str, value: Any, most: int) -> int:
    """Return a value of `update` as a whole number. Raises `UsageError` where it is not between 0 and `most`:
    a step line that holds it could not be read."""
    count = int(value)
    if not 0 <= count <= most:
        raise UsageError(f"update({name}=…) is not between 0 and {most:,}", next="Give a count")
    return count


class _LoopSession(FitSession):
    """Steps of a loop: begins and ends are seen on every backend, and waiting is the loop's own matter."""

    def __init__(
        self,
        recorder: Recorder,
        probe: Probe,
        plan: Plan | None,
        read_every: int,
        wait: Callable[[], Any] | None,
        batch_size: int | None,
        stop_on: frozenset[str],
    ) -> None:
        super().__init__(recorder, probe, plan, read_every, stop_on)
        self.queues = False
        self.runs_behind = wait is not None
        self._device_wait = wait
        self._loop_batch_size = batch_size
        self._wait_for_batch_ns: int | None = None
        self._finish_ns = 0
        self._scale_at = self._skipped_at = 0  # the step for which the loop gave them last

    def open(self, loop: _Loop) -> None:
        self.start_fit(loop, None)
        self.start_epoch(0)

    def finish(self, reason: str) -> None:
        self._finish_ns = self._clock()
        self.end_epoch()
        self.close_epoch()
        if self.in_fit:
            self._end_fit(reason)

    def end_of_exit(self) -> None:
        """Write what we have done since `finish` began."""
        self.spend_end(self._finish_ns)

    def goes_on(self) -> bool:
        """Return whether the loop goes on. Its end is always told; a recorder without any reference has
        ended."""
        return self.model is not None

    def _whose_evaluation(self) -> Evaluation:
        return Evaluation.WITHIN_EPOCH if self.calls.is_open else Evaluation.OF_FIT

    def waited_for_batch(self, wait_ns: int) -> None:
        self._wait_for_batch_ns = wait_ns
        if self._input is not None:
            self._input.waited(wait_ns)

    def end(self, logs: dict[str, Any] | None, now: int | None = None) -> None:
        before = self.calls.step
        super().end(logs, now)
        line = self.calls.ended_line()
        if line is None:
            return
        if self._wait_for_batch_ns is not None:
            line.input_wait_ns, self._wait_for_batch_ns = self._wait_for_batch_ns, None
            self.recorder.absent.pop("input_wait_ns", None)
        if self.runs_behind and self.profiling.window is None and self._waits(before, self._clock()):
            self._wait(line)

    def add(self, values: dict[str, Any]) -> None:
        """Add values to the line of the step that ended last, or where that is written already to a line of
        their own."""
        line = self.calls.ended_line() or self._late_line()
        if line is None:
            return
        before = line.skipped or 0
        taken = [
            name
            for name, value in values.items()
            if value is not None  # else the loop does not know it on this step
            and self.recorder.attempt(f"update.{name}", self._add, line, name, value)
        ]
        if not _ALARMING.isdisjoint(taken):
            self._look_at_given(line, taken, before)
        self._put_late(line)

    def _late_line(self) -> Line | None:
        """Return a line for what comes after the last step's line was written; None where no step has run."""
        calls = self.calls
        return Line(calls.step, calls.fit, calls.epoch, 0, 1) if calls.step and self._active() else None

    def _put_late(self, line: Line) -> None:
        if line is self.calls.ended_line():
            return
        told = {name: getattr(line, name) for name in ("loss", "loss_scale", "skipped", "input_wait_ns")}
        values = {name: value for name, value in told.items() if value is not None} | (line.values or {})
        if values:
            t_ns = self._clock() - self.recorder.zero_ns
            self.recorder.put({"kind": "update", "step": line.step, "t_ns": t_ns, **values})

    def _look_at_given(self, line: Line, taken: list[str], skipped_before: int) -> None:
        """Check whether the values that the loop has given are a reason for an alarm."""
        loss = line.loss if "loss" in taken else None
        if taken == ["loss"] and loss is not None and math.isfinite(loss):
            return  # as nearly always
        skipped = scale = None
        span = 0
        if "loss_scale" in taken:
            scale = line.loss_scale
            # Where the optimizer is read, its own readings count the steps at a scale.
            span, self._scale_at = 0 if self.observer.counts_skips else line.step - self._scale_at, line.step
        if "skipped" in taken:
            skipped = (line.skipped or 0) - skipped_before
            span, self._skipped_at = line.step - self._skipped_at, line.step
        self.observer.alarm(Seen(line.step, span, skipped, scale, loss))

    def _add(self, line: Line, name: str, value: Any) -> bool:
        """Add a value to a line, and return whether it was taken. Raises where the value is no number, or the
        name is one of the recorder's own."""
        if name in RESERVED:
            raise UsageError(f"update({name}=…) is reserved for the recorder", next="Choose another name")
        if name == "skipped":
            if self.observer.counts_skips:
                self._ignore_skips()
                return False
            count = _count(name, value, limits.MOST_SKIPPED - (line.skipped or 0))
            self.observer.leave_skips()
            line.skipped = (line.skipped or 0) + count
            self.observer.skipped = (self.observer.skipped or 0) + count
        elif name == "input_wait_ns":
            line.input_wait_ns = _count(name, value, limits.LARGEST_NUMBER)
        elif name in ("loss", "loss_scale"):
            setattr(line, name, float(value))
            self.observer.scale_told |= name == "loss_scale"
        else:
            line.values = {**(line.values or {}), name: float(value)}
            return True
        self.recorder.absent.pop(name, None)
        return True

    def _ignore_skips(self) -> None:
        if "update.skipped" not in self.recorder.absent:
            self.recorder.absent["update.skipped"] = SKIPS_ARE_READ
            warn_once("mpprof: %s", SKIPS_ARE_READ)

    def take(self, variables: list[Any]) -> None:
        """Take the optimizer's variables after the step that ended last, or before the first one."""
        optimizer, line = self.model.optimizer, self.calls.ended_line() or self._late_line()
        if optimizer is None or not self._active():
            return
        if line is None:
            self.observer.start_counting(optimizer, self.probe.handed(optimizer, variables))
        elif self.observer.schedule.due(line.step - 1, line.step):
            reading = self.probe.handed(optimizer, variables)
            if reading is not None:
                self.recorder.absent.pop("skipped", None)
                if reading.loss_scale is not None:
                    self.recorder.absent.pop("loss_scale", None)
                self.observer.note(line, reading)
                self.observer.look_at(line)
                self._put_late(line)

    def _wait_for_device(self) -> None:
        if self._device_wait is not None:
            self._device_wait()

    def _find_counters(self, *, begins: bool) -> None:
        reason = None
        if self.model.optimizer is None:
            reason = "no optimizer was given: pass optimizer=, or update(loss_scale=…, skipped=…)"
        elif self.probe.backend == "jax":
            # What its own variables hold is the state before the first step, and nothing later.
            reason = "a JAX loop holds the optimizer's state itself: give update(optimizer_variables=…)"
            if begins:
                super()._find_counters(begins=True)
                self.observer.read_nothing()
        if reason is None:
            super()._find_counters(begins=begins)
        else:
            self.recorder.absent.setdefault("skipped", reason)
            self.recorder.absent.setdefault("loss_scale", reason)

    def _timing(self) -> Facts:
        basis = "asynchronous" if self.runs_behind else "host"
        return {"basis": basis, "note": ASYNCHRONOUS_NOTE if self.runs_behind else HOST_NOTE}

    def _explain_absences(self) -> None:
        absent = self.recorder.absent
        absent["input_wait_ns"] = "recorded where the loop iterates over recorder.batches(data)"
        if self.probe.backend == "none" and not self.profiling.wanted:
            absent["profile_windows"] = NO_PROFILER

    def _split_wall_time(self) -> None:
        super()._split_wall_time()
        self.recorder.absent.pop("run_time.setup", None)  # a loop has none
        if self.probe.backend == "tensorflow":
            self._compiles, self.recorder.absent["run_time.compile"] = None, NO_TRACINGS

    def _why_hooks_are_not_timed(self) -> Absent:
        return Absent("a loop of the user's own has no callbacks")

    def _time_input(self) -> Absent:
        return Absent("recorded where the loop iterates over recorder.batches(data)")

    def _part(self) -> str | None:
        return "batch" if self.calls.is_open else None

    def _framework(self) -> Facts:
        return {**super()._framework(), "loop": "custom"}

    def _batch(self) -> int | Absent:
        return self._loop_batch_size or Absent("not given: pass batch_size=")

    def _describe_input(self) -> None:
        """Do nothing: a loop's data is known once the loop iterates over it, see `describe_data`."""

    def describe_data(self, data: Any) -> None:
        """Record what the loop iterates over, where that states how it makes batches."""
        if found := self.recorder.attempt("input", describe_input, data):
            self._fit_facts["input"] = found
        self._input = InputWait(self.spent, (found or {}).get("kind", "batches"))
        self.recorder.absent.pop("run_time.input", None)

    def _describe_model(self) -> None:
        if self.model.model is not None:
            self._describe_layers(self.model.model)
        else:
            self._described = True
            self.recorder.absent["model"] = "no model was given"
            self.recorder.absent["non_finite_weights"] = NO_WEIGHTS  # no second run.json at the end
