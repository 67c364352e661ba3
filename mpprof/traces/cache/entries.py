"""What was read of a foreign trace, kept as numpy arrays, so that a slow format is parsed once.

An entry is a directory named by a digest of the trace's whole content and of the code that read it. It is
written beside its place and renamed, so a reader sees all of it or nothing; its files carry digests, so a
damaged entry counts as none. A column is read when it is first asked for; if the entry was evicted or damaged
meanwhile, the trace is read afresh. The least recently used entries go once all of them outgrow the limit.
Nothing here ever fails a command: a cache that cannot be used is not used, which is said once.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.model import limits
from mpprof.model.trace import Trace
from mpprof.regular import read_regular
from mpprof.traces.cache import switch

log = logging.getLogger("mpprof")

LIMIT_BYTES = 2 << 30
"""Of all entries together."""

_ABANDONED_S = 3600
"""A directory that is still being written after this long belongs to a writer that was killed."""
_FORMAT = "mpprof.cache/3"
"""Part of every key: entries of another layout are never looked at, and go when they are the oldest."""
_META = "meta.json"
_PARTS = "part-"


_said: set[str] = set()


def folder() -> Path | None:
    """Return the directory of the cache: MPPROF_CACHE, else the platform's own; None where it is "off"."""
    if switch.is_off():
        return None
    chosen = os.environ.get("MPPROF_CACHE")
    if chosen is not None:
        return None if chosen.lower() in ("", "off", "0") else Path(os.path.expanduser(chosen))
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and a user that the system does not know: a bare container
        _say("nothing is cached: this user has no home directory")
        return None
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "mpprof"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / "mpprof" / "Cache"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "mpprof"


def usable_folder() -> Path | None:
    """Return the directory of the cache, created where it does not exist; None where nothing can be written
    to it."""
    root = folder()
    if root is None:
        return None
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = root / f".{secrets.token_hex(4)}"
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        _say_unusable(root, error)
        return None
    return root


def folder_for_now() -> Path:
    """Return the directory of the cache, or a temporary one of this process where nothing is kept."""
    root = usable_folder()
    if root is None:
        import atexit
        import tempfile

        root = Path(tempfile.mkdtemp(prefix="mpprof-"))
        atexit.register(shutil.rmtree, root, ignore_errors=True)
    return root


def trace(path: Path, version: str, read: Callable[[], Trace], *, limit_bytes: int = LIMIT_BYTES) -> Trace:
    """Return the trace at `path`, from the cache or else by `read`, whose result is then kept.

    `version` stands for the code that reads: another one makes other entries. Errors of `read` pass through,
    and what it raises is not kept. A trace with compiled programs is not kept (its format is read fast), nor
    is one whose file changes meanwhile.
    """
    root = folder()
    if root is None:
        return read()
    cache = Cache(root / "traces", limit_bytes)
    try:
        before = _state(path)
        key = digest(path, version)
    except OSError:
        return read()

    def again() -> Trace:
        with suppress(OSError):  # said by `read`
            if digest(path, version) != key:
                raise UnreadableError("changed while it was shown", where=str(path), next="Read it again")
        return read()

    found = cache.load(key, again)
    if found is not None:
        return replace(found, source=replace(found.source, path=path))
    result = read()
    with suppress(OSError):
        if _state(path) == before:
            cache.save(key, result)
    return result


def _state(path: Path) -> tuple[int, int, int]:
    """Return what changes when the file at `path` is overwritten or replaced. Raises OSError."""
    seen = path.stat()
    return seen.st_ino, seen.st_size, seen.st_mtime_ns


def digest(path: Path, version: str) -> str:
    """Return the digest of the whole content (about 1 GB/s) and the version; the time of change is not used,
    because a copy has another one."""
    hashed = hashlib.blake2b(f"{_FORMAT}|{version}".encode(), digest_size=20)
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            hashed.update(chunk)
    return hashed.hexdigest()


