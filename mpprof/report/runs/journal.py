"""The rows of earlier surveys: one JSON line each, found again by what they rest on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from mpprof._version import __version__
from mpprof.errors import UnreadableError, UsageError
from mpprof.model.rows import SurveyRow
from mpprof.regular import open_regular
from mpprof.report import json as documents

_BEGIN = b'{"signature":'
"""How each line begins."""

GIVEN_UP = "given up: "
"""How the problem of a run begins whose process ended or took too long."""


def signature_of(root: Path, baseline: Path | None, files: Iterable[Path]) -> str:
    """Return a digest that changes with the files that a row depends on, by size and time, and with mpprof's
    version."""
    against = baseline.resolve() if baseline is not None else None
    digest = hashlib.sha256(f"{__version__}\0{root.resolve()}\0{against}".encode("utf-8", "surrogateescape"))
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            continue
        digest.update(f"\0{stat.st_size}\0{stat.st_mtime_ns}".encode())
    return digest.hexdigest()


class Journal:
    """The rows of earlier surveys, one JSON line each, and where new ones are added. Without a file, none.

    A torn last line is left out. A run whose process was killed or took too long is tried again. Raises
    UsageError for a file that is not empty and begins otherwise, before anything is added to it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._rows: dict[str, dict[str, Any]] = {}
        if path is None:
            return
        try:
            path.touch()
            with open_regular(path) as file:
                line = b"\n"
                if not _BEGIN.startswith(file.read(len(_BEGIN))):
                    raise UsageError(
                        "is not a survey's table, nothing was added to it", where=str(path),
                        next="Give --resume a new file, or one that a survey wrote",
                    )  # fmt: skip
                file.seek(0)
                for line in file:
                    self._keep(line)
            if not line.endswith(b"\n"):
                with path.open("ab") as file:
                    file.write(b"\n")
        except (OSError, UnreadableError) as error:
            why = error.strerror if isinstance(error, OSError) else error.what
            raise UsageError(
                f"cannot be used ({why})", where=str(path), next="Give --resume another file"
            ) from error

    def _keep(self, line: bytes) -> None:
        try:
            kept = json.loads(line)
            self._rows[kept["signature"]] = dict(kept["row"])
        except (ValueError, KeyError, TypeError, RecursionError):  # torn, another's, or deeply nested
            return

    def row(self, signature: str) -> SurveyRow | None:
        """Return the row of this very run, if it was computed before."""
        row = self._rows.get(signature)
        known = row is not None and set(row) == set(SurveyRow.__annotations__)
        return cast("SurveyRow", row) if known else None

    def add(self, signature: str, row: SurveyRow) -> None:
        """Keep a row, unless its problem may be gone the next time."""
        if self._path is None or (row["problem"] or "").startswith(GIVEN_UP):
            return
        with self._path.open("a", encoding="utf-8") as file:
            file.write(documents.dumps({"signature": signature, "row": row}, indent=None).strip() + "\n")
