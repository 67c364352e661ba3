"""A source whose documents name no host, user or path: what a report to hand on is made from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpprof.model.source import RunTables

_DOCUMENTS = frozenset(("report", "kernels", "products", "ops", "layers", "timeline", "compare", "numbers"))


class Redacted:
    """`source` with every string of its documents redacted; what holds no strings passes as it is."""

    def __init__(self, source: RunTables, redact: Callable[[Any], Any]) -> None:
        self._source, self._redact = source, redact

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._source, name)
        if name not in _DOCUMENTS:
            return asked
        return lambda *args, **more: self._redact(asked(*args, **more))
