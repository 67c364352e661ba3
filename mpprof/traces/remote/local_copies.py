"""Copies of remote files: whole or not at all, kept by version, within a bound on disk."""

from __future__ import annotations

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.traces.remote import progress, timeouts
from mpprof.traces.remote.errors import is_break
from mpprof.traces.remote.listing import File, described, is_web

LARGEST_BYTES = 8 << 30
"""Of one file, also of one whose server does not say how long it is."""
BLOCK_BYTES = 16 << 20
"""Of one request to a bucket: what memory holds. What is longer may change while it is read."""

clock = time.monotonic
_CHUNK = 1 << 20
_TRIES = 2
"""For a connection that breaks, and for a file that changes while it is read: from the beginning."""
_IN_USE_S = 600
"""What was looked at as recently as this may still be read by somebody, and stays."""
_LEFT_S = 3600
"""A part that has not grown for this long belongs to a process that was killed."""
_MARK, _PART = ".version", ".part"


def is_here(file: File, target: Path) -> bool:
    """Return whether this very version was fetched; it then counts as used now, which keeps it longer."""
    path = target / file.name
    with suppress(OSError, ValueError):
        if file.version and path.is_file() and _mark(path).read_text(encoding="utf-8") == _version(file):
            os.utime(_mark(path))
            return True
    return False


def get(filesystem: Any, file: File, target: Path, place: str) -> None:
    """Fetch one file. It appears whole or not at all.

    Raises UnreadableError where the connection ends before the file does, the disk is too small, or the file
    changes again while it is read; and what the filesystem raises.
    """
    path = target / file.name
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in reversed(range(_TRIES)):
        part = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_PART}")
        try:
            total = _copy(filesystem, file, part, place)
            # A log only grows: it is taken as long as it was.
            if total > BLOCK_BYTES and not file.name.endswith(".jsonl"):
                before, file = file, described(filesystem, file.path, file.name)
                if file != before:
                    continue
            if file.modified_unix_s is not None:
                with suppress(OSError, OverflowError):
                    os.utime(part, (file.modified_unix_s, file.modified_unix_s))
            _mark(path).unlink(missing_ok=True)
            os.replace(part, path)
            _mark(path).write_text(_version(file), encoding="utf-8")
            return
        except Exception as error:
            if not left or not is_break(error):
                raise
        finally:
            part.unlink(missing_ok=True)
    raise UnreadableError("changes while it is read", where=place, next="Wait until it is written")


def _copy(filesystem: Any, file: File, part: Path, place: str) -> int:
    most = min(LARGEST_BYTES, max(0, shutil.disk_usage(part.parent).free - (64 << 20)))
    total, since_s, before = 0, clock(), 0
    with part.open("xb") as copy, progress.fetching(place, file.size) as tell:
        tell(0)
        for block in _blocks(filesystem, file) if (file.size or 0) <= most else ():
            total += len(block)
            if total > most:
                break
            copy.write(block)
            tell(total)
            if (took_s := clock() - since_s) >= timeouts.SLOW_S:
                if total - before < timeouts.LEAST_BYTES_PER_S * took_s:
                    raise UnreadableError(
                        f"comes too slowly: {total - before:,} bytes in {took_s:.0f} s", where=place,
                        next="Try again, or copy the file here by other means",
                    )  # fmt: skip
                since_s, before = clock(), total
    if max(total, file.size or 0) > most:
        raise UnreadableError(
            f"is longer than the {most >> 20:,} MiB that may be fetched to this disk", where=place,
            next="Set MPPROF_CACHE to a larger disk, or copy the file here if it is a trace",
        )  # fmt: skip
    if file.size is not None and total < file.size:
        raise UnreadableError(
            f"the connection ended at byte {total:,} of {file.size:,}", where=place, next="Try again"
        )
    return total


def _blocks(filesystem: Any, file: File) -> Iterator[bytes]:
    """Yield the file's bytes: over HTTP as one answer, from a bucket block by block."""
    if is_web(file.path) or file.size is None:
        with filesystem.open(file.path, "rb", block_size=0) as source:
            while block := source.read(_CHUNK):
                yield block
        return
    at = 0
    options = {"block_size": BLOCK_BYTES, "cache_type": "none", "size": file.size}
    with filesystem.open(file.path, "rb", **options) as source:
        # No more than there is: gcsfs asks in parallel for what lies behind the end, too.
        most_s = timeouts.SLOW_S + BLOCK_BYTES / timeouts.LEAST_BYTES_PER_S
        while block := timeouts.within(partial(source.read, min(BLOCK_BYTES, file.size - at)), most_s):
            yield block
            at += len(block)


def _mark(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MARK}")


def _version(file: File) -> str:
    return f"{file.size}|{file.version}"


def keep_only(target: Path, names: set[str]) -> None:
    """Remove what no longer lies there."""
    for path in list(target.rglob("*")):
        name = path.relative_to(target).as_posix()
        if name not in names and not path.name.endswith((_MARK, _PART)) and path.is_file():
            path.unlink(missing_ok=True)
            _mark(path).unlink(missing_ok=True)


def evict(folder: Path, limit_bytes: int) -> None:
    """Remove what was used longest ago until the rest is below the limit, and what killed processes left.

    What was used in the last ten minutes stays: another process may be reading it.
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
    total = sum(size for _, size, _ in copies)
    for used, size, copy in sorted(copies):
        if total <= limit_bytes or now - used < _IN_USE_S:
            return
        copy.unlink(missing_ok=True)
        _mark(copy).unlink(missing_ok=True)
        total -= size
