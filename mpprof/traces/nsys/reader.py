"""Nsight Systems: exports (`*.sqlite`) are read. A report (`*.nsys-rep`) is exported where `nsys` is
installed; otherwise an error says how to."""

from __future__ import annotations

from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.shell import quoted
from mpprof.model.trace import Trace
from mpprof.traces.common.file_head import GZIP, SQLITE, Kind, Reader

REPORTS = (".nsys-rep", ".qdrep")


class NsysReader(Reader):
    """Reads `*.sqlite` that `nsys export` or `nsys stats` wrote."""

    kinds: tuple[Kind, ...] = (
        Kind("nsys", may_end=(".sqlite",)),
        Kind("nsys report", ends=REPORTS, unreadable="only Nsight Systems reads it"),
    )
    files = "exports of Nsight Systems (*.sqlite)"
    claims = (".sqlite",)

    def recognises(self, head: bytes) -> bool:
        """Return whether the file is an SQLite file of any kind: which tables it holds is seen when it is
        read."""
        return head.startswith(SQLITE)

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
            from mpprof.traces.nsys import exporting

            if (read := exporting.read(path, strict=strict)) is None:
                raise is_report(str(path), path.name)
            return read
        if not begins:
            raise UnreadableError("the file is empty", where=str(path), next="Export it again")
        if begins.startswith(GZIP):
            raise UnreadableError(
                "is an SQLite file packed with gzip, which is not read", where=str(path),
                next="Unpack it with gunzip and read the result",
            )  # fmt: skip
        from mpprof.traces.nsys import trace  # what another format does not need is not imported for it

        return trace.read(path, strict=strict)


def is_report(where: str, name: str) -> UnreadableError:
    """Return the error for a report: its format is not published."""
    return UnreadableError(
        "is a report that only Nsight Systems can read",
        where=where,
        next=f"Export it where that is installed: nsys export --type sqlite {quoted(name)}",
    )
