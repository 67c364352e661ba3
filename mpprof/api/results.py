"""What `mpprof.load`, `diagnose` and `compare` return: runs, diagnoses, comparisons and tables, which show
themselves in a line, in a notebook as the card of the page's Why, and turn into Polars, pandas and Python."""

from __future__ import annotations

import html
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, get_args, overload

from mpprof.analysis.steps.statistics import summarise
from mpprof.api import workflows
from mpprof.api.inline import framed
from mpprof.api.workflows import TableKind
from mpprof.columnar import Columnar
from mpprof.errors import MpprofError, UsageError
from mpprof.model import finding
from mpprof.model import rows as columns
from mpprof.model import run as recorded
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_ns
from mpprof.model.report import ComparedRuns
from mpprof.model.shell import quoted
from mpprof.report import comparing, content
from mpprof.report import json as documents
from mpprof.runs.loading import Given

__all__ = ["Comparison", "Diagnosis", "Run", "Table"]

log = logging.getLogger("mpprof")
T = TypeVar("T")


class Table(Columnar, Sequence[Mapping[str, Any]]):
    """A sequence of rows, each a mapping with the keys of `--format json`; a slice is a table again.

    In columns and frames a row's `reason` becomes two: `reason.code` and `reason.text`. An absent value is
    `None`.

    Attributes:
        kind: "kernels", "products", "ops", "layers", "memory", "runs" or "survey".
    """

    __slots__ = ("_keys", "_rows", "kind")

    def __init__(self, kind: str, rows: Sequence[Any], keys: Sequence[str] = ()) -> None:
        self.kind, self._rows = kind, tuple(rows)
        spelled = (key for row in self._rows for key in columns.flat(row))
        self._keys = tuple(dict.fromkeys((*(keys or columns.keys(kind)), *spelled)))

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, at: int) -> Mapping[str, Any]: ...
    @overload
    def __getitem__(self, at: slice) -> Table: ...
    def __getitem__(self, at: int | slice) -> Mapping[str, Any] | Table:
        return Table(self.kind, self._rows[at], self._keys) if isinstance(at, slice) else self._rows[at]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self._rows)

    def __repr__(self) -> str:
        rows = "row" if len(self) == 1 else "rows"
        return f"Table of {self.kind}: {len(self):,} {rows} of {', '.join(self._keys)}"

    def to_dict(self) -> dict[str, list[Any]]:
        spelled = [columns.flat(row) for row in self._rows]
        return {key: [row.get(key) for row in spelled] for key in self._keys}


@frozen
class Run(recorded.Run):
    """One run, as `load` returns it: its records, the paths of its traces, and its tables.

    Attributes:
        name: short, and unique under the directory that was loaded.
        path: the run's directory, or its trace file.
        run_id: the id in its records; without records, its name.
        facts: machine, framework, model and fits, from `run.json`; None for a trace without records.
        last_fit: the facts of its last `fit`; None where none was recorded.
        steps: the step log, in columns; None where none was recorded.
        validations: when each validation ran, in columns; None where none was recorded.
        hardware: samples of GPUs and CPU, in columns; None where none were recorded.
        spans: when fits and epochs began and ended, and what callbacks, input and compiling took; None
            without a step log.
        looks: results of the looks at the numbers by layer, in their order; empty where there was none.
        tried: what `mpprof try --remedies` has tried, in its order; empty where it has tried nothing.
        workers: step logs of the workers after the first, by number; empty for a single worker.
        traces: paths of its traces, oldest first; the last is analysed. Empty where there is none.
        hosts: the last trace of each host, the run's own first; empty for a run on one host.
        step_range: the ranges that `load` was given to take as steps; None where none were named.
        finished: whether the records hold the end of the training; True where there is no step log.
        stopped: whether a judged run had been silent for 15 s without that end: killed, or its machine.
        warnings: sentences on what is damaged or missing in the records; empty where nothing is.
    """

    def __repr__(self) -> str:
        return f"Run {self.name}: {', '.join(_about(self))}"

    def _repr_html_(self) -> str:
        return _card(lambda: documents.report(self.diagnose()), self)

    def diagnose(self, baseline: Given | None = None, *, strict: bool = False) -> Diagnosis:
        """Judge this run: the same as `mpprof.diagnose(run, baseline, strict=strict)`."""
        return as_(Diagnosis, workflows.diagnose(self, baseline, strict=strict))

    def table(
        self, kind: TableKind, *, by_stream: bool = False, steps: tuple[int, int] | None = None
    ) -> Table:
        """Return the rows that the command of that name lists: kernels, products, ops, layers or memory.

        Args:
            kind: "kernels", "products", "ops", "layers" or "memory".
            by_stream: one row per kernel and stream, not per kernel.
            steps: the first and the last step to count, both inclusive; None: the whole trace.

        Raises `UsageError` for another kind or for steps outside the trace, and `UnableError` where the run
        has no trace, or its memory was not recorded.
        """
        if kind not in get_args(TableKind):
            raise UsageError(
                f"no table is called {kind!r}", next=f"Give one of {', '.join(get_args(TableKind))}"
            )
        return Table(kind, workflows.table_rows(self, kind, by_stream=by_stream, steps=steps))


