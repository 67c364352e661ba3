"""What lies at an address: the one file that it names, or the records and traces of a log directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.traces.finding import first_formats, kind_by_name, rank_by_name

SINGLE = (".json", ".json.gz", ".sqlite", ".pb", ".pb.gz", ".zip")
"""Endings of an address that make it one file; any other is a log directory."""

_MOST_ENTRIES = 20_000
_DEEPEST = 8
_RECORDS = re.compile(r"(?:^|/)mpprof/[^/]+\.(?:json|jsonl)$")
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
    single: bool = False  # the address itself


def listed(filesystem: Any, root: str, place: str) -> list[File]:
    """The file that `root` is, or the records and traces under it; never empty.

    Raises NotFoundError where nothing of use lies there, UnreadableError for more than 20,000 files, for a
    name that leads elsewhere, and for a file that is none of ours.
    """
    if is_single(root):
        name = unquote(PurePosixPath(urlsplit(root).path if "://" in root else root).name)
        return [_file(filesystem.info(root), root, name, single=True)]
    below = dict(_walk(filesystem, root.rstrip("/")))
    records = {name for name in below if _RECORDS.search(name)}
    traces = set(first_formats(name for name in below if rank_by_name(name) is not None))
    if not records and not traces:
        if filesystem.isfile(root):
            raise UnreadableError(
                "is no trace that mpprof knows by its name", where=place,
                next=f"It fetches names that end in {', '.join(SINGLE)}",
            )  # fmt: skip
        raise NotFoundError(
            "no mpprof records and no trace there", where=place, next="Give the address of the log directory"
        )
    found = []
    for name in sorted(records | traces):
        later = name not in records and kind_by_name(name) is not None
        file = _file(below[name], below[name]["name"], name, later=later)
        if not file.version:  # a listing over HTTP tells names only
            file = _file(filesystem.info(file.path), file.path, name, later=later)
        found.append(file)
    return found


def is_single(root: str) -> bool:
    """Whether an address is that of one file, by its name."""
    return root.partition("?")[0].endswith(SINGLE)


def again(filesystem: Any, file: File) -> File:
    """The same file as it is now. Raises what `filesystem.info` raises."""
    info = filesystem.info(file.path)
    return replace(file, size=size_of(info), version=version_of(info), modified_unix_s=_modified_unix_s(info))


def version_of(info: dict[str, Any]) -> str:
    """All that the server says of this file that changes with its content."""
    return "|".join(str(info[stamp]) for stamp in (*_STAMPS, *_TIMES) if info.get(stamp))


def size_of(info: dict[str, Any]) -> int | None:
    size = info.get("size")
    return size if isinstance(size, int) and size >= 0 else None


def _file(info: dict[str, Any], path: str, name: str, *, later: bool = False, single: bool = False) -> File:
    size = size_of(info)
    later = later and size is not None
    return File(path, _safe(name), size, version_of(info), _modified_unix_s(info), later, single)


def _modified_unix_s(info: dict[str, Any]) -> float | None:
    """Which of several traces is the newest is told by their times, here as there."""
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
    """A relative name that stays under its root. Raises UnreadableError for one that does not."""
    parts = name.split("/")
    odd = "\\:" if os.name == "nt" else "\\"
    if any(part in ("", ".", "..") or "\x00" in part or set(odd) & set(part) for part in parts):
        raise UnreadableError(f"the server lists a name that leads elsewhere: {name[:80]!r}")
    return name


def _walk(filesystem: Any, root: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """(name under root, info) of every file, level by level, within bounds."""
    quoted = root.startswith(("http://", "https://"))
    folders, seen, entries = [(root, 0)], {root}, 0
    while folders:
        folder, depth = folders.pop(0)
        for info in filesystem.ls(folder, detail=True):
            entries += 1
            if entries > _MOST_ENTRIES:
                raise UnreadableError(
                    f"more than {_MOST_ENTRIES} files lie there", next="Give the address of one run"
                )
            path = str(info["name"]).rstrip("/")
            if not path.startswith(root + "/") or path in seen:
                continue  # the folder itself, or a link to elsewhere
            seen.add(path)
            if info.get("type") == "directory":
                if depth < _DEEPEST:
                    folders.append((path + "/" if quoted else path, depth + 1))
            else:
                name = path[len(root) + 1 :]
                yield unquote(name.partition("?")[0]) if quoted else name, info
