"""What lies at an address: the one file that it names, or the records and traces of a log directory."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.traces import formats, reader_of
from mpprof.traces.common import file_head
from mpprof.traces.find import wanted
from mpprof.traces.nsys import reader
from mpprof.traces.remote.errors import within

SINGLE = (".json", ".json.gz", ".sqlite", ".pb", ".pb.gz", ".zip")
"""Endings of an address that make it one file; any other may be a log directory."""

SMALL_BYTES = 1 << 20
"""Up to here a file is fetched to be looked into; of a longer one the beginning is looked at first."""

AT_ONCE = 8
"""Files that are asked for at the same time."""

_MOST_ENTRIES = 20_000
_DEEPEST = 8
_LONGEST_PAGE = 16 << 20
"""Of a listing over HTTP whose server states no type."""
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

    def is_record(self) -> bool:
        return bool(_RECORDS.search(self.name))


def described(filesystem: Any, path: str, name: str) -> File:
    """Return a file as it is now. Raises what `filesystem.info` raises."""
    return _file(within(lambda: filesystem.info(path)), path, name)


def at(filesystem: Any, root: str, info: dict[str, Any], place: str) -> tuple[list[File], bool]:
    """Return the file that `root` is, as `filesystem.info` describes it, or the records and traces under it
    (never empty), and whether it is a directory.

    A file whose name says too little is looked into, at its beginning. Raises NotFoundError where nothing of
    use lies there, UnreadableError for more than 20,000 files, for a name that leads elsewhere, and for a
    file that is none of ours.
    """
    if not _is_directory(root, info):
        return [_single(filesystem, root, info, place)], False
    if is_web(root) and "?" in root:
        raise UnreadableError(
            "is not a trace, and an address with a query is not a directory", where=place,
            next="Leave out what follows the question mark",
        )  # fmt: skip
    there = dict(_walk(filesystem, root.rstrip("/")))
    names = sorted({*filter(_RECORDS.search, there), *wanted(n for n in there if not _RECORDS.search(n))})
    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(lambda name: _listed(filesystem, there[name], name), names))
    files = [file for file in found if file is not None]
    if not files:
        reports = (name for name in there if name.endswith(reader.REPORTS))
        if (report := next(reports, None)) is not None:
            raise reader.is_report(f"{place.rstrip('/')}/{report}", PurePosixPath(report).name)
        raise NotFoundError(
            "no mpprof records and no trace by its name there", where=place,
            next="Give the address of the log directory, or of the trace itself",
        )  # fmt: skip
    return files, True


def is_web(path: str) -> bool:
    return path.startswith(("http://", "https://"))


def _listed(filesystem: Any, info: dict[str, Any], name: str) -> File | None:
    """Return a file of a listing; None for one that is no trace."""
    file = _file(info, info["name"], name)
    with suppress(Exception):  # who fetches it says why
        if not file.version:  # HTTP lists names only
            file = described(filesystem, file.path, name)
        if not _may_be_trace(filesystem, file):
            return None
    return file


def _file(info: dict[str, Any], path: str, name: str) -> File:
    size = info.get("size")
    known = isinstance(size, int) and size >= 0
    version = "|".join(str(info[stamp]) for stamp in (*_STAMPS, *_TIMES) if info.get(stamp))
    return File(path, _safe(name), size if known else None, version, _modified_unix_s(info))


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


def _is_directory(root: str, info: dict[str, Any]) -> bool:
    """Return whether an address is that of a directory. Over HTTP all are files, of which a listing is one of
    HTML."""
    if not is_web(root):
        return bool(info.get("type") == "directory")
    if root.partition("?")[0].endswith(SINGLE):
        return False
    if info.get("mimetype") is None:
        return root.endswith("/") or (info.get("size") or 0) <= _LONGEST_PAGE
    return root.endswith("/") or info["mimetype"] in ("text/html", "application/xhtml+xml")


def _single(filesystem: Any, root: str, info: dict[str, Any], place: str) -> File:
    """Return the file at an address. Raises UnreadableError where neither its name nor its bytes are a
    trace's."""
    name = unquote(PurePosixPath(urlsplit(root).path if "://" in root else root).name) or "trace"
    file = _file(info, root, name)
    if name.endswith(reader.REPORTS) and not _head(filesystem, file).startswith(file_head.SQLITE):
        raise reader.is_report(place, name)
    if not _may_be_trace(filesystem, file):
        raise UnreadableError(
            "unrecognised trace format, by its name and its first bytes", where=place,
            next="Give the address of a trace, of a bundle (.zip) or of a log directory",
        )  # fmt: skip
    return file


def _may_be_trace(filesystem: Any, file: File) -> bool:
    """Return whether a file is fetched: by its name, because it is short, or by its beginning."""
    sure = file.is_record() or file.name.endswith(".zip") or formats.by_name(file.name) is not None
    short = file.size is not None and file.size <= SMALL_BYTES
    return sure or short or reader_of("", _head(filesystem, file)) is not None


def _head(filesystem: Any, file: File) -> bytes:
    return b"" if file.size == 0 else file_head.within(within(partial(_first, filesystem, file)))


def _first(filesystem: Any, file: File) -> bytes:
    """Return at most the first 64 KiB of a file, and request no more."""
    size, found = file_head.HEAD_BYTES, bytearray()
    web = {"headers": {"Range": f"bytes=0-{size - 1}"}, "block_size": 0}
    # As a stream, because a server may ignore the range and send everything.
    options = web if is_web(file.path) else {"cache_type": "none", "size": file.size}
    with filesystem.open(file.path, "rb", **options) as source:
        while len(found) < size and (chunk := source.read(size - len(found))):
            found += chunk
    return bytes(found)


def _walk(filesystem: Any, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (name under root, info) of every file, level by level, within bounds."""
    quoted = is_web(root)
    folders, seen, entries = [(root, 0)], {root}, 0
    while folders:
        folder, depth = folders.pop(0)
        for info in within(partial(filesystem.ls, folder, detail=True)):
            entries += 1
            if entries > _MOST_ENTRIES:
                raise UnreadableError(
                    f"more than {_MOST_ENTRIES} files are there", next="Give the address of one run"
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
