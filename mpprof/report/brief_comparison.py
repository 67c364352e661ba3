"""The comparison of two runs or more on one screen; `text` has all of it (`-v`)."""

from __future__ import annotations

from mpprof.analysis.steps.stalls import BEGINS
from mpprof.model.finding import Rung
from mpprof.model.report import ComparedRuns
from mpprof.report import brief, comparing, composing, content, without_finding, words
from mpprof.report.brief import WIDTH
from mpprof.report.terminal import Lines
from mpprof.report.text import add_table

MOST_ROWS = 7
MOST_BURSTS = 3
_PROMISED = "Remedies of the earlier report"


def render(
    document: ComparedRuns,
    *,
    color: bool = False,
    width: int = WIDTH,
    ascii_only: bool = False,
    again: str | None = None,
) -> str:
    """Return the comparison (`report.json.compare_document`) on one screen: of two runs the gap and its
    causes, of a ladder the table and a line for each rung. `again` is the command that shows the rest."""
    out = Lines(color=color, width=width)
    rungs = document.steps
    if len(rungs) == 1:
        _rung(out, document, rungs[0])
    else:
        if (runs := composing.ladder(document)) is not None:
            add_table(out, runs)
        out.row("")
        for rung in rungs:
            out.paragraph(comparing.heading(document, rung), hang=2, style="bold")
            _result(out, document, rung, indent=2)
        for statement in [said for found in comparing.batches(document) for said in found][:2]:
            out.paragraph(statement, hang=2)
    warnings = list(dict.fromkeys(w for report in document.runs for w in content.warnings(report)))
    warnings, bursts = [said for said in warnings if not said.startswith(BEGINS)], comparing.bursts(document)
    brief.blank(out)
    for said in bursts[:MOST_BURSTS]:
        out.paragraph(f"! {said}", hang=2, style="warning")
    left = brief.warn(out, warnings) + len(bursts[MOST_BURSTS:])
    out.paragraph(_rest_of_comparison(document, left))
    brief.commands(out, [(again, "all of it")] if again else [])
    return out.text(ascii_only=ascii_only)


def _rung(out: Lines, document: ComparedRuns, rung: Rung) -> None:
    out.paragraph(comparing.heading(document, rung), hang=2, style="bold")
    _result(out, document, rung)
    beside, taken = _beside(document, rung), len(out.lines) + len(comparing.bursts(document))
    for line in beside:
        out.paragraph(brief.fitting([line, _to_semicolon(line)], out.width, 2), hang=2)
    report = document.runs[rung.end]
    if rung.windows is not None:
        out.row("")
        add_table(out, composing.windows(rung.windows, MOST_ROWS))
    if rung.slices:
        most = max(1, MOST_ROWS - 1 - len(beside) - max(0, taken - 5))
        out.row("")
        add_table(out, composing.gap(rung, content.step_ns(report), most))
    if promised := comparing.remedies(document, rung)[:1]:
        out.row("")
        out.paragraph(f"{_PROMISED}: {promised[0]}", hang=2)
    told = {found.code for found in comparing.serious(rung)}
    found = rung.answer
    own = found.code if found else None
    codes = [cause.code for cause in report.facts.causes if cause.code in told - {own}]
    entries = [(f"{code}: ", code) for code in codes]
    if found and found.do:
        entries.insert(0, (f"{f'{own}: ' if own else ''}{found.do}", ""))
    brief.numbered(out, entries, rung.findings)


def _result(out: Lines, document: ComparedRuns, rung: Rung, indent: int = 0) -> None:
    """Write the answer on one comparison, or why there is none; with it in what else the two runs differ."""
    found, first = rung.answer, comparing.lines(document, rung)[0]
    if rung.refused or rung.windows is not None or not found:
        out.paragraph(first, indent=indent, hang=2)
    if not found:
        return
    for said in filter(None, (content.head(found), found.sentence)):
        out.paragraph(said, indent=indent, hang=2, style="bold")
    if not indent and found.because:
        out.paragraph(" ".join(found.because), hang=2)
    if said := comparing.interval(rung):
        out.paragraph(said, indent=indent, hang=2)
    labels = [words.plain(label).partition(":")[0] for label in rung.labels]
    if labels and found.kind != "incomparable":
        out.paragraph(f"They differ in more than precision: {', '.join(labels)}", indent=indent, hang=2)


def _beside(document: ComparedRuns, rung: Rung) -> list[str]:
    """Return examples per second and memory, and what the losses say."""
    if rung.refused:
        return []
    rate, memory = comparing.throughput(rung), comparing.peak_memory(document, rung)
    figures = ", ".join(part for part in (rate, f"peak memory {memory}" if memory else "") if part)
    return [line for line in (figures, *comparing.learned(document, rung)) if line]


def _rest_of_comparison(document: ComparedRuns, warnings_left: int) -> str:
    told = [found for rung in document.steps for found in comparing.serious(rung)]
    notes = sum(len(rung.findings) for rung in document.steps) - len(told)
    unable = sum(len(without_finding.open_ones(document.runs[rung.end])) for rung in document.steps)
    return brief.counted(
        [(warnings_left, "warning"), (notes, "note"), (max(0, len(told) - brief.MOST_REMEDIES), "cause")],
        [(unable, "not judged"), (len(document.kernels), "changed kernels and ops")],
    )


def _to_semicolon(line: str) -> str:
    """Return what stands before the first semicolon, without a parenthesis that would stay open."""
    head = line.partition("; ")[0]
    return head.rpartition(" (")[0] if head.count("(") > head.count(")") else head
