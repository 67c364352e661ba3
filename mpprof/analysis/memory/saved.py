"""What mixed precision saved of the memory, what it could have saved, and where the difference went."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from mpprof.analysis.memory import remedies
from mpprof.model.memory import (
    KEPT,
    KINDS,
    STATES,
    UPDATE,
    DriverSaving,
    Kind,
    MemoryAccount,
    MemoryCause,
    MemoryOfKind,
    PeakParts,
)
from mpprof.model.run import Run
from mpprof.model.steps import StepSummary
from mpprof.tensors import HALF, WIDE

_BACKWARD = ("forward", "backward")
_TOLD_RATIO = 0.05
"""Less of the baseline's peak is within what two runs of one program differ by."""
_PART_RATIO = 0.01
"""Of the expected saving: what is less is no cause, and part of what is unexplained."""
_HARDLY_RATIO = 0.1
"""Of what was saved: a driver's figure that falls by less does not show it."""
_NARROW = HALF | {"f16", "bf16"}
"""Types of 16 bits, XLA's names among them: what it assigns for a whole program is of no layer."""


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
    unchanged where either run recorded no peak. With the driver's figures of both where they are recorded."""
    account = _peaks(memory, mine, baseline, base, run, base_run)
    if account is None or account.saved_bytes is None:
        return account
    return replace(account, driver=_by_the_driver(mine, baseline))


def unknown(
    memory: MemoryAccount | None, mine: StepSummary | None, unlike: Sequence[str]
) -> MemoryAccount | None:
    """Return the memory account of a run whose baseline differs in more than its precision: without what was
    saved, with the reason. None where nothing is known of this run's own peak."""
    peak = mine.peak_memory_bytes if mine else None
    account = memory or (MemoryAccount(peak, ()) if peak is not None else None)
    why = f"the baseline differs in more than its precision: {'; '.join(unlike)}"
    return None if account is None else replace(account, why_not_saved=why)


def _peaks(
    memory: MemoryAccount | None,
    mine: StepSummary | None,
    baseline: StepSummary | None,
    base: MemoryAccount | None,
    run: Run | None,
    base_run: Run | None,
) -> MemoryAccount | None:
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


def _by_the_driver(mine: StepSummary | None, baseline: StepSummary | None) -> DriverSaving | None:
    """Return what the driver's figure says of the saving. What the driver's figure holds beyond the
    allocator's peak is what the framework took in advance (MP602), as far as that hides the saving."""
    now, before = (each.memory if each else None for each in (mine, baseline))
    if now is None or before is None or now.driver_bytes is None or before.driver_bytes is None:
        return None
    if now.peak_bytes is None or before.peak_bytes is None:
        return None
    found = DriverSaving(
        bytes=now.driver_bytes,
        baseline_bytes=before.driver_bytes,
        peak_saved_bytes=before.peak_bytes - now.peak_bytes,
        unused_bytes=max(0, now.driver_bytes - now.peak_bytes),
        code=None,
    )
    if found.peak_saved_bytes < _TOLD_RATIO * before.peak_bytes:
        return found
    if found.saved_bytes > _HARDLY_RATIO * found.peak_saved_bytes or found.unused_bytes < found.hidden_bytes:
        return found
    return replace(found, code=remedies.PREALLOCATED)


def _why_not(memory: MemoryAccount, base: MemoryAccount, run: Run | None, base_run: Run | None) -> str | None:
    """Return why nothing can be expected of the pair; None where it can."""
    mine, theirs = (account.main_allocator for account in (memory, base))
    if (mine and mine.where) != (theirs and theirs.where):
        return "one run has allocator events of a device, the other of the host"
    batch = [one.last_fit.batch_size if one and one.last_fit else None for one in (run, base_run)]
    if None not in batch and batch[0] != batch[1]:
        return f"the batches differ: {batch[1]} in the baseline, {batch[0]} in this run"
    if memory.parts and not memory.parts.half_layers:
        if any(item.by == "dtype" and item.name in _NARROW for item in memory.at_peak):
            return "which layers hold its memory in 16 bits is not known"
        return "no layer of this run is known to allocate in 16 bits"
    return None


def _compared(
    memory: MemoryAccount, base: MemoryAccount, mine: PeakParts, other: PeakParts, why_not: str | None
) -> MemoryAccount:
    saved = base.peak_bytes - memory.peak_bytes
    if why_not is not None:
        return replace(memory, saved_bytes=saved, why_no_expectation=why_not)
    shrinks = _shrinking(mine, other)
    expected = sum(shrinks.values()) - mine.copies_once_bytes
    wide = _wide(mine, other, shrinks)
    gap = _causes(memory, base, mine, other, wide, shrinks)
    return replace(
        memory,
        saved_bytes=saved,
        expected_saving_bytes=expected,
        reachable_bytes=max(0, expected - saved),
        gap=gap,
        unexplained_bytes=expected - saved - sum(cause.bytes for cause in gap),
        beyond_16_bits_bytes=wide,
        shrank=_shrank(memory, base, mine, other),
    )


