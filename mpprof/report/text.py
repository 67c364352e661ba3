"""The whole report as plain text, read from the top down (`-v`); `brief` is what is shown without it.

The verdict comes first, then where the step's time goes, then the findings with what each costs and what
to do. What could not be judged, what is absent and every warning is always there, and always short.
Eighty columns are enough; colour and bars beyond ASCII are added only where asked for.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator, Sequence
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
    from mpprof.model.finding import Finding, KernelChange, Rung, WindowsOfTwo
    from mpprof.model.report import ComparedRuns, Report, Time

MIN_WIDTH = 68
LEAST_NAME = 34
"""Columns of a ladder give way before a run's name becomes shorter than this."""
_GIVES_WAY = ("what", "peak memory", "examples/s", "on units")
_COLOURS = {"bold": "1", "dim": "2", "error": "1;31", "warning": "1;33", "info": "1;36"}


# A number and its unit stay on one line, and so does a path that is quoted for a shell.
_TOGETHER = re.compile(r"(?<=\d) (?=(?:%|s|ms|µs|ns|[KMGT]iB|bytes?)(?![\w-]))|(?<=\s)'[^']*/[^']*'(?!\S)")


def wrapped(text: str, width: int, *, indent: int = 0, hang: int = 0) -> list[str]:
    """Return `text` in lines of at most `width` columns; those after the first start `hang` further in."""
    pad = " " * indent
    lines = textwrap.wrap(
        _TOGETHER.sub(lambda match: match[0].replace(" ", "\xa0"), words.plain(text)),
        width,
        initial_indent=pad,
        subsequent_indent=pad + " " * hang,
        break_on_hyphens=False,
    )
    return [line.replace("\xa0", " ") for line in lines]


class Page:
    """Lines of text with an indent, wrapped to a width; colour goes on after wrapping. `time`: of the report,
    for what its "step" is called."""

    def __init__(self, *, color: bool, width: int, time: Time | None = None) -> None:
        self.width = max(MIN_WIDTH, width)
        self._color = color
        self._time = time
        self.lines: list[str] = []

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self._color and text else text

    def heading(self, text: str) -> None:
        self.lines.append("")
        self.paragraph(text, style="bold")

    def paragraph(
        self, text: str, *, indent: int = 0, hang: int = 0, label: str = "", style: str = ""
    ) -> None:
        """Add `text` behind a `label`; lines after the first start `hang` further in than the label."""
        said = units.worded(f"{label}{text}", self._time)
        lines = wrapped(said, self.width, indent=indent, hang=hang)
        self.lines += [self.paint(line, style) if style else line for line in lines]

    def row(self, text: str, style: str = "") -> None:
        text = units.worded(text.rstrip(), self._time)
        self.lines.append(self.paint(text, style) if style else text)

    def text(self, *, ascii_only: bool) -> str:
        text = "\n".join(self.lines).strip("\n") + "\n"
        # Colour codes are ASCII themselves; the translation leaves them alone.
        if not ascii_only:
            return text
        return "".join(f"{line.rstrip()}\n" for line in words.ascii_only(text).splitlines())


def render(
    document: Report,
    *,
    color: bool = False,
    width: int = 100,
    ascii_only: bool = False,
    path: str | None = None,
) -> str:
    """Return the report (`report.json.document`) as text.

    `width` in columns (68 at least), `ascii_only` for terminals that cannot show more, `path` for the
    commands that are suggested at the end.
    """
    page = Page(color=color, width=width, time=document.time)
    run = document.run
    page.paragraph(f"{run.name}: {content.subject(document)}", hang=2, style="dim")
    page.lines.append("")
    answer = document.answer
    for said in filter(None, (content.head(answer), answer.sentence)):
        page.paragraph(said, style="bold")
    if answer.because:
        page.paragraph(" ".join(answer.because))
    if answer.do:
        page.paragraph(answer.do, label="First: ", hang=2)
    if failed := content.out_of_memory(document):
        page.heading("It ran out of memory")
        for line in failed:
            page.paragraph(line, indent=2, hang=2)
    _time(page, document)
    _facts(page, document)
    _run_time(page, content.run_time_rows(document))
    _findings(page, document.findings, document)
    _limits(page, document)
    _next(page, content.next_steps(document, path))
    return page.text(ascii_only=ascii_only)


