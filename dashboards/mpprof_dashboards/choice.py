"""What is being looked at: run, baseline, ladder. It lives in the URL, so a link can be shared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from urllib.parse import parse_qs, parse_qsl, urlencode

from mpprof.model.source import RunEntry

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
        return entry.problem is None, entry.on_gpu is not False, _reduced(entry), entry.created_unix_ns or 0

    return max(entries, key=rank).id


def default_baseline(run: str | None, entries: Sequence[RunEntry]) -> str | None:
    """Return the float32 run that a run of reduced precision is most likely meant to be compared with.

    Never one that is known to train another model or to run on another device. Of the others the one whose
    name says the same but for the precision ("x/base" beside "x/mixed"), one of as large a batch before the
    rest, the newest of several; else the only one in the same directory; else the only one known to train
    the same model; else the only float32 run on that backend; else None: the reader chooses.
    """
    chosen = next((entry for entry in entries if entry.id == run), None)
    if chosen is None or not _reduced(chosen):
        return None
    singles = [
        entry
        for entry in entries
        if _single(entry) and entry.problem is None and entry.backend == chosen.backend
    ]
    alike = [entry for entry in singles if not _unlike(entry, chosen)]
    twins = [entry for entry in alike if _stem(entry.name) == _stem(chosen.name)]
    if twins:
        return max(twins, key=lambda e: (e.batch_size == chosen.batch_size, e.created_unix_ns or 0)).id
    for group in (
        [entry for entry in alike if _folder(entry.name) and _folder(entry.name) == _folder(chosen.name)],
        [entry for entry in alike if entry.parameters and entry.parameters == chosen.parameters],
        alike if len(singles) == 1 else [],
    ):
        if len(group) == 1:
            return group[0].id
    return None


@lru_cache(4)
def default_baselines(entries: tuple[RunEntry, ...]) -> Mapping[str, str | None]:
    """Return `default_baseline` by run. With hundreds of runs, each is compared with all others only once,
    until one of them changes."""
    return MappingProxyType({entry.id: default_baseline(entry.id, entries) for entry in entries})


_PRECISION = re.compile(
    r"(mixed[-_]?)?(b?float16|float32|fp32|fp16|bf16|tf32)|mixed"
    r"|(?<![a-z])(base(line)?|ref(erence)?)(?![a-z])",
    re.IGNORECASE,
)
_NARROW = re.compile(r"mixed|b?float16|bf16|fp16|(?<![a-z])amp(?![a-z])", re.IGNORECASE)
_WIDE = re.compile(r"float32|fp32|(?<![a-z])(base(line)?|ref(erence)?)(?![a-z])", re.IGNORECASE)


def _unlike(one: RunEntry, other: RunEntry) -> bool:
    """Return whether the two are known to train different models or to run on different devices."""
    return any(
        first is not None and second is not None and first != second
        for first, second in ((one.parameters, other.parameters), (one.device, other.device))
    )


def experiment(name: str) -> str:
    """Return the key that groups runs: their directory, else their name without the part that states its
    precision."""
    return _folder(name) or _stem(name).strip("-_. ") or name


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


@lru_cache(8192)
def _stem(name: str) -> str:
    """Return a run's name without the part that states its precision: "resnet-mixed_float16" -> "resnet-"."""
    return _PRECISION.sub("", name)


def _reduced(entry: RunEntry) -> bool:
    """Return whether a run has a reduced precision, by the recorded policy; for a trace without records, by
    its name."""
    if entry.policy is None:
        return bool(_NARROW.search(entry.name)) and not _WIDE.search(entry.name)
    return entry.policy not in ("float32", "float64")


def _single(entry: RunEntry) -> bool:
    if entry.policy is None:
        return bool(_WIDE.search(entry.name)) and not _NARROW.search(entry.name)
    return entry.policy == "float32"
