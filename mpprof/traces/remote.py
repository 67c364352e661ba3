"""Traces and log directories that lie elsewhere (https, s3, gs, ...): what is needed of them, fetched once.

A file that was fetched stays under the given folder, by its address and by what the server says of its
version, so a second look costs one request. Nothing is written outside that folder, whatever names a server
lists; listings, sizes and waiting are bounded.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError
from mpprof.traces.finding import first_formats, rank_by_name

PACKAGES = {
    "http": "aiohttp", "https": "aiohttp", "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs",
    "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "memory": "fsspec",
}  # fmt: skip
"""Schemes that are fetched, and the package that fsspec needs for each."""

LIMIT_BYTES = 8 << 30
"""Of everything fetched together; above it what was used longest ago goes."""

_MOST_ENTRIES = 20_000
_DEEPEST = 8
_CHUNK = 1 << 20
_BLOCK = 16 << 20
"""Bytes of one request, where the server gives ranges."""
_SILENCE_S = 60
_ADDRESS = re.compile(r"^(?P<scheme>[a-z][a-z0-9+]*):/+(?P<rest>[^/].*)$")
_RECORDS = re.compile(r"(?:^|/)mpprof/[^/]+\.(?:json|jsonl)$")
_SINGLE = (".json", ".json.gz", ".sqlite", ".pb", ".pb.gz", ".zip")


def address_of(path: Path | str) -> str | None:
    """The address that a path stands for ("https:/host/x" too, which is what `Path` makes of one); None for
    a path of this machine. Raises UsageError for a scheme that is not fetched."""
    match = _ADDRESS.match(path.as_posix() if isinstance(path, Path) else path)
    if match is None or len(match["scheme"]) < 2:  # a Windows drive is no scheme
        return None
    if match["scheme"] not in PACKAGES:
        raise UsageError(
            f"{match['scheme']}:// is not fetched", where=shown(f"{match['scheme']}://{match['rest']}"),
            next=f"Use one of {', '.join(sorted(PACKAGES))}, or copy the files here",
        )  # fmt: skip
    return f"{match['scheme']}://{match['rest']}"


def shown(address: str) -> str:
    """The address without passwords and signatures."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def fetch(address: str, folder: Path) -> Path:
    """The local copy of a trace file, or of what mpprof reads of a log directory.

    Raises NotFoundError where nothing lies there, UnreadableError where it cannot be fetched, UsageError
    where the package for the scheme is missing.
    """
    place = shown(address)
    try:
        filesystem, root = _connect(address)
        files = _files(filesystem, root, place)
        last = PurePosixPath(urlsplit(address).path.rstrip("/")).name
        target = folder / _digest(address) / (_safe(last) if last and not files[0].single else "")
        for file in files:
            _get(filesystem, file, target, place)
        _evict(folder, folder / _digest(address))
    except MpprofError:
        raise
    except ImportError as error:
        package = PACKAGES[address.partition("://")[0]]
        raise UsageError(
            f"fetching from there needs the package {package}", where=place, next=f"pip install {package}"
        ) from error
    except FileNotFoundError as error:
        if (cause := _no_connection(error)) is not None:
            raise UnreadableError(
                f"cannot be reached: {_line(cause)}", where=place, next="Check the address and the network"
            ) from error
        raise NotFoundError("nothing lies at this address", where=place, next="Check it") from error
    except PermissionError as error:
        raise UnreadableError(
            f"access denied: {_line(error)}", where=place, next="Check the credentials of this machine"
        ) from error
    # The libraries behind fsspec raise errors of their own kinds (aiohttp, botocore, google.auth): each
    # means that the bytes did not come, and is named in the one that is raised.
    except Exception as error:
        raise UnreadableError(
            f"cannot be fetched: {type(error).__name__}: {_line(error)}", where=place,
            next="Check the address and the network, or copy the files here",
        ) from error  # fmt: skip
    names = [file.name for file in files]
    return target / names[0] if files[0].single else target


def _no_connection(error: BaseException) -> BaseException | None:
    """What kept fsspec from asking at all; it calls that, too, a file that is not found."""
    for _ in range(8):
        cause = error.__cause__ or error.__context__
        if cause is None:
            return None
        if isinstance(cause, (OSError, TimeoutError)) and not isinstance(cause, FileNotFoundError):
            return cause
        error = cause
    return None


