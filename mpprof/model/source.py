"""The Protocol through which the dashboard gets its runs; `api.source.LogDirectory` is one."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from mpprof.model.frozen import frozen
from mpprof.model.run import HostTrace, ProfilePlan
from mpprof.model.steps import HardwareTable, StepTable

if TYPE_CHECKING:
    from mpprof.model.report import ComparedRuns, Report
    from mpprof.model.rows import KernelRow, LayerRow, OpRow, ProductRow, SurveyRow
    from mpprof.model.run import ShownLook
    from mpprof.model.timeline import KernelDetails, Roofs, Timeline


RunState = Literal["running", "ended", "interrupted", "exit", "failed", "stopped", "unfinished", "unrecorded"]
"""Interrupted: the training was broken off, by the keyboard or by an unknown cause. Exit: by `sys.exit`.
Failed: an error ended the training. Stopped: no end of the training was recorded, and nothing was written for
`runs.state.STOPPED_AFTER_S`. Unfinished: no end was recorded, of a run elsewhere, whose writes are not seen
as they happen. Unrecorded: recording ended before the training did, which may go on."""
HOST_MARK = "@"
"""Between a run's id and the host, in an id of the run as that host saw it."""


@frozen
class RunEntry:
    """One run that can be chosen. `problem` is set where it is listed but cannot be read."""

    id: str  # unique, stable while the server runs; safe in a URL
    name: str
    policy: str | None
    backend: str | None
    created_unix_ns: int | None
    live: bool  # the process that records it writes
    problem: str | None = None
    state: RunState | None = None  # None: not known
    written_unix_ns: int | None = None  # when its files were last written
    device: str | None = None  # the name of its accelerator, else of its CPU
    on_gpu: bool | None = None
    batch_size: int | None = None
    parameters: int | None = None  # of its model
    size_bytes: int | None = None  # of all its files
    last_step: int = 0  # on record
    plan: ProfilePlan | None = None  # of a profile window that has not opened
    hosts: tuple[HostTrace, ...] = ()  # that of the account first; empty: it is on one host


def on_host(run: str, host: str | None) -> str:
    """Return the id of a run as one of its hosts saw it, as `mpprof report --host`; of None the run's own."""
    return run if host is None else f"{run}{HOST_MARK}{host}"


class RunTables(Protocol):
    """What a file of one run is made from. Every method may raise MpprofError; documents are those of the
    CLI's `--format json`, so a page shows exactly what the commands print. `run`: an entry's id, or `on_host`
    of one."""

    def report(self, run: str, baseline: str | None = None) -> Report: ...

    def steps(self, run: str) -> StepTable | None: ...

    def hardware(self, run: str) -> HardwareTable | None: ...

    def kernels(self, run: str, *, in_steps: bool = False) -> list[KernelRow]:
        """Return rows over the whole trace; with `in_steps` over its whole steps alone, where it has any."""
        ...

    def products(self, run: str, *, in_steps: bool = False) -> list[ProductRow]: ...

    def ops(self, run: str, *, in_steps: bool = False) -> list[OpRow]: ...

    def layers(self, run: str, *, in_steps: bool = False) -> list[LayerRow]: ...

    def timeline(self, run: str, *, step: int | None = None, width: int = 1400) -> Timeline | None:
        """Return a step (None: that of median length), merged to `width` pixels. None: no trace or no step in
        it."""
        ...

    def roofs(self, run: str) -> Roofs | None:
        """Return the peak rates of the run's main device; None where they are not known."""
        ...

    def numbers(self, run: str) -> ShownLook | None:
        """Return the look at the run's numbers by layer that shows most; None where it has none."""
        ...

    def redactor(self, run: str) -> Callable[[Any], Any]:
        """Return a function that removes hosts, users and paths from a JSON value, as `mpprof bundle`
        does."""
        ...


class RunSource(RunTables, Protocol):
    """Runs under a directory, or in a file."""

    path: Path
    title: str

    def entries(self) -> tuple[RunEntry, ...]: ...

    def ladders(self) -> list[dict[str, Any]]:
        """Return the ladders of `mpprof try` in the directory, the newest first: `place`, `script`,
        `sentence`, `titles` and `rows`, all of it text."""
        ...

    def surveyed(self, run: str, baseline: str | None = None) -> SurveyRow | None:
        """Return the row of a survey, where the survey has kept it and no file of either run has changed
        since."""
        ...

    def one_answer(self) -> AbstractContextManager[None]:
        """Hold, for the thread that enters it, a view of the files as they were at one time."""
        ...

    def version(self, run: str, baseline: str | None = None) -> str:
        """Return a text that changes when the files of either run change: nothing is read or computed for
        it."""
        ...

    def timeline(
        self,
        run: str,
        *,
        step: int | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        width: int = 1400,
        colour: str = "placement",
        search: str = "",
        device_only: bool = False,
    ) -> Timeline | None:
        """Return a window of what ran when, merged to `width` pixels: of a step (None: the one of median
        length), or between two times from the first step's start; `device_only` without the host and
        streams. None: no trace, or no step in it.

        `colour`: "placement", "precision", "layer" or "class". Kernels with `search` in their name, op or
        layer are counted."""
        ...

    def next_kernel(
        self, run: str, *, row: int | None = None, from_ns: int = 0, search: str = "", back: bool = False
    ) -> KernelDetails | None:
        """Return the kernel of the timeline that follows `row`, or the time `from_ns` (`back`: the one before
        it), among those that `search` finds, the first after the last; None where there is none."""
        ...

    def chrome_trace(self, run: str, from_ns: int, to_ns: int) -> dict[str, Any] | None:
        """Return all events of a window of the timeline in the Trace Event Format, which Perfetto opens."""
        ...

    def kernel(self, run: str, row: int) -> KernelDetails | None:
        """Return one kernel of the timeline as it ran; None where there is no such row."""
        ...

    def compare(self, runs: tuple[str, ...]) -> ComparedRuns: ...