def render_comparison(
    document: ComparedRuns, *, color: bool = False, width: int = 100, ascii_only: bool = False
) -> str:
    """Return the comparison (`report.json.compare_document`) as text: each step of the ladder in turn."""
    page = Page(color=color, width=width)
    ladder(page, document)
    for row, rung in enumerate(document.steps):
        page.heading(comparing.heading(document, rung))
        for line in (*comparing.answer(rung), *comparing.lines(document, rung)):
            page.paragraph(line, indent=2, hang=2)
        report = document.runs[rung.end]
        if rung.windows is not None:
            window_rows(page, rung.windows)
        gap(page, rung, content.step_ns(report))
        _remedies(page, comparing.remedies(document, rung))
        for by, title in (("name", "kernels"), ("op", "ops")):
            _changes(page, comparing.changes(document, row, by), title)
        for line in comparing.matching(rung):
            page.paragraph(line, indent=2, hang=2)
        _findings(page, comparing.serious(rung), report)
        if noted := comparing.minor(rung):
            page.lines.append("")
            page.paragraph(noted, indent=2, hang=2)
        _list(
            page,
            f"Could not be judged of {words.plain(report.run.name)}",
            without_finding.not_judged(report),
        )
    for statements in comparing.batches(document):
        page.heading("Over the batch sizes")
        for statement in statements:
            page.paragraph(statement, indent=2, hang=2)
    page.heading("Each run")
    for report in document.runs:
        name = words.plain(report.run.name)
        said = f"{content.subject(report)}. {report.answer.sentence}"
        page.paragraph(said, label=f"{name}: ", indent=2, hang=2)
        for warning in content.warnings(report):
            page.paragraph(warning, label="warning: ", indent=4, hang=2)
    return page.text(ascii_only=ascii_only)


def ladder(page: Page, document: ComparedRuns, *, title: bool = True) -> None:
    """Add a table of all runs; nothing for two runs, which one comparison covers already."""
    rows = [comparing.LADDER, *map(comparing.cells, comparing.ladder(document))]
    if len(rows) < 2:
        return
    if title:
        page.heading("The ladder")
    widths = [max(len(row[at]) for row in rows) for at in range(len(comparing.LADDER))]
    shown = list(range(len(widths)))
    for narrow in (None, *_GIVES_WAY):  # what stands under "Each run" as well, and then what matters least
        if narrow is not None:
            shown.remove(comparing.LADDER.index(narrow))
        spare = page.width - 2 - sum(widths[at] for at in shown[1:]) - 2 * (len(shown) - 1)
        if spare >= min(widths[0], LEAST_NAME):
            break
    widths[0] = max(8, min(widths[0], spare))
    for row in rows:
        cells = [words.shorten(row[at], widths[0]) if at == 0 else row[at] for at in shown]
        pairs = zip(shown, cells, strict=True)
        line = "  ".join(f"{c:<{widths[at]}}" if at < 2 else f"{c:>{widths[at]}}" for at, c in pairs)
        page.row(f"  {line}")


def _time(page: Page, document: Report) -> None:
    time = document.time
    if time is not None:
        _breakdown(page, content.time_heading(time), content.time_rows(time), content.time_whole(time))
        if doubt := content.time_doubt(time):
            page.paragraph(doubt, indent=2, hang=2)
        if offered := whole_window.offered(time.ranges):
            page.paragraph(offered, indent=2, hang=2)
        for line in content.hidden(time):
            page.paragraph(line, indent=2, hang=2)
    elif document.window is not None:
        found = document.window
        _breakdown(page, whole_window.heading(found), content.window_rows(found), found.span_ns)
        for line in whole_window.what_is_not_said(found):
            page.paragraph(line, indent=2, hang=2)
    else:
        page.heading("Where the step's time goes")
        page.paragraph(document.absent.get("time", "not known"), label="not known: ", indent=2, hang=2)


