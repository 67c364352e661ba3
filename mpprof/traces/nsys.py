"""Nsight Systems: exports (`*.sqlite`) are read; of a report (`*.nsys-rep`) it is said how to export it."""

from __future__ import annotations

from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces.beginning import GZIP

MAGIC = b"SQLite format 3\x00"
STRINGS = b"StringIds"
"""A table that every export has."""
REPORTS = (".nsys-rep", ".qdrep")


class NsysReader:
    """Reads `*.sqlite` that `nsys export` or `nsys stats` wrote."""

    format = "nsys"
    suffixes: tuple[str, ...] = (".sqlite",)

    def recognises(self, head: bytes) -> bool:
        """Any SQLite file: which tables it holds is seen when it is read."""
        return head.startswith(MAGIC)

    def claims(self, name: str) -> bool:
        return name.endswith((*self.suffixes, *REPORTS))

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Raises UnreadableError where nothing usable is left, and with `strict` for any damage."""
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
        if path.name.endswith(REPORTS) and begins != MAGIC:
            raise is_report(str(path), path.name)
        if not begins:
            raise UnreadableError("the file is empty", where=str(path), next="Export it again")
        if begins.startswith(GZIP):
            raise UnreadableError(
                "is an SQLite file packed with gzip, which is not read", where=str(path),
                next="Unpack it with gunzip and read the result",
            )  # fmt: skip
        from mpprof.traces import nsys_read  # what another format does not need is not imported for it

        return nsys_read.read(path, strict=strict)


def is_report(where: str, name: str) -> UnreadableError:
    """What is to be said of a report: its format is not published."""
    return UnreadableError(
        "is a report that only Nsight Systems can read",
        where=where,
        next=f"Export it where that is installed: nsys export --type sqlite {name}",
    )


def looks_like_trace(path: Path) -> bool:
    """Whether a `.sqlite` of any name is an export of Nsight Systems. Raises OSError."""
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            return False
    from mpprof.traces import nsys_read

    return nsys_read.looks_like_trace(path)
