"""The Protocol through which the dashboard gets its runs; `api.source.LogDirectory` is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from mpprof.model.frozen import frozen
from mpprof.model.steps import HardwareTable, StepTable

if TYPE_CHECKING:
    from mpprof.model.document import Comparison, KernelRow, LayerRow, OpRow, Report


@frozen
class RunEntry:
    """One run that can be chosen. `problem` is set where it is listed but cannot be read."""

    id: str  # unique, stable while the server runs; safe in a URL
    name: str
    policy: str | None
    backend: str | None
    created_unix_ns: int | None
    live: bool
    has_trace: bool
    problem: str | None = None


class RunSource(Protocol):
    """Runs under a directory. Every method may raise MpprofError; documents are those of the CLI's
    `--format json`, so a page shows exactly what the commands print."""

    title: str

    def entries(self) -> tuple[RunEntry, ...]: ...

    def report(self, run: str, baseline: str | None = None) -> Report: ...

    def steps(self, run: str) -> StepTable | None: ...

    def hardware(self, run: str) -> HardwareTable | None: ...

    def kernels(self, run: str) -> list[KernelRow]: ...

    def ops(self, run: str) -> list[OpRow]: ...

    def layers(self, run: str) -> list[LayerRow]: ...

    def compare(self, runs: tuple[str, ...]) -> Comparison: ...
