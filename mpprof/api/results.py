"""What `mpprof.load`, `diagnose` and `compare` return: runs, diagnoses, comparisons and tables, which show
themselves in a line, in a notebook as the card of the page's Why, and turn into Polars, pandas and Python."""

from __future__ import annotations

import html
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, get_args, overload

from mpprof.analysis.steps.statistics import summarise
from mpprof.api import workflows
from mpprof.api.workflows import TableKind
from mpprof.columnar import Columnar
from mpprof.errors import MpprofError, UsageError
from mpprof.model import finding
from mpprof.model import run as recorded
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_count, format_ns
from mpprof.model.shell import quoted
from mpprof.report import comparing, content, tables
from mpprof.report import json as documents
from mpprof.runs.loading import Given

if TYPE_CHECKING:
    from mpprof.model import document as doc

__all__ = ["Comparison", "Diagnosis", "Run", "Table"]

log = logging.getLogger("mpprof")
T = TypeVar("T")
CARD = "mpprof_dashboards.export:card_html"
FRAME_PIXELS = 560


class Table(Columnar, Sequence[Mapping[str, Any]]):
    """Rows of one kind ("kernels", "ops", "layers", "memory", "runs"), each a mapping as `--format json` has
    it; a slice is a table again. In columns a reason is two: `reason.code` and `reason.text`."""

    __slots__ = ("_keys", "_rows", "kind")

    def __init__(self, kind: str, rows: Sequence[Any], keys: Sequence[str] = ()) -> None:
        self.kind, self._rows = kind, tuple(rows)
        spelled = (key for row in self._rows for key in tables.flat(row))
        self._keys = tuple(dict.fromkeys((*(keys or tables.KEYS.get(kind, ())), *spelled)))

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
        spelled = [tables.flat(row) for row in self._rows]
        return {key: [row.get(key) for row in spelled] for key in self._keys}


@frozen
class Run(recorded.Run):
    """One run: its records (`facts`, `steps`, `hardware`, `validations`), where its traces lie, tables."""

    def __repr__(self) -> str:
        return f"Run {self.name}: {', '.join(_about(self))}"

    def _repr_html_(self) -> str:
        return _card(lambda: self.diagnose().document(), self)

    def diagnose(self, baseline: Given | None = None, *, strict: bool = False) -> Diagnosis:
        """Judge this run, as `mpprof.diagnose(run, baseline)` does."""
        return as_(Diagnosis, workflows.diagnose(self, baseline, strict=strict))

    def table(
        self, kind: TableKind, *, by_stream: bool = False, steps: tuple[int, int] | None = None
    ) -> Table:
        """Return its kernels, ops, layers or memory as the command of that name does; `steps` are the first
        and the last one. Raises UnableError where the run has no trace, or memory was not recorded."""
        if kind not in get_args(TableKind):
            raise UsageError(
                f"no table is called {kind!r}", next=f"Give one of {', '.join(get_args(TableKind))}"
            )
        return Table(kind, workflows.table_rows(self, kind, by_stream=by_stream, steps=steps))