def _breakdown(page: Page, heading: str, rows: list[content.TimeRow], whole_ns: float) -> None:
    page.heading(heading)
    column = words.column(whole_ns)
    for line in _bars(rows, column, page.width):
        page.row(line)
    total = [row for row in rows if not row.part]
    label, bar, ns, ratio = _columns(rows, column, page.width)
    whole = column(sum(row.ns for row in total))
    share = words.percent(round(sum(max(0.0, row.ratio) for row in total), 6))
    page.row(f"  {'sum':<{label}} {'':<{bar}} {whole:>{ns}} {share:>{ratio}}")


def _columns(
    rows: list[content.TimeRow], column: Callable[[float], str], width: int
) -> tuple[int, int, int, int]:
    """Return the widths of label, bar, time and share; bars take what a line of 80 leaves, 26 at most."""
    label = max((len(row.label) + 2 * row.part for row in rows), default=3)
    ns = max((len(column(row.ns)) for row in rows), default=7) + 1
    return label, max(4, min(26, width - label - ns - 40)), ns, 8


def _bars(rows: list[content.TimeRow], column: Callable[[float], str], width: int) -> Iterator[str]:
    label, bar, ns, ratio = _columns(rows, column, width)
    scale = max((row.ratio or 0.0 for row in rows), default=1.0) or 1.0
    for row in rows:
        name = f"  {row.label}" if row.part else row.label
        marks = words.bar((row.ratio or 0.0) / scale, bar)
        line = f"  {name:<{label}} {marks:<{bar}} {column(row.ns):>{ns}} {row.share:>{ratio}}"
        notes = [f"+{words.duration(row.hidden_ns)} hidden"] if row.hidden_ns >= 1 else []
        room = width - len(line) - 2
        text = ", ".join([*notes, row.text] if row.text else notes)
        if len(text) > room:
            text = ", ".join(notes)
        yield f"{line}  {text}"


def _facts(page: Page, document: Report) -> None:
    page.lines.append("")
    for label, lines in content.facts(document):
        if label == content.OUT_OF_MEMORY:
            continue  # it has a heading of its own, above all else
        for row, line in enumerate(lines):
            page.paragraph(line, label=f"{label if row == 0 else '':<14}", hang=14)


def _run_time(page: Page, rows: list[content.SpentRow]) -> None:
    if not rows:
        return
    page.heading(content.RUN_TIME_HEADING)
    column = words.column(sum(row.ns for row in rows))
    shown = [(row.label, column(row.ns), words.percent(row.ratio), row.by) for row in rows]
    label, ns, ratio, _ = (max(map(len, each)) for each in zip(*shown, strict=True))
    for each in shown:
        head = f"  {each[0]:<{label}}  {each[1]:>{ns}}  {each[2]:>{ratio}}"
        first, *more = wrapped(each[3], page.width - len(head) - 2) or [""]
        page.row(f"{head}  {first}")
        for line in more:
            page.row(f"{'':<{len(head)}}  {line}")


def _findings(page: Page, findings: Sequence[Finding], report: Report) -> None:
    if not findings:
        return
    page.heading("Findings")
    for finding in findings:
        severity = finding.severity
        cost = content.cost(finding, report)
        head = f"{finding.code} {finding.slug}{f': {cost}' if cost else ''}"
        page.paragraph(
            f"{head} [{severity}, {finding.confidence} confidence]", indent=2, hang=2, style=severity
        )
        page.paragraph(finding.summary or finding.title, indent=4)
        parts = [("evidence: ", "; ".join(content.evidence(finding))), ("remedy: ", finding.remedy)]
        parts.append(("then: ", content.whatif(finding, report)))
        if finding.layers:
            shown = ", ".join(finding.layers[:6])
            more = len(finding.layers) - 6
            parts.append(("layers: ", shown + (f" and {more} more" if more > 0 else "")))
        for label, text in parts:
            if text:
                page.paragraph(text, label=label, indent=4, hang=2)


