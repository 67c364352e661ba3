"""Lines of the step log beside the steps, as the types of `model.run_time`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mpprof.model import limits
from mpprof.model.run_time import RECORDING_ENDED, EpochTable, FitSpan, Spans, SpentKey, SpentTable
from mpprof.model.steps import ABSENT
from mpprof.store import bounded

Record = dict[str, Any]

_EPOCH = {
    "fit": limits.MOST_FITS,
    "epoch": limits.MOST_EPOCHS,
    "begin_ns": limits.LONGEST_NS,
    "end_ns": limits.LONGEST_NS,
}
_SPENT = {
    "fit": limits.MOST_FITS,
    "first_step": limits.LARGEST_NUMBER,
    "last_step": limits.LARGEST_NUMBER,
    "calls": limits.LARGEST_NUMBER,
}
_OPTIONAL = {"ns": limits.LONGEST_NS}


class SpanColumns:
    """Gathers `fit`, `fit_end`, `recording_end`, `epoch` and `spent` lines; `unsound` counts those that were
    left out."""

    def __init__(self) -> None:
        self._fits: list[FitSpan] = []
        self._epochs: list[tuple[int, ...]] = []
        self._spent: list[tuple[int, ...]] = []
        self._keys: dict[SpentKey, int] = {}
        self.unsound = 0

    def add(self, record: Record) -> None:
        """Take one line; one of another kind is none of this class's."""
        kind = record.get("kind")
        if kind == "fit":
            self._begin(record)
        elif kind == "fit_end":
            self._end(record, bounded.name(record, "reason") or "unknown")
        elif kind == "recording_end":
            self._end(record, RECORDING_ENDED)
        elif kind == "epoch":
            self._keep(self._epochs, _whole(record, _EPOCH))
        elif kind == "spent":
            self._keep(self._spent, self._spent_row(record))

    def spans(self) -> Spans:
        epochs = _columns(self._epochs, tuple(_EPOCH))
        spent = _columns(self._spent, ("key", *_SPENT, *_OPTIONAL))
        return Spans(tuple(self._fits), EpochTable(**epochs), SpentTable(tuple(self._keys), **spent))

    def _keep(self, rows: list[tuple[int, ...]], row: tuple[int, ...] | None) -> None:
        if row is None:
            self.unsound += 1
        else:
            rows.append(row)

    def _begin(self, record: Record) -> None:
        fit = bounded.whole(record, "fit", limits.MOST_FITS)
        if fit is not None and len(self._fits) < limits.MOST_FITS:
            self._fits.append(FitSpan(fit, bounded.whole(record, "t_ns", limits.LONGEST_NS)))

    def _end(self, record: Record, reason: str) -> None:
        """End the fit that began last."""
        if self._fits and self._fits[-1].reason is None:
            begun = self._fits[-1]
            end_ns = bounded.whole(record, "t_ns", limits.LONGEST_NS)
            self._fits[-1] = FitSpan(begun.fit, begun.begin_ns, end_ns, reason)

    def _spent_row(self, record: Record) -> tuple[int, ...] | None:
        numbers, texts = _whole(record, _SPENT), [bounded.name(record, key) for key in ("part", "name", "at")]
        ns = ABSENT if record.get("ns") is None else _whole(record, _OPTIONAL)
        if numbers is None or ns is None or None in texts:
            return None
        key = SpentKey(*(text or "" for text in texts))
        if key not in self._keys and len(self._keys) >= limits.MOST_SPENT_NAMES:
            return None
        row = self._keys.setdefault(key, len(self._keys))
        return (row, *numbers, *(ns if isinstance(ns, tuple) else (ns,)))


def _whole(record: Record, largest: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return these numbers of a line; None where one is missing, negative or beyond its bound."""
    values = [bounded.whole(record, key, most) for key, most in largest.items()]
    found = tuple(value for value in values if value is not None and value >= 0)
    return found if len(found) == len(values) else None


def _columns(rows: Sequence[tuple[int, ...]], names: Sequence[str]) -> dict[str, Any]:
    table = np.array(rows, np.int64).reshape(-1, len(names))
    table.setflags(write=False)
    return dict(zip(names, table.T, strict=True))
