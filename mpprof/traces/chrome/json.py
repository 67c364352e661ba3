"""The events of a Chrome trace file, one by one, without holding the file or its objects in memory.

The format: "Trace Event Format" (Google), an object with `traceEvents` or a bare array of events. Text is
read through a window of a few MB: memory does not grow with the file, whatever the bytes say.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.traces.common import gzip_stream
from mpprof.traces.common.file_head import GZIP

MAX_UNPACKED = 1 << 32
MAX_RATIO = limits.UNPACKED_RATIO
"""A gzip file that unpacks to more than this many times its size is taken for a bomb."""

MAX_EVENTS = 10_000_000
"""Events that are read; each takes up to 700 bytes of memory, in whatever file."""

_CHUNK = 1 << 20
_AHEAD = 1 << 16
_MAX_EVENT = 4 << 20
_MAX_HEADER = 32 << 20
"""Characters of one event or header value; a longer one is damage."""
_MOST_HOLES = 16
"""Damaged places that are passed over before the rest is given up."""
_MOST_TRIES = 128
"""Places at which an event behind a damaged one is looked for, over the whole file."""
_MOST_HEADERS = 10_000
_KEEP_HEADER = 1 << 20
_LATEST_US = limits.LONGEST_NS // 1000
"""Times beyond it (the year 2043, where they count from 1970) are not valid."""

_SPACE = re.compile(r"[ \t\n\r,]*")
_NEXT_EVENT = re.compile(r'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args)"\s*:')
_DIGITS = re.compile(r"-?\d{1,18}")

Event = dict[str, Any]


@dataclass
class ChromeFile:
    """One pass over a file: iterate `events()` to its end, then read `header`, `damages` and `skipped`.

    Floats in events are left as their text, because absolute times need more digits than a float has
    (`nanoseconds` reads them). `skipped` counts values among the events that are not events.
    """

    path: Path
    header: dict[str, Any] = field(default_factory=dict)
    damages: list[str] = field(default_factory=list)
    skipped: int = 0

    def events(self) -> Iterator[Event]:
        """Yield every whole event in the order of the file. Raises UnreadableError for a file that is no
        trace at all."""
        with self.path.open("rb") as file:
            most = _most_events(file, self.path.stat().st_size)
            yield from _Parse(self, _Window(_chunks(file, self.path, self.damages)), most=most).run()


def nanoseconds(value: object) -> int | None:
    """Return a time in microseconds as whole nanoseconds; None where it is not a number. Exact to the
    nanosecond."""
    if isinstance(value, int):
        return value * 1000 if abs(value) < _LATEST_US else None
    if not isinstance(value, str):
        return None
    whole, _, part = value.partition(".")
    if len(part) == 3 and len(digits := whole + part) < 19 and digits.isascii() and digits.isdigit():
        return int(digits) if int(digits) < _LATEST_US * 1000 else None  # nearly all
    if part.isascii() and part.isdigit() and _DIGITS.fullmatch(whole):
        ns = int(whole) * 1000
        rest = int(part[:3].ljust(3, "0")) + (len(part) > 3 and part[3] >= "5")
        return (ns - rest if whole.startswith("-") else ns + rest) if abs(ns) < _LATEST_US * 1000 else None
    try:
        number = float(value) * 1000
    except ValueError:
        return None
    return round(number) if abs(number) < _LATEST_US * 1000 else None


# --- bytes -------------------------------------------------------------------------------------------------


def _most_events(file: BinaryIO, size: int) -> int:
    """Return how many events of the file are read; for a packed file, in proportion to its packed bytes."""
    packed = file.read(len(GZIP)) == GZIP
    file.seek(0)
    if not packed:
        return MAX_EVENTS
    return min(MAX_EVENTS, max(limits.EVENTS_OF_SMALL_PACKED, size // limits.PACKED_BYTES_OF_EVENT))


def _chunks(file: BinaryIO, path: Path, damages: list[str]) -> Iterator[bytes]:
    """Yield the file's bytes, unpacked. Raises UnreadableError for a bomb."""
    first = file.read(_CHUNK)
    if not first.startswith(GZIP):
        while first:
            yield first
            first = file.read(_CHUNK)
        return
    limit = min(MAX_UNPACKED, path.stat().st_size * MAX_RATIO + (1 << 20))
    total = 0
    file.seek(0)
    for part in gzip_stream.parts(file, path, damages):
        total += len(part)
        if total > limit:
            raise UnreadableError(
                f"unpacks to more than {MAX_RATIO} times its size or {MAX_UNPACKED >> 30} GiB",
                where=str(path),
                next="If it is a trace, unpack it with gunzip and read the result",
            )
        yield part


