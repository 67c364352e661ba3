"""What mixed precision saved of a device's memory, by the peaks that both runs recorded."""

from __future__ import annotations

from dataclasses import replace

from mpprof.model.memory import MemoryAccount
from mpprof.model.steps import StepSummary


def against(
    memory: MemoryAccount | None, mine: StepSummary | None, baseline: StepSummary | None
) -> MemoryAccount | None:
    """The memory account with what was saved against the baseline's recorded peak. Where the trace gave no
    account, one of the peak alone; unchanged where either run recorded no peak."""
    before = baseline.peak_memory_bytes if baseline else None
    after = mine.peak_memory_bytes if mine else None
    if before is None or after is None:
        return memory
    account = memory or MemoryAccount(after, ())
    return replace(account, saved_bytes=before - after)
