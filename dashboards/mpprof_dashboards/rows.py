"""Rows of a table as the page asks for them: filtered, sorted and cut on the server, in the words shown.

A table can hold tens of thousands of rows; the page gets a hundred at a time, already in words, so that no
number is formatted or compared a second time in the browser.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from mpprof.model.columns import Column
from mpprof.report import words
from mpprof.report.tables import csv_line

AT_ONCE = 100
"""Rows of one answer."""
MOST_FILTER = 200
"""Characters of a filter that are looked at."""

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """Columns and all their rows, in the order that they have before anyone sorts them."""

    columns: tuple[Column, ...]
    rows: Sequence[Row]
    more: Callable[[Row], list[tuple[str, str]]] = field(default=lambda row: [])
    """What the side panel says of a row: names and texts."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a page asks of a table: filters by field, the field to sort by, the first row."""

    filters: Mapping[str, str] = field(default_factory=dict)
    sort: str | None = None
    descending: bool = False
    first: int = 0


def asked(query: Mapping[str, str]) -> Asked:
    """Read `f.<field>`, `sort` (with "-" in front: descending) and `from` of a query."""
    filters = {
        key[2:]: value[:MOST_FILTER].strip()
        for key, value in query.items()
        if key.startswith("f.") and value.strip()
    }
    sort, first = query.get("sort", ""), query.get("from", "0")
    at = int(first) if first.isdecimal() and len(first) < 10 else 0
    return Asked(filters, sort.removeprefix("-") or None, sort.startswith("-"), at)


class Shown(TypedDict):
    """A row in words: its cells, their tooltips, its bar from 0 to 1 with the shares of what it is divided
    into, and what opens below it."""

    cells: list[str]
    titles: list[str]
    bar: float
    parts: list[tuple[str, float]]
    kind: str
    key: str
    more: list[list[str]]


Answer = TypedDict("Answer", {"total": int, "found": int, "from": int, "rows": list[Shown]})
"""How many rows there are, how many pass the filters, and those from row `from` on."""


def answer(table: Table, what: Asked) -> Answer:
    """Return `{total, found, from, rows: [{cells, titles, bar, parts, kind, more}]}` of at most `AT_ONCE`
    rows."""
    found = select(table, what)
    largest = {c.key: max((row[c.key] or 0 for row in table.rows), default=0) for c in table.columns if c.bar}
    return {
        "total": len(table.rows),
        "found": len(found),
        "from": what.first,
        "rows": [_shown(table, row, largest) for row in found[what.first : what.first + AT_ONCE]],
    }


def _shown(table: Table, row: Row, largest: Mapping[str, float]) -> Shown:
    cells = [text(column, row) for column in table.columns]
    titles = [words.plain(str(row[c.full])) if c.full and row.get(c.full) else "" for c in table.columns]
    parts = row.get("parts", [])
    whole = sum(ns for _, ns in parts)
    bar = next((row[key] / most for key, most in largest.items() if most and row[key]), 0.0)
    return {
        "cells": cells,
        "titles": titles,
        "bar": round(bar, 4),
        "parts": [(kind, round(ns / whole, 4)) for kind, ns in parts],
        "kind": row.get("kind", ""),
        "key": row.get("key", ""),
        "more": [[name, words.plain(said)] for name, said in table.more(row)],
    }


def select(table: Table, what: Asked) -> list[Row]:
    """Return the rows that pass all filters, sorted; rows without a value come last in either direction."""
    columns = {column.key: column for column in table.columns}
    tests = [matcher(columns[name], typed) for name, typed in what.filters.items() if name in columns]
    if "only" in what.filters:  # the rows that were picked in a figure
        picked = set(what.filters["only"].split())
        tests.append(lambda row: bool(picked & row.get("keys", frozenset())))
    rows = [row for row in table.rows if all(test(row) for test in tests)]
    if what.sort in columns:
        field_ = columns[what.sort].key
        known = [row for row in rows if row.get(field_) not in (None, "")]
        known.sort(key=lambda row: _rank(row[field_]), reverse=what.descending)
        rows = known + [row for row in rows if row.get(field_) in (None, "")]
    return rows