class _Window:
    """The part of the text that is being looked at; `at` is the next character."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._before = 0  # bytes of the file before `text`
        self.text = ""
        self.at = 0
        self.ended = False

    def more(self, size: int = 1) -> bool:
        """Read on by at least `size` bytes, forgetting what lies behind; False at the end of the file."""
        if self.ended:
            return False
        chunk = next(self._chunks, b"")
        while chunk and len(chunk) < size and (following := next(self._chunks, b"")):
            chunk += following
        self.ended = not chunk
        self._before += _size(self.text[: self.at])
        # The decoder gets its end, so that half a character is not lost; it cannot fail.
        self.text = self.text[self.at :] + self._decoder.decode(chunk, final=self.ended)
        self.at = 0
        return not self.ended

    @property
    def byte(self) -> int:
        return self._before + _size(self.text[: self.at])

    @property
    def left(self) -> int:
        return len(self.text) - self.at

    def skip(self) -> str:
        """Return the next character that is neither space nor comma; "" at the end of the file."""
        while True:
            match = _SPACE.match(self.text, self.at)
            self.at = match.end() if match else self.at
            if self.at < len(self.text):
                return self.text[self.at]
            if not self.more():
                return ""


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


# --- values ------------------------------------------------------------------------------------------------


class _Damage(Exception):
    """Nothing whole stands at the window's place."""


def _nothing(_: str) -> None:
    return None


_DECODER = json.JSONDecoder(parse_float=str, parse_constant=_nothing, strict=False)
_scan: Callable[[str, int], tuple[Any, int]] = _DECODER.scan_once  # type: ignore[attr-defined]


def _value(window: _Window, limit: int) -> Any:
    """Return the value at the window's position, which moves past it. Raises _Damage."""
    while True:
        try:
            value, end = _scan(window.text, window.at)
        except (ValueError, StopIteration, RecursionError) as error:
            # Read as much again as there is, so that a value of many chunks is not tried once per chunk.
            most = window.left
            if most > limit or not _may_go_on(error, len(window.text)) or not window.more(most):
                raise _Damage from None
            continue
        # A number that ends where the window ends may go on.
        if end >= len(window.text) and isinstance(value, (int, str)) and window.more():
            continue
        window.at = end
        return value


def _may_go_on(error: Exception, size: int) -> bool:
    """Return whether more text might remove the error: an error well before the window's end does not come
    from the cut there."""
    if isinstance(error, json.JSONDecodeError):
        return error.msg.startswith("Unterminated string") or error.pos >= size - 16
    return isinstance(error, StopIteration) and isinstance(error.value, int) and error.value >= size - 16