@frozen
class Diagnosis(finding.Diagnosis):
    """The judgement of one run: `verdict`, `findings`, `account`, `speedup` and the others.

    Times are in ns, shares from 0 to 1; None is not known, with the reason in `document()["absent"]`."""

    def __repr__(self) -> str:
        return f"Diagnosis of {self.run.name}: {self.verdict}"

    def __str__(self) -> str:
        from mpprof.report import brief

        again = f"mpprof report {quoted(self.run.path)} -v"
        return brief.render(self.document(), path=str(self.run.path), again=again)

    def _repr_html_(self) -> str:
        return _card(self.document, self)

    def document(self) -> doc.Report:
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
    """Two runs or a ladder: `runs` are diagnoses, `rungs` the comparison of each with the one before."""

    def __repr__(self) -> str:
        document = self.document()
        if len(document["steps"]) == 1:
            return f"Comparison of {comparing.heading(document, document['steps'][0])}"
        first, last = (self.runs[at].run.name for at in (0, -1))
        return f"Comparison of {len(self.runs)} runs: {first} to {last}"

    def __str__(self) -> str:
        from mpprof.report import brief

        return brief.render_comparison(self.document())

    def _repr_html_(self) -> str:
        document = self.document()
        if len(document["steps"]) == 1:
            return _card(lambda: document["runs"][-1], self)
        return self.table()._repr_html_()

    def document(self) -> doc.Comparison:
        """Return what `mpprof compare --format json` prints, as Python values."""
        return documents.compare_document(self)

    def table(self) -> Table:
        """Return a row for each run: its step, throughput, GPU-hours per epoch, share on matrix units, peak
        memory, and its speedup over the first and over the one before."""
        document = self.document()
        return Table("runs", [_row(document, at) for at in range(len(document["runs"]))])


def as_(kind: type[T], found: Any) -> T:
    """The same values as an instance of a class that shows itself."""
    return found if isinstance(found, kind) else kind(*[getattr(found, each.name) for each in fields(found)])


def run_of(found: recorded.Run) -> Run:
    """A loaded run as one that shows itself."""
    return as_(Run, found)


def comparison_of(found: finding.Comparison) -> Comparison:
    """A comparison whose diagnoses show themselves, too."""
    return Comparison(tuple(as_(Diagnosis, each) for each in found.runs), found.rungs, batches=found.batches)


def _about(run: recorded.Run) -> list[str]:
    """What it is, in few words: only what is known."""
    facts, fit = run.facts, run.last_fit
    said = []
    if fit is not None:
        said += [fit.policy.name or "policy not recorded"]
    if facts is not None:
        device = documents.device_name(documents.accelerators_first(facts.devices))
        said += [device] if device else []
    if fit is not None and fit.batch_size is not None:
        said.append(f"batch {format_count(fit.batch_size)}")
    summary = summarise(run.steps, facts, finished=run.finished)
    if summary is not None:
        said.append(f"{format_count(summary.count)} steps")
        if summary.median_ns is not None:
            said.append(f"median {format_ns(summary.median_ns)}")
        if summary.examples_per_s is not None:
            said.append(f"{format_count(round(summary.examples_per_s))} examples/s")
    said.append(f"{len(run.traces)} {'trace' if len(run.traces) == 1 else 'traces'}")
    return said


def _row(document: doc.Comparison, at: int) -> dict[str, Any]:
    report, rungs = document["runs"][at], document["steps"]
    rung = rungs[at - 1] if at else None
    rates = rungs[max(at - 1, 0)].get("examples_per_s")
    share, log = report["tensor_core"], report["steps"]
    return {
        "run": report["run"]["name"],
        "policy": report["run"]["policy"],
        "card": report["run"]["device"],
        "batch_size": report["run"]["batch_size"],
        "step_ns": content.step_ns(report),
        "examples_per_s": rates["to" if at else "from"] if rates else None,
        "gpu_hours_per_epoch": log.get("gpu_hours_per_epoch") if log else None,
        "speedup_over_first": report["facts"]["observed"] if at else None,
        "speedup_over_before": rung["observed"] if rung else None,
        "tensor_core_ratio": share["ratio"] if share else None,
        "skipped_ratio": log["skipped_ratio"] if log else None,
        "peak_memory_bytes": content.recorded_peak(report),
    }


def _card(make: Any, shown: object) -> str:
    """The card in a frame of its own, so that no style leaves it; the text where it cannot be drawn."""
    try:
        document = make()
        module, _, name = CARD.partition(":")
        page = getattr(import_module(module), name)(document)
    except (MpprofError, ImportError) as error:
        log.debug("no card", exc_info=error)
        return f"<pre>{html.escape(repr(shown))}</pre>"
    return (
        f'<iframe sandbox style="width:100%;height:{FRAME_PIXELS}px;border:0" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )
