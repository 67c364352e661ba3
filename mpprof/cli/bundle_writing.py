"""Making a bundle: records and trace of one run, redacted, in a zip with a manifest."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, BinaryIO

from mpprof import traces
from mpprof._version import __version__
from mpprof.errors import MpprofError, UnreadableError
from mpprof.regular import open_below, open_regular
from mpprof.report.redact import TRACE_SUFFIXES, Redactor, redactor_of
from mpprof.store import formats, further_workers

if TYPE_CHECKING:
    from mpprof.model.run import Run

SCHEMA = "mpprof.bundle/1"
MANIFEST = "MANIFEST.json"
RECORDS = "mpprof"
MOST_RECORD_BYTES = 512 << 20
"""A record is redacted in memory: a larger file (a gap in a sparse one may be of any size) would fill it."""
_RECORD_NAMES = {formats.RUN_FILE, formats.STEPS_FILE, formats.HARDWARE_FILE, formats.COUNTERS_FILE,
                 formats.NUMERICS_FILE, formats.TRIED_FILE}  # fmt: skip
_STEP_LINE = re.compile(r'\{"kind":"step"(?:,"\w+":(?:-?[\d.e+-]+|true|false|null|"(?:NaN|-?Infinity)"))*\}')
NOT_REDACTED = (
    "in a text: a name without a path or a known form (of a person, of another host without its domain and "
    "port), and what follows a path's last blank",
    "the name of the run, which is that of its directory",
    "names of the model, its layers, ops and kernels, shapes, and all numbers",
    "in the trace: paths within a longer text that are neither in a home or a mounted directory, nor in the "
    "run's own, nor a Python source file",
)
_SESSION = "plugins/profile/{:04d}"
OUTSIDE = "a link that leads out of the run is not followed"


def folder_of(run: Run) -> str:
    """Return the run's name as one safe component of a path; a trace alone has the name of a host."""
    if not run.path.is_dir():
        return "trace"
    return re.sub(r"[^\w.-]+", "_", run.name.replace("/", "-")).strip("._") or "run"


def bundle(
    run: Run, *, all_traces: bool = False, max_trace_bytes: int = 512 << 20
) -> tuple[bytes, dict[str, Any]]:
    """Return the zip and its manifest. Traces over `max_trace_bytes`, unpacked, are left out and listed; so
    are records over that and over `MOST_RECORD_BYTES`.

    Raises UnreadableError where a record cannot be read.
    """
    redactor, sessions = redactor_of(run), _sessions(run)
    files: list[tuple[str, bytes]] = []
    left_out: list[dict[str, str]] = []
    try:
        for name, content in _records(run, redactor, sessions, max(max_trace_bytes, MOST_RECORD_BYTES)):
            if isinstance(content, str):
                left_out.append({"name": name, "reason": content})
            else:
                files.append((name, content))
        chosen = run.traces if all_traces else run.traces[-1:]
        left_out += [
            _left(path, "not the latest; --all-traces takes all") for path in run.traces[: -len(chosen)]
        ]
        for number, path in enumerate(chosen, 1 - len(chosen)):
            name = f"{sessions[_session(run, path)]}/host{f'_{-number:04d}' if number else ''}"
            content = _trace(run, path, redactor, max_trace_bytes)
            if isinstance(content, str):
                left_out.append(_left(path, content, name))
            else:
                files.append((name + _ending(path), content))
    except (OSError, EOFError, zlib.error) as error:
        where = getattr(error, "filename", None) or run.path
        raise UnreadableError(f"cannot be read ({error})", where=str(where)) from error
    manifest = _manifest(run, redactor, files, left_out)
    return _zipped(folder_of(run), files, manifest), manifest


def _left(path: Path, reason: str, link: str = "") -> dict[str, str]:
    """Return what is left out and why; a link that is not followed is named, so that it can be looked at."""
    return {"name": link if reason == OUTSIDE and link else f"trace{_ending(path)}", "reason": reason}


def _ending(path: Path) -> str:
    return next((suffix for suffix in TRACE_SUFFIXES if path.name.endswith(suffix)), path.suffix)


def _sessions(run: Run) -> dict[Path, str]:
    """Return a name of our own for each session, in order: theirs may tell of people and of hosts."""
    found = dict.fromkeys(_session(run, path) for path in run.traces)
    return {session: _SESSION.format(number) for number, session in enumerate(found, 1)}


