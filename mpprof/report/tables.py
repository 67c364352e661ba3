"""Tables of kernels, ops, layers and memory: grouped, sorted and cut; as text or CSV.

Rows are plain JSON objects as `analysis.tables` makes them. Nothing here changes a value: a text table
shows it in words, CSV and JSON raw.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from mpprof.errors import UsageError
from mpprof.model.frozen import frozen
from mpprof.model.kernels import PLACEMENTS, PRECISIONS
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.rows import Row

ADDITIVE = (
    "calls", "total_ns", "ratio", "matmul_ns", "forward_ns", "backward_ns", "other_ns", "fused_ns", "bytes",
)  # fmt: skip
"""Columns whose values of several rows may be summed."""
_REASONS = ("reason", "eligible_reason")
KEYS: dict[str, tuple[str, ...]] = {
    "kernels": (
        "device", "name", "op", "layer", "placement", "precision", "family", "reason.code", "reason.text",
        "calls", "total_ns", "ratio", "strength", "flops_per_s",
    ),
    "ops": (
        "device", "op", "type", "layer", "phase", "calls", "total_ns", "ratio", "matmul_ns",
        "tensor_core_ratio", "placement", "precision", "placement_ns", "precision_ns", "eligible",
        "eligible_reason.code", "eligible_reason.text", "flops_per_call", "bytes_per_call", "flops_per_s",
        "bytes_per_s", "roofline_ratio", "bound",
    ),
    "layers": (
        "device", "layer", "class", "compute_dtype", "calls", "total_ns", "ratio", "forward_ns",
        "backward_ns", "other_ns", "matmul_ns", "tensor_core_ratio", "fused_ns", "shared_ns",
    ),
    "memory": ("by", "name", "bytes", "estimated", "assigned"),
}  # fmt: skip
"""The columns of each kind, in order, as `flat` spells them: known also of a table without rows."""
NARROWEST_NAME = 40


@frozen
class Column:
    """A column of a text table. `show` puts a value in words; None lines times up in one unit."""

    key: str
    title: str
    show: Callable[[Any], str] | None = None
    right: bool = False
    optional: bool = False  # gives way where the last column would get too narrow to read


def _text(value: Any) -> str:
    return "-" if value is None else words.plain(str(value))


def _basis(estimated: Any) -> str:
    return "estimated" if estimated else "measured"


def _source(assigned: Any) -> str:
    return "XLA's assignment" if assigned else ""


def _rate(value: Any) -> str:
    return "-" if value is None else words.quantity(value, "flops_per_s")


_RATIO = Column("ratio", "share", words.percent, right=True)
_TOTAL = Column("total_ns", "total", right=True)
_CALLS = Column("calls", "calls", words.count, right=True)

_PERCENT_OR_DASH = Column(
    "tensor_core_ratio", "on TC", lambda value: "-" if value is None else words.percent(value), right=True
)

COLUMNS: dict[str, tuple[Column, ...]] = {
    "kernels": (
        _RATIO, _TOTAL, _CALLS,
        Column("placement", "placement", _text), Column("precision", "prec", _text),
        Column("family", "family", _text, optional=True), Column("reason.code", "why", _text),
        Column("name", "kernel", _text),
    ),
    "ops": (
        _RATIO, _TOTAL, _CALLS, _PERCENT_OR_DASH,
        Column("placement", "placement", _text), Column("precision", "prec", _text),
        Column("eligible", "eligible", _text, optional=True),
        Column("flops_per_s", "rate", _rate, right=True),
        Column("type", "type", _text, optional=True), Column("op", "op", _text),
    ),
    "layers": (
        _RATIO, _TOTAL, Column("forward_ns", "forward", right=True),
        Column("backward_ns", "backward", right=True), _PERCENT_OR_DASH,
        Column("compute_dtype", "dtype", _text), Column("class", "class", _text, optional=True),
        Column("layer", "layer", _text),
    ),
    "memory": (
        Column("bytes", "bytes", words.size, right=True), Column("by", "by", _text),
        Column("estimated", "basis", _basis), Column("assigned", "stated by", _source),
        Column("name", "name", _text),
    ),
}  # fmt: skip
"""What a text table shows of each kind, the widest column last. CSV and JSON hold every key."""


def flat(row: Row) -> dict[str, Any]:
    """Return the row with one level of nesting flattened: `reason` becomes `reason.code` and
    `reason.text`."""
    out: dict[str, Any] = {}
    for key, value in row.items():
        if key in _REASONS:
            value = value if isinstance(value, dict) else {"code": None, "text": None}
            out |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            out[key] = value
    return out


def keys(kind: str, by: str | None = None) -> tuple[str, ...]:
    """Return the columns of a table of this kind, summed by a column or split by "stream". Raises UsageError
    for a column that rows cannot be summed by."""
    whole = KEYS[kind]
    if by is None or kind == "memory":
        return whole
    if by == "stream":
        return (*whole, "stream")
    _known(by, [key for key in whole if key not in ADDITIVE], "--by")
    return ("device", *([by] if by != "device" else []), *(key for key in ADDITIVE if key in whole))


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


def aggregate(rows: Sequence[Row], by: str) -> list[dict[str, Any]]:
    """Return rows of one device summed where they are equal in column `by`: `{device, by, calls, total_ns,
    …}`.

    Only what may be added up is kept. Longest first; `keys` knows which columns there are.
    """
    sums: dict[tuple[Any, Any], dict[str, Any]] = {}
    for row in map(flat, rows):
        key = (row.get("device"), row[by])
        into = sums.setdefault(key, {"device": key[0], by: key[1]})
        for column in ADDITIVE:
            if column in row:
                into[column] = into.get(column, 0) + row[column]
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
    pairs = [(flat(row).get(key), row) for row in rows]  # what does not hold of a row may be left out
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
    spelled = [flat(row) for row in rows]
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
    spelled = [flat(row) for row in rows]
    several = len({row.get("device") for row in (*rows, *whole)}) > 1
    columns = _columns(spelled, kind, several)
    cells = _in_words(spelled, columns)
    widths = _widths(cells, columns, width)
    if widths[-1] < NARROWEST_NAME and any(column.optional for column in columns):
        columns = [column for column in columns if not column.optional]
        cells = _in_words(spelled, columns)
        widths = _widths(cells, columns, width)
    lines = ["  ".join(_cell(*each) for each in zip(line, widths, columns, strict=True)) for line in cells]
    text = "\n".join(line.rstrip() for line in lines) + "\n"
    return words.ascii_only(text) if ascii_only else text


def _in_words(rows: Sequence[Row], columns: Sequence[Column]) -> list[list[str]]:
    """Return the titles, then the cells of each row."""
    columns_of = {c.key: _column(rows, c.key) for c in columns if c.show is None}
    body = [
        [c.show(row.get(c.key)) if c.show else columns_of[c.key](row[c.key]) for c in columns] for row in rows
    ]
    return [[column.title for column in columns], *body]


def _widths(cells: Sequence[Sequence[str]], columns: Sequence[Column], width: int) -> list[int]:
    """Return the width of each column; where not all fits, the last takes what the others leave, 20 at
    least."""
    needed = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    if sum(needed) + 2 * (len(needed) - 1) <= width:
        return needed
    front = [size if c.right else min(size, 22) for size, c in zip(needed[:-1], columns[:-1], strict=True)]
    return [*front, max(20, width - sum(front) - 2 * len(front))]


def _columns(rows: Sequence[Row], kind: str, several_devices: bool) -> list[Column]:
    """Return those columns of the kind that the rows hold, and the columns that tell rows apart: several
    devices, streams, and whatever the rows were grouped by."""
    held = {key for row in rows for key in row} if rows else {column.key for column in COLUMNS[kind]}
    chosen = [column for column in COLUMNS[kind] if column.key in held]
    extra = [key for key in ("stream",) if key in held]
    if several_devices:
        extra.insert(0, "device")
    known = {column.key for column in chosen} | {"device", "reason.text", "stream"} | set(ADDITIVE)
    if len(chosen) < len(COLUMNS[kind]):  # grouped: the rest is the group's own column
        extra += [key for key in held if key not in known]
    front = [column for column in chosen if column.right]
    rest = [column for column in chosen if not column.right]
    return [*front, *(Column(key, key, _text) for key in extra), *rest]


def _column(rows: Sequence[Row], key: str) -> Callable[[float], str]:
    return words.column(max((abs(row[key]) for row in rows), default=1.0))


def summed_over(document: Report) -> str:
    """Return what the rows of a run's tables are summed over: the trace, unless ranges of it were taken as
    steps."""
    time = document.time
    if time is None or time.step_range is None:
        return "the whole trace"
    return f"the ranges {words.plain(time.step_range)} that were taken as steps"


def _cell(text: str, width: int, column: Column) -> str:
    short = words.shorten(text, width)
    return f"{short:>{width}}" if column.right else f"{short:<{width}}"
