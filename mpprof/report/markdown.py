"""Blocks as GitHub-flavoured markdown, for a pull request or an issue.

Names come from foreign files: whatever could be markup, a mention or a link is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from mpprof.model.report import ComparedRuns, Report
from mpprof.report import composing, units, words
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
)

LONGEST_NAME = 80
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
    """Return the whole report as markdown."""
    return units.worded(laid_out(composing.of_report(document)), document.time)


def render_comparison(document: ComparedRuns) -> str:
    """Return the whole comparison as markdown."""
    return laid_out(composing.of_comparison(document))


def laid_out(blocks: Iterable[Block]) -> str:
    """Return the blocks as markdown."""
    lines = (line for block in blocks for line in _lines(block))
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip() + "\n"


def _lines(block: Block) -> Iterator[str]:
    """Yield the lines of a block, and an empty one where the next must not run into it."""
    match block:
        case Title(name, about):
            yield from (f"### mpprof: {escape(name)}", "", escape(about), "")
        case Heading(text):
            yield from ("", f"#### {escape(text)}", "")
        case Text(text, label, strong):
            said = f"{label}{escape(text)}"
            yield from (f"**{said}**" if strong else said, "")
        case Notes(lines, caption):
            yield from ("", f"{escape(caption)}:", "") if caption else ()
            yield from (*(f"- {escape(line)}" for line in lines), "")
        case Labelled(items):
            for label, (first, *more) in items:
                yield from (
                    f"- **{escape(label)}**: {escape(first)}",
                    *(f"  - {escape(line)}" for line in more),
                )
            yield ""
        case Folded(title, lines):
            yield from ("", f"<details><summary>{escape(title)}</summary>", "")
            yield from (*(f"- {escape(line)}" for line in lines), "", "</details>", "")
        case Bars():
            yield from _bars(block)
        case Table():
            yield from _table(block)
        case Judged():
            yield from _judged(block)
        case Commands(commands):
            yield from (*(f"- {code(command)}: {escape(why)}" for command, why in commands), "")


def _bars(found: Bars) -> Iterator[str]:
    column = words.column(found.whole_ns)
    yield from (f"| class | {found.per} | share | hidden |", "| --- | ---: | ---: | ---: |")
    for row in found.rows:
        hidden = words.duration(row.hidden_ns) if row.hidden_ns >= 1 else ""
        yield f"| {_indent(row.part)}{escape(row.label)} | {column(row.ns)} | {row.share} | {hidden} |"
    yield from (f"| **sum** | {column(found.whole_ns)} | {words.percent(1.0)} | |", "")


def _table(found: Table) -> Iterator[str]:
    yield from ("", f"| {' | '.join(each.title for each in found.columns)} |")
    yield f"|{'|'.join(' ---: ' if each.number else ' --- ' for each in found.columns)}|"
    for at, row in enumerate(found.rows, 1):
        cells = [_cell(found, each.key, row) for each in found.columns]
        if found.total and at == len(found.rows):
            cells[0] = f"**{cells[0]}**"
        yield f"| {' | '.join(cells)} |"
    yield ""


def _cell(found: Table, key: str, row: Mapping[str, str]) -> str:
    cell = row[key]
    if key != found.name or found.cut is None:
        return escape(cell)
    return f"{_indent(cell.startswith(PART))}{escape(found.cut(cell, LONGEST_NAME))}"


def _indent(part: bool) -> str:
    return "&nbsp;&nbsp;" * part


def _judged(found: Judged) -> Iterator[str]:
    cost = f": {found.cost}" if found.cost else ""
    yield f"- **{found.name}** ({found.severity}, {found.confidence} confidence){cost}  "
    yield f"  {escape(found.text)}"
    yield from (f"  - {label}: {escape(text)}" for label, text in found.parts)
