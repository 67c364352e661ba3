"""The allocator holds memory that no tensor uses.

What it means
    An allocator gives out whole blocks. What is left of them, and what lies free between them, cannot be used
    by a large tensor, although it is free.

How we know
    The bytes of the blocks live at the peak beyond what was asked for, and the share of the free memory
    outside its largest block where little is free. With batches of one shape and free memory in one piece,
    blocks still hold more than was asked for: a free block is given out whole unless half of it, or
    128 MiB, would be left.

What it costs
    The bytes beyond what was asked for; with a baseline, beyond what is wasted there. At most what the peak
    would fall by.

When to ignore
    When most of the device's memory is free; it is then reported as a note.

Sources
    XProf's documentation of memory profiles; TensorFlow's and XLA's BFC allocator gives out a whole block if
    what would be left of it is smaller than the request and than 128 MiB (`BFCAllocator::FindChunkPtr`).
"""

from __future__ import annotations

from mpprof.analysis.memory.remedies import lowered
from mpprof.diagnosis.prelude import *
from mpprof.model.memory import MemoryAccount

CODE, SLUG, TITLE = "MP607", "fragmentation", "Memory is lost to fragmentation"
ABOUT = "fragmentation"

LOOSE_RATIO, SCARCE_RATIO, PLENTY_RATIO = 0.5, 0.1, 0.5
"""Half of the free memory in small pieces matters where less than a tenth of all is free; what blocks hold
beyond what was asked for is worth a note and not a warning if more than half of all is free."""


def judge(signals: Signals) -> Outcome:
    account, parts = need(signals.at_peak)
    of_gap = account.of_gap(CODE)
    lost = lowered(parts, CODE, lambda held: held) if of_gap is None else of_gap
    share, loose = lost / account.whole_bytes, account.fragmentation_ratio
    free = _free_ratio(account)
    pieces = loose is not None and loose >= LOOSE_RATIO and free is not None and free < SCARCE_RATIO
    plenty = free is not None and free > PLENTY_RATIO
    if share < NOTABLE_MEMORY and not pieces:
        if account.rounding_bytes is None and loose is None:
            return Unable("the allocator's events do not state how many bytes were requested")
        return Clear(f"{format_ratio(share)} of the peak")
    said = f"the peak is {format_bytes(lost)} higher because blocks hold more than was requested"
    if pieces:
        said += f"; {format_ratio(loose)} of the free memory lies outside its largest block"
    return Found(
        summary=said,
        evidence=(
            evidence.ratio("share of the peak", share, NOTABLE_MEMORY),
            evidence.ratio("free memory outside its largest block", loose, LOOSE_RATIO),
            evidence.ratio("free of the allocator's memory", free, PLENTY_RATIO),
        ),
        severity="warning" if pieces or (share >= LARGE_MEMORY and not plenty) else "info",
        cost_bytes=lost,
        cases=("pieces",) if pieces else ("plenty",) if plenty else ("",),
        title=TITLE if pieces else "Blocks hold more memory than was requested",
    )


def _free_ratio(account: MemoryAccount) -> float | None:
    """Return the share of the allocator's memory that is free at the peak; None: its size is not stated."""
    mine = account.main_allocator
    if mine is None or not mine.capacity_bytes:
        return None
    return 1.0 - account.peak_bytes / mine.capacity_bytes