@dataclass(frozen=True, slots=True)
class Cache:
    """The entries under one directory. No method raises for what is on disk."""

    root: Path
    limit_bytes: int = LIMIT_BYTES

    def load(self, key: str, read: Callable[[], Trace]) -> Trace | None:
        """Return the entry's trace, None where no whole entry exists. Its columns are read when they are
        used; if one is then gone or damaged, it comes from `read`, which may raise."""
        from mpprof.traces.cache import array_files

        entry = self.root / key
        try:
            meta = json.loads(read_regular(entry / _META, limits.LARGEST_HELD_BYTES))
            if _digest(json.dumps([meta["files"], meta["body"]], sort_keys=True).encode()) != meta["digest"]:
                raise ValueError(f"{_META} is damaged")
            for name, (size, _) in meta["files"].items():
                if (entry / name).stat().st_size != size:
                    raise ValueError(f"{name} is cut off")
            files = _Files(entry, meta["files"], read, _identity(entry))
            whole = {name: files.content(name) for name in array_files.WHOLE}
            found = array_files.decode(meta["body"], whole, files.column)
            os.utime(entry / _META)
        except (OSError, *array_files.ERRORS) as error:
            if os.path.isdir(entry):  # it is read afresh and replaced
                _say_damaged(entry, error)
            return None
        return found

    def save(self, key: str, kept: Trace) -> None:
        """Keep the trace; another process that does the same at the same time does no harm."""
        from mpprof.traces.cache import array_files

        part = self.root / f"{_PARTS}{os.getpid()}-{secrets.token_hex(4)}"
        try:
            encoded = array_files.encode(kept)
            if encoded is None or sum(map(len, encoded.files.values())) > self.limit_bytes // 2:
                return
            files = {name: [len(content), _digest(content)] for name, content in encoded.files.items()}
            digest = _digest(json.dumps([files, encoded.body], sort_keys=True).encode())
            meta = {"digest": digest, "files": files, "body": encoded.body}
            part.mkdir(parents=True, mode=0o700)
            for name, content in (*encoded.files.items(), (_META, json.dumps(meta).encode())):
                _write(part / name, content)
            self._place(part, self.root / key)
            self._evict()
        except OSError as error:
            shutil.rmtree(part, ignore_errors=True)
            _say_unusable(self.root, error)

    def _place(self, part: Path, entry: Path) -> None:
        """Rename into place; what stands there is damaged, or was written meanwhile and is as good."""
        with suppress(OSError):
            part.rename(entry)
            return
        old = part.with_name(f"{part.name}-old")
        with suppress(OSError):
            entry.rename(old)
            part.rename(entry)
        for rest in (part, old):
            shutil.rmtree(rest, ignore_errors=True)

    def _evict(self) -> None:
        """Remove what killed writers left, then the least recently used entries above the limit."""
        now = time.time()
        entries: list[tuple[float, int, Path]] = []
        for entry in self.root.iterdir():
            with suppress(OSError):
                if entry.name.startswith(_PARTS):
                    if now - entry.stat().st_mtime > _ABANDONED_S:
                        shutil.rmtree(entry, ignore_errors=True)
                    continue
                size = sum(file.stat().st_size for file in entry.iterdir())
                used = entry / _META
                entries.append((used.stat().st_mtime if used.exists() else 0.0, size, entry))
        total = sum(size for _, size, _ in entries)
        for _, size, entry in sorted(entries):
            if total <= self.limit_bytes:
                return
            shutil.rmtree(entry, ignore_errors=True)
            total -= size


@dataclass(slots=True)
class _Files:
    """The files of one entry; what is gone or damaged when it is asked for comes from the trace itself."""

    entry: Path
    known: dict[str, list[Any]]  # name -> [size, digest]
    read: Callable[[], Trace]
    identity: tuple[int, int]
    afresh: Trace | None = None

    def content(self, name: str) -> bytes:
        """Return the content of a file of the entry. Raises OSError, ValueError for a file that is not what
        was written."""
        content = read_regular(self.entry / name, self.known[name][0])
        if _digest(content) != self.known[name][1]:
            raise ValueError(f"{name} is damaged")
        return content

    def _in_place(self) -> bool:
        """Return whether the entry is still the one that was opened, neither removed nor replaced by another
        process."""
        with suppress(OSError):
            return _identity(self.entry) == self.identity
        return False

    def column(self, table: str, column: str) -> Any:
        from mpprof.traces.cache import array_files

        name = array_files.file_of(table, column)
        if self.afresh is None and name not in self.known:
            return None
        if self.afresh is None:
            try:
                return array_files.column(self.content(name))
            except (OSError, *array_files.ERRORS) as error:
                if self._in_place():
                    _say_damaged(self.entry, error)
                    shutil.rmtree(self.entry, ignore_errors=True)
                self.afresh = self.read()
        return getattr(getattr(self.afresh, table), column)


def _identity(folder: Path) -> tuple[int, int]:
    """Return the identity of a directory; a rename changes it, reading its files does not."""
    seen = folder.stat()
    return seen.st_ino, seen.st_ctime_ns


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def _write(path: Path, content: bytes) -> None:
    # Not synced: what a power failure leaves is found by its digest.
    with path.open("xb") as file:
        file.write(content)


def _say_unusable(root: Path, error: OSError) -> None:
    _say(
        f"nothing is cached: {root} cannot be written ({error.strerror}). "
        "Set MPPROF_CACHE to another place, or to off"
    )


def _say_damaged(entry: Path, error: Exception) -> None:
    _say(f"a damaged entry of the cache is not used, the trace is read afresh: {entry} ({error})")


def _say(text: str) -> None:
    """Log a warning, each text once in a process."""
    if text not in _said:
        _said.add(text)
        log.warning("mpprof: %s", text)
