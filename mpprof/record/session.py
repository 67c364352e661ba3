"""What the callback's hooks do: the recorder, the call log, readings, the window, and the end of a fit.

The hooks of a synchronous backend are begin and end; of an asynchronous one only begin, in which the
state after the call before can be asked for without disturbing Keras' dispatch.
"""

from __future__ import annotations

import math
import statistics
import threading
import weakref
from collections import deque
from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

from mpprof.errors import MpprofError, UsageError
from mpprof.model.limits import LONG_CALL_NS
from mpprof.model.run_time import OURS
from mpprof.record.alarms import Seen
from mpprof.record.backends.base import Absent, Facts, Probe, Taken
from mpprof.record.backends.compiles import Compiles
from mpprof.record.calls import NEVER, CallLog
from mpprof.record.facts.ended import describe_weights, ended
from mpprof.record.facts.fit import (
    Evaluation,
    batch_size_of_running_fit,
    batches_of_running_fit,
    callbacks_of_running_fit,
    describe_loss,
    epoch_iterator_of_running_fit,
    fit_facts,
    input_of_running_fit,
    part_of_running_fit,
    running_evaluation,
    running_fit,
    thread_of,
)
from mpprof.record.facts.layers import LAYERS, layers_not_described, model_facts
from mpprof.record.facts.process import describe_process, describe_rewrite, framework_facts
from mpprof.record.facts.scaling import ScaleWatch
from mpprof.record.fit_calls import Call, caller_of_fit, on_exception, uncaught, watch_fits, watch_steps
from mpprof.record.keras_compat import overrides, steps_per_execution, steps_run_in_fit
from mpprof.record.observer import Observer
from mpprof.record.profile.schedule import Profiling
from mpprof.record.profile.window import Plan
from mpprof.record.profile.window_signal import SignalledWish
from mpprof.record.recorder import Recorder, warn_once
from mpprof.record.result import RunResult
from mpprof.record.run_with_timeout import failures_suppressed
from mpprof.record.step_line import Line, PlainLine
from mpprof.record.wall_time.hooks import NOT_TIMED, TIMED_ALREADY, Timed, TimedList, put_back
from mpprof.record.wall_time.input import InputWait, time_input
from mpprof.record.wall_time.sums import NOTABLE_NS, Spent, Sum

WARM_CALLS = 8
"""Calls after which the allocator's peak is reset, once: the first ones autotune and compile."""

WAIT_STEPS, WAIT_NS = 128, 200_000_000
"""After so many steps a wait for the device comes at the earliest so long after the one before: steps of a
tenth of a millisecond would notice it."""

FEWEST_CALLS_TO_END = 8
"""An epoch's end times its last calls if they are so many since the wait before: what Keras does between the
last one and our hook, about a millisecond, then adds little to each."""

LONG_END_NS = 1_000_000
"""Where the end of an epoch's data takes longer than this, it does not time the last calls: the device had
finished at some time before."""

LATE_NS = 500_000_000
"""A line is not held back for a reading that takes longer than this."""

SPENT_NS = 100_000_000
"""What was spent is not written more often: to go through the sums costs as much as a step's own line."""

MOST_ALIKE = 256
"""So many calls at most are recorded without asking whether anybody still writes, however seldom is read."""

MOST_NAMED = 8
"""So many earlier models are named at most: a search makes a model for each fit."""

ASK_NS = 20_000_000
"""Whether a reading has arrived is not asked more often: the device may be dozens of short steps behind."""

NESTED = "a nested fit with the same callback is not recorded: give it a callback of its own"

SYNCHRONOUS_NOTE = (
    "Keras waits for the device at every batch end; interval_ns is batch begin to batch begin on the host. "
    "loss is Keras' running mean over the epoch."
)
ASYNCHRONOUS_NOTE = (
    "The device runs behind the host: dispatch_ns is what the host took. Only lines marked synced carry "
    "interval_ns: the mean per call between two waits for the device, over interval_calls calls. "
    "Lines that were read carry loss, Keras' running mean over the epoch."
)

NO_LOSS = (
    "the running mean of the loss, which is read every few steps, did not show it (a custom train_step need "
    "not keep one); to ask Keras for it at each batch end would make Keras wait for the device"
)


SETUP = (
    "what fit does before its first hook (adapters, the first batch of a generator) is not seen by callbacks"
)

END_OF_FIT = "the end of fit"
"""The name of what we do then: a look at the weights, closing the files, and the verdict."""


def _no_model() -> None:
    """Return None, because there is no model."""


def _no_list() -> None:
    """Return None, because no list has ours in its place."""


