"""The layout of an xplane file: planes, lines and the tables of names, found without reading events.

Field numbers are those of tsl/profiler/protobuf/xplane.proto. A plane writes its lines before its tables
of names, but each line's length is known, so the tables are found by skipping.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from mpprof.model import limits
from mpprof.model.arrays import Bytes, Int32, Int64
from mpprof.model.frozen import frozen
from mpprof.traces.common import walk

StatValue = int | float | str | bytes

DENSE_IDS = 1 << 22
"""Ids below it are looked up in a table, larger ones by bisection: a file cannot ask for memory by an id."""


MAX_PLANES, MAX_LINES = 1 << 12, 1 << 16
"""Planes in a file and lines in a plane that are read; real files hold tens of the one, hundreds of the
other. What is beyond is left out, and said."""


def _bits(*numbers: int) -> int:
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


def extents(fields: walk.Fields, number: int) -> tuple[Int64, Int64, Int32]:
    """Return the starts, ends and parents of the length-delimited fields of this number."""
    rows = (fields.number == number) & (fields.wire == 2)
    starts = fields.value[rows]
    return starts, starts + fields.size[rows], fields.parent[rows]


def one(number: int) -> Int64:
    return np.array([number], np.int64)


@frozen
class RawLine:
    """One XLine: a stream, a thread, or a line that a converter derived. `start:end` is its message."""

    id: int
    name: str
    timestamp_ns: int
    start: int
    end: int


@frozen(slots=False)
class RawPlane:
    """One XPlane. `cut` is set where the file ends or is damaged within it."""

    buffer: Bytes
    name: str
    id: int
    start: int
    end: int
    cut: bool
    lines: tuple[RawLine, ...]
    metadata_ids: Int64  # of event metadata, in the order of the file
    metadata_names: tuple[str, ...]
    display_names: tuple[str, ...]
    metadata_stats: tuple[Int64, Int64, Int64]  # XStats of event metadata: starts, ends, row of the metadata
    stat_names: Mapping[int, str]
    own_stats: tuple[Int64, Int64]
    damage: int  # first damaged byte outside events, -1
    lines_left_out: int  # beyond MAX_LINES

    @cached_property
    def stats(self) -> dict[str, StatValue]:
        """The plane's own stats: facts of the device or of the profiler session."""
        starts, ends = self.own_stats
        return {name: value for _, name, value in read_stats(self, starts, ends)}

    @cached_property
    def stat_texts(self) -> tuple[str, ...]:
        """The names of stats, and the texts that stats refer to, by row."""
        return tuple(self.stat_names.values())

    @cached_property
    def stat_ids(self) -> dict[str, int]:
        """Stat metadata ids by name; of several with one name the first."""
        ids: dict[str, int] = {}
        for id, name in self.stat_names.items():
            ids.setdefault(name, id)
        return ids

    def metadata_lookup(self) -> tuple[Int64, Int32]:
        return lookup(self.metadata_ids, np.arange(len(self.metadata_ids), dtype=np.int32))