def _shrinking(mine: PeakParts, other: PeakParts) -> dict[str, int]:
    """Return by layer what 16 bits could take off the baseline's activations that are kept for backward: half
    of what is float32 there, of the layers that compute in 16 bits now."""
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
    wide: int,
    shrinks: dict[str, int],
) -> tuple[MemoryCause, ...]:
    """Return the parts of the gap: how much the peak falls where a cause's bytes come down to the baseline's,
    at every moment of the trace. Return what `wide` holds beyond what was expected of the activations."""

    def beyond(code: str, allowed: int) -> int:
        return remedies.lowered(mine, code, lambda held: held - allowed)

    activations = _in_half(mine, mine) - (_in_half(other, mine) - sum(shrinks.values()))
    found = {
        remedies.STATES: beyond(remedies.STATES, sum(other.asked.get(kind, 0) for kind in STATES)),
        remedies.WEIGHT_COPIES: beyond(remedies.WEIGHT_COPIES, mine.copies_once_bytes),
        remedies.WIDE_ACTIVATIONS: min(wide, activations),
        remedies.WORKSPACES: beyond(remedies.WORKSPACES, other.asked.get("workspaces", 0)),
        remedies.UPDATE_WORK: beyond(remedies.UPDATE_WORK, 0) if _moved(mine, other) else 0,
        remedies.FRAGMENTS: beyond(remedies.FRAGMENTS, base.rounding_bytes or 0)
        if memory.rounding_bytes is not None
        else 0,
    }
    least = max(0, _PART_RATIO * (sum(shrinks.values()) - mine.copies_once_bytes))
    ordered = sorted(found.items(), key=lambda part: (-part[1], part[0]))
    return tuple(MemoryCause(code, size) for code, size in ordered if size > least)


def _shrank(
    memory: MemoryAccount, base: MemoryAccount, mine: PeakParts, other: PeakParts
) -> tuple[MemoryOfKind, ...]:
    """Return by how much the peak holds less than the baseline's of each kind, the largest first, but for the
    activations kept for backward: of these it was expected. What part of the states is estimated may differ
    between the runs, so states are one: "held before the window"."""
    now, before = (
        _with_states_as_one(parts.asked) | {"rounding": account.rounding_bytes or 0}
        for account, parts in ((memory, mine), (base, other))
    )
    fell = {kind: before.get(kind, 0) - now.get(kind, 0) for kind in KINDS if kind != KEPT}
    least = _PART_RATIO * base.peak_bytes
    large = (MemoryOfKind(kind, size) for kind, size in fell.items() if size > least)
    return tuple(sorted(large, key=lambda part: -part.bytes))


def _with_states_as_one(asked: dict[Kind, int]) -> dict[Kind, int]:
    others: dict[Kind, int] = {kind: size for kind, size in asked.items() if kind not in STATES}
    return others | {"held before the window": sum(asked.get(kind, 0) for kind in STATES)}


def _in_half(parts: PeakParts, mine: PeakParts) -> int:
    """Return the bytes at a peak of activations, kept or not, and of their gradients, of the layers that
    compute in 16 bits in this run."""
    return sum(
        size
        for held in (parts.kept, parts.flowing)
        for (layer, _), size in held.items()
        if layer in mine.half_layers
    )


def _wide(mine: PeakParts, other: PeakParts, shrinks: dict[str, int]) -> int:
    """Return how much the peak falls once layers that compute in 16 bits also keep their activations in 16
    bits: the float32 part of what they keep beyond half of the baseline's. Made 16 bits, half of it stays,
    unless the layer keeps that besides. Half of what nothing keeps is saved, too."""
    all_wide = mine.wide(mine.flowing).total()
    total = all_wide // 2
    for layer, wide in mine.wide(mine.kept).items():
        now = sum(size for (name, _), size in mine.kept.items() if name == layer)
        before = sum(size for (name, _), size in other.kept.items() if name == layer)
        beyond = now - (before - shrinks.get(layer, 0))
        stays = max(0, wide // 2 - (now - wide))
        total += max(0, min(wide - stays, beyond))
        all_wide += wide
    return remedies.lowered(mine, remedies.WIDE_ACTIVATIONS, lambda held: held * total // max(1, all_wide))


def _moved(mine: PeakParts, other: PeakParts) -> bool:
    """Return whether the peak left the forward and backward pass, where most of the bytes are activations."""
    return mine.phase in UPDATE and other.phase in _BACKWARD
