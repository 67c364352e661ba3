"""One run that was analysed already, and its baseline, as the page's source gives them: for its HTML file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from mpprof.analysis.breakdown.tables import ALL_STEPS
from mpprof.api import timeline as timelines
from mpprof.api import workflows
from mpprof.api.workflows import Analysis
from mpprof.model.report import Report
from mpprof.model.run import Run
from mpprof.model.steps import HardwareTable, StepTable
from mpprof.report import json as documents
from mpprof.report.redact import redactor_of

if TYPE_CHECKING:
    from mpprof.model.rows import KernelRow, LayerRow, OpRow, ProductRow
    from mpprof.model.run import Run, ShownLook
    from mpprof.model.timeline import Roofs, Timeline

RUN, BASELINE = "run", "baseline"


def shown_look(run: Run) -> ShownLook | None:
    """Return the look at a run's numbers by layer that shows most; None where it has none."""
    from mpprof.numbers import files

    return files.shown(run.path) if run.looks else None


class TableMethods(ABC):
    """The tables of a run by name, all from one method that a subclass provides. `in_steps`: over the whole
    steps of the
    trace alone, where it has any; else over the whole trace."""

    def kernels(self, run: str, *, in_steps: bool = False) -> list[KernelRow]:
        return cast("list[KernelRow]", self._rows(run, "kernels", in_steps))

    def products(self, run: str, *, in_steps: bool = False) -> list[ProductRow]:
        return cast("list[ProductRow]", self._rows(run, "products", in_steps))

    def ops(self, run: str, *, in_steps: bool = False) -> list[OpRow]:
        return cast("list[OpRow]", self._rows(run, "ops", in_steps))

    def layers(self, run: str, *, in_steps: bool = False) -> list[LayerRow]:
        return cast("list[LayerRow]", self._rows(run, "layers", in_steps))

    def steps(self, run: str) -> StepTable | None:
        return self._run(run).steps

    def hardware(self, run: str) -> HardwareTable | None:
        return self._run(run).hardware

    def roofs(self, run: str) -> Roofs | None:
        return workflows.roofs_of(self._analysis(run))

    def redactor(self, run: str) -> Callable[[Any], Any]:
        return redactor_of(self._run(run)).record

    @abstractmethod
    def _rows(self, run: str, kind: workflows.TableKind, in_steps: bool) -> Any:
        """Return the rows of a table."""

    @abstractmethod
    def _analysis(self, run: str) -> Analysis: ...

    def _run(self, run: str) -> Run:
        return self._analysis(run).run


class OneRun(TableMethods):
    """Answers for `RUN`, and for `BASELINE` where there is one, as `model.source.RunTables` asks.

    `document` is the report of the run against the baseline. Methods raise UnableError without a trace."""

    def __init__(self, document: Report, mine: Analysis, baseline: Analysis | None = None) -> None:
        self.document = document
        self._of = {RUN: mine} | ({BASELINE: baseline} if baseline is not None else {})

    @property
    def ids(self) -> tuple[str, str | None]:
        """The names of the run and its baseline here."""
        return RUN, BASELINE if BASELINE in self._of else None

    def report(self, run: str, baseline: str | None = None) -> Report:
        return self.document if run == RUN else documents.report(workflows.judge(self._of[run]))

    def _analysis(self, run: str) -> Analysis:
        return self._of[run]

    def numbers(self, run: str) -> ShownLook | None:
        return shown_look(self._of[run].run)

    def _rows(self, run: str, kind: workflows.TableKind, in_steps: bool) -> Any:
        mine = self._of[run]
        return workflows.rows_of(mine, kind, steps=ALL_STEPS if in_steps and mine.account else None)

    def timeline(self, run: str, *, step: int | None = None, width: int = 1400) -> Timeline | None:
        known = timelines.timeline_of(self._of[run])
        return None if known is None else timelines.window(known, step=step, width=width)
