"""What the rules about memory share: the account of a 16-bit run, and what of the gap is a cause's."""

from __future__ import annotations

from mpprof.diagnosis.outcomes import NOT_IN_16_BITS, Absent, Missing, NotApplicable
from mpprof.diagnosis.signals import Signals
from mpprof.model.memory import MemoryAccount, PeakParts

NOTABLE_RATIO = 0.05
"""Of the peak: less would not let the batch grow by as much as one example in twenty."""
WARNING_RATIO = 0.2
"""A fifth of the peak is what a larger batch is refused for."""


def account(signals: Signals) -> tuple[MemoryAccount, PeakParts] | NotApplicable:
    """Return what was live at the peak of a run in 16 bits; NotApplicable for another one.

    Raise Missing where no allocator events tell."""
    if signals.on_cpu:
        raise Missing(Absent("the run used no GPU"))
    if signals.computes.kind == "unknown":
        raise Missing(Absent(signals.computes.reason))
    if not signals.computes.narrow:
        return NOT_IN_16_BITS
    memory = signals.case.memory
    if memory is None or memory.parts is None:
        raise Missing(Absent("no allocator events tell what was live at the peak"))
    return memory, memory.parts


def gap_bytes(memory: MemoryAccount, code: str) -> int | None:
    """Bytes of the gap to what could have been saved that are this cause's; None without a baseline."""
    if memory.expected_saving_bytes is None:
        return None
    return next((part.bytes for part in memory.gap if part.code == code), 0)


def whole(memory: MemoryAccount) -> int:
    """The peak that a cause's bytes are held against: the baseline's, where there is one."""
    return max(1, memory.peak_bytes + max(0, memory.saved_bytes or 0))
