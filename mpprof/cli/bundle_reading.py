"""Reading a bundle back: checked, unpacked to a temporary directory, gone when it was read."""

from __future__ import annotations

import contextlib
import json
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

from mpprof.cli.bundle_writing import MANIFEST, RECORDS, SCHEMA
from mpprof.errors import TooNewError, UnreadableError
from mpprof.model import limits
from mpprof.model.shell import quoted
from mpprof.own_folder import own_folder
from mpprof.traces import find, formats

MAX_BYTES = 4 << 30
"""The unpacked size of all files in a bundle together; a larger bundle, or one that grows more than
`limits.UNPACKED_RATIO` times, is not opened."""
MOST_MEMBERS, MOST_TRACES, DEEPEST = 5_000, limits.MOST_WINDOWS, 8
"""Files of a bundle, traces among them, and how many directories one lies in: a run of a thousand workers has
four thousand, and its own lie three or four levels down."""
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_PREFIX = "mpprof-bundle-"
_CHUNK = 1 << 20
_UNPACK = "Unpack it and give what is in it"
_KERAS = {"config.json", "metadata.json"}
"""In every file that `model.save()` of Keras 3 writes."""


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """Unpack the bundle, and give the directory that holds its run for as long as the context lasts, or until
    the process is asked to end.

    Raises UnreadableError for what is no bundle, is damaged, is larger than its bounds, names files outside
    itself or finds no room; TooNewError for one written by a newer mpprof.
    """
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(own_folder(_PREFIX))
            with zipfile.ZipFile(path) as archive:
                _check(archive, path)
                _extract(archive, folder, path)
        # RuntimeError: zipfile raises it for a member that is encrypted; the last two for damaged tables.
        except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError, ValueError, struct.error) as error:
            raise UnreadableError(
                f"is a damaged zip file ({error})", where=str(path), next="Copy it again"
            ) from error
        except OSError as error:
            if error.filename == str(path):
                raise
            raise UnreadableError(
                f"a bundle cannot be unpacked here ({error.strerror or error})",
                where=os.environ.get("TMPDIR") or "the temporary directory",
                next="Make room there, or set TMPDIR to a directory that has some",
            ) from error
        yield folder


def _check(archive: zipfile.ZipFile, path: Path) -> None:
    members = archive.infolist()
    if any(member.compress_type not in _PACKINGS for member in members):
        raise UnreadableError("is packed as no bundle is (LZMA or bzip2)", where=str(path), next=_UNPACK)
    manifest = _manifest(archive, path)
    schema = str(manifest.get("schema", ""))
    family, _, version = SCHEMA.partition("/")
    if not schema.startswith(f"{family}/"):
        raise _other(archive, path)
    if schema.partition("/")[2] != version:
        raise TooNewError(
            f"holds {schema}, this mpprof reads {SCHEMA}", where=str(path), next="Install a newer mpprof"
        )
    if len(members) > MOST_MEMBERS or any(member.filename.count("/") > DEEPEST for member in members):
        raise UnreadableError(
            f"holds more than {MOST_MEMBERS:,} files, or one more than {DEEPEST} levels deep",
            where=str(path), next=_UNPACK,
        )  # fmt: skip
    read = [PurePosixPath(member.filename) for member in members if _is_read(PurePosixPath(member.filename))]
    if len({name.parts[0] for name in read}) > 1:
        raise UnreadableError("holds more than one run", where=str(path), next=_UNPACK)
    if sum(not _is_record(name) for name in read) > MOST_TRACES:
        raise UnreadableError(f"holds more than {MOST_TRACES:,} traces", where=str(path), next=_UNPACK)
    if sum(member.file_size for member in members) > _most_bytes(path):
        raise _too_large(path)


def _other(archive: zipfile.ZipFile, path: Path) -> UnreadableError:
    """Return the error for a zip file that is no bundle."""
    if set(archive.namelist()) >= _KERAS:
        return UnreadableError(
            "is a saved Keras model, not a run", where=str(path), next=f"See: mpprof audit {quoted(path)}"
        )
    return UnreadableError("is a zip file, but not an mpprof bundle", where=str(path), next=_UNPACK)


def _most_bytes(path: Path) -> int:
    return min(MAX_BYTES, path.stat().st_size * limits.UNPACKED_RATIO + _CHUNK)


def _too_large(path: Path) -> UnreadableError:
    return UnreadableError(
        f"unpacks to more than {limits.UNPACKED_RATIO} times its size or {MAX_BYTES >> 30} GiB",
        where=str(path),
        next=_UNPACK,
    )


def _manifest(archive: zipfile.ZipFile, path: Path) -> dict[str, Any]:
    try:
        with archive.open(MANIFEST) as file:
            manifest = json.loads(file.read(_CHUNK))
    except (KeyError, ValueError):
        manifest = None
    if not isinstance(manifest, dict):
        raise _other(archive, path)
    return manifest


def _extract(archive: zipfile.ZipFile, folder: Path, path: Path) -> None:
    """Extract records and traces under `folder`; sizes are counted while writing, because a zip's own table
    may state wrong sizes."""
    total, most = 0, _most_bytes(path)
    for member in archive.infolist():
        parts = PurePosixPath(member.filename).parts
        if member.is_dir() or member.filename == MANIFEST:
            continue
        if not parts or ".." in parts or member.filename.startswith("/") or "\\" in member.filename:
            raise UnreadableError(f"names a file outside itself: {member.filename!r}", where=str(path))
        if not _is_read(PurePosixPath(member.filename)):
            continue
        target = folder.joinpath(*parts)
        target.parent.mkdir(parents=True, exist_ok=True)
        with archive.open(member) as source, target.open("wb") as out:
            while chunk := source.read(_CHUNK):
                total += len(chunk)
                if total > most:
                    raise _too_large(path)
                out.write(chunk)


def _is_read(name: PurePosixPath) -> bool:
    """Return whether the file may be a record or a trace."""
    return _is_record(name) or find.is_session(name.parent) or formats.perhaps(name.name) is not None


def _is_record(name: PurePosixPath) -> bool:
    """Return whether the file lies where a bundle has its records: in `mpprof` of its one directory, or in
    that of a further worker there."""
    parts = name.parts[1:-1]
    placed = parts == (RECORDS,) or (
        len(parts) == 2 and parts[0] == RECORDS and parts[1].startswith("worker-")
    )
    return placed and name.suffix in (".json", ".jsonl")
