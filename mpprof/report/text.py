"""Blocks as plain text for a terminal: the whole report, read from the top down (`-v`).

Eighty columns are enough; colour and bars beyond ASCII are added only where asked for. `brief` is what is
shown without `-v`, on the same `Page`.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mpprof.report import composing, tables, units, words
from mpprof.report.blocks import (
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
)

if TYPE_CHECKING:
    from mpprof.model.report import ComparedRuns, Report, Time
    from mpprof.report.content import TimeRow

MIN_WIDTH = 68
LABELS = 14
"""Columns for the labels of facts."""
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

    def table(self, found: Table) -> None:
        """Add a table, two columns in; where the page is narrow, what may be left out of it goes."""
        titles = {each.key: each.title for each in found.columns}
        lines = [*([] if found.headless else [titles]), *found.rows]
        room, name = self.width - 2, found.name
        kept, widths = tables.fitted(found.columns, lines, room, name, least=found.least)
        for line in lines:
            for part in _wrapped_cell(line, name, widths[name]) if found.cut is None else [line]:
                (said,) = tables.in_columns(kept, [part], widths, found.cut or words.shorten)
                self.row(f"  {said}")

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
    """Return the whole report as text.

    `width` in columns (68 at least), `ascii_only` for terminals that cannot show more, `path` for the
    commands that are suggested at the end.
    """
    page = Page(color=color, width=width, time=document.time)
    return laid_out(composing.of_report(document, path=path), page).text(ascii_only=ascii_only)


def render_comparison(
    document: ComparedRuns, *, color: bool = False, width: int = 100, ascii_only: bool = False
) -> str:
    """Return the whole comparison as text."""
    page = Page(color=color, width=width)
    return laid_out(composing.of_comparison(document), page).text(ascii_only=ascii_only)


def laid_out(blocks: Iterable[Block], page: Page) -> Page:
    """Return the page with the blocks added to it."""
    before: Block | None = None
    for block in blocks:
        _add(page, block, before)
        before = block
    return page


def _add(page: Page, block: Block, before: Block | None) -> None:
    match block:
        case Title(name, about):
            page.paragraph(about, label=f"{name}: ", hang=2, style="dim") if about else None
        case Heading(text):
            page.heading(text)
        case Text(text, label, strong):
            if not isinstance(before, Text):
                page.row("")
            page.paragraph(text, label=label, hang=2 if label else 0, style="bold" if strong else "")
        case Notes(lines, caption, warns):
            if caption or isinstance(before, Judged):
                page.row("")
            if caption:
                page.row(f"  {caption}")
            for line in lines:
                label = "! " if warns else ""
                page.paragraph(line, label=label, indent=4 if caption else 2, hang=2)
        case Labelled(items, aligned):
            _facts(page, items, aligned)
        case Folded(title, lines):
            page.heading(title)
            for line in lines:
                page.paragraph(line, indent=2, hang=2)
        case Bars(rows, _, whole_ns):
            for line in _bars(rows, words.column(whole_ns), page.width):
                page.row(line)
        case Table():
            if not block.headless and not isinstance(before, Heading):
                page.row("")
            page.table(block)
        case Judged():
            _judged(page, block)
        case Commands(commands):
            _commands(page, commands)


def _facts(page: Page, items: Sequence[tuple[str, Sequence[str]]], aligned: bool) -> None:
    if aligned:
        page.row("")
    for label, (first, *more) in items:
        if aligned:
            page.paragraph(first, label=f"{label:<{LABELS}}", hang=LABELS)
        else:
            page.paragraph(first, label=f"{label}: ", indent=2, hang=2)
        for line in more:
            label, indent = (" " * LABELS, 0) if aligned else ("", 4)
            page.paragraph(line, label=label, indent=indent, hang=LABELS if aligned else 2)


def _bars(rows: Sequence[TimeRow], column: Callable[[float], str], width: int) -> Iterator[str]:
    """Yield a line for each row and their sum; bars take what a line of 80 leaves, 26 columns at most."""
    names = [f"{'  ' * row.part}{row.label}" for row in rows]
    label = max(map(len, names), default=3)
    ns = max((len(column(row.ns)) for row in rows), default=7) + 1
    bar = max(4, min(26, width - label - ns - 40))
    scale = max((row.ratio or 0.0 for row in rows), default=1.0) or 1.0
    for name, row in zip(names, rows, strict=True):
        marks = words.bar((row.ratio or 0.0) / scale, bar)
        line = f"  {name:<{label}} {marks:<{bar}} {column(row.ns):>{ns}} {row.share:>8}"
        notes = [f"+{words.duration(row.hidden_ns)} hidden"] if row.hidden_ns >= 1 else []
        text = ", ".join([*notes, row.text] if row.text else notes)
        yield f"{line}  {text if len(text) <= width - len(line) - 2 else ', '.join(notes)}"
    sum_ns, ratio = composing.summed(rows)
    yield f"  {'sum':<{label}} {'':<{bar}} {column(sum_ns):>{ns}} {words.percent(ratio):>8}"


def _judged(page: Page, found: Judged) -> None:
    head = f"{found.name}{f': {found.cost}' if found.cost else ''}"
    graded = f"{head} [{found.severity}, {found.confidence} confidence]"
    page.paragraph(graded, indent=2, hang=2, style=found.severity)
    page.paragraph(found.text, indent=4)
    for label, text in found.parts:
        page.paragraph(text, label=f"{label}: ", indent=4, hang=2)


def _commands(page: Page, commands: Sequence[tuple[str, str]]) -> None:
    for command, why in commands:
        if len(command) + len(why) + 5 <= page.width:
            page.row(f"  {command}   {page.paint(why, 'dim')}")
        else:
            page.row(f"  {command}")  # never broken: it is there to be copied
            page.paragraph(why, indent=4, style="dim")


def _wrapped_cell(line: Mapping[str, str], name: str, width: int) -> Iterator[Mapping[str, str]]:
    """Yield the line with as much of one cell as fits, and lines with the rest of that cell alone."""
    first, *more = wrapped(line[name], width) or [""]
    yield {**line, name: first}
    for part in more:
        yield {**dict.fromkeys(line, ""), name: part}
