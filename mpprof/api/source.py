"""A directory of runs as the page sees it: read when asked for, read again when it changed on disk."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from threading import RLock
from time import monotonic, time_ns
from typing import TYPE_CHECKING, TypeVar, cast

from mpprof.analysis.breakdown.timeline import Lanes
from mpprof.api import timeline as timelines
from mpprof.api import workflows
from mpprof.errors import MpprofError, NotFoundError
from mpprof.model.run import Run
from mpprof.model.source import RunEntry
from mpprof.model.steps import HardwareTable, StepTable
from mpprof.report import json as documents
from mpprof.runs.loading import closed_beside, lone_beside
from mpprof.runs.state import state_of
from mpprof.traces import formats

if TYPE_CHECKING:
    from mpprof.model import document as doc

KEPT_ANALYSES = 6
"""Analyses hold whole traces: as many as a ladder on one page needs, no more."""

REFRESH_S = 30.0
"""How often a directory elsewhere is looked at again, at most."""

Signature = tuple[tuple[str, int, int], ...]
_T = TypeVar("_T")


class LogDirectory:
    """Implements model.source.RunSource over everything under `path`.

    Safe to use from several threads. What was read is kept until the files' sizes or times change. `refresh`
    brings `path` up to date where it is the copy of a directory elsewhere. `step_range` as for
    `workflows.load`.
    """

    def __init__(
        self, path: Path, *, refresh: Callable[[], None] | None = None, step_range: str | None = None
    ) -> None:
        if not path.exists():
            raise NotFoundError("no such file or directory", where=str(path), next="Give a log directory")
        self.path = path
        self.title = path.resolve().name
        self._lock = RLock()
        self._refresh = refresh
        self._step_range = step_range
        self._refreshed_s = monotonic()
        self._runs: dict[str, tuple[Signature, Run | MpprofError]] = {}
        self._lanes: dict[str, tuple[workflows.Analysis, Lanes | None]] = {}
        self._analyses: OrderedDict[str, tuple[Signature, workflows.Analysis]] = OrderedDict()

    def entries(self) -> tuple[RunEntry, ...]:
        """Every run, oldest first; one that cannot be read is listed with its problem, and so is a directory
        that cannot be opened."""
        with self._lock:
            found = self._scan()
        elsewhere = self._refresh is not None
        entries = [
            _entry(name, signature, read, elsewhere=elsewhere) for name, (signature, read) in found.items()
        ]
        return tuple(sorted(entries, key=lambda e: (e.created_unix_ns or 0, e.name)))

    def report(self, run: str, baseline: str | None = None) -> doc.Report:
        """The `mpprof.report/1` document of a run, against a baseline run where one is named."""
        mine = self._analysis(run)
        against = self._analysis(baseline) if baseline and baseline != run else None
        return documents.document(workflows.judge(mine, against))

    def steps(self, run: str) -> StepTable | None:
        return self._run(run).steps

    def hardware(self, run: str) -> HardwareTable | None:
        return self._run(run).hardware

    def kernels(self, run: str) -> list[doc.KernelRow]:
        return cast("list[doc.KernelRow]", workflows.rows_of(self._analysis(run), "kernels"))

    def ops(self, run: str) -> list[doc.OpRow]:
        return cast("list[doc.OpRow]", workflows.rows_of(self._analysis(run), "ops"))

    def layers(self, run: str) -> list[doc.LayerRow]:
        return cast("list[doc.LayerRow]", workflows.rows_of(self._analysis(run), "layers"))

    def timeline(
        self,
        run: str,
        *,
        step: int | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        width: int = 1400,
    ) -> doc.Timeline | None:
        mine, known = self._lanes_of(run)
        if known is None:
            return None
        return timelines.window(mine, known, step=step, from_ns=from_ns, to_ns=to_ns, width=width)

    def kernel(self, run: str, row: int) -> doc.KernelDetails | None:
        mine, known = self._lanes_of(run)
        return None if known is None else timelines.kernel(mine, known, row)

    def _lanes_of(self, run: str) -> tuple[workflows.Analysis, Lanes | None]:
        """Its analysis, and its lanes, which are kept as long as the analysis is."""
        with self._lock:
            mine = self._analysis(run)
            kept = self._lanes.get(run)
            if kept is None or kept[0] is not mine:
                self._lanes[run] = kept = mine, timelines.lanes_of(mine)
            for name in set(self._lanes) - set(self._analyses):
                del self._lanes[name]
            return kept

    def compare(self, runs: tuple[str, ...]) -> doc.Comparison:
        """The `mpprof.compare/1` document of two runs or more, in the order given."""
        from mpprof.api.ladder import compare_analyses

        return documents.compare_document(compare_analyses([self._analysis(run) for run in runs]))

    def _scan(self) -> dict[str, tuple[Signature, Run | MpprofError]]:
        """Reads what is new or changed; forgets what is gone."""
        if self._refresh is not None and monotonic() - self._refreshed_s >= REFRESH_S:
            self._refresh()
            self._refreshed_s = monotonic()
        found: dict[str, tuple[Signature, Run | MpprofError]] = {}
        at = workflows.places(self.path)
        for place in (*at, *lone_beside(self.path, at)):
            signature = _signature(place.files)
            known = self._runs.get(place.name)
            if known is None or known[0] != signature:
                known = signature, _attempt(place.read)
            found[place.name] = known
        for refused in closed_beside(self.path, at):
            name = os.path.relpath(refused.where, self.path)
            found[name] = ((), refused)
        self._runs = found
        return found

    def _run(self, name: str) -> Run:
        with self._lock:
            known = self._runs.get(name) or self._scan().get(name)
        if known is None:
            raise NotFoundError(
                f"no run named {name!r} here",
                where=str(self.path),
                next="Choose one of the runs that are listed",
            )
        read = known[1]
        if isinstance(read, MpprofError):
            raise read
        return read

    def _analysis(self, name: str) -> workflows.Analysis:
        with self._lock:
            self._scan()
            run, signature = self._run(name), self._runs[name][0]
            kept = self._analyses.get(name)
            if kept is None or kept[0] != signature:
                kept = signature, workflows.analyse(workflows.load(run, step_range=self._step_range))
            self._analyses[name] = kept
            self._analyses.move_to_end(name)
            while len(self._analyses) > KEPT_ANALYSES:
                self._analyses.popitem(last=False)
            return kept[1]


def _attempt(read: Callable[[], _T]) -> _T | MpprofError:
    try:
        return read()
    except MpprofError as error:
        return error


def _entry(name: str, signature: Signature, read: Run | MpprofError, *, elsewhere: bool) -> RunEntry:
    written_ns = max((changed_ns for _, _, changed_ns in signature), default=None)
    if isinstance(read, MpprofError):
        return RunEntry(
            name, name, None, None, None, live=False, has_trace=False, problem=str(read),
            written_unix_ns=written_ns,
        )  # fmt: skip
    facts, fit = read.facts, read.last_fit
    state = state_of(read, now_unix_ns=time_ns(), elsewhere=elsewhere)
    devices = facts.devices if facts else ()
    device = next((each for each in devices if each.kind != "cpu"), next(iter(devices), None))
    return RunEntry(
        id=name,
        name=name,
        policy=fit.policy.global_name if fit else None,
        backend=facts.framework.get("backend") if facts else None,
        created_unix_ns=facts.created_unix_ns if facts else None,
        live=state in ("running", "unfinished"),
        has_trace=bool(read.traces),
        problem=_no_trace(read) if facts is None else None,
        state=state,
        written_unix_ns=written_ns,
        device=device.name if device else None,
        on_gpu=device.kind != "cpu" if device else None,
        batch_size=fit.batch_size if fit else None,
        parameters=facts.model.parameters if facts and facts.model else None,
    )


def _no_trace(run: Run) -> str | None:
    """Why the file that a run without records consists of is no trace; None: its bytes are a trace's."""
    why = [known.why for file in run.traces if (known := formats.of(file)) is not None]
    return f"{run.traces[-1]}: {why[-1]}" if why and why[-1] else None


def _signature(files: tuple[Path, ...]) -> Signature:
    signature = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:  # gone between the listing and now: that is a change, too
            continue
        signature.append((str(file), stat.st_size, stat.st_mtime_ns))
    return tuple(signature)