@frozen
class Diagnosis(finding.Diagnosis):
    """The judgement of one run, as `diagnose` returns it; printing it gives the report's short form.

    Times are in ns, shares from 0 to 1. None means not known; `document()["absent"]` says why.

    Attributes:
        run: the run that was judged.
        answer: what the report says first: a figure, a sentence, why, and what to do.
        verdict: the answer's sentence.
        cause: the code of the answer's cause; None without a main cause.
        explanation: the sentences that follow the answer's.
        findings: the causes that were found, in the order in which to remedy them.
        clear: codes of the causes that were looked for and are not there.
        not_applicable: causes that a run of this kind cannot have, with the reason.
        unable: causes that could not be judged, with what is missing.
        dismissed: codes of findings that the bounds file says not to remedy.
        whatif: the step after each remedy of the plan; None without an account.
        account: the time of one step by class; None where steps or the trace are not known.
        window: the account of the whole window, for a trace in which no step can be told apart.
        unlike: why the profiled steps are not representative; None where they are.
        steps: summary of the step log: counts, median, percentiles; None without one.
        tensor_core: the share of matrix time on matrix units, with its unknown part.
        computes: the precision that the run computes in, and the evidence for it.
        speedup: observed, attainable and expected speedup over the baseline.
        bounds: what the records alone prove, each with its assumptions.
        memory: what held memory at the peak.
        device: the main device.
        devices: every device of all hosts in a profiled step, the main one first; empty for one device.
        hosts: every host, that of the account first; None for a run on one host.
        collectives: communication of the main device per step, by kind.
        kernels: those above 3 % of the main device's time, with the rate of each; empty without a trace.
        ranges: for a trace without steps: named ranges that may be its steps.
        how_to_mark: how to mark steps; empty where they are marked.
        how_to_switch: how to switch mixed precision on, for a float32 run that it may make faster.
        warnings: sentences on what limits the judgement; empty where nothing does.
        absent: by key, why a value is not known.
    """

    def __repr__(self) -> str:
        return f"Diagnosis of {self.run.name}: {self.verdict}"

    def __str__(self) -> str:
        from mpprof.report import brief

        again = f"mpprof report {quoted(self.run.path)} -v"
        return brief.render(documents.report(self), path=str(self.run.path), again=again)

    def _repr_html_(self) -> str:
        return _card(lambda: documents.report(self), self)

    def document(self) -> dict[str, Any]:
        """Return what `mpprof report --format json` prints, as Python values."""
        return documents.document(self)

    @property
    def examples_per_s(self) -> float | None:
        """Examples per second in the steady steps; None where batch size or step time is not known."""
        return self.steps.examples_per_s if self.steps else None

    @property
    def gpu_hours_per_epoch(self) -> float | None:
        """GPU-hours of an epoch's steps, over all GPUs; None: no GPU, no ended epoch, or no step time."""
        return self.steps.gpu_hours_per_epoch if self.steps else None


