"""`MPProfilerCallback`: Keras' hooks, handed on to a `FitSession`."""

from __future__ import annotations

import contextlib
import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras

from mpprof.errors import UnableError
from mpprof.record.alarms import checked
from mpprof.record.arguments import (
    checked_announce,
    checked_clock,
    checked_logdir,
    checked_numerics,
    checked_sinks,
)
from mpprof.record.backends import ASYNCHRONOUS, probe_for
from mpprof.record.calls import NEVER, Hook, Others
from mpprof.record.end_of_fit import (
    ANNOUNCE,
    VERDICTS,
    Announce,
    audit_lines,
    ending,
    last_line,
    named,
    tell,
)
from mpprof.record.fit_calls import watch_fits
from mpprof.record.profile.window import Plan, ProfileSteps
from mpprof.record.profile.window_signal import SignalledWish, checked_signal
from mpprof.record.reading import Schedule
from mpprof.record.recorder import Recorder, warn_once
from mpprof.record.result import RunResult
from mpprof.record.run_with_timeout import FAILURES, failures_suppressed, raise_if_signalled, say
from mpprof.record.session import FitSession
from mpprof.record.sinks import Sink
from mpprof.record.tensorboard_sink import EventFile
from mpprof.record.wall_time.hooks import (
    BATCH_HOOKS,
    BEGIN,
    Timed,
    TimedList,
    list_being_made,
    list_that_begins,
    put_back,
    time_hooks,
)
from mpprof.record.wall_time.sums import Spent

log = logging.getLogger("mpprof")

watch_fits()  # before a `model.fit(...)` that makes the callback among its arguments looks up `fit`

BEGINS_ONLY = keras.backend.backend() in ASYNCHRONOUS
"""Whether only the begins of batches are told, see `Probe.asynchronous`."""

LOOKS = "mpprof.numbers.looks:Looks"
"""What looks at the numbers by layer: a name, because it stands on recording."""

NEWS_RATIO = 0.1
"""A further verdict is given when the run has grown by so much: short fits of a long run end at once."""


@dataclass(frozen=True)
class _Settings:
    logdir: str
    profile_steps: ProfileSteps
    read_every: int
    hardware: bool
    verbose: int
    announce: Announce | str | None
    audit: bool
    stop_on: frozenset[str]
    window_signal: int | None
    sinks: tuple[Sink, ...]
    tensorboard: bool
    clock: Callable[[], int]
    numerics: bool | tuple[Any, ...]


