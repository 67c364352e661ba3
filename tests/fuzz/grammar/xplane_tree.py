"""An xplane file as a tree that can be changed and written again: every id, reference and offset as it stands.

Field numbers: tsl/profiler/protobuf/xplane.proto. Nothing here imports mpprof.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.builders.xspace import tagged_bytes, tagged_varint, varint

DOUBLE, UINT, INT, TEXT, BYTES, REF = 2, 3, 4, 5, 6, 7
"""Numbers of XStat's values."""


@dataclass(slots=True)
class Stat:
    """`value` is a float, an int, or bytes, as `kind` says."""

    key: int
    kind: int
    value: int | float | bytes

    def to_bytes(self) -> bytes:
        head = tagged_varint(1, self.key)
        if isinstance(self.value, float):
            return head + varint(self.kind << 3 | 1) + struct.pack("<d", self.value)
        if isinstance(self.value, bytes):
            return head + tagged_bytes(self.kind, self.value)
        return head + tagged_varint(self.kind, self.value)


@dataclass(slots=True)
class Event:
    """One with `occurrences` counts how often something ran, and has no offset."""

    metadata: int
    offset_ps: int
    duration_ps: int
    stats: list[Stat] = field(default_factory=list)
    occurrences: int | None = None

    def to_bytes(self) -> bytes:
        body = tagged_varint(1, self.metadata)
        body += tagged_varint(2, self.offset_ps) if self.occurrences is None else b""
        body += tagged_varint(3, self.duration_ps)
        body += b"".join(tagged_bytes(4, stat.to_bytes()) for stat in self.stats)
        return body + (b"" if self.occurrences is None else tagged_varint(5, self.occurrences))


@dataclass(slots=True)
class Line:
    """A thread, a stream, or what a converter derived."""

    id: int
    name: str
    timestamp_ns: int = 0
    events: list[Event] = field(default_factory=list)
    display_name: str = ""

    def to_bytes(self) -> bytes:
        head = tagged_varint(1, self.id) + tagged_bytes(2, self.name.encode())
        head += tagged_varint(3, self.timestamp_ns)
        body = b"".join(tagged_bytes(4, event.to_bytes()) for event in self.events)
        return head + body + (tagged_bytes(11, self.display_name.encode()) if self.display_name else b"")


@dataclass(slots=True)
class Named:
    """An entry of a plane's table of event names."""

    name: str
    display_name: str = ""
    stats: list[Stat] = field(default_factory=list)

    def to_bytes(self, id: int) -> bytes:
        body = tagged_varint(1, id) + tagged_bytes(2, self.name.encode())
        body += tagged_bytes(4, self.display_name.encode()) if self.display_name else b""
        body += b"".join(tagged_bytes(5, stat.to_bytes()) for stat in self.stats)
        return tagged_varint(1, id) + tagged_bytes(2, body)


@dataclass(slots=True)
class Plane:
    """A device or a host. `stat_names` and `names` are its tables, by id."""

    name: str
    lines: list[Line] = field(default_factory=list)
    names: dict[int, Named] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: list[Stat] = field(default_factory=list)
    id: int = 0

    def name_id(self, name: str, display_name: str = "") -> int:
        """The id of a name, new where the table has none."""
        for id, known in self.names.items():
            if (known.name, known.display_name) == (name, display_name) and not known.stats:
                return id
        id = max(self.names, default=0) + 1
        self.names[id] = Named(name, display_name)
        return id

    def stat_id(self, name: str) -> int:
        """The id of a stat, or of a text that stats refer to."""
        for id, known in self.stat_names.items():
            if known == name:
                return id
        id = max(self.stat_names, default=0) + 1
        self.stat_names[id] = name
        return id

    def all_stats(self) -> Iterator[Stat]:
        """Every stat of the plane, of its events and of its table of names."""
        yield from self.stats
        for named in self.names.values():
            yield from named.stats
        for event in self.events():
            yield from event.stats

    def events(self) -> Iterator[Event]:
        for line in self.lines:
            yield from line.events

    def to_bytes(self) -> bytes:
        parts = [tagged_varint(1, self.id), tagged_bytes(2, self.name.encode())]
        parts += [tagged_bytes(3, line.to_bytes()) for line in self.lines]
        parts += [tagged_bytes(4, named.to_bytes(id)) for id, named in self.names.items()]
        for id, name in self.stat_names.items():
            body = tagged_varint(1, id) + tagged_bytes(2, name.encode())
            parts.append(tagged_bytes(5, tagged_varint(1, id) + tagged_bytes(2, body)))
        parts += [tagged_bytes(6, stat.to_bytes()) for stat in self.stats]
        return b"".join(parts)


