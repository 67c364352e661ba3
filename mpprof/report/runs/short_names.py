"""Names of runs in a column: short, and no two alike that are not the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from mpprof.report import words

_MOST_ROUNDS = 16


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Return each name in at most `width` characters. Where names that differ would look the same, what is
    left out is their common beginning; where even that does not tell them apart, they stay whole."""
    short = {name: words.shorten(name, width) for name in names}
    for _ in range(_MOST_ROUNDS):
        for group in _alike(short):
            short |= _apart(group, width)
    short |= {name: name for group in _alike(short) for name in group}
    return [short[name] for name in names]


def _alike(short: Mapping[str, str]) -> Iterable[list[str]]:
    """Return the names that cannot be told apart, group by group."""
    groups = defaultdict(list)
    for name, cut in short.items():
        groups[cut].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _apart(names: Sequence[str], width: int) -> dict[str, str]:
    """Return each name as its head, and what follows the beginning that all of them have in common."""
    first, last = min(names), max(names)
    common = next(at for at in range(len(last)) if first[at : at + 1] != last[at])
    longest = max(map(len, names)) - common
    head = min(common, max(width // 3, width - 1 - longest))
    return {name: f"{name[:head]}…{words.shorten(name[common:], width - 1 - head)}" for name in names}
