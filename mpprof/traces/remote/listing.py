"""What lies at an address: the one file that it names, or the records and traces of a log directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.traces import formats, reader_of
from mpprof.traces.common import file_head
from mpprof.traces.find import of_listing
from mpprof.traces.formats import Known
from mpprof.traces.nsys import reader
from mpprof.traces.remote import local_copies, timeouts
from mpprof.traces.remote.file import File, described

SINGLE = (".json", ".json.gz", ".sqlite", ".pb", ".pb.gz", ".zip")
"""Endings of an address that make it one file; any other may be a log directory."""

SMALL_BYTES = 1 << 20
"""Up to here a file that is named is fetched to be looked into."""

_MOST_ENTRIES = 20_000
_DEEPEST = 8
_AT_ONCE = 8
"""Files that are looked into at the same time."""
_MOST_LOOKED_AT = 32
"""Files that are looked into where no name is one of ours."""
_LONGEST_PAGE = 16 << 20
"""Of a listing over HTTP whose server states no type."""
_RECORDS = re.compile(r"(?:^|/)mpprof/[^/]+\.(?:json|jsonl)$")


def listed(filesystem: Any, root: str, place: str) -> list[File]:
    """Return the file that `root` is, or the records and traces under it; never empty.

    A file whose name says too little is looked into, at its beginning. Raises NotFoundError where nothing of
    use lies there, UnreadableError for more than 20,000 files, for a name that leads elsewhere, and for a
    file that is none of ours.
    """
    if is_single(root) or _is_content(filesystem, root):
        return [_single(filesystem, root, place)]
    web = root.startswith(("http://", "https://"))
    if web and "?" in root:
        raise UnreadableError(
            "is not a trace, and an address with a query is not a directory", where=place,
            next="Leave out what follows the question mark",
        )  # fmt: skip
    there = _Directory(filesystem, dict(_walk(filesystem, root.rstrip("/"))))
    records = [name for name in there.below if _RECORDS.search(name)]
    found = of_listing((name for name in there.below if not _RECORDS.search(name)), there.look)
    traces = [there.trace(name, known, each.beside) for each in found for name, known in each.chosen.items()]
    files = [*(there.described(name) for name in records), *traces]
    if not files:
        if not web and timeouts.within(lambda: filesystem.isfile(root)):
            return [_single(filesystem, root, place)]
        raise there.nothing(place)
    return sorted(files, key=lambda file: file.name)


@dataclass
class _Directory:
    """The files under an address (name: info), and what was found by looking into some of them."""

    filesystem: Any
    below: dict[str, dict[str, Any]]
    files: dict[str, File] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)  # databases that may yet be exports

    def described(self, name: str) -> File:
        if name not in self.files:
            self.files[name] = _described(self.filesystem, self.below[name], name)
        return self.files[name]

    def look(self, names: list[str]) -> dict[str, Known]:
        """Return those of the files that are traces, by their bytes or by their names."""
        if not names:
            return {}
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            found = zip(names, pool.map(self._look, names), strict=True)
            return {name: known for name, known in found if known is not None}

    def _look(self, name: str) -> Known | None:
        file = self.described(name)
        head = _head(self.filesystem, file)
        if head is None:
            self.unsure.add(name)
            return Known("nsys", "perhaps another application's database")
        return formats.of_head(PurePosixPath(name).name, head)

    def trace(self, name: str, known: Known, beside: dict[str, Known]) -> File:
        file = self.described(name)
        names = {PurePosixPath(other).name: what for other, what in beside.items()}
        later = name not in self.unsure and file.size is not None
        return replace(file, later=later, kind=known.kind, beside=names)

    def nothing(self, place: str) -> NotFoundError:
        """Return the error for an address with no trace. Files whose names say nothing are opened now: one of
        them may be the trace."""
        unseen = (name for name in self.below if name not in self.files)
        doubtful = self.look(list(islice(unseen, _MOST_LOOKED_AT)))
        if not doubtful:
            return NotFoundError(
                "no mpprof records and no trace there", where=place,
                next="Give the address of the log directory",
            )  # fmt: skip
        named = ", ".join(f"{place.rstrip('/')}/{name}" for name in sorted(doubtful)[:3])
        return NotFoundError(
            "no mpprof records and no file with a trace's name there", where=place,
            next=f"Give {'it' if len(doubtful) == 1 else 'one of them'} itself: {named}",
        )  # fmt: skip


def _described(filesystem: Any, info: dict[str, Any], name: str) -> File:
    file = described(info, info["name"], name)
    if not file.version:  # a listing over HTTP tells names only
        file = described(timeouts.within(lambda: filesystem.info(file.path)), file.path, name)
    return file


def _is_content(filesystem: Any, root: str) -> bool:
    """Return whether an address over HTTP whose name says nothing is a file: listing a file would fetch
    it."""
    if not root.startswith(("http://", "https://")) or root.endswith("/"):
        return False
    info = timeouts.within(lambda: filesystem.info(root))
    if info.get("mimetype") is None:
        return (info.get("size") or 0) > _LONGEST_PAGE
    return info["mimetype"] not in ("text/html", "application/xhtml+xml")


def _single(filesystem: Any, root: str, place: str) -> File:
    """Return the file at an address. Raises UnreadableError where neither its name nor its bytes are a
    trace's."""
    name = unquote(PurePosixPath(urlsplit(root).path if "://" in root else root).name) or "trace"
    file = replace(described(timeouts.within(lambda: filesystem.info(root)), root, name), single=True)
    if name.endswith(reader.REPORTS) and not (file.size != 0 and _is_database(filesystem, file)):
        raise reader.is_report(place, name)
    certain = formats.by_name(name) is not None or name.endswith(".zip")
    small = is_single(root) and file.size is not None and file.size <= SMALL_BYTES
    if certain or small or _may_be_trace(_head(filesystem, file)):
        return file
    raise UnreadableError(
        "unrecognised trace format, by its name and its first bytes", where=place,
        next="Give the address of a trace, of a bundle (.zip) or of a log directory",
    )  # fmt: skip


def _is_database(filesystem: Any, file: File) -> bool:
    return _first(filesystem, file, len(file_head.SQLITE)) == file_head.SQLITE


def _may_be_trace(head: bytes | None) -> bool:
    return head is None or reader_of("", head) is not None


def _head(filesystem: Any, file: File) -> bytes | None:
    """Return the file's first bytes; `formats.NO_BYTES` for another application's database, and None for a
    database that is larger and does not yet name a table of an export."""
    if file.size == 0:
        return b""
    raw = _first(filesystem, file, file_head.HEAD_BYTES)
    if not raw:
        return b""
    head = file_head.within(raw)
    if head.startswith(file_head.SQLITE) and reader.STRINGS not in head:
        return None if len(raw) == file_head.HEAD_BYTES else formats.NO_BYTES
    return head or formats.NO_BYTES


def _first(filesystem: Any, file: File, size: int) -> bytes:
    return timeouts.within(lambda: local_copies.first_bytes(filesystem, file, size))


def is_single(root: str) -> bool:
    """Return whether an address is that of one file, by its name."""
    return root.partition("?")[0].endswith(SINGLE)


def _walk(filesystem: Any, root: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """Yield (name under root, info) of every file, level by level, within bounds."""
    quoted = root.startswith(("http://", "https://"))
    folders, seen, entries = [(root, 0)], {root}, 0
    while folders:
        folder, depth = folders.pop(0)
        for info in timeouts.within(partial(filesystem.ls, folder, detail=True)):
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
