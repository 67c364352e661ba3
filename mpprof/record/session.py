"""What the callback's hooks do: the recorder, the call log, readings, the window, and the end of a fit.

The hooks of a synchronous backend are begin and end; of an asynchronous one only begin, in which the
state after the call before can be asked for without disturbing Keras' dispatch.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from mpprof.record.alarms import Alarm, Seen, Watch
from mpprof.record.calls import CallLog, Line
from mpprof.record.describe import describe_process, framework_facts
from mpprof.record.fits import batch_size_of_running_fit, fit_facts
from mpprof.record.flavour import counts_skipped_steps, steps_per_execution
from mpprof.record.layers import model_facts
from mpprof.record.probes.base import Absent, Facts, Probe, Snapshot
from mpprof.record.reading import Reading, Schedule, SkipCounter
from mpprof.record.recorder import Recorder, say
from mpprof.record.result import RunResult
from mpprof.record.window import Plan, Window

WARM_CALLS = 8
"""Calls after which the allocator's peak is reset, once: the first ones autotune and compile."""

WAIT_STEPS, WAIT_NS = 128, 20_000_000
"""After so many steps a wait for the device comes at the earliest so long after the one before: it drains
the queue of dispatched work, which steps of a tenth of a millisecond would notice."""

LATE_NS = 500_000_000
"""A line is not held back for a reading that takes longer than this."""

SYNCHRONOUS_NOTE = (
    "Keras waits for the device at every batch end; interval_ns is batch begin to batch begin on the host. "
    "loss is Keras' running mean over the epoch."
)
ASYNCHRONOUS_NOTE = (
    "The device runs behind the host: dispatch_ns is what the host took. Only lines marked synced carry "
    "interval_ns: the mean per call between two waits for the device, over interval_calls calls."
)