def _limits(page: Page, document: Report) -> None:
    _list(page, "Could not be judged", without_finding.not_judged(document))
    _list(page, "Does not apply", without_finding.not_applicable(document))
    if document.clear:
        page.lines.append("")
        page.paragraph(without_finding.clear(document), label="Checked and clear: ", hang=2)
    if warnings := content.warnings(document):
        page.heading("Warnings")
        for warning in warnings:
            page.paragraph(warning, label="! ", indent=2, hang=2)
    _list(page, "Not measured", without_finding.not_measured(document))


def _list(page: Page, heading: str, lines: list[str]) -> None:
    if lines:
        page.heading(heading)
    for line in lines:
        page.paragraph(line, indent=2, hang=2)


def _next(page: Page, steps: list[tuple[str, str]]) -> None:
    if not steps:
        return
    page.heading("Next")
    for command, why in steps:
        if len(command) + len(why) + 5 <= page.width:
            page.row(f"  {command}   {page.paint(why, 'dim')}")
        else:
            page.row(f"  {command}")  # never broken: it is there to be copied
            page.paragraph(why, indent=4, style="dim")


def _remedies(page: Page, lines: list[str]) -> None:
    if lines:
        page.row("")
        page.row(f"  {comparing.REMEDIES}")
    for line in lines:
        page.paragraph(line, indent=4, hang=2)


def window_rows(page: Page, found: WindowsOfTwo, most: int | None = None) -> None:
    """Add a table of two windows side by side; with `most`, no more rows than that, whole times before their
    parts."""
    rows = two_windows.rows(found)
    if most is not None and len(rows) >= most:
        rows = [row for row in rows if not row.part][: most - 1]
    label = max(len(two_windows.COLUMNS[0]), *(len(row.label) + 2 * row.part for row in rows))
    page.row("")
    page.row(
        f"  {two_windows.COLUMNS[0]:<{label}} {' '.join(f'{title:>12}' for title in two_windows.COLUMNS[1:])}"
    )
    for row in rows:
        name = f"  {row.label}" if row.part else row.label
        page.row(f"  {name:<{label}} {row.before:>12} {row.after:>12} {row.times:>12}")


def gap(page: Page, rung: Rung, step_ns: float | None, most: int = comparing.MOST_ROWS) -> None:
    """Add the gap of one comparison by class and layer, in at most `most` rows besides the head, the folded
    rest and the sum."""
    if not rung.slices:
        return
    rows = comparing.gap_rows(rung, step_ns, most)
    column = words.column(max(abs(row.mixed_ns) for row in rows) or 1.0)
    titles = comparing.gap_columns(rung)
    body = [(row.label, comparing.gap_cells(rung, row, column)) for row in (*rows, comparing.total(rows))]
    cell = max(len(text) for texts in (titles, *(texts for _, texts in body)) for text in texts) + 2
    label = min(page.width - 4 - cell * len(titles), max(12, *(len(row.label) for row in rows)))
    page.row("")
    page.row(f"  {'class, layer':<{label}} {''.join(f'{title:>{cell}}' for title in titles)}")
    for name, texts in body:
        shown = words.shorten_path(name, label)
        page.row(f"  {shown:<{label}} {''.join(f'{text:>{cell}}' for text in texts)}")


def _changes(page: Page, changes: Sequence[KernelChange], title: str) -> None:
    if not changes:
        return
    page.row("")
    page.row(f"  {'before':>9} {'after':>9}  {title} that changed most, per step")
    for change in changes:
        before, after = ("-" if ns is None else words.duration(ns) for ns in (change.from_ns, change.to_ns))
        name = words.shorten(words.plain(change.key), page.width - 23)
        page.row(f"  {before:>9} {after:>9}  {name}")
