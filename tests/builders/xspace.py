"""Writes xplane files byte by byte, the way the collectors lay them out, with no protobuf library.

The field numbers are those of tsl/profiler/protobuf/xplane.proto. Nothing here imports mpprof, so that a
reader's mistake cannot hide in the writer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

StatValue = int | float | str | bytes


@dataclass(frozen=True)
class Signed:
    """A number that is written as int64, as the host tracer does with all of an event's own numbers."""

    value: int


@dataclass(frozen=True)
class Ref:
    """A string stat that is written as a reference into the plane's stat metadata."""

    text: str


_SHORT = tuple(bytes((number,)) for number in range(0x80))
"""Most of the numbers in a file are tags, ids and lengths of one byte."""


def varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return _SHORT[value]
    value &= (1 << 64) - 1  # negative int64: ten bytes of two's complement
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def tagged_varint(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def tagged_bytes(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def tagged_double(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


@dataclass
class Line:
    """One line (a thread or a stream) of a plane. Times are picoseconds from `timestamp_ns`."""

    plane: Plane
    id: int
    name: str
    timestamp_ns: int = 0
    events: list[bytes] = field(default_factory=list)

    def event(
        self,
        name: str,
        start_ns: float,
        duration_ns: float,
        stats: dict[str, StatValue | Ref | Signed] | None = None,
        display: str = "",
    ) -> None:
        start_ps = round(start_ns * 1000) - self.timestamp_ns * 1000
        body = tagged_varint(1, self.plane.event_id(name, display))
        body += tagged_varint(2, start_ps)
        body += tagged_varint(3, max(0, round((start_ns + duration_ns) * 1000) - round(start_ns * 1000)))
        for key, value in (stats or {}).items():
            body += tagged_bytes(4, self.plane.stat(key, value))
        self.events.append(tagged_bytes(4, body))

    def to_bytes(self) -> bytes:
        head = tagged_varint(1, self.id) + tagged_bytes(2, self.name.encode())
        return head + tagged_varint(3, self.timestamp_ns) + b"".join(self.events)


@dataclass
class Plane:
    """One device or host. Event and stat names are interned as they are used."""

    id: int
    name: str
    lines: list[Line] = field(default_factory=list)
    stats: dict[str, StatValue | Ref | Signed] = field(default_factory=dict)
    _events: dict[tuple[str, str], int] = field(default_factory=dict)
    _stats: dict[str, int] = field(default_factory=dict)

    def line(self, id: int, name: str, timestamp_ns: int = 0) -> Line:
        self.lines.append(Line(self, id, name, timestamp_ns))
        return self.lines[-1]

    def event_id(self, name: str, display: str = "") -> int:
        return self._events.setdefault((name, display), len(self._events) + 1)

    def stat_id(self, name: str) -> int:
        return self._stats.setdefault(name, len(self._stats) + 1)

    def stat(self, key: str, value: StatValue | Ref | Signed) -> bytes:
        head = tagged_varint(1, self.stat_id(key))
        match value:
            case Ref(text):
                return head + tagged_varint(7, self.stat_id(text))
            case Signed(number):
                return head + tagged_varint(4, number)
            case bool() | int():
                return head + tagged_varint(4 if value < 0 else 3, value)
            case float():
                return head + tagged_double(2, value)
            case str():
                return head + tagged_bytes(5, value.encode())
            case bytes():
                return head + tagged_bytes(6, value)

    def to_bytes(self) -> bytes:
        body = tagged_varint(1, self.id) + tagged_bytes(2, self.name.encode())
        body += b"".join(tagged_bytes(3, line.to_bytes()) for line in self.lines)
        stats = b"".join(tagged_bytes(6, self.stat(key, value)) for key, value in self.stats.items())
        for (name, display), id in self._events.items():
            meta = tagged_varint(1, id) + tagged_bytes(2, name.encode())
            meta += tagged_bytes(4, display.encode()) if display else b""
            body += tagged_bytes(4, tagged_varint(1, id) + tagged_bytes(2, meta))
        for name, id in self._stats.items():
            meta = tagged_varint(1, id) + tagged_bytes(2, name.encode())
            body += tagged_bytes(5, tagged_varint(1, id) + tagged_bytes(2, meta))
        return body + stats


@dataclass
class Space:
    """A whole file."""

    planes: list[Plane] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    hostnames: list[str] = field(default_factory=list)
    raw: list[bytes] = field(default_factory=list)  # planes that were written elsewhere

    def plane(self, name: str, id: int | None = None) -> Plane:
        self.planes.append(Plane(len(self.planes) if id is None else id, name))
        return self.planes[-1]

    def to_bytes(self) -> bytes:
        parts: Iterable[bytes] = (tagged_bytes(1, plane.to_bytes()) for plane in self.planes)
        texts = [tagged_bytes(2, t.encode()) for t in self.errors]
        texts += [tagged_bytes(3, t.encode()) for t in self.warnings]
        texts += [tagged_bytes(4, t.encode()) for t in self.hostnames]
        extra = [tagged_bytes(1, plane) for plane in self.raw]
        return b"".join([*parts, *extra, *texts])
