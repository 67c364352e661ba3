"""The walk over the protobuf wire format: compiled where the extension was built, else in plain Python.

`scan` reads the fields of any messages, `events` the events of a plane's lines into columns; both are
explained in `walk_reference`. `COMPILED` says which of the two walks is in use.
"""

from __future__ import annotations

from mpprof.traces import walk_reference
from mpprof.traces.walk_reference import EventColumns, Fields

try:
    import mpprof.traces._walk as _walk
except ImportError:
    COMPILED = False
    scan, events = walk_reference.scan, walk_reference.events
else:
    COMPILED = True
    scan, events = _walk.scan, _walk.events

__all__ = ["COMPILED", "EventColumns", "Fields", "events", "scan"]
