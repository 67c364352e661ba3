"""Ranges of a host's annotations that say which passes are warm-up and which are measured, as benchmarks name
them: `model|warmup|forward`, `model|measure|forward`."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mpprof.analysis.arrays.intervals import Intervals, union
from mpprof.model.trace import HostKind, Trace

Int64 = NDArray[np.int64]

WARM_UP = re.compile(r"(?<![a-z])warm(?:ing)?[-_ ]?up(?![a-z])", re.IGNORECASE)
_MEASURED = re.compile(r"(?<![a-z])measur(?:e|ed|ement|ing)(?![a-z])", re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_LONGEST = 512
_NO_RANGE = (HostKind.OP, HostKind.EXECUTOR, HostKind.LAUNCH, HostKind.COPY, HostKind.SYNC, HostKind.CODE)
"""Events of a framework's or the driver's own."""


def warm_up(trace: Trace) -> Intervals:
    """Return when any thread of the host was in a range that says warm-up; empty where no range does."""
    rows = _ranges(trace, lambda text: bool(WARM_UP.search(text)))
    start = trace.host.start_ns[rows]
    return union(start, start + trace.host.duration_ns[rows])


def measured(trace: Trace, threads: NDArray[np.bool_] | None) -> Int64:
    """Return the rows of the host's events that are the measured passes, by start: the innermost ranges that
    say so, on the thread that has most of them. Empty where no range says warm-up, so that nothing shows that
    the names tell passes apart, and where the innermost have several names (forward, backward), which are
    parts of a pass. `threads`: which threads count; None: all."""
    none = np.empty(0, np.int64)
    if not len(warm_up(trace)):
        return none
    host = trace.host
    rows = _ranges(trace, lambda text: bool(_MEASURED.search(text)) and not WARM_UP.search(text))
    if threads is not None:
        rows = rows[threads[host.thread[rows]]]
    if not len(rows):
        return none
    rows = rows[host.thread[rows] == np.bincount(host.thread[rows]).argmax()]
    start, end = host.start_ns[rows], host.start_ns[rows] + host.duration_ns[rows]
    order = np.lexsort((-end, start))
    innermost = np.append(start[order][1:] >= end[order][:-1], True)
    rows = rows[order[innermost]]
    names = {_DIGITS.sub("", trace.strings[name]) for name in np.unique(host.name[rows]).tolist()}
    return rows if len(names) == 1 else none


def _ranges(trace: Trace, named: Callable[[str], bool]) -> Int64:
    """Return the rows of the host's ranges whose name is `named` so; a Python tracer's frames (`$`) are no
    ranges."""
    texts = [not text.startswith("$") and named(text[:_LONGEST]) for text in trace.strings]
    rows = np.flatnonzero(np.array(texts, np.bool_)[trace.host.name]) if any(texts) else np.empty(0, np.int64)
    return rows[~np.isin(trace.host.kind[rows], _NO_RANGE)]
