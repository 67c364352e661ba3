"""What is being looked at: run, baseline, ladder. It lives in the URL, so a link can be shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qs, parse_qsl, urlencode

from mpprof.model.source import RunEntry
from mpprof.report.runs import baselines

NO_BASELINE = "none"
FIRST = "first"
MOST_COMPARED = 16
"""Runs in a ladder: each holds a whole analysis, and a link can name any number."""


@dataclass(frozen=True, slots=True)
class Choice:
    """`run` is None only where there is no run; `ladder` are the runs of the Compare page, in order, each
    held against the one before it, or `against_first`. `host`: the one that pages of one trace are of; None:
    the first."""

    run: str | None
    baseline: str | None = None
    ladder: tuple[str, ...] = ()
    against_first: bool = False
    host: str | None = None

    def query(self) -> str:
        """Return the URL's query, with its question mark; empty without a run."""
        if self.run is None:
            return ""
        pairs = [("run", self.run), ("baseline", self.baseline or NO_BASELINE)]
        pairs += [("with", run) for run in self.ladder]
        pairs += [("against", FIRST)] if self.against_first else []
        pairs += [("host", self.host)] if self.host is not None else []
        return f"?{urlencode(pairs)}"


_OWN = ("run", "baseline", "with", "against")


def stated(chosen: Choice, search: str) -> str:
    """Return the query `search` with the choice `chosen` in place of the one that it states; everything else
    stays."""
    rest = [(name, value) for name, value in parse_qsl(search.removeprefix("?")) if name not in _OWN]
    return chosen.query() + (f"&{urlencode(rest)}" if rest else "")


def read(search: str | None, entries: Sequence[RunEntry]) -> Choice:
    """Return the choice that a query states. An id that is not in `entries` is kept: the page says what is
    wrong."""
    values = parse_qs((search or "").removeprefix("?"))
    run = values.get("run", [None])[0] or default_run(entries)
    stated = values.get("baseline", [None])[0]
    baseline = default_baseline(run, entries) if stated is None else stated
    if baseline in (NO_BASELINE, run):
        baseline = None
    ladder = tuple(values.get("with", [])[:MOST_COMPARED])
    against_first = values.get("against", [None])[0] == FIRST
    return Choice(run, baseline, ladder, against_first, values.get("host", [None])[0])


def default_run(entries: Sequence[RunEntry]) -> str | None:
    """Return the newest readable run. A run that is not on a CPU alone comes first, because mixed precision
    gains nothing on a CPU; after that, a run with a reduced precision comes before one without."""
    if not entries:
        return None

    def rank(entry: RunEntry) -> tuple[bool, bool, bool, int]:
        return (
            entry.problem is None,
            entry.on_gpu is not False,
            baselines.is_reduced(entry),
            entry.created_unix_ns or 0,
        )

    return max(entries, key=rank).id


def default_baseline(run: str | None, entries: Sequence[RunEntry]) -> str | None:
    """Return the float32 run that a run of reduced precision is compared with unless another is named."""
    return default_baselines(tuple(entries)).get(run or "")


@lru_cache(4)
def default_baselines(entries: tuple[RunEntry, ...]) -> Mapping[str, str | None]:
    """Return `default_baseline` by run; kept until one of the runs changes."""
    return MappingProxyType(baselines.default_baselines(entries))