@frozen
class RawSpace:
    """A whole file. `damage` is the first damaged byte outside planes, or where a cut-off file ends."""

    planes: tuple[RawPlane, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    hostnames: tuple[str, ...]
    damage: int


def lookup(keys: Int64, rows: Int32) -> tuple[Int64, Int32]:
    """Return tables for `walk.events`: dense (no keys, rows by id) where ids are small, else sorted keys.

    Of several equal keys the last counts, as in any protobuf map.
    """
    if not len(keys):
        return np.empty(0, np.int64), np.empty(0, np.int32)
    if keys.min() >= 0 and keys.max() < DENSE_IDS:
        table = np.full(int(keys.max()) + 1, -1, np.int32)
        table[keys] = rows
        return np.empty(0, np.int64), table
    last_first, where = np.unique(keys[::-1], return_index=True)
    return last_first, np.ascontiguousarray(rows[::-1][where])


def text(buffer: Bytes, start: int, end: int) -> str:
    """Return a text, at most its first `limits.LONGEST_RAW_TEXT_BYTES`, in which replacement characters stand
    for bytes that are not UTF-8."""
    return buffer[start : cut_off(start, end)].tobytes().decode("utf-8", "replace")


def cut_off(start: int, end: int) -> int:
    """Return where reading of one text or one field of bytes ends: a sparse file may state any length."""
    return min(end, start + limits.LONGEST_RAW_TEXT_BYTES)


def read_space(buffer: Bytes) -> RawSpace:
    """Index a whole file. Never raises: damage is reported in the result."""
    fields = walk.scan(buffer, one(0), one(len(buffer)), _bits(1, 2, 3, 4))
    starts, ends, _ = extents(fields, 1)
    damage = fields.damage
    left_out = max(0, len(starts) - MAX_PLANES)
    starts, ends = starts[:MAX_PLANES], ends[:MAX_PLANES]
    planes = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        planes.append(_plane(buffer, start, end, cut=0 <= damage < start and end == len(buffer)))

    def texts(number: int) -> tuple[str, ...]:
        begins, stops, _ = extents(fields, number)
        return tuple(text(buffer, a, b) for a, b in zip(begins.tolist(), stops.tolist(), strict=True))

    beyond = (f"{left_out} planes beyond the first {MAX_PLANES} were left out",) if left_out else ()
    return RawSpace(tuple(planes), texts(2), (*texts(3), *beyond), texts(4), damage)


def _plane(buffer: Bytes, start: int, end: int, *, cut: bool) -> RawPlane:
    fields = walk.scan(buffer, one(start), one(end), _bits(1, 2, 3, 4, 5, 6))
    damages = [fields.damage]
    numbers, wires, values = fields.number, fields.wire, fields.value
    names = extents(fields, 2)
    ids = values[(numbers == 1) & (wires == 0)]
    line_starts, line_ends, _ = extents(fields, 3)
    lines, damage = _lines(buffer, line_starts[:MAX_LINES], line_ends[:MAX_LINES])
    damages.append(damage)
    entries = _map_entries(buffer, *extents(fields, 4)[:2], _bits(1, 2, 4, 5))
    stat_entries = _map_entries(buffer, *extents(fields, 5)[:2], _bits(1, 2))
    stat_starts, stat_ends, stat_owner = extents(entries[1], 5)
    own = extents(fields, 6)
    damages += [entries[2], stat_entries[2]]
    found = [d for d in damages if d >= 0]
    return RawPlane(
        buffer=buffer,
        name=text(buffer, int(names[0][-1]), int(names[1][-1])) if len(names[0]) else "",
        id=int(ids[-1]) if len(ids) else 0,
        start=start,
        end=end,
        cut=cut,
        lines=lines,
        metadata_ids=entries[0],
        metadata_names=_texts(buffer, entries[1], 2, len(entries[0])),
        display_names=_texts(buffer, entries[1], 4, len(entries[0])),
        metadata_stats=(stat_starts, stat_ends, stat_owner.astype(np.int64)),
        stat_names=dict(
            zip(
                stat_entries[0].tolist(),
                _texts(buffer, stat_entries[1], 2, len(stat_entries[0])),
                strict=True,
            )
        ),
        own_stats=(own[0], own[1]),
        damage=min(found) if found else -1,
        lines_left_out=max(0, len(line_starts) - MAX_LINES),
    )


def _last_varint(fields: walk.Fields, number: int, n: int) -> Int64:
    """Return for each message the last value of a varint field."""
    column = np.zeros(n, np.int64)
    rows = (fields.number == number) & (fields.wire == 0)
    column[fields.parent[rows]] = fields.value[rows]
    return column


def _texts(buffer: Bytes, fields: walk.Fields, number: int, n: int) -> tuple[str, ...]:
    """Return for each message the last text of a field, "" where there is none."""
    found = [""] * n
    starts, ends, parents = extents(fields, number)
    raw = memoryview(buffer)  # type: ignore[arg-type]
    for start, end, parent in zip(starts.tolist(), ends.tolist(), parents.tolist(), strict=True):
        found[parent] = str(raw[start : cut_off(start, end)], "utf-8", "replace")
    return tuple(found)


def _map_entries(buffer: Bytes, starts: Int64, ends: Int64, wanted: int) -> tuple[Int64, walk.Fields, int]:
    """Return the keys of a protobuf map and the fields of its values. An entry without a value has no
    fields."""
    filled = starts < ends
    starts, ends = starts[filled], ends[filled]
    entries = walk.scan(buffer, starts, ends, _bits(1, 2))
    keys = _last_varint(entries, 1, len(starts))
    value_starts, value_ends, owner = extents(entries, 2)
    begin, stop = np.zeros(len(starts), np.int64), np.zeros(len(starts), np.int64)
    begin[owner], stop[owner] = value_starts, value_ends
    fields = walk.scan(buffer, begin, stop, wanted)
    inner = _last_varint(fields, 1, len(starts))
    found = [d for d in (entries.damage, fields.damage) if d >= 0]
    return np.where(keys != 0, keys, inner), fields, min(found) if found else -1


def _lines(buffer: Bytes, starts: Int64, ends: Int64) -> tuple[tuple[RawLine, ...], int]:
    fields = walk.scan(buffer, starts, ends, _bits(1, 2, 3, 11))
    n = len(starts)
    ids, stamps = _last_varint(fields, 1, n), _last_varint(fields, 3, n)
    names, shown = _texts(buffer, fields, 2, n), _texts(buffer, fields, 11, n)
    lines = tuple(
        RawLine(id, name or display, stamp, start, end)
        for id, name, display, stamp, start, end in zip(
            ids.tolist(), names, shown, stamps.tolist(), starts.tolist(), ends.tolist(), strict=True
        )
    )
    return lines, fields.damage


def read_stats(plane: RawPlane, starts: Int64, ends: Int64) -> list[tuple[int, str, StatValue]]:
    """Return the XStats at these places: the index of the place, the stat's name and its value.

    A stat without a value, or whose name is unknown, is left out. References are resolved.
    """
    fields = walk.scan(plane.buffer, starts, ends, _bits(1, 2, 3, 4, 5, 6, 7))
    key = dict[int, int]()
    values = dict[int, StatValue]()
    for parent, number, wire, value, size in zip(*(c.tolist() for c in fields[:5]), strict=True):
        if number == 1 and wire == 0:
            key[parent] = value
        elif number == 2 and wire == 1:
            values[parent] = float(np.array(value, np.int64).view(np.float64))
        elif number == 3 and wire == 0:
            values[parent] = value & (2**64 - 1)
        elif number == 4 and wire == 0:
            values[parent] = value
        elif number == 5 and wire == 2:
            values[parent] = text(plane.buffer, value, value + size)
        elif number == 6 and wire == 2:
            values[parent] = plane.buffer[value : cut_off(value, value + size)].tobytes()
        elif number == 7 and wire == 0 and value in plane.stat_names:
            values[parent] = plane.stat_names[value]
    return [
        (parent, plane.stat_names[key.get(parent, 0)], value)
        for parent, value in values.items()
        if key.get(parent, 0) in plane.stat_names
    ]


def slots(
    plane: RawPlane, ints: Iterable[str], texts: Iterable[str]
) -> tuple[Int64, Int32, Int32, list[str], list[str]]:
    """Return look-up tables that lead the stats of this plane to their rows, the column of each row (-1: not
    wanted), and which of the wanted stats the plane has."""
    has_ints = [name for name in ints if name in plane.stat_ids]
    has_texts = [name for name in texts if name in plane.stat_ids]
    column = {name: row for row, name in enumerate([*has_ints, *has_texts])}
    keys = np.fromiter(plane.stat_names, np.int64, len(plane.stat_names))
    columns = np.array([column.get(name, -1) for name in plane.stat_texts], np.int32)
    return *lookup(keys, np.arange(len(keys), dtype=np.int32)), columns, has_ints, has_texts
