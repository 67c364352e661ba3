"""Results that are computed once and shared between threads, until their inputs change."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SharedResults(Generic[K, V]):
    """The last `most` results asked for, by key, as long as `weigh` makes no more of them together than
    `heaviest`. A thread that asks for one that another thread computes waits for it; threads that ask for
    other results do not."""

    def __init__(
        self, most: int, weigh: Callable[[V], float] = lambda value: 0, heaviest: float = 0.0
    ) -> None:
        self._most, self._weigh, self._heaviest = most, weigh, heaviest
        self._kept: OrderedDict[K, tuple[Hashable, V]] = OrderedDict()
        self._making: dict[K, Lock] = {}
        self._lock = Lock()

    def get(self, key: K, version: Hashable, make: Callable[[], V]) -> V:
        """Return the value of `key` at `version`. An error that `make` raises is passed on, and nothing is
        kept then."""
        kept = self._at(key, version)
        if kept is not None:
            return kept[0]
        with self._lock:
            making = self._making.setdefault(key, Lock())
        try:
            with making:
                kept = self._at(key, version) or self._keep(key, version, make())
        finally:
            with self._lock:
                self._making.pop(key, None)
        return kept[0]

    def _at(self, key: K, version: Hashable) -> tuple[V] | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None or found[0] != version:
                return None
            self._kept.move_to_end(key)
            return (found[1],)

    def _keep(self, key: K, version: Hashable, value: V) -> tuple[V]:
        with self._lock:
            self._kept[key] = version, value
            self._kept.move_to_end(key)
            self._kept.move_to_end(key)
            while len(self) > self._most or self._weight() > self._heaviest:
                self._kept.popitem(last=False)
        return (value,)

    def __len__(self) -> int:
        return len(self._kept)

    def _weight(self) -> float:
        return sum(self._weigh(value) for _, value in self._kept.values())
