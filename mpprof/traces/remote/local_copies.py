"""Copies of remote files: fetched in ranges, whole or not at all, kept by version, within a bound on disk."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from mpprof.errors import UnreadableError
from mpprof.traces.common import lazy_fetch
from mpprof.traces.remote import timeouts
from mpprof.traces.remote.file import File, again

UNSIZED_BYTES = 8 << 30
"""Of a file whose server does not say how long it is."""

BLOCK_BYTES = 16 << 20
"""Of one request, where the server gives ranges: what a broken connection loses, and what memory holds."""

_FIRST_BYTES = 1 << 20
"""Of the first request of several; each asks for twice as much as the one before, if that came fast."""
_CHUNK = 1 << 20
_END = 4096
"""Bytes at the end of a log that are compared before only what was added is fetched."""
_TRIES = 3
"""For each block, and for a file that changes while it is read."""
_IN_USE_S = 600
"""What was looked at as recently as this may still be read by somebody, and stays."""
_LEFT_S = 3600
"""A part that has not grown for this long belongs to a process that was killed."""
_DAY_S = 86_400
_MARK, _PART = ".version", ".part"


class _ChangedError(Exception):
    """The file there is no longer the one whose reading began."""


def is_here(file: File, target: Path) -> bool:
    """Return whether this very version was fetched."""
    path = target / file.name
    return bool(file.version) and path.is_file() and _text(_mark(path)) == _version(file)


def used(file: File, target: Path) -> None:
    """Count the copy as used now, which keeps it longer."""
    with suppress(OSError):
        os.utime(_mark(target / file.name))


def stand_in(file: File, target: Path) -> None:
    """Create a file of the right name, size and time without its bytes, for `lazy_fetch`.

    What is there already stays, an older version or one that another process has just completed: it gets its
    bytes, and all of them at once, when it is read.
    """
    path = target / file.name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with suppress(FileExistsError), path.open("xb") as empty:
        empty.truncate(file.size)
    _set_time(path, file)


def get(filesystem: Any, file: File, target: Path, place: str) -> None:
    """Fetch one file. It appears whole or not at all.

    Raises UnreadableError where the connection ends before the file does, the disk is too small, or the file
    changes again and again while it is read.
    """
    path = target / file.name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for _ in range(_TRIES):
        part = _part(path)
        try:
            _copy(filesystem, file, path, part, place)
            _place(part, path, file)
            _mark(path).write_text(_version(file), encoding="utf-8")
        except _ChangedError:
            file = again(filesystem, file)
            continue
        finally:
            part.unlink(missing_ok=True)
        return
    raise UnreadableError("changes while it is read", where=place, next="Wait until it is written")


def _copy(filesystem: Any, file: File, path: Path, part: Path, place: str) -> None:
    free = shutil.disk_usage(part.parent).free - (64 << 20)
    if (file.size or 0) > free:
        raise UnreadableError(
            f"{(file.size or 0) >> 20} MiB do not fit on this disk", where=place,
            next="Set MPPROF_CACHE to a larger disk",
        )  # fmt: skip
    with part.open("xb") as copy, lazy_fetch.fetching(place, file.size) as tell:
        tell(0)
        total = _known(filesystem, file, path, copy)
        for block in _blocks(filesystem, file, total):
            total += len(block)
            if total > free:
                raise UnreadableError("does not fit on this disk", where=place)
            if file.size is None and total > UNSIZED_BYTES:
                raise UnreadableError(
                    f"goes on for more than {UNSIZED_BYTES >> 30} GiB, and the server states no size",
                    where=place, next="Copy it to this machine if it is a trace",
                )  # fmt: skip
            copy.write(block)
            tell(total)
    if file.size is not None and total < file.size:
        raise UnreadableError(
            f"the connection ended at byte {total:,} of {file.size:,}", where=place, next="Try again"
        )
    # One request gives one version. A log that only grows is taken as long as it was.
    if total > BLOCK_BYTES and not file.name.endswith(".jsonl"):
        _check_same(filesystem, file)


def _known(filesystem: Any, file: File, path: Path, copy: BinaryIO) -> int:
    """Return how many bytes of a log that only grows were fetched before: they are copied if the earlier end
    is still found at its place."""
    with suppress(OSError, ValueError):  # nothing was fetched; the server gives no ranges
        size = path.stat().st_size
        if file.name.endswith(".jsonl") and 0 < size < (file.size or 0):
            kept = path.read_bytes()
            end = kept[-_END:]
            with _ranged(filesystem, file) as source:
                source.seek(size - len(end))
                if source.read(len(end)) == end:
                    return copy.write(kept)
    return 0


def _check_same(filesystem: Any, file: File) -> None:
    if again(filesystem, file) != file:
        raise _ChangedError


def _blocks(filesystem: Any, file: File, at: int) -> Iterator[bytes]:
    """Yield the file's bytes from a position on: in ranges where the server gives them, else in one piece."""
    if file.size is None or (at == 0 and not _gives_ranges(filesystem, file)):
        yield from _stream(filesystem, file)
        return
    size = BLOCK_BYTES if file.size <= BLOCK_BYTES else min(BLOCK_BYTES, _FIRST_BYTES)
    with _ranged(filesystem, file) as source:
        while at < file.size:
            asked_s = time.monotonic()
            block = _block(filesystem, source, file, at, min(size, file.size - at))
            if not block:
                return
            if time.monotonic() - asked_s < 1:
                size = min(BLOCK_BYTES, 2 * size)
            yield block
            at += len(block)


