"""The runs of a directory, one row each: what `mpprof ls` prints."""

from __future__ import annotations

import os
from pathlib import Path

from mpprof.analysis.steps import statistics as stepping
from mpprof.errors import MpprofError, UnreadableError
from mpprof.model.rows import RunRow
from mpprof.model.run import Run
from mpprof.report import json as documents
from mpprof.report import words
from mpprof.runs import loading
from mpprof.runs.state import last_record_unix_ns, last_write_unix_ns, state_of

NO_RECORDS = "a trace without records of mpprof"


def listed(path: Path, *, now_unix_ns: int, elsewhere: bool = False) -> list[RunRow]:
    """Return a row for each run under a path, oldest first, and behind them those that cannot be read.

    `elsewhere`: the path is a copy of what lies at an address or in a bundle. Step logs are read whole, one
    at a time; traces are not. Raises NotFoundError where there is no path or no run, UnreadableError where
    directories that may hold one cannot be opened and nothing else is there.
    """
    at = loading.places(path, every=True)
    if not at:
        loading.runs(path)  # raises what says why
    rows: list[RunRow] = []
    broken: list[RunRow] = []
    for place in at:
        try:
            run = _read(place)
        except MpprofError as error:
            broken.append(_broken(place.name, error))
        else:
            rows.append(_row(run, now_unix_ns, elsewhere))
    refused = loading.closed_beside(path, at)
    broken += [_broken(os.path.relpath(error.where, path), error) for error in refused]
    return [*sorted(rows, key=lambda row: (row["created_unix_ns"] or 0, row["run"])), *broken]


def _read(place: loading.Place) -> Run:
    """Return the run of a place. Raises UnreadableError for one whose files are all empty, too."""
    run = place.read()
    if run.facts is None and not run.steps and not any(trace.stat().st_size for trace in run.traces):
        raise UnreadableError("holds nothing", where=str(place.root), next="Record it again, or delete it")
    return run


def _row(run: Run, now_unix_ns: int, elsewhere: bool) -> RunRow:
    facts, fit = run.facts, run.last_fit
    steps = stepping.summarise(run.steps, facts, spans=run.spans)
    state = state_of(run, now_unix_ns=now_unix_ns, elsewhere=elsewhere)
    written = last_record_unix_ns(run) if elsewhere else last_write_unix_ns(run)
    row: RunRow = {
        "run": run.name,
        "id": facts.run_id if facts else None,
        "policy": fit.policy.name if fit else None,
        "card": documents.device_name(documents.accelerators_first(facts.devices)) if facts else None,
        "batch_size": fit.batch_size if fit else None,
        "steps": steps.count if steps else None,
        "step_ns": steps.mean_ns if steps else None,
        "state": state,
        "error": facts.ended.kind if facts and facts.ended and facts.ended.by_error else None,
        "progress": words.progress(run.last_step, facts.planned if facts else None)
        if state == "running"
        else None,
        "created_unix_ns": facts.created_unix_ns or None if facts else None,
        "last_written_unix_ns": written,
        "traces": len(run.traces),
        "problem": None,
        "absent": {},
    }
    missing = [
        key for key, value in row.items() if value is None and key not in ("problem", "error", "progress")
    ]
    row["absent"] = {key: _why(run, key) for key in missing}
    return row


def _why(run: Run, key: str) -> str:
    """Return why a run that can be read has no value for a column."""
    if run.facts is None:
        return NO_RECORDS if run.steps is None else "run.json is missing"
    if run.steps is None and key in ("steps", "step_ns", "state"):
        return "there is no step log"
    if key == "step_ns":
        return "no steady step is recorded yet"
    return run.facts.absent.get(key, "not recorded")


def _broken(name: str, error: MpprofError) -> RunRow:
    return {
        "run": name, "id": None, "policy": None, "card": None, "batch_size": None, "steps": None,
        "step_ns": None, "state": None, "error": None, "progress": None, "created_unix_ns": None,
        "last_written_unix_ns": None, "traces": None, "problem": str(error), "absent": {},
    }  # fmt: skip
