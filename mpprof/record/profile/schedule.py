"""When a session's profile windows open and close: our own, and that of Keras' TensorBoard callback.

A process has one profiler. Where the TensorBoard callback of this `fit` profiles (`profile_batch=`), its
trace is the one that is used: ours never opens over it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from mpprof.record.backends.base import Probe
from mpprof.record.calls import NEVER, CallLog
from mpprof.record.profile.tensorboard_window import ForeignWindow, profile_of
from mpprof.record.profile.window import STEPS, Plan, Window
from mpprof.record.recorder import Recorder, warn_once
from mpprof.record.run_with_timeout import FAILURES, failures_suppressed, raise_if_signalled
from mpprof.record.step_line import Line


class Profiling:
    """The windows of one session. `settle` is called at both edges, before the profiler is touched: it waits
    for the device where that runs behind; `resumed` when training goes on."""

    running: ClassVar[Profiling | None] = None
    """Whose window is open."""

    def __init__(
        self,
        recorder: Recorder,
        probe: Probe,
        calls: CallLog,
        plan: Plan | None,
        settle: Callable[[], None],
        resumed: Callable[[], None],
    ) -> None:
        self._recorder, self._probe, self._calls = recorder, probe, calls
        self._settle, self._resumed = settle, resumed
        self.plan, self.wanted = plan, plan is not None
        self.window: Window | None = None
        self.foreign: ForeignWindow | None = None
        self._closed_within_call = False
        self._closed_within: Window | None = None  # the open call
        self._last: tuple[Window, Line] | None = None  # that it has profiled
        self._waits_for = ""
        self._told: tuple[int, int, int] | None = None  # as the last call began: fit, epoch, step

    def wish(self) -> None:
        """Open a further window as soon as may be; nothing where one is open or planned. From any thread."""
        if self.plan is None and self.window is None:
            self.plan = Plan.now(self._calls.step)
            self._calls.fast_until = NEVER

    def start_fit(self, callbacks: list[Any]) -> None:
        """Start a fit, of which no window can be open yet; `callbacks` are all of them, in order."""
        self._waits_for = ""
        theirs = profile_of(callbacks)
        self.foreign = None if theirs is None else ForeignWindow(theirs, self._recorder)
        if self.plan is not None:  # who follows the training sees when it opens
            self._recorder.facts["profile_plan"] = self.plan.facts()

    @property
    def idle(self) -> bool:
        """Nothing is planned and nothing is open."""
        return self.plan is None and self.window is None and self.foreign is None

    @property
    def profiles(self) -> bool:
        """Whether a window is open, ours or TensorBoard's."""
        return self.window is not None or (self.foreign is not None and self.foreign.open)

    def before_call(self, batch: int, first_of_epoch: bool, may_open: bool = True) -> None:
        """Open, close or mark the window before the call that begins with `batch` runs. A call that is told
        twice, where the callback stands in the list twice, counts as one."""
        calls = self._calls
        told, self._told = self._told, (calls.fit, calls.epoch, calls.step)
        if told == self._told:
            return
        last_step = calls.step + calls.covers(batch)
        if self.foreign is not None:
            self._follow(self.foreign)
        plan, window = self.plan, self.window
        if plan is None:
            return
        next_step = calls.step + 1
        if window is not None and (plan.closes(next_step, window.calls) or window.too_large()):
            self.close()
            return
        if window is None:
            if not may_open:
                return
            left = calls.left(batch)
            calls_left = None if left is None else -(-left // calls.per_call)
            if not plan.opens(next_step, calls_left, first_of_epoch) or self._in_the_way(plan, next_step):
                return
            self._open(plan, next_step)
            window = self.window
        if window is not None:
            self._recorder.attempt("markers", window.mark, last_step)

    def after_call(self, line: Line, calls_run: int) -> None:
        """Note in the line of a call that has run whether it was profiled."""
        if self.plan is not None:
            self.plan.calls = calls_run
        window, self._closed_within = self.window or self._closed_within, None
        if window is not None:
            window.ran(line.step)
            self._last = window, line
        if self.profiles or self._closed_within_call:
            line.profiled, self._closed_within_call = True, False

    def end_of_steps(self) -> None:
        """End the steps: what follows (an epoch's end, a validation) belongs to no step. The last call's line
        now says how many of them it ran; a window that opened before a call for which there was no more input
        begins with the next step."""
        if self.window is not None:
            self._recorder.attempt("markers", self.window.unmark)
            if not self.window.calls:
                self.window.begins_with(self._calls.step + 1)
        if self._last is not None:
            window, line = self._last
            window.facts["last_step"] = line.step

    def end_fit(self) -> None:
        self.close()
        if self.foreign is not None:
            foreign, self.foreign = self.foreign, None
            self._recorder.attempt("profile_windows", foreign.end, self._calls.step)
        works = self._recorder.works("profile_windows")
        if works and self.plan is not None and not self._recorder.facts.get("profile_windows"):
            self._recorder.absent["profile_windows"] = (
                f"training ended at step {self._calls.step}, before the window could open{self._waits_for}"
            )

    # --- TensorBoard's ---------------------------------------------------------------------------------

    def _follow(self, foreign: ForeignWindow) -> None:
        """Count the calls of a foreign window."""
        if not self._recorder.works("profile_windows"):
            self.foreign = None
            return
        was_open, calls = foreign.open, self._calls
        self._recorder.attempt("profile_windows", foreign.before_call, calls.step)
        if foreign.ended:
            self.foreign = None
            begin = self._recorder.clock()
            self._recorder.save()
            calls.leave_out(self._recorder.clock() - begin)
        if was_open != foreign.open and self.plan is not None and self.plan.auto:
            self.plan = None  # one trace is enough, and it is this one

    def _in_the_way(self, plan: Plan, next_step: int) -> bool:
        """Return whether the profiler is in use, or TensorBoard's callback will use it before ours has
        closed."""
        if Profiling.running is not None:  # in another thread, or around this fit
            self._waits_for = ": another training's window was open"
            return True
        if self.foreign is None:
            return False
        steps = STEPS * self._calls.per_call if plan.last is None else plan.last - next_step + 1
        return self.foreign.begins_within(-(-steps // self._calls.per_call) + 1)

    # --- our own ---------------------------------------------------------------------------------------

    def _open(self, plan: Plan, first_step: int) -> None:
        if not self._recorder.works("profile_windows"):
            return
        try:
            self._try_to_open(first_step, automatic=plan.auto)
        except FAILURES as error:
            raise_if_signalled(error)
            self._recorder.fail("profile_windows", error)
            self.close()  # the profiler may be running

    def _try_to_open(self, first_step: int, *, automatic: bool) -> None:
        recorder = self._recorder
        window = Window(self._probe, recorder.root, recorder.clock, first_step)
        window.facts["automatic"] = automatic
        recorder.facts.setdefault("profile_windows", []).append(window.facts)
        recorder.save()  # a process that is killed within leaves a window that is "open"
        self._settle()
        self.window, Profiling.running = window, self
        window.start()
        recorder.absent.pop("profile_windows", None)
        self._warn_disabled(window)
        self._resumed()

    def close(self, *, within_call: bool = False) -> None:
        """End our own window, if one is open; `within_call`: while a call runs, which then was profiled, too.
        The profiler is stopped whatever has failed before."""
        self._closed_within_call |= within_call and self.profiles
        window, self.window = self.window, None
        if window is None:
            return
        try:
            self.plan, self._closed_within = None, window if within_call else None
            if Profiling.running is self:
                Profiling.running = None
            failed_before = window.failure
            self._recorder.attempt("markers", window.unmark)
            self._recorder.attempt("waiting", self._settle)
            try:
                window.stop()
            except FAILURES as error:
                raise_if_signalled(error)
                self._recorder.fail("profile_windows", error)
        except BaseException:  # an interrupt
            with failures_suppressed():
                window.stop()
            raise
        if not failed_before:
            self._warn_disabled(window)
        self._recorder.save()
        self._resumed()

    def _warn_disabled(self, window: Window) -> None:
        if window.failure and self._recorder.on and self._recorder.works("profile_windows"):
            warn_once("mpprof has no trace of this run: %s", window.failure)
