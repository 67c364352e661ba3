"""A report, or a comparison, as blocks: what is said and in which order, once for every layout."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from mpprof.model.answer import Answer
from mpprof.model.finding import Finding, KernelChange, Rung, WindowsOfTwo
from mpprof.model.quantities import first_of
from mpprof.model.report import ComparedRuns, Report
from mpprof.model.rows import terminal
from mpprof.report import (
    comparing,
    content,
    several_devices,
    two_windows,
    whole_window,
    without_finding,
    words,
)
from mpprof.report.blocks import (
    PART,
    Bars,
    Block,
    Commands,
    Folded,
    Heading,
    Judged,
    Labelled,
    Notes,
    Table,
    Text,
    Title,
    number,
    table,
    text,
)

NOT_JUDGED = "Could not be judged"
MOST_LAYERS = 6
LEAST_NAME = 34
"""Columns of a ladder give way before a run's name becomes shorter than this."""


def of_report(document: Report, *, path: str | None = None) -> Iterator[Block]:
    """Yield the whole report. `path` for the commands that are suggested at the end."""
    yield Title(document.run.name, content.subject(document))
    yield from _answer(document.answer)
    if failed := content.out_of_memory(document):
        yield Heading("It ran out of memory")
        yield Notes(failed)
    yield from _time(document)
    yield Labelled(_facts(document), aligned=True)
    yield from _run_time(document)
    yield from _kernels(document)
    yield from _findings(document.findings, document)
    yield from _folded(NOT_JUDGED, without_finding.not_judged(document))
    yield from _folded("Does not apply", without_finding.not_applicable(document))
    if document.clear:
        yield Text(without_finding.clear(document), label="Checked and clear: ")
    if warnings := content.warnings(document):
        yield Heading("Warnings")
        yield Notes(warnings, warns=True)
    yield from _folded("Not measured", without_finding.not_measured(document))
    if steps := content.next_steps(document, path):
        yield Heading("Next")
        yield Commands(steps)


def _answer(answer: Answer) -> Iterator[Block]:
    """Yield the answer: its figure and sentence, why, and what to do first."""
    for said in filter(None, (content.head(answer), answer.sentence)):
        yield Text(said, strong=True)
    if answer.because:
        yield Text(" ".join(answer.because))
    if answer.do:
        yield Text(answer.do, label="First: ")
    if answer.floor:
        yield Text(answer.floor, label=words.NO_MORE)


def _time(document: Report) -> Iterator[Block]:
    time, window = document.time, document.window
    if time is not None:
        yield Heading(content.time_heading(time))
        yield Bars(content.time_rows(time), content.time_per(time), content.time_whole(time))
        said = (content.time_doubt(time), whole_window.offered(time.ranges), *content.hidden(time))
        yield from _notes(filter(None, said))
    elif window is not None:
        yield Heading(whole_window.heading(window))
        yield Bars(content.window_rows(window), "in the window", window.span_ns)
        yield from _notes(whole_window.what_is_not_said(window))
    else:
        yield Heading("Where the step's time goes")
        yield Notes([f"not known: {document.absent.get('time', 'not known')}"])


def _facts(document: Report) -> list[tuple[str, list[str]]]:
    """Return labels with their lines; what a run has no line of is left out."""
    found = (
        ("Window", whole_window.lines(document.window) if document.window is not None else []),
        (content.outside_the_step(document.time), content.between(document.time)),
        (content.matrix_units(document), [content.tensor_core(document)]),
        ("Speedup", content.speedup(document)),
        ("What if", content.plan(document)),
        ("Steps", [content.steps(document)]),
        ("Devices", several_devices.lines(document)),
        ("Memory", content.memory(document)),
        ("Proved", content.bounds(document)),
    )
    return [(label, lines) for label, lines in found if lines]


def _run_time(document: Report) -> Iterator[Block]:
    rows = content.run_time_rows(document)
    if not rows:
        return
    column = words.column(sum(row.ns for row in rows))
    yield Heading(content.RUN_TIME_HEADING)
    columns = [text("part"), number("time"), number("share"), text("by")]
    cells = [(row.label, column(row.ns), words.percent(row.ratio), row.by) for row in rows]
    yield table(columns, cells, "by", cut=None, headless=True)


def _kernels(document: Report) -> Iterator[Block]:
    rows = content.busy_kernels(document)
    if rows:
        yield Heading(content.busy_heading(document))
        columns = [number("share"), number("time"), number("rate"), number("of peak"), text("kernel")]
        cells = [(row.share, row.time, row.rate, row.of_peak, row.name) for row in rows]
        yield table(columns, cells, "kernel")
        yield from _notes(content.without_rate(document))


