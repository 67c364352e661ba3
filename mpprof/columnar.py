"""What every public table offers: its columns, for Python, Polars and pandas; absent values are None."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from mpprof.errors import optional_package

SHOWN_ROWS, SHOWN_COLUMNS = 10, 12
"""So much of a table is shown in a notebook."""


class Columnar(ABC):
    """A table by its columns. Absent values are None in all that it is turned into, never -1 or NaN."""

    __slots__ = ()

    @abstractmethod
    def to_dict(self) -> dict[str, list[Any]]:
        """Return the columns by name, as lists of equal length; empty lists for a table without rows."""

    def to_polars(self) -> Any:
        """Return a `polars.DataFrame` of the columns, absent values null. Raises MpprofError
        without Polars."""
        return polars_frame(self.to_dict())

    def to_pandas(self) -> Any:
        """Return a `pandas.DataFrame` of the columns: whole numbers and truth values with gaps are of pandas'
        nullable types. Raises MpprofError without pandas."""
        return pandas_frame(self.to_dict())

    def __repr__(self) -> str:
        columns = self.to_dict()
        rows = len(next(iter(columns.values()), []))
        return f"{type(self).__name__}: {rows:,} {'row' if rows == 1 else 'rows'} of {', '.join(columns)}"

    def _repr_html_(self) -> str:
        return html_table(self.to_dict())


def polars_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return the columns as a `polars.DataFrame`. Raises MpprofError without Polars."""
    return optional_package("polars").DataFrame(dict(columns), strict=False, infer_schema_length=None)


def pandas_frame(columns: Mapping[str, Sequence[Any]]) -> Any:
    """Return the columns as a `pandas.DataFrame`. Raises MpprofError without pandas."""
    pandas = optional_package("pandas")
    return pandas.DataFrame(
        {name: pandas.Series(values, dtype=_nullable(values)) for name, values in columns.items()}
    )


def _nullable(values: Sequence[Any]) -> str | None:
    """Return pandas' nullable type for values with gaps, which pandas would else take for floats or
    objects."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) == 1 and any(value is None for value in values):
        return {int: "Int64", bool: "boolean"}.get(kinds.pop())
    return None if kinds else "object"


def html_table(columns: Mapping[str, Sequence[Any]]) -> str:
    """Return the first rows and columns as an HTML table; every text is escaped, absent values are a dash."""
    from html import escape  # its table of entities takes as long to make as ten modules of ours

    names = list(columns)[:SHOWN_COLUMNS]
    rows = len(next(iter(columns.values()), []))
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(_cell(columns[name][row]))}</td>' for name in names)}</tr>"
        for row in range(min(rows, SHOWN_ROWS))
    )
    left = [f"{rows - SHOWN_ROWS:,} more rows"] if rows > SHOWN_ROWS else []
    left += [f"{len(columns) - len(names)} more columns"] if len(columns) > len(names) else []
    note = f"<p>{' and '.join(left)}</p>" if left else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}"


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,.6g}" if isinstance(value, float) and abs(value) < 100_000 else f"{value:,.0f}"