@dataclass(slots=True)
class Space:
    """A whole file."""

    planes: list[Plane] = field(default_factory=list)
    hostnames: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def parts(self) -> list[bytes]:
        """The fields of the file, in any order the same message."""
        parts = [tagged_bytes(1, plane.to_bytes()) for plane in self.planes]
        for number, texts in ((2, self.errors), (3, self.warnings), (4, self.hostnames)):
            parts += [tagged_bytes(number, text.encode()) for text in texts]
        return parts

    def to_bytes(self) -> bytes:
        return b"".join(self.parts())


# --- reading -----------------------------------------------------------------------------------------------


def parse(data: bytes) -> Space:
    """The tree of a whole file."""
    space = Space()
    for number, value in _fields(data):
        if number == 1:
            space.planes.append(parse_plane(_bytes(value)))
        elif number in (2, 3, 4):
            (space.errors, space.warnings, space.hostnames)[number - 2].append(_bytes(value).decode())
    return space


def parse_plane(data: bytes) -> Plane:
    """The tree of one plane."""
    plane = Plane("")
    for number, value in _fields(data):
        if number == 1:
            plane.id = _int(value)
        elif number == 2:
            plane.name = _bytes(value).decode()
        elif number == 3:
            plane.lines.append(_line(_bytes(value)))
        elif number == 4:
            id, body = _entry(_bytes(value))
            plane.names[id] = _named(body)
        elif number == 5:
            id, body = _entry(_bytes(value))
            plane.stat_names[id] = next((_bytes(v).decode() for n, v in _fields(body) if n == 2), "")
        elif number == 6:
            plane.stats.append(_stat(_bytes(value)))
    return plane


def _entry(data: bytes) -> tuple[int, bytes]:
    found = dict(_fields(data))
    return _int(found.get(1, 0)), _bytes(found.get(2, b""))


def _named(data: bytes) -> Named:
    named = Named("")
    for number, value in _fields(data):
        if number == 2:
            named.name = _bytes(value).decode()
        elif number == 4:
            named.display_name = _bytes(value).decode()
        elif number == 5:
            named.stats.append(_stat(_bytes(value)))
    return named


def _line(data: bytes) -> Line:
    line = Line(0, "")
    for number, value in _fields(data):
        if number == 1:
            line.id = _int(value)
        elif number == 2:
            line.name = _bytes(value).decode()
        elif number == 3:
            line.timestamp_ns = _int(value)
        elif number == 4:
            line.events.append(_event(_bytes(value)))
        elif number == 11:
            line.display_name = _bytes(value).decode()
    return line


def _event(data: bytes) -> Event:
    event = Event(0, 0, 0)
    for number, value in _fields(data):
        if number == 1:
            event.metadata = _int(value)
        elif number == 2:
            event.offset_ps = _int(value)
        elif number == 3:
            event.duration_ps = _int(value)
        elif number == 4:
            event.stats.append(_stat(_bytes(value)))
        elif number == 5:
            event.occurrences = _int(value)
    return event


def _stat(data: bytes) -> Stat:
    stat = Stat(0, UINT, 0)
    for number, value in _fields(data):
        if number == 1:
            stat.key = _int(value)
        else:
            stat.kind, stat.value = number, value
    return stat


def _fields(data: bytes) -> Iterable[tuple[int, int | float | bytes]]:
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag & 7 == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value - (1 << 64 if value >> 63 else 0)
        elif tag & 7 == 1:
            yield tag >> 3, float(struct.unpack_from("<d", data, at)[0])
            at += 8
        else:
            assert tag & 7 == 2, f"wire type {tag & 7} in no xplane"
            size, at = _varint(data, at)
            yield tag >> 3, data[at : at + size]
            at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        at += 1
        if data[at - 1] < 0x80:
            return value, at
        shift += 7


def _int(value: int | float | bytes) -> int:
    assert isinstance(value, int)
    return value


def _bytes(value: int | float | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value
