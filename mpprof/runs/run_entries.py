"""A run as it stands in a list of runs: what its facts say at a glance. No trace is read for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from mpprof.errors import MpprofError
from mpprof.model.run import RunFacts
from mpprof.model.source import RunEntry
from mpprof.runs.loading import Place
from mpprof.store import formats as stored
from mpprof.store.facts import read_facts
from mpprof.traces import formats


def entry_of(name: str, facts: RunFacts | None, *, id: str | None = None, **known: Any) -> RunEntry:
    """Return the entry of a run by its facts; None: it has no records. `known`: fields of `RunEntry` that
    facts do not tell."""
    fit = facts.fits[-1] if facts is not None and facts.fits else None
    devices = facts.devices if facts else ()
    device = next((each for each in devices if each.kind != "cpu"), next(iter(devices), None))
    return RunEntry(
        id=name if id is None else id,
        name=name,
        policy=fit.policy.name if fit else None,
        backend=facts.framework.get("backend") if facts else None,
        created_unix_ns=facts.created_unix_ns if facts else None,
        device=device.name if device else None,
        on_gpu=device.kind != "cpu" if device else None,
        batch_size=fit.batch_size if fit else None,
        parameters=facts.model.parameters if facts and facts.model else None,
        plan=facts.planned if facts else None,
        **known,
    )


def why_no_trace(file: Path) -> str | None:
    """Return why a file that should be a trace is not one, by its first bytes; None: they are a trace's."""
    known = formats.of(file)
    return f"{file}: {known.why}" if known is not None and known.why else None


def entry_at(place: Place, name: str) -> RunEntry:
    """Return the entry of the run at a place by its facts alone; its `id` is the path. It says all that
    decides which run is its baseline: not whether the run goes on."""
    problem, facts = None, None
    records = stored.folder_of(place.root) / stored.RUN_FILE
    if place.root.is_file():
        problem = why_no_trace(place.root)
    elif records.exists():
        try:
            facts = read_facts(records)
        except MpprofError as error:
            problem = str(error)
    return entry_of(name, facts, id=str(place.root), problem=problem, live=False)