def _session(run: Run, path: Path) -> Path:
    """Return the directory of a trace's session; the trace itself where it lies in no session's directory."""
    windows = run.facts.profile_windows if run.facts else ()
    named = any(window.trace and run.path / window.trace == path.parent for window in windows)
    return path.parent if named or traces.is_session(path.parent) else path


def _records(
    run: Run, redactor: Redactor, sessions: dict[Path, str], limit: int
) -> Iterator[tuple[str, bytes | str]]:
    """Yield each record with its content, or with why it is left out."""
    folder = run.path / RECORDS
    workers = (formats.folder_of(run.path, worker) for worker in further_workers(run.path))
    for path in sorted(each / name for each in (folder, *workers) for name in _RECORD_NAMES):
        if path.is_file():
            name = path.relative_to(run.path).as_posix()
            yield name, _record(run, path, redactor, sessions, limit)


def _opened(run: Run, path: Path) -> BinaryIO | None:
    """Return a file of the run, opened; None where it lies elsewhere, by a link in its own place or in a
    directory's."""
    return open_below(run.path, path) if run.path.is_dir() else open_regular(path)


def _record(run: Run, path: Path, redactor: Redactor, sessions: dict[Path, str], limit: int) -> bytes | str:
    file = _opened(run, path)
    if file is None:
        return OUTSIDE
    with file:
        if os.fstat(file.fileno()).st_size > limit:
            return _larger(limit)
        text = file.read(limit).decode("utf-8", "replace")  # and no more, where it grows meanwhile
    first = _parsed(text.partition("\n")[0]) if path.suffix == ".jsonl" else _parsed(text)
    if text and not (isinstance(first, dict) and str(first.get("schema")).startswith("mpprof.")):
        return "it is not a record of mpprof"
    if path.suffix == ".jsonl":
        return "".join(_line(line, redactor) for line in text.splitlines(keepends=True)).encode()
    _rename_sessions(run, first, sessions)
    return json.dumps(_redacted(first, redactor), indent=1).encode()


def _larger(limit: int) -> str:
    return f"larger than {limit >> 20} MiB; --max-size raises the limit"


def _rename_sessions(run: Run, facts: Any, sessions: dict[Path, str]) -> None:
    """Give the sessions that a run.json names the names that they have in the bundle."""
    windows = facts.get("profile_windows") if isinstance(facts, dict) else None
    for window in windows if isinstance(windows, list) else ():
        if isinstance(window, dict) and isinstance(window.get("trace"), str):
            number = len(sessions) + 1
            window["trace"] = sessions.setdefault(run.path / window["trace"], _SESSION.format(number))


def _redacted(facts: Any, redactor: Redactor) -> Any:
    if isinstance(facts, dict) and isinstance(facts.get("host"), str):
        facts["host"] = "<host>"  # even a name too common to be replaced elsewhere
    if isinstance(facts, dict) and isinstance(facts.get("script"), str):
        facts["script"] = PurePath(facts["script"]).name  # "-m package.train" has no folders
    return redactor.record(facts)


def _line(line: str, redactor: Redactor) -> str:
    """Return a line of a log, redacted. Step lines that hold numbers only stay as they are, which keeps a
    long log fast. A line that is cut off is kept only as a sign that there is one."""
    if _STEP_LINE.fullmatch(line.rstrip("\n")):
        return line
    value = _parsed(line)
    return (
        "{" + line[len(line.rstrip()) :] if value is None else formats.line(_redacted(value, redactor)) + "\n"
    )


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _trace(run: Run, path: Path, redactor: Redactor, limit: int) -> bytes | str:
    """Return the redacted trace; or the reason why it is left out."""
    if not path.name.endswith(TRACE_SUFFIXES):
        return "this format cannot be redacted"
    opened = _opened(run, path)
    if opened is None:
        return OUTSIDE
    with opened, gzip.open(opened) if path.suffix == ".gz" else opened as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        return _larger(limit)
    try:
        traces.read(path)
    except MpprofError as error:
        return f"it is not a trace: {error.what}"
    content = redactor.trace(content)
    return gzip.compress(content, 6, mtime=0) if path.suffix == ".gz" else content


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
