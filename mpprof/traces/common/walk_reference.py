"""The walk over the protobuf wire format, in plain Python: what the compiled walk does, to be read.

It is the oracle of the tests and what runs where no extension could be built. Both give identical columns.

The wire format (protobuf.dev/programming-guides/encoding): a message is a row of fields, each a varint tag
`number << 3 | wire` and a value: wire 0 a varint, 1 eight bytes, 2 a length and that many bytes, 5 four
bytes. Everything else (groups, number 0, a varint of more than ten bytes, a length past the end of the
message) is damage: the rest of that message is not read, and the byte is reported.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from mpprof.model.arrays import Bytes, Int8, Int32, Int64

Field = tuple[int, int, int, int]  # number, wire, value or start, size (-1 but for wire 2)

CALLS = 4
"""Grows with the arguments and results of `scan`, `fields` and `events`, here and in the compiled walk."""

SHORTEST_EVENT = 2
"""Bytes of an event that names anything; one with fewer is damage. So the columns of an event, at most some
200 bytes, stay within the stated multiple of what it takes in the file."""

LIMIT_PS = 1 << 61
"""Offsets and durations are clamped to it, so that no sum overflows."""

_MASK_64 = (1 << 64) - 1


class Fields(NamedTuple):
    """The fields of several messages, one row each, in the order of the file.

    `value` is the number of a varint or fixed field (as signed 64 bits); of a length-delimited one the
    start of its payload, and `size` its length (-1 for the others). A payload that passes the end of its
    message is given with what is there, and is the last row of that message. `damage` is the first damaged
    byte, -1 if there is none.
    """

    parent: Int32  # row of the message in `starts`
    number: Int32
    wire: Int8
    value: Int64
    size: Int64
    damage: int


class EventColumns(NamedTuple):
    """The events of the lines of one plane, in the order of the file.

    Line m holds the rows `bounds[m]:bounds[m + 1]`. Times are whole nanoseconds from the line's timestamp;
    both ends are rounded down, so that events which touch still do.
    """

    bounds: Int64  # one more than lines
    metadata: Int32  # row of the event's metadata, -1 unknown
    start_ns: Int64
    duration_ns: Int64  # >= 0
    ints: Int64  # (wanted integer stats, events); -1 absent
    texts: Int32  # (wanted text stats, events); -1 absent, >= 0 a row of the stat table, -2 - r text r
    text_start: Int64  # distinct texts that stand in the events themselves: where
    text_size: Int64
    marked_event: Int64  # rows of events whose metadata was marked, and their extent in the file
    marked_start: Int64  # with the tag: each can be walked again as a line of one event
    marked_end: Int64
    damage: int  # first damaged byte, -1
    damaged: int  # events (or rests of lines) that were left out
    negative: int  # durations below zero, taken as zero
    aggregated: int  # events that count occurrences and have no time, left out


class _Damage(Exception):
    """At this byte the message cannot be read on. `field` is set where only its payload is cut."""

    def __init__(self, at: int, field: tuple[int, int, int, int] | None = None) -> None:
        self.at, self.field = at, field


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    result = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        result |= (byte & 0x7F) << shift
        if byte < 0x80:
            return result & _MASK_64, at
        shift += 7
    raise _Damage(at)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _field(data: memoryview, begin: int, end: int) -> tuple[int, int, int, int, int]:
    """Return number, wire type, value, size and the byte after the field. Raises `_Damage(begin)`."""
    try:
        tag, at = _varint(data, begin, end)
        number, wire = tag >> 3, tag & 7
        if not 0 < number <= 0x1FFFFFFF:
            raise _Damage(begin)
        if wire == 0:
            value, at = _varint(data, at, end)
            return number, wire, _signed(value), -1, at
        if wire == 2:
            size, at = _varint(data, at, end)
            if size > end - at:
                raise _Damage(begin, (number, wire, at, end - at))
            return number, wire, at, size, at + size
        if wire in (1, 5):
            width = 8 if wire == 1 else 4
            if end - at < width:
                raise _Damage(begin)
            return number, wire, _signed(int.from_bytes(data[at : at + width], "little")), -1, at + width
    except _Damage as damage:
        raise _Damage(begin, damage.field) from None
    raise _Damage(begin)


def _check_extents(size: int, starts: Int64, ends: Int64) -> None:
    if len(starts) != len(ends):
        raise ValueError("starts and ends differ in length")
    for i, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start < 0 or end < start or end > size:
            raise ValueError(f"message {i} lies outside the buffer")


def scan(buffer: Bytes, starts: Int64, ends: Int64, wanted: int) -> Fields:
    """Return all fields of the messages `buffer[starts[m]:ends[m]]` whose number has its bit set in
    `wanted`."""
    _check_extents(len(buffer), starts, ends)
    data = memoryview(buffer)  # type: ignore[arg-type]
    rows: list[tuple[int, int, int, int, int]] = []
    first_damage = -1
    for m, (at, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        while at < end:
            try:
                number, wire, value, size, at = _field(data, at, end)
            except _Damage as damage:
                first_damage = damage.at if first_damage < 0 else first_damage
                if damage.field and damage.field[0] < 64 and wanted >> damage.field[0] & 1:
                    rows.append((m, *damage.field))
                break
            if number < 64 and wanted >> number & 1:
                rows.append((m, number, wire, value, size))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    return Fields(
        columns[0].astype(np.int32),
        columns[1].astype(np.int32),
        columns[2].astype(np.int8),
        columns[3].copy(),
        columns[4].copy(),
        first_damage,
    )


def fields(buffer: Bytes, start: int, end: int) -> list[Field]:
    """Return all fields with a number below 64 of one message, `buffer[start:end]`, up to a damaged one."""
    if start < 0 or end < start or end > len(buffer):
        raise ValueError("message 0 lies outside the buffer")
    data = memoryview(buffer)  # type: ignore[arg-type]
    found: list[Field] = []
    at = start
    while at < end:
        try:
            *field, at = _field(data, at, end)
        except _Damage as damage:
            field, at = list(damage.field or ()), end
        if field and field[0] < 64:
            found.append((field[0], field[1], field[2], field[3]))
    return found


def _look_up(key: int, keys: Int64, rows: Int32) -> int:
    """Return the row of a key: directly where `keys` is empty (`rows` is indexed by key), else by
    bisection."""
    if not len(keys):
        return int(rows[key]) if 0 <= key < len(rows) else -1
    at = int(np.searchsorted(keys, key))
    return int(rows[at]) if at < len(keys) and keys[at] == key else -1


def _clamp(ps: int) -> int:
    return max(-LIMIT_PS, min(ps, LIMIT_PS))


_INT, _REF, _TEXT = 1, 2, 3


def _stat(data: memoryview, at: int, end: int) -> tuple[int, int, int, int]:
    """Return an XStat: its metadata id, the kind of its value (0: neither number nor text), the value or its
    start, and the size."""
    key = kind = value = size = 0
    while at < end:
        number, wire, got, length, at = _field(data, at, end)
        if wire == 0 and number == 1:
            key = got
        elif wire == 0 and number in (3, 4):
            kind, value = _INT, got
        elif wire == 0 and number == 7:
            kind, value = _REF, got
        elif wire == 2 and number == 5:
            kind, value, size = _TEXT, got, length
    return key, kind, value, size


class _Stats:
    """The stats that are wanted of events, and the distinct texts that stand in the events themselves."""

    def __init__(self, keys: Int64, rows: Int32, slots: Int32, ints: int, texts: int) -> None:
        self.keys, self.rows, self.slots = keys, rows, slots
        self.ints, self.texts = ints, texts
        self.extents: list[tuple[int, int]] = []
        self._seen: dict[bytes, int] = {}

    def read(self, data: memoryview, at: int, end: int, into: _Event) -> None:
        """Read one stat; one that is wanted goes to its column."""
        key, kind, value, size = _stat(data, at, end)
        known = _look_up(key, self.keys, self.rows) if kind else -1
        slot = int(self.slots[known]) if 0 <= known < len(self.slots) else -1
        if 0 <= slot < self.ints:
            if kind == _INT:
                into.ints[slot] = value
        elif self.ints <= slot < self.ints + self.texts:
            if kind == _REF:
                into.texts[slot - self.ints] = _look_up(value, self.keys, self.rows)
            elif kind == _TEXT:
                into.texts[slot - self.ints] = -2 - self._row(bytes(data[value : value + size]), value)

    def _row(self, text: bytes, at: int) -> int:
        row = self._seen.setdefault(text, len(self._seen))
        if row == len(self.extents):
            self.extents.append((at, len(text)))
        return row


class _Event:
    """An XEvent as it stands in the file."""

    def __init__(self, ints: int, texts: int) -> None:
        self.metadata = self.offset_ps = self.duration_ps = 0
        self.aggregated = False
        self.ints, self.texts = [-1] * ints, [-1] * texts


def _event(data: memoryview, at: int, end: int, stats: _Stats) -> _Event:
    """Return the event in these bytes. Raises `_Damage`."""
    event = _Event(stats.ints, stats.texts)
    while at < end:
        number, wire, got, length, at = _field(data, at, end)
        if wire == 2 and number == 4:
            stats.read(data, got, got + length, event)
        elif wire == 0 and number == 1:
            event.metadata = got
        elif wire == 0 and number == 2:
            event.offset_ps = got
        elif wire == 0 and number == 3:
            event.duration_ps = got
        elif wire == 0 and number == 5:
            event.aggregated = True
    return event


def events(
    buffer: Bytes,
    starts: Int64,
    ends: Int64,
    metadata_keys: Int64,
    metadata_rows: Int32,
    stat_keys: Int64,
    stat_rows: Int32,
    stat_slots: Int32,
    ints: int,
    texts: int,
    marked: Bytes,
) -> EventColumns:
    """Read the events of the lines at `buffer[starts[m]:ends[m]]`.

    `metadata_keys`/`metadata_rows` lead from an event's metadata id to its row, `stat_keys`/`stat_rows`
    from a stat's. `stat_slots` has the column of each row of the stats, -1 for none: the first `ints` are
    integers, the next `texts` text. The extents of events whose metadata row has a non-zero `marked` are
    given as well, tag included, to read more of them: each may be given as a line of its own.
    """
    _check_extents(len(buffer), starts, ends)
    data = memoryview(buffer)  # type: ignore[arg-type]
    found = _Events(
        _Stats(stat_keys, stat_rows, stat_slots, ints, texts), metadata_keys, metadata_rows, marked
    )
    bounds = [0]
    for at, end in zip(starts.tolist(), ends.tolist(), strict=True):
        found.read_line(data, at, end)
        bounds.append(len(found.rows))
    return found.columns(np.array(bounds, np.int64), ints, texts)


class _Events:
    """The events of the lines read so far, and what was wrong with those that are left out."""

    def __init__(self, stats: _Stats, metadata_keys: Int64, metadata_rows: Int32, marked: Bytes) -> None:
        self.rows: list[tuple[int, int, int]] = []  # metadata row, start and duration in ns
        self._ints: list[list[int]] = []
        self._texts: list[list[int]] = []
        self._marks: list[tuple[int, int, int]] = []
        self._stats, self._marked = stats, marked
        self._keys, self._metadata_rows = metadata_keys, metadata_rows
        self._first_damage, self._damaged, self._negative, self._aggregated = -1, 0, 0, 0

    def read_line(self, data: memoryview, at: int, end: int) -> None:
        """Read the events of a line; a field that cannot be read ends it."""
        while at < end:
            tag = at
            try:
                number, wire, begin, size, at = _field(data, at, end)
            except _Damage as damage:
                self._damage(damage.at)
                return
            if number != 4 or wire != 2:
                continue
            if size < SHORTEST_EVENT:
                self._damage(begin)
                continue
            try:
                event = _event(data, begin, begin + size, self._stats)
            except _Damage as damage:
                self._damage(damage.at)
                continue
            if event.aggregated:
                self._aggregated += 1
            else:
                self._keep(event, tag, begin + size)

    def _damage(self, at: int) -> None:
        self._first_damage = at if self._first_damage < 0 else self._first_damage
        self._damaged += 1

    def _keep(self, event: _Event, tag: int, end: int) -> None:
        row = _look_up(event.metadata, self._keys, self._metadata_rows)
        offset, duration = _clamp(event.offset_ps), _clamp(event.duration_ps)
        self._negative += duration < 0
        start_ns = offset // 1000
        if 0 <= row < len(self._marked) and self._marked[row]:
            self._marks.append((len(self.rows), tag, end))
        self.rows.append((row, start_ns, _clamp(offset + max(0, duration)) // 1000 - start_ns))
        self._ints.append(event.ints)
        self._texts.append(event.texts)

    def columns(self, bounds: Int64, ints: int, texts: int) -> EventColumns:
        """Return all that was read; `bounds`: the first event of each line, and the end."""
        count = len(self.rows)
        columns = np.array(self.rows, np.int64).reshape(-1, 3).T
        where = np.array(self._stats.extents, np.int64).reshape(-1, 2).T
        mark = np.array(self._marks, np.int64).reshape(-1, 3).T
        return EventColumns(
            bounds,
            columns[0].astype(np.int32),
            columns[1].copy(),
            columns[2].copy(),
            np.array(self._ints, np.int64).reshape(count, ints).T.copy(),
            np.array(self._texts, np.int32).reshape(count, texts).T.copy(),
            where[0].copy(),
            where[1].copy(),
            mark[0].copy(),
            mark[1].copy(),
            mark[2].copy(),
            self._first_damage,
            self._damaged,
            self._negative,
            self._aggregated,
        )