def _weakly(thing: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(thing)
    except TypeError:  # a model of a kind of its own
        return lambda: thing


class FitSession:
    """Records all `fit` calls of one callback instance as one run."""

    def __init__(
        self,
        recorder: Recorder,
        probe: Probe,
        plan: Plan | None,
        read_every: int,
        stop_on: frozenset[str] = frozenset(),
    ) -> None:
        self.recorder, self.probe = recorder, probe
        self.opened: Callable[[Recorder], None] | None = None  # told when the run has its directory
        self.queues = probe.asynchronous  # only begins are seen, and state is asked for in between
        self.runs_behind = probe.runs_behind
        self._clock = recorder.clock
        self.calls = CallLog(0)
        self.observer = Observer(recorder, probe, self.calls, read_every, stop_on)
        self._schedule = self.observer.schedule
        self.profiling = Profiling(recorder, probe, self.calls, plan, self._settle, self._resumed)
        self.signalled: SignalledWish | None = None  # asks for a further window
        if plan is not None:
            plan.means = self.runs_behind
        # Lines in order, behind one whose reading has not arrived: each a Line or a PlainLine.
        self._queued: deque[Any] = deque()
        self._ask_ns = 0  # not before this whether the first of them has arrived
        self._awaited: Line | None = None
        self._batch_size: int | None = None
        self.in_fit = False  # between its begin and its end, also where that was not told
        self._end_unknown = False
        self._special = True  # the next call to end is not like any other
        self._keep_interval = self.observer.new_intervals.append
        self._first_of_epoch = True
        self._ends_told: frozenset[str] = frozenset()  # hooks that have told the end of an epoch of this fit
        self._before_last: tuple[int, int] | None = (
            None  # of it, before an epoch's last call: its interval's ns, calls
        )
        self._calls_run = 0
        self._described = False
        self._trained: set[str] = set()  # names of the models
        self._validation_ns: int | None = None
        self._trains_in = 0  # the thread
        self._within_epoch = False  # the validation is
        self._open_ran = False  # the open call, before that validation
        self._ended: str | None = None  # how the last fit did
        self._unwatched: Call | None = None  # where it was called, if its exception is not told
        self._model: Callable[[], Any] = _no_model
        self._fit: Callable[[], Any] | None = None  # what stands for it; None: no `fit` of Keras
        self._within_ns: int | None = None  # since when another `fit` runs within it
        self._state: int | None = None  # of the training, as the open call found it
        self.spent = Spent(recorder.clock)
        self._waited_ns = 0  # for the device, within the hook that runs
        self._spent_ns = 0  # not before this is what was spent written
        self._hooks_timed = False  # of the other callbacks of this fit
        self._list: Callable[[], Any] = _no_list  # in which they are
        self._input: InputWait | None = None  # where it is timed
        self._compiles: Compiles | None = None  # while a fit runs
        self._watch: ScaleWatch | None = None  # until the first call has run
        self._asked_at: str | None = None  # for what the source of compiles is asked
        self._epoch: tuple[int, int] | None = None  # that runs: its number, and when it began
        self._end_ns: int | None = None  # of the fit's record
        self._last_ns = 0  # when a hook beside those of batches was told last
        self.looks: Any = None  # a `mpprof.numbers.looks.Looks`, where numbers by layer are wanted

    # --- one fit ---------------------------------------------------------------------------------------

    def start_fit(
        self,
        model: Any,
        steps_per_epoch: int | None,
        begun: tuple[int, int] | None = None,
        timed: Timed | None = None,
    ) -> None:
        """Begin a fit. `begun`: when its first hook was told, by our clock and in Unix nanoseconds; None:
        now. `timed`: where the times of the other callbacks' hooks go; None: they are not timed."""
        recorder = self.recorder
        if (self.in_fit and self._told_twice()) or self._leaves_out():
            return
        recorder.attempt("ended", watch_fits)
        watched = on_exception(self.left_by)
        self.interrupt()
        for other in [*_IN_FIT.values()]:
            other.recorder.attempt("closing", other.make_way)
        first = not self.calls.fit
        if first and not recorder.on:  # an interrupt may have ended the one before as it began
            recorder.open(recorder.attempt("worker", self.probe.worker, model), begun)
        callbacks = recorder.attempt("profile_windows", callbacks_of_running_fit) or []
        fit = recorder.attempt("profile_windows", running_fit)
        self._fit = None if fit is None else weakref.ref(fit)
        self._unwatched = None if watched else recorder.attempt("ended", self._watch_closely)
        recorder.facts.pop("ended", None)
        recorder.attempt("profile_windows", self.profiling.start_fit, callbacks)
        recorder.resume()
        if not recorder.on:
            return
        self._model = _weakly(model)
        if first:
            opened, self.opened = self.opened, None
            if opened is not None:
                recorder.attempt("sinks", opened, recorder)
            self.calls.zero_ns = recorder.zero_ns
            self.calls.runs_behind = self.runs_behind
            recorder.at_exit = self.at_exit
            recorder.wished = self.profiling.wish
            self._describe_process(model)
        self.calls.start_fit(steps_per_execution(model), steps_per_epoch)
        # Any call of several steps may then have run fewer than it claims: each is read.
        self._end_unknown = self.calls.per_call > 1 and steps_per_epoch is None
        self._ended = None
        begun_ns = self._last_ns = self._clock() if begun is None else begun[0]
        recorder.put({"kind": "fit", "fit": self.calls.fit, "t_ns": begun_ns - recorder.zero_ns})
        self.spent, self._list = timed or (Spent(self._clock), _no_list)
        self._hooks_timed = timed is not None
        self.spent.begin_fit(self.calls.fit, self.calls.step + 1, self._step_now, recorder.put)
        self._own_calls = self.spent.of("callbacks", OURS, "batch")
        self._epoch = self._end_ns = None
        if self.signalled is not None and (why_not := recorder.attempt("signal", self.signalled.install)):
            recorder.absent["signal"] = why_not
        self.in_fit, self._first_of_epoch, self._described, self._special = True, True, False, True
        self._ends_told = frozenset()
        _IN_FIT[id(self)] = self
        self._initial_epoch: int | None = None
        self._read_batch_size()
        self._find_counters(begins=True)
        self._describe_fit()
        if self.looks is not None:
            iterator = recorder.attempt("numerics", epoch_iterator_of_running_fit)
            self.looks.start_fit(self.calls.step, getattr(iterator, "data_adapter", None))
            self.observer.broke = self._broke
        self._split_wall_time()
        recorder.save()

    def spend_begin(self, took_ns: int) -> None:
        """Note what we have done as the fit began."""
        if self._active():
            self.spent.add(self.spent.of("callbacks", OURS, "train"), took_ns)

    def end_of_record(self) -> None:
        """Note that the record of the fit ends here: what callbacks do at the end of training is not in it,
        wherever in the list they stand."""
        if self._active():
            self._last_look()
            self._end_ns = self._clock()

    def end_fit(self, stopped: bool) -> None:
        if self._end_ns is None:
            self._last_look()
            self._end_ns = self._clock()
        self._end_fit("stopped" if stopped else "finished")

    def spend_end(self, begin_ns: int) -> None:
        """Write what we have done since then, behind the record of the fit that has ended."""
        took_ns = self._clock() - max(begin_ns, self._end_ns or self._last_hook_ns())
        if took_ns >= NOTABLE_NS:
            total = Sum("profiler", END_OF_FIT, "end")
            total.calls, total.ns, total.first_step = 1, took_ns, self.calls.step
            with failures_suppressed():  # an extra: all that was recorded is on disk
                self.recorder.put_late(total.line(self.calls.fit, self.calls.step))

    def abandon(self) -> None:
        """Abandon the recording, which has failed: release the profiler, the signal and the files."""
        self._over()
        self._unsignal()
        self._stop_compiles()
        with failures_suppressed():  # may be what has failed; a step that has run keeps its line
            self._emit_all(self.calls.close_epoch())
        self.profiling.close()
        self.recorder.close()

    def at_exit(self) -> None:
        """Close the recording as the process ends; a fit that still runs was interrupted."""
        self.interrupt()
        self.recorder.close()

    def left_by(self, error: BaseException) -> None:
        """End the fit that this exception has left, unless it had ended before."""
        if self.in_fit or self._within_ns is not None:
            self.recorder.facts["ended"] = self.recorder.attempt("ended", ended, error)
            self.recorder.attempt("closing", self.interrupt)

    def interrupt(self) -> None:
        """End a fit that is still open and has ended otherwise than by its end."""
        if self.in_fit or self._within_ns is not None:
            self._end_fit("interrupted")
        elif self.recorder.writes:  # its begin or its end was interrupted
            self.recorder.pause()

    @property
    def model(self) -> Any:
        """None once the model was freed: a fit that has failed releases its memory."""
        return self._model()

    def stop_training(self) -> None:
        model = self._model()
        if model is not None:
            model.stop_training = True

    @property
    def stopped(self) -> bool:
        return bool(getattr(self._model(), "stop_training", False))

    def runs(self) -> bool:
        """Return whether the recorded fit is running, in any thread, or waits for a fit within it."""
        fit = None if self._fit is None or not (self.in_fit or self._within_ns is not None) else self._fit()
        return fit is not None and thread_of(fit) is not None

    def active(self) -> bool:
        """Return whether this hook is of the recorded fit."""
        return self.in_fit or self._back()

    def goes_on(self) -> bool | None:
        """Return whether the fit is still running, somewhere in this process. None: that cannot be told."""
        if self._model() is None:
            return False
        if self._fit is None:
            return None
        fit = self._fit()
        return fit is not None and thread_of(fit) is not None

    def make_way(self) -> None:
        """Close, before another training begins, a fit that an error has ended and whose end was not
        reported."""
        goes_on = self.goes_on()
        if goes_on is False:
            self.interrupt()
        elif goes_on is None:
            self.profiling.close()  # there is one profiler

    def _stop_compiles(self) -> None:
        self._ask_compiles("batch")
        source, self._compiles = self._compiles, None
        if source is not None:
            self.recorder.attempt("run_time.compile", source.stop)

    def _over(self) -> None:
        self._stop_watching()
        self.in_fit, self._within_ns = False, None
        self.calls.leave_fast_path()
        _IN_FIT.pop(id(self), None)
        put_back(self._list())

    def _leaves_out(self) -> bool:
        """Return whether the fit that begins is one within ours, of the same callback: ours goes on after
        it."""
        fit = None if self._fit is None or not (self.in_fit or self._within_ns is not None) else self._fit()
        thread = None if fit is None else thread_of(fit)
        if thread is None:
            return False
        if thread != threading.get_ident():
            raise UsageError(
                "this callback is already in another fit that runs", next="Give each a callback of its own"
            )
        if self._within_ns is None:
            self._within_ns = self._clock()
        self.in_fit = False
        self.calls.leave_fast_path()
        self.profiling.close(within_call=self.calls.is_open)
        if "nested_fit" not in self.recorder.absent:
            self.recorder.absent["nested_fit"] = NESTED
            warn_once("mpprof: %s", NESTED)
        return True

    def _back(self) -> bool:
        """Return whether a fit within ours has ended, for whatever reason, and ours goes on."""
        if self._within_ns is None or self._fit is None or running_fit() is not self._fit():
            return False
        self.calls.leave_out(self._clock() - self._within_ns)
        self.in_fit, self._within_ns = True, None
        return True

    def _told_twice(self) -> bool:
        """Return whether the fit that begins is the one that has begun: the callback stands in the list
        twice."""
        sessions = [getattr(callback, "_session", None) for callback in callbacks_of_running_fit()]
        return self._initial_epoch is None and sum(session is self for session in sessions) > 1

    def _unsignal(self) -> None:
        if self.signalled is not None:
            self.recorder.attempt("signal", self.signalled.restore)

    def _end_fit(self, reason: str) -> None:
        self._over()
        self._awaited = self._before_last = None
        self._unsignal()
        self._ended = reason
        rest: Facts = {}
        try:
            if reason == "interrupted":
                if "ended" not in self.recorder.facts:
                    self.recorder.facts["ended"] = self.recorder.attempt("ended", self._uncaught)
                if self.queues:
                    self._count_the_last()
                self._emit_all(self.calls.close_epoch())
            self.profiling.end_fit()
            if self.recorder.on:
                self.recorder.attempt("graph_rewrite_result", describe_rewrite, self.recorder)
            if self.recorder.on and reason != "interrupted":
                self.recorder.attempt("non_finite_weights", describe_weights, self.recorder, self.model)
            rest = self._last_memory() if reason == "interrupted" else self.observer.rest()
        finally:  # also where an interrupt comes meanwhile
            self._stop_compiles()
            self.spent.write()
            told = self.recorder.facts.get("ended") if reason == "interrupted" else None
            if told and told["reason"] != "unknown":
                reason = told["reason"]
            t_ns = self._end_ns if self._end_ns is not None else self._last_hook_ns()
            t_ns -= self.recorder.zero_ns
            self.recorder.put({"kind": "fit_end", "reason": reason, "t_ns": t_ns, **rest})
            self.observer.explain_absences()
            self.recorder.pause()

    def _watch_closely(self) -> Call | None:
        """Have the steps of an unwatched fit watched, and return where it was called."""
        watch_steps(batches_of_running_fit(), self.left_by)
        return caller_of_fit()

    def _uncaught(self) -> Facts:
        return ended(uncaught(self._unwatched))

    def _count_the_last(self) -> None:
        """Count the last call before an error. Where only begins are seen, no hook reports that it ran; the
        optimizer's counters may."""
        self._drain()
        found = self.observer.ran_beyond(self.calls.covers_of_open())
        line = None if found is None else self.calls.cut_short(found[0], self.calls.begun_ns)
        if found is not None and line is not None:
            self.profiling.after_call(line, self._calls_run)
            self.observer.note(line, found[1])

    def _last_memory(self) -> Facts:
        """Return the allocator's state when a fit has failed: it is what is needed first to explain an
        out-of-memory error."""
        memory = self.observer.memory()
        return {} if memory is None else {"memory": memory}

    # --- epochs and validation -------------------------------------------------------------------------

    def start_epoch(self, epoch: int) -> None:
        if not self._active():
            return
        if self._initial_epoch is None:
            self._initial_epoch = epoch
            self._fit_facts["initial_epoch"] = epoch
            self.recorder.save()
        self.calls.start_epoch(epoch)
        if self._input is not None:
            self._input.begin_epoch()
        self._first_of_epoch = True
        self._last_ns = self._clock()
        self._epoch = epoch, self._last_ns

    def end_last_epoch(self, logs: dict[str, Any] | None) -> None:
        """End the epoch as Keras tells its end."""
        begin_ns = self._clock()
        self.end_epoch(logs)
        self.spent.add(self.spent.of("callbacks", OURS, "epoch"), self._clock() - begin_ns)
        if self.looks is not None and self._active():
            self._look_at_numbers("epoch")

    def close_epoch(self) -> None:
        """Write the line of the epoch whose last hook has been told, and what was spent in it."""
        epoch, self._epoch = self._epoch, None
        if epoch is None or not self._active():
            return
        number, begin_ns = epoch
        self._ask_compiles("batch")
        self._last_ns, zero_ns = self._clock(), self.recorder.zero_ns
        self.spent.write()
        times = {"begin_ns": begin_ns - zero_ns, "end_ns": self._last_ns - zero_ns}
        self.recorder.put({"kind": "epoch", "fit": self.calls.fit, "epoch": number, **times})

    def end_epoch(self, logs: dict[str, Any] | None = None, hook: str = "on_epoch_end") -> None:
        """End the epoch, whose last call has run. Comes before validation, and again at Keras' own epoch
        end; `hook` is the one that tells it."""
        if not self._active():
            return
        line, awaited = self.calls.ended_line(), None
        if self.queues:
            if self._state is not None and self._state == self.probe.state(self.model):
                self.calls.drop()  # its begin was told, and then there was no more input
            line = self.calls.dispatched(None, self._clock())
            awaited, self._awaited = self._awaited, None  # it has finished; when may not be known
            if line is not None:
                self._calls_run += 1
                self._after_call(line)
            elif self._not_read():
                line = self._queued.pop()
        elif self.calls.per_call > 1 and line is None:
            line = self._cut_short()
        if logs and type(loss := logs.get("loss")) is float and self.queues:
            self.observer.alarm(Seen(self.calls.step, 0, loss=loss))  # not every step's loss is known
            if not math.isfinite(loss):  # it is what the alarm tells
                self.recorder.absent.pop("loss", None)
                if line is not None:
                    line.loss = loss
                else:  # as a validation has begun, the last line was written
                    t_ns = self._clock() - self.recorder.zero_ns
                    self.recorder.put({"kind": "update", "t_ns": t_ns, "step": self.calls.step, "loss": loss})
        self.observer.ends += 1
        # On every backend the variables now hold the state after the last step.
        if line is not None and (reading := self.observer.read()) is not None:
            self._end_with_time(line, self._clock(), hook)
            self._settle_before_last(awaited, line)
            self._drain()
            self.observer.note(line, reading)
        else:
            self._settle_before_last(awaited, line)
            self._drain()
            if self.queues and (late := self.observer.rest()):  # the last step's line is written already
                t_ns = self._clock() - self.recorder.zero_ns
                self.recorder.put({"kind": "update", "t_ns": t_ns, **late})
        self.profiling.end_of_steps()
        self._emit_all(line)
        self.calls.close_epoch()

    def _end_with_time(self, line: Line, read_ns: int, hook: str) -> None:
        """Give the last calls of an epoch their time: the device had finished when the counters were read.

        What Keras does after the last one is in it. The first end of a fit compiles the metrics' results,
        unless they are compiled already, and the first validation is prepared; later it is about a
        millisecond, mostly while the device works."""
        first, self._ends_told = hook not in self._ends_told, self._ends_told | {hook}
        if hook == "on_epoch_end" and self._compiled_at_ends == 0:
            first = False
        waited = self.runs_behind and self.probe.reading_waits
        if first or not waited or line.covers < self.calls.per_call:  # times are means of whole calls
            return
        if self.calls.since_wait >= FEWEST_CALLS_TO_END and not self._comes_late(hook):
            self.calls.waited(read_ns, line)

    def _settle_before_last(self, awaited: Line | None, line: Line | None) -> None:
        """Give the calls before an epoch's last one the time that they had as that began, unless the epoch's
        end has timed them together with it."""
        found, self._before_last = self._before_last, None
        if found is not None and awaited is not None and (line is None or line.interval_ns is None):
            awaited.synced, (awaited.interval_ns, awaited.interval_calls) = True, found

    @property
    def _compiled_at_ends(self) -> int | None:
        """How often something was compiled at the ends of this fit's epochs; None where it is not known."""
        source = self._compiles
        if source is None:
            return None
        compiled = self.spent.of("compile", source.name, "epoch")
        return compiled.earlier_calls + compiled.calls

    def _comes_late(self, hook: str) -> bool:
        """Return whether the input, or another callback at this hook before ours, has done something since
        the last call, or that is not known."""
        if self._input is not None and self._input.ended_ns > LONG_END_NS:
            return True
        if self._hooks_timed:
            return False  # ours is the first
        callbacks = self.recorder.attempt("timing", callbacks_of_running_fit) or []
        before = list(takewhile(lambda each: getattr(each, "_session", None) is not self, callbacks))
        return len(before) == len(callbacks) or any(overrides(each, hook) for each in before)

    def _cut_short(self) -> Line | None:
        """Return the line of a call that the input's end has broken off: Keras 2 does not tell its end."""
        ran = steps_run_in_fit(self.model)
        if ran is None:
            return None
        before = self.calls.step - self._fit_facts["first_step"] + 1
        line = self.calls.cut_short(ran - before, self._clock())
        if line is not None:
            self._calls_run += 1
            self._after_call(line)
        return line

    def start_validation(self) -> None:
        if not self._active():
            return
        whose = self._whose_evaluation()
        if whose is Evaluation.ALONE:
            self.interrupt()  # the previous fit ended by an error that no hook reported
            return
        self._within_epoch = whose is Evaluation.WITHIN_EPOCH
        if not self._within_epoch:
            self.end_epoch(hook="on_test_begin")
        else:
            self._open_ran = self._state != self.probe.state(self.model)
        self.profiling.close(within_call=self._within_epoch and self.calls.is_open)
        self._ask_compiles("batch")
        self._validation_ns = self._clock()

    def _whose_evaluation(self) -> Evaluation:
        return Evaluation.OF_FIT if self._fit is None else running_evaluation()

    def end_validation(self) -> None:
        begin, self._validation_ns = self._validation_ns, None
        if self._active() and begin is not None:
            now = self._last_ns = self._clock()
            self._ask_compiles("validation")
            end = now - self.recorder.zero_ns
            self.recorder.put({"kind": "validation", "t_ns": end, "duration_ns": now - begin})
            if self._within_epoch:
                self.calls.leave_out(now - begin)
                if not self._open_ran:
                    self._state = self.probe.state(None)  # an evaluation leaves none

    # --- calls -----------------------------------------------------------------------------------------

    def dispatched_fast(self, line: PlainLine, now_ns: int) -> None:
        """Note that a call like any other has been dispatched, on an asynchronous backend."""
        self._state = self.probe.state(self._model())
        if not self._queued:
            self.recorder.append(line)
        else:
            self._queued.append(line)
            if now_ns >= self._ask_ns:
                self._drain(now_ns)

    def begin(self, batch: int, now: int | None = None) -> None:
        """Begin a call (on asynchronous backends: the call before has been dispatched)."""
        if not (self.in_fit and self.recorder.on) and not self._active():
            self.profiling.close()  # recording has ended within a window: the profiler must not run on
            return
        now = self._clock() if now is None else now
        if self.queues:
            line = self.calls.dispatched(batch, now)
            self._state = self.probe.state(self._model())
            if line is not None:
                last = self._last_of_epoch(batch)
                due = last or line.step >= self._schedule.next
                if self._special or self._awaited or due or self._end_unknown:
                    self._dispatched(line, now, before_last=last)
                else:  # as nearly always
                    self._calls_run += 1
                    if self._queued:
                        self._queued.append(line)
                    else:
                        self._emit(line)
        else:
            line = self.calls.begin(batch, now)
            if line is not None:
                if self.runs_behind:
                    self._queued.append(line)
                elif self._special or line.interval_ns is None:
                    self._emit(line)
                else:  # as nearly always
                    if line.covers == 1:
                        self._keep_interval(line.interval_ns)
                    else:
                        self.observer.keep_interval(line)
                    self.recorder.put(line)
        if self._special or self.queues:
            self._spend_own(now)
        # Where the last call was like any other, only a further window that is wished for can be planned.
        if (self._special or self.profiling.plan is not None) and not self.profiling.idle:
            # The line before a window is to say that there was a wait. A wish that has come just now finds it
            # handed over, and has to wait for the next call's.
            at_hand, self._special = self._special or not self.runs_behind, True
            self.profiling.before_call(batch, self._first_of_epoch, at_hand)
        if self.looks is not None and self.looks.due:
            self._look_between_calls("epoch begin" if self._first_of_epoch else "batch")
        if self._queued and now >= self._ask_ns:
            self._drain(now, self._not_read())
        self._first_of_epoch = False
        if self.queues and self._awaited is None:
            self._enter_fast_path()

    def end(self, logs: dict[str, Any] | None, now: int | None = None) -> None:
        """End a call that has run, on a synchronous backend."""
        if not (self.in_fit and self.recorder.on) and not self._active():
            return
        now = self._clock() if now is None else now
        line = self.calls.end(now)
        if line is None:
            return
        if logs and type(loss := logs.get("loss")) is float:
            line.loss = loss
        self._calls_run += 1
        if self._special:
            self._after_call(line)
        if line.step >= self._schedule.next or self._end_unknown:
            self._look(line)
            if self.looks is not None and self.looks.due:
                self._look_between_calls("batch")
        self._spend_own(now)
        self._enter_fast_path()

    def _spend_own(self, since_ns: int) -> None:
        """Note what our own hook of a batch has taken by now, without its waits for the device: those are the
        steps'. Hooks of a few microseconds, such as those of the fast path, are not measured."""
        total, took_ns = self._own_calls, self._clock() - since_ns - self._waited_ns
        self._waited_ns = 0
        total.calls += 1
        total.ns += took_ns
        if took_ns >= LONG_CALL_NS:
            self.spent.stalled(total, took_ns)

    def _enter_fast_path(self) -> None:
        """Enter the fast path: the calls up to the next reading are like any other, until something else
        happens. The number of calls is limited: what they append is not counted, see `LineWriter.append`."""
        recorder, calls = self.recorder, self.calls
        if calls.per_call > 1 or self._special or self.queues is not self.runs_behind:
            return
        until = min(self._schedule.next - 1, calls.step + MOST_ALIKE)
        if self.runs_behind and calls.in_epoch is not None:
            until = min(until, calls.step + calls.in_epoch - calls.batch - 2)  # see `_last_of_epoch`
        calls.enter_fast_path(until, self._keep_interval, recorder.put, recorder.append)
        # Asked after that: another thread may just now wish for a window.
        if self.profiling.plan is not None or not recorder.on:
            calls.fast_until = NEVER

    def _step_now(self) -> int:
        """Return the step within whose interval it is now: where only begins are seen, the one that began
        last is counted as the next one begins."""
        return self.calls.step + (self.queues and self.calls.is_open)

    def _last_hook_ns(self) -> int:
        """Return when the last hook was told."""
        return max(self._last_ns, self.calls.last_ns, self.spent.since)

    def _look(self, line: Line) -> None:
        """Read what is due after this call."""
        before = line.step - line.covers
        if line.t_ns >= self._spent_ns:
            self._write_spent(before, line)
        if self._schedule.due(before, line.step) or self._end_unknown:
            observer = self.observer
            if (reading := observer.read()) is not None:
                observer.note(line, reading)
            if observer.memory_on:
                observer.note_memory(line)
            observer.look_at(line)

    def _dispatched(self, line: Line, now_ns: int, *, before_last: bool = False) -> None:
        """Note that this call has been dispatched, on an asynchronous backend. `before_last`: an epoch's last
        one begins, and the epoch's end may give it and the calls before it no time."""
        if self._awaited is not None:
            self._wait_for(self._awaited)
        self._calls_run += 1
        if self._special:
            self._after_call(line)
        if line.step < self._schedule.next and not self._end_unknown:
            self._queued.append(line)
            if before_last:
                self._wait_before_last(line)
            return
        observer, in_window, before = self.observer, self.profiling.profiles, line.step - line.covers
        if line.t_ns >= self._spent_ns:
            self._write_spent(before, line)
        if not in_window and (self._schedule.due(before, line.step) or self._end_unknown):
            line.snapshot = observer.snapshot(self._model())
            if observer.memory_on:
                observer.note_memory(line)
        self._queued.append(line)
        if before_last and not in_window:
            self._wait_before_last(line)
        elif not in_window and self._waits(before, now_ns):
            if line.snapshot is None:
                self._wait(line)
            elif line.snapshot.ready():
                self.calls.waited(self._clock(), line)
            else:  # one call later: until then the device has that one to work on
                self._awaited = line

    def _write_spent(self, before: int, line: Line) -> None:
        """Write what is notable of the time that was spent, every `read_every` steps and not too often."""
        if self._schedule.round(before, self.calls.step):
            self._spent_ns = line.t_ns + SPENT_NS
            self.spent.write(NOTABLE_NS)

    def _waits(self, before: int, now_ns: int) -> bool:
        """Return whether to wait for the device after this call."""
        if not self.runs_behind or not self.observer.schedule.round(before, self.calls.step):
            return False
        waited_ns = self.calls.waited_ns
        return self.calls.step <= WAIT_STEPS or waited_ns is None or now_ns - waited_ns >= WAIT_NS

    def _last_of_epoch(self, batch: int) -> bool:
        """Return whether the call that begins with `batch` is known to be an epoch's last one, and its steps
        are timed between waits."""
        left = self.calls.left(batch) if self.runs_behind and not self.profiling.profiles else None
        return left is not None and left <= self.calls.per_call

    def _wait_before_last(self, line: Line) -> None:
        """Wait until the device has finished the call of this line, and hold the line back: its epoch's end
        decides whose time that was."""
        begin_ns = self._clock()
        if self.recorder.attempt("waiting", self._waited):
            now = self._clock()
            self._awaited, self._before_last = line, self.calls.since_waited(now)
            self._waited_ns += now - begin_ns

    def _wait(self, line: Line | None = None) -> None:
        begin_ns = self._clock()
        if self.recorder.attempt("waiting", self._waited):
            now = self._clock()
            self.calls.waited(now, line)
            self._waited_ns += now - begin_ns

    def _waited(self) -> bool:
        self._wait_for_device()
        return True

    def _wait_for(self, line: Line) -> None:
        """Wait until the device has finished the call of this line. The one after it was dispatched
        meanwhile, so the device does not run idle while the host waits."""
        self._awaited, self._before_last, begin_ns = None, None, self._clock()
        reading = None if line.snapshot is None else self.observer.arrived(line.snapshot)
        line.snapshot = None if reading is None else Taken(reading)
        if reading is not None:
            now = self._clock()
            self.calls.waited(now, line, behind=1)
            self._waited_ns += now - begin_ns

    def _wait_for_device(self) -> None:
        self.probe.wait(self.model)

    def _after_call(self, line: Line) -> None:
        """Do what is not the same for every call: a window, a model to describe, the warm-up."""
        self._special = self._calls_run <= WARM_CALLS or not self.profiling.idle
        self._stop_watching()
        self.profiling.after_call(line, self._calls_run)
        if not self._described:
            # A model without an Input and the optimizer's variables exist only after the first step.
            begin = self._clock()
            self._find_counters(begins=False)
            self.recorder.attempt("model", self._describe_model)
            self.recorder.save()
            self.calls.leave_out(self._clock() - begin)
        if self._calls_run == WARM_CALLS:
            self.observer.reset_memory_peak(line)

    def _find_counters(self, *, begins: bool) -> None:
        self.observer.find_counters(getattr(self.model, "optimizer", None), begins=begins)

    @property
    def batch_size(self) -> int | None:
        """Global, of the running fit; None where its input does not state it."""
        return self._batch_size

    # --- lines -----------------------------------------------------------------------------------------

    def _not_read(self) -> bool:
        """Return whether the newest line waits for no reading of its own, as within a window. Its call may
        have been broken off by the input's end, which shows when the epoch ends."""
        return self._end_unknown and bool(self._queued) and self._queued[-1].snapshot is None

    def _drain(self, now_ns: int | None = None, keeps: int = 0) -> None:
        """Hand over queued lines in order, each with its reading, but for the newest `keeps`. Without
        `now_ns` all of them, else those before a reading that has not arrived."""
        while len(self._queued) > keeps:
            line = self._queued[0]
            if isinstance(line, tuple):
                self._queued.popleft()
                self.recorder.put(line)
                continue
            snapshot = line.snapshot
            if now_ns is not None and line is self._awaited:
                return
            if snapshot is not None:
                if now_ns is not None and not snapshot.ready():
                    late = now_ns - self.recorder.zero_ns - line.t_ns > LATE_NS
                    if not late:
                        self._ask_ns = now_ns + ASK_NS
                        return
                reading = self.observer.arrived(snapshot)
                if reading is not None:
                    if reading.loss is not None:
                        line.loss = reading.loss
                        self.recorder.absent.pop("loss", None)
                    self.observer.note(line, reading)
                    self.observer.look_at(line)
                line.snapshot = None
            self._queued.popleft()
            if line.interval_ns is None:
                self.recorder.put(line)
            else:
                self._emit(line)

    def _emit(self, line: Line) -> None:
        interval = line.interval_ns
        if interval is not None and not line.profiled:
            plan = self.profiling.plan
            if plan is not None and self.profiling.window is None:
                plan.interval(interval)
            if self._calls_run - (line.interval_calls or 1) >= WARM_CALLS:
                self.observer.keep_interval(line)
        self.recorder.put(line)

    def _emit_all(self, line: Line | None) -> None:
        self._drain()
        if line is not None:
            self._emit(line)

    # --- the edges of a profile window -----------------------------------------------------------------

    def _settle(self) -> None:
        """Settle the lines that wait: only a wait gives the window whole steps where the device runs
        behind."""
        if self.runs_behind:
            self._awaited = self._before_last = None
            newest = self._queued[-1] if self._queued else None
            self._wait(newest if isinstance(newest, Line) else None)
        self._drain(keeps=self._not_read())

    def _resumed(self) -> None:
        self.calls.restart_interval(self._clock())

    # --- numbers by layer ------------------------------------------------------------------------------

    def _broke(self, seen: Seen, scale: float | None) -> None:
        """Note what a reading shows that numbers by layer may explain."""
        self.looks.see(seen.step, seen.span, seen.skipped, seen.loss, scale)
        if self.looks.due:
            self.calls.fast_until = NEVER  # the next call begins with the look

    def _look_between_calls(self, at: str) -> None:
        """Look at the model's numbers; the time is no call's. A window is left as it is: it is looked at
        after it."""
        if self.profiling.profiles:
            return
        self._settle()
        took_ns = self._look_at_numbers(at)
        self._waited_ns += took_ns
        if self.runs_behind:
            self._resumed()
        else:
            self.calls.leave_out(took_ns)

    def _last_look(self) -> None:
        if self.looks is not None and self._active():
            self.looks.end()
            self._look_at_numbers("train")

    def _look_at_numbers(self, at: str) -> int:
        """Look at the model's numbers where that is wanted, and return how long it took. A failure is said
        once, and numbers are not looked at again."""
        begin_ns, recorder = self._clock(), self.recorder
        looked = recorder.attempt("numerics", self._looked, begin_ns - recorder.zero_ns)
        if looked is None:
            self.looks = self.observer.broke = None
        if looked is False:
            return 0
        took_ns = self._clock() - begin_ns
        self.spent.add(self.spent.of("profiler", "numerics", at), took_ns)
        if self.observer.memory_on and self.probe.backend == "jax":
            self.observer.memory_on = False
            recorder.absent["memory"] = (
                "a look at the numbers by layer raised the peak, which JAX cannot reset"
            )
        self.observer.reset_memory_peak()
        return took_ns

    def _looked(self, t_ns: int) -> bool | None:
        """Return whether the model was looked at; None where it cannot be."""
        try:
            unscaled = self._fit_facts.get("scale_loss_called") is False
            return bool(
                self.looks.look(
                    self.recorder.root, self.model, self.calls.step, t_ns, self._clock, unscaled=unscaled
                )
            )
        except MpprofError as error:
            self.recorder.absent["numerics"] = str(error)
            warn_once("mpprof does not look at the numbers by layer: %s", error)
            return None

    # --- facts -----------------------------------------------------------------------------------------

    def _active(self) -> bool:
        return self.recorder.on and self.active()

    def _describe_process(self, model: Any) -> None:
        recorder = self.recorder
        recorder.facts["framework"] = recorder.attempt("framework", self._framework)
        describe_process(recorder, self.probe, model)
        self.observer.memory_on = "memory" not in recorder.absent
        recorder.facts["timing"] = {"read_every": self.observer.schedule.read_every, **self._timing()}
        self._explain_absences()
        if not self.profiling.wanted:
            recorder.absent.setdefault("profile_windows", "not wanted (profile_steps=None)")

    def _timing(self) -> Facts:
        basis = "asynchronous" if self.runs_behind else "synchronous"
        note = ASYNCHRONOUS_NOTE if self.runs_behind else SYNCHRONOUS_NOTE
        return {"basis": basis, "note": self.probe.timing_note or note}

    def _explain_absences(self) -> None:
        absent = self.recorder.absent
        if self.queues:
            absent["input_wait_ns"] = "Keras fetches data between two calls: the wait lies in the interval"
            absent["loss"] = NO_LOSS
        else:
            absent["input_wait_ns"] = "Keras fetches data inside the train function: see the profile window"

    def _framework(self) -> Facts:
        return framework_facts(self.probe, self.model)

    def _read_batch_size(self) -> None:
        found = self.recorder.attempt("batch_size", self._batch)
        self._batch_size = found if isinstance(found, int) else None
        if isinstance(found, Absent):
            self.recorder.absent["batch_size"] = found.reason
        elif found is not None:
            self.recorder.absent.pop("batch_size", None)

    def _batch(self) -> int | Absent:
        return batch_size_of_running_fit()

    def _describe_fit(self) -> None:
        facts = self.recorder.attempt(
            "fits", fit_facts, self.model, self.calls.fit, self.calls.step + 1, None, self._batch_size
        )
        self._fit_facts: Facts = facts or {"fit": self.calls.fit, "first_step": self.calls.step + 1}
        self.recorder.add_fit(self._fit_facts)
        self._describe_loss()
        self._describe_input()
        self.recorder.attempt("model", self._describe_model)
        self._described = False

    def _describe_loss(self) -> None:
        if found := self.recorder.attempt("fits.loss", describe_loss, self.model):
            self._fit_facts["loss"] = found

    def _describe_input(self) -> None:
        if found := self.recorder.attempt("input", input_of_running_fit):
            self._fit_facts["input"] = found

    def _describe_model(self) -> None:
        self._describe_layers(self.model)

    def _describe_layers(self, model: Any) -> None:
        self._described = True
        facts = self.recorder.facts["model"] = model_facts(model)
        if too_many := layers_not_described(facts):
            self.recorder.absent[LAYERS] = too_many
        if name := self._fit_facts.get("model"):
            self._trained.add(name)
        if earlier := sorted(self._trained - {getattr(model, "name", None)}):
            more = f" and {len(earlier) - MOST_NAMED} more" if len(earlier) > MOST_NAMED else ""
            self.recorder.absent["model.earlier"] = (
                f"only the model of the last fit is described, not {', '.join(earlier[:MOST_NAMED])}{more}"
            )

    def _split_wall_time(self) -> None:
        """Begin to tell apart what this fit's wall time goes into, and explain what cannot be told apart."""
        self._input = None
        self._trains_in = threading.get_ident()
        self._compiles = self._known("compile", self.probe.compiles, self._model, self._compiled)
        self._known("setup", lambda: Absent(SETUP))
        self._known("callbacks", self._why_hooks_are_not_timed)
        self._known("input", self._time_input)
        self._watch = self.recorder.attempt("fits.scale_loss_called", self._watch_scaling)

    def _watch_scaling(self) -> ScaleWatch | None:
        if self.probe.backend == "torch" and getattr(self.model, "jit_compile", False):
            return None  # dynamo would trace what watches
        optimizer = getattr(self.model, "optimizer", None)
        function = getattr(self.model, "train_function", None)
        return ScaleWatch(optimizer, lambda: self._part() == "batch", function)

    def _stop_watching(self) -> None:
        """Note whether the first call has scaled the loss, if it could be seen."""
        watch, self._watch = self._watch, None
        called = None if watch is None else watch.stop()
        if called is not None:
            self._fit_facts["scale_loss_called"] = called
            self.observer.scales_loss(called)

    def _known(self, part: str, ask: Callable[..., Any], *arguments: Any) -> Any:
        """Return the answer, or None where it is an absence: `absent` then says why the part is not split."""
        field = f"run_time.{part}"
        found = self.recorder.attempt(field, ask, *arguments)
        if isinstance(found, Absent):
            self.recorder.absent[field] = found.reason
            return None
        if self.recorder.works(field):
            self.recorder.absent.pop(field, None)
        return found

    def _why_hooks_are_not_timed(self) -> Absent | None:
        if self._hooks_timed:
            return None
        timed = isinstance(getattr(running_fit(), "callbacks", None), TimedList)
        return Absent(TIMED_ALREADY if timed else NOT_TIMED)

    def _time_input(self) -> Absent | None:
        iterator = epoch_iterator_of_running_fit()
        if iterator is None:
            return Absent("only a fit of Keras 3 takes its batches where they can be timed")
        if not self.queues:
            return Absent("the batches are taken within the train function: only a trace shows the wait")
        kind = str(self._fit_facts.get("input", {}).get("kind", "input"))
        wait = InputWait(self.spent, kind, within_call=self.probe.backend == "jax")
        keep = None if self.looks is None or self.looks.keep is None else self._kept
        why_not = time_input(iterator, wait, lambda error: self.recorder.fail("run_time.input", error), keep)
        self._input = wait if why_not is None else None
        return why_not

    def _kept(self, batch: Any) -> None:
        """Have a batch that was drawn kept for a look."""
        begin_ns = self._clock()
        if self.looks is not None and (keep := self.looks.keep) is not None:
            self.recorder.attempt("numerics", keep, batch)
            self.spent.add(self.spent.of("profiler", "numerics", "batch"), self._clock() - begin_ns)

    def _compiled(self, calls: int, ns: int | None) -> None:
        """Note what was compiled, where a source tells of it at once, or was asked by `_ask_compiles`."""
        source = self._compiles
        if source is not None and (at := self._asked_at or self._part()) is not None:
            total = self.spent.of("compile", source.name, at)
            if ns is not None and ns >= LONG_CALL_NS and at == "batch":
                self.spent.add_apart(total, calls, ns)
            else:
                self.spent.count(total, calls, ns)

    def _part(self) -> str | None:
        if self._fit is not None or threading.get_ident() != self._trains_in:
            return part_of_running_fit()
        if self._validation_ns is not None:  # a loop that calls the hooks of a list of its own
            return part_of_running_fit("validation")
        return part_of_running_fit("batch" if self.calls.is_open else "epoch")

    def _ask_compiles(self, at: str) -> None:
        if self._compiles is not None:
            self._asked_at = at
            self.recorder.attempt("run_time.compile", self._compiles.ask)
            self._asked_at = None

    # --- the end ---------------------------------------------------------------------------------------

    def result(self, root: Path) -> RunResult:
        self.observer.settle_intervals()
        intervals, facts = self.observer.intervals, self.recorder.facts
        lost = self.recorder.attempt("result", self.recorder.why_lost)
        traced = [
            window
            for window in facts.get("profile_windows") or ()
            if "trace" in window and (lost is None or self.recorder.holds(window["trace"]))
        ]
        return RunResult(
            path=root,
            steps=self.calls.step,
            skipped=None if "skipped" in self.recorder.absent else self.observer.skipped,
            alarms=tuple(alarm["text"] for alarm in facts.get("alarms", ())),
            finished=self._ended in ("finished", "stopped") and lost is None,
            traced_steps=(traced[-1]["first_step"], traced[-1]["last_step"]) if traced else None,
            lost=lost,
            at_hand_ns=(statistics.median(intervals) if intervals else None, self.observer.mean_step_ns),
            running=self.in_fit or self._within_ns is not None,
        )

    def summary(self, *, step_time: bool = True) -> str:
        """Return one line on the run so far. `step_time`: with the mean step time, where no verdict states
        one."""
        return self.result(self.recorder.root).line(step_time=step_time)


_IN_FIT: dict[int, FitSession] = {}
"""Those whose fit has begun and was not told to have ended."""