def _rank(value: Any) -> tuple[int, Any]:
    return (1, value.lower()) if isinstance(value, str) else (0, value)


def header(column: Column) -> str:
    """Return a column's title as the page writes it, with a capital letter."""
    return column.title[:1].upper() + column.title[1:]


def text(column: Column, row: Row) -> str:
    """Return a cell in words; empty where there is no value."""
    value = row.get(column.key)
    if value is None or value == "":
        return ""
    if column.unit == "count" and not float(value).is_integer():
        return f"{value:,.1f}"
    return words.in_unit(value, column.unit)


# --- filters -----------------------------------------------------------------------------------------------

_FACTORS: dict[str, dict[str, float]] = {
    "ns": {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "": 1e6},
    "bytes": {"b": 1, "bytes": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "": 2**20},
    "ratio": {"%": 0.01, "": 0.01},
    "count": {"": 1, "k": 1e3, "m": 1e6},
    "flops_per_s": {"": 1e12, "g": 1e9, "t": 1e12, "p": 1e15},
}
"""What a number with this unit behind it is worth; without one it is in ms, MiB, per cent or TFLOP/s."""
EXAMPLES: dict[str, str] = {
    "ns": ">= 1 ms", "bytes": ">= 1 MiB", "ratio": ">= 5 %", "count": ">= 10", "flops_per_s": ">= 10 T",
}  # fmt: skip
_COMPARISON = re.compile(r"^\s*(<=|>=|<|>|=)\s*([0-9][0-9,]*\.?[0-9]*)\s*(%|[a-zµμ]*)", re.IGNORECASE)
_EQUAL_RATIO = 0.005


def matcher(column: Column, typed: str) -> Callable[[Row], bool]:
    """Return what a filter lets through: a comparison on the value ("> 1 ms"), a whole name with what lies
    below it ("=block_1"), else a part of what is shown.

    A comparison that is still being typed lets everything through."""
    if column.number and typed[:1] in "<>=":
        found = _COMPARISON.match(typed)
        if found is None:
            return lambda row: True
        factors = _FACTORS[column.unit]
        unit = found[3].lower()
        factor = factors.get(unit, factors.get(unit[:1]))
        if factor is None:
            return lambda row: False
        sign, limit = found[1], float(found[2].replace(",", "")) * factor
        return lambda row: _holds(row.get(column.key), sign, limit)
    wanted = typed.lower()
    if column.number:
        return lambda row: wanted in text(column, row).lower()
    if typed.startswith("=") and len(typed) > 1:
        whole = re.compile(re.escape(typed[1:].strip()).replace(r"\*", r"\d+") + r"(/.*)?", re.DOTALL)
        return lambda row: any(whole.fullmatch(name) for name in _names(column, row))
    return lambda row: any(wanted in name.lower() for name in (text(column, row), *_names(column, row)))


def _names(column: Column, row: Row) -> tuple[str, ...]:
    """Return the whole names behind a cell, which may show only how many there are."""
    names: tuple[str, ...] | None = row.get(f"{column.key}_names")
    return names if names is not None else (str(row.get(column.full) or row.get(column.key) or ""),)


def _holds(value: float | None, sign: str, limit: float) -> bool:
    if value is None:
        return False
    if sign == "=":
        return abs(value - limit) <= _EQUAL_RATIO * abs(limit)
    return _SIGNS[sign](value, limit)


_SIGNS: dict[str, Callable[[float, float], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


def to_csv(table: Table, what: Asked) -> str:
    """Return the rows that pass the filters, as comma-separated values: raw numbers, whole names."""
    names = [column.key for column in table.columns]
    rows = ([row.get(c.full or c.key, row.get(c.key)) for c in table.columns] for row in select(table, what))
    return "".join(map(csv_line, (names, *rows)))
