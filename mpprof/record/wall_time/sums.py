"""What a training's wall time went into beside its steps: sums by part, name and place, and their lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpprof.model.limits import LONG_CALL_NS

NOTABLE_NS = 1_000_000
"""A sum below this waits for the end of the epoch before it is written."""


class Sum:
    """Calls and their nanoseconds, since the last line that was written of them. `timed`: whether more than
    the number of calls is known."""

    __slots__ = ("at", "calls", "earlier_calls", "earlier_ns", "first_step", "name", "ns", "part", "timed")

    def __init__(self, part: str, name: str, at: str) -> None:
        self.part, self.name, self.at = part, name, at
        self.calls = self.ns = self.earlier_calls = self.earlier_ns = 0
        self.timed = True
        self.first_step = 1

    def line(self, fit: int, last_step: int) -> dict[str, Any]:
        """Return the line of the log that states this sum."""
        told = {"part": self.part, "name": self.name, "at": self.at, "fit": fit}
        steps = {"first_step": self.first_step, "last_step": last_step}
        return {
            "kind": "spent",
            **told,
            **steps,
            "calls": self.calls,
            **({"ns": self.ns} if self.timed else {}),
        }


class Spent:
    """The sums of one `fit`. `since` is when the hook that runs now has begun."""

    __slots__ = ("_first_step", "_fit", "_put", "_step", "_sums", "clock", "since")

    def __init__(self, clock: Callable[[], int]) -> None:
        self.clock = clock
        self.since = 0
        self._sums: dict[tuple[str, str, str], Sum] = {}
        self._put: Callable[[dict[str, Any]], None] | None = None
        self._fit, self._first_step = 0, 1
        self._step: Callable[[], int] = int

    def begin_fit(
        self, fit: int, first_step: int, step: Callable[[], int], put: Callable[[dict[str, Any]], None]
    ) -> None:
        """Begin to write lines, with `put`. `step` says within which step's interval it is now."""
        self._fit, self._first_step, self._step, self._put = fit, first_step, step, put
        for each in self._sums.values():
            each.first_step = self._first_step

    def of(self, part: str, name: str, at: str) -> Sum:
        """Return the sum of this part, name and place."""
        found = self._sums.get((part, name, at))
        if found is None:
            found = self._sums[part, name, at] = Sum(part, name, at)
            found.first_step = self._first_step
        return found

    def add(self, total: Sum, ns: int) -> None:
        """Add a call that has taken so long."""
        total.calls += 1
        total.ns += ns
        if ns >= LONG_CALL_NS:
            self.stalled(total, ns)

    def count(self, total: Sum, calls: int, ns: int | None) -> None:
        """Add several calls. `ns`: None where their time is not known."""
        total.calls += calls
        total.ns += ns or 0
        total.timed &= ns is not None

    def stalled(self, total: Sum, ns: int) -> None:
        """Write a line of its own for the call that was added last, if it took twice as long as its like."""
        calls = total.earlier_calls + total.calls - 1
        before_ns = total.earlier_ns + total.ns - ns
        if self._put is None or (calls and ns * calls < 2 * before_ns):
            return
        total.calls, total.ns = total.calls - 1, total.ns - ns
        self._apart(total, 1, ns, max(self._step(), total.first_step))

    def add_apart(self, total: Sum, calls: int, ns: int) -> None:
        """Add what has taken so long, with a line of its own: it tells the step."""
        if self._put is None:
            self.count(total, calls, ns)
        else:
            self._apart(total, calls, ns, self._step())

    def _apart(self, total: Sum, calls: int, ns: int, step: int) -> None:
        if total.calls or total.ns:
            self._write(total, step - 1)
        total.calls, total.ns, total.first_step = calls, ns, step
        self._write(total, step)

    def write(self, least_ns: int = 0) -> None:
        """Write a line for each sum that holds something, if that is so many nanoseconds or more."""
        if self._put is None:
            return
        for total in self._sums.values():
            if (total.calls or total.ns) and total.ns >= least_ns:
                self._write(total, self._step())

    def _write(self, total: Sum, last_step: int) -> None:
        assert self._put is not None
        last_step = max(last_step, total.first_step)
        self._put(total.line(self._fit, last_step))
        total.earlier_calls, total.earlier_ns = total.earlier_calls + total.calls, total.earlier_ns + total.ns
        total.calls, total.ns, total.first_step = 0, 0, last_step + 1
