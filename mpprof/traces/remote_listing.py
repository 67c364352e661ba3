"""What lies at an address: the one file that it names, or the records and traces of a log directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.traces import answer, beginning, nsys, reader_of, remote_copies
from mpprof.traces.finding import first_formats, kind_by_name
from mpprof.traces.remote_file import File, described

SINGLE = (".json", ".json.gz", ".sqlite", ".pb", ".pb.gz", ".zip")
"""Endings of an address that make it one file; any other may be a log directory."""

SMALL_BYTES = 1 << 20
"""Up to here a file that is named is fetched to be looked into."""

_MOST_ENTRIES = 20_000
_DEEPEST = 8
_AT_ONCE = 8
"""Files that are looked into at the same time."""
_LONGEST_PAGE = 16 << 20
"""Of a listing over HTTP whose server states no type."""
_RECORDS = re.compile(r"(?:^|/)mpprof/[^/]+\.(?:json|jsonl)$")


def listed(filesystem: Any, root: str, place: str) -> list[File]:
    """The file that `root` is, or the records and traces under it; never empty.

    A file whose name says too little is looked into, at its beginning. Raises NotFoundError where nothing of
    use lies there, UnreadableError for more than 20,000 files, for a name that leads elsewhere, and for a
    file that is none of ours.
    """
    if is_single(root) or _is_content(filesystem, root):
        return [_single(filesystem, root, place)]
    web = root.startswith(("http://", "https://"))
    if web and "?" in root:
        raise UnreadableError(
            "is no trace, and with a query no directory either", where=place,
            next="Leave out what follows the question mark",
        )  # fmt: skip
    below = dict(_walk(filesystem, root.rstrip("/")))
    files: dict[str, File] = {}
    certain: dict[str, bool] = {}

    def is_trace(name: str) -> bool:
        files[name] = _described(filesystem, below[name], name)
        looks = _looks_like_trace(filesystem, files[name])
        certain[name] = looks is True
        return looks is not False

    def traces_of(names: list[str]) -> list[str]:
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return [name for name, yes in zip(names, pool.map(is_trace, names), strict=True) if yes]

    records = {name for name in below if _RECORDS.search(name)}
    traces = set(first_formats((name for name in below if name not in records), traces_of))
    if not records and not traces:
        if not web and answer.within(lambda: filesystem.isfile(root)):
            return [_single(filesystem, root, place)]
        raise NotFoundError(
            "no mpprof records and no trace there", where=place, next="Give the address of the log directory"
        )
    found = [
        files[name] if name in files else _described(filesystem, below[name], name)
        for name in sorted(records | traces)
    ]
    return [
        replace(file, later=file.name in traces and certain.get(file.name, True) and file.size is not None)
        for file in found
    ]


def _described(filesystem: Any, info: dict[str, Any], name: str) -> File:
    file = described(info, info["name"], name)
    if not file.version:  # a listing over HTTP tells names only
        file = described(answer.within(lambda: filesystem.info(file.path)), file.path, name)
    return file


def _is_content(filesystem: Any, root: str) -> bool:
    """Whether an address over HTTP whose name says nothing is a file: to list that would be to fetch it."""
    if not root.startswith(("http://", "https://")) or root.endswith("/"):
        return False
    info = answer.within(lambda: filesystem.info(root))
    if info.get("mimetype") is None:
        return (info.get("size") or 0) > _LONGEST_PAGE
    return info["mimetype"] not in ("text/html", "application/xhtml+xml")


def _single(filesystem: Any, root: str, place: str) -> File:
    """The file at an address. Raises UnreadableError where neither its name nor its bytes are a trace's."""
    name = unquote(PurePosixPath(urlsplit(root).path if "://" in root else root).name) or "trace"
    if name.endswith(nsys.REPORTS):
        raise nsys.is_report(place, name)
    file = replace(described(answer.within(lambda: filesystem.info(root)), root, name), single=True)
    certain = kind_by_name(name) is not None or name.endswith(".zip")
    small = is_single(root) and file.size is not None and file.size <= SMALL_BYTES
    if certain or small or _looks_like_trace(filesystem, file) is not False:
        return file
    raise UnreadableError(
        "is no trace that mpprof knows, by its name and its first bytes", where=place,
        next="Give the address of a trace, of a bundle (.zip) or of a log directory",
    )  # fmt: skip


def _looks_like_trace(filesystem: Any, file: File) -> bool | None:
    """By its first bytes. None for a database that is larger and does not yet name a table of an export."""
    if file.size == 0:
        return False
    raw = answer.within(lambda: remote_copies.first_bytes(filesystem, file, beginning.HEAD_BYTES))
    head = beginning.within(raw)
    if head.startswith(nsys.MAGIC) and nsys.STRINGS not in head:
        return None if len(raw) == beginning.HEAD_BYTES else False
    return reader_of("", head) is not None


def is_single(root: str) -> bool:
    """Whether an address is that of one file, by its name."""
    return root.partition("?")[0].endswith(SINGLE)


def _walk(filesystem: Any, root: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """(name under root, info) of every file, level by level, within bounds."""
    quoted = root.startswith(("http://", "https://"))
    folders, seen, entries = [(root, 0)], {root}, 0
    while folders:
        folder, depth = folders.pop(0)
        for info in answer.within(partial(filesystem.ls, folder, detail=True)):
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
