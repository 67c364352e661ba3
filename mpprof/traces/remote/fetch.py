"""Traces and log directories that lie elsewhere (https, s3, gs, ...): what may be read of them, fetched once.

A file that was fetched stays under the given folder, by its address and by what the server says of its
version, so a second look costs no more than asking. Nothing is written outside that folder, whatever names a
server lists; listings, sizes and waiting are bounded (`errors`), and redirects do not lead from the public
network into one's own (`errors`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError
from mpprof.traces.remote import errors, listing, progress
from mpprof.traces.remote.errors import explained, is_break, no_credentials
from mpprof.traces.remote.listing import File, described, is_web

# Copies of remote files: whole or not at all, kept by version, within a bound on disk.

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
            if (took_s := clock() - since_s) >= errors.SLOW_S:
                if total - before < errors.LEAST_BYTES_PER_S * took_s:
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
        most_s = errors.SLOW_S + BLOCK_BYTES / errors.LEAST_BYTES_PER_S
        while block := errors.within(partial(source.read, min(BLOCK_BYTES, file.size - at)), most_s):
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


log = logging.getLogger("mpprof")

PACKAGES = {
    "http": "aiohttp", "https": "aiohttp", "s3": "s3fs", "s3a": "s3fs", "gs": "gcsfs", "gcs": "gcsfs",
    "abfs": "adlfs", "abfss": "adlfs", "az": "adlfs", "memory": "fsspec", "file": "fsspec",
}  # fmt: skip
"""Schemes that are fetched, and the package that fsspec needs for each."""

LIMIT_BYTES = 8 << 30
"""Of everything fetched together; above it what was used longest ago goes."""

_LIBRARIES = ("fsspec", "s3fs", "aiobotocore", "botocore", "gcsfs", "google.auth", "adlfs")
_RECORD = re.compile(r"/mpprof/(?:run\.json|steps\.jsonl|hardware\.jsonl)$")
"""One of a run's records, which stands for its run."""
_ADDRESS = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+]*):/+(?P<rest>[^/].*)$")


def address_of(path: Path | str) -> str | None:
    """Return the address that a path stands for ("https:/host/x" too, which is what `Path` makes of one);
    None for a path of this machine. Raises UsageError for a scheme that mpprof does not fetch."""
    match = _ADDRESS.match(path.as_posix() if isinstance(path, Path) else path)
    if match is None or len(match["scheme"]) < 2:  # a Windows drive is no scheme
        return None
    scheme = match["scheme"].lower()
    if scheme not in PACKAGES:
        raise UsageError(
            f"{scheme}:// is not fetched", where=shown(f"{scheme}://{match['rest']}"),
            next=f"Use one of {', '.join(sorted(PACKAGES))}, or copy the files here",
        )  # fmt: skip
    root = "/" if scheme == "file" else ""
    address = f"{scheme}://{root}{_RECORD.sub('', match['rest'])}"
    try:
        parts = urlsplit(address)
        _ = parts.port if scheme.startswith("http") else None
    except ValueError as error:
        where = re.sub(r"//[^/]*@", "//", address)
        raise UsageError("is not an address", where=where, next="Check its brackets and its port") from error
    return address


def shown(address: str) -> str:
    """Return the address without passwords and signatures."""
    parts = urlsplit(address)
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


def fetch(address: str, folder: Path) -> Path:
    """Return the local copy of a trace file, or of the records and traces of a log directory. What lies on
    this machine (file://) is read where it is.

    Raises NotFoundError where nothing lies there, UnreadableError where it cannot be fetched or is more than
    LIMIT_BYTES, UsageError where the package for the scheme is missing. Beside records, a trace that cannot
    be fetched is left out with a warning, and so are the oldest ones above the limit: the rest of their runs
    is of use without them.
    """
    if address.startswith("file://"):
        return _of_this_machine(address)
    place = shown(address)
    with explained(PACKAGES, address, place):
        filesystem, root, info = errors.within(partial(_connect, address, place))
        files, directory = listing.at(filesystem, root, info, place)
        files = _within_limit(files)
        target = folder / hashlib.blake2b(address.encode(), digest_size=12).hexdigest()
        target = target / _title(address) if directory else target
        _bring_all(filesystem, files, target, address, directory=directory)
        evict(folder, LIMIT_BYTES)
    return target if directory else target / files[0].name


