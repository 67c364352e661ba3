"""Reports of Nsight Systems, exported by the `nsys` that is installed."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from mpprof.errors import UnreadableError
from mpprof.model.shell import quoted
from mpprof.model.trace import Trace
from mpprof.traces.nsys import trace

LONGEST_EXPORT_S = 600
"""A report of 1 GB takes a minute or two."""


def read(path: Path, *, strict: bool) -> Trace | None:
    """Read a report by the export that `nsys` makes of it, into a folder that is deleted afterwards; None
    where `nsys` is not installed. Raises UnreadableError where it makes none."""
    nsys = shutil.which("nsys")
    if nsys is None:
        return None
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
        found = trace.read(made, strict=strict)
    return replace(found, source=replace(found.source, path=path, size_bytes=path.stat().st_size))


def _not_exported(path: Path, why: str) -> UnreadableError:
    return UnreadableError(
        f"is a report that `nsys export` could not export: {why[:300]}",
        where=str(path),
        next=f"Export it with the version that recorded it: nsys export --type sqlite {quoted(path.name)}",
    )
