"""What mixed precision saved of the memory, what it could have saved, and where the difference went."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from mpprof.model.memory import Cause, Kind, MemoryAccount, PeakParts
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary

HALF = frozenset(("half", "bfloat16", "float16"))
WIDE = frozenset(("float", "float32"))
_STATES: tuple[Kind, ...] = ("parameters", "optimizer slots", "held before the window")
_ELSEWHERE: tuple[Kind, ...] = ("gradients", "other activations", "optimizer temporaries", "input", "other")
_BACKWARD = ("forward", "backward")


def against(
    memory: MemoryAccount | None,
    mine: StepSummary | None,
    baseline: StepSummary | None,
    base: MemoryAccount | None = None,
    run: Run | None = None,
    base_run: Run | None = None,
) -> MemoryAccount | None:
    """Return the memory account with what was saved against the baseline.

    Where both traces tell what was live at the peak, of those peaks, with what could have been saved and
    where the rest went. Else of the recorded peaks; where the trace gave no account, one of the peak alone;
    unchanged where either run recorded no peak."""
    if memory is not None and base is not None and memory.parts and base.parts:
        return _compared(memory, base, memory.parts, base.parts, _why_not(memory, base, run, base_run))
    before = baseline.peak_memory_bytes if baseline else None
    after = mine.peak_memory_bytes if mine else None
    if before is None or after is None:
        return memory
    account = memory or MemoryAccount(after, ())
    return replace(
        account,
        saved_bytes=before - after,
        why_no_expectation="the traces do not show what was live at both peaks",
    )


def _why_not(memory: MemoryAccount, base: MemoryAccount, run: Run | None, base_run: Run | None) -> str | None:
    """Why nothing can be expected of the pair; None where it can."""
    where = [
        next((each.where for each in account.allocators if each.name == account.allocator), None)
        for account in (memory, base)
    ]
    if where[0] != where[1]:
        return "one run has allocator events of a device, the other of the host"
    batch = [one.last_fit.batch_size if one and one.last_fit else None for one in (run, base_run)]
    if None not in batch and batch[0] != batch[1]:
        return f"the batches differ: {batch[1]} in the baseline, {batch[0]} in this run"
    if memory.parts and not memory.parts.half_layers:
        return "this run allocates nothing in 16 bits"
    return None


def _compared(
    memory: MemoryAccount, base: MemoryAccount, mine: PeakParts, other: PeakParts, why_not: str | None
) -> MemoryAccount:
    saved = base.peak_bytes - memory.peak_bytes
    if why_not is not None:
        return replace(memory, saved_bytes=saved, why_no_expectation=why_not)
    shrinks = _shrinking(mine, other)
    expected = sum(shrinks.values()) - mine.copies_once_bytes
    gap = _causes(memory, base, mine, other, shrinks)
    return replace(
        memory,
        saved_bytes=saved,
        expected_saving_bytes=expected,
        reachable_bytes=max(0, expected - saved),
        gap=gap,
        unexplained_bytes=expected - saved - sum(cause.bytes for cause in gap),
    )


def _shrinking(mine: PeakParts, other: PeakParts) -> dict[str, int]:
    """By layer, what 16 bits could take off the baseline's activations that are kept for backward: half of
    what is float32 there, of the layers that compute in 16 bits now."""
    found: defaultdict[str, int] = defaultdict(int)
    for (layer, dtype), size in other.kept.items():
        if dtype in WIDE and layer in mine.half_layers:
            found[layer] += size // 2
    return dict(found)


def _causes(
    memory: MemoryAccount,
    base: MemoryAccount,
    mine: PeakParts,
    other: PeakParts,
    shrinks: dict[str, int],
) -> tuple[Cause, ...]:
    """Parts of the gap, each of bytes that no other part counts; what is less than expected is none."""

    def more(*kinds: Kind) -> int:
        return sum(mine.asked.get(kind, 0) - other.asked.get(kind, 0) for kind in kinds)

    found = {
        "MP601": more(*_STATES),
        "MP603": mine.copies_bytes - mine.copies_once_bytes,
        "MP604": _wide(mine, other, shrinks),
        "MP605": more("workspaces"),
        "MP606": more(*_ELSEWHERE) if _moved(mine, other) else 0,
        "MP607": (memory.rounding_bytes or 0) - (base.rounding_bytes or 0),
    }
    ordered = sorted(found.items(), key=lambda part: (-part[1], part[0]))
    return tuple(Cause(code, size) for code, size in ordered if size > 0)


def _wide(mine: PeakParts, other: PeakParts, shrinks: dict[str, int]) -> int:
    """What layers that compute in 16 bits keep beyond half of the baseline's, as far as it is float32."""
    total = 0
    for layer in mine.half_layers:
        now = {dtype: size for (name, dtype), size in mine.kept.items() if name == layer}
        before = sum(size for (name, _), size in other.kept.items() if name == layer)
        wide = sum(size for dtype, size in now.items() if dtype in WIDE)
        beyond = sum(now.values()) - (before - shrinks.get(layer, 0))
        total += max(0, min(wide, beyond))
    return total


def _moved(mine: PeakParts, other: PeakParts) -> bool:
    """Whether the peak left the forward and backward pass, where activations are what there is most of."""
    return mine.phase not in _BACKWARD and other.phase in _BACKWARD
