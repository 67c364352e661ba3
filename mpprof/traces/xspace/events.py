"""The events of chosen lines of one plane, as columns with their texts interned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mpprof.model.arrays import Int32, Int64, distinct
from mpprof.model.frozen import frozen
from mpprof.model.limits import LONGEST_NS
from mpprof.traces.common import columns, walk
from mpprof.traces.common.columns import Interner, constant
from mpprof.traces.common.planes import RawLine, RawPlane, StatValue, read_stats, slots, text


@dataclass(eq=False, repr=False)
class PlaneEvents:
    """Events in the order of the file. Text columns point into the trace's strings, -1 where absent."""

    plane: RawPlane
    raw: walk.EventColumns
    start_ns: Int64
    duration_ns: Int64
    name: Int32
    strings: Interner
    has_ints: list[str]
    has_texts: list[str]
    warnings: list[str]
    damages: list[str]
    notes: list[str]
    _texts: dict[str, Int32] = field(default_factory=dict)
    _own: dict[str, dict[int, StatValue]] | None = None

    def __len__(self) -> int:
        return len(self.start_ns)

    def per_line(self, values: Sequence[int]) -> Int32:
        """Return a column from one value for each line that was asked for."""
        return np.repeat(np.array(values, np.int32), np.diff(self.raw.bounds))

    def number(self, stat: str) -> Int64:
        """Return an integer stat, of the event or else of its metadata; -1 where it is absent."""
        column: Int64 = (
            self.raw.ints[self.has_ints.index(stat)] if stat in self.has_ints else constant(-1, len(self))
        )
        values = {
            row: v for row, v in self._of_metadata(stat).items() if isinstance(v, int) and abs(v) < 2**63
        }
        if not values:
            return column
        table = np.full(len(self.plane.metadata_ids) + 1, -1, np.int64)  # the last one for unknown metadata
        table[list(values)] = list(values.values())
        return np.where(column >= 0, column, table[self.raw.metadata])

    def first_number(self, stats: Iterable[str]) -> Int64:
        """Return an integer stat by the first of several spellings that this plane knows."""
        for stat in stats:
            if stat in self.plane.stat_ids:
                return self.number(stat)
        return constant(-1, len(self))

    def text(self, stat: str) -> Int32:
        """Return a text stat, of the event or else of its metadata; the values are rows in the trace's
        strings, -1 where it is absent."""
        if stat in self._texts:
            return self._texts[stat]
        if stat in self.has_texts:
            codes = self.raw.texts[self.has_texts.index(stat)]
            values = distinct(codes)
            column = columns.replace(codes, values, list(map(self._row, values.tolist())))
        else:
            column = constant(-1, len(self), np.int32)
        own = {row: v for row, v in self._of_metadata(stat).items() if isinstance(v, str)}
        if own:
            table = np.full(len(self.plane.metadata_ids) + 1, -1, np.int32)
            table[list(own)] = list(map(self.strings, own.values()))
            column = np.where(column >= 0, column, table[self.raw.metadata])
        self._texts[stat] = column
        return column

    def first_text(self, stats: Iterable[str]) -> Int32:
        """Return for each event the first of several stats that it carries."""
        column: Int32 = constant(-1, len(self), np.int32)
        for stat in stats:
            if stat in self.plane.stat_ids:
                other = self.text(stat)
                column = other if column.strides == (0,) else np.where(column >= 0, column, other)
        return column

    def _row(self, code: int) -> int:
        if code >= 0:
            return self.strings(self.plane.stat_texts[code])
        if code == -1:
            return -1
        start, size = int(self.raw.text_start[-2 - code]), int(self.raw.text_size[-2 - code])
        return self.strings(text(self.plane.buffer, start, start + size))

    def _of_metadata(self, stat: str) -> dict[int, StatValue]:
        if self._own is None:
            self._own = {}
            starts, ends, owner = self.plane.metadata_stats
            for index, name, value in read_stats(self.plane, starts, ends):
                self._own.setdefault(name, {})[int(owner[index])] = value
        return self._own.get(stat, {})


@frozen
class Walked:
    """Lines of a plane as the walk gives them, and which of the wanted stats the plane has."""

    plane: RawPlane
    lines: Sequence[RawLine]
    raw: walk.EventColumns
    has_ints: list[str]
    has_texts: list[str]


def walked(
    plane: RawPlane,
    lines: Sequence[RawLine],
    ints: Iterable[str],
    texts: Iterable[str],
    marked: Iterable[str] = (),
) -> Walked:
    """Walk these lines: the part of reading them that may run beside other work."""
    keys, rows, columns_of, has_ints, has_texts = slots(plane, ints, texts)
    wanted = frozenset(marked)
    flags = np.fromiter(
        (name in wanted for name in plane.metadata_names), np.uint8, len(plane.metadata_names)
    )
    raw = walk.events(
        plane.buffer,
        np.array([line.start for line in lines], np.int64),
        np.array([line.end for line in lines], np.int64),
        *plane.metadata_lookup(),
        keys,
        rows,
        columns_of,
        len(has_ints),
        len(has_texts),
        flags,
    )
    return Walked(plane, lines, raw, has_ints, has_texts)


def events_of(walked: Walked, strings: Interner, shift_ns: int) -> PlaneEvents:
    """Return the events with their names. Times become nanoseconds of the trace: the line's timestamp less
    `shift_ns`."""
    plane, lines, raw = walked.plane, walked.lines, walked.raw
    start = raw.start_ns
    for at, (first, last) in enumerate(zip(raw.bounds[:-1].tolist(), raw.bounds[1:].tolist(), strict=True)):
        start[first:last] += max(-LONGEST_NS, min(lines[at].timestamp_ns - shift_ns, LONGEST_NS))
    names = [strings(name) for name in plane.metadata_names]
    nameless = int(np.count_nonzero(raw.metadata < 0))
    lost = strings("(name lost)") if nameless else -1
    table = np.array([*names, lost], np.int32)  # the last one is met by row -1
    return PlaneEvents(
        plane,
        raw,
        start,
        raw.duration_ns,
        table.take(raw.metadata),
        strings,
        walked.has_ints,
        walked.has_texts,
        _warnings(plane, raw, nameless),
        _damages(plane, raw),
        _notes(plane, raw),
    )


def _damages(plane: RawPlane, raw: walk.EventColumns) -> list[str]:
    if not raw.damaged:
        return []
    return [
        f"plane {plane.name}: {raw.damaged} damaged or cut-off events, the first at byte {raw.damage}, "
        "were left out"
    ]


def _notes(plane: RawPlane, raw: walk.EventColumns) -> list[str]:
    if not raw.aggregated:
        return []
    return [f"plane {plane.name}: {raw.aggregated} events only count occurrences and were left out"]


def _warnings(plane: RawPlane, raw: walk.EventColumns, nameless: int) -> list[str]:
    said = []
    if raw.negative:
        said.append(f"plane {plane.name}: {raw.negative} events have a negative duration, taken as 0")
    if nameless:
        said.append(f"plane {plane.name}: the names of {nameless} events are not in the file")
    return said
