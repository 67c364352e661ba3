"""The profile of Keras' TensorBoard callback: which calls it takes, and the trace that it leaves.

`keras.callbacks.TensorBoard(profile_batch=(first, last))` counts the calls of each `fit` from 1, starts the
profiler in its batch begin and stops it in its batch end (read in Keras 3.15 and tf_keras 2.21). Its
sessions lie under `<logdir>/train/plugins/profile`, or `<logdir>/plugins/profile`
of Keras 2.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpprof.record.profile.window import KEEPING_SECONDS, host_of, new_session
from mpprof.record.recorder import Recorder
from mpprof.record.run_with_timeout import with_timeout

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
