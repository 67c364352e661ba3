"""A directory of runs as the page sees it: read when asked for, read again when it changed on disk."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore, RLock, local
from time import monotonic, time_ns
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from mpprof.analysis.breakdown.tables import ALL_STEPS
from mpprof.api import chrome_trace, workflows
from mpprof.api import timeline as timelines
from mpprof.api.one_run import TableMethods, shown_look
from mpprof.errors import MpprofError, NotFoundError, UnreadableError
from mpprof.model.report import ComparedRuns, Report
from mpprof.model.run import Run, ShownLook
from mpprof.model.source import HOST_MARK, RunEntry
from mpprof.report import dismissals, words
from mpprof.report import json as documents
from mpprof.report.runs.journal import Journal, signature_of
from mpprof.runs import hosts, watching
from mpprof.runs.loading import Place, closed_beside, lone_beside
from mpprof.runs.run_entries import entry_of, why_no_trace
from mpprof.runs.state import has_stopped, state_of
from mpprof.shared_results import SharedResults
from mpprof.store import ladder

if TYPE_CHECKING:
    from mpprof.model.rows import SurveyRow
    from mpprof.model.timeline import KernelDetails, Timeline

KEPT_ANALYSES = 6
"""Analyses hold whole traces: as many as a ladder on one page needs, no more."""

READ_AT_ONCE = 2
"""Traces read at the same time: each takes its memory, and a small one needs not wait for a large one."""

ONE_ANSWER_S = 0.5
"""Within this time the parts of one answer see the same files."""

KEPT_RUNS = 64
"""Runs with their whole step logs."""

LISTED_BYTES = 16 << 10
"""The list of runs reads only the beginning and the end of a longer step log: whether there is one, and an
end."""

KEPT_REPORTS = 512
"""Documents of some 100 KB: as many as a page of some hundred runs asks for."""

REFRESH_S = 30.0
"""How often a directory elsewhere is looked at again, at most."""

Signature = tuple[watching.Stated, ...]
_T = TypeVar("_T")


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, list) else words.plain(value)


class _Analysed:
    """A run's analysis, and what was made of it, which is dropped with it."""

    def __init__(self, analysis: workflows.Analysis) -> None:
        self.analysis = analysis
        # Three tables, of the whole trace or of its steps.
        self._rows: SharedResults[tuple[str, bool], Any] = SharedResults(6)
        self._timeline: SharedResults[None, timelines.Timeline | None] = SharedResults(1)

    def rows(self, kind: workflows.TableKind, in_steps: bool) -> Any:
        mine = self.analysis
        steps = in_steps and mine.account is not None
        make = partial(workflows.rows_of, mine, kind, steps=ALL_STEPS if steps else None)
        return self._rows.get((kind, steps), None, make)

    def timeline(self) -> timelines.Timeline | None:
        return self._timeline.get(None, None, partial(timelines.timeline_of, self.analysis))


