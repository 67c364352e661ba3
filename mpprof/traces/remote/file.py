"""One file elsewhere, and what its server says of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.traces.formats import Known
from mpprof.traces.remote import timeouts

_STAMPS = ("ETag", "etag", "md5Hash", "crc32c", "Content-MD5", "generation")
_TIMES = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime", "created")


@dataclass(frozen=True, slots=True)
class File:
    """One file there: where it lies, its name under the root, and what the server says of it."""

    path: str
    name: str
    size: int | None  # bytes
    version: str  # "" where the server says nothing that changes with the content
    modified_unix_s: float | None
    later: bool = False  # a trace, which may be fetched when it is read
    kind: str = ""  # of a trace: one of `kinds.RANKS`
    beside: Mapping[str, Known] = field(default_factory=dict)  # of a trace: others there that stay unread
    single: bool = False  # the address itself


def again(filesystem: Any, file: File) -> File:
    """Return the same file as it is now. Raises what `filesystem.info` raises."""
    info = timeouts.within(lambda: filesystem.info(file.path))
    return replace(file, size=size_of(info), version=version_of(info), modified_unix_s=_modified_unix_s(info))


def version_of(info: dict[str, Any]) -> str:
    """Return everything that the server says of this file that changes with its content."""
    return "|".join(str(info[stamp]) for stamp in (*_STAMPS, *_TIMES) if info.get(stamp))


def size_of(info: dict[str, Any]) -> int | None:
    size = info.get("size")
    return size if isinstance(size, int) and size >= 0 else None


def described(info: dict[str, Any], path: str, name: str) -> File:
    """Return a file as a listing or `filesystem.info` describes it. Raises UnreadableError for a name that
    leads out of the root."""
    return File(path, _safe(name), size_of(info), version_of(info), _modified_unix_s(info))


def _modified_unix_s(info: dict[str, Any]) -> float | None:
    """Return when a file was last changed: the times of several traces tell which is the newest, for remote
    files as for local ones."""
    for value in (info.get(name) for name in _TIMES):
        try:
            if isinstance(value, datetime):
                return value.timestamp()
            if isinstance(value, str):
                iso = value[:4].isdigit()
                return (datetime.fromisoformat(value) if iso else parsedate_to_datetime(value)).timestamp()
            if isinstance(value, (int, float)):
                return float(value)
        except (ValueError, OverflowError):
            continue
    return None


def _safe(name: str) -> str:
    """Return a relative name that stays under its root. Raises UnreadableError for a name that does not."""
    parts = name.split("/")
    odd = "\\:" if os.name == "nt" else "\\"
    if any(part in ("", ".", "..") or "\x00" in part or set(odd) & set(part) for part in parts):
        raise UnreadableError(
            f"the server lists a name that leads elsewhere: {name[:80]!r}",
            next="Give the address of a trace, or of a directory below, or copy the files here",
        )
    return name
