"""The profile window: when it opens and closes, and where its trace ends up.

How large a trace can get: at most `steps` steps (5) are in it, and it closes at the next call boundary
after 30 s, or once this process has grown by 1 GiB since it opened, whichever comes first (profilers
gather events in memory and write them at the end). On NVIDIA the collector itself stops at 2 Mi events.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from mpprof.errors import UsageError
from mpprof.record.backends.base import Probe
from mpprof.record.run_with_timeout import (
    FAILURES,
    failures_suppressed,
    is_signalled,
    raise_if_signalled,
    with_timeout,
)

STEPS = 5
MOST_SECONDS = 30.0
KEEPING_SECONDS = 30.0
MOST_GROWTH_BYTES = 1 << 30
LEAST_FREE_BYTES = 256 << 20

EARLIEST_STEP = 10
SETTLED_CALLS = 8
SETTLED_RATIO = 1.5
TRACES = (".xplane.pb", ".pt.trace.json.gz")
"""What the profilers' traces are called after the host's name: of TensorFlow and JAX, and of torch."""

PATIENCE_CALLS = 40
LEAST_CALLS = 4

ProfileSteps = Literal["auto"] | tuple[int, int] | None


@dataclass
class Plan:
    """Which steps to profile. "auto": some after the 10th, once intervals have settled (the longest of the
    last 8 is within 1.5 times their median; where only means between two waits are known, the last of at
    least 2). It waits no longer after 40 calls, nor where the epoch has only just enough calls left: the
    next epoch may never come. Where epochs are shorter than a window it goes, after 40 calls, across them."""

    first: int
    last: int | None  # None: `steps` calls from where it opens
    auto: bool
    _intervals: deque[int] = field(default_factory=lambda: deque(maxlen=SETTLED_CALLS))
    calls: int = 0  # that have run so far
    means: bool = False  # intervals are means over many calls

    @classmethod
    def of(cls, wanted: Any) -> Plan | None:
        """Return the plan for the wanted steps. Raises `UsageError` where they are none of "auto", None and
        (first, last)."""
        if wanted is None:
            return None
        if isinstance(wanted, str) and wanted == "auto":
            return cls(EARLIEST_STEP, None, True)
        match wanted:
            case (int(first), int(last)) if 1 <= first <= last and bool not in map(type, wanted):
                return cls(first, last, False)
        raise UsageError(
            f"profile_steps is {wanted!r}", next='Give "auto", None, or (first, last) counted from 1'
        )

    @classmethod
    def now(cls, step: int) -> Plan:
        """Return the plan from the next call on, after `step` steps."""
        return cls(step + 1, None, False)

    def facts(self) -> dict[str, Any]:
        """Return the plan as run.json holds it."""
        return {"first_step": self.first, "last_step": self.last, "automatic": self.auto}

    def interval(self, interval_ns: int) -> None:
        self._intervals.append(interval_ns)

    def opens(self, next_step: int, calls_left: int | None, first_of_epoch: bool) -> bool:
        """Return whether to open before the call whose first step is `next_step`. With "auto" the window
        starts within an epoch and only where the epoch still has enough calls for it."""
        if next_step < self.first:
            return False
        if not self.auto:
            return self.last is None or next_step <= self.last
        if first_of_epoch:
            too_short = calls_left is not None and calls_left < STEPS + 2
            return too_short and self.calls >= PATIENCE_CALLS
        if calls_left is not None and calls_left < STEPS + 1:
            return False
        last_chance = calls_left == STEPS + 1 and self.calls >= LEAST_CALLS
        return last_chance or self._settled()

    def _settled(self) -> bool:
        if self.calls >= PATIENCE_CALLS:
            return True
        known = self._intervals
        if len(known) < (2 if self.means else SETTLED_CALLS):
            return False
        longest = known[-1] if self.means else max(known)
        return longest <= SETTLED_RATIO * statistics.median(known)

    def closes(self, next_step: int, calls: int) -> bool:
        """Return whether the call whose first step is `next_step` no longer belongs to the window."""
        return calls >= STEPS if self.last is None else next_step > self.last


class Window:
    """One session of the framework's profiler. `facts` is its entry in run.json's `profile_windows`.

    The trace is gathered in a directory of its own and then moved to
    `<root>/plugins/profile/<time>`: profilers name sessions by the second, and two of the same second
    would overwrite each other. Where the profiler cannot be started (somebody runs it already) the window is
    "failed: why", and only the step markers are set: they then are in that trace.
    """

    def __init__(self, probe: Probe, root: Path, clock: Callable[[], int], first_step: int) -> None:
        self._probe, self._root, self._clock = probe, root, clock
        self._gathering = root / "mpprof" / f".window-{os.getpid()}-{first_step}"
        self._marker: contextlib.AbstractContextManager[Any] | None = None
        self._running = False
        self.calls = 0  # that have run within it
        self.facts: dict[str, Any] = {"started_unix_ns": time.time_ns(), "status": "open"}
        self.begins_with(first_step)

    def start(self) -> None:
        begin = self._clock()
        try:
            with_timeout(self._prepare)
            self._start_trace()
            self._running = True
        except FAILURES as error:  # profilers fail in their own ways; the status says how
            raise_if_signalled(error)
            self._fail(error)
            with failures_suppressed():
                with_timeout(self._gathering.rmdir)
        self._opened_ns = self._clock()
        self._rss = with_timeout(_rss_bytes)
        self.facts["start_cost_ns"] = self._opened_ns - begin

    def _start_trace(self) -> None:
        try:
            self._probe.start_trace(self._gathering)
        except BaseException as error:
            if not isinstance(error, FAILURES) or is_signalled(error):
                with failures_suppressed():  # an interrupt may have come when it had started
                    self._probe.stop_trace()
            raise

    def mark(self, step: int) -> None:
        """Mark a call that begins and will have run `step` steps when it ends."""
        self.unmark()
        marker = self._probe.marker(step)
        marker.__enter__()
        self._marker = marker

    def begins_with(self, first_step: int) -> None:
        """Note the first step of the next call, with which the window begins if it runs."""
        self.facts |= {"first_step": first_step, "last_step": first_step - 1}

    def ran(self, step: int) -> None:
        """Note that a call has run within the window, up to this step: not every call that was marked
        does."""
        self.calls += 1
        self.facts["last_step"] = step

    def unmark(self) -> None:
        marker, self._marker = self._marker, None
        if marker is not None:
            marker.__exit__(None, None, None)

    def too_large(self) -> bool:
        """Return whether the window's trace may become too large, or its size cannot be estimated."""
        if self._clock() - self._opened_ns > MOST_SECONDS * 1e9:
            return True
        try:
            return with_timeout(_rss_bytes) - self._rss > MOST_GROWTH_BYTES
        except FAILURES as error:
            raise_if_signalled(error)
            return True

    def stop(self) -> None:
        with failures_suppressed():  # the profiler must be stopped whatever becomes of a marker
            self.unmark()
        begin = self._clock()
        if self._running:
            self._running = False
            try:
                self._probe.stop_trace()
                self.facts |= with_timeout(self._keep, deadline_s=KEEPING_SECONDS)
            except BaseException as error:
                ours = isinstance(error, FAILURES) and not is_signalled(error)
                if not ours:  # the user's Ctrl-C: it goes on, but the profiler must not
                    with failures_suppressed():
                        self._probe.stop_trace()
                self._give_up(error)
                if not ours:
                    raise
        elif self.facts["status"] == "open":
            self.facts["status"] = "failed: it was interrupted as it opened"
        self.facts["stop_cost_ns"] = self._clock() - begin

    @property
    def failure(self) -> str | None:
        """Why there is no trace of this window; None where there is one, or may still be."""
        status = str(self.facts["status"])
        return status.removeprefix("failed: ") if status.startswith("failed: ") else None

    def _prepare(self) -> None:
        _require_space(self._root)
        self._gathering.mkdir(parents=True, exist_ok=True)

    def _keep(self) -> dict[str, Any]:
        """Move the trace to its place; what is to be said of it."""
        session = self._move()
        return {
            "trace": session.relative_to(self._root).as_posix(),
            "host": host_of(session),
            "trace_bytes": sum(file.stat().st_size for file in session.rglob("*.*")),
            "status": "done",
        }

    def _move(self) -> Path:
        """Give the session its own directory in TensorBoard's layout."""
        sessions = sorted((self._gathering / "plugins" / "profile").iterdir())
        if not sessions:
            raise FileNotFoundError("the profiler wrote no trace")
        target = new_session(self._root / "plugins" / "profile", sessions[-1].name)
        os.replace(sessions[-1], target)  # onto an empty directory of our own
        _drop_copies(target)
        for empty in (self._gathering / "plugins" / "profile", self._gathering / "plugins", self._gathering):
            with contextlib.suppress(OSError):
                empty.rmdir()
        return target

    def _give_up(self, error: BaseException) -> None:
        self._fail(error)
        with failures_suppressed():  # an incomplete trace cannot be used, and may be what fills the disk
            with_timeout(shutil.rmtree, self._gathering, True)

    def _fail(self, error: BaseException) -> None:
        text = " ".join(str(error).split())  # some state a page of signatures
        self.facts["status"] = f"failed: {type(error).__name__}: {text}"[:300]


