"""When a session's profile windows open and close: our own, and that of Keras' TensorBoard callback.

A process has one profiler. Where the TensorBoard callback of this `fit` profiles (`profile_batch=`), its
trace is the one that is used: ours never opens over it.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from mpprof.record.backends.base import Probe
from mpprof.record.calls import NEVER, CallLog
from mpprof.record.profile.window import KEEPING_SECONDS, STEPS, Plan, Window, host_of, new_session
from mpprof.record.recorder import Recorder, warn_once
from mpprof.record.run_with_timeout import FAILURES, failures_suppressed, raise_if_signalled, with_timeout
from mpprof.record.step_line import Line

# The profile of Keras' TensorBoard callback: which calls it takes, and the trace that it leaves.
#
# `keras.callbacks.TensorBoard(profile_batch=(first, last))` counts the calls of each `fit` from 1, starts the
# profiler in its batch begin and stops it in its batch end (read in Keras 3.15 and tf_keras 2.21). Its
# sessions lie under `<logdir>/train/plugins/profile`, or `<logdir>/plugins/profile`
# of Keras 2.

STATUS = "foreign"
PROFILE = Path("plugins", "profile")


@dataclass(frozen=True, slots=True)
class ForeignProfile:
    """Calls `first` to `last` of a `fit`, counted from 1; sessions appear below `folders`."""

    first: int
    last: int
    folders: tuple[Path, ...]


def profile_of(callbacks: Iterable[Any]) -> ForeignProfile | None:
    """Return what a TensorBoard callback among the callbacks will profile of this `fit`; None where none
    does."""
    for callback in callbacks:
        if not any(kind.__name__ == "TensorBoard" for kind in type(callback).__mro__):
            continue
        first, last = (getattr(callback, name, None) for name in ("_start_batch", "_stop_batch"))
        logdir = getattr(callback, "log_dir", None)
        if isinstance(first, int) and isinstance(last, int) and last >= first > 0 and logdir:
            base = Path(os.fspath(logdir)).absolute()
            return ForeignProfile(first, last, (base / "train" / PROFILE, base / PROFILE))
    return None


class ForeignWindow:
    """Follows it through one `fit`. `facts` is its entry in run.json's `profile_windows`: `status` is
    "foreign" once its trace is there. A trace that lies outside of the run's directory is copied into it: a
    run is whole by itself (and no link: a session of the same second is written over the one before).
    Its steps are told by TensorBoard's own markers: one of ours, open when their profiler stops, would be
    lost."""

    def __init__(self, profile: ForeignProfile, recorder: Recorder) -> None:
        self._profile, self._recorder = profile, recorder
        self._begun = 0  # calls of this fit, as TensorBoard counts them
        self._before: frozenset[tuple[int, Path]] = frozenset()
        self.open = self.ended = False
        self.facts: dict[str, Any] = {}

    def begins_within(self, calls: int) -> bool:
        """Return whether the foreign window is open, or begins within this many calls."""
        return not self.ended and self._begun + calls > self._profile.first

    def before_call(self, steps_run: int) -> None:
        """Note that a call begins, after `steps_run` steps."""
        self._begun += 1
        if self._begun == self._profile.first:
            self._start(steps_run)
        elif self._begun == self._profile.last + 1:
            self.end(steps_run)

    def end(self, steps_run: int) -> None:
        """End the foreign window: TensorBoard's profiler has stopped, or the fit ends. Where the fit ends
        before the profiler would have stopped, the trace is written by TensorBoard's own `on_train_end`,
        which may come after ours."""
        was_open, self.open, self.ended = self.open, False, True
        if was_open:
            self.facts["last_step"] = steps_run
            self.facts |= with_timeout(self._look, deadline_s=KEEPING_SECONDS)

    def _start(self, steps_run: int) -> None:
        self._before = with_timeout(self._sessions)
        self.open = True
        self.facts = {
            "first_step": steps_run + 1,
            "last_step": steps_run,
            "started_unix_ns": time.time_ns(),
            "profiler": "keras.callbacks.TensorBoard",
            "status": "open",
        }
        self._recorder.facts.setdefault("profile_windows", []).append(self.facts)
        self._recorder.absent.pop("profile_windows", None)

    def _sessions(self) -> frozenset[tuple[int, Path]]:
        """Return when each session was written, and where."""
        sessions = (path for folder in self._profile.folders if folder.is_dir() for path in folder.iterdir())
        return frozenset(
            (max((file.stat().st_mtime_ns for file in path.iterdir()), default=0), path) for path in sessions
        )

    def _look(self) -> dict[str, Any]:
        """Return the facts of the trace that the foreign window has left."""
        root = self._recorder.root.absolute()
        new = sorted(self._sessions() - self._before)
        if not new and self._begun <= self._profile.last and (theirs := self._expected(root)):
            return {"status": STATUS, "trace": theirs}
        if not new:
            return {"status": "failed: TensorBoard's callback left no trace"}
        _, session = new[-1]
        if not session.is_relative_to(root):
            session = _adopted(session, root)
        return {"status": STATUS, "trace": session.relative_to(root).as_posix(), "host": host_of(session)}

    def _expected(self, root: Path) -> str | None:
        """Return where a trace that is still to be written will lie, in this run's directory."""
        folder = self._profile.folders[0]
        return folder.relative_to(root).as_posix() if folder.is_relative_to(root) else None


def _adopted(session: Path, root: Path) -> Path:
    target = new_session(root / PROFILE, session.name)
    for file in session.iterdir():
        shutil.copyfile(file, target / file.name)
    return target


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
