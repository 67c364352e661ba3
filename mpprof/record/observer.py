"""What is read while training: the optimizer's counters, the allocator's memory, and the alarms they raise.

Readings go into the lines of the calls that they follow. Everything here runs in the training's own thread,
because only there the framework may be asked.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from typing import Any

from mpprof.record.alarms import Alarm, Seen, Watch
from mpprof.record.backends.base import Absent, Facts, Probe, Reading, Snapshot
from mpprof.record.calls import CallLog
from mpprof.record.keras_compat import counts_skipped_steps
from mpprof.record.reading import Schedule, SkipCounter
from mpprof.record.recorder import Recorder, warn_once
from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled
from mpprof.record.step_line import Line

KEPT_INTERVALS = 4096
"""How many of the latest steps the summary's median is of."""

MOST_UNTOLD = 1
"""Readings of a fit that may fail to tell skips: a callback that restores a state sets the counter once."""

CANNOT_TELL = "the optimizer's counter does not advance once per step: steps cannot be told from skips"
NO_STEP = "no step has run"
NEVER_USED = "no step has used the optimizer: it has made no loss scale"
NO_LINE = "no step was read"


class Observer:
    """`skipped`: optimizer updates skipped so far, None where the optimizer cannot tell. `intervals`: of the
    latest unprofiled steps, in ns, but for the newest ones, which are appended to `new_intervals`."""

    def __init__(
        self, recorder: Recorder, probe: Probe, calls: CallLog, read_every: int, stop_on: frozenset[str]
    ) -> None:
        self._recorder, self._probe, self._calls, self._stop_on = recorder, probe, calls, stop_on
        self.stop: Callable[[], None] | None = None  # asks the training to stop
        self.broke: Callable[[Seen, float | None], None] | None = None  # told what breaks, and its scale
        self._scale_before: float | None = None
        self.schedule = Schedule(read_every)
        self.memory_on = False
        self.skipped: int | None = None
        self.intervals: deque[int] = deque(maxlen=KEPT_INTERVALS)
        self.new_intervals: list[int] = []
        self._total_ns = self._total_steps = 0  # of all steps whose time is kept
        self._watch = Watch()
        self._skips = SkipCounter()
        self._at_begin: Reading | None = None  # of the fit, as counting began
        self._missing: dict[str, str] = {}  # what could not be read as the fit began, and why
        self.scale_told = False  # some line carries it, of an earlier fit or as the loop gave it
        self._read: Callable[[], Reading] | None = None
        self._read_at = 0
        self._untold = 0
        self._looked_at = 0
        self.ends = 0  # of epochs, since the last reading

    # --- the optimizer's counters ----------------------------------------------------------------------

    def find_counters(self, optimizer: Any, *, begins: bool) -> None:
        """Find out how to read the counters. `begins`: no step of this `fit` has run; what they hold now is
        where counting begins."""
        recorder = self._recorder
        # With one step a call, the counter of good steps could tell nothing more (but see Keras 2).
        wanted = self._calls.per_call > 1 or counts_skipped_steps(optimizer)
        found = recorder.attempt("skipped", self._probe.counters, optimizer, wanted)
        if begins:
            self._missing = {name: reason for name, reason in recorder.absent.items() if reason == NO_STEP}
        if found is None or isinstance(found, Absent):
            self._read = None
            if found is not None:
                self._missing = {"skipped": found.reason, "loss_scale": found.reason}
                recorder.absent |= self._missing
                if begins and optimizer is not None:
                    self.start_counting(optimizer, Reading(0))  # it may make its counter in the first step
            return
        self._read = found
        for name in self._missing:
            recorder.absent.pop(name, None)
        if begins:
            self.start_counting(optimizer, recorder.attempt("skipped", found))
        if (why_not := _no_scale(optimizer)) is None:
            recorder.absent.pop("loss_scale", None)
        elif not self._tells_scale():
            recorder.absent.setdefault("loss_scale", why_not)

    def start_counting(self, optimizer: Any, reading: Reading | None) -> None:
        """Start counting from what the counters hold before the first step of a `fit`."""
        self.scale_told = self._tells_scale()
        growth = getattr(optimizer, "dynamic_growth_steps", None)
        self._skips = SkipCounter(growth, counts_skipped_steps(optimizer))
        self._untold = self.ends = 0
        self._at_begin = None if reading is None else _at_start(optimizer, reading)
        self._watch.start_fit(growth, None if self._at_begin is None else self._at_begin.loss_scale)
        if self._at_begin is not None:
            self._skips.start(self._at_begin)
            self._read_at = self._calls.step

    def _tells_scale(self) -> bool:
        """Return whether a line carries the loss scale."""
        last = self._skips.last
        noted = last is not None and last is not self._at_begin and last.loss_scale is not None
        return self.scale_told or noted

    def explain_absences(self) -> None:
        """Explain, at a fit's end, why no line carries what was to be read."""
        absent, step = self._recorder.absent, self._calls.step
        if self.skipped is None:
            absent.setdefault("skipped", NO_LINE if step else NO_STEP)
        if not self._tells_scale():
            last = self._skips.last
            read = last is not None and last is not self._at_begin
            why_not = NEVER_USED if read else absent.get("skipped", NO_LINE)
            absent.setdefault("loss_scale", why_not if step else NO_STEP)

    @property
    def counts_skips(self) -> bool:
        """Whether they are told by the counters of an optimizer that scales the loss: others skip nothing."""
        last = self._skips.last
        told = self._untold <= MOST_UNTOLD and "skipped" not in self._recorder.absent
        return told and last is not None and last.loss_scale is not None

    def leave_skips(self) -> None:
        """Take the skips from the caller: from here on the counters are not read."""
        self._untold = MOST_UNTOLD + 1

    def read_nothing(self) -> None:
        """Read nothing from the optimizer's variables, because they do not follow the training: readings are
        handed over instead."""
        self._read = None

    def read(self) -> Reading | None:
        """Return the counters as the optimizer's variables hold them; None where there are none."""
        return None if self._read is None else self._recorder.attempt("skipped", self._read)

    def ran_beyond(self, covers: int) -> tuple[int, Reading] | None:
        """Return how many of the `covers` steps have run of a call whose end no hook reported, as far as the
        counters tell after a fit that failed, and the counters' reading. None: they cannot be read, or cannot
        say."""
        if self._read is None or not covers or self._untold > MOST_UNTOLD:
            return None
        try:
            reading = self._read()
        except FAILURES as error:  # the state went with the call that failed
            raise_if_signalled(error)
            return None
        claimed = self._calls.step + covers - self._read_at
        settled = copy.copy(self._skips).settle(claimed, reading, covers)
        return None if settled is None else (settled.ran - claimed + covers, reading)

    def arrived(self, snapshot: Snapshot) -> Reading | None:
        return self._recorder.attempt("skipped", snapshot.reading)

    def snapshot(self, model: Any) -> Snapshot | None:
        return self._recorder.attempt("skipped", self._probe.snapshot, model)

    def note(self, line: Line, reading: Reading) -> None:
        """Write a reading into the line of the call that it follows."""
        if reading.loss_scale is not None:
            line.loss_scale = reading.loss_scale
        if self._untold > MOST_UNTOLD:
            return
        claimed = line.step - self._read_at
        if self._calls.per_call == 1 and self._skips.as_ever(claimed, reading):
            self._read_at, self.ends = line.step, 0
            line.skipped, self.skipped = line.skipped or 0, self.skipped or 0
            return
        before = self._skips.last
        self._scale_before = None if before is None else before.loss_scale
        # Where the input ends within a call, fewer steps ran than it claimed. TensorFlow's graph has begun
        # the next one then, and where no loss is scaled its counter with it.
        per_call, ends, self.ends = self._calls.per_call, self.ends, 0
        settled = self._skips.settle(claimed, reading, per_call - 1, ends * per_call)
        if settled is None:
            self._untold += before is not None
            if self._untold > MOST_UNTOLD:
                self._recorder.absent["skipped"] = CANNOT_TELL
            self._read_at = line.step
            return
        missing = line.step - self._read_at - settled.ran
        if missing:
            self._calls.correct(line, missing)
            self.schedule.corrected()
        self._read_at = line.step
        # An epoch's last line may be read twice: after its call, and when the epoch ends.
        line.skipped = (line.skipped or 0) + settled.skipped
        self.skipped = (self.skipped or 0) + settled.skipped
        if before is not None and before.loss_scale not in (None, reading.loss_scale):
            self.schedule.changed(line.step)

    def rest(self) -> Facts:
        """Return what the counters say after a fit's last step, where no line is left that could hold it;
        empty where a line has it, or there are no counters."""
        step = self._calls.step
        if self._read is None or self._read_at == step or (reading := self.read()) is None:
            return {}
        line = Line(step, self._calls.fit, self._calls.epoch, 0, 1)
        self.note(line, reading)
        known = {"loss_scale": line.loss_scale, "skipped": line.skipped}
        return {"step": step, **{name: value for name, value in known.items() if value is not None}}

    # --- memory ----------------------------------------------------------------------------------------

    def memory(self) -> list[Facts] | None:
        """Return the memory of the accelerators, as their allocators state it; None where they do not."""
        if not self.memory_on:
            return None
        memory = self._recorder.attempt("memory", self._probe.memory)
        return memory if isinstance(memory, list) else None

    def note_memory(self, line: Line) -> None:
        """Note the memory on a line that does not have it yet: after a reset the peak tells nothing of its
        call."""
        if line.memory is None and (memory := self.memory()) is not None:
            line.memory = memory

    def reset_memory_peak(self, line: Line | None = None) -> None:
        """Reset the memory peak once, after the first calls, which autotune and compile; what it was is noted
        on the `line` of the last of them."""
        if self.memory_on:
            if line is not None:
                self.note_memory(line)
            reason = self._recorder.attempt("memory", self._probe.reset_memory_peak)
            if reason:
                self._recorder.absent["memory.reset"] = reason

    # --- step times and alarms -------------------------------------------------------------------------

    def settle_intervals(self) -> list[int]:
        """Return the `new_intervals` since this was asked last, which now count among `intervals`."""
        intervals = self.new_intervals.copy()
        self.new_intervals.clear()
        self.intervals.extend(intervals)
        self._total_ns += sum(intervals)
        self._total_steps += len(intervals)
        return intervals

    def keep_interval(self, line: Line) -> None:
        """Keep the time of a call of several steps, or the mean of several calls: it counts once among
        `intervals`, and in the mean as often as it stands for a step."""
        assert line.interval_ns is not None
        per_step, calls = line.interval_ns // line.covers, line.interval_calls or 1
        self.new_intervals.append(per_step)
        self._total_ns += line.interval_ns * calls - per_step
        self._total_steps += line.covers * calls - 1

    @property
    def mean_step_ns(self) -> float | None:
        """The time of all steps that are kept, over their number; None where there is none."""
        self.settle_intervals()
        return self._total_ns / self._total_steps if self._total_steps else None

    @property
    def timed_steps(self) -> int:
        """How many steps' time is kept."""
        self.settle_intervals()
        return self._total_steps

    def scales_loss(self, scales: bool) -> None:
        """Note whether the training's own step was seen to scale the loss."""
        self._watch.scaled = scales

    def look_at(self, line: Line) -> None:
        """Check whether a line that was read is a reason for an alarm."""
        step, skipped, scale, loss = line.step, line.skipped, line.loss_scale, line.loss
        span, self._looked_at = step - self._looked_at, step
        quiet = not self._recorder.throttling and len(self.new_intervals) < KEPT_INTERVALS
        if not (quiet and self._watch.as_ever(span, skipped, scale, loss)):
            intervals, throttled = self.settle_intervals(), self._recorder.throttled()
            self.alarm(Seen(step, span, skipped, scale, loss, intervals, throttled))

    def alarm(self, seen: Seen) -> None:
        """Raise the alarms that begin with what was seen."""
        if self.broke is not None:
            last = self._skips.last
            unskipped = None if last is None else last.loss_scale
            self.broke(seen, self._scale_before if seen.skipped else unskipped)
        for alarm in self._watch.see(seen):
            self._raise(alarm)

    def _raise(self, alarm: Alarm) -> None:
        stops = alarm.kind in self._stop_on and self.stop is not None
        warn_once("mpprof: %s%s", alarm.text, "; training is stopped" if stops else "")
        facts = {"kind": alarm.kind, "step": alarm.step, "text": alarm.text}
        self._recorder.facts.setdefault("alarms", []).append(facts)
        if stops and self.stop is not None:
            self.stop()


def _no_scale(optimizer: Any) -> str | None:
    """Return why this optimizer's loss scale cannot be read; None where it has one that moves."""
    if hasattr(optimizer, "inner_optimizer"):
        if getattr(optimizer, "dynamic", True):
            return None
        return f"the loss scale is fixed at {getattr(optimizer, 'initial_scale', '?')}"  # Keras 2
    fixed = getattr(optimizer, "loss_scale_factor", None)
    return "the optimizer scales no loss" if fixed is None else f"the loss scale is fixed at {fixed}"


def _at_start(optimizer: Any, reading: Reading) -> Reading:
    """Return the first reading of a fit: a loss scale whose variable does not exist yet is the initial
    one."""
    initial = getattr(optimizer, "initial_scale", None)
    if reading.loss_scale is not None or initial is None:
        return reading
    return Reading(reading.iterations, float(initial), 0)
