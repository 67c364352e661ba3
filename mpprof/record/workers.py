"""Several processes that train one model together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Worker:
    """Which of several processes this is, 0 the first; `cluster` is the same text in all of them."""

    index: int
    cluster: str
