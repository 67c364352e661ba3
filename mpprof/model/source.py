"""The Protocol through which the dashboard gets its runs; `api.source.LogDirectory` is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mpprof.model.frozen import frozen
from mpprof.model.steps import HardwareTable, StepTable

if TYPE_CHECKING:
    from mpprof.model import document as doc


RunState = Literal["running", "ended", "stopped", "unfinished"]
"""Stopped: no end of the training was recorded, and nothing was written for `STOPPED_AFTER_S`. Unfinished: no
end was recorded, of a run elsewhere, whose writes are not seen as they happen."""
STOPPED_AFTER_S = 15.0
"""While the process lives it writes a hardware sample at least every 2 seconds."""


@frozen
class RunEntry:
    """One run that can be chosen. `problem` is set where it is listed but cannot be read."""

    id: str  # unique, stable while the server runs; safe in a URL
    name: str
    policy: str | None
    backend: str | None
    created_unix_ns: int | None
    live: bool  # the process that records it writes
    has_trace: bool
    problem: str | None = None
    state: RunState | None = None  # None: not known
    written_unix_ns: int | None = None  # when its files were last written
    device: str | None = None  # the name of its accelerator, else of its CPU
    on_gpu: bool | None = None
    batch_size: int | None = None
    parameters: int | None = None  # of its model


class RunSource(Protocol):
    """Runs under a directory. Every method may raise MpprofError; documents are those of the CLI's
    `--format json`, so a page shows exactly what the commands print."""

    title: str

    def entries(self) -> tuple[RunEntry, ...]: ...

    def report(self, run: str, baseline: str | None = None) -> doc.Report: ...

    def steps(self, run: str) -> StepTable | None: ...

    def hardware(self, run: str) -> HardwareTable | None: ...

    def version(self, run: str, baseline: str | None = None) -> str:
        """What changes when the files of either change: nothing is read or computed for it."""
        ...

    def kernels(self, run: str, *, in_steps: bool = False) -> list[doc.KernelRow]:
        """Rows over the whole trace; with `in_steps` over its whole steps alone, where it has any."""
        ...

    def ops(self, run: str, *, in_steps: bool = False) -> list[doc.OpRow]: ...

    def layers(self, run: str, *, in_steps: bool = False) -> list[doc.LayerRow]: ...

    def roofs(self, run: str) -> doc.Roofs | None:
        """The peak rates of the run's main device; None where they are not known."""
        ...

    def timeline(
        self,
        run: str,
        *,
        step: int | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        width: int = 1400,
    ) -> doc.Timeline | None:
        """A window of what ran when, merged to `width` pixels: of a step (None: the one of median length), or
        between two times from the first step's start. None: no trace, or no step in it."""
        ...

    def kernel(self, run: str, row: int) -> doc.KernelDetails | None:
        """One kernel of the timeline as it ran; None where there is no such row."""
        ...

    def redactor(self, run: str) -> Callable[[Any], Any]:
        """A function that takes hosts, users and paths out of a JSON value, as `mpprof bundle` does."""
        ...

    def compare(self, runs: tuple[str, ...]) -> doc.Comparison: ...
