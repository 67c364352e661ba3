"""Whether a run still trains: by the end that its records state, and by when they were last written."""

from __future__ import annotations

import math
from pathlib import Path

from mpprof import store
from mpprof.model.run import Run
from mpprof.model.source import RunState
from mpprof.store import formats

_FILES = (formats.RUN_FILE, formats.STEPS_FILE, formats.HARDWARE_FILE)
STOPPED_AFTER_S = 15.0
"""While the process lives it writes a hardware sample at least every 2 seconds."""

COPIED_AFTER_S = 60.0
"""A line is written within 2 seconds of what it states; the rest is for clocks that were set meanwhile."""


def state_of(run: Run, *, now_unix_ns: int, elsewhere: bool) -> RunState | None:
    """Return the run's state at `now_unix_ns`; None without a step log, which alone has an end.
    `elsewhere`: its files are copies, whose times are not those of the writes."""
    if run.facts is None or run.steps is None:
        return None
    if run.facts.ended is not None and run.facts.ended.by_error:
        return "failed"
    if run.finished:
        how = run.broken_off
        return "ended" if how is None else "exit" if how == "exit" else "interrupted"
    if "recording" in run.facts.absent:
        return "unrecorded"
    if elsewhere:
        return "unfinished"
    written = last_write_unix_ns(run)
    idle_s = math.inf if written is None else (now_unix_ns - written) / 1e9
    return "stopped" if idle_s > STOPPED_AFTER_S else "running"


def has_stopped(run: Run, *, now_unix_ns: int) -> bool:
    """Return whether the run stopped without an end on record. Files that were written long after the run's
    last record are a copy of a run that may go on elsewhere: False."""
    state = state_of(run, now_unix_ns=now_unix_ns, elsewhere=False)
    written, recorded = last_write_unix_ns(run), last_record_unix_ns(run)
    if state != "stopped" or written is None or recorded is None:
        return False
    return abs(written - recorded) / 1e9 <= COPIED_AFTER_S


def last_write_unix_ns(run: Run) -> int | None:
    """Return when the newest file of the run's records, of any worker, was written; of a run without records
    its newest trace. None: none of them is there any more."""
    recorded = [file for folder in _folders(run.path) for name in _FILES if (file := folder / name)]
    times = [time for file in recorded if (time := _changed_ns(file)) is not None]
    return max(
        times or (time for file in run.traces if (time := _changed_ns(file)) is not None), default=None
    )


def last_record_unix_ns(run: Run) -> int | None:
    """Return the time of the last step or sample by the run's own clock, which copies keep. None: the run
    has no clock, or no lines."""
    if run.facts is None or not run.facts.clock_unix_ns:
        return None
    tables = (run.steps, run.hardware)
    times = [int(table.t_ns.max()) for table in tables if table is not None and len(table)]
    return run.facts.clock_unix_ns + max(times) if times else None


def _folders(root: Path) -> tuple[Path, ...]:
    if not root.is_dir():
        return ()
    return (formats.folder_of(root), *(formats.folder_of(root, k) for k in store.further_workers(root)))


def _changed_ns(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:  # gone, or not there yet
        return None