class MPProfilerCallback(keras.callbacks.Callback):  # type: ignore[misc]  # keras has no types
    """Record a training: step times, loss scale, skipped steps, memory, and a short profiler window.

        model.fit(data, callbacks=[MPProfilerCallback("logs/run1")])

    For Keras 3 on TensorFlow, JAX and torch, and for tf_keras. The training is not changed: the weights are
    bit-identical to those without the callback. A failure of the callback does not stop `fit`: it is logged
    once and written into the run's `absent`.

    Args:
        logdir: where the records go; TensorBoard can open the same directory. If it already holds a
            run, this one gets a directory of its own below it (see `root`).
        profile_steps: the steps to profile: "auto" (5 steps after the 10th, once step times have settled),
            `(first, last)`, inclusive and counted from 1, or None for no window. A window never goes across
            a validation. `mpprof.record.profile.window` states how large its trace can get.
        read_every: read the loss scale, the skipped steps and the memory once in this many steps; 1: on every
            step. Each of the first 32 steps is read, and each of the 32 after a change. Totals are exact.
        hardware: sample GPUs (NVML) and CPU about once a second, from a thread.
        verbose: 1: print one line at the end of `fit`; 0: print nothing.
        announce: a function that is called with the run's root at the end of `fit`, and whose sentence is
            printed. The default gives mpprof's own verdict, again once the run has grown by a tenth. A
            verdict takes about a second: where verdicts on short fits would take more than 5 % of the time,
            all but the first of the process are left out. None: no verdict.
        audit: before a model's first step, print once which of its layers will not reach the Tensor Cores.
            Prints nothing with `verbose=0`, for a float32 model, and where nothing was found.
        stop_on: names of the alarms that stop the training: "loss_scale_stuck", "loss_scale_low",
            "loss_scale_runaway", "endless_skips", "non_finite_loss", "throttling". Every alarm is raised
            once, as a warning of the log "mpprof", whether it stops the training or not. It is raised when
            the state is read: at most `read_every` steps late (or calls, with several steps each). On JAX,
            and on a GPU under torch, it is later by the time that the device runs behind the host, and
            nothing is read within a profile window. On JAX and torch the loss is Keras' running mean; where
            a custom `train_step` does not update it, it is checked only at the end of an epoch.
        tensorboard: also write the series as TensorBoard scalars (`mpprof/loss_scale`, ...) into the run's
            directory. The records hold the same and more, and `mpprof serve` shows them.
        window_signal: a signal that requests a further window while `fit` runs, e.g. `signal.SIGUSR1`. Its
            handler is set only during `fit`, only in the main thread, and only where the process has no
            handler for that signal; otherwise run.json's `absent` says why.
        sinks: other destinations of the same series: `mpprof.WandbSink()`, `mpprof.MlflowSink()`, or a
            `mpprof.record.sinks.Sink` of your own. A sink with a method `finish` gets a summary and the HTML
            report when a `fit` ends; `fit` waits for both, as it does for the verdict.
        numerics: look at the numbers by layer (see `mpprof.numerics`) at the start, when an update was
            skipped or the loss is not finite, and at the end; 8 times a run at most. Each look takes some 15
            steps and two compiles; `run_time` has what it cost. The batch is the one given as `(x, y)` or
            `(x, y, sample_weight)`. With True it is a batch that `fit` has drawn: on JAX and torch copies of
            the last `read_every` batches are kept, at most 64 MiB; on TensorFlow it is the first rows of the
            arrays that `fit` was given, and for other data you have to give a batch.
        clock: a function that returns monotonic nanoseconds.

    To profile 5 more steps of a running training, create a file `window-please` in the run's `mpprof`
    directory (mpprof removes it within about a second), or send the `window_signal`.

    Where Keras' TensorBoard callback profiles in the same `fit` (`profile_batch=`), this callback opens no
    window, and that trace is the run's.

    Keras calls no callback when `fit` raises. So `fit` is replaced in Keras' own class, once in a
    process, by a function that calls it: an exception that leaves it closes the recording at once, and goes
    on. Known limits: if mpprof is first imported among the arguments of a process' first `fit`, as
    `mpprof.MPProfilerCallback(...)`, an exception in a validation is known only if it ends the script. A
    `fit` within a `fit`, with the same callback, is not recorded.

    All `fit` calls of one instance are one run. A copy (copy, pickle) is a new instance with a run of its
    own, and so is a `fit` in a forked process. Raises `UsageError` for an argument of another kind.
    """

    def __init__(
        self,
        logdir: str | os.PathLike[str],
        *,
        profile_steps: ProfileSteps = "auto",
        read_every: int = 16,
        hardware: bool = True,
        verbose: int = 1,
        announce: Announce | str | None = ANNOUNCE,
        audit: bool = True,
        stop_on: str | Iterable[str] = (),
        tensorboard: bool = False,
        window_signal: int | None = None,
        sinks: Iterable[Sink] = (),
        numerics: bool | tuple[Any, ...] = False,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        super().__init__()
        Plan.of(profile_steps)  # wrong values are the caller's errors, and raised here
        Schedule(read_every)
        self._settings = _Settings(
            checked_logdir(logdir),
            profile_steps,
            read_every,
            hardware,
            verbose,
            checked_announce(announce),
            audit,
            checked(stop_on),
            checked_signal(window_signal),
            checked_sinks(sinks),
            tensorboard,
            checked_clock(clock),
            checked_numerics(numerics),
        )
        self._session: FitSession | None = None
        self._begin_call: Hook = _ignore  # of a batch, in the session
        self._end_call: Hook = _ignore
        self._failed = self._told = False
        self._audited: Callable[[], Any] = _nothing
        self._judged_steps = 0  # how many there were at the last verdict
        self._begun: tuple[int, int] | None = None  # the first hook of a fit: our clock, Unix time in ns
        self._timed: Timed | None = None  # in the fit that begins
        watch_fits()

    @property
    def root(self) -> Path | None:
        """The directory of this run: `logdir`, or one below it. None before the first `fit`."""
        recorder = self._session.recorder if self._session else None
        return recorder.root if recorder and recorder.facts else None

    def set_model(self, model: Any) -> None:
        """Note when the `fit` began: this is the first hook that Keras calls."""
        self._guard(self._note_begin)
        super().set_model(model)

    def set_params(self, params: Any) -> None:
        """Begin to time the hooks of the other callbacks, whose list Keras has made by now."""
        super().set_params(params)
        self._guard(self._time_hooks)

    def on_train_begin(self, logs: Any = None) -> None:
        self._guard(self._train_begin)

    def on_train_end(self, logs: Any = None) -> None:
        self._guard(self._train_end)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if self._session is not None:
            self._guard(self._session.start_epoch, epoch)

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._end_steps(epoch, logs)
        self._close_epoch()

    def on_test_begin(self, logs: Any = None) -> None:
        if self._session is not None:
            self._guard(self._session.start_validation)
        self._guard(self._say_unrecorded, "evaluate")

    def on_predict_begin(self, logs: Any = None) -> None:
        self._guard(self._say_unrecorded, "predict")

    def on_test_end(self, logs: Any = None) -> None:
        if self._session is not None:
            self._guard(self._session.end_validation)

    # Keras calls these hooks for a `CallbackList` of the user's own, which is not changed.

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self._begin_call(batch, logs)

    if not BEGINS_ONLY:
        # Keras gives up asynchronous dispatch for a callback that has this hook at all, so where the
        # device runs behind the host it must not exist.
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            self._end_call(batch, logs)

    def _begin_slowly(self, batch: int, now_ns: int) -> None:
        if self._session is not None and not self._failed:
            self._session.begin(batch, now_ns)

    def _end_slowly(self, logs: dict[str, Any] | None, now_ns: int) -> None:
        if self._session is not None and not self._failed:
            self._session.end(logs, now_ns)

    def _batch_hook(self, session: FitSession, spent: Spent, name: str, others: Others = ()) -> Hook | None:
        """Return a hook of a batch, with those of the others; None where we do nothing there."""
        calls, failed = session.calls, self._give_up
        if BEGINS_ONLY:
            dispatched, otherwise = session.dispatched_fast, self._begin_slowly
            return (
                calls.dispatch_hook(spent, others, dispatched, otherwise, failed) if name == BEGIN else None
            )
        if name == BEGIN:
            return calls.begin_hook(spent, others, self._begin_slowly, failed)
        return calls.end_hook(spent, others, self._end_slowly, failed)

    # Where the hooks of the others are timed, what times them calls these, see `wall_time.hooks`.

    def _end_steps(self, epoch: int | None = None, logs: Any = None) -> None:
        if self._session is not None:
            self._guard(self._session.end_last_epoch, logs)

    def _close_epoch(self, epoch: int | None = None, logs: Any = None) -> None:
        if self._session is not None:
            self._guard(self._session.close_epoch)

    def _end_record(self, event: Any = None, logs: Any = None) -> None:
        if self._session is not None:
            self._guard(self._session.end_of_record)

    def _note_begin(self) -> None:
        self._begun = self._settings.clock(), time.time_ns()

    def _time_hooks(self) -> None:
        """Note how long the hooks of the others take in the `fit` that begins, where Keras has just made the
        list of its callbacks."""
        made = list_being_made(self)
        if made is None:
            self._begun = None  # a list of the user's own: its fit begins later
        else:
            self._time_hooks_of(made)

    def _time_hooks_of(self, made: Any) -> None:
        if not isinstance(made, keras.callbacks.CallbackList):
            return
        if self._session is not None and self._session.runs():
            return  # a fit within ours
        if isinstance(made.callbacks, TimedList):
            if made.callbacks.ours is not self:
                return
            if self._session is not None:
                self._session.interrupt()  # the training before, whose end was not told
            put_back(made)
        session, spent = self._session_of_this_process(), Spent(self._settings.clock)
        time_hooks(
            made, self, spent,
            first={
                "on_test_begin": lambda logs=None: self.on_test_begin(logs),
                "on_epoch_end": self._end_steps,
                "on_train_end": self._end_record,
            },
            last={
                "on_epoch_begin": lambda epoch, logs=None: self.on_epoch_begin(epoch, logs),
                "on_test_end": lambda logs=None: self.on_test_end(logs),
                "on_epoch_end": self._close_epoch,
            },
            batch=partial(self._batch_hook, session, spent), failed=self._give_up, left=session.left_by,
        )  # fmt: skip
        self._timed = spent, weakref.ref(made)

    # Keras 2 (tf_keras) takes this callback, too, and asks it these. Its logs then are plain numbers.
    _supports_tf_logs = False

    def _implements_train_batch_hooks(self) -> bool:
        return True

    def _implements_test_batch_hooks(self) -> bool:
        return False

    _implements_predict_batch_hooks = _implements_test_batch_hooks

    @property
    def _model(self) -> Any:
        """Where Keras puts the model. It is not kept alive: a callback is, for its `result()`, and after a
        `fit` that found no memory the next one needs it."""
        return self._held()

    @_model.setter
    def _model(self, model: Any) -> None:
        self._held = _nothing if model is None else weakref.ref(model)

    def _guard(self, work: Callable[..., None], *arguments: Any) -> None:
        if self._failed:
            return
        try:
            work(*arguments)
        except FAILURES as error:  # as above
            raise_if_signalled(error)
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        if self._failed:  # a batch hook that Keras still holds
            return
        self._failed = True
        say(log.debug, "where recording failed", exc_info=error)
        warn_once("mpprof stops recording, training goes on: %s: %s", type(error).__name__, error)
        if self._session is not None:
            self._session.calls.fast_until = NEVER
            self._session.recorder.absent["recording"] = f"failed: {type(error).__name__}: {error}"[:500]
            self._session.recorder.attempt("closing", self._session.abandon)

    def _say_unrecorded(self, method: str) -> None:
        """Say once that an `evaluate` or `predict` outside of a `fit` is not recorded."""
        of_fit = self._session is not None and (self._session.active() or self._session.runs())
        if of_fit or self._told or not self._settings.verbose:
            return
        self._told = True
        tell([f"mpprof: this {method} is not recorded: the callback records fit alone."])

    def _train_begin(self) -> None:
        session = self._session_of_this_process()
        steps = (self.params or {}).get("steps")
        # `self.model` would copy JAX's whole state back; the bare attribute does not.
        begun, self._begun, began_ns = self._begun, None, None
        if self._timed is None:  # a list of the user's own, which does not time us as this one begins
            began_ns = self._settings.clock()
            self._time_hooks_of(list_that_begins(self))
        timed, self._timed = self._timed, None
        per_epoch = steps if isinstance(steps, int) and steps > 0 else None
        session.start_fit(self._model, per_epoch, begun, timed)
        if self._settings.audit and self._settings.verbose and self._audited() is not self._model:
            self._audited = weakref.ref(self._model)
            tell(audit_lines(self._model, session.batch_size))
        if began_ns is not None:
            session.spend_begin(self._settings.clock() - began_ns)

    def _session_of_this_process(self) -> FitSession:
        session = self._session
        if session is None or session.recorder.pid != os.getpid():  # a forked child's run is one of its own
            settings = self._settings
            recorder = Recorder(settings.logdir, hardware=settings.hardware, clock=settings.clock)
            plan = Plan.of(settings.profile_steps)
            probe = probe_for(keras.backend.backend())
            session = FitSession(recorder, probe, plan, settings.read_every, settings.stop_on)
            session.observer.stop = session.stop_training
            session.opened = self._open_sinks
            if settings.numerics is not False:
                given = settings.numerics if isinstance(settings.numerics, tuple) else None
                session.looks = recorder.attempt("numerics", _looks, given, settings.read_every)
            if settings.window_signal is not None:
                session.signalled = SignalledWish(settings.window_signal, session.profiling.wish)
            spent = Spent(settings.clock)  # of no fit
            self._begin_call, self._end_call = (
                self._batch_hook(session, spent, name) or _ignore for name in BATCH_HOOKS
            )
            self._session, self._judged_steps = session, 0
        return session

    def _open_sinks(self, recorder: Recorder) -> None:
        own = [EventFile(recorder.folder)] if self._settings.tensorboard else []
        recorder.add_sinks([*own, *self._settings.sinks])

    def close(self) -> None:
        """Close a `fit` that ended with an exception: write all records to disk and end all threads.

        Another `fit` may follow. Does nothing where no `fit` is open.
        """
        if self._session is not None:
            self._guard(self._session.interrupt)

    def result(self) -> RunResult:
        """Return the run so far: counts, median step time, verdict. A notebook shows it as a page.

        Raises `UnableError` where nothing was recorded.
        """
        root = self.root
        if self._session is None or root is None:
            raise UnableError("nothing was recorded yet", next="Call fit with this callback first")
        return self._session.result(root)

    @property
    def steps_run(self) -> int | None:
        """Steps that have run so far; None where they are not recorded, or no longer."""
        session = self._session
        return None if session is None or self._failed or not session.recorder.on else session.calls.step

    @property
    def steady_steps(self) -> int | None:
        """Steps whose time counts: after the warm-up, and not profiled. None where they are not recorded."""
        session = self._session
        return None if session is None or self.steps_run is None else session.observer.timed_steps

    def _train_end(self) -> None:
        if self._session is None or not self._session.active():
            return
        session, begin_ns = self._session, self._settings.clock()
        session.end_fit(session.stopped)
        recorder = session.recorder
        if recorder.on:
            recorder.attempt("sinks", recorder.finish_sinks, ending)
        if self._settings.verbose and recorder.on and not recorder.worker:
            with failures_suppressed():  # all is on disk: what is said of it is an extra
                tell([self._last_line(session)])
        session.spend_end(begin_ns)

    def _last_line(self, session: FitSession) -> str:
        """Return the text for the end of a fit. Where the run has hardly grown since it was read, mpprof's
        own verdict and the step time would say nothing new, and all of its steps are not read again; nor are
        they where verdicts take too much of this process' time."""
        steps, announce = session.calls.step, self._settings.announce
        own = announce == ANNOUNCE
        news = steps >= self._judged_steps * (1 + NEWS_RATIO) and (not own or VERDICTS.may_be_given())
        if news:
            self._judged_steps = steps
        elif own:
            announce = None

        def summary(*, step_time: bool) -> str:
            return session.summary(step_time=step_time and news)

        with VERDICTS.given() if news and own else contextlib.nullcontext():
            return last_line(announce, session.recorder.root, summary)

    def __getstate__(self) -> dict[str, Any]:
        # Threads, files and the model belong to this instance; a copy records a run of its own.
        return {"_settings": self._settings, "params": self.params}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__init__()
        self.__dict__.update(state)
        self._begin_call = self._end_call = _ignore
        self._session, self._failed, self._audited, self._judged_steps = None, False, _nothing, 0
        self._begun = self._timed = None
        self._told = False
        watch_fits()


def _looks(given: tuple[Any, ...] | None, most_kept: int) -> Any:
    return named(LOOKS)(given, most_kept)


def _nothing() -> None:
    """Do nothing: no model was audited yet."""


def _ignore(event: Any = None, logs: Any = None) -> None:
    """Do nothing: no training has begun."""