def new_session(profile: Path, name: str) -> Path:
    """Return an empty directory below `profile` for a session of that name, which may be there already.
    Raises OSError."""
    profile.mkdir(parents=True, exist_ok=True)
    for k in range(1, 100):
        session = profile / (name if k == 1 else f"{name}_{k}")
        with contextlib.suppress(FileExistsError):
            session.mkdir()
            return session
    raise FileExistsError(f"{profile} holds a hundred sessions that began in this second")


def _require_space(root: Path) -> None:
    free = shutil.disk_usage(root).free
    if free < LEAST_FREE_BYTES:
        raise OSError(28, f"only {free >> 20} MiB free where the trace would go")


def _rss_bytes() -> int:
    try:
        import psutil  # type: ignore[import-untyped]

        return int(psutil.Process().memory_info().rss)
    except Exception:  # noqa: BLE001 - without psutil only the limits of steps and time hold
        return 0


def _drop_copies(session: Path) -> None:
    """Remove JAX's copies: it writes the same events once more for a viewer, and one copy is enough."""
    for trace in session.glob("*.xplane.pb"):
        copy = trace.with_name(trace.name.removesuffix(".xplane.pb") + ".trace.json.gz")
        copy.unlink(missing_ok=True)


def host_of(session: Path) -> str | None:
    """Return the host that a session's trace is named after; None where there is no trace of that kind."""
    for suffix in TRACES:
        for trace in sorted(session.glob(f"*{suffix}")):
            return trace.name.removesuffix(suffix)
    return None
