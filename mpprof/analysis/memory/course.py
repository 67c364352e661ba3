"""Live bytes over the trace, by kind and by type, in few enough points to draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mpprof.analysis.memory.blocks import NEVER, Blocks
from mpprof.model.arrays import Bool, Int64
from mpprof.model.grouping import distinct
from mpprof.model.memory import Course

POINTS = 240
"""A line of a terminal or a figure shows no more."""
MOST_NAMES = 8
UNKNOWN, BEFORE, REST = "unknown", "held before the window", "others"


def course(
    blocks: Blocks,
    time_ns: Int64,
    names: dict[str, tuple[Int64, Sequence[str]]],
    held: Sequence[tuple[str, int]],
) -> Course:
    """Return the course of an allocator's live bytes. `time_ns` has its events' times.

    `names[by]` are a code for each block and the name of each code. The fullest moment of each of POINTS
    stretches with events is kept, so the peak is among them. What is older than the trace is `held`, names
    and bytes that are marked as estimated, and "held before the window"; what no block accounts for is
    "unknown".
    """
    places = fullest(time_ns, blocks.live_bytes)
    total = blocks.live_bytes[places]
    parts = {}
    older = blocks.older_bytes - _passed(blocks.older_died, blocks.older_sizes, places)
    for by, (codes, texts) in names.items():
        rows = {texts[code]: _live(blocks, codes == code, places) for code in distinct(codes).tolist()}
        named = np.sum(list(rows.values()), axis=0) if rows else np.zeros(len(places), np.int64)
        room = np.clip(total - named, 0, None)
        rest = np.clip(older, 0, room)
        for name, size in held:
            rows[f"{name} (estimated)"] = np.minimum(rest, size)
            rest = rest - rows[f"{name} (estimated)"]
        rows[BEFORE] = rest
        lost = named > total  # frees were lost: nothing can be said of what was live there
        rows = {name: np.where(lost, 0, values) for name, values in rows.items()}
        known = np.sum(list(rows.values()), axis=0)
        rows[UNKNOWN] = rows.get(UNKNOWN, 0) + total - known
        parts[by] = _largest(rows)
    return Course(tuple(time_ns[places].tolist()), tuple(total.tolist()), parts)


def fullest(time_ns: Int64, live: Int64) -> Int64:
    """Return the places of the events with most bytes in each of POINTS equal stretches of time that has any
    event."""
    since = time_ns.astype(np.float64) - float(time_ns[0])  # as whole numbers far clocks would overflow
    stretch = np.minimum(since * POINTS // max(1.0, since[-1]), POINTS - 1)
    starts = np.flatnonzero(np.diff(stretch, prepend=-1))
    most = np.maximum.reduceat(live, starts)
    counts = np.diff(np.append(starts, len(live)))
    top = np.flatnonzero(live == np.repeat(most, counts))
    _, first = np.unique(stretch[top], return_index=True)
    return top[first]


def _live(blocks: Blocks, mine: Bool, places: Int64) -> Int64:
    born, died, size = blocks.born[mine], blocks.died[mine], blocks.bytes[mine]
    ended = died != NEVER
    return _passed(born, size, places) - _passed(died[ended], size[ended], places)


def _passed(at: Int64, size: Int64, places: Int64) -> Int64:
    """Return the bytes of the events up to and at each place."""
    order = np.argsort(at, kind="stable")
    sums = np.append(0, np.cumsum(size[order]))
    return sums[np.searchsorted(at[order], places, side="right")]


def _largest(rows: dict[str, Int64]) -> dict[str, tuple[int, ...]]:
    """Return the MOST_NAMES parts with the highest peaks, the rest as one part."""
    ordered = sorted((name for name in rows if rows[name].any()), key=lambda n: (-int(rows[n].max()), n))
    found = {name: rows[name] for name in ordered[:MOST_NAMES]}
    if len(ordered) > MOST_NAMES:
        found[REST] = np.sum([rows[name] for name in ordered[MOST_NAMES:]], axis=0)
    return {name: tuple(values.tolist()) for name, values in found.items()}
