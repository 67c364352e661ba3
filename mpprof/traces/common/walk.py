"""The walk over the protobuf wire format: compiled where the extension was built, else in plain Python.

`scan` reads the fields of many messages into columns, `fields` those of one into a list, and `events` the
events of a plane's lines into columns; all are explained in `walk_reference`. `COMPILED` says which of the
two walks is in use; their results are the same.
"""

from __future__ import annotations

from functools import cache

from mpprof.traces.common import walk_reference
from mpprof.traces.common.walk_reference import EventColumns, Field, Fields

try:
    import mpprof.traces.common._walk as _walk

    # An extension that was built from another version of the source, as in a checkout that was updated.
    COMPILED = getattr(_walk, "CALLS", None) == walk_reference.CALLS
except ImportError:
    COMPILED = False
_USED = _walk if COMPILED else walk_reference
scan, fields, events = _USED.scan, _USED.fields, _USED.events


@cache
def say_slow() -> None:
    """Warn, once in a process, that it takes long. No warning of the trace: nothing is missing from it."""
    import logging  # not needed where the walk is compiled

    logging.getLogger("mpprof").warning(
        "mpprof: large traces are read by the walk in plain Python, about 100 times slower than the compiled "
        "one, which was not built on this machine (`mpprof doctor`); the result is the same"
    )


__all__ = ["COMPILED", "EventColumns", "Field", "Fields", "events", "fields", "say_slow", "scan"]