@frozen
class Comparison(finding.Comparison):
    """Two runs or a ladder, as `compare` returns it; printing it gives the report's short form.

    Attributes:
        runs: a `Diagnosis` of each run, in the order given.
        rungs: the comparison of each run with the one before; one less than there are runs.
        batches: for runs of one model at several batch sizes, what their step times show; else empty.
    """

    def __repr__(self) -> str:
        document = documents.comparison(self)
        if len(document.steps) == 1:
            return f"Comparison of {comparing.heading(document, document.steps[0])}"
        first, last = (self.runs[at].run.name for at in (0, -1))
        return f"Comparison of {len(self.runs)} runs: {first} to {last}"

    def __str__(self) -> str:
        from mpprof.report import brief_comparison

        return brief_comparison.render(documents.comparison(self))

    def _repr_html_(self) -> str:
        document = documents.comparison(self)
        if len(document.steps) == 1:
            return _card(lambda: document.runs[-1], self)
        return self.table()._repr_html_()

    def document(self) -> dict[str, Any]:
        """Return what `mpprof compare --format json` prints, as Python values."""
        return documents.compare_document(self)

    def table(self) -> Table:
        """Return a row for each run: its step, throughput, GPU-hours per epoch, share on matrix units, peak
        memory, and its speedup over the first and over the one before."""
        document = documents.comparison(self)
        return Table("runs", [_row(document, at) for at in range(len(document.runs))])


def as_(kind: type[T], found: Any) -> T:
    """Return the same values as an instance of a class that shows itself."""
    return found if isinstance(found, kind) else kind(*[getattr(found, each.name) for each in fields(found)])


def run_of(found: recorded.Run) -> Run:
    """Return a loaded run as one that shows itself."""
    return as_(Run, found)


def comparison_of(found: finding.Comparison) -> Comparison:
    """Return a comparison whose diagnoses show themselves, too."""
    return Comparison(tuple(as_(Diagnosis, each) for each in found.runs), found.rungs, batches=found.batches)


def _about(run: recorded.Run) -> list[str]:
    """Return what the run is, in few words: only what is known."""
    facts, fit = run.facts, run.last_fit
    said = []
    if fit is not None:
        said += [fit.policy.name or "policy not recorded"]
    if facts is not None:
        device = documents.device_name(documents.accelerators_first(facts.devices))
        said += [device] if device else []
    if fit is not None and fit.batch_size is not None:
        said.append(f"batch {format_count(fit.batch_size)}")
    summary = summarise(run.steps, facts, spans=run.spans, finished=run.finished)
    if summary is not None:
        said.append(f"{format_count(summary.count)} steps")
        if summary.mean_ns is not None:
            said.append(f"{format_ns(summary.mean_ns)} a step")
        if summary.examples_per_s is not None:
            said.append(f"{format_count(round(summary.examples_per_s))} examples/s")
    said.append(f"{len(run.traces)} {'trace' if len(run.traces) == 1 else 'traces'}")
    return said


def _row(document: ComparedRuns, at: int) -> columns.ComparedRow:
    report, rungs = document.runs[at], document.steps
    rung = rungs[at - 1] if at else None
    rates = rungs[max(at - 1, 0)].examples_per_s
    share, log = report.tensor_core, report.steps
    return {
        "run": report.run.name,
        "policy": report.run.policy,
        "card": report.run.device,
        "batch_size": report.run.batch_size,
        "step_ns": report.facts.step_ns,
        "examples_per_s": rates[1 if at else 0],
        "gpu_hours_per_epoch": log.gpu_hours_per_epoch if log else None,
        "speedup_over_first": report.facts.observed if at else None,
        "speedup_over_before": rung.observed if rung else None,
        "tensor_core_ratio": share.ratio if share else None,
        "skipped_ratio": log.skipped_ratio if log else None,
        "peak_memory_bytes": content.recorded_peak(report),
    }


def _card(make: Any, shown: object) -> str:
    """Return the card in a frame; the text where it cannot be drawn."""
    try:
        return framed(make())
    except (MpprofError, ImportError) as error:
        log.debug("no card", exc_info=error)
        return f"<pre>{html.escape(repr(shown))}</pre>"
