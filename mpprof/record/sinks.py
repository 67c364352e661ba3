"""Where else the series of a run go while it trains: a small protocol, and what a step line gives to it.

Sinks are fed in our own thread, from the lines that have just been written to disk; nothing of this happens
in a hook of the training.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol

MOST_STEPS = 64
"""A point is made at every reading, and at the latest after so many steps."""


class Sink(Protocol):
    """Takes points of series. Both methods are called in mpprof's thread and may block; if one raises, this
    sink is given up, said once, and training goes on."""

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        """Values of several series (`mpprof/loss_scale`) after `step` steps."""
        ...

    def close(self) -> None:
        """No more points for now; `scalars` may be called again when another `fit` begins."""
        ...


class Series:
    """Turns step lines into points: `mpprof/step_time_ms` (mean per step since the point before),
    `mpprof/loss`, `mpprof/loss_scale`, `mpprof/skipped_steps` (so far), `mpprof/peak_memory_bytes`."""

    def __init__(self) -> None:
        self._skipped = 0
        self._steps = self._time_ns = 0
        self._since = 0

    def see(self, line: Mapping[str, Any]) -> dict[str, float]:
        """The values of the point that this line makes; empty where it makes none."""
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