def _ranged(filesystem: Any, file: File) -> Any:
    """Return the file opened so that each read is one request for exactly these bytes."""
    return filesystem.open(file.path, "rb", block_size=BLOCK_BYTES, cache_type="none", size=file.size)


def _gives_ranges(filesystem: Any, file: File) -> bool:
    """Return whether the server gives ranges: an HTTP server may ignore a range and send everything, which a
    request for the second byte shows."""
    if file.size is None or file.size <= BLOCK_BYTES or not file.path.startswith(("http://", "https://")):
        return True
    with _ranged(filesystem, file) as source:
        try:
            source.seek(1)
            return len(source.read(1)) == 1
        except ValueError:
            return False


def _block(filesystem: Any, source: Any, file: File, at: int, size: int) -> bytes:
    """Return one request's bytes; a connection that breaks is tried again, without the bytes that came
    before, and a silent one is tried again once."""
    silent = False
    for left in reversed(range(_TRIES)):
        try:
            source.seek(at)
            return bytes(source.read(size))
        except Exception as error:
            if type(error).__name__ == "FileExpired":  # s3fs: another ETag
                raise _ChangedError from error
            waited = timeouts.is_timeout(error)
            if not left or (silent and waited) or not (waited or is_break(error)):
                raise
            silent = waited
            _check_same(filesystem, file)
    raise AssertionError


def is_break(error: BaseException) -> bool:
    """Return whether the connection broke, by the errors of each library behind fsspec; False where the
    server refused."""
    kinds = {kind.__name__ for kind in type(error).__mro__}
    broken = {"ClientPayloadError", "ServerDisconnectedError", "ConnectionResetError",
              "IncompleteReadError", "ResponseStreamingError"}  # fmt: skip
    return bool(kinds & broken)


def first_bytes(filesystem: Any, file: File, size: int) -> bytes:
    """Return at most `size` bytes from the file's beginning, and request no more; fewer where the file
    ends."""
    if not file.path.startswith(("http://", "https://")):
        with _ranged(filesystem, file) as source:
            return bytes(source.read(size if file.size is None else min(size, file.size)))
    found = bytearray()
    headers = {"Range": f"bytes=0-{size - 1}"}
    # As a stream, because a server may ignore the range and send everything.
    with filesystem.open(file.path, "rb", block_size=0, headers=headers) as source:
        while len(found) < size and (chunk := source.read(size - len(found))):
            found += chunk
    return bytes(found)


def _stream(filesystem: Any, file: File) -> Iterator[bytes]:
    with filesystem.open(file.path, "rb", block_size=0) as source:
        while chunk := source.read(_CHUNK):
            yield chunk


def _place(part: Path, path: Path, file: File) -> None:
    _set_time(part, file)
    _mark(path).unlink(missing_ok=True)
    os.replace(part, path)


def _set_time(path: Path, file: File) -> None:
    if file.modified_unix_s is not None:
        with suppress(OSError, OverflowError):
            os.utime(path, (file.modified_unix_s, file.modified_unix_s))


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MARK}")


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PART}")


def _version(file: File) -> str:
    return f"{file.size}|{file.version}"


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def keep_only(target: Path, names: set[str]) -> None:
    """Remove what no longer lies there."""
    for path in list(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if name not in names and not path.name.endswith((_MARK, _PART)) and path.is_file():
            lazy_fetch.forget(path)
            path.unlink(missing_ok=True)
            _mark(path).unlink(missing_ok=True)


def evict(folder: Path, limit_bytes: int) -> None:
    """Remove what was used longest ago until the rest is below the limit, and what killed processes left.

    What was used in the last ten minutes stays: another process may be reading it. Names without bytes go
    after a day; they come again with the next listing.
    """
    now = time.time()
    copies: list[tuple[float, int, Path]] = []
    for path in folder.rglob("*"):
        with suppress(OSError):
            if path.name.endswith(_PART):
                if now - path.stat().st_mtime > _LEFT_S:
                    path.unlink()
            elif path.name.endswith(_MARK):
                copy = path.with_name(path.name[1:].removesuffix(_MARK))
                copies.append((path.stat().st_mtime, copy.stat().st_size, copy))
            elif path.is_file() and not _mark(path).exists() and now - path.stat().st_ctime > _DAY_S:
                path.unlink()
    total = sum(size for _, size, _ in copies)
    for used, size, copy in sorted(copies):
        if total <= limit_bytes or now - used < _IN_USE_S:
            return
        copy.unlink(missing_ok=True)
        _mark(copy).unlink(missing_ok=True)
        total -= size
