"""The core that the callback and the recorder of custom loops share: a run's files, and what is absent.

A failure here is reported once, written into `absent`, and switches its part off; training goes on.
"""

from __future__ import annotations

import atexit
import logging
import os
import platform
import re
import tempfile
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

from mpprof.record.backends.base import Worker
from mpprof.record.hardware import HardwareSampler
from mpprof.record.run_with_timeout import (
    DEADLINE_SECONDS,
    FAILURES,
    failures_suppressed,
    raise_if_signalled,
    say,
    with_timeout,
)
from mpprof.record.sinks import Feed, Point, Series, Sink
from mpprof.record.step_line import Line, PlainLine, Recorded, record_of, text_of
from mpprof.store import formats
from mpprof.store.writing import JOIN_SECONDS, DocumentWriter, LineWriter, claim, join

log = logging.getLogger("mpprof")
T = TypeVar("T")
Clock = Callable[[], int]

SINK_DEADLINE_S = 60.0
"""A report of some megabytes goes over a network in less."""

FIRST_SECONDS = 1.0
"""So long a training waits for its first run.json, before its first step: killed later, it has facts."""

MOST_FITS_HELD = 8
"""Of more fits, memory and run.json hold the first and the last, so that neither grows with each; the facts
of those between are lines of the step log (kind "fit_facts")."""

SHORTEST_USER = 4
"""Names as short ("root") are other things' names, too."""

ALIKE_SECONDS = 300.0
"""Workers of one training begin it within so long of each other: they wait for each other, too."""