class FitSession:
    """Records all `fit` calls of one callback instance as one run."""

    profiling: ClassVar[FitSession | None] = None
    """Whose window runs. A process has one profiler, and an error in the user's code leaves it running."""

    def __init__(
        self,
        recorder: Recorder,
        probe: Probe,
        plan: Plan | None,
        read_every: int,
        stop_on: frozenset[str] = frozenset(),
    ) -> None:
        self.recorder, self.probe, self.plan = recorder, probe, plan
        self.stop_on = stop_on
        self.stop: Callable[[], None] | None = None  # asks the training to stop
        self.opened: Callable[[Recorder], None] | None = None  # told when the run has its directory
        self._watch = Watch()
        self._seen_step = 0
        self._new_intervals: list[int] = []
        self.calls = CallLog(0)
        self.queues = probe.asynchronous  # only begins are seen, and state is asked for in between
        self.runs_behind = probe.asynchronous
        self._clock = recorder.clock
        self._schedule = Schedule(read_every)
        self._skips = SkipCounter()
        self._read: Callable[[], Reading] | None = None
        self._window: Window | None = None
        self._queued: deque[tuple[Line, Snapshot | None]] = deque()
        self._read_at = 0
        if plan is not None:
            plan.means = self.runs_behind
        self._batch_size: int | None = None
        self._in_fit = False
        self._end_unknown = False
        self._first_of_epoch = True
        self._calls_run = 0
        self._described = False
        self._validation_ns: int | None = None
        self._epoch = 0
        self._memory_on = False
        self.intervals: deque[int] = deque(maxlen=4096)  # per step, for the summary line
        self.skipped: int | None = None

    # --- one fit ---------------------------------------------------------------------------------------

    def start_fit(self, model: Any, steps_per_epoch: int | None) -> None:
        recorder = self.recorder
        if self._in_fit:
            self._end_fit("interrupted")
        stale = FitSession.profiling  # no window of this fit can be open yet
        if stale is not None:
            stale.recorder.attempt("profile_windows", stale._close_window)
        first = not self.calls.fit
        if first:
            recorder.open(recorder.attempt("worker", self.probe.worker, model))
        recorder.resume()
        if not recorder.on:
            return
        self.model = model
        if first:
            if self.opened is not None:
                self.recorder.attempt("sinks", self.opened, recorder)
            self.calls = CallLog(recorder.zero_ns)
            self.calls.runs_behind = self.runs_behind
            recorder.at_exit = self.at_exit
            recorder.wished = self.wish_window
            self._describe_process(model)
        self.calls.start_fit(steps_per_execution(model), steps_per_epoch)
        # Any call of several steps may then have run fewer than it claims: each is read.
        self._end_unknown = self.calls.per_call > 1 and steps_per_epoch is None
        recorder.put({"kind": "fit", "fit": self.calls.fit, "t_ns": self._clock() - recorder.zero_ns})
        self._in_fit, self._first_of_epoch, self._described = True, True, False
        self._initial_epoch: int | None = None
        self._batch_size = recorder.attempt("batch_size", self._batch)
        self._find_counters()
        self._describe_fit()
        recorder.save()

    def end_fit(self, stopped: bool) -> None:
        self._end_fit("stopped" if stopped else "finished")

    def abandon(self) -> None:
        """Recording has failed: let go of the profiler and the files."""
        self._in_fit = False
        self._close_window()
        self.recorder.close()

    def at_exit(self) -> None:
        """The process ends; a fit that still runs was interrupted."""
        if self._in_fit:
            self._end_fit("interrupted")
        self.recorder.close()

    def _end_fit(self, reason: str) -> None:
        self._in_fit = False
        if reason == "interrupted":
            self._emit_all(self.calls.close_epoch())
        self._close_window()
        if self.plan is not None and not self.recorder.facts.get("profile_windows"):
            self.recorder.absent["profile_windows"] = (
                f"training ended at step {self.calls.step}, before the window could open"
            )
        self.recorder.put({"kind": "fit_end", "reason": reason, **self._last_memory(reason)})
        self.recorder.pause()

    def _last_memory(self, reason: str) -> Facts:
        """The allocator's state when a fit has failed: of an out-of-memory error it is the first question."""
        if not self._memory_on or reason != "interrupted":
            return {}
        memory = self.recorder.attempt("memory", self.probe.memory)
        return {"memory": memory} if isinstance(memory, list) else {}

    def wish_window(self) -> None:
        """Open a further window as soon as may be; nothing where one is open or planned. From any thread."""
        if self.plan is None and self._window is None:
            self.plan = Plan.now(self.calls.step)

    # --- epochs and validation -------------------------------------------------------------------------

    def start_epoch(self, epoch: int) -> None:
        if not self._active():
            return
        if self._initial_epoch is None:
            self._initial_epoch = epoch
            self._fit_facts["initial_epoch"] = epoch
            self.recorder.save()
        self.calls.start_epoch(epoch)
        self._first_of_epoch = True

    def end_epoch(self, logs: dict[str, Any] | None = None) -> None:
        """The epoch's last call has run. Comes before validation, and again at Keras' own epoch end."""
        if not self._active():
            return
        if logs and type(loss := logs.get("loss")) is float and self.queues:
            self._alarms(Seen(self.calls.step, 0, loss=loss))  # where no step's loss is known
        line = self.calls.pending
        if self.queues:
            line = self.calls.dispatched(None, self._clock())
            if line is not None:
                self._calls_run += 1
                self._after_call(line)
        if line is not None and self._read is not None:
            # On every backend the variables now hold the state after the last step.
            reading = self.recorder.attempt("skipped", self._read)
            if reading is not None:
                self._drain()
                self._note(line, reading)
        if self._window is not None:
            self._window.unmark()  # what follows belongs to no step
        self._drain()
        self._emit_all(line)
        self.calls.close_epoch()

    def start_validation(self) -> None:
        if not self._active():
            return
        self.end_epoch()
        if self._window is not None:
            self._close_window()
        self._validation_ns = self._clock()

    def end_validation(self) -> None:
        begin, self._validation_ns = self._validation_ns, None
        if self._active() and begin is not None:
            now = self._clock()
            end = now - self.recorder.zero_ns
            self.recorder.put({"kind": "validation", "t_ns": end, "duration_ns": now - begin})

    # --- calls -----------------------------------------------------------------------------------------

    def begin(self, batch: int) -> None:
        """A call begins (on asynchronous backends: and the one before has been dispatched)."""
        if not (self._in_fit and self.recorder.on):
            if self._window is not None:  # recording has ended within it: the profiler must not run on
                self._close_window()
            return
        now = self._clock()
        if self.queues:
            self._begin_asynchronous(batch, now)
        else:
            line = self.calls.begin(batch, now)
            if line is not None:
                if self.runs_behind:
                    self._queued.append((line, None))
                else:
                    self._emit(line)
        if self.plan is not None:
            self._profile(batch)
        if self._queued:
            self._drain(now)
        self._first_of_epoch = False

    def end(self, logs: dict[str, Any] | None) -> None:
        """A call has run, on a synchronous backend."""
        if not (self._in_fit and self.recorder.on):
            return
        calls = self.calls
        before = calls.step
        line = calls.end(self._clock())
        if line is None:
            return
        loss = logs.get("loss") if logs else None
        if type(loss) is float:
            line["loss"] = loss
        self._calls_run += 1
        if self.plan is not None or not self._described or self._calls_run <= WARM_CALLS:
            self._after_call(line)
        if self._schedule.due(before, calls.step) or self._end_unknown:
            if self._read is not None:
                reading = self.recorder.attempt("skipped", self._read)
                if reading is not None:
                    self._note(line, reading)
            self._note_memory(line)
            self._look_at(line)

    def _begin_asynchronous(self, batch: int, now_ns: int) -> None:
        before = self.calls.step
        line = self.calls.dispatched(batch, now_ns)
        if line is None:
            return
        self._calls_run += 1
        if self.plan is not None or not self._described or self._calls_run <= WARM_CALLS:
            self._after_call(line)
        snapshot = None
        if self._window is None and (self._schedule.due(before, self.calls.step) or self._end_unknown):
            snapshot = self.recorder.attempt("skipped", self.probe.snapshot, self.model)
            self._note_memory(line)
        self._queued.append((line, snapshot))
        if self._window is None and self._waits(before, now_ns):
            self._wait(line)

    def _waits(self, before: int, now_ns: int) -> bool:
        """Whether to wait for the device after this call."""
        if not self._schedule.round(before, self.calls.step):
            return False
        waited_ns = self.calls.waited_ns
        return self.calls.step <= WAIT_STEPS or waited_ns is None or now_ns - waited_ns >= WAIT_NS

    def _wait(self, line: Line | None = None) -> None:
        self.recorder.attempt("waiting", self._wait_for_device)
        self.calls.waited(self._clock(), line)

    def _last_queued(self) -> Line | None:
        """The line of the call before, while it can still be written to."""
        return self._queued[-1][0] if self._queued else None

    def _wait_for_device(self) -> None:
        self.probe.wait(self.model)

    def _after_call(self, line: Line) -> None:
        """What is not the same for every call, a window, a model to describe, the warm-up."""
        if self.plan is not None:
            self.plan.calls = self._calls_run
            if self._window is not None:
                line["profiled"] = True
        if not self._described:
            # A model without an Input and the optimizer's variables exist only after the first step.
            self._find_counters()
            self.recorder.attempt("model", self._describe_model)
            self.recorder.save()
        if self._calls_run == WARM_CALLS and self._memory_on:
            reason = self.recorder.attempt("memory", self.probe.reset_memory_peak)
            if reason:
                self.recorder.absent["memory.reset"] = reason

    # --- readings --------------------------------------------------------------------------------------

    def _find_counters(self) -> None:
        optimizer = getattr(self.model, "optimizer", None)
        # With one step a call, the counter of good steps could tell nothing more (but see Keras 2).
        found = self.recorder.attempt(
            "skipped",
            self.probe.counters,
            optimizer,
            self.calls.per_call > 1 or counts_skipped_steps(optimizer),
        )
        if found is None or isinstance(found, Absent):
            self._read = None
            if found is not None:
                self.recorder.absent["skipped"] = self.recorder.absent["loss_scale"] = found.reason
            return
        self._read = found
        if not self._described and self._calls_run_in_fit() == 0:
            growth = getattr(self.model.optimizer, "dynamic_growth_steps", None)
            self._skips = SkipCounter(growth, counts_skipped_steps(self.model.optimizer))
            self._watch.growth_steps = growth
            reading = self.recorder.attempt("skipped", found)
            if reading is not None:
                self._skips.start(_at_start(self.model.optimizer, reading))
                self._read_at = self.calls.step
        if not hasattr(self.model.optimizer, "inner_optimizer"):
            fixed = getattr(self.model.optimizer, "loss_scale_factor", None)
            reason = (
                "the optimizer scales no loss" if fixed is None else f"the loss scale is fixed at {fixed}"
            )
            self.recorder.absent.setdefault("loss_scale", reason)

    def _calls_run_in_fit(self) -> int:
        return self.calls.step - self._fit_first_step

    @property
    def batch_size(self) -> int | None:
        """Global, of the running fit; None where its input does not state it."""
        return self._batch_size

    @property
    def _fit_first_step(self) -> int:
        fits = self.recorder.facts.get("fits") or []
        return int(fits[-1]["first_step"]) - 1 if len(fits) == self.calls.fit else self.calls.step

    def _note(self, line: Line, reading: Reading) -> None:
        """Write a reading into the line of the call that it follows."""
        if reading.loss_scale is not None:
            line["loss_scale"] = reading.loss_scale
        before = self._skips.last
        # Where the input ends within a call, fewer steps ran than it claimed.
        settled = self._skips.settle(line["step"] - self._read_at, reading, self.calls.per_call - 1)
        if settled is None:
            if before is not None:
                self.recorder.absent["skipped"] = (
                    "the optimizer's counter does not advance once per step: steps cannot be told from skips"
                )
            self._read_at = line["step"]
            return
        missing = line["step"] - self._read_at - settled.ran
        if missing:
            self.calls.correct(line, missing)
        self._read_at = line["step"]
        # An epoch's last line may be read twice: after its call, and when the epoch ends.
        line["skipped"] = line.get("skipped", 0) + settled.skipped
        self.skipped = (self.skipped or 0) + settled.skipped
        if before is not None and before.loss_scale not in (None, reading.loss_scale):
            self._schedule.changed(line["step"])

    def _note_memory(self, line: Line) -> None:
        if self._memory_on:
            memory = self.recorder.attempt("memory", self.probe.memory)
            if isinstance(memory, list):
                line["memory"] = memory

    def _look_at(self, line: Line) -> None:
        """Whether a line that was read gives reason for an alarm."""
        span, self._seen_step = line["step"] - self._seen_step, line["step"]
        intervals, self._new_intervals = self._new_intervals, []
        self.intervals.extend(intervals)
        throttled = self.recorder.throttled()
        if not throttled and self._watch.as_ever(
            span, line.get("skipped"), line.get("loss_scale"), line.get("loss"), intervals
        ):
            return
        self._alarms(
            Seen(
                line["step"],
                span,
                line.get("skipped"),
                line.get("loss_scale"),
                line.get("loss"),
                (),
                throttled,
            )
        )

    def _alarms(self, seen: Seen) -> None:
        for alarm in self._watch.see(seen):
            self._raise_alarm(alarm)

    def _raise_alarm(self, alarm: Alarm) -> None:
        stops = alarm.kind in self.stop_on and self.stop is not None
        say("mpprof: %s%s", alarm.text, "; training is stopped" if stops else "")
        facts = {"kind": alarm.kind, "step": alarm.step, "text": alarm.text}
        self.recorder.facts.setdefault("alarms", []).append(facts)
        if stops and self.stop is not None:
            self.stop()

    # --- lines -----------------------------------------------------------------------------------------

    def _drain(self, now_ns: int | None = None) -> None:
        """Hand over queued lines in order, each with its reading. Without `now_ns` all of them, else those
        before a reading that has not arrived."""
        while self._queued:
            line, snapshot = self._queued[0]
            if snapshot is not None:
                if now_ns is not None and not snapshot.ready():
                    late = now_ns - self.recorder.zero_ns - line["t_ns"] > LATE_NS
                    if not late:
                        return
                reading = self.recorder.attempt("skipped", snapshot.reading)
                if reading is not None:
                    self._note(line, reading)
                    self._look_at(line)
            self._queued.popleft()
            self._emit(line)

    def _emit(self, line: Line) -> None:
        interval = line.get("interval_ns")
        if interval is not None and not line["profiled"]:
            if self.plan is not None and self._window is None:
                self.plan.interval(interval)
            if self._calls_run - line.get("interval_calls", 1) >= WARM_CALLS:
                self._new_intervals.append(interval // line["covers"])
        self.recorder.put(line)

    def _emit_all(self, line: Line | None) -> None:
        self._drain()
        if line is not None:
            self._emit(line)

    # --- the profile window ----------------------------------------------------------------------------

    def _profile(self, batch: int) -> None:
        plan, window = self.plan, self._window
        if plan is None:
            return
        next_step = self.calls.step + 1
        covers = self.calls.covers(batch)
        if window is not None and (plan.closes(next_step, window.calls) or window.too_large()):
            self._close_window()
            return
        if window is None:
            left = self.calls.left(batch)
            calls_left = None if left is None else -(-left // self.calls.per_call)
            if not plan.opens(next_step, calls_left, self._first_of_epoch):
                return
            self.recorder.attempt("profile_windows", self._open_window, next_step)
            window = self._window
        if window is not None:
            self.recorder.attempt("markers", window.mark, self.calls.step + covers)

    def _open_window(self, first_step: int) -> None:
        window = Window(self.probe, self.recorder.root, self._clock, first_step)
        self.recorder.facts.setdefault("profile_windows", []).append(window.facts)
        self.recorder.save()  # a process that is killed within leaves a window that is "open"
        if self.runs_behind:
            self._wait(self._last_queued())
        self._drain()
        window.start()
        self.recorder.absent.pop("profile_windows", None)
        FitSession.profiling = self
        self._lament(window)
        self._window = window
        self.calls.restart_interval(self._clock())

    def _close_window(self) -> None:
        window, self._window, self.plan = self._window, None, None if self._window else self.plan
        if window is None:
            return
        if FitSession.profiling is self:
            FitSession.profiling = None
        self.recorder.attempt("markers", window.unmark)
        if self.runs_behind:
            self._wait(self._last_queued())
        failed_before = window.failure
        self.recorder.attempt("profile_windows", window.stop)
        if not failed_before:
            self._lament(window)
        self.calls.restart_interval(self._clock())
        self.recorder.save()

    def _lament(self, window: Window) -> None:
        if window.failure and self.recorder.on:
            say("mpprof has no trace of this run: %s", window.failure)

    # --- facts -----------------------------------------------------------------------------------------

    def _active(self) -> bool:
        return self.recorder.on and self._in_fit

    def _describe_process(self, model: Any) -> None:
        recorder = self.recorder
        recorder.facts["framework"] = recorder.attempt("framework", self._framework)
        describe_process(recorder, self.probe, model)
        self._memory_on = "memory" not in recorder.absent
        recorder.facts["timing"] = {"read_every": self._schedule.read_every, **self._timing()}
        self._explain_absences()
        if self.plan is None:
            recorder.absent["profile_windows"] = "not wanted (profile_steps=None)"

    def _timing(self) -> Facts:
        if self.runs_behind:
            return {"basis": "asynchronous", "note": ASYNCHRONOUS_NOTE}
        return {"basis": "synchronous", "note": SYNCHRONOUS_NOTE}

    def _explain_absences(self) -> None:
        absent = self.recorder.absent
        if self.queues:
            absent["input_wait_ns"] = "Keras fetches data between two calls: the wait lies in the interval"
            absent["loss"] = "reading the loss of a step would wait for the device"
        else:
            absent["input_wait_ns"] = "Keras fetches data inside the train function: see the profile window"

    def _framework(self) -> Facts:
        return framework_facts(self.probe, self.model)

    def _batch(self) -> int | None:
        return batch_size_of_running_fit()

    def _describe_fit(self) -> None:
        facts = self.recorder.attempt(
            "fits", fit_facts, self.model, self.calls.fit, self.calls.step + 1, None, self._batch_size
        )
        self._fit_facts: Facts = facts or {"fit": self.calls.fit, "first_step": self.calls.step + 1}
        self.recorder.facts.setdefault("fits", []).append(self._fit_facts)
        if self._batch_size is None:
            self.recorder.absent.setdefault("batch_size", "the input does not state it")
        self.recorder.attempt("model", self._describe_model)
        self._described = False

    def _describe_model(self) -> None:
        self._described = True
        self.recorder.facts["model"] = model_facts(self.model)

    # --- the end ---------------------------------------------------------------------------------------

    def _settle_intervals(self) -> None:
        intervals, self._new_intervals = self._new_intervals, []
        self.intervals.extend(intervals)

    def result(self, root: Path) -> RunResult:
        self._settle_intervals()
        return RunResult(
            path=root,
            steps=self.calls.step,
            skipped=self.skipped,
            median_step_ns=statistics.median(self.intervals) if self.intervals else None,
            alarms=tuple(alarm["text"] for alarm in self.recorder.facts.get("alarms", ())),
            finished=not self._in_fit,
        )

    def summary(self, *, median: bool = True) -> str:
        """One line on the run so far. `median`: with the median step time, for want of a verdict's."""
        self._settle_intervals()
        parts = [f"{self.calls.step} steps"]
        if self.intervals and median:
            parts.append(f"median {statistics.median(self.intervals) / 1e6:.3g} ms")
        if self.skipped is not None:
            parts.append(f"{self.skipped} skipped")
        windows = self.recorder.facts.get("profile_windows") or []
        done = [window for window in windows if window["status"] == "done"]
        if done:
            parts.append(f"trace of steps {done[-1]['first_step']} to {done[-1]['last_step']}")
        return ", ".join(parts)


def _at_start(optimizer: Any, reading: Reading) -> Reading:
    """The first reading of a fit: a loss scale whose variable does not exist yet is the initial one."""
    initial = getattr(optimizer, "initial_scale", None)
    if reading.loss_scale is not None or initial is None:
        return reading
    return Reading(reading.iterations, float(initial), 0)
