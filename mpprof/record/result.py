"""What `callback.result()` gives to scripts and notebooks."""

from __future__ import annotations

import html
import importlib
import logging
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from mpprof.record.end_of_fit import ANNOUNCE, command, verdict

log = logging.getLogger("mpprof")

INLINE = "mpprof.api.inline:page"
FRAME_PIXELS = 720


@dataclass(frozen=True)
class RunResult:
    """A run so far. Numbers are None where they were not recorded. `finished`: its last `fit` has come to its
    end, by itself or because it was stopped, and is on disk; `lost` says why what was recorded is not.

    In a notebook it shows itself as the report's page, inline: no server, no port, nothing fetched."""

    path: Path
    steps: int
    skipped: int | None
    median_step_ns: float | None
    alarms: tuple[str, ...]
    finished: bool
    traced_steps: tuple[int, int] | None = None  # first and last of the latest trace
    lost: str | None = None
    timings: int | None = None  # how many of the latest the median is of; None: of all after warm-up

    @cached_property
    def verdict(self) -> str | None:
        """One sentence; worked out when first asked for, None where nothing can be said."""
        return verdict(ANNOUNCE, self.path)

    def line(self, *, median: bool = True) -> str:
        """What was recorded, in one line. `median`: with the median step time."""
        parts = ["1 step" if self.steps == 1 else f"{self.steps} steps"]
        if self.median_step_ns is not None and median:
            of = "" if self.timings is None else f" of the latest {self.timings} timings"
            parts.append(f"median {self.median_step_ns / 1e6:.3g} ms{of}")
        if self.skipped is not None:
            parts.append(f"{self.skipped} skipped")
        if self.traced_steps is not None:
            parts.append("trace of steps {} to {}".format(*self.traced_steps))
        return ", ".join(parts)

    def __str__(self) -> str:
        said = [
            self.line(median=self.verdict is None),
            *([self.verdict] if self.verdict else []),
            *([self.lost] if self.lost else []),
            *self.alarms,
        ]
        return "\n".join([*said, f"More: {command(self.path)}"])

    def _repr_html_(self) -> str:
        try:
            module, _, name = INLINE.partition(":")
            page = getattr(importlib.import_module(module), name)(self.path)
        except Exception as error:
            log.debug("no inline view", exc_info=error)
            return f"<pre>{html.escape(str(self))}</pre>"
        return (
            f'<iframe sandbox="allow-scripts" style="width:100%;height:{FRAME_PIXELS}px;border:0" '
            f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
        )