class Recorder:
    """One run: owns its directory, its facts (`run.json`), its step log and its hardware samples.

    `on` is False before `open` and after the files could not be made or written.
    """

    def __init__(self, logdir: str | os.PathLike[str], *, hardware: bool, clock: Clock) -> None:
        self.logdir = Path(logdir)
        self.root = self.logdir
        self.clock = clock
        self.on = False
        self.pid = os.getpid()
        self.worker = 0
        self.facts: dict[str, Any] = {}
        self.absent: dict[str, str] = {}
        self.at_exit: Callable[[], None] | None = None  # instead of `close`, when the process ends
        self._lost: str | None = None
        self._hardware_wanted = hardware
        self._off: set[str] = set()
        self._saying = threading.Lock()
        self._known: frozenset[str] = frozenset()  # files that this run has begun
        self.wished: Callable[[], None] | None = None  # a further window is asked for
        self._feeds: list[Feed] = []
        self._series = Series()
        self._run_file: DocumentWriter | None = None
        self._private: tuple[tuple[re.Pattern[str], str], ...] = ()
        self._handed = ""  # the text that it has got
        self._fit_noted: dict[str, Any] = {}
        self._late = self._said_unsaved = False
        self._unmade: BaseException | None = None  # why its newest text could not be handed over
        self._unsaved: BaseException | None = None  # why run.json is not on disk
        self._steps: LineWriter | None = None
        self._newest: Line | PlainLine | None = None  # of the steps on disk
        self._unsampled: BaseException | None = None  # what has kept samples from the disk
        self.put: Callable[[Recorded], None] = _drop
        """Append a line to the step log; it must not be changed afterwards."""
        self.append: Callable[[Recorded], None] = _drop
        """The same for a few lines between two that are put, see `LineWriter.append`."""
        self._samples: LineWriter | None = None
        self._sampler: HardwareSampler | None = None
        self.throttling: set[str] = set()
        """What `throttled` would say: asked at every reading, where a call costs."""

    def open(self, worker: Worker | None = None, begun: tuple[int, int] | None = None) -> None:
        """Claim a directory, or as a further worker join the run of the first one, which may take a while.
        `begun`: when the run began, by its own clock and in Unix nanoseconds; None: now. Never raises:
        without a directory `on` stays False."""
        now = time.time()
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        name = f"{stamp}-{os.getpid()}"
        _NAMED[name] += 1  # a second run of one process within a second is another run
        name += f"-{_NAMED[name]}" if _NAMED[name] > 1 else ""
        self.worker = worker.index if worker is not None else 0
        deadline_s = None if self.worker == 0 else JOIN_SECONDS + DEADLINE_SECONDS
        try:
            self.root, name = with_timeout(self._place, name, worker, deadline_s=deadline_s)
        except FAILURES as error:
            raise_if_signalled(error)
            warn_once("mpprof records nothing: %s cannot be written (%s)", self.logdir, error)
            REFUSED.append(f"{self.logdir} cannot be written ({error})")
            return
        self._folder = formats.folder_of(self.root, self.worker)
        self._private = self.attempt("names", _private_names, self.root) or ()
        self._run_file = DocumentWriter(self._folder / formats.RUN_FILE)
        self.zero_ns, unix_ns = begun or (self.clock(), time.time_ns())
        self.facts = {
            "run_id": name,
            "created_unix_ns": int(now * 1e9),
            "clock": {"monotonic_ns": self.zero_ns, "unix_ns": unix_ns},
            "host": platform.node() or None,
        }
        self.on = True
        if self.worker == 0:
            ROOTS.append(self.root)
        if not self._hardware_wanted:
            self.absent["hardware"] = "not wanted (hardware=False)"

    def _place(self, name: str, worker: Worker | None) -> tuple[Path, str]:
        logdir = self.logdir.absolute()
        if worker is None or worker.index == 0:
            return claim(logdir, name, worker.cluster if worker else ""), name
        return join(logdir, worker.cluster, worker.index, time.time() - ALIKE_SECONDS)

    def save(self) -> None:
        """Have run.json rewritten where facts have changed, by another thread: no step waits for a disk that
        is slow or fails. What is not written is tried again each second, and at the end."""
        first = not self._handed
        try:
            self._hand_over()
            self._unmade = None
            if first and self._run_file is not None:
                self._run_file.settle(FIRST_SECONDS)
        except FAILURES as error:
            raise_if_signalled(error)
            self._unmade = error

    def _hand_over(self) -> None:
        if self._run_file is None:
            return
        facts = {key: value for key, value in self.facts.items() if value is not None}
        facts["absent"] = {key: self._unnamed(why) for key, why in dict(self.absent).items()}
        for entry in (facts.get("ended", {}), *facts.get("profile_windows", ())):
            entry |= {key: self._unnamed(entry[key]) for key in ("error", "text", "status") if key in entry}
        text = formats.document({"schema": formats.RUN_SCHEMA, **facts})
        if text != self._handed:
            self._run_file.put(text)
            self._handed = text

    def _unnamed(self, error: Any) -> Any:
        """Return an error's text without the directories and the user that everybody's own texts name."""
        if isinstance(error, str):
            for pattern, instead in self._private:
                error = pattern.sub(instead, error)
        return error

    def add_fit(self, facts: dict[str, Any]) -> None:
        """Add the facts of a fit that begins, and let go of one whose facts the step log has."""
        fits = self.facts.setdefault("fits", [])
        del fits[MOST_FITS_HELD - 1 :]
        fits.append(facts)

    def _note_fit(self) -> None:
        """Write the facts of the last fit into the step log, where run.json may hold them no more as another
        fit begins."""
        fits = self.facts.get("fits", [])
        if len(fits) >= MOST_FITS_HELD and self._fit_noted != (noted := dict(fits[-1])):
            self._fit_noted = noted
            self.put({"kind": "fit_facts", **noted})

    def attempt(self, part: str, work: Callable[..., T], *arguments: Any) -> T | None:
        """Do our own work. If it fails, `part` is switched off: said once, and `absent` has the reason."""
        if part in self._off:
            return None
        try:
            return work(*arguments)
        except FAILURES as error:  # whatever fails in the instrument must not stop training
            raise_if_signalled(error)
            self.fail(part, error)
            return None

    def works(self, part: str) -> bool:
        return part not in self._off

    def fail(self, part: str, error: BaseException) -> None:
        """Switch a part off and say so once."""
        if part not in self._off:
            self._switch_off(part, error)
            warn_disabled(part, error)

    def _switch_off(self, part: str, error: BaseException) -> None:
        self._off.add(part)
        self.absent[part] = f"{formats.FAILED}: {type(error).__name__}: {error}"[:500]

    def throttled(self) -> tuple[str, ...]:
        """Return why GPUs were throttled in the samples since this was asked last."""
        reasons = tuple(self.throttling)  # in one go: the sampler may add another meanwhile
        self.throttling.difference_update(reasons)
        return reasons

    def resume(self) -> None:
        """Begin to write, and to sample the hardware: training begins or goes on."""
        if not self.on or self._steps is not None:
            return
        try:
            self._steps = with_timeout(
                self._writer, formats.STEPS_FILE, formats.STEPS_SCHEMA, self._feed, self._heed, text_of
            )
        except FAILURES as error:
            raise_if_signalled(error)
            self._vanished(self._folder / formats.STEPS_FILE, error)
            return
        self.put, self.append = self._steps.put, self._steps.append
        if self._hardware_wanted:
            self._sampler = self.attempt("hardware", self._start_sampler)
        _OPEN.add(self)

    def put_late(self, line: dict[str, Any]) -> None:
        """Write one more line between two fits, while no files are open. Raises OSError."""
        if not self.on or self.writes or "recording" in self.absent:
            return
        writer = with_timeout(self._writer, formats.STEPS_FILE, formats.STEPS_SCHEMA)
        writer.put(line)
        writer.close()

    def pause(self) -> None:
        """Put everything on disk, and keep neither threads nor files open: no training is going on."""
        unsampled = None if self._sampler is None else self._sampler.stop()
        if unsampled is not None:
            self._unsampled = unsampled
        self._note_fit()
        if self._steps is not None and self.on and "recording" in self.absent:
            self._end_early(self._steps)
        for writer in (self._steps, self._samples):
            if writer is not None and not writer.close():
                self._trouble(writer.path, TimeoutError("the disk does not answer"))
        self._steps = self._samples = self._sampler = None
        self.put = self.append = _drop
        for feed in self._feeds:
            feed.close(DEADLINE_SECONDS)
        unsampled, self._unsampled = self._unsampled, None
        if unsampled is not None:
            self._switch_off("hardware", unsampled)
        self.save()
        all_lost = not self.on or "recording" in self.absent  # which was said
        if unsampled is not None and not all_lost:
            warn_disabled("hardware", unsampled)
        if self._settled():
            _OPEN.discard(self)

    def _settled(self) -> bool:
        """Wait until run.json is on disk; a disk that has not answered once is asked without waiting."""
        if self._run_file is None:
            return True
        error = self._run_file.settle(0.0 if self._late else DEADLINE_SECONDS)
        self._late = isinstance(error, TimeoutError)
        self._unsaved = error or self._unmade
        if self._unsaved is not None and self.on:
            self._say_unsaved(self._unsaved)
        return self._unsaved is None

    def _say_unsaved(self, error: BaseException) -> None:
        if not self._said_unsaved:
            self._said_unsaved = True
            path = self._folder / formats.RUN_FILE
            warn_once("mpprof: steps are recorded, but %s cannot be written (%s)", path, error)

    @property
    def writes(self) -> bool:
        """Whether files are open and threads run: from `resume` to `pause`."""
        return self._steps is not None

    def close(self) -> None:
        self._late = False  # it is the last time to wait
        self.pause()
        self.on = False

    def _start_sampler(self) -> HardwareSampler:
        self._samples = with_timeout(self._writer, formats.HARDWARE_FILE, formats.HARDWARE_SCHEMA)
        sampler = HardwareSampler(self._samples.put, self.clock, self.zero_ns, self.absent, self.throttling)
        sampler.start()
        return sampler

    def _writer(
        self,
        name: str,
        schema: str,
        seen: Callable[[Any], None] | None = None,
        each_second: Callable[[], None] | None = None,
        text: Callable[[Any], str] = formats.line,
    ) -> LineWriter:
        """Return a writer that begins the file for the run's first fit and continues it for later ones."""
        known, self._known = name in self._known, self._known | {name}
        begins = None if known else schema
        return LineWriter(self._folder / name, begins, self._trouble, seen, each_second, text)

    def _heed(self) -> None:
        """Write run.json where that has failed, and look whether somebody asks for a further window; in the
        writer's thread."""
        if (run_file := self._run_file) is not None and run_file.late_s:
            with failures_suppressed():  # no thread can be started now
                run_file.again()
            if run_file.late_s > DEADLINE_SECONDS and self.on:
                self._say_unsaved(TimeoutError("the disk does not take it yet"))
        if self.wished is not None and self.on:
            self.attempt("window-please", self._look_for_wish, self.wished)

    def _look_for_wish(self, wished: Callable[[], None]) -> None:
        wish = self._folder / formats.WISH_FILE
        try:
            there = wish.exists()
        except OSError:  # of a folder that is closed to us the next line that is written says so
            return
        if there:
            wish.unlink()
            wished()

    def _feed(self, written: Recorded) -> None:
        """Hand a line that was written on to the sinks, in the writer's thread."""
        if not isinstance(written, dict):
            self._newest = written
        if not self._feeds:
            return
        line = record_of(written)
        if values := self._series.see(line):
            unix_s = (self.facts["clock"]["unix_ns"] + line["t_ns"]) / 1e9
            for feed in self._feeds:
                feed.put(Point(line["step"], unix_s, values))

    def add_sinks(self, sinks: Iterable[Sink]) -> None:
        """Add sinks to which the series go, too."""
        self._feeds += [Feed(sink, self.fail) for sink in sinks]

    def finish_sinks(self, ending: Callable[[Path], tuple[dict[str, float | str], str]]) -> None:
        """Give the sinks that take it what is known at the end: `ending` makes of the run's directory its
        summary and its report, as HTML. Called when all records are on disk."""
        feeds = [feed for feed in self._feeds if feed.finishes]
        if not feeds or self.worker:
            return
        summary, page = ending(self.root)
        with tempfile.TemporaryDirectory(prefix="mpprof-") as folder:
            report = Path(folder) / "report.html"
            report.write_text(page, encoding="utf-8")
            for feed in feeds:
                feed.finish(summary, report, SINK_DEADLINE_S)
        if any(feed.name in self.absent for feed in feeds):
            self.save()
            self._settled()

    @property
    def folder(self) -> Path:
        """Of this run's own files; only after `open`."""
        return self._folder

    def _trouble(self, path: Path, error: BaseException) -> None:
        """Give up what cannot be written: samples are an extra, and without the step log recording ends."""
        if path.name == formats.HARDWARE_FILE:
            self._unsampled = self._unsampled or error
        else:
            self._vanished(path, error)

    def _vanished(self, path: Path, error: BaseException) -> None:
        with self._saying:  # the writer and the training may find out at once
            was_on, self.on = self.on, False
        if was_on:
            self.put = self.append = _drop  # of steps that are not recorded there is no end either
            self._lost = f"recording ended: {path} cannot be written ({error})"
            why = getattr(error, "strerror", None) or error
            self.absent.setdefault("recording", f"ended: {path.name} cannot be written ({why})")
            if self._steps is not None:
                self._end_early(self._steps)
            warn_once("mpprof stops recording, training goes on: %s cannot be written (%s)", path, error)
            self.save()

    def _end_early(self, steps: LineWriter) -> None:
        """Have the step log say that recording ends here, where it can still be written."""
        end: dict[str, Any] = {"reason": self._unnamed(self.absent["recording"])}
        with failures_suppressed():  # the clock may be what has failed
            end["t_ns"] = self.clock() - self.zero_ns
        steps.end_with(lambda: {"kind": "recording_end", "step": self._last_step(), **end})

    def _last_step(self) -> int:
        newest = self._newest
        return 0 if newest is None else newest[0] if isinstance(newest, tuple) else newest.step

    def why_lost(self) -> str | None:
        """Return why not all that was recorded is on disk; None where it is."""
        if self._unsaved is not None and self.on:
            return f"{self._folder / formats.RUN_FILE} cannot be written ({self._unsaved})"
        if self.facts and not self.holds(self._folder / formats.RUN_FILE):
            return f"the records are gone: there is no {self._folder / formats.RUN_FILE}"
        why = self.absent.get("recording")
        return self._lost or (None if why is None else f"recording {why}")

    def holds(self, path: str | Path) -> bool:
        """Return whether this file or directory of the run is there."""
        return with_timeout((self.root / path).exists)

    def let_go(self) -> None:
        """Release, in a forked child, the run, its threads and its files: they belong to the parent."""
        self.on = False
        self._steps = self._samples = self._sampler = self._run_file = None
        self.put = self.append = _drop
        self._feeds = []


