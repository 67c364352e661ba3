"""The report as GitHub-flavoured markdown, for a pull request or an issue.

Names come from foreign files: whatever could be markup, a mention or a link is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mpprof.report import (
    comparing,
    content,
    two_windows,
    units,
    whole_window,
    without_finding,
    words,
)

if TYPE_CHECKING:
    from mpprof.model.answer import Answer
    from mpprof.model.finding import Finding, KernelChange, Rung, WindowsOfTwo
    from mpprof.model.report import ComparedRuns, Report

_SPECIAL = re.compile(r"([\\`*\[\]|~])")
_LONE_UNDERSCORE = re.compile(r"(?<!\w)_|_(?!\w)")


def escape(text: str) -> str:
    """Return the text escaped so that it shows as it is written: no markup, no HTML, no link, no mention."""
    text = " ".join(words.plain(text).split())
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    text = _LONE_UNDERSCORE.sub(r"\\_", _SPECIAL.sub(r"\\\1", text))
    # A backslash does not stop GitHub from linking these.
    return text.replace("#", "&#35;").replace("@", "&#64;").replace("://", ":&#47;&#47;")


def code(text: str) -> str:
    """Return text in a code span, which a backtick in the text cannot end and a table cell cannot break."""
    return f"`{words.plain(text).replace('`', chr(39)).replace('|', chr(92) + '|')}`"


def render(document: Report) -> str:
    """Return the report (`report.json.document`) as markdown."""
    lines = [f"### mpprof: {escape(document.run.name)}", "", escape(content.subject(document)), ""]
    lines += _answer(document.answer)
    lines += _time(document)
    for label, said in content.facts(document):
        lines += [f"- **{label}**: {escape(said[0])}", *(f"  - {escape(line)}" for line in said[1:])]
    lines += ["", *_run_time(content.run_time_rows(document))]
    lines += _findings(document.findings, document)
    lines += _limits(document)
    return units.worded(_joined(lines), document.time)


def _answer(answer: Answer) -> list[str]:
    """Return the answer: its figure and sentence, why, and what to do first."""
    said = [f"**{escape(each)}**" for each in (content.head(answer), answer.sentence) if each]
    said += [escape(" ".join(answer.because))] if answer.because else []
    said += [f"First: {escape(answer.do)}"] if answer.do else []
    return [line for each in said for line in (each, "")]


def render_comparison(document: ComparedRuns) -> str:
    """Return the comparison (`report.json.compare_document`) as markdown."""
    lines = ["### mpprof: comparison", "", *_ladder(document)]
    for row, rung in enumerate(document.steps):
        report = document.runs[rung.end]
        lines += [f"**{escape(comparing.heading(document, rung))}**", ""]
        said = (*comparing.answer(rung), *comparing.lines(document, rung))
        lines += [f"- {escape(line)}" for line in said]
        if rung.windows is not None:
            lines += ["", *_windows(rung.windows)]
        lines += ["", *_gap(rung, content.step_ns(report))]
        if promised := comparing.remedies(document, rung):
            lines += [f"{comparing.REMEDIES}:", "", *(f"- {escape(line)}" for line in promised), ""]
        for by, title in (("name", "kernel"), ("op", "op")):
            lines += _changes(comparing.changes(document, row, by), title)
        lines += [*(f"- {escape(line)}" for line in comparing.matching(rung)), ""]
        lines += _findings(comparing.serious(rung), report)
        lines += [escape(comparing.minor(rung)), ""]
        open_ones = without_finding.not_judged(report)
        lines += _folded(f"{len(report.unable)} could not be judged of {escape(report.run.name)}", open_ones)
    for statements in comparing.batches(document):
        lines += ["#### Over the batch sizes", "", *(f"- {escape(line)}" for line in statements), ""]
    lines += ["#### Each run", ""]
    for report in document.runs:
        name, subject = escape(report.run.name), escape(content.subject(report))
        lines.append(f"- **{name}** ({subject}): {escape(report.answer.sentence)}")
        lines += [f"  - warning: {escape(warning)}" for warning in content.warnings(report)]
    return _joined(lines)


def _joined(lines: Iterable[str]) -> str:
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _time(document: Report) -> list[str]:
    time = document.time
    if time is not None:
        heading, rows, per = content.time_heading(time), content.time_rows(time), content.time_per(time)
        table = _breakdown(heading, rows, per, content.time_whole(time))
        table += [f"- {escape(line)}" for line in content.hidden(time)]
        if offered := whole_window.offered(time.ranges):
            table.append(f"- {escape(offered)}")
        return [*table, escape(doubt), ""] if (doubt := content.time_doubt(time)) else table
    if document.window is not None:
        found = document.window
        rows = content.window_rows(found)
        table = _breakdown(whole_window.heading(found), rows, "in the window", found.span_ns)
        return [*table, *(f"- {escape(line)}" for line in whole_window.what_is_not_said(found)), ""]
    return [f"Where the step's time goes is not known: {escape(document.absent.get('time', ''))}", ""]


def _breakdown(heading: str, rows: list[content.TimeRow], per: str, whole_ns: float) -> list[str]:
    column = words.column(whole_ns)
    lines = [f"{escape(heading)}:", ""]
    lines += [f"| class | {per} | share | hidden |", "| --- | ---: | ---: | ---: |"]
    for row in rows:
        hidden = words.duration(row.hidden_ns) if row.hidden_ns >= 1 else ""
        label = f"&nbsp;&nbsp;{escape(row.label)}" if row.part else escape(row.label)
        lines.append(f"| {label} | {column(row.ns)} | {row.share} | {hidden} |")
    whole = [row for row in rows if not row.part]
    total, share = sum(row.ns for row in whole), round(sum(max(0.0, row.ratio) for row in whole), 6)
    return [*lines, f"| **sum** | {column(total)} | {words.percent(share)} | |", ""]


def _run_time(rows: list[content.SpentRow]) -> list[str]:
    if not rows:
        return []
    column = words.column(sum(row.ns for row in rows))
    lines = [f"{content.RUN_TIME_HEADING}:", "", f"| {' | '.join(content.RUN_TIME_COLUMNS)} |"]
    lines.append("| --- | ---: | ---: | --- |")
    for row in rows:
        share = words.percent(row.ratio)
        lines.append(f"| {row.label} | {column(row.ns)} | {share} | {escape(row.by)} |")
    return [*lines, ""]


def _findings(findings: Sequence[Finding], report: Report) -> list[str]:
    lines = ["#### Findings", ""] if findings else []
    for finding in findings:
        head = f"{finding.severity}, {finding.confidence} confidence"
        cost = content.cost(finding, report)
        lines.append(f"- **{finding.code} {finding.slug}** ({head}){f': {cost}' if cost else ''}  ")
        lines.append(f"  {escape(finding.summary or finding.title)}")
        if evidence := content.evidence(finding):
            lines.append(f"  - evidence: {escape('; '.join(evidence))}")
        lines.append(f"  - remedy: {escape(finding.remedy)}")
        if then := content.whatif(finding, report):
            lines.append(f"  - then: {escape(then)}")
        if finding.layers:
            lines.append(f"  - layers: {', '.join(code(layer) for layer in finding.layers[:6])}")
    return [*lines, ""]


def _limits(document: Report) -> list[str]:
    """Return the warnings, unfolded, and what was not judged or measured, folded."""
    warnings = content.warnings(document)
    lines = ["#### Warnings", "", *(f"- {escape(warning)}" for warning in warnings), ""] if warnings else []
    lines += _folded(f"{len(document.unable)} could not be judged", without_finding.not_judged(document))
    does_not_apply = without_finding.not_applicable(document)
    lines += _folded(f"{len(document.not_applicable)} do not apply", does_not_apply)
    lines += _folded("Not measured", without_finding.not_measured(document))
    if document.clear:
        lines.append(f"Checked and clear: {escape(without_finding.clear(document))}")
    return lines


def _folded(title: str, said: list[str]) -> list[str]:
    if not said:
        return []
    lines = [f"<details><summary>{title}</summary>", "", *(f"- {escape(line)}" for line in said)]
    return [*lines, "", "</details>", ""]


def _ladder(document: ComparedRuns) -> list[str]:
    rows = comparing.ladder(document)
    if not rows:
        return []
    lines = [f"| {' | '.join(comparing.LADDER)} |", "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
    lines += [f"| {' | '.join(map(escape, comparing.cells(row)))} |" for row in rows]
    return [*lines, ""]


def _windows(found: WindowsOfTwo) -> list[str]:
    lines = [f"| {' | '.join(two_windows.COLUMNS)} |", "| --- | ---: | ---: | ---: |"]
    for row in two_windows.rows(found):
        label = f"&nbsp;&nbsp;{escape(row.label)}" if row.part else escape(row.label)
        lines.append(f"| {label} | {row.before} | {row.after} | {row.times} |")
    return [*lines, ""]


def _gap(rung: Rung, step_ns: float | None) -> list[str]:
    if not rung.slices:
        return []
    rows = comparing.gap_rows(rung, step_ns)
    column = words.column(max(abs(row.mixed_ns) for row in rows) or 1.0)
    titles = comparing.gap_columns(rung)
    lines = [f"| class, layer | {' | '.join(titles)} |", f"| --- |{' ---: |' * len(titles)}"]
    for row in rows:
        cells = " | ".join(comparing.gap_cells(rung, row, column))
        lines.append(f"| {escape(row.label)} | {cells} |")
    sums = " | ".join(comparing.gap_cells(rung, comparing.total(rows), column))
    return [*lines, f"| **sum** | {sums} |", ""]


def _changes(changes: Sequence[KernelChange], title: str) -> list[str]:
    if not changes:
        return []
    lines = [f"| {title} | before, per step | after |", "| --- | ---: | ---: |"]
    for change in changes:
        cells = ["-" if ns is None else words.duration(ns) for ns in (change.from_ns, change.to_ns)]
        lines.append(f"| {code(words.shorten(change.key, 80))} | {' | '.join(cells)} |")
    return [*lines, ""]