def _line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return re.sub(r"(\w+://)[^\s/@]*@", r"\1", re.sub(r"\?\S*", "", text))[:200] or "no reason given"


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def _connect(address: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {"use_listings_cache": False}
    if address.startswith("http"):
        import aiohttp

        wait = aiohttp.ClientTimeout(total=None, sock_connect=20, sock_read=_SILENCE_S)
        options["client_kwargs"] = {"timeout": wait}
    filesystem, root = url_to_fs(address, **options)
    return filesystem, root


# --- what to fetch -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _File:
    """One file there: where it lies, its name under the root, and what the server says of it."""

    path: str
    name: str
    size: int | None
    version: str
    single: bool = False


def _files(filesystem: Any, root: str, place: str) -> list[_File]:
    """The file that `root` is, or the records and traces under it; never empty."""
    if root.partition("?")[0].endswith(_SINGLE):
        info = filesystem.info(root)
        return [_file(info, root, PurePosixPath(root.partition("?")[0]).name, single=True)]
    listed = dict(_walk(filesystem, root.rstrip("/")))
    wanted = {name for name in listed if _RECORDS.search(name)}
    wanted |= set(first_formats(name for name in listed if rank_by_name(name) is not None))
    if not wanted:
        if filesystem.isfile(root):
            raise UnreadableError(
                "is no trace that mpprof knows by its name", where=place,
                next=f"It fetches names that end in {', '.join(_SINGLE)}",
            )  # fmt: skip
        raise NotFoundError(
            "no mpprof records and no trace there", where=place, next="Give the address of the log directory"
        )
    files = [_file(listed[name], listed[name]["name"], name) for name in sorted(wanted)]
    # A listing over HTTP tells names only.
    return [
        file if file.version else _file(filesystem.info(file.path), file.path, file.name) for file in files
    ]


def _file(info: dict[str, Any], path: str, name: str, *, single: bool = False) -> _File:
    size = info.get("size")
    stamps = ("ETag", "etag", "md5Hash", "crc32c", "LastModified", "Last-Modified", "last_modified", "mtime",
              "updated", "created")  # fmt: skip
    version = "|".join(str(info[stamp]) for stamp in stamps if info.get(stamp))
    return _File(path, _safe(name), size if isinstance(size, int) and size >= 0 else None, version, single)


def _safe(name: str) -> str:
    """A relative name that stays under its root. Raises UnreadableError for one that does not."""
    parts = name.split("/")
    if any(part in ("", ".", "..") or "\\" in part or ":" in part or "\x00" in part for part in parts):
        raise UnreadableError(f"the server lists a name that leads elsewhere: {name[:80]!r}")
    return name


def _walk(filesystem: Any, root: str) -> Iterable[tuple[str, dict[str, Any]]]:
    """(name under root, info) of every file, level by level, within bounds."""
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
                    folders.append((path, depth + 1))
            else:
                yield path[len(root) + 1 :].partition("?")[0], info


# --- fetching ----------------------------------------------------------------------------------------------


def _get(filesystem: Any, file: _File, target: Path, place: str) -> None:
    """Fetch one file, unless this version of it is here. It appears whole or not at all."""
    path = target / file.name
    mark = path.with_name(f".{path.name}.version")
    version = f"{file.size}|{file.version}"
    if file.version and path.is_file() and _text(mark) == version:
        with suppress(OSError):
            os.utime(target)
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    free = shutil.disk_usage(path.parent).free - (64 << 20)
    if file.size is not None and file.size > free:
        raise UnreadableError(
            f"{file.size >> 20} MiB do not fit on this disk", where=place, next="Set MPPROF_CACHE to another"
        )
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with filesystem.open(file.path, "rb", block_size=_BLOCK) as source, part.open("xb") as copy:
            total = 0
            # A file that grows meanwhile is taken as long as it was.
            while chunk := source.read(_CHUNK if file.size is None else min(_CHUNK, file.size - total)):
                total += len(chunk)
                if total > free:
                    raise UnreadableError("does not fit on this disk", where=place)
                copy.write(chunk)
            copy.flush()
            os.fsync(copy.fileno())
        if file.size is not None and total < file.size:
            raise UnreadableError(
                f"the connection ended at byte {total} of {file.size}", where=place, next="Try again"
            )
        mark.unlink(missing_ok=True)
        os.replace(part, path)
        mark.write_text(version, encoding="utf-8")
    finally:
        part.unlink(missing_ok=True)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _evict(folder: Path, keep: Path) -> None:
    """Remove what was used longest ago, but for `keep`, until the rest is below the limit."""
    entries = []
    for entry in folder.iterdir():
        with suppress(OSError):
            size = sum(file.stat().st_size for file in entry.rglob("*") if file.is_file())
            entries.append((entry.stat().st_mtime, size, entry))
    total = sum(size for _, size, _ in entries)
    for _, size, entry in sorted(entries):
        if total <= LIMIT_BYTES:
            return
        if entry != keep:
            shutil.rmtree(entry, ignore_errors=True)
            total -= size