ROOTS: list[Path] = []
"""The directories of the runs that this process has begun, in order; not those that it joined."""

REFUSED: list[str] = []
"""Why runs of this process have no directory."""

_NAMED: Counter[str] = Counter()
"""How many runs this process has called so."""


def _private_names(root: Path) -> tuple[tuple[re.Pattern[str], str], ...]:
    """Return the private names in errors' texts: directories, the longest first, and the user."""
    places = {str(root.absolute()): "<logdir>", os.getcwd(): "<cwd>", os.path.expanduser("~"): "~"}
    paths = sorted((path for path in places if path.count(os.sep) > 1), key=len, reverse=True)
    user = os.path.basename(os.path.expanduser("~"))
    names = [(re.compile(rf"{re.escape(path)}(?![\w-])"), places[path]) for path in paths]
    if len(user) > SHORTEST_USER:
        names.append((re.compile(rf"(?<!\w){re.escape(user)}(?!\w)"), "<user>"))
    return tuple(names)


def _drop(line: Recorded) -> None:
    """Drop a line, because nothing is being recorded."""


def warn_disabled(part: str, error: BaseException) -> None:
    warn_once("mpprof no longer records %s: %s: %s", part, type(error).__name__, error)


def warn_once(message: str, *values: object) -> None:
    """Warn through the log; one that is broken must not stop training either."""
    say(log.warning, message, *values)


_OPEN: weakref.WeakSet[Recorder] = weakref.WeakSet()


def _forked() -> None:
    for recorder in list(_OPEN):
        recorder.let_go()
    _OPEN.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@atexit.register
def _close_all() -> None:
    # An interrupted fit has no end that anybody tells us of.
    for recorder in list(_OPEN):
        recorder.attempt("exit", recorder.at_exit or recorder.close)