class LogDirectory(TableMethods):
    """Implements model.source.RunSource over everything under `path`.

    Safe to use from several threads: a request for something already read does not wait. What was read is
    kept until the files' sizes or times change. `refresh` brings `path` up to date where it is the copy of a
    directory elsewhere. `step_range` as for `workflows.load`. `ignore`: findings to show as dismissed, reason
    by code. `survey`: the file of rows that a survey has kept (`--resume`). Raises UsageError for one that
    cannot be used.
    """

    def __init__(
        self,
        path: Path,
        *,
        refresh: Callable[[], None] | None = None,
        step_range: str | None = None,
        survey: Path | None = None,
        ignore: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        if not path.exists():
            raise NotFoundError("no such file or directory", where=str(path), next="Give a log directory")
        self.path = path
        self.title = words.plain(path.resolve().name)
        self._lock = RLock()
        self._refresh = refresh
        self._step_range = step_range
        self._ignore = ignore
        self._refreshed_s = monotonic()
        self._scanned_s = float("-inf")
        self._named: dict[str, workflows.Place] = {}
        self._journal = Journal(survey) if survey is not None else None
        self._sight: watching.Sight | None = None
        self._places: tuple[tuple[Place, ...], tuple[UnreadableError, ...]] = (), ()
        self._answer = local()
        self._runs: dict[str, tuple[Signature, Run | MpprofError]] = {}
        self._whole: SharedResults[str, Run] = SharedResults(KEPT_RUNS)
        self._reports: SharedResults[tuple[str, str | None], Report] = SharedResults(KEPT_REPORTS)
        self._analyses: SharedResults[str, _Analysed] = SharedResults(KEPT_ANALYSES)
        self._reading = BoundedSemaphore(READ_AT_ONCE)

    @contextmanager
    def one_answer(self) -> Iterator[None]:
        """Look at the files once at most in this thread: one page asks several times, and hundreds of runs
        are thousands of files."""
        self._answer.begun_s = monotonic()
        try:
            yield
        finally:
            self._answer.begun_s = float("inf")

    def entries(self) -> tuple[RunEntry, ...]:
        """Return every run, oldest first; one that cannot be read is listed with its problem, and so is a
        directory that cannot be opened."""
        with self._lock:
            found = self._scan()
        elsewhere = self._refresh is not None
        entries = [
            _entry(name, signature, read, elsewhere=elsewhere) for name, (signature, read) in found.items()
        ]
        return tuple(sorted(entries, key=lambda e: (e.created_unix_ns or 0, e.name)))

    def ladders(self) -> list[dict[str, Any]]:
        """Return the ladders of `mpprof try`, as model.source.RunSource states."""
        return [{key: _plain(value) for key, value in each.items()} for each in ladder.found(self.path)]

    def report(self, run: str, baseline: str | None = None) -> Report:
        """Return the `mpprof.report/1` document of a run, against a baseline run where one is named.

        It is kept until a file of either changes, and shared by all callers, who must not change it."""
        baseline = baseline if baseline != run else None

        def make() -> Report:
            mine = self._analysis(run)
            against = self._analysis(baseline) if baseline else None
            document = documents.report(workflows.judge(mine, against, dismissed=self._ignore))
            return dismissals.applied(document, self._ignore)

        stopped = has_stopped(self._run(run), now_unix_ns=time_ns())  # which no file changes for
        return self._reports.get((run, baseline), f"{self.version(run, baseline)} {stopped}", make)

    def surveyed(self, run: str, baseline: str | None = None) -> SurveyRow | None:
        """Return the row that a survey has kept of the run against this baseline; None where there is none,
        or a file of either has changed since."""
        if self._journal is None or self._step_range is not None:
            return None
        with self._lock:
            self._scan()
            places = self._named
        mine, other = places.get(run), places.get(baseline or "")
        if mine is None or (baseline and other is None):
            return None
        files = (*mine.files, *(other.files if other is not None else ()))
        row = self._journal.row(signature_of(mine.root, other.root if other is not None else None, files))
        return None if row is not None and row["cause"] in self._ignore else row

    def holds(self, run: str) -> bool:
        """Return whether all files of a run, links followed, lie in the directory."""
        with self._lock:
            known = self._scan(within_s=ONE_ANSWER_S).get(self._base(run))
        root = self.path.resolve()
        return known is not None and all(file.resolve().is_relative_to(root) for file in _files(known[0]))

    def numbers(self, run: str) -> ShownLook | None:
        return shown_look(self._run(run))

    def version(self, run: str, baseline: str | None = None) -> str:
        with self._lock:
            # The directory is walked now and then, the files of these runs are looked at each time.
            found = self._scan(within_s=ONE_ANSWER_S)
            named = [self._base(name) for name in (run, baseline) if name]
            if any(_signature(_files(found[name][0])) != found[name][0] for name in named if name in found):
                found = self._scan()
        stated = [(name, found[name][0] if name in found else None) for name in named]
        return hashlib.sha256(repr(stated).encode()).hexdigest()[:16]

    def _rows(self, run: str, kind: workflows.TableKind, in_steps: bool) -> Any:
        """Return the rows of a table, kept as long as the analysis is."""
        return self._analysed(run).rows(kind, in_steps)

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
        known = self._timeline_of(run)
        if known is None:
            return None
        return timelines.window(
            known,
            step=step,
            from_ns=from_ns,
            to_ns=to_ns,
            width=width,
            colour=colour,
            search=search,
            device_only=device_only,
        )

    def kernel(self, run: str, row: int) -> KernelDetails | None:
        known = self._timeline_of(run)
        return None if known is None else timelines.kernel(known, row)

    def next_kernel(
        self, run: str, *, row: int | None = None, from_ns: int = 0, search: str = "", back: bool = False
    ) -> KernelDetails | None:
        known = self._timeline_of(run)
        if known is None:
            return None
        return timelines.next_kernel(known, row=row, from_ns=from_ns, search=search, back=back)

    def chrome_trace(self, run: str, from_ns: int, to_ns: int) -> dict[str, Any] | None:
        known = self._timeline_of(run)
        return None if known is None else chrome_trace.document(known, from_ns, to_ns)

    def _timeline_of(self, run: str) -> timelines.Timeline | None:
        """Return the lanes of a run, which are kept as long as its analysis is."""
        return self._analysed(run).timeline()

    def compare(self, runs: tuple[str, ...]) -> ComparedRuns:
        """Return the `mpprof.compare/1` document of two runs or more, in the order given."""
        from mpprof.api.ladder import compare_analyses

        compared = compare_analyses([self._analysis(run) for run in runs], dismissed=self._ignore)
        document = documents.comparison(compared)
        return dismissals.applied_to_comparison(document, self._ignore)

    def _scan(self, within_s: float = 0.0) -> dict[str, tuple[Signature, Run | MpprofError]]:
        """Read what is new or changed, and forget what is gone. Files are not looked at again within
        `within_s` seconds: one answer asks several times, and hundreds of runs are thousands of files."""
        begun_s = getattr(self._answer, "begun_s", float("inf"))
        if self._scanned_s >= begun_s or monotonic() - self._scanned_s < within_s:
            return self._runs
        if self._refresh is not None and monotonic() - self._refreshed_s >= REFRESH_S:
            self._refresh()
            self._refreshed_s = monotonic()
        sight = self._sight
        changed = watching.changed(sight) if sight is not None else None
        if (
            sight is None
            or changed is None
            or not changed <= {file[0] for known, _ in self._runs.values() for file in known}
        ):
            sight = watching.look(str(self.path))
            at = workflows.places(self.path)
            self._places = (*at, *lone_beside(self.path, at)), closed_beside(self.path, at)
        elif not changed:
            self._scanned_s = monotonic()
            return self._runs
        found: dict[str, tuple[Signature, Run | MpprofError]] = {}
        named: dict[str, workflows.Place] = {}
        for place in self._places[0]:
            signature = _signature(place.files)
            name = _sayable(place.name)
            named[name] = place
            known = self._runs.get(name)
            if known is None or known[0] != signature:
                known = signature, _attempt(partial(place.read, LISTED_BYTES))
            found[name] = known
        for refused in self._places[1]:
            found[_sayable(os.path.relpath(refused.where, self.path))] = ((), refused)
        files: dict[str, watching.Stated | None] = {}
        files |= {file[0]: file for signature, _ in found.values() for file in signature}
        self._sight = replace(sight, files=sight.files | files)
        self._runs, self._named, self._scanned_s = found, named, monotonic()
        return found

    def _base(self, name: str) -> str:
        """Return the run's own name, also from a name that states one of its hosts."""
        return name if name in self._runs else name.rpartition(HOST_MARK)[0] or name

    def _run(self, name: str) -> Run:
        with self._lock:
            known, place = self._runs.get(name) or self._scan().get(name), self._named.get(name)
        if known is None and (base := self._base(name)) in self._runs:
            return hosts.alone(self._run(base), name.removeprefix(f"{base}{HOST_MARK}"))
        if known is None:
            raise NotFoundError(
                f"no run named {name!r} here",
                where=str(self.path),
                next="Choose one of the runs that are listed",
            )
        signature, read = known
        if isinstance(read, MpprofError):
            raise read
        if place is None or _is_whole(signature):
            return read
        return self._whole.get(name, signature, place.read)

    def _analysis(self, name: str) -> workflows.Analysis:
        return self._analysed(name).analysis

    def _analysed(self, name: str) -> _Analysed:
        with self._lock:
            known = self._scan(within_s=ONE_ANSWER_S).get(self._base(name))
        signature = known[0] if known else ()  # before the run: of one that changes meanwhile it is outdated

        def make() -> _Analysed:
            run = self._run(name)
            with self._reading:
                return _Analysed(workflows.analyse(workflows.load(run, step_range=self._step_range)))

        return self._analyses.get(name, signature, make)


def _attempt(read: Callable[[], _T]) -> _T | MpprofError:
    try:
        return read()
    except MpprofError as error:
        return error


def _sayable(name: str) -> str:
    """Return a name that can be written into a link: bytes of a path that are not UTF-8 are written out."""
    return name.encode("utf-8", "backslashreplace").decode()


def _entry(name: str, signature: Signature, read: Run | MpprofError, *, elsewhere: bool) -> RunEntry:
    written_ns = max((changed_ns for _, _, changed_ns in signature), default=None)
    if isinstance(read, MpprofError):
        return entry_of(name, None, live=False, problem=str(read), written_unix_ns=written_ns)
    state = state_of(read, now_unix_ns=time_ns(), elsewhere=elsewhere)
    return entry_of(
        name,
        read.facts,
        live=state in ("running", "unfinished"),
        problem=why_no_trace(read.traces[-1]) if read.facts is None and read.traces else None,
        state=state,
        written_unix_ns=written_ns,
        size_bytes=sum(size for _, size, _ in signature),
        hosts=read.hosts,
        last_step=read.last_step,
    )


def _files(signature: Signature) -> tuple[Path, ...]:
    return tuple(Path(file) for file, _, _ in signature)


def _is_whole(signature: Signature) -> bool:
    """Return whether the list of runs has read all of the logs among these files."""
    return all(size <= LISTED_BYTES for path, size, _ in signature if path.endswith(".jsonl"))


def _signature(files: tuple[Path, ...]) -> Signature:
    return tuple(stated for file in files if (stated := watching.stated(str(file))) is not None)
