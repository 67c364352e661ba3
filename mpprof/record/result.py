"""What `callback.result()` gives to scripts and notebooks."""

from __future__ import annotations

import html
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mpprof.record.end_of_fit import ANNOUNCE, command, named, verdict
from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled, say, with_timeout

log = logging.getLogger("mpprof")

INLINE = "mpprof.api.inline:card"
STEP_TIMES = "mpprof.api.inline:step_times"


@dataclass(frozen=True)
class RunResult:
    """A run so far, as `callback.result()` returns it; printing it gives a few lines.

    In a notebook it shows itself as the card of the report: no server, no port, nothing fetched.

    Attributes:
        path: the run's directory.
        steps: how many have run.
        skipped: how many updates were skipped; None where that was not recorded.
        median_step_ns, mean_step_ns: of the steps after warm-up, in ns, as reports of this run state them;
            the mean is the step time. Read from the records when first asked for; while a `fit` runs, or
            where they cannot be read, of the timings at hand. None where no step has a time.
        alarms: the alarms that were raised, as sentences; empty where none was.
        finished: whether the last `fit` has ended, by itself or because it was stopped, and is on disk.
        traced_steps: first and last step of the latest trace; None where there is none.
        lost: why what was recorded is not on disk; None where it is.
        at_hand_ns: median and mean of the timings at hand, the median of the latest few thousand.
    """

    path: Path
    steps: int
    skipped: int | None
    alarms: tuple[str, ...]
    finished: bool
    traced_steps: tuple[int, int] | None = None  # first and last of the latest trace
    lost: str | None = None
    at_hand_ns: tuple[float | None, float | None] = (None, None)
    running: bool = False

    @property
    def median_step_ns(self) -> float | None:
        return self._times[0]

    @property
    def mean_step_ns(self) -> float | None:
        return self._times[1]

    @cached_property
    def _times(self) -> tuple[float | None, float | None]:
        if self.running or self.lost is not None:
            return self.at_hand_ns
        try:
            median_ns, mean_ns = with_timeout(named(STEP_TIMES), self.path)
        except FAILURES as error:  # `mpprof report` will say what is wrong
            raise_if_signalled(error)
            say(log.debug, "no step times of the records", exc_info=error)
            return self.at_hand_ns
        return median_ns, mean_ns

    @cached_property
    def verdict(self) -> str | None:
        """The result in a few sentences, computed when first asked for; None where nothing can be stated."""
        return verdict(ANNOUNCE, self.path)

    def line(self, *, step_time: bool = True) -> str:
        """Return what was recorded, in one line; with `step_time`, also the mean step time."""
        parts = ["1 step" if self.steps == 1 else f"{self.steps} steps"]
        if step_time and self.mean_step_ns is not None:  # which reads all of the run's steps
            parts.append(f"mean {self.mean_step_ns / 1e6:.3g} ms a step")
        if self.skipped is not None:
            parts.append(f"{self.skipped} skipped")
        if self.traced_steps is not None:
            parts.append("trace of steps {} to {}".format(*self.traced_steps))
        return ", ".join(parts)

    def __str__(self) -> str:
        said = [
            self.line(step_time=self.verdict is None),
            *([self.verdict] if self.verdict else []),
            *([self.lost] if self.lost else []),
            *self.alarms,
        ]
        return "\n".join([*said, f"More: {command(self.path)}"])

    def _repr_html_(self) -> str:
        try:
            card: str = named(INLINE)(self.path)
        except Exception as error:  # noqa: BLE001 - an extra, in place of the text
            say(log.debug, "no card", exc_info=error)
            return f"<pre>{html.escape(str(self))}</pre>"
        return card
