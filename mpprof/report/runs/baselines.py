"""Which float32 run a run of reduced precision is compared with, if none is named: for the page, a survey,
and a report on a directory of two runs alike."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice

from mpprof.model.source import RunEntry

_PRECISION = re.compile(
    r"(mixed[-_]?)?(b?float16|float32|fp32|fp16|bf16|tf32)|mixed"
    r"|(?<![a-z])(base(line)?|ref(erence)?)(?![a-z])",
    re.IGNORECASE,
)
_NARROW = re.compile(r"mixed|b?float16|bf16|fp16|(?<![a-z])amp(?![a-z])", re.IGNORECASE)
_WIDE = re.compile(r"float32|fp32|(?<![a-z])(base(line)?|ref(erence)?)(?![a-z])", re.IGNORECASE)

_Key = tuple[str, str | None, object]


def default_baselines(entries: Iterable[RunEntry]) -> dict[str, str | None]:
    """Return for each run, by id, the id of the float32 run that it is most likely to be compared with.

    Never one that is known to train another model, with another batch size or on another device. Of the
    others the one whose name says the same but for the precision ("x/base" beside "x/mixed"), the newest of
    several; else the only one in the same directory; else the only one known to train the same model; else
    the only float32 run on that backend; else None: the reader chooses. Of a float32 run it is None, too.
    """
    entries = tuple(entries)
    groups: defaultdict[_Key, list[RunEntry]] = defaultdict(list)
    for entry in entries:
        if is_float32(entry) and entry.problem is None:
            for key in _keys(entry):
                groups[key].append(entry)
    return {entry.id: _baseline(entry, groups) if is_reduced(entry) else None for entry in entries}


def _baseline(chosen: RunEntry, groups: Mapping[_Key, list[RunEntry]]) -> str | None:
    for key in _keys(chosen):
        found = groups.get(key, [])
        alike = (entry for entry in found if not _unlike(entry, chosen))
        if key[0] == "name":
            newest = max(
                alike, key=lambda e: (e.batch_size == chosen.batch_size, e.created_unix_ns or 0), default=None
            )
            if newest is not None:
                return newest.id
        elif key[0] != "backend" or len(found) == 1:
            first = tuple(islice(alike, 2))
            if len(first) == 1:
                return first[0].id
    return None


def _keys(entry: RunEntry) -> Iterator[_Key]:
    """Yield what the run may have in common with its baseline, the surest first. Runs are looked up by these:
    each against all others would take minutes for a hundred thousand runs."""
    yield "name", entry.backend, _stem(entry.name)
    if folder := _folder(entry.name):
        yield "folder", entry.backend, folder
    if entry.parameters:
        yield "model", entry.backend, entry.parameters
    yield "backend", entry.backend, None


def _unlike(one: RunEntry, other: RunEntry) -> bool:
    """Return whether the two are known to differ in their models, batch sizes or devices."""
    return any(
        first is not None and second is not None and first != second
        for first, second in (
            (one.parameters, other.parameters),
            (one.device, other.device),
            (one.batch_size, other.batch_size),
        )
    )


def experiment(name: str) -> str:
    """Return what groups runs: their directory, else their name without what says its precision."""
    return _folder(name) or _stem(name).strip("-_. ") or name


def _folder(name: str) -> str:
    return name.rpartition("/")[0]


@lru_cache(8192)
def _stem(name: str) -> str:
    """Return a run's name without what says its precision: "resnet-mixed_float16" -> "resnet-"."""
    return _PRECISION.sub("", name)


def is_reduced(entry: RunEntry) -> bool:
    """Return whether a run is in less than float32: by the recorded policy; of a trace without records by its
    name."""
    if entry.policy is None:
        return bool(_NARROW.search(entry.name)) and not _WIDE.search(entry.name)
    return entry.policy not in ("float32", "float64")


def is_float32(entry: RunEntry) -> bool:
    """Return whether a run is in float32, as `is_reduced`; of some runs neither is known."""
    if entry.policy is None:
        return bool(_WIDE.search(entry.name)) and not _NARROW.search(entry.name)
    return entry.policy == "float32"
