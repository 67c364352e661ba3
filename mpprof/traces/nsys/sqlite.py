"""Tables of a foreign SQLite file in columns, read-only and within bounds.

Nothing of the file is executed: only plain tables are read (no views, no virtual tables), the schema is not
trusted, and the work is bounded in proportion to the file's size.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from mpprof.model.arrays import Int64
from mpprof.traces.common.file_head import SQLITE

ERRORS = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""What reading a damaged file raises; Python cannot decode SQLite's message where it quotes the file."""

_LONGEST_WORDS = 300
_BATCH = 1 << 16
_TEXT_BATCH = 1 << 11
_LONGEST = 1 << 14
"""Characters of a text that are read; kernel names reach some thousands."""
_MAX_VALUE = 1 << 24
_STEPS_PER_CALL = 1_000_000
_STEPS_PER_BYTE = 20
"""Instructions of SQLite's machine for each byte of the file: an export takes fewer than one."""
_MOST_COLUMNS = 256


@dataclass
class Database:
    """An open file. `damages` collects the tables that could be read in part only."""

    path: Path
    connection: sqlite3.Connection
    tables: dict[str, frozenset[str]]  # name -> columns
    damages: list[str] = field(default_factory=list)
    known: dict[str, str] = field(default_factory=dict)

    def numbers(self, table: str, columns: Sequence[str]) -> dict[str, Int64]:
        """Return integer columns, one array each; -1 where a column, a table or a value is missing."""
        have = self.tables.get(table, frozenset())
        wanted = [f"ifnull(cast({_quote(c)} as integer), -1)" if c in have else "-1" for c in columns]
        parts = []
        if have:
            query = f"select {', '.join(wanted)} from {_quote(table)}"
            parts = [np.array(rows, np.int64) for rows in self._rows(table, query)]
        whole = np.concatenate(parts) if parts else np.empty((0, len(columns)), np.int64)
        parts.clear()  # or a long table would be held three times
        return {column: np.ascontiguousarray(whole[:, at]) for at, column in enumerate(columns)}

    def texts(self, table: str, key: str, value: str, wanted: Iterable[int] | None = None) -> dict[int, str]:
        """Return a column of texts by an integer key; only for the `wanted` keys, where given."""
        if not {key, value} <= self.tables.get(table, frozenset()):
            return {}
        keep = None if wanted is None else set(wanted)
        found: dict[int, str] = {}
        query = f"select cast({_quote(key)} as integer), {_text(value)} from {_quote(table)}"
        for rows in self._rows(table, query, _TEXT_BATCH):
            for id, text in rows:
                if id is not None and text is not None and (keep is None or id in keep):
                    found.setdefault(id, self._shared(text))
        return found

    def column(self, table: str, name: str, longest: int = _LONGEST) -> list[str]:
        """Return a column of texts, row by row as `numbers` gives them; "" where a row has none, empty where
        the column is missing. `longest` limits the characters of each text that are read: a column's default
        may be long and take no space in the file."""
        if name not in self.tables.get(table, frozenset()):
            return []
        query = f"select ifnull({_text(name, longest)}, '') from {_quote(table)}"
        return [self._shared(row[0]) for rows in self._rows(table, query, _TEXT_BATCH) for row in rows]

    def _shared(self, text: str) -> str:
        """Return the same object for equal texts: a column's default takes no space in the file, however long
        it is."""
        return self.known.setdefault(text, text)

    def _rows(self, table: str, query: str, batch: int = _BATCH) -> Iterator[list[tuple[Any, ...]]]:
        """Yield batches of rows; a damaged table ends where the damage begins."""
        count = 0
        try:
            cursor = self.connection.execute(query)
            while rows := cursor.fetchmany(batch):
                count += len(rows)
                yield rows
        except ERRORS as error:
            note = f"table {table} is damaged after {count} rows ({words(error)}); the intact part was read"
            if note not in self.damages:
                self.damages.append(note)


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """Open the database at `path` while the context lasts. Raises one of ERRORS if it is not one."""
    size = path.stat().st_size
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_VALUE)
        connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        connection.set_progress_handler(_Budget(size * _STEPS_PER_BYTE), _STEPS_PER_CALL)
        for pragma in ("trusted_schema=off", "cell_size_check=on", "query_only=on", "mmap_size=0"):
            connection.execute(f"pragma {pragma}")
        yield Database(path, connection, _tables(connection))
    finally:
        connection.close()


def words(error: Exception) -> str:
    """Return SQLite's message in one line of limited length: it may quote whole statements of the file."""
    text = " ".join(str(error).split())
    return text if len(text) <= _LONGEST_WORDS else f"{text[:_LONGEST_WORDS]} …"


class _Budget:
    """Stops SQLite once it has worked more than any export of this size can need."""

    def __init__(self, steps: int) -> None:
        self.left = 50 + steps // _STEPS_PER_CALL

    def __call__(self) -> int:
        self.left -= 1
        return int(self.left < 0)


def _tables(connection: sqlite3.Connection) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    query = "select name, sql from sqlite_master where type = 'table' limit 4096"
    for name, sql in connection.execute(query).fetchall():
        if not isinstance(name, str) or not isinstance(sql, str) or "virtual" in sql[:20].lower():
            continue
        info = connection.execute(f"pragma table_info({_quote(name)})").fetchmany(_MOST_COLUMNS)
        found[name] = frozenset(row[1] for row in info if isinstance(row[1], str))
    return found


def _text(column: str, longest: int = _LONGEST) -> str:
    return f"substr(cast({_quote(column)} as text), 1, {longest})"


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def missing_bytes(path: Path) -> tuple[int, int] | None:
    """Return (size, size it should have) of a file that is shorter than its header says; None where it is
    whole."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(100)
    if len(head) < 100 or not head.startswith(SQLITE):
        return None
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    pages = int.from_bytes(head[28:32], "big")
    return (size, page * pages) if page and pages and size < page * pages else None
