"""Sinks take the series of a run while it trains: their protocol, and the points that step lines make.

Sinks are fed from the lines that have just been written to disk, each in a thread of its own: one that hangs
delays neither the training nor the records nor another sink.
"""

from __future__ import annotations

import math
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from mpprof.record.run_with_timeout import FAILURES, with_timeout

MOST_STEPS = 64
"""A point is made at every reading, and at the latest after so many steps."""


MOST_QUEUED = 10_000
"""Points that wait for a sink; one that is further behind is given up."""


class Sink(Protocol):
    """Takes points of series. Its methods are called in a thread of mpprof's and may block for a while. A
    sink that raises or hangs is not called again: one warning says so, and training goes on.

    A sink may also have `finish(summary, report)`, which is called with a time limit when a `fit` has ended
    and its records are on disk. `summary` holds what is known by name (`mpprof/verdict`,
    `mpprof/step_time_ms`); `report` is the path of one HTML file that is removed afterwards, or None."""

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        """Accept the values of several series (`mpprof/loss_scale`) after `step` steps."""
        ...

    def close(self) -> None:
        """Close the sink: no more points come for now; `scalars` may be called again when another `fit`
        begins."""
        ...


class Series:
    """Turns step lines into points: `mpprof/step_time_ms` (mean per step since the point before),
    `mpprof/loss`, `mpprof/loss_scale`, `mpprof/skipped_steps` (so far), `mpprof/peak_memory_bytes`."""

    def __init__(self) -> None:
        self._skipped = 0
        self._steps = self._time_ns = 0
        self._since = 0

    def see(self, line: Mapping[str, Any]) -> dict[str, float]:
        """Return the values of the point that this line makes; empty where it makes none."""
        if line.get("kind") != "step":
            return {}
        covers = int(line["covers"])
        self._since += covers
        interval = line.get("interval_ns")
        if interval is not None and not line["profiled"]:
            calls = int(line.get("interval_calls", 1))
            self._steps += covers * calls
            self._time_ns += interval * calls
        if "skipped" not in line and "memory" not in line and self._since < MOST_STEPS:
            return {}
        return self._point(line)

    def _point(self, line: Mapping[str, Any]) -> dict[str, float]:
        point: dict[str, float] = {}
        if self._steps:
            point["mpprof/step_time_ms"] = self._time_ns / self._steps / 1e6
        if "skipped" in line:
            self._skipped += int(line["skipped"])
            point["mpprof/skipped_steps"] = float(self._skipped)
        for name in ("loss", "loss_scale"):
            value = line.get(name)
            if isinstance(value, float) and not math.isnan(value):
                point[f"mpprof/{name}"] = value
        if memory := line.get("memory"):
            point["mpprof/peak_memory_bytes"] = float(max(device["peak_bytes"] for device in memory))
        self._since = self._steps = self._time_ns = 0
        return point


class Point(NamedTuple):
    step: int
    unix_s: float
    values: Mapping[str, float]


class Feed:
    """Hands points to one sink. `failed` is told once, with the error, when it is given up."""

    def __init__(self, sink: Sink, failed: Callable[[str, BaseException], None]) -> None:
        self._sink, self._failed = sink, failed
        self._points: queue.SimpleQueue[Point | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._broken = False

    def put(self, point: Point) -> None:
        if self._broken:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"mpprof {self.name}", daemon=True)
            self._thread.start()
        self._points.put(point)
        if self._points.qsize() > MOST_QUEUED:
            self._give_up(TimeoutError("it does not accept the values"))

    def close(self, timeout_s: float) -> None:
        """Close the feed: no more points come for now. Returns when the sink has taken them all, or after the
        timeout."""
        thread, self._thread = self._thread, None
        if thread is None or self._broken:
            return
        self._points.put(None)
        thread.join(timeout_s)
        if thread.is_alive():
            self._give_up(TimeoutError(f"it has not accepted its values within {timeout_s:g} s"))

    def finish(self, summary: Mapping[str, float | str], report: Path | None, deadline_s: float) -> None:
        """Give the sink what is known at the end, where the sink takes it."""
        finish = getattr(self._sink, "finish", None)
        if finish is None or self._broken:
            return
        try:
            with_timeout(finish, summary, report, deadline_s=deadline_s)
        except FAILURES as error:  # see `_run`
            self._give_up(error)

    @property
    def finishes(self) -> bool:
        """Whether the sink takes what is known at the end."""
        return not self._broken and callable(getattr(self._sink, "finish", None))

    @property
    def name(self) -> str:
        return f"sink.{type(self._sink).__name__}"

    def _run(self) -> None:
        try:
            while (point := self._points.get()) is not None:
                if not self._broken:
                    self._sink.scalars(*point)
            self._sink.close()
        except FAILURES as error:  # a sink is somebody else's: whatever it does, training goes on
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        if not self._broken:
            self._broken = True
            self._failed(self.name, error)
