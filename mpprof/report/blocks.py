"""What a report is laid out of: headings, texts, notes, tables, bars, causes, commands.

`composing` makes blocks of a report or a comparison, once; `text` and `markdown` lay them out. A block holds
what is said, and nothing of where it will stand: no width, no markup, no colour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from mpprof.model.columns import Column
from mpprof.model.frozen import frozen
from mpprof.report import words
from mpprof.report.content import TimeRow

PART = "  "
"""Before the first cell of a row that splits the row above."""


@frozen
class Title:
    """What the document is of. A terminal, where the command stands above, shows it where it says more."""

    name: str
    about: str = ""


@frozen
class Heading:
    text: str


@frozen
class Text:
    """A paragraph. `label`: before it, and no part of the sentence."""

    text: str
    label: str = ""
    strong: bool = False


@frozen
class Notes:
    """Sentences that stand apart, under a caption or none. `warns`: each is a warning."""

    lines: Sequence[str]
    caption: str = ""
    warns: bool = False


@frozen
class Labelled:
    """Labels with their lines. `aligned`: short labels, which may stand in a column."""

    items: Sequence[tuple[str, Sequence[str]]]
    aligned: bool = False


@frozen
class Folded:
    """A section that few read: its title and lines."""

    title: str
    lines: Sequence[str]


@frozen
class Bars:
    """How a time is divided. `per` says what the times are of; the rows, without parts, sum to
    `whole_ns`, but for what is too short to be listed."""

    rows: Sequence[TimeRow]
    per: str
    whole_ns: float


@frozen
class Table:
    """Columns, and rows in words by the keys of the columns.

    In a narrow terminal the column `name` is cut by `cut` (None: wrapped), after columns that may be left out
    have gone for it to keep `least`. `headless`: a terminal needs no titles. `total`: the last row is the sum
    of the others."""

    columns: Sequence[Column]
    rows: Sequence[Mapping[str, str]]
    name: str
    cut: Callable[[str, int], str] | None = words.shorten
    least: int = 12
    headless: bool = False
    total: bool = False


@frozen
class Judged:
    """A finding: its name, what it costs, how grave and how sure it is, what it says, and labelled texts."""

    name: str
    cost: str
    severity: str
    confidence: str
    text: str
    parts: Sequence[tuple[str, str]]


@frozen
class Commands:
    """Commands to copy, each with what it shows."""

    commands: Sequence[tuple[str, str]]


Block = Title | Heading | Text | Notes | Labelled | Folded | Bars | Table | Judged | Commands


def text(title: str) -> Column:
    """Return a column of texts."""
    return Column(title, key=title)


def number(title: str) -> Column:
    """Return a column of numbers in words, which stand at the right."""
    return Column(title, "count", key=title)


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[str]],
    name: str,
    *,
    cut: Callable[[str, int], str] | None = words.shorten,
    least: int = 12,
    headless: bool = False,
    total: bool = False,
) -> Table:
    """Return a table of these columns, its rows given cell by cell."""
    keyed = [{each.key: cell for each, cell in zip(columns, row, strict=True)} for row in rows]
    return Table(columns, keyed, name, cut, least, headless, total)
