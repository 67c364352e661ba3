"""What is being looked at: run, baseline, ladder. It lives in the URL, so a link can be shared."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import parse_qs, urlencode

from mpprof.model.source import RunEntry

NO_BASELINE = "none"
MOST_COMPARED = 16
"""Runs in a ladder: each holds a whole analysis, and a link can name any number."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`run` is None only where there is no run; `ladder` are the runs of the Compare page, in order."""

    run: str | None
    baseline: str | None = None
    ladder: tuple[str, ...] = ()

    def query(self) -> str:
        """The URL's query, with its question mark; empty without a run."""
        if self.run is None:
            return ""
        pairs = [("run", self.run), ("baseline", self.baseline or NO_BASELINE)]
        pairs += [("with", run) for run in self.ladder]
        return f"?{urlencode(pairs)}"


def read(search: str | None, entries: Sequence[RunEntry]) -> Choice:
    """The choice that a query states. An id that is not in `entries` stays: the page says what is wrong."""
    values = parse_qs((search or "").removeprefix("?"))
    run = values.get("run", [None])[0] or default_run(entries)
    stated = values.get("baseline", [None])[0]
    baseline = default_baseline(run, entries) if stated is None else stated
    if baseline in (NO_BASELINE, run):
        baseline = None
    ladder = tuple(values.get("with", [])[:MOST_COMPARED])
    return Choice(run, baseline, ladder)


def default_run(entries: Sequence[RunEntry]) -> str | None:
    """The newest readable run, one with a reduced precision before one without."""
    if not entries:
        return None
    return max(
        entries, key=lambda entry: (entry.problem is None, _reduced(entry), entry.created_unix_ns or 0)
    ).id


def default_baseline(run: str | None, entries: Sequence[RunEntry]) -> str | None:
    """The float32 run that a run of reduced precision is most likely meant to be held against.

    The newest one on the same backend whose name says the same but for the precision; else the only
    float32 run on that backend; else None: the reader chooses.
    """
    chosen = next((entry for entry in entries if entry.id == run), None)
    if chosen is None or not _reduced(chosen):
        return None
    singles = [
        entry
        for entry in entries
        if entry.policy == "float32" and entry.problem is None and entry.backend == chosen.backend
    ]
    twins = [entry for entry in singles if _stem(entry.name) == _stem(chosen.name)]
    candidates = twins or (singles if len(singles) == 1 else [])
    return max(candidates, key=lambda entry: entry.created_unix_ns or 0).id if candidates else None


_PRECISION = re.compile(r"(mixed[-_]?)?(b?float16|float32|fp32|fp16|bf16|tf32)|mixed", re.IGNORECASE)


def _stem(name: str) -> str:
    """A run's name without what says its precision: "resnet-mixed_float16" -> "resnet-"."""
    return _PRECISION.sub("", name)


def _reduced(entry: RunEntry) -> bool:
    return entry.policy not in (None, "float32", "float64")
