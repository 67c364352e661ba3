"""What `callback.result()` gives to scripts and notebooks."""

from __future__ import annotations

import html
import importlib
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mpprof.record.end_of_fit import ANNOUNCE, command, verdict
from mpprof.record.run_with_timeout import say

log = logging.getLogger("mpprof")

INLINE = "mpprof.api.inline:page"
FRAME_PIXELS = 720


@dataclass(frozen=True)
class RunResult:
    """A run so far, as `callback.result()` returns it; printing it gives a few lines.

    In a notebook it shows itself as the report's page, inline: no server, no port, nothing fetched.

    Attributes:
        path: the run's directory.
        steps: how many have run.
        skipped: how many updates were skipped; None where that was not recorded.
        median_step_ns: of the steps after warm-up, in ns; None where no step has a time.
        mean_step_ns: the time of the steps after warm-up over their number, which is the step time that
            reports state; None where no step has a time.
        alarms: the alarms that were raised, as sentences; empty where none was.
        finished: whether the last `fit` has ended, by itself or because it was stopped, and is on disk.
        traced_steps: first and last step of the latest trace; None where there is none.
        lost: why what was recorded is not on disk; None where it is.
        timings: how many of the latest timings the median is of; None: of all after warm-up. The mean is of
            all.
    """

    path: Path
    steps: int
    skipped: int | None
    median_step_ns: float | None
    alarms: tuple[str, ...]
    finished: bool
    traced_steps: tuple[int, int] | None = None  # first and last of the latest trace
    lost: str | None = None
    timings: int | None = None  # how many of the latest the median is of; None: of all after warm-up
    mean_step_ns: float | None = None

    @cached_property
    def verdict(self) -> str | None:
        """The result in a few sentences, computed when first asked for; None where nothing can be stated."""
        return verdict(ANNOUNCE, self.path)

    def line(self, *, step_time: bool = True) -> str:
        """Return what was recorded, in one line; with `step_time`, also the mean step time."""
        parts = ["1 step" if self.steps == 1 else f"{self.steps} steps"]
        if self.mean_step_ns is not None and step_time:
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
            module, _, name = INLINE.partition(":")
            page = getattr(importlib.import_module(module), name)(self.path)
        except Exception as error:  # noqa: BLE001 - an extra, in place of the text
            say(log.debug, "no inline view", exc_info=error)
            return f"<pre>{html.escape(str(self))}</pre>"
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{FRAME_PIXELS}px;border:0" '
            f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
        )