def _findings(findings: Sequence[Finding], report: Report) -> Iterator[Block]:
    if findings:
        yield Heading("Findings")
    for found in findings:
        parts = [
            ("evidence", "; ".join(content.evidence(found))),
            ("remedy", found.remedy),
            ("then", content.whatif(found, report)),
            ("layers", first_of(found.layers, MOST_LAYERS)),
        ]
        yield Judged(
            f"{found.code} {found.slug}",
            content.cost(found, report),
            found.severity,
            found.confidence,
            found.summary or found.title,
            [(label, text) for label, text in parts if text],
        )


def _folded(title: str, lines: Sequence[str]) -> Iterator[Block]:
    if lines:
        yield Folded(title, lines)


def _notes(lines: Iterable[str], caption: str = "") -> Iterator[Block]:
    if said := [line for line in lines if line]:
        yield Notes(said, caption)


# --- two runs and more -------------------------------------------------------------------------------------


def of_comparison(document: ComparedRuns) -> Iterator[Block]:
    """Yield the whole comparison: the runs as a ladder, what batch sizes tell, each step, each run."""
    yield Title("comparison")
    if (runs := ladder(document)) is not None:
        yield Heading("The ladder")
        yield runs
    for statements in comparing.batches(document):
        yield Heading("Over the batch sizes")
        yield Notes(statements)
    for row, rung in enumerate(document.steps):
        yield from _rung(document, row, rung)
    yield Heading("Each run")
    yield Labelled([(words.plain(report.run.name), _of_run(report)) for report in document.runs])


def _of_run(report: Report) -> list[str]:
    said = f"{content.subject(report)}. {report.answer.sentence}"
    return [said, *(f"warning: {warning}" for warning in content.warnings(report))]


def _rung(document: ComparedRuns, row: int, rung: Rung) -> Iterator[Block]:
    report = document.runs[rung.end]
    yield Heading(comparing.heading(document, rung))
    yield from _notes((*comparing.answer(rung), *comparing.lines(document, rung)))
    if rung.windows is not None:
        yield windows(rung.windows)
    if rung.slices:
        yield gap(rung, content.step_ns(report))
    yield from _notes(comparing.remedies(document, rung), comparing.REMEDIES)
    for by, title in (("name", "kernels"), ("op", "ops")):
        if changes := comparing.changes(document, row, by):
            yield _changes(changes, title)
    yield from _notes(comparing.matching(rung))
    yield from _findings(comparing.serious(rung), report)
    yield from _notes([comparing.minor(rung)])
    yield from _folded(f"{NOT_JUDGED} of {words.plain(report.run.name)}", without_finding.not_judged(report))


def ladder(document: ComparedRuns) -> Table | None:
    """Return a table of all runs; None for two runs, which one comparison covers already."""
    rows = comparing.ladder(document)
    return Table(terminal("runs"), rows, "run", least=LEAST_NAME) if rows else None


def windows(found: WindowsOfTwo, most: int | None = None) -> Table:
    """Return two windows side by side, in at most so many rows: whole times go before their parts."""
    rows = two_windows.rows(found)
    if most is not None and len(rows) >= most:
        rows = [row for row in rows if not row.part][: most - 1]
    columns = [text(two_windows.COLUMNS[0]), *map(number, two_windows.COLUMNS[1:])]
    cells = [(f"{PART * row.part}{row.label}", row.before, row.after, row.times) for row in rows]
    return table(columns, cells, columns[0].key)


def gap(rung: Rung, step_ns: float | None, most: int = comparing.MOST_ROWS) -> Table:
    """Return the gap of one comparison by class and layer, in at most `most` rows besides the folded rest and
    the sum."""
    rows = comparing.gap_rows(rung, step_ns, most)
    column = words.column(max(abs(row.mixed_ns) for row in rows) or 1.0)
    columns = [text("class, layer"), *map(number, comparing.gap_columns(rung))]
    cells = [(row.label, *comparing.gap_cells(rung, row, column)) for row in (*rows, comparing.total(rows))]
    return table(columns, cells, columns[0].key, cut=words.shorten_path, total=True)


def _changes(changes: Sequence[KernelChange], title: str) -> Table:
    columns = [number("before"), number("after"), text(f"{title} that changed most, per step")]
    cells = [
        (
            *("-" if ns is None else words.duration(ns) for ns in (each.from_ns, each.to_ns)),
            words.plain(each.key),
        )
        for each in changes
    ]
    return table(columns, cells, columns[2].key)
