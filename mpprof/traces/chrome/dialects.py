"""A Chrome trace is read by its dialect.

The text is read through a window and never held whole. Memory is what is kept of the events: of a Kineto
trace 0.8 times its text (300 MB for 360 MB and 1.3 million events). Whatever the bytes say, it stays below
64 times the text plus 100 MB, and at 700 bytes for each of at most 10 million events. Gzip is bounded as the
text is unpacked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.trace import Trace, TraceSource
from mpprof.traces.chrome import kineto, kineto_trace, tensorflow
from mpprof.traces.chrome.json import ChromeFile, Event

_MOST_BEFORE = 100_000
"""Events that are looked at before the first that tells the dialect."""
_OF_TIMELINE = "Op"
"""The category of an interval in what `timeline.Timeline(step_stats).generate_chrome_trace_format()` writes
(tensorflow/python/client/timeline.py)."""
_TIMELINE = "is a timeline of TensorFlow 1 (RunMetadata): it holds ops and no kernels, so nothing is judged"
_PROFILE = "Record with a profiler: tf.profiler.experimental.Profile of TensorFlow 2, or nsys profile"
_MOST_INTERVALS = 100
"""Intervals without a category, after which it is no Kineto trace: a few of those may lack theirs."""


def read(path: Path, *, strict: bool) -> Trace:
    """Return a Chrome trace. Raises UnreadableError where nothing usable is left, with `strict` for any
    damage."""
    file = ChromeFile(path)
    categories, events = _with_categories(file.events(), path)
    source = TraceSource(path, "chrome", path.stat().st_size, _host_name(path))
    if categories:
        trace = kineto_trace.assemble(kineto.collect(events), file.header, source)
    else:
        trace = tensorflow.assemble(events, source)
    return _checked(trace, file, strict=strict)


def _with_categories(events: Iterator[Event], path: Path) -> tuple[bool, Iterator[Event]]:
    """Return whether intervals have a category (Kineto gives each one, TensorFlow none), and all events from
    the start. Raises UnreadableError for a timeline of TensorFlow 1, which has one of its own."""
    before: list[Event] = []
    intervals = 0
    for event in events:
        before.append(event)
        if event.get("ph") == "X":
            if event.get("cat") == _OF_TIMELINE:
                raise UnreadableError(_TIMELINE, where=str(path), next=_PROFILE)
            if "cat" in event:
                return True, chain(before, events)
            intervals += 1
        if len(before) >= _MOST_BEFORE or intervals >= _MOST_INTERVALS:
            break
    return False, chain(before, events)


def _checked(trace: Trace, file: ChromeFile, *, strict: bool) -> Trace:
    path = str(file.path)
    if file.damages and strict:
        raise UnreadableError(file.damages[0], where=path, next="Leave out --strict to read the intact part")
    if not (len(trace.kernels) or len(trace.host) or len(trace.allocations)):
        why = f"no event is left: {file.damages[0]}" if file.damages else "it holds no event of a profiler"
        raise UnreadableError(why, where=path, next="Record the trace again")
    skipped = (f"{file.skipped} entries of traceEvents are not events",) if file.skipped else ()
    return replace(trace, warnings=(*file.damages, *skipped, *trace.warnings))


def _host_name(path: Path) -> str | None:
    """Return the host name in the file name; PyTorch's TensorBoard handler names files
    `<host>_<pid>.<time>.pt.trace.json.gz`."""
    name = path.name
    for suffix in (".gz", ".json", ".trace", ".pt"):
        name = name.removesuffix(suffix)
    return name or None
