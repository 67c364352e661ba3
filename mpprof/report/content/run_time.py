"""What the wall time of a run was spent on, as rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.frozen import frozen
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.run_time import RunPart

RUN_TIME_HEADING = "Where the run's time went"
RUN_TIME_COLUMNS = ("part", "time", "share", "by")
MOST_NAMED = 3
"""So many pieces of a part are named."""
LEAST_NAMED = 0.01
"""Pieces below a hundredth of their part are not."""


@frozen
class SpentRow:
    label: str
    ns: float
    ratio: float
    by: str


def run_time_rows(document: Report) -> list[SpentRow]:
    """Return the parts that took time, in their fixed order, and last what is not known; empty where the run
    has no step log."""
    found = document.run_time
    if not found:
        return []
    rows = [
        SpentRow(part.name.replace("_", " "), part.ns, part.ratio, _by(part))
        for part in found.parts
        if part.ns
    ]
    if found.unknown_ns:
        ratio = found.unknown_ns / found.wall_ns
        rows.append(SpentRow("not known", found.unknown_ns, ratio, "steps whose lines were not read"))
    return rows


def _by(part: RunPart) -> str:
    """Return the largest pieces of a part with their times; of a single one its name, where that says
    more."""
    named = [each for each in part.by if each.ns >= LEAST_NAMED * part.ns]
    if len(named) == 1:
        name = words.plain(named[0].name)
        return "" if name == part.name.replace("_", " ") else name
    said = [f"{words.plain(each.name)} {words.duration(each.ns)}" for each in named[:MOST_NAMED]]
    more = len(named) - MOST_NAMED
    return ", ".join(said) + (f" and {more} more" if more > 0 else "")