def _of_this_machine(address: str) -> Path:
    path = Path(address.removeprefix("file://"))
    if not path.exists():
        raise NotFoundError("no such file or directory", where=str(path), next="Check the path")
    return path


def _within_limit(files: list[File]) -> list[File]:
    """Return the records and as many of the newest traces as fit into LIMIT_BYTES."""
    kept, total = [], 0
    for file in sorted(files, key=lambda file: (not file.is_record(), -(file.modified_unix_s or 0.0))):
        total += file.size or 0
        if total <= LIMIT_BYTES:
            kept.append(file)
    if len(kept) < len(files):
        what, limit = f"{len(files) - len(kept)} of {len(files)} files", f"{LIMIT_BYTES >> 30} GiB"
        if not any(file.is_record() for file in kept):
            raise UnreadableError(f"more than {limit} are there", next="Give the address of one run")
        log.warning("mpprof: %s were not fetched, the oldest traces: more than %s are there", what, limit)
    return kept


def _title(address: str) -> str:
    """Return the name of the local copy of a log directory; its run has that name, too."""
    parts = urlsplit(address)
    name = unquote(PurePosixPath(parts.path.rstrip("/")).name) or parts.netloc.rpartition("@")[2]
    return re.sub(r"[^\w.+@ -]+", "_", name).strip(".") or "logs"


def _bring_all(filesystem: Any, files: list[File], target: Path, address: str, *, directory: bool) -> None:
    with_records = any(file.is_record() for file in files)
    refused: list[MpprofError] = []

    def bring(file: File) -> None:
        place = f"{shown(address).rstrip('/')}/{file.name}" if directory else shown(address)
        try:
            with explained(PACKAGES, address, place):
                if not is_here(file, target):
                    get(filesystem, file, target, place)
        except MpprofError as error:
            if file.is_record() or not with_records:
                raise
            refused.append(error)

    with ThreadPoolExecutor(listing.AT_ONCE) as pool:
        brought = [pool.submit(bring, file) for file in files]
        try:
            for done in brought:
                done.result()
        except BaseException:  # the others would wait in vain, one after the other
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    if refused:
        more = f", and {len(refused) - 1} more" if len(refused) > 1 else ""
        log.warning("mpprof: a trace was not fetched%s: %s", more, refused[0])
    if directory:
        keep_only(target, {file.name for file in files})


def _connect(address: str, place: str) -> tuple[Any, str, dict[str, Any]]:
    """Return the filesystem of an address, the path in it, and what `filesystem.info` says of that path. A
    public bucket can be read even where this machine has no credentials for S3."""
    from fsspec.core import url_to_fs

    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": True}
    if address.startswith("http"):
        # A server that packs on the way would make sizes those of another file.
        headers = {"Accept-Encoding": "identity"}
        options["get_client"] = errors.client
        options["client_kwargs"] = {"timeout": errors.client_timeout(), "headers": headers}
    for library in _LIBRARIES:  # what they would print beside our one line, a traceback among it
        logging.getLogger(library).addHandler(logging.NullHandler())
    filesystem, root = url_to_fs(address, **options)
    errors.hasten(filesystem, address.partition("://")[0])
    try:
        return filesystem, root, filesystem.info(root)
    except Exception as error:
        if not no_credentials(error) or not address.startswith("s3"):
            raise
    filesystem.anon = True
    filesystem.connect(refresh=True)
    try:
        return filesystem, root, filesystem.info(root)
    except PermissionError as denied:
        raise UnreadableError(
            "this machine has no credentials for it, and it is not public", where=place,
            next="Set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ) from denied  # fmt: skip
