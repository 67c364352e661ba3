"""Choose a finding's remedies: the rows of the table that fit the framework, the card and the evidence."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from mpprof.diagnosis.remedies.row import Row
from mpprof.diagnosis.remedies.table import ROWS
from mpprof.model.finding import Remedy

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals

_BY_CODE: dict[str, list[Row]] = {}
for _row in ROWS:
    _BY_CODE.setdefault(_row.code, []).append(_row)


def choose(
    code: str, signals: Signals, cases: Collection[str] = ("",), values: Mapping[str, object] | None = None
) -> tuple[Remedy, ...]:
    """Return the table's remedies of this cause for this run, in its order; empty: it has none."""
    given = signals.words | dict(values or {})
    return tuple(
        Remedy(_filled(row.text, given), _filled(row.snippet, given))
        for case in cases
        for row in _BY_CODE.get(code, ())
        if row.fits(signals, case)
    )


def sentence(remedies: Collection[Remedy]) -> str:
    """Join the remedies to one text."""
    return "; ".join(remedy.text for remedy in remedies)


def _filled(text: str, values: Mapping[str, object]) -> str:
    # Not str.format: code to copy may hold braces of its own.
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", str(value))
    return text
