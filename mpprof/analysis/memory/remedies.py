"""What an allocator's peak falls by when a cause is remedied: where another moment then holds most, only down
to that."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from mpprof.model.arrays import Int64
from mpprof.model.memory import PeakParts

if TYPE_CHECKING:
    from mpprof.analysis.memory.blocks import Blocks

Moments = tuple[tuple[int, int], ...]

STATES, PREALLOCATED, WEIGHT_COPIES, WIDE_ACTIVATIONS = "MP601", "MP602", "MP603", "MP604"
WORKSPACES, UPDATE_WORK, FRAGMENTS = "MP605", "MP606", "MP607"
"""What holds memory, by the code of the rule that judges it."""


def lowered(parts: PeakParts, code: str, removed: Callable[[int], int]) -> int:
    """Return the bytes by which the peak falls when a cause's bytes shrink at every moment.

    `removed(held)` is what the remedy takes of `held` bytes of the cause; it must not fall as `held` grows.
    0 where the trace shows nothing of this cause."""
    moments = parts.moments.get(code)
    if not moments:
        return 0
    peak = moments[0][1]
    return peak - max(live - max(0, removed(held)) for held, live in moments)


def held(blocks: Blocks, size: Int64) -> Int64:
    """Return what is live of the blocks after each event, of each block `size` bytes (0: not counted)."""
    from mpprof.analysis.memory.blocks import NEVER  # what a rule asks needs no blocks

    count = len(blocks.live_bytes)
    mine = np.flatnonzero(size)
    ended = mine[blocks.died[mine] != NEVER]
    change = np.bincount(blocks.born[mine], weights=size[mine], minlength=count)
    change -= np.bincount(blocks.died[ended], weights=size[ended], minlength=count)
    return np.cumsum(change.astype(np.int64))


def older(blocks: Blocks) -> Int64:
    """Return what is live after each event of what is older than the first."""
    count = len(blocks.live_bytes)
    freed = np.bincount(blocks.older_died, weights=blocks.older_sizes, minlength=count).astype(np.int64)
    return np.maximum(0, blocks.older_bytes - np.cumsum(freed))


def moments(live_bytes: Int64, held_bytes: Int64) -> Moments:
    """Return the moments that may be the fullest once some of `held_bytes` is taken away: bytes held and
    bytes live, the fullest first. Every other moment has fewer live bytes and more held than one of these."""
    peak = int(live_bytes.max())
    least_held = int(held_bytes[live_bytes == peak].min())
    if not least_held:
        return ((0, peak),)
    rows = np.flatnonzero(live_bytes >= peak - least_held)
    rows = rows[np.lexsort((held_bytes[rows], -live_bytes[rows]))]
    lowest = np.minimum.accumulate(held_bytes[rows])
    rows = rows[np.append(True, lowest[1:] < lowest[:-1])]
    return tuple(zip(held_bytes[rows].tolist(), live_bytes[rows].tolist(), strict=True))
