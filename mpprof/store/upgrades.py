"""Versions of our own files.

Every change of a format gets a new number and one small function here, which turns a document of the
version before into one of the next. Nothing else in mpprof knows an old version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpprof.errors import TooNewError, UnreadableError

Record = dict[str, Any]
Upgrader = Callable[[Record], Record]

NEWEST = {"mpprof.run": 1, "mpprof.steps": 1, "mpprof.hardware": 1, "mpprof.numerics": 1}

# (family, version it reads) -> the same record, one version newer. Version 1 is the first, so it is empty.
UPGRADERS: dict[tuple[str, int], Upgrader] = {}


def version_of(schema: Any, family: str, where: str) -> int:
    """Return the version in a schema string like "mpprof.run/1".

    Raises `UnreadableError` where it is not of that family and `TooNewError` where it is newer than
    this mpprof.
    """
    name, _, text = schema.partition("/") if isinstance(schema, str) else ("", "", "")
    if name != family or not text.isascii() or not text.isdigit() or not 0 < len(text) < 6 or int(text) < 1:
        raise UnreadableError(
            f'not a file of mpprof: it states no schema "{family}/…"',
            where=where,
            next="Give a log directory that MPProfilerCallback wrote",
        )
    version = int(text)
    if version > NEWEST[family]:
        raise TooNewError(
            f"written by a newer mpprof (schema {family}/{version}, this one reads up to {NEWEST[family]})",
            where=where,
            next="Upgrade mpprof: pip install -U mpprof",
        )
    return version


def upgrade(record: Record, family: str, version: int) -> Record:
    """Return the record in the newest version of its family."""
    for old in range(version, NEWEST[family]):
        record = UPGRADERS[family, old](record)
    return record