@dataclass
class _Parse:
    file: ChromeFile
    window: _Window
    seen: int = 0
    holes: int = 0
    tries: int = 0
    given_up: bool = False  # there is more, but it is not read
    most: int = MAX_EVENTS

    def run(self) -> Iterator[Event]:
        window = self.window
        first = window.skip()
        if first == "\ufeff":
            window.at += 1
            first = window.skip()
        if first == "[":
            window.at += 1
            yield from self._list(bare=True)
        elif first == "{":
            window.at += 1
            yield from self._members()
        else:
            raise self._none("it is not a JSON object" if first else self._damage() or "the file is empty")
        if not self.seen and "traceEvents" not in self.file.header:
            raise self._none(self._damage() or "it holds no traceEvents")

    def _damage(self) -> str:
        """Return the first damage; "" means that none was found."""
        return self.file.damages[0] if self.file.damages else ""

    def _none(self, why: str) -> UnreadableError:
        schema = self.file.header.get("schema")
        if isinstance(schema, str) and schema.startswith("mpprof."):
            return UnreadableError(
                f"is a file that mpprof wrote about a run ({schema}), not the run itself",
                where=str(self.file.path),
                next="Give the log directory or the trace that it was made of",
            )
        return UnreadableError(
            f"not a Chrome trace: {why}",
            where=str(self.file.path),
            next="Give a *.json or *.json.gz that PyTorch's or TensorFlow's profiler wrote",
        )

    def _members(self) -> Iterator[Event]:
        """Yield the events among the members of the outer object; short values are kept in the header."""
        window, header = self.window, self.file.header
        for _ in range(_MOST_HEADERS):
            char = window.skip()
            if char == "}":
                self._end()
                return
            try:
                if char != '"':
                    raise _Damage
                key = _value(window, _MAX_EVENT)
                if window.skip() != ":":
                    raise _Damage
                window.at += 1
                if key == "traceEvents" and window.skip() == "[":
                    window.at += 1
                    header[key] = None
                    yield from self._list(bare=False)
                    if self.given_up:
                        return
                    continue
                window.skip()
                start = window.byte
                value = _value(window, _MAX_HEADER)
                if window.byte - start <= _KEEP_HEADER:
                    header[key] = value
            except _Damage:
                self._cut()
                return

    def _list(self, *, bare: bool) -> Iterator[Event]:
        """Yield the events up to the closing bracket, which a bare array may lack, when the recorder was
        killed."""
        window = self.window
        while True:
            char = window.skip()
            if char == "]":
                if bare:
                    self._end()
                else:
                    window.at += 1
                return
            if not char:
                if not bare:
                    self._cut()
                    self.given_up = True
                return
            try:
                value = _value(window, _MAX_EVENT)
            except _Damage:
                if not self._pass_over():
                    self.given_up = True
                    return
                continue
            if isinstance(value, dict):
                self.seen += 1
                if self.seen > self.most:
                    self.file.damages.append(
                        f"more than {self.most:,} events: those from byte {window.byte} on are left out"
                    )
                    self.given_up = True
                    return
                yield value
            else:
                self.file.skipped += 1

    def _end(self) -> None:
        """Check the end of the file at the closing bracket. What follows shows damage; a gzip file is checked
        at its own end."""
        self.window.at += 1
        if self.window.skip():
            self.file.damages.append(f"what follows the end at byte {self.window.byte} was left out")

    def _cut(self) -> None:
        self.file.damages.append(
            f"the file is cut off or damaged at byte {self.window.byte}; the intact part was read"
        )

    def _pass_over(self) -> bool:
        """Look for the next whole event behind a damaged one; False where there is none."""
        window = self.window
        start = window.byte
        self.holes += 1
        if self.holes > _MOST_HOLES:
            self.file.damages.append(
                f"damaged at byte {start}, as in many places before: the rest is left out"
            )
            return False
        window.at += 1
        while self.tries < _MOST_TRIES and window.byte - start < limits.LONGEST_DAMAGE_BYTES:
            match = _NEXT_EVENT.search(window.text, window.at)
            if match is None:
                window.at = max(window.at, len(window.text) - 64)  # a match may begin there
                if not window.more():
                    break
                continue
            window.at = match.start()
            if window.left < _AHEAD and window.more():
                continue
            self.tries += 1
            try:
                value, _ = _scan(window.text, window.at)
            except (ValueError, StopIteration, RecursionError):
                value = None
            if isinstance(value, dict) and "ph" in value:
                self.file.damages.append(f"damaged from byte {start} to {window.byte}: left out")
                return True
            window.at += 1
        self.file.damages.append(
            f"the file is cut off or damaged at byte {start}; the whole events before it were read"
        )
        return False
