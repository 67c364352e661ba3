"""Blocks as plain text for a terminal: the whole report, read from the top down (`-v`).

Eighty columns are enough; colour and bars beyond ASCII are added only where asked for. `brief` is what is
shown without `-v`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from mpprof.model.report import ComparedRuns, Report
from mpprof.report import composing, tables, words
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
from mpprof.report.terminal import Lines, wrapped

LABELS = 14
"""Columns for the labels of facts."""


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
    out = Lines(color=color, width=width, time=document.time)
    return laid_out(composing.of_report(document, path=path), out).text(ascii_only=ascii_only)


def render_comparison(
    document: ComparedRuns, *, color: bool = False, width: int = 100, ascii_only: bool = False
) -> str:
    """Return the whole comparison as text."""
    out = Lines(color=color, width=width)
    return laid_out(composing.of_comparison(document), out).text(ascii_only=ascii_only)


def laid_out(blocks: Iterable[Block], out: Lines) -> Lines:
    """Return the lines with the blocks added to them."""
    before: Block | None = None
    for block in blocks:
        _add(out, block, before)
        before = block
    return out


def _add(out: Lines, block: Block, before: Block | None) -> None:
    match block:
        case Title(name, about):
            out.paragraph(about, label=f"{name}: ", hang=2, style="dim") if about else None
        case Heading(text):
            out.heading(text)
        case Text(text, label, strong):
            if not isinstance(before, Text):
                out.row("")
            out.paragraph(text, label=label, hang=2 if label else 0, style="bold" if strong else "")
        case Notes(lines, caption, warns):
            if caption or isinstance(before, Judged):
                out.row("")
            if caption:
                out.row(f"  {caption}")
            for line in lines:
                label = "! " if warns else ""
                out.paragraph(line, label=label, indent=4 if caption else 2, hang=2)
        case Labelled(items, aligned):
            _facts(out, items, aligned)
        case Folded(title, lines):
            out.heading(title)
            for line in lines:
                out.paragraph(line, indent=2, hang=2)
        case Bars():
            for line in _bars(block, words.column(block.whole_ns), out.width):
                out.row(line)
        case Table():
            if not block.headless and not isinstance(before, Heading):
                out.row("")
            add_table(out, block)
        case Judged():
            _judged(out, block)
        case Commands(commands):
            _commands(out, commands)


def _facts(out: Lines, items: Sequence[tuple[str, Sequence[str]]], aligned: bool) -> None:
    if aligned:
        out.row("")
    for label, (first, *more) in items:
        if aligned:
            out.paragraph(first, label=f"{label:<{LABELS}}", hang=LABELS)
        else:
            out.paragraph(first, label=f"{label}: ", indent=2, hang=2)
        for line in more:
            label, indent = (" " * LABELS, 0) if aligned else ("", 4)
            out.paragraph(line, label=label, indent=indent, hang=LABELS if aligned else 2)


def _bars(found: Bars, column: Callable[[float], str], width: int) -> Iterator[str]:
    """Yield a line for each row and the whole; bars take what a line of 80 leaves, 26 columns at most."""
    rows = found.rows
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
    yield f"  {'sum':<{label}} {'':<{bar}} {column(found.whole_ns):>{ns}} {words.percent(1.0):>8}"


def _judged(out: Lines, found: Judged) -> None:
    head = f"{found.name}{f': {found.cost}' if found.cost else ''}"
    graded = f"{head} [{found.severity}, {found.confidence} confidence]"
    out.paragraph(graded, indent=2, hang=2, style=found.severity)
    out.paragraph(found.text, indent=4)
    for label, text in found.parts:
        out.paragraph(text, label=f"{label}: ", indent=4, hang=2)


def _commands(out: Lines, commands: Sequence[tuple[str, str]]) -> None:
    for command, why in commands:
        if len(command) + len(why) + 5 <= out.width:
            out.row(f"  {command}   {out.paint(why, 'dim')}")
        else:
            out.row(f"  {command}")  # never broken: it is there to be copied
            out.paragraph(why, indent=4, style="dim")


def add_table(out: Lines, found: Table) -> None:
    """Add a table, two columns in; where the terminal is narrow, what may be left out of it goes."""
    titles = {each.key: each.title for each in found.columns}
    lines = [*([] if found.headless else [titles]), *found.rows]
    room, name = out.width - 2, found.name
    kept, widths = tables.fitted(found.columns, lines, room, name, least=found.least)
    for line in lines:
        for part in _wrapped_cell(line, name, widths[name]) if found.cut is None else [line]:
            (said,) = tables.in_columns(kept, [part], widths, found.cut or words.shorten)
            out.row(f"  {said}")


def _wrapped_cell(line: Mapping[str, str], name: str, width: int) -> Iterator[Mapping[str, str]]:
    """Yield the line with as much of one cell as fits, and lines with the rest of that cell alone."""
    first, *more = wrapped(line[name], width) or [""]
    yield {**line, name: first}
    for part in more:
        yield {**dict.fromkeys(line, ""), name: part}
