"""Reading files of JSON lines that a process may still be writing, or was killed while writing."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.regular import open_regular
from mpprof.store.formats import upgrade, version_of

Record = dict[str, Any]

BLOCK_BYTES = 8 << 20
LONGEST_LINE_BYTES = 1 << 20
"""Our lines hold some hundred bytes; one that goes on for longer is damage and is skipped."""


@dataclass
class Faults:
    """What was not whole in one file."""

    path: Path
    torn_at: int | None = None  # byte at which an unfinished last line begins
    bad_lines: int = 0
    first_bad_at: int | None = None
    empty: bool = False
    missing: bool = False
    notes: list[str] = field(default_factory=list)

    def bad(self, at: int, count: int = 1) -> None:
        self.bad_lines += count
        if self.first_bad_at is None:
            self.first_bad_at = at

    def warnings(self) -> tuple[str, ...]:
        said = list(self.notes)
        if self.empty:
            said.append(f"{self.path}: empty; nothing was recorded before the process ended")
        if self.bad_lines:
            lines = "1 line" if self.bad_lines == 1 else f"{self.bad_lines} lines"
            were = "was" if self.bad_lines == 1 else "were"
            said.append(
                f"{self.path}: {lines} could not be read and {were} skipped, "
                f"the first at byte {self.first_bad_at}"
            )
        if self.bad_lines >= limits.MOST_BAD_LINES:
            said.append(f"{self.path}: too many damaged lines: what follows them was not read")
        if self.torn_at is not None:
            said.append(
                f"{self.path}: the last line is cut off at byte {self.torn_at} and was dropped; "
                "the process was killed or is still writing"
            )
        return tuple(said)


def read_blocks(
    path: Path, family: str, faults: Faults, most_bytes: int | None = None
) -> Iterator[list[Record]]:
    """Yield the records of a file, block by block and in the newest version of `family`; only those at the
    beginning and the end of a file that holds more than `most_bytes`, or more than `limits.MOST_LINES` lines.

    The first line is the schema. Damage is written into `faults` and never raised; raised are
    `UnreadableError` where the file cannot be opened or is not mpprof's own, and `TooNewError`.
    """
    try:
        with open_regular(path) as file:
            yield from _read_blocks(file, path, family, faults, most_bytes)
    except FileNotFoundError:
        faults.missing = True
    except OSError as error:
        raise UnreadableError(
            f"cannot be read: {error.strerror or error}", where=str(path), next="Check its permissions"
        ) from error


def _read_blocks(
    file: Any, path: Path, family: str, faults: Faults, most_bytes: int | None
) -> Iterator[list[Record]]:
    version: int | None = None
    at, rest, skipping = 0, b"", False  # `at`: the byte at which `rest` begins
    for block, end in _blocks(file, faults, most_bytes):
        at = end - len(block) - len(rest)
        body, newline, tail = block.rpartition(b"\n")
        if not newline:
            if not skipping:
                rest += block
                if len(rest) > LONGEST_LINE_BYTES + BLOCK_BYTES:
                    if version is None:
                        version = _version(rest, path, family)
                    faults.bad(at)
                    rest, skipping = b"", True
            continue
        whole, start = rest + body, at
        at, rest = end - len(tail), tail
        if skipping:  # the end of a line that was given up
            whole, skipping = whole.partition(b"\n")[2], False
        if version is None:
            first, _, whole = whole.partition(b"\n")
            version = _version(first, path, family)
            start += len(first) + 1
        if whole:
            yield [upgrade(record, family, version) for record in parse(whole, start, faults)]
    if version is None:
        faults.empty = not rest
        if rest and not rest.startswith(b'{"schema"'[: len(rest)]):
            _version(rest, path, family)
    if rest:
        faults.torn_at = at


def _blocks(file: Any, faults: Faults, most_bytes: int | None) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of a file, each block with the byte at which it ends. Where the file holds more than
    `most_bytes`, yield half of them from its beginning and half from its end, each of whole lines; after
    `limits.MOST_LINES`, or `limits.LONGEST_DAMAGE_BYTES` without the end of a line, yield only its last
    block, which tells how the run ended."""
    size = os.fstat(file.fileno()).st_size
    if most_bytes is not None and size > most_bytes:
        head = file.read(most_bytes // 2)
        head = head[: head.rfind(b"\n") + 1]
        yield head, len(head)
        file.seek(size - most_bytes // 2)
        file.readline()  # the rest of a line that begins before
    count = line = 0  # lines so far, and bytes since the last of them ended
    while block := file.read(BLOCK_BYTES):
        count, last = count + block.count(b"\n"), size - BLOCK_BYTES
        end = file.tell()
        newline = block.rfind(b"\n")
        line = line + len(block) if newline < 0 else len(block) - newline - 1
        if (count < limits.MOST_LINES and line < limits.LONGEST_DAMAGE_BYTES) or end >= last:
            yield block, end
            continue
        file.seek(last)
        if newline < 0:  # the last block begins within the line that was given up, or within another
            why = f"a line of more than {limits.LONGEST_DAMAGE_BYTES:,} bytes"
        else:
            why = f"more than {limits.MOST_LINES:,} lines"
            whole = block[: newline + 1]
            end += len(whole) - len(block)
            yield whole, end
            file.readline(LONGEST_LINE_BYTES)  # the rest of a line that begins before
        faults.notes.append(
            f"{faults.path}: {why}: bytes {end:,} to {file.tell():,} of {size:,} were not read"
        )
        yield file.read(BLOCK_BYTES), file.tell()
        break


def _version(first: bytes, path: Path, family: str) -> int:
    try:
        record = json.loads(first)
    except (ValueError, RecursionError):
        record = None
    return version_of(record.get("schema") if isinstance(record, dict) else None, family, str(path))


def parse(whole: bytes, start: int, faults: Faults) -> list[Record]:
    """Return the objects of whole lines; `start` is the byte in the file where the first one begins."""
    try:
        # One call for all lines is four times as fast as one for each.
        records = json.loads(b"[" + whole.replace(b"\n", b",") + b"]")
        if len(records) == whole.count(b"\n") + 1 and set(map(type, records)) == {dict}:
            return records  # type: ignore[no-any-return]
    except (ValueError, RecursionError):
        pass
    return list(_parse_each(whole.split(b"\n"), start, faults))


def _parse_each(lines: list[bytes], at: int, faults: Faults) -> Iterator[Record]:
    for text in lines:
        if faults.bad_lines >= limits.MOST_BAD_LINES:
            break
        if not text.strip():  # millions of them would each raise and catch an error
            at += len(text) + 1
            continue
        try:
            record = json.loads(text) if len(text) <= LONGEST_LINE_BYTES else None
        except (ValueError, RecursionError):
            record = None
        if isinstance(record, dict):
            yield record
        else:
            faults.bad(at)
        at += len(text) + 1
