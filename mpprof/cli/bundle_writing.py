"""Making a bundle: records and trace of one run, redacted, in a zip with a manifest."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpprof._version import __version__
from mpprof.errors import UnreadableError
from mpprof.report.redact import TRACE_SUFFIXES, Redactor, hosts_of
from mpprof.traces.common import lazy_fetch

if TYPE_CHECKING:
    from mpprof.model.run import Run

SCHEMA = "mpprof.bundle/1"
MANIFEST = "MANIFEST.json"
RECORDS = "mpprof"
_STEP_LINE = re.compile(r'"kind"\s*:\s*"step"')
NOT_REDACTED = (
    "names of the model, its layers, ops and kernels, shapes, and all numbers",
    "in the trace: paths within a longer text that are neither a home directory nor a Python source file",
)


def folder_of(run: Run) -> str:
    """Return the run's name as one safe component of a path."""
    return re.sub(r"[^\w.-]+", "_", run.name.replace("/", "-")).strip("._") or "run"


def bundle(
    run: Run, *, all_traces: bool = False, max_trace_bytes: int = 512 << 20
) -> tuple[bytes, dict[str, Any]]:
    """Return the zip and its manifest. Traces over `max_trace_bytes`, unpacked, are left out and listed.

    Raises UnreadableError where a record cannot be read.
    """
    redactor = Redactor(hosts_of(run))
    files: list[tuple[str, bytes]] = []
    left_out: list[dict[str, str]] = []
    try:
        files += _records(run, redactor)
        traces = run.traces if all_traces else run.traces[-1:]
        left_out += [
            _left(path, "not the latest; --all-traces takes all") for path in run.traces[: -len(traces)]
        ]
        for number, path in enumerate(traces):
            lazy_fetch.complete(path)
            content = _trace(path, redactor, max_trace_bytes)
            if isinstance(content, str):
                left_out.append(_left(path, content))
            else:
                files.append((_trace_name(run, path, number), content))
    except (OSError, EOFError, zlib.error) as error:
        where = getattr(error, "filename", None) or run.path
        raise UnreadableError(f"cannot be read ({error})", where=str(where)) from error
    manifest = _manifest(run, redactor, files, left_out)
    return _zipped(folder_of(run), files, manifest), manifest


def _left(path: Path, reason: str) -> dict[str, str]:
    return {"name": _suffix(path), "reason": reason}


def _suffix(path: Path) -> str:
    return "trace" + next((suffix for suffix in TRACE_SUFFIXES if path.name.endswith(suffix)), path.suffix)


def _records(run: Run, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    root = run.path / RECORDS
    if not root.is_dir():
        return
    for path in sorted(root.rglob("*")):
        name = path.relative_to(run.path).as_posix()
        if not path.is_file() or path.is_symlink():
            continue
        if path.suffix == ".json":
            yield name, _record(path, redactor)
        elif path.suffix == ".jsonl":
            yield name, _lines(path, redactor)


def _record(path: Path, redactor: Redactor) -> bytes:
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UnreadableError("is not JSON", where=str(path)) from error
    if isinstance(facts, dict) and isinstance(facts.get("host"), str):
        facts["host"] = "<host>"  # even a name too common to be replaced elsewhere
    return json.dumps(redactor.record(facts), indent=1).encode()


def _lines(path: Path, redactor: Redactor) -> bytes:
    """Return the lines of a log, redacted. Step lines hold numbers only and stay as they are, which keeps a
    long log fast; a torn line stays as it is, too."""
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = (
        line if _STEP_LINE.search(line) else redactor.text(line) for line in text.splitlines(keepends=True)
    )
    return "".join(lines).encode()


def _trace(path: Path, redactor: Redactor, limit: int) -> bytes | str:
    """Return the redacted trace; or the reason why it is left out."""
    if not path.name.endswith(TRACE_SUFFIXES):
        return "this format cannot be redacted"
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        return f"larger than {limit >> 20} MiB; --max-size raises the limit"
    content = redactor.trace(content)
    return gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content


def _trace_name(run: Run, path: Path, number: int) -> str:
    """Return the trace's place under the run, its file name (which is a host's) replaced."""
    inside = run.path.is_dir() and path.is_relative_to(run.path)
    folder = path.parent.relative_to(run.path).as_posix() if inside else "plugins/profile/bundled"
    suffix = next(suffix for suffix in TRACE_SUFFIXES if path.name.endswith(suffix))
    return f"{folder}/host{f'-{number}' if number else ''}{suffix}"


def _manifest(
    run: Run, redactor: Redactor, files: list[tuple[str, bytes]], left_out: list[dict[str, str]]
) -> dict[str, Any]:
    not_redacted = list(NOT_REDACTED)
    if redactor.unsafe_hosts:
        not_redacted.append("in the trace: host names too short to be distinguished from other text")
    return {
        "schema": SCHEMA,
        "mpprof": __version__,
        "run": folder_of(run),
        "files": [
            {"name": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for name, content in files
        ],
        "left_out": left_out,
        "redacted": {kind: count for kind, count in sorted(redactor.counts.items()) if count},
        "not_redacted": not_redacted,
    }


def _zipped(folder: str, files: list[tuple[str, bytes]], manifest: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MANIFEST, json.dumps(manifest, indent=1))
        for name, content in files:
            archive.writestr(f"{folder}/{name}", content)
    return out.getvalue()
