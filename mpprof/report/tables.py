"""Tables (`model.rows`): grouped, sorted and cut; as text or CSV.

Rows are plain JSON objects. Nothing here changes a value: a text table shows it in words, CSV and JSON raw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from mpprof.errors import UsageError
from mpprof.model import rows as rows_of
from mpprof.model.columns import Column
from mpprof.model.kernels import PLACEMENTS, PRECISIONS
from mpprof.model.report import Report
from mpprof.model.rows import Row
from mpprof.report import words

NARROWEST_NAME = 40
"""Columns that may be left out give way before the name in the last one becomes shorter than this,"""
MOST_TEXT = 22
"""and no other text takes more than this then."""


def keys(kind: str, by: str | None = None) -> tuple[str, ...]:
    """Return the columns of a table of this kind, summed by a column or split by "stream". Raises UsageError
    for a column that rows cannot be summed by."""
    whole, sums = rows_of.keys(kind), [each.key for each in rows_of.columns(kind) if each.grouped == "sum"]
    if by is None or kind == "memory":
        return whole
    if by == "stream":
        return (*whole, "stream")
    _known(by, [key for key in whole if key not in sums], "--by")
    return ("device", *([by] if by != "device" else []), *sums)


def filtered(rows: Sequence[Row], wanted: Mapping[str, Sequence[str]]) -> list[Row]:
    """Return the rows that have one of the wanted values in every column named: `{"precision": ["fp32",
    "tf32"]}`.

    "reason" is the code of the row's reason (of an op: why its matrix work could not, or could but did not,
    use Tensor Cores). Raises UsageError for a reason that no row has, and for a value that there is not.
    """
    for key, valid in (("placement", PLACEMENTS), ("precision", PRECISIONS)):
        for value in wanted.get(key, ()):
            if value not in valid:
                raise UsageError(
                    f"--{key} {value}: no such {key}", next=f"The values are: {', '.join(valid)}"
                )
    codes = {_code(row) for row in rows}
    if (missing := sorted(set(wanted.get("reason", ())) - codes)) and rows:
        held = ", ".join(sorted(code for code in codes if code)) or "none"
        raise UsageError(f"--reason {missing[0]}: no row has it", next=f"The reasons here are: {held}")
    return [
        row
        for row in rows
        if all((_code(row) if key == "reason" else row.get(key)) in values for key, values in wanted.items())
    ]


def _code(row: Row) -> str | None:
    reason = row.get("reason", row.get("eligible_reason"))
    return reason["code"] if isinstance(reason, dict) else None


def aggregate(rows: Sequence[Row], kind: str, by: str) -> list[dict[str, Any]]:
    """Return rows of one device summed where they are equal in column `by`: `{device, by, calls, total_ns,
    …}`.

    Only what may be added up is kept. Longest first; `keys` knows which columns there are.
    """
    sums: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in map(rows_of.flat, rows):
        key = (row.get("device"), row[by])
        into = sums.setdefault(key, {"device": key[0], by: key[1]})
        for column in rows_of.columns(kind):
            if column.grouped == "sum" and column.key in row:
                into[column.key] = into.get(column.key, 0) + row[column.key]
    return sorted(sums.values(), key=lambda row: -row["total_ns"])


def ordered(rows: Sequence[Row], sort: str | None, keys: Sequence[str]) -> list[Row]:
    """Return rows of these columns sorted by `COLUMN`, `COLUMN:asc` or `COLUMN:desc`: numbers fall and text
    rises by default; unknown values come last. None keeps the order of the rows. Raises UsageError for
    another column."""
    if sort is None:
        return list(rows)
    key, _, direction = sort.partition(":")
    _known(key, list(keys), "--sort")
    if direction not in ("", "asc", "desc"):
        raise UsageError(f"--sort {sort}: no such direction", next="Use asc or desc")
    pairs = [(rows_of.flat(row).get(key), row) for row in rows]  # what does not hold of a row may be left out
    known = [pair for pair in pairs if pair[0] is not None]
    numbers = all(isinstance(value, (int, float)) for value, _ in known)
    falling = direction == "desc" or (numbers and direction == "")

    def rank(pair: tuple[Any, Row]) -> Any:
        return pair[0] if numbers else str(pair[0])

    known.sort(key=rank, reverse=falling)
    return [row for _, row in known] + [row for value, row in pairs if value is None]


def _known(column: str, valid: list[str], option: str) -> None:
    if column not in valid:
        raise UsageError(f"{option} {column}: no such column", next=f"The columns are: {', '.join(valid)}")


_FORMULA = re.compile(r"[\s;,\"']*[=+@-]").match
_QUOTED = re.compile(r"[,;\"\n\r]").search


def to_csv(rows: Sequence[Row], keys: Sequence[str]) -> str:
    """Return rows of these columns, followed by columns that only some rows have (the layers of a fusion), as
    CSV; values are raw, but control characters are written out as in every text; lists and objects are JSON.
    Without rows, return the header alone."""
    spelled = [rows_of.flat(row) for row in rows]
    columns = dict.fromkeys((*keys, *(key for row in spelled for key in row)))
    return "".join(map(csv_line, (columns, *([row.get(key) for key in columns] for row in spelled))))


def csv_line(values: Iterable[Any]) -> str:
    """Return values as a line of CSV: see `to_csv`. A semicolon is quoted, too: in many countries it ends a
    cell."""
    cells = [_csv_cell(value) for value in values]
    return ",".join('"' + cell.replace('"', '""') + '"' if _QUOTED(cell) else cell for cell in cells) + "\n"


def _csv_cell(value: Any) -> str:
    """Return a value as a cell. A text that a spreadsheet would take for a formula gets an apostrophe in
    front; a number, also one that is written out, stays one."""
    if not isinstance(value, str):
        return (
            ""
            if value is None
            else json.dumps(value)
            if isinstance(value, dict | list | bool)
            else str(value)
        )
    plain = words.plain(value)
    return f"'{plain}" if _FORMULA(plain) and not _is_number(plain) else plain


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


Cells = Mapping[str, str]
"""The cells of a line in words, by the keys of the columns."""


def to_text(
    rows: Sequence[Row],
    kind: str,
    *,
    width: int,
    ascii_only: bool = False,
    whole: Sequence[Row] = (),
) -> str:
    """Return the columns of `kind` that the rows have, cut to `width`: the last column is shortened, in its
    middle.

    The device is shown where the rows, or `whole`, all rows of which these are some, are of several."""
    spelled = [rows_of.flat(row) for row in rows]
    several = len({row.get("device") for row in (*rows, *whole)}) > 1
    columns = _columns(spelled, kind, several)
    lines = in_words(spelled, columns)
    kept, widths = fitted(columns, lines, width, columns[-1].key, least=NARROWEST_NAME, most=MOST_TEXT)
    text = "".join(f"{line}\n" for line in in_columns(kept, lines, widths))
    return words.ascii_only(text) if ascii_only else text


def in_words(
    rows: Sequence[Row], columns: Sequence[Column], own: Callable[[Row], Cells] = lambda row: {}
) -> list[Cells]:
    """Return the titles, then the cells of each row; times of a column are in one unit. `own`: the cells of a
    row that say more or less than their value."""
    shows = {each.key: _show(each, rows) for each in columns}
    lines: list[Cells] = [{each.key: each.title for each in columns}]
    for row in rows:
        given = own(row)
        lines.append({key: given[key] if key in given else show(row.get(key)) for key, show in shows.items()})
    return lines


def _show(column: Column, rows: Sequence[Row]) -> Callable[[Any], str]:
    """Return how a column puts its values in words."""
    if column.yes:
        return lambda value: column.yes if value else column.no
    if column.unit == "ns":
        largest = max((abs(row.get(column.key) or 0) for row in rows), default=1.0)
        return _or_dash(words.column(largest))
    return _or_dash(partial(words.in_unit, unit=column.unit))


def _or_dash(show: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "-" if value is None else show(value)


def fitted(
    columns: Sequence[Column], lines: Sequence[Cells], width: int, name: str, *, least: int, most: int = 0
) -> tuple[list[Column], dict[str, int]]:
    """Return the columns that `width` has room for, and how wide each is: the column `name` takes what the
    others leave, and columns that may be left out give way until that is `least`.

    `most`: where not all fits, other texts take no more than that; 0: what they need."""
    needed = {each.key: max(len(line[each.key]) for line in lines) for each in columns}
    if most and sum(needed.values()) + 2 * (len(columns) - 1) > width:
        needed |= {c.key: min(needed[c.key], most) for c in columns if not c.number and c.key != name}
    least = min(needed[name], least)
    kept, free = list(columns), 0
    for given_up in (0, *sorted({each.optional for each in columns if each.optional})):
        kept = [each for each in columns if not 0 < each.optional <= given_up]
        free = width - sum(needed[c.key] for c in kept if c.key != name) - 2 * (len(kept) - 1)
        if free >= least:
            break
    return kept, needed | {name: max(min(least, 20) if most else least, min(needed[name], free))}


def in_columns(
    columns: Sequence[Column],
    lines: Iterable[Cells],
    widths: Mapping[str, int],
    cut: Callable[[str, int], str] = words.shorten,
) -> list[str]:
    """Return lines of text, numbers at the right; what is too long is cut."""
    return [
        "  ".join(_cell(cut(line[c.key], widths[c.key]), widths[c.key], c) for c in columns).rstrip()
        for line in lines
    ]


def _columns(rows: Sequence[Row], kind: str, several_devices: bool) -> list[Column]:
    """Return those columns of the kind that the rows hold, and the columns that tell rows apart: several
    devices, streams, and whatever the rows were grouped by."""
    known = {each.key: each for each in rows_of.columns(kind)}
    empty = {key for key, each in known.items() if each.sparse and not any(row.get(key) for row in rows)}
    shown = [each for each in rows_of.terminal(kind) if each.key not in empty]
    held = {key for row in rows for key in row} - empty if rows else {each.key for each in shown}
    chosen = [each for each in shown if each.key in held]
    extra = [key for key in ("stream",) if key in held]
    if several_devices:
        extra.insert(0, "device")
    if len(chosen) < len(shown):  # grouped: the rest is the group's own column
        told = {*(each.key for each in chosen), "device", "reason.text", "stream"}
        extra += [key for key in held - told if not (key in known and known[key].grouped == "sum")]
    front = [each for each in chosen if each.number]
    rest = [each for each in chosen if not each.number]
    return [*front, *(known.get(key) or Column(key, key=key) for key in extra), *rest]


def summed_over(document: Report) -> str:
    """Return what the rows of a run's tables are summed over: the trace, unless ranges of it were taken as
    steps."""
    time = document.time
    if time is None or time.step_range is None:
        return "the whole trace"
    return f"the ranges {words.plain(time.step_range)} that were taken as steps"


def _cell(text: str, width: int, column: Column) -> str:
    return f"{text:>{width}}" if column.number else f"{text:<{width}}"
