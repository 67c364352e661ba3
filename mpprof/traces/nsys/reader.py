"""Nsight Systems: exports (`*.sqlite`) are read. A report (`*.nsys-rep`) is exported where `nsys` is
installed; elsewhere it is said how to."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mpprof.errors import UnreadableError
from mpprof.model.shell import quoted
from mpprof.model.trace import Trace
from mpprof.traces.common.file_head import GZIP, SQLITE
from mpprof.traces.common.file_kinds import Kind

STRINGS = b"StringIds"
"""A table that every export has."""
REPORTS = (".nsys-rep", ".qdrep")
LONGEST_EXPORT_S = 600
"""A report of 1 GB takes a minute or two."""


class NsysReader:
    """Reads `*.sqlite` that `nsys export` or `nsys stats` wrote."""

    kinds: tuple[Kind, ...] = (
        Kind("nsys", may_end=(".sqlite",)),
        Kind("nsys report", ends=REPORTS, unreadable="only Nsight Systems reads it"),
    )

    def recognises(self, head: bytes) -> bool:
        """Return whether the file is an SQLite file of any kind: which tables it holds is seen when it is
        read."""
        return head.startswith(SQLITE)

    def claims(self, name: str) -> bool:
        return name.endswith((".sqlite", *REPORTS))

    def kind_of(self, name: str, head: bytes) -> str:
        return self.kinds[0].name

    def holds_trace(self, path: Path) -> bool:
        """Return whether an SQLite file has the tables of an export. Raises OSError."""
        with path.open("rb") as file:
            if file.read(len(SQLITE)) != SQLITE:
                return False
        from mpprof.traces.nsys import trace

        return trace.looks_like_trace(path)

    def slow_from_bytes(self, *, packed: bool) -> int | None:
        """Return the size from which on reading is slow: 6 to 15 MB are read a second."""
        return 4 << 20

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a trace. Raises UnreadableError where nothing usable is left, and with `strict` for any
        damage."""
        with path.open("rb") as file:
            begins = file.read(len(SQLITE))
        if path.name.endswith(REPORTS) and begins != SQLITE:
            return _exported(path, strict=strict)
        if not begins:
            raise UnreadableError("the file is empty", where=str(path), next="Export it again")
        if begins.startswith(GZIP):
            raise UnreadableError(
                "is an SQLite file packed with gzip, which is not read", where=str(path),
                next="Unpack it with gunzip and read the result",
            )  # fmt: skip
        from mpprof.traces.nsys import trace  # what another format does not need is not imported for it

        return trace.read(path, strict=strict)


def _exported(path: Path, *, strict: bool) -> Trace:
    """Read a report by the export that `nsys` makes of it, into a folder that is deleted afterwards. Raises
    UnreadableError where `nsys` is not installed or makes none."""
    nsys = shutil.which("nsys")
    if nsys is None:
        raise is_report(str(path), path.name)
    from mpprof.traces.nsys import trace

    with TemporaryDirectory(prefix="mpprof-nsys-") as folder:
        made = Path(folder) / "export.sqlite"
        command = [nsys, "export", "--type", "sqlite", "--output", str(made), str(path.absolute())]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=LONGEST_EXPORT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise _not_exported(path, str(error)) from error
        if done.returncode or not made.is_file():
            said = (done.stderr or done.stdout).decode("utf-8", "replace").split("\n")
            words = [line.strip() for line in said if line.strip()]
            raise _not_exported(path, words[-1] if words else f"it ended with {done.returncode}")
        read = trace.read(made, strict=strict)
    return replace(read, source=replace(read.source, path=path, size_bytes=path.stat().st_size))


def _not_exported(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"is a report that `nsys export` could not export: {why[:300]}",
        where=str(path),
        next=f"Export it with the version that recorded it: nsys export --type sqlite {quoted(path.name)}",
    )


def is_report(where: str, name: str) -> UnreadableError:
    """Return the error for a report: its format is not published."""
    return UnreadableError(
        "is a report that only Nsight Systems can read",
        where=where,
        next=f"Export it where that is installed: nsys export --type sqlite {quoted(name)}",
    )
